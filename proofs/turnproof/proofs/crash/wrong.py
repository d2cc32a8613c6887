"""Wrong stores that answer every question rightly and only a crash can tell: the proof that this room can (Must show).

Each is our store with one thing changed; `WRONG` names it and says which crash finds it.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

import attrs

from turnproof.impl import Store, log, open_store
from turnproof.impl.connection import Pool
from turnproof.impl.files import FileSystem
from turnproof.impl.log import Head
from turnproof.model.rows import Draft, Fence, Lease, Record, Submission
from turnproof.model.vocabulary import RecordKind, RunState
from turnproof.proofs.crash.stage import Opener
from turnproof.proofs.crash.sweep import Mode

__all__ = ["WRONG", "Wrong"]


class _Piecemeal(Pool):
    """Write transactions of which every statement commits by itself."""

    @contextmanager
    def write(self, patience_ms: int | None = None) -> Iterator[sqlite3.Connection]:
        with self.statement() as connection:
            yield connection


class TransferInTwo(Store):
    """The submission gets its new attempt in one transaction, the slot in the next (T4)."""

    def replace_turn_journal_attempt(
        self,
        submission_id: str,
        attempt_id: str,
        next_attempt_id: str,
        *,
        lease: Lease[str] | None = None,
        observed_lease_expires_at: int | None = None,
        now: int | None = None,
    ) -> Submission[str] | None:
        self._pool.__class__ = _Piecemeal
        try:
            return super().replace_turn_journal_attempt(
                submission_id,
                attempt_id,
                next_attempt_id,
                lease=lease,
                observed_lease_expires_at=observed_lease_expires_at,
                now=now,
            )
        finally:
            self._pool.__class__ = Pool


class StateApart(Store):
    """The `state` record is appended in one transaction, the run's state moved in the next (R4)."""

    def checkpoint(self, run_id: str, state: str, *, fence: Fence | None = None, now: int | None = None) -> int | None:
        record = Record(seq=0, run_id=run_id, kind=RecordKind.STATE, timestamp=now or 0, state=state)
        with self._pool.write() as connection:
            old = log.head_of(connection, run_id) or Head()
            new = log.add(connection, run_id, old, [attrs.evolve(record, seq=old.position + 1)])
            self._move(connection, run_id, attrs.evolve(new, state=old.state))
        with self._pool.write() as connection:
            self._move(connection, run_id, attrs.evolve(new, state=RunState(state)))
        return new.position

    def _move(self, connection: sqlite3.Connection, run_id: str, head: Head) -> None:
        seal = log.seal(run_id, head.state.value, head.position, head.digest)
        connection.execute("UPDATE runs SET state = ?, seal = ? WHERE run_id = ?", (head.state.value, seal, run_id))


class StepByRecord(Store):
    """A step is appended record by record (R3)."""

    def append_step(
        self,
        run_id: str,
        records: Sequence[Draft],
        *,
        fence: Fence | None = None,
        expected_position: int | None = None,
        now: int | None = None,
    ) -> list[int] | None:
        seqs = [self.append(run_id, record, fence=fence, now=now) for record in records]
        return [seq for seq in seqs if seq is not None]


class _Late(Pool):
    """A pool that answers first and commits with the next operation."""

    late: sqlite3.Connection | None = None

    def settle(self) -> None:
        connection, self.late = self.late, None
        if connection is not None:
            connection.execute("COMMIT")
            self._give(connection, True)

    @contextmanager
    def write(self, patience_ms: int | None = None) -> Iterator[sqlite3.Connection]:
        self.settle()
        connection = self._take()
        connection.execute("BEGIN IMMEDIATE")
        try:
            yield connection
        except BaseException:
            connection.execute("ROLLBACK")
            self._give(connection, True)
            raise
        self.late = connection

    @contextmanager
    def read(self) -> Iterator[sqlite3.Connection]:
        self.settle()
        with super().read() as connection:
            yield connection

    def close(self) -> None:
        self.settle()
        super().close()


