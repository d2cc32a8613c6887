"""Connections: one way to open them, settings read back, and a bounded pool of them (R10, R15, X3, X5).

A setting that was asked for is not a setting that is in force: SQLite answers some pragmas with what it had before. So
each is read back, on every connection, and a store that cannot have what it promises does not open.

Writers of one process take turns at a lock before they ask SQLite for its own: SQLite's waiting is a poll that can
starve, a lock is not. Between processes SQLite's busy timeout decides.
"""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, TypeAlias
from urllib.parse import quote
from weakref import WeakSet

from attrs import field, frozen

from turnproof.impl.files import Files
from turnproof.impl.identity import Identity, registry
from turnproof.model.vocabulary import StorageDamaged, StorageError, TurnproofError

__all__ = ["Connector", "Options", "Pool", "RunDamaged", "Settings", "connect", "storage_error", "tidy"]

Connector: TypeAlias = Callable[[str], sqlite3.Connection]
"""Opens a ``file:`` URI: autocommit, usable from any thread."""

MAX_OPEN: Final = 16
MAX_IDLE: Final = 4
IDLE_SECONDS: Final = 60.0

_DAMAGE: Final = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})
_pools: Final[WeakSet[Pool]] = WeakSet()
"""All that live, for a fork."""


@frozen(kw_only=True)
class Options:
    """How to open: ``synchronous`` is FULL (2) or NORMAL (1), times in ms, ``wal_autocheckpoint`` in pages."""

    file: str
    synchronous: int
    busy_timeout_ms: int
    wal_autocheckpoint: int
    vfs: str | None = None
    connector: Connector | None = None
    files: Files = field(factory=Files)

    def uri(self, mode: str) -> str:
        vfs = f"&vfs={quote(self.vfs, safe='')}" if self.vfs is not None else ""
        return f"file:{quote(os.fsencode(self.file))}?mode={mode}{vfs}"


@frozen(kw_only=True)
class Settings:
    """What is in force, as read back from a connection (X6)."""

    sqlite_version: str
    journal_mode: str
    synchronous: int
    fullfsync: bool
    busy_timeout_ms: int
    wal_autocheckpoint: int
    page_size: int
    application_id: int
    schema_version: int


def storage_error(file: str, error: sqlite3.Error | UnicodeDecodeError) -> TurnproofError:
    """The typed error for what SQLite said: damage names the file, everything else says what failed (X3, X4)."""
    code = getattr(error, "sqlite_errorcode", None)
    if _is_damage(error):
        return StorageDamaged(f"{file} is damaged: {error}; examine it with 'turnproof doctor', or restore a backup")
    if isinstance(code, int) and code & 0xFF == sqlite3.SQLITE_BUSY:
        return StorageError(f"{file} stayed locked by another process beyond the busy timeout: {error}")
    return StorageError(f"{file}: {error}")


def _is_damage(error: sqlite3.Error | UnicodeDecodeError) -> bool:
    """Whether SQLite met bytes that it cannot have written. (Text of the schema is decoded without its help.)"""
    if isinstance(error, UnicodeDecodeError):
        return True
    code = getattr(error, "sqlite_errorcode", None)
    return "Could not decode to UTF-8" in str(error) or (isinstance(code, int) and code & 0xFF in _DAMAGE)


def connect(options: Options, mode: str = "rw") -> sqlite3.Connection:
    """One connection, its settings made and read back, and what it will read made durable (E4).

    ``mode=rw`` never makes a file. Raises ``sqlite3.Error``, ``StorageError``.
    """
    uri = options.uri(mode)
    connection = options.connector(uri) if options.connector is not None else _open(uri)
    try:
        _configure(connection, options)
        # A database that was in another journal mode gets its log with the first read. From then on the connection
        # has a lock that keeps log and index where they are, so that a change of either is somebody's doing (F2).
        connection.execute("SELECT 1 FROM sqlite_schema LIMIT 1").fetchone()
        _settle(options)
    except OSError as error:
        connection.close()
        raise StorageError(f"{options.file}-wal: {error.strerror or error}") from error
    except BaseException:
        connection.close()
        raise
    return connection


def _open(uri: str) -> sqlite3.Connection:
    return sqlite3.connect(uri, uri=True, isolation_level=None, check_same_thread=False, cached_statements=256)


