"""The tables, their version, and how a file is recognised before it is opened (R9, X4).

STRICT tables refuse a value of the wrong type, so damage cannot creep in as a number where text should be. The
database says whose it is (``application_id``) and which shape it has (``user_version``). Both stand in the first 100
bytes of the file and are read from there *before* SQLite opens anything, because opening already makes a ``-wal`` and a
``-shm``; where a write-ahead log is waiting, its newest committed copy of page 1 has the last word.
"""

from __future__ import annotations

import os
import sqlite3
import struct
from contextlib import suppress
from functools import cache
from typing import BinaryIO, Final

from turnproof.impl.files import Files
from turnproof.model.vocabulary import (
    TREE_KINDS,
    Phase,
    RecordKind,
    RunState,
    Status,
    StorageDamaged,
    SubmissionKind,
    UnsupportedSchema,
)

__all__ = ["APPLICATION_ID", "DDL", "TREE", "VERSION", "examine", "image", "names"]

APPLICATION_ID: Final = int.from_bytes(b"TrnP")
VERSION: Final = 1


def _one_of(words: type[Status] | type[SubmissionKind] | type[Phase] | type[RunState] | type[RecordKind]) -> str:
    return ", ".join(f"'{word}'" for word in words)


TREE: Final = "kind IN (" + ", ".join(f"'{kind}'" for kind in sorted(TREE_KINDS)) + ")"
"""The condition under which a record is an entry of the tree; spelled like this in the index and in every query."""

DDL: Final = (
    f"""CREATE TABLE submissions (
        sequence INTEGER PRIMARY KEY AUTOINCREMENT,
        submission_id TEXT NOT NULL UNIQUE,
        session_key TEXT NOT NULL,
        kind TEXT NOT NULL CHECK (kind IN ({_one_of(SubmissionKind)})),
        payload TEXT NOT NULL,
        payload_digest BLOB NOT NULL,
        status TEXT NOT NULL CHECK (status IN ({_one_of(Status)})),
        accepted_at INTEGER NOT NULL,
        attempt_id TEXT,
        owner_id TEXT,
        lease_expires_at INTEGER NOT NULL DEFAULT 0,
        input_applied_at INTEGER,
        recovery_requested_at INTEGER,
        started_at INTEGER,
        settled_at INTEGER,
        error TEXT,
        error_digest BLOB,
        attempt_count INTEGER NOT NULL DEFAULT 0,
        max_retry INTEGER NOT NULL,
        timeout_at INTEGER NOT NULL DEFAULT 0,
        CHECK ((status = 'queued') = (attempt_id IS NULL))
    ) STRICT""",
    "CREATE INDEX submissions_session ON submissions (session_key)",
    "CREATE INDEX submissions_open ON submissions (session_key, sequence) WHERE status <> 'settled'",
    """CREATE TABLE attempts (
        submission_id TEXT NOT NULL,
        attempt_id TEXT NOT NULL,
        PRIMARY KEY (submission_id, attempt_id)
    ) STRICT, WITHOUT ROWID""",
    f"""CREATE TABLE slots (
        submission_id TEXT NOT NULL PRIMARY KEY,
        session_key TEXT NOT NULL,
        kind TEXT NOT NULL CHECK (kind IN ({_one_of(SubmissionKind)})),
        attempt_id TEXT NOT NULL,
        operation_id TEXT NOT NULL,
        turn_id TEXT NOT NULL,
        phase TEXT NOT NULL CHECK (phase IN ({_one_of(Phase)})),
        revision INTEGER NOT NULL CHECK (revision > 0),
        created_at INTEGER NOT NULL,
        updated_at INTEGER NOT NULL,
        stream_key TEXT,
        stream_consumed_at INTEGER,
        tool_request TEXT,
        tool_request_digest BLOB,
        checkpoint_leaf_id TEXT,
        committed_leaf_id TEXT,
        CHECK ((phase = 'before_provider') = (stream_key IS NULL)),
        CHECK ((phase = 'committed') = (committed_leaf_id IS NOT NULL))
    ) STRICT""",
    """CREATE TABLE segments (
        stream_key TEXT NOT NULL,
        segment_index INTEGER NOT NULL CHECK (segment_index >= 0),
        body TEXT NOT NULL,
        body_digest BLOB NOT NULL,
        PRIMARY KEY (stream_key, segment_index)
    ) STRICT""",
    """CREATE TABLE markers (
        submission_id TEXT NOT NULL,
        attempt_id TEXT NOT NULL,
        created_at INTEGER NOT NULL,
        PRIMARY KEY (submission_id, attempt_id)
    ) STRICT, WITHOUT ROWID""",
    """CREATE TABLE receipts (
        submission_id TEXT NOT NULL PRIMARY KEY,
        accepted_at INTEGER NOT NULL
    ) STRICT, WITHOUT ROWID""",
    "CREATE TABLE deletions (session_key TEXT NOT NULL PRIMARY KEY) STRICT, WITHOUT ROWID",
    f"""CREATE TABLE runs (
        run_id TEXT NOT NULL PRIMARY KEY,
        state TEXT NOT NULL CHECK (state IN ({_one_of(RunState)})),
        position INTEGER NOT NULL CHECK (position > 0),
        digest BLOB NOT NULL,
        seal BLOB NOT NULL
    ) STRICT, WITHOUT ROWID""",
    f"""CREATE TABLE records (
        run_id TEXT NOT NULL,
        seq INTEGER NOT NULL CHECK (seq > 0),
        kind TEXT NOT NULL CHECK (kind IN ({_one_of(RecordKind)})),
        timestamp INTEGER NOT NULL,
        entry_id TEXT NOT NULL,
        parent_id TEXT NOT NULL,
        role TEXT NOT NULL,
        ext_type TEXT NOT NULL,
        text TEXT NOT NULL,
        state TEXT NOT NULL,
        payload TEXT NOT NULL,
        digest BLOB NOT NULL,
        PRIMARY KEY (run_id, seq)
    ) STRICT""",
    f"CREATE INDEX records_entry ON records (run_id, entry_id, seq) WHERE {TREE}",
    f"PRAGMA application_id = {APPLICATION_ID}",
    f"PRAGMA user_version = {VERSION}",
)