class NoMarker(Store):
    """A session is deleted without the durable marker (L10)."""

    def _mark(self, connection: sqlite3.Connection, session_key: str) -> None:
        super()._mark(connection, session_key)
        connection.execute("DELETE FROM deletions WHERE session_key = ?", (session_key,))


class _SyncAtClose(Pool):
    """Nothing is synced but by the checkpoint of a close."""

    def close(self) -> None:
        for _, connection in self._idle:
            connection.execute("PRAGMA synchronous = FULL")
        super().close()


@attrs.define
class _Renamed:
    """A file system on which the legacy logs have their new names already, and look as if they had not."""

    system: FileSystem
    gone: dict[str, bytes]

    def exists(self, path: str, /) -> bool:
        return path in self.gone or self.system.exists(path)

    def listdir(self, path: str, /) -> list[str]:
        waiting = [os.path.basename(name) for name in self.gone if os.path.dirname(name) == path]
        return [*self.system.listdir(path), *waiting]

    def read(self, path: str, /) -> bytes:
        return self.gone[path] if path in self.gone else self.system.read(path)

    def create(self, path: str, data: bytes, /) -> None:
        self.system.create(path, data)

    def sync(self, path: str, /) -> None:
        self.system.sync(path)

    def rename(self, old: str, new: str, /) -> None:
        if self.gone.pop(old, None) is None:
            self.system.rename(old, new)

    def unlink(self, path: str, /) -> None:
        self.system.unlink(path)

    def makedirs(self, name: str, mode: int, exist_ok: bool, /) -> None:
        self.system.makedirs(name, mode, exist_ok)


def _rename_first(path: str, *, files: FileSystem, **options: object) -> Store:
    """Legacy logs are renamed before what they hold is stored (R12)."""
    runs, gone = os.path.join(path, "runs"), dict[str, bytes]()
    for name in files.listdir(runs) if files.exists(runs) else ():
        if name.endswith(".jsonl"):
            old = os.path.join(runs, name)
            gone[old] = files.read(old)
            files.rename(old, f"{old}.imported")
    opener: Opener = open_store
    return opener(path, files=_Renamed(files, gone), **options)


def _as(store_class: type[Store]) -> Opener:
    """An opener of a store of another class."""

    def opener(path: str, **options: object) -> Store:
        inner: Opener = open_store
        store = inner(path, **options)
        store.__class__ = store_class
        return store

    return opener


def _with_pool(pool_class: type[Pool], synchronous: str = "FULL") -> Opener:
    """An opener of a store over another pool."""

    def opener(path: str, **options: object) -> Store:
        inner: Opener = open_store
        store = inner(path, **options)
        store._pool.__class__ = pool_class
        with store._pool.read() as connection:
            connection.execute(f"PRAGMA synchronous = {synchronous}")
        return store

    return opener


@attrs.frozen
class Wrong:
    """A wrong store, and the crash that finds it."""

    opener: Opener
    scenario: str
    mode: Mode


WRONG: Final[dict[str, Wrong]] = {
    # name: the store, the scenario and the kind of crash that find it
    "transfer in two transactions": Wrong(_as(TransferInTwo), "transfer", "kill"),
    "state moved in a second transaction": Wrong(_as(StateApart), "checkpoint/1", "kill"),
    "step appended record by record": Wrong(_as(StepByRecord), "step", "kill"),
    "acknowledged before commit": Wrong(_with_pool(_Late), "text turn", "kill"),
    "synchronous off": Wrong(_with_pool(Pool, "OFF"), "text turn", "power"),
    "deletion without a marker": Wrong(_as(NoMarker), "deletion", "kill"),
    "import renames before it commits": Wrong(_rename_first, "import", "kill"),
    "synced at close only": Wrong(_with_pool(_SyncAtClose, "OFF"), "text turn", "power"),
}
