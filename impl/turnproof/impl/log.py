"""The log of one run on disk: a hash chain under a sealed head (R1, R2, R4, R14, X4).

Each record carries a digest over the digest before it and its own fields, so that a changed, removed or re-ordered
record is found when the log is read. The *head* (the run's row) holds the last seq, the last digest and the state, and
a seal over all of it: a record removed from the end, or a changed row, is found as well. Appending looks at the head
alone, so it costs the same however long the run is.

Fields are length-prefixed before they are hashed: no two different records hash the same bytes.
"""

from __future__ import annotations

import sqlite3
import struct
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from hashlib import sha256
from typing import Final

from attrs import frozen

from turnproof.impl.base import exists
from turnproof.impl.columns import RECORD, RecordRow, record_of
from turnproof.impl.connection import RunDamaged
from turnproof.impl.schema import TREE
from turnproof.model.rows import Record
from turnproof.model.vocabulary import MAX_INTEGER, RecordKind, RunNotFound, RunState, StorageError

__all__ = [
    "GENESIS",
    "Head",
    "add",
    "digest_at",
    "has_entry",
    "head_of",
    "heads",
    "known_head",
    "link",
    "seal",
    "stored_at",
    "stored_entry",
    "walk",
]

GENESIS: Final = bytes(32)
"""What the first record of a run is chained to."""

_STATES: Final = {state.value: state for state in RunState}
_RUNS_WITH_RECORDS: Final = (
    "WITH RECURSIVE named (run_id) AS (SELECT min(run_id) FROM records UNION ALL"
    " SELECT (SELECT min(r.run_id) FROM records r WHERE r.run_id > n.run_id) FROM named n WHERE n.run_id IS NOT NULL)"
    " SELECT run_id FROM named WHERE run_id IS NOT NULL"
)
"""Each run id in ``records`` once, from one to the next by the index rather than record by record."""
_NUMBERS: Final = struct.Struct(">qq9Q")
_LENGTHS: Final = struct.Struct(">q3Q")


@frozen
class Head:
    """Where a run is: its state, its last seq and that record's digest. A run without records is at 0."""

    state: RunState = RunState.PENDING
    position: int = 0
    digest: bytes = GENESIS


def link(previous: bytes, record: Record) -> bytes:
    """The digest of ``record`` when ``previous`` is that of the record before it."""
    parts = [
        record.run_id.encode(),
        record.kind.encode(),
        record.entry_id.encode(),
        record.parent_id.encode(),
        record.role.encode(),
        record.ext_type.encode(),
        record.text.encode(),
        record.state.encode(),
        record.payload.encode(),
    ]
    sizes = _NUMBERS.pack(record.seq, record.timestamp, *map(len, parts))
    return sha256(b"".join((previous, sizes, *parts))).digest()


def seal(run_id: str, state: str, position: int, digest: bytes) -> bytes:
    """What holds the fields of a head together."""
    one, two = run_id.encode(), state.encode()
    return sha256(b"".join((_LENGTHS.pack(position, len(one), len(two), len(digest)), one, two, digest))).digest()


def head_of(connection: sqlite3.Connection, run_id: str) -> Head | None:
    """The head of a run, ``None`` for an unknown one. Raises ``StorageDamaged``."""
    row: tuple[str, int, bytes, bytes] | None = connection.execute(
        "SELECT state, position, digest, seal FROM runs WHERE run_id = ?", (run_id,)
    ).fetchone()
    if row is None:
        if exists(connection, "SELECT 1 FROM records WHERE run_id = ?", (run_id,)):
            raise _headless(run_id)
        return None
    return _sealed(run_id, *row)


def heads(connection: sqlite3.Connection) -> dict[str, Head]:
    """The head of every run, by run id, sorted. Raises ``StorageDamaged``, also for records whose run has no row."""
    rows: list[tuple[str, str, int, bytes, bytes]] = connection.execute(
        "SELECT run_id, state, position, digest, seal FROM runs ORDER BY run_id"
    ).fetchall()
    found = {row[0]: _sealed(*row) for row in rows}
    names: list[tuple[str]] = connection.execute(_RUNS_WITH_RECORDS).fetchall()
    for (run_id,) in names:
        if run_id not in found:
            raise _headless(run_id)
    return found


def _sealed(run_id: str, state: str, position: int, digest: bytes, mark: bytes) -> Head:
    if state not in _STATES or seal(run_id, state, position, digest) != mark:
        raise RunDamaged(f"run {run_id!r}: its row was changed (state {state!r}, position {position})")
    return Head(_STATES[state], position, digest)


def _headless(run_id: str) -> RunDamaged:
    return RunDamaged(f"run {run_id!r} has records but its row is gone; restore a backup")


def known_head(connection: sqlite3.Connection, run_id: str) -> Head:
    """The head of a run. Raises ``RunNotFound``, ``StorageDamaged``."""
    head = head_of(connection, run_id)
    if head is None:
        raise RunNotFound(f"no run {run_id!r}")
    return head


