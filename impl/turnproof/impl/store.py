"""The production store: one SQLite database in a directory, and every verb of the protocol on it.

    with open_store(".turnproof") as store:
        store.admit(submission_id="s1", session_key="run1", kind="dispatch", payload="{}", accepted_at=now)

``Store`` is the layers put together; each lives in a module of its own. A store may be used from many threads and a
database by many processes at once: every write is one unit, decided under SQLite's write lock (J11, X5).
"""

from __future__ import annotations

import os
import secrets
from types import TracebackType
from typing import Final, Literal, Self, TypeAlias

from attrs import asdict

from turnproof.impl import schema
from turnproof.impl.backup import Backups
from turnproof.impl.base import Clock, time_of, wall_clock
from turnproof.impl.checks import natural, optional_text, path_name
from turnproof.impl.connection import Connector, Options, Pool, read_settings
from turnproof.impl.deletion import Deletion
from turnproof.impl.files import Files, FileSystem, Hooked
from turnproof.impl.journal import TurnJournal
from turnproof.impl.legacy import import_runs, judge_runs
from turnproof.impl.recovery import Recoverable
from turnproof.impl.submissions import Submissions
from turnproof.impl.views import Views
from turnproof.model.vocabulary import InvalidArgument, StorageDamaged, StorageError

__all__ = ["DEFAULT_DIRECTORY", "FILE_NAME", "Flush", "Store", "open_store"]

Flush: TypeAlias = Literal["always", "relaxed"]

DEFAULT_DIRECTORY: Final = ".turnproof"
FILE_NAME: Final = "journal.db"
_SYNCHRONOUS: Final = {"always": 2, "relaxed": 1}  # FULL, NORMAL
_MAX_SETTING: Final = 2**31 - 1
"""SQLite keeps its settings in 32 bits."""
_CHECKPOINTS: Final = ("PASSIVE", "FULL", "RESTART", "TRUNCATE")


class Store(Submissions, TurnJournal, Recoverable, Deletion, Views, Backups):
    """An open store. Every verb raises ``StorageError`` or ``StorageDamaged`` when SQLite fails beneath it."""

    persisted: Final = True
    """Whether records outlive the process (seed 003)."""

    def __init__(self, pool: Pool, clock: Clock) -> None:
        super().__init__(pool, clock)
        self.file: Final = pool.options.file
        """The database file."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Store {self.file}>"

    def close(self) -> None:
        """Close; closing twice does nothing. Verbs raise ``StorageError`` afterwards."""
        self._pool.close()

    def settings(self) -> dict[str, str | int | bool]:
        """What is in force, as read back from a connection: journal mode, synchronous, versions (X6)."""
        with self._pool.read() as connection:
            return asdict(read_settings(connection))

    def checkpoint_wal(self, mode: str = "TRUNCATE") -> tuple[int, int, int]:
        """Move the write-ahead log into the database; answers SQLite's (busy, pages in the log, pages moved)."""
        if mode not in _CHECKPOINTS:
            raise InvalidArgument(f"mode {mode!r} is none of {', '.join(_CHECKPOINTS)}")
        with self._pool.statement() as connection:
            row: tuple[int, int, int] = connection.execute(f"PRAGMA wal_checkpoint({mode})").fetchone()
        return row


def open_store(
    path: str | os.PathLike[str] = DEFAULT_DIRECTORY,
    flush: Flush = "always",
    clock: Clock = wall_clock,
    *,
    busy_timeout_ms: int = 10_000,
    wal_autocheckpoint: int = 1000,
    vfs: str | None = None,
    connect: Connector | None = None,
    files: FileSystem | None = None,
) -> Store:
    """Open the store in a directory, or make it there. "" is the default directory; any name that the system can open
    will do, UTF-8 or not (``os.fsdecode`` spells the bytes of one that is not).

    ``flush``: ``always`` survives a power cut, ``relaxed`` may lose the last acknowledged writes to one (R10).
    ``clock`` answers ms and is asked when a verb is given no ``now``. ``busy_timeout_ms`` bounds the wait for other
    writers; ``wal_autocheckpoint`` is in pages. ``vfs``, ``connect`` and ``files`` put a recording disk below.

    Raises ``UnsupportedSchema`` (R9) and ``StorageDamaged`` (X4) before anything is opened; ``ImportFailed`` (R12),
    ``StorageError``, ``InvalidArgument``.
    """
    moment = time_of(clock, None)
    if flush not in tuple(_SYNCHRONOUS):
        raise InvalidArgument(f"flush {flush!r} is neither 'always' nor 'relaxed'")
    directory = os.path.abspath(path_name("path", path) or DEFAULT_DIRECTORY)
    if files is None:
        directory = os.path.realpath(directory)  # once: a link that is turned elsewhere later changes nothing (F2)
    system = Files() if files is None else Hooked(files)
    options = Options(
        file=os.path.join(directory, FILE_NAME),
        synchronous=_SYNCHRONOUS[flush],
        busy_timeout_ms=natural("busy_timeout_ms", busy_timeout_ms, _MAX_SETTING),
        wal_autocheckpoint=natural("wal_autocheckpoint", wal_autocheckpoint, _MAX_SETTING),
        vfs=optional_text("vfs", vfs),
        connector=connect,
        files=system,
    )
    try:
        _prepare(system, directory, options.file)
    except OSError as error:
        raise StorageError(f"{options.file}: {error.strerror or error}") from error
    pool = Pool(options)
    try:
        _recognise(pool)
        import_runs(system, directory, options, moment)
    except BaseException:
        pool.close()
        raise
    return Store(pool, clock)


def _prepare(files: Files, directory: str, file: str) -> None:
    """Judge the database that is there, or put a new one in place."""
    if not files.exists(file):
        if files.size(f"{file}-wal"):
            raise StorageDamaged(f"{file} is missing, but its write-ahead log is there; restore a backup")
        judge_runs(files, directory)
        _create(files, directory, file)
    schema.examine(files, file)
    for name in files.listdir(directory):
        if name.startswith(f"{FILE_NAME}.new-"):
            files.unlink(os.path.join(directory, name))


def _create(files: Files, directory: str, file: str) -> None:
    """Write an empty store beside its place, durably, then give it its name: all of it or nothing (X1).

    Of two processes that do so at once the second finds the name taken, and uses what the first one made.
    """
    files.make_directory(directory)
    fresh = f"{file}.new-{secrets.token_hex(8)}"
    try:
        files.create(fresh, schema.image())
        files.rename(fresh, file)
    except OSError as error:
        files.unlink(fresh)
        if not isinstance(error, FileExistsError | FileNotFoundError) or not files.exists(file):
            raise
    files.sync_directory(directory)


def _recognise(pool: Pool) -> None:
    """Whether SQLite reads what the header promised: the tables of this schema."""
    with pool.snapshot() as connection:
        if connection.execute("PRAGMA application_id").fetchone()[0] != schema.APPLICATION_ID:
            raise StorageDamaged(f"{pool.options.file} is not a turnproof store")
        names = {name for (name,) in connection.execute("SELECT name FROM sqlite_schema WHERE sql IS NOT NULL")}
    if missing := schema.names() - names:
        raise StorageDamaged(f"{pool.options.file} lacks {', '.join(sorted(missing))}; restore a backup")
