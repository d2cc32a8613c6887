"""What a check drives: a store behind one small face, whether it lives in this process or in another.

A *subject* answers operations, and can be closed, opened again and killed. Three are here: our SQLite store and the
model itself in this process. The third, a program that speaks the wire protocol, is in ``adapter.py``. Answers are
compared as they are on the wire, so that all three are held to the same thing.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Literal, Protocol

import attrs

from turnproof.impl import Store, open_store
from turnproof.impl.views import Dump
from turnproof.model.choices import STRICT, Choices
from turnproof.model.decision import Accept, Refuse
from turnproof.model.operations import CAPABILITIES, Operation
from turnproof.model.system import EMPTY, State, apply
from turnproof.model.vocabulary import StorageError, TurnproofError
from turnproof.proofs.wire import (
    Err,
    Object,
    Ok,
    Outcome,
    decode_operation,
    encode,
    encode_args,
    encode_line,
    parse_line,
    refusal,
)

__all__ = ["Expected", "Flush", "Identity", "ModelSubject", "StoreSubject", "Subject", "expected", "now_ms", "reopen"]

Flush = Literal["always", "relaxed"]


@cache
def _version() -> str:
    """Ours. Imported when asked for: adapters are started by the hundred, and this takes a tenth of their start."""
    from importlib import metadata

    return metadata.version("turnproof")


@attrs.frozen(kw_only=True)
class Identity:
    """Who a subject says it is (PROTOCOL, ``hello``): what it is held to follows from this and nothing else."""

    name: str
    version: str
    capabilities: tuple[str, ...] = CAPABILITIES
    choices: Choices = STRICT
    clock: str = "given"
    flush: str = "none"

    def hello(self) -> Object:
        """The answer to ``hello``."""
        return {
            "protocol": 1,
            "name": self.name,
            "version": self.version,
            "capabilities": list(self.capabilities),
            "choices": encode(self.choices.deviations()),
            "clock": self.clock,
            "flush": self.flush,
        }


class Subject(Protocol):
    """A store under test. ``open`` and ``close`` may alternate any number of times, over any directories."""

    @property
    def identity(self) -> Identity: ...

    def open(self, path: Path) -> None:
        """Open the store in a directory, or create it there."""

    def close(self) -> None:
        """Close in good order. Closing what is not open does nothing."""

    def crash(self) -> None:
        """Kill without warning, then open the same directory again."""

    def call(self, operation: Operation) -> Outcome:
        """Put one operation to the store."""

    def ask(self, op: str, args: Object) -> Outcome:
        """Put a request to the store as it came, well formed or not."""

    def whole(self) -> Dump | None:
        """Everything that is stored, for a store that can show it in one read."""

    def environment(self) -> dict[str, str]:
        """Settings that the store reads back about itself, for the report."""


def now_ms() -> int:
    """This machine's clock: what counts where an operation brings no time of its own."""
    return time.time_ns() // 1_000_000


def reopen(subject: Subject, path: Path) -> None:
    subject.close()
    subject.open(path)


@attrs.frozen
class Expected:
    """What the model says of an operation."""

    state: State
    """The state afterwards."""
    outcome: Outcome
    """The answer, as on the wire."""
    rule: str
    """The promises that decided, separated by spaces."""
    sort: str
    """``accepted``, ``refused`` or ``errors``."""


def expected(operation: Operation, state: State, choices: Choices) -> Expected:
    """Put an operation to the model."""
    after, answer = apply(state, operation, choices)
    if isinstance(answer, Accept):
        return Expected(after, Ok(encode(answer.value)), answer.rule, "accepted")
    if isinstance(answer, Refuse):
        return Expected(after, Ok(refusal(operation.verb)), answer.rule, "refused")
    return Expected(after, Err(answer.code.value, answer.message), answer.rule, "errors")


def _guarded(ask: Callable[[], object]) -> Outcome:
    """The outcome of a call in this process. An exception that is not typed is no answer that any model gives."""
    try:
        return Ok(encode(ask()))
    except TurnproofError as error:
        return Err(error.code.value, error.message)
    except Exception as error:
        return Err("exception", f"{type(error).__name__}: {error}")