def digest_at(connection: sqlite3.Connection, run_id: str, seq: int) -> tuple[int, bytes]:
    """The last record at or before ``seq``: its seq and digest, or where every chain starts."""
    row: tuple[int, bytes] | None = connection.execute(
        "SELECT seq, digest FROM records WHERE run_id = ? AND seq <= ? ORDER BY seq DESC LIMIT 1", (run_id, seq)
    ).fetchone()
    return (0, GENESIS) if row is None else row


def walk(
    connection: sqlite3.Connection, run_id: str, head: Head, after: int, previous: bytes, limit: int = -1
) -> Iterator[tuple[Record, bytes]]:
    """The records after seq ``after`` up to the head, each with its digest, verified against the one before.

    Raises ``StorageDamaged`` naming run and seq. ``limit`` stops early; without it the end is compared to the head.
    """
    last, digest, count = after, previous, 0
    cursor = connection.execute(
        f"SELECT {RECORD} FROM records WHERE run_id = ? AND seq > ? AND seq <= ? ORDER BY seq LIMIT ?",
        (run_id, after, head.position, limit),
    )
    with closing(cursor):  # an error that is still looked at must not keep the connection open
        rows: Iterable[RecordRow] = cursor
        for row in rows:
            record = _linked(digest, run_id, row)
            last, digest, count = row[0], row[10], count + 1
            yield record, digest
    if count != limit and last < head.position:
        raise RunDamaged(f"run {run_id!r} seq {head.position}: the record is gone, seq {last} is the last one")
    if last == head.position and digest != head.digest:
        raise RunDamaged(f"run {run_id!r} seq {last}: the record is not the one that the run's row names")


def _linked(previous: bytes, run_id: str, row: RecordRow) -> Record:
    """The record of a row, chained to the digest of the record before it. Raises ``StorageDamaged``."""
    record = record_of(run_id, row)
    if link(previous, record) != row[10]:
        raise RunDamaged(f"run {run_id!r} seq {row[0]}: this record, or one before, was changed or removed")
    return record


def add(connection: sqlite3.Connection, run_id: str, head: Head, records: Sequence[Record]) -> Head:
    """Write records after the head, in order; their seqs are set by the caller. Answers the new head (R4)."""
    digest, state = head.digest, head.state
    rows = []
    for record in records:
        digest = link(digest, record)
        if record.kind is RecordKind.STATE:
            state = _STATES[record.state]
        rows.append((
            run_id, record.seq, record.kind.value, record.timestamp, record.entry_id, record.parent_id, record.role,
            record.ext_type, record.text, record.state, record.payload, digest,
        ))  # fmt: skip
    connection.executemany(f"INSERT INTO records (run_id, {RECORD}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", rows)
    position = records[-1].seq
    if position > MAX_INTEGER:
        raise StorageError(f"run {run_id!r} is full: seq {position} would be beyond 2**53")
    connection.execute(
        "INSERT INTO runs (run_id, state, position, digest, seal) VALUES (?, ?, ?, ?, ?) ON CONFLICT (run_id) DO UPDATE"
        " SET state = excluded.state, position = excluded.position, digest = excluded.digest, seal = excluded.seal",
        (run_id, state.value, position, digest, seal(run_id, state.value, position, digest)),
    )
    return Head(state, position, digest)


def stored_at(connection: sqlite3.Connection, run_id: str, seq: int) -> Record | None:
    """The record with that seq, verified against the one before it. Raises ``StorageDamaged``."""
    return _found(connection, run_id, "seq = ?", seq)


def stored_entry(connection: sqlite3.Connection, run_id: str, entry_id: str) -> Record | None:
    """The tree entry with that id, verified like ``stored_at``; of several (an import can bring them) the first."""
    return _found(connection, run_id, f"entry_id = ? AND {TREE} ORDER BY seq LIMIT 1", entry_id)


def _found(connection: sqlite3.Connection, run_id: str, condition: str, value: str | int) -> Record | None:
    row: RecordRow | None = connection.execute(
        f"SELECT {RECORD} FROM records WHERE run_id = ? AND {condition}", (run_id, value)
    ).fetchone()
    return None if row is None else _linked(digest_at(connection, run_id, row[0] - 1)[1], run_id, row)


def has_entry(connection: sqlite3.Connection, run_id: str, entry_id: str) -> bool:
    """Whether a tree entry with that id is stored. Raises ``StorageDamaged``.

    Before it answers no it reads the whole log: an entry that lost its name to damage must not pass for one that never
    was (X4).
    """
    if stored_entry(connection, run_id, entry_id) is not None:
        return True
    head = head_of(connection, run_id)
    if head is not None:
        deque(walk(connection, run_id, head, 0, GENESIS), maxlen=0)
    return False