@cache
def names() -> frozenset[str]:
    """The tables and indexes that a store has."""
    return frozenset(words[2] for words in map(str.split, DDL) if words[0] == "CREATE")


@cache
def image() -> bytes:
    """A database with these tables and nothing in them, in WAL mode, as the bytes of its file.

    A new store is this file under its final name, so a crash can leave no file or the whole of it and an empty
    ``journal.db`` is always damage (X1, X4).
    """
    connection = sqlite3.connect(":memory:", isolation_level=None)
    try:
        for statement in DDL:
            connection.execute(statement)
        data = bytearray(connection.serialize())
    finally:
        connection.close()
    data[18:20] = b"\x02\x02"  # the file format versions that mean WAL (fileformat2, 1.3.3)
    return bytes(data)


_MAGIC: Final = b"SQLite format 3\x00"
_WAL_HEADER: Final = struct.Struct(">8I")
_FRAME: Final = struct.Struct(">6I")


def examine(files: Files, file: str) -> None:
    """Judge a database by its first 100 bytes, its write-ahead log and its size, without opening it.

    They are read in this order because another process may be at work: when the log is found empty, whatever the header
    promised has reached the file by then. Raises ``StorageDamaged`` for what is no store of ours and
    ``UnsupportedSchema`` for a newer one (R9), ``OSError``.
    """
    with files.open(file) as handle:
        head = handle.read(100)
    page, idle = head, True
    with suppress(FileNotFoundError), files.open(f"{file}-wal") as handle:
        page = newest_first_page(head, handle)
        idle = not handle.seek(0, os.SEEK_END)
    size = files.size(file)
    if size == 0:
        raise StorageDamaged(f"{file} is empty; a store is never empty, so restore a backup or move the file away")
    if len(page) < 100 or not page.startswith(_MAGIC):
        raise StorageDamaged(f"{file} is not a SQLite database")
    version, application = struct.unpack_from(">I4xI", page, 60)
    if application != APPLICATION_ID:
        raise StorageDamaged(
            f"{file} is a SQLite database, but not a turnproof store (application_id {application:#x})"
        )
    if version > VERSION:
        raise UnsupportedSchema(f"{file} has schema {version}; this release reads up to {VERSION}: use a newer release")
    if version < 1:
        raise StorageDamaged(f"{file} has schema version {version}, which no release ever wrote")
    width = int.from_bytes(page[16:18])
    expected = int.from_bytes(page[28:32]) * (65536 if width == 1 else width)
    if idle and size < expected:
        raise StorageDamaged(f"{file} is truncated: {size} of {expected} bytes")


def newest_first_page(head: bytes, log: BinaryIO) -> bytes:
    """The first 100 bytes of page 1 as SQLite would see it: its last committed copy in the log, else the file's own.

    A torn page 1 in the file is no damage while the log still holds it: a checkpoint was cut off by a power cut. The
    log's checksums are only computed when a copy there differs from the file in what is looked at.
    """
    header = log.read(32)
    if len(header) < 32:
        return head
    magic, _, width, _, _, _, sum1, sum2 = _WAL_HEADER.unpack(header)
    if magic & ~1 != 0x377F0682 or not 512 <= width <= 65536:
        return head
    differs = False
    at = 32
    while len(frame := log.read(124)) == 124:
        if frame.startswith(b"\0\0\0\1") and frame[8:16] == header[16:24]:
            differs |= frame[24:40] != head[:16] or frame[84:96] != head[60:72]
        at += 24 + width
        log.seek(at)
    order = ">" if magic & 1 else "<"
    if not differs or _checksum(header[:24], order, (0, 0)) != (sum1, sum2):
        return head
    log.seek(32)
    return _committed_first_page(head, log, width, header[16:24], order, (sum1, sum2))


def _committed_first_page(
    head: bytes, log: BinaryIO, width: int, salts: bytes, order: str, sums: tuple[int, int]
) -> bytes:
    newest = pending = head
    while len(frame := log.read(24 + width)) == 24 + width:
        number, commit, _, _, sum1, sum2 = _FRAME.unpack_from(frame)
        sums = _checksum(frame[:8] + frame[24:], order, sums)
        if frame[8:16] != salts or (sum1, sum2) != sums:
            break
        if number == 1:
            pending = frame[24:124]
        if commit:
            newest = pending
    return newest


def _checksum(data: bytes, order: str, sums: tuple[int, int]) -> tuple[int, int]:
    """SQLite's cumulative WAL checksum (fileformat2, section 4.2)."""
    one, two = sums
    for first, second in struct.iter_unpack(f"{order}2I", data):
        one = (one + first + two) & 0xFFFFFFFF
        two = (two + second + one) & 0xFFFFFFFF
    return one, two