def _configure(connection: sqlite3.Connection, options: Options) -> None:
    pragmas: tuple[tuple[str, int | str], ...] = (
        ("busy_timeout", options.busy_timeout_ms),
        ("cell_size_check", 1),
        ("trusted_schema", 0),
        ("fullfsync", 1),
        ("checkpoint_fullfsync", 1),
        ("journal_mode", "wal"),
        ("synchronous", options.synchronous),
        ("wal_autocheckpoint", options.wal_autocheckpoint),
    )
    for name, wanted in pragmas:
        found = connection.execute(f"PRAGMA {name} = {wanted}").fetchone()
        if found is None:  # not one of those that answer what is in force now
            found = connection.execute(f"PRAGMA {name}").fetchone()
        if found is None or found[0] != wanted:
            raise StorageError(f"{options.file}: asked SQLite for {name}={wanted}, it keeps {found and found[0]}")


def _settle(options: Options) -> None:
    """Make durable what this connection will read (E4).

    A writer that is killed between a write and its sync leaves a whole commit in the log, which recovery of the log
    takes in. It would be answered for from now on, and a power cut could still take it back. The name of a log that a
    killed writer made is as little durable; SQLite makes only names durable that it made itself.
    """
    log = f"{options.file}-wal"
    if options.files.exists(log):
        if options.files.size(log):
            options.files.sync(log)
        options.files.sync_directory(os.path.dirname(options.file))


def read_settings(connection: sqlite3.Connection) -> Settings:
    """The settings of one connection."""

    def ask(pragma: str) -> int:
        value: int = connection.execute(f"PRAGMA {pragma}").fetchone()[0]
        return value

    mode: str = connection.execute("PRAGMA journal_mode").fetchone()[0]
    return Settings(
        sqlite_version=sqlite3.sqlite_version,
        journal_mode=mode,
        synchronous=ask("synchronous"),
        fullfsync=bool(ask("fullfsync")),
        busy_timeout_ms=ask("busy_timeout"),
        wal_autocheckpoint=ask("wal_autocheckpoint"),
        page_size=ask("page_size"),
        application_id=ask("application_id"),
        schema_version=ask("user_version"),
    )


def tidy(connection: sqlite3.Connection) -> bool:
    """Leave no transaction behind after an error; whether the connection may be used again."""
    try:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
    except sqlite3.Error:
        return False
    return not connection.in_transaction


def close_as_it_is(options: Options, connection: sqlite3.Connection) -> None:
    """Close without moving the write-ahead log into a damaged database (X4).

    The last connection to close would do that, and it needs the whole file for itself. So a read-only connection keeps
    a share of the file meanwhile, and being read-only it cannot do the same when it closes in turn.
    """
    guard: sqlite3.Connection | None = None
    try:
        uri = options.uri("ro")
        guard = options.connector(uri) if options.connector is not None else _open(uri)
        guard.execute("SELECT 1 FROM sqlite_schema").fetchone()
    except sqlite3.Error:
        pass  # even a failed read has taken the share
    finally:
        connection.close()
        if guard is not None:
            guard.close()


class RunDamaged(StorageDamaged):
    """One run's records are damaged (R14): its own writes are barred, everything else goes on (F4)."""


_SUFFIXES: Final = ("-wal", "-shm")
_Beside: TypeAlias = tuple[Identity | None, ...]


def _beside(options: Options) -> _Beside:
    """Which files the log and its index are now; ``None`` where there is none."""
    return tuple(options.files.identity(f"{options.file}{suffix}") for suffix in _SUFFIXES)


