"""The rows of the turn layer as they are stored, each digest verified, read row by row so that one bad row hides no
other."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from typing import Final

from attrs import define, field

from turnproof.impl.columns import SLOT, SUBMISSION, segment_of, slot_of, submission_of
from turnproof.model.rows import Slot, Submission
from turnproof.model.vocabulary import StorageDamaged
from turnproof.proofs.doctor.finding import Finding, Severity

__all__ = ["Streams", "Tables", "load"]

_BACKUP: Final = "restore a backup"


@define
class Streams:
    """The indices of a stream's segments, without their bodies."""

    count: int = 0
    captured: int = 0
    """The length of the run 0, 1, ... without a gap (S3)."""


@define(kw_only=True)
class Tables:
    """Everything but records and segment bodies."""

    submissions: dict[str, Submission[str]] = field(factory=dict)
    """By id, in admission order."""
    slots: dict[str, Slot[str]] = field(factory=dict)
    attempts: dict[str, set[str]] = field(factory=dict)
    markers: list[tuple[str, str]] = field(factory=list)
    receipts: set[str] = field(factory=set)
    deletions: list[str] = field(factory=list)
    streams: dict[str, Streams] = field(factory=dict)
    last_sequence: int = 0
    segments: int = 0
    findings: list[Finding] = field(factory=list)

    def by_session(self) -> dict[str, list[Submission[str]]]:
        """The submissions of each session in admission order."""
        found: dict[str, list[Submission[str]]] = {}
        for row in self.submissions.values():
            found.setdefault(row.session_key, []).append(row)
        return found


def load(connection: sqlite3.Connection, file: str) -> Tables:
    """Read them all. What cannot be read becomes a finding."""
    tables = Tables()
    steps: tuple[tuple[str, Callable[[], None]], ...] = (
        ("submissions", lambda: _submissions(connection, tables)),
        ("slots", lambda: _slots(connection, tables)),
        ("attempts", lambda: _attempts(connection, tables)),
        ("markers", lambda: _small(connection, tables)),
        ("segments", lambda: _segments(connection, tables)),
    )
    for name, step in steps:
        try:
            step()
        except sqlite3.Error as error:
            tables.findings.append(
                Finding(
                    code="unreadable_table",
                    severity=Severity.DAMAGE,
                    file=file,
                    what=f"table {name} cannot be read to its end: {error}",
                    remedy=_BACKUP,
                )
            )
    return tables


def _submissions(connection: sqlite3.Connection, tables: Tables) -> None:
    for row in connection.execute(f"SELECT {SUBMISSION} FROM submissions ORDER BY sequence"):
        try:
            submission = submission_of(row)
            tables.submissions[submission.submission_id] = submission
        except StorageDamaged as error:
            tables.findings.append(_changed(error.message, submission=str(row[0])))
    sequence: tuple[int] | None = connection.execute(
        "SELECT seq FROM sqlite_sequence WHERE name = 'submissions'"
    ).fetchone()
    tables.last_sequence = 0 if sequence is None else sequence[0]


def _slots(connection: sqlite3.Connection, tables: Tables) -> None:
    for row in connection.execute(f"SELECT {SLOT} FROM slots ORDER BY submission_id"):
        try:
            slot = slot_of(row)
            tables.slots[slot.submission_id] = slot
        except StorageDamaged as error:
            tables.findings.append(_changed(error.message, submission=str(row[0])))


def _attempts(connection: sqlite3.Connection, tables: Tables) -> None:
    for submission, attempt in connection.execute("SELECT submission_id, attempt_id FROM attempts"):
        tables.attempts.setdefault(str(submission), set()).add(str(attempt))


def _small(connection: sqlite3.Connection, tables: Tables) -> None:
    marks: list[tuple[str, str]] = connection.execute("SELECT submission_id, attempt_id FROM markers").fetchall()
    receipts: list[tuple[str]] = connection.execute("SELECT submission_id FROM receipts").fetchall()
    deletions: list[tuple[str]] = connection.execute(
        "SELECT session_key FROM deletions ORDER BY session_key"
    ).fetchall()
    tables.markers = marks
    tables.receipts = {submission for (submission,) in receipts}
    tables.deletions = [session for (session,) in deletions]


def _segments(connection: sqlite3.Connection, tables: Tables) -> None:
    rows: Iterator[tuple[str, int, str, bytes]] = connection.execute(
        "SELECT stream_key, segment_index, body, body_digest FROM segments ORDER BY stream_key, segment_index"
    )
    for stream, index, body, digest in rows:
        found = tables.streams.setdefault(stream, Streams())
        found.captured += index == found.captured
        found.count += 1
        tables.segments += 1
        try:
            segment_of(stream, (index, body, digest))
        except StorageDamaged as error:
            tables.findings.append(_changed(error.message, stream=stream))


def _changed(what: str, *, submission: str | None = None, stream: str | None = None) -> Finding:
    return Finding(
        code="row_changed",
        severity=Severity.DAMAGE,
        submission=submission,
        stream=stream,
        what=what.removesuffix("; restore a backup"),
        remedy=_BACKUP,
    )
