"""The stage: a scenario played by a real store on the memory disk, and what came of it.

The recording is the only thing that crashes need, so a scenario runs once however many crashes are made of it. While
it runs every answer is compared with the model: a store that answers wrongly without a crash is not worth crashing.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

import attrs

from turnproof.impl import Store, open_store
from turnproof.impl.connection import Pool
from turnproof.impl.files import FileSystem
from turnproof.model.operations import Operation
from turnproof.model.vocabulary import InvalidArgument, TurnproofError
from turnproof.proofs.compare import Comparison
from turnproof.proofs.crash.script import DIRECTORY, Scenario, Step, Timeline, timeline
from turnproof.proofs.disk import Disk, Recording, reproducible
from turnproof.proofs.disk.files import Files
from turnproof.proofs.subjects import Flush
from turnproof.proofs.wire import Err, Ok, Outcome, encode

__all__ = [
    "ALWAYS",
    "DATABASE",
    "Nonconforming",
    "Opener",
    "Played",
    "Setting",
    "Stage",
    "call",
    "prepare",
    "record",
    "without_timers",
]

Opener = Callable[..., Store]
"""``open_store``, or that of a wrong store."""

DATABASE: Final = f"{DIRECTORY}/journal.db"
_BUSY_MS: Final = 50
_arguments: Final[dict[type[Operation], tuple[str, ...]]] = {}


class Nonconforming(Exception):
    """The store answered otherwise than the model before anything crashed."""


@attrs.frozen
class Setting:
    """Which store, and how it is opened."""

    flush: Flush = "always"
    opener: Opener = open_store


ALWAYS: Final = Setting()


def call(store: Store, operation: Operation) -> Outcome:
    """Put one operation to a store; the answer as on the wire."""
    names = _arguments.get(type(operation))
    if names is None:
        names = _arguments[type(operation)] = tuple(field.name for field in attrs.fields(type(operation)))
    given = {name: value for name in names if (value := getattr(operation, name)) is not None}
    try:
        return Ok(encode(getattr(store, operation.verb)(**given)))
    except TurnproofError as error:
        return Err(error.code.value, error.message)


@contextlib.contextmanager
def without_timers() -> Iterator[None]:
    """Stores that are opened meanwhile start no thread to close connections that were idle for a minute.

    An image lives for a millisecond, and starting that thread took a third of it.
    """
    watch = Pool.__dict__["_watch"]
    type.__setattr__(Pool, "_watch", lambda pool: None)
    try:
        yield
    finally:
        type.__setattr__(Pool, "_watch", watch)


@attrs.define
class Loaded:
    """The files of a disk that was just loaded: what is still as it was need not be copied to be read."""

    system: Files
    loaded: dict[str, bytes]

    def exists(self, path: str, /) -> bool:
        return self.system.exists(path)

    def listdir(self, path: str, /) -> list[str]:
        return self.system.listdir(path)

    def read(self, path: str, /) -> bytes:
        return self.loaded[path] if path in self.loaded else self.system.read(path)

    def create(self, path: str, data: bytes, /) -> None:
        self._changed(path)
        self.system.create(path, data)

    def sync(self, path: str, /) -> None:
        self.system.sync(path)

    def rename(self, old: str, new: str, /) -> None:
        self._changed(old, new)
        self.system.rename(old, new)

    def unlink(self, path: str, /) -> None:
        self._changed(path)
        self.system.unlink(path)

    def makedirs(self, name: str, mode: int, exist_ok: bool, /) -> None:
        self.system.makedirs(name, mode, exist_ok)

    def _changed(self, *paths: str) -> None:
        for path in paths:
            self.loaded.pop(path, None)


@attrs.define(eq=False)
class Stage:
    """The stores of one client on one disk, and the connections that they opened."""

    disk: Disk
    setting: Setting = ALWAYS
    wal_autocheckpoint: int = 1000
    files: FileSystem | None = None
    """What the store uses beside SQLite, if not the disk's own."""
    stores: dict[int, Store] = attrs.field(factory=dict, init=False)
    connections: list[sqlite3.Connection] = attrs.field(factory=list, init=False)

    def open(self, number: int = 0) -> Store:
        """Raises what ``open_store`` raises."""
        self.disk.add_directory(DIRECTORY)
        self.stores[number] = store = self.setting.opener(
            DIRECTORY,
            flush=self.setting.flush,
            clock=lambda: 0,
            busy_timeout_ms=_BUSY_MS,
            wal_autocheckpoint=self.wal_autocheckpoint,
            vfs=self.disk.name,
            connect=self._connect,
            files=self.disk.files if self.files is None else self.files,
        )
        return store

    def _connect(self, uri: str) -> sqlite3.Connection:
        connection = sqlite3.connect(uri, uri=True, isolation_level=None, check_same_thread=False)
        self.connections.append(connection)
        return connection

    def integrity(self) -> str:
        """What `PRAGMA integrity_check` says, on a connection of the store's own, settings and all."""
        return "\n".join(row[0] for row in self._connection().execute("PRAGMA integrity_check"))

    def content(self) -> bytes:
        """The database as the store sees it now: of every page its last committed copy, in the file or in the log."""
        return self._connection().serialize()

    def _connection(self) -> sqlite3.Connection:
        """A connection of the store's own that is still open."""
        for connection in reversed(self.connections):
            with contextlib.suppress(sqlite3.ProgrammingError):  # the store closed this one
                if not connection.in_transaction:
                    return connection
        raise sqlite3.ProgrammingError("no connection is open")

    def take(self, step: Step) -> Outcome:
        """Do one step. The answer to an act is ``Ok(None)``, or the typed error that it raised."""
        if isinstance(step.what, Operation):
            return call(self.stores[step.store], step.what)
        try:
            if step.what == "open":
                self.open(step.store)
            elif step.what == "close":
                self.stores.pop(step.store).close()
            else:
                self.stores[step.store].checkpoint_wal()
        except TurnproofError as error:
            return Err(error.code.value, error.message)
        return Ok(None)

    def close(self) -> None:
        for number in list(self.stores):
            self.stores.pop(number).close()
        self.connections.clear()


