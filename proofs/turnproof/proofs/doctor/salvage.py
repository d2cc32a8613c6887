"""What can still be read of a damaged store, put into a new one that is sound.

First every readable row is carried over as it is, table by table and from both sides of a page that is gone. Then the
new store, which SQLite can read from end to end, is judged like any other, and what does not stand is left out:

- a run is kept up to the last record that its digest chain proves; its row is written anew;
- a submission is kept with everything that belongs to it, or left out with everything. Then a receipt stands in its
  place, as after the deletion of a session: whoever admits or drives it again is refused, so no tool runs twice;
- a segment whose body was changed is left out, and what lies beyond the gap is never replayed (S3).

Nothing is guessed. Each thing that is left out is named, and what could be read of it stands in ``left-out.jsonl``.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from itertools import chain
from typing import Final

from attrs import define, field

from turnproof.impl import schema
from turnproof.impl.columns import RECORD, SLOT, SUBMISSION, digest_of
from turnproof.impl.files import Files
from turnproof.impl.log import seal
from turnproof.model.ids import escape, is_run_id, split_stream_key
from turnproof.model.transcript import Transcript
from turnproof.proofs.doctor import conversations, turns
from turnproof.proofs.doctor.carry import Remainder, Row, carry
from turnproof.proofs.doctor.chain import run_ids, walk
from turnproof.proofs.doctor.finding import Finding, Severity
from turnproof.proofs.doctor.integrity import read_only
from turnproof.proofs.doctor.tables import load

__all__ = ["LEFT_OUT", "Salvage", "salvage"]

LEFT_OUT: Final = "left-out.jsonl"
"""Beside the new store: rows that could be read and have no place in it."""

_TABLES: Final = {
    # table: its columns
    "runs": "run_id, state, position, digest, seal",
    "records": f"run_id, {RECORD}",
    "submissions": SUBMISSION,
    "slots": SLOT,
    "attempts": "submission_id, attempt_id",
    "segments": "stream_key, segment_index, body, body_digest",
    "markers": "submission_id, attempt_id, created_at",
    "receipts": "submission_id, accepted_at",
    "deletions": "session_key",
}


@define
class Salvage:
    """What became of a damaged store."""

    remainder: Remainder
    left_out: list[str] = field(factory=list)
    mended: list[str] = field(factory=list)
    cut: set[str] = field(factory=set)
    """Sessions of which something is missing."""
    refused: set[str] = field(factory=set)
    """Submissions that a receipt now stands for."""
    holes: bool = False
    """A table could not be read to its end, so anything may be missing anywhere."""
    rows: int = 0
    """How many could be carried over."""


def salvage(damaged: str, target: str, now: int) -> Salvage:
    """Make a sound store in the new file ``target`` from what can be read of a private copy.

    Raises ``OSError``, ``sqlite3.Error`` when ``target`` cannot be written.
    """
    Files().create(target, schema.image())
    found = Salvage(Remainder(os.path.join(os.path.dirname(target), LEFT_OUT)))
    with closing(sqlite3.connect(target, isolation_level=None)) as new:
        new.execute("BEGIN IMMEDIATE")
        refused = _carry_over(damaged, new, found)
        for run_id in run_ids(new):
            _prove(new, run_id, found)
        for submission_id, why in refused.items():
            _leave_out(new, submission_id, why, now, found)
        _judge(new, target, now, found)
        new.execute("COMMIT")
    return found


def _carry_over(damaged: str, new: sqlite3.Connection, found: Salvage) -> dict[str, str]:
    """Carry every readable row over; answers the submissions whose own row the tables do not take, and why."""
    refused: dict[str, str] = {}
    connection, lenient = read_only(damaged)
    with closing(connection):
        try:
            connection.execute("SELECT sql FROM sqlite_schema").fetchall()
        except sqlite3.Error:
            found.holes = True  # without the list of tables there is nothing to be read
            return refused
        for table, columns in _TABLES.items():
            carried = carry(connection, new, table, columns, lenient, found.remainder)
            found.rows += carried.rows
            found.holes |= bool(carried.unreadable)
            found.left_out += [f"table {table}: {problem}" for problem in carried.unreadable]
            for key, why in carried.refused:
                if table in ("submissions", "slots"):
                    refused.setdefault(key, f"its row in {table} is not one that a store writes ({why})")
                else:
                    found.left_out.append(f"table {table}: the row of {key!r} is not one that a store writes ({why})")
        _counter(connection, new)
    return refused


def _counter(connection: sqlite3.Connection, new: sqlite3.Connection) -> None:
    """The number of the last admission, so that none is given twice (L1)."""
    query = "SELECT seq FROM sqlite_sequence WHERE name = 'submissions'"
    try:
        row: tuple[int] | None = connection.execute(query).fetchone()
    except sqlite3.Error:
        return  # the highest number in use must do
    own: tuple[int] | None = new.execute(query).fetchone()
    if row is not None and isinstance(row[0], int) and (own is None or row[0] > own[0]):
        new.execute("DELETE FROM sqlite_sequence WHERE name = 'submissions'")
        new.execute("INSERT INTO sqlite_sequence (name, seq) VALUES ('submissions', ?)", row)


def _remove(new: sqlite3.Connection, table: str, condition: str, values: tuple[str | int, ...], found: Salvage) -> int:
    """Put rows among the left-out ones; answers how many."""
    with closing(new.execute(f"SELECT {_TABLES[table]} FROM {table} WHERE {condition}", values)) as cursor:
        rows: Iterator[Row] = cursor
        first = next(rows, None)
        if first is not None:
            found.remainder.add(table, _TABLES[table], chain((first,), rows))
    return new.execute(f"DELETE FROM {table} WHERE {condition}", values).rowcount


# --- runs ------------------------------------------------------------------------------------------------------------


def _prove(new: sqlite3.Connection, run_id: str, found: Salvage) -> None:
    """Keep of a run what its chain proves, and write its row anew."""
    walked = walk(new, run_id)
    if walked.sound:
        return
    row: tuple[int] | None = new.execute("SELECT position FROM runs WHERE run_id = ?", (run_id,)).fetchone()
    last = max(walked.last, 0 if row is None else row[0])
    proved = walked.proved if is_run_id(run_id) else 0
    readable = _remove(new, "records", "run_id = ? AND seq > ?", (run_id, proved), found)
    new.execute("DELETE FROM runs WHERE run_id = ?", (run_id,))
    kept = walk(new, run_id)
    if proved:
        new.execute(
            "INSERT INTO runs (run_id, state, position, digest, seal) VALUES (?, ?, ?, ?, ?)",
            (run_id, kept.state.value, proved, kept.digest, seal(run_id, kept.state.value, proved, kept.digest)),
        )
    found.cut.add(run_id)
    why = walked.findings[0].what
    if last > proved:
        seqs = f"seq {last}" if last == proved + 1 else f"seqs {proved + 1} to {last}"
        found.left_out.append(f"run {run_id!r}: {seqs} ({readable} could be read): {why}")
    else:
        found.mended.append(f"run {run_id!r}: its row was written anew from its {kept.records} records: {why}")


# --- the turn layer --------------------------------------------------------------------------------------------------


def _judge(new: sqlite3.Connection, target: str, now: int, found: Salvage) -> None:
    """Leave out what the examination calls damage, until there is none."""
    findings = [*_anchors(new, target), *_turns(new, target)]
    while findings:
        for finding in findings:
            if finding.submission is not None:
                _leave_out(new, finding.submission, finding.what, now, found)
            elif finding.stream is not None:
                _leave_segments_out(new, finding.stream, found)
        left = _turns(new, target)
        findings = [finding for finding in left if finding not in findings]


def _turns(new: sqlite3.Connection, target: str) -> list[Finding]:
    tables = load(new, target)
    found = [*tables.findings, *turns.judge(tables, frozenset(run_ids(new)))]
    return [finding for finding in found if finding.severity is Severity.DAMAGE]


def _anchors(new: sqlite3.Connection, target: str) -> Iterator[Finding]:
    tables, runs = load(new, target), frozenset(run_ids(new))
    for session, rows in tables.by_session().items():
        slots = [tables.slots[row.submission_id] for row in rows if row.submission_id in tables.slots]
        if not slots or session in tables.deletions:
            continue
        tree = conversations.fold_of(walk(new, session).folded) if session in runs else Transcript()
        for slot in slots:
            for finding in conversations.anchors(slot, tree, known=session in runs):
                if finding.severity is Severity.DAMAGE:
                    yield finding


def _leave_out(new: sqlite3.Connection, submission_id: str, why: str, now: int, found: Salvage) -> None:
    """Remove a submission and everything that is its own; leave a receipt."""
    row: tuple[str, int] | None = new.execute(
        "SELECT session_key, accepted_at FROM submissions WHERE submission_id = ?", (submission_id,)
    ).fetchone()
    if row is not None:
        found.cut.add(row[0])
    new.execute(
        "INSERT INTO receipts (submission_id, accepted_at) VALUES (?, ?) ON CONFLICT DO NOTHING",
        (submission_id, now if row is None else row[1]),
    )
    for table in ("slots", "attempts", "markers", "submissions"):
        _remove(new, table, "submission_id = ?", (submission_id,), found)
    for key in _minted(new, submission_id):
        _remove(new, "segments", "stream_key = ?", (key,), found)
    if submission_id not in found.refused:
        found.refused.add(submission_id)
        found.left_out.append(
            f"submission {submission_id!r} and all that belongs to it (a receipt stands in its place): {why}"
        )


def _minted(new: sqlite3.Connection, submission_id: str) -> list[str]:
    """The stream keys that were minted for a submission (S4)."""
    prefix = escape(submission_id)
    rows: list[tuple[str]] = new.execute(
        "SELECT DISTINCT stream_key FROM segments WHERE stream_key >= ? AND stream_key < ?",
        (f"{prefix}:", f"{prefix};"),
    ).fetchall()
    minted = ((key, split_stream_key(key)) for (key,) in rows)
    return [key for key, parts in minted if parts is not None and parts[0] == submission_id]


def _leave_segments_out(new: sqlite3.Connection, stream: str, found: Salvage) -> None:
    rows: list[tuple[int, str, bytes]] = new.execute(
        "SELECT segment_index, body, body_digest FROM segments WHERE stream_key = ?", (stream,)
    ).fetchall()
    for index, body, digest in rows:
        if digest_of(body) != digest:
            _remove(new, "segments", "stream_key = ? AND segment_index = ?", (stream, index), found)
            found.left_out.append(f"stream {stream!r}: segment {index}: it was changed on disk")