@attrs.define
class StoreSubject:
    """Our SQLite store, in this process."""

    flush: Flush = "always"
    opener: Callable[..., Store] = open_store
    name: str = "turnproof"
    _store: Store | None = None
    _path: Path = Path()
    _images: list[Path] = attrs.Factory(list)

    @property
    def identity(self) -> Identity:
        return Identity(name=self.name, version=_version(), capabilities=_offered(Store), flush=self.flush)

    def open(self, path: Path) -> None:
        self.close()
        self._path = path
        self._store = self.opener(path, flush=self.flush, clock=now_ms)

    def close(self) -> None:
        if self._store is not None:
            self._store.close()
            self._store = None

    def crash(self) -> None:
        """What a kill leaves is what the files hold now: copy them beside, then let the old store go."""
        image = self._path.with_name(f"{self._path.name}+")
        shutil.copytree(self._path, image, ignore=shutil.ignore_patterns("*-shm"))
        self.close()
        shutil.rmtree(self._path)
        image.rename(self._path)
        self.open(self._path)

    def call(self, operation: Operation) -> Outcome:
        store = self._opened()
        arguments = {
            name: value for name in _arguments(type(operation)) if (value := getattr(operation, name)) is not None
        }
        return _guarded(lambda: getattr(store, operation.verb)(**arguments))

    def ask(self, op: str, args: Object) -> Outcome:
        return _asked(self, op, args)

    def whole(self) -> Dump | None:
        return self._opened().dump()

    def environment(self) -> dict[str, str]:
        return {name: str(value) for name, value in self._opened().settings().items()}

    def _opened(self) -> Store:
        if self._store is None:
            raise StorageError("no store is open: send 'open' with a path first")
        return self._store


def _arguments(operation: type[Operation]) -> tuple[str, ...]:
    return tuple(field.name for field in attrs.fields(operation))


def _offered(store: type[object]) -> tuple[str, ...]:
    """Every capability whose verbs the store has; one that is not built yet is not offered."""
    return tuple(name for name in CAPABILITIES if name != "recovery" or hasattr(store, "recover"))


def _asked(subject: Subject, op: str, args: Object) -> Outcome:
    try:
        operation = decode_operation(op, args, now_ms())
    except TurnproofError as error:
        return Err(error.code.value, error.message)
    return subject.call(operation)


@attrs.define
class ModelSubject:
    """The model as a store: durable by a log of the accepted writes, which are applied again when it is opened.

    A line of the log is handed to the operating system before the answer is given, so that a kill loses nothing; a
    torn last line is a write that was never acknowledged and is dropped.
    """

    choices: Choices = STRICT
    _state: State = EMPTY
    _log: int | None = None
    _path: Path = Path()

    @property
    def identity(self) -> Identity:
        return Identity(
            name="turnproof model",
            version=_version(),
            capabilities=tuple(name for name in CAPABILITIES if name != "import"),
            choices=self.choices,
        )

    def open(self, path: Path) -> None:
        self.close()
        path.mkdir(parents=True, exist_ok=True)
        self._path = path
        self._state = self._replayed(path / "model.jsonl")
        self._log = os.open(path / "model.jsonl", os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)

    def close(self) -> None:
        if self._log is not None:
            os.close(self._log)
            self._log = None

    def crash(self) -> None:
        self.open(self._path)

    def call(self, operation: Operation) -> Outcome:
        if self._log is None:
            raise StorageError("no store is open: send 'open' with a path first")
        answer = expected(operation, self._state, self.choices)
        if answer.state is not self._state:
            _write_all(self._log, encode_line({"op": operation.verb, "args": encode_args(operation)}))
            self._state = answer.state
        return answer.outcome

    def ask(self, op: str, args: Object) -> Outcome:
        return _asked(self, op, args)

    def whole(self) -> Dump | None:
        return None

    def environment(self) -> dict[str, str]:
        return {}

    def _replayed(self, log: Path) -> State:
        state = EMPTY
        if not log.exists():
            return state
        whole, _, torn = log.read_bytes().rpartition(b"\n")
        if torn:
            os.truncate(log, len(whole) + 1 if whole else 0)
        for number, line in enumerate(whole.split(b"\n") if whole else (), 1):
            entry = parse_line(line)
            if not isinstance(entry, dict):
                raise StorageError(f"{log}, line {number}: not a log of the model")
            op, args = entry.get("op"), entry.get("args")
            if not isinstance(op, str) or not isinstance(args, dict):
                raise StorageError(f"{log}, line {number}: not a log of the model")
            state, _ = apply(state, decode_operation(op, args, 0), self.choices)
        return state


def _write_all(file: int, data: bytes) -> None:
    while data:
        data = data[os.write(file, data) :]