class Pool:
    """At most 16 connections, 4 kept idle, those for at most a minute (R15). Safe from many threads.

    SQLite knows which locks *this process* holds, and the child of a fork would inherit that knowledge without the
    locks: what it then writes is lost. So all connections are closed before a fork, and both processes open their own.
    A store with a connection in use at that moment (in another thread, say) is of no use in the child.
    """

    def __init__(self, options: Options) -> None:
        self.options = options
        self._inherited = False
        self._file = options.files.identity(options.file)
        self._damage: str | None = None
        self._reset()
        _pools.add(self)

    def _reset(self) -> None:
        self._changed = threading.Condition()
        self._writer = threading.Lock()
        self._idle: list[tuple[float, sqlite3.Connection]] = []
        self._open = 0
        self._held: dict[sqlite3.Connection, Identity | None] = {}
        self._closing: dict[sqlite3.Connection, Identity | None] = {}
        self._beside: _Beside | None = None
        self._closed = False
        self._sweeper: threading.Timer | None = None

    @property
    def open_count(self) -> int:
        """Connections open now, idle or in use."""
        return self._open

    @property
    def idle_count(self) -> int:
        return len(self._idle)

    @contextmanager
    def read(self) -> Iterator[sqlite3.Connection]:
        """A connection in autocommit: each statement sees one state. Any SQLite error becomes a typed one."""
        connection = self._take()
        usable = True
        try:
            self._look()
            yield connection
        except (sqlite3.Error, UnicodeDecodeError) as error:
            # After an I/O error the connection stays: it remembers where the log ends. A commit whose sync failed
            # stands whole beyond that end, and a new connection, were it alone, would take it for committed (X3).
            usable = not _is_damage(error)
            typed = storage_error(self.options.file, error)
            if not usable:
                self._stick(typed.message)
            raise typed from error
        except StorageDamaged as error:
            if not isinstance(error, RunDamaged):
                self._stick(error.message)
            if self.options.file in error.message:
                raise
            raise StorageDamaged(f"{self.options.file}: {error.message}") from None
        finally:
            usable = tidy(connection) and usable
            self._give(connection, usable)

    @contextmanager
    def snapshot(self) -> Iterator[sqlite3.Connection]:
        """A read transaction: all statements see the same state."""
        with self.read() as connection:
            connection.execute("BEGIN")
            yield connection
            connection.execute("COMMIT")

    @contextmanager
    def statement(self) -> Iterator[sqlite3.Connection]:
        """A connection for one conditional write statement, which is its own transaction (J11)."""
        with self._turn(), self.read() as connection:
            yield connection
            self._look()

    @contextmanager
    def write(self, patience_ms: int | None = None) -> Iterator[sqlite3.Connection]:
        """A write transaction: durable once the block is left, undone by any exception (T4).

        ``patience_ms`` waits longer for another process than the busy timeout does.
        """
        with self._turn(), self.read() as connection:
            _begin(connection, time.monotonic() + (patience_ms or 0) / 1000)
            yield connection
            connection.execute("COMMIT")
            self._look()

    def _look(self) -> None:
        """Whether the three names still lead to the files that the connections have open (F2).

        Asked with a connection in hand, before and after its work: while one is open nobody may remove the log, and
        what was committed into files that the next opener will not find must not be acknowledged.
        """
        files, file = self.options.files, self.options.file
        if files.identity(file) != self._file:
            raise StorageDamaged(f"{file} was removed or replaced while it was open; open it again")
        if self._beside is not None:
            for suffix, known, found in zip(_SUFFIXES, self._beside, _beside(self.options), strict=True):
                if found != known:
                    raise StorageDamaged(
                        f"{file}{suffix} was removed or replaced while {file} was open: what it held may be lost; "
                        "close every store on it, examine it with 'turnproof doctor', or restore a backup"
                    )

    def _stick(self, message: str) -> None:
        """Damage of the file bars every write through it in this process, until it is opened anew (F4)."""
        for pool in [*_pools]:
            if pool is self or (self._file is not None and pool._file == self._file and not pool._closed):
                pool._damage = pool._damage or message

    @contextmanager
    def _turn(self) -> Iterator[None]:
        self.check()
        if self._damage is not None:
            raise StorageDamaged(f"{self.options.file}: nothing is written after damage was found: {self._damage}")
        writer = self._writer
        if not writer.acquire(timeout=self.options.busy_timeout_ms / 1000):
            raise StorageError(f"{self.options.file}: another thread kept writing beyond the busy timeout")
        try:
            yield
        finally:
            writer.release()

    def close(self) -> None:
        """Close idle connections now and those in use when they come back."""
        with self._changed:
            self._closed = True
            idle = self._retire()
            if self._sweeper is not None:
                self._sweeper.cancel()
            self._changed.notify_all()
        for connection in idle:
            self._discard(connection)

    def _retire(self, since: float = float("inf")) -> list[sqlite3.Connection]:
        """Take the connections that are idle since then off the books, to be closed. Call it with the lock held."""
        retired = [connection for when, connection in self._idle if when <= since]
        self._idle = [(when, connection) for when, connection in self._idle if when > since]
        self._open -= len(retired)
        for connection in retired:
            self._unhold(connection)
        return retired

    def _unhold(self, connection: sqlite3.Connection) -> None:
        self._closing[connection] = self._held.pop(connection)
        if not self._held:  # the log may be removed now, by whoever closes last
            self._beside = None

    def rest(self) -> None:
        """Before a fork: close every connection, and let nobody open one until ``wake``."""
        self._changed.acquire()
        self._changed.wait_for(lambda: self._open == len(self._idle), self.options.busy_timeout_ms / 1000)
        for connection in self._retire():
            self._discard(connection)

    def wake(self) -> None:
        """After a fork, in the parent."""
        self._changed.release()

    def inherit(self) -> None:
        """After a fork, in the child. Its locks are new: who held the old ones is not here."""
        self._inherited |= self._open > 0
        closed = self._closed
        self._reset()
        self._closed = closed

    def check(self) -> None:
        """Raises ``StorageError`` once the store was closed, and where a fork found it at work."""
        if self._closed:
            raise StorageError(f"{self.options.file}: this store was closed; open it again")
        if self._inherited:
            raise StorageError(f"{self.options.file}: this store was at work when the process forked; fork, then open")

    def _take(self) -> sqlite3.Connection:
        self.check()
        deadline = time.monotonic() + self.options.busy_timeout_ms / 1000
        with self._changed:
            while not self._idle and self._open >= MAX_OPEN:
                if not self._changed.wait(deadline - time.monotonic()):
                    raise StorageError(f"{self.options.file}: all {MAX_OPEN} connections stayed in use")
                self.check()
            if self._idle:
                return self._idle.pop()[1]
            self._open += 1
        identity = self.options.files.enter(self.options.file)
        try:
            return self._hold(connect(self.options), identity)
        except BaseException as error:
            self.options.files.leave(identity)
            with self._changed:
                self._open -= 1
                self._changed.notify()
            if isinstance(error, sqlite3.Error | UnicodeDecodeError):
                raise storage_error(self.options.file, error) from error
            raise

    def _hold(self, connection: sqlite3.Connection, identity: Identity | None) -> sqlite3.Connection:
        with self._changed:
            if not self._held:
                self._beside = _beside(self.options)
            self._held[connection] = identity
        return connection

    def _give(self, connection: sqlite3.Connection, usable: bool) -> None:
        with self._changed:
            keep = usable and not self._closed and len(self._idle) < MAX_IDLE
            if keep:
                self._idle.append((time.monotonic(), connection))
                self._watch()
            else:
                self._open -= 1
                self._unhold(connection)
            self._changed.notify()
        if not keep:
            self._discard(connection)

    def _discard(self, connection: sqlite3.Connection) -> None:
        identity = self._closing.pop(connection, None)
        try:
            if self._damage is not None and self.options.files.size(f"{self.options.file}-wal"):
                close_as_it_is(self.options, connection)
            else:
                connection.close()
        finally:
            self.options.files.leave(identity)

    def _watch(self) -> None:
        if self._sweeper is None:
            wait = IDLE_SECONDS - (time.monotonic() - self._idle[0][0])
            self._sweeper = threading.Timer(max(wait, 0.0), self._sweep)
            self._sweeper.daemon = True
            self._sweeper.start()

    def _sweep(self) -> None:
        with self._changed:
            self._sweeper = None
            stale = self._retire(time.monotonic() - IDLE_SECONDS)
            if self._idle and not self._closed:
                self._watch()
        for connection in stale:
            self._discard(connection)


_forking: Final = threading.Lock()
_resting: Final[list[Pool]] = []


def _before_fork() -> None:
    _forking.acquire()
    _resting.extend(_pools)
    for pool in _resting:
        pool.rest()


def _in_parent() -> None:
    for pool in _resting:
        pool.wake()
    _resting.clear()
    _forking.release()


def _in_child() -> None:
    registry.forget()
    for pool in [*_pools]:
        pool.inherit()
    _resting.clear()
    _forking.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_in_parent, after_in_child=_in_child)


def _begin(connection: sqlite3.Connection, until: float) -> None:
    """Take the write lock; a busy database is asked again until the time ``until``."""
    while True:
        try:
            connection.execute("BEGIN IMMEDIATE")
            return
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() >= until:
                raise