@attrs.frozen(eq=False)
class Played:
    """A scenario, played: what reached the disk, what the model says of it, and the settings that were in force."""

    scenario: Scenario
    setting: Setting
    recording: Recording
    timeline: Timeline
    facts: Mapping[str, str]
    """Read back from the store while it was open (X6)."""

    @property
    def writes(self) -> int:
        """Write-like requests that were seen."""
        return len(self.recording.events)


def prepare(disk: Disk, scenario: Scenario, setting: Setting) -> None:
    """Put the prior state on the disk, all of it durable, with the legacy logs that wait beside it."""
    files: dict[str, bytes] = {}
    if scenario.prior:
        stage = Stage(disk, setting)
        stage.open()
        for operation in scenario.prior:
            call(stage.stores[0], operation)
        hot = disk.snapshot() if scenario.hot else None
        stage.close()
        files = disk.snapshot() if hot is None else hot
    disk.load({**files, **scenario.files()})


def record(scenario: Scenario, setting: Setting = ALWAYS, seed: int = 1) -> Played:
    """Play a scenario once. The same seed gives the same recording. Raises ``Nonconforming``."""
    if not scenario.steps:
        raise InvalidArgument(f"scenario {scenario.name!r} has no steps")
    told = timeline(scenario.start(), scenario.steps, scenario.legacy)
    reproducible(seed + 1)
    try:
        with Disk() as disk:
            prepare(disk, scenario, setting)
            stage = Stage(disk, setting, scenario.wal_autocheckpoint)
            try:
                facts = _play(stage, scenario.steps, told)
                recording = disk.recording()
            finally:
                stage.close()
    finally:
        reproducible(0)
    return Played(scenario, setting, recording, told, facts)


def _play(stage: Stage, steps: Iterable[Step], told: Timeline) -> Mapping[str, str]:
    """Take the steps, marking each on the disk; answers the settings of the first store that was opened."""
    same, facts = Comparison(), dict[str, str]()
    for number, (step, answer) in enumerate(zip(steps, told.answers, strict=True)):
        stage.disk.begin(f"{number} {step.label}")
        got = stage.take(step)
        stage.disk.acknowledge()
        wanted: Outcome = Ok(None) if answer is None else answer.outcome
        if not same.same(wanted, got):
            raise Nonconforming(f"step {number}, {step.label}: expected {wanted}, got {got}")
        if not facts and stage.stores:
            store = next(iter(stage.stores.values()))
            facts = {name: str(value) for name, value in store.settings().items()}
    return facts
