"""Reads beside the protocol: what a run's log says besides the conversation, and everything at once (R17, R18)."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from typing import Final

from attrs import evolve, frozen

from turnproof.impl import log
from turnproof.impl.base import Base
from turnproof.impl.checks import run_name
from turnproof.impl.columns import segment_of, slots, submissions
from turnproof.impl.log import GENESIS, Head
from turnproof.model.rows import AttemptMarker, Record, RunView, Segment, Slot, Submission
from turnproof.model.vocabulary import RecordKind, RunState

__all__ = ["Dump", "DumpedRun", "Views", "cleanup_due", "run_view"]

_TERMINAL: Final = (RunState.COMPLETED, RunState.FAILED, RunState.CANCELLED, RunState.RETIRED)


@frozen
class DumpedRun:
    state: RunState
    records: tuple[Record, ...]


@frozen(kw_only=True)
class Dump:
    """The whole durable state of a store, as it was in one moment."""

    submissions: dict[str, Submission[str]]
    """By id, in admission order."""
    attempts: dict[str, frozenset[str]]
    """By submission: every attempt that ever owned it (T5)."""
    slots: dict[str, Slot[str]]
    segments: dict[str, tuple[Segment, ...]]
    """By stream key, in ascending index."""
    markers: tuple[AttemptMarker, ...]
    receipts: dict[str, int]
    """By submission: when it was accepted, in ms."""
    deletions: tuple[str, ...]
    runs: dict[str, DumpedRun]
    last_sequence: int
    """The last admission number, never used again."""


def run_view(records: Iterable[Record]) -> RunView:
    """Turn, cancellation, suspension, trigger, sandbox and context strings, folded from a log (R18)."""
    view = RunView()
    for record in records:
        kind = record.kind
        if kind is RecordKind.TURN:
            view = evolve(view, turn=record.text, cancel_requested=False, contexts=())
        elif kind is RecordKind.CANCEL and record.text == view.turn:
            view = evolve(view, cancel_requested=True)
        elif kind is RecordKind.STATE and record.state == RunState.CANCELLED:
            view = evolve(view, cancel_requested=False)
        elif kind is RecordKind.SUSPEND:
            view = evolve(view, suspension=record)
        elif kind is RecordKind.RESUME:
            view = evolve(view, suspension=None)
        elif kind is RecordKind.TRIGGER:
            view = evolve(view, trigger=record)
        elif kind is RecordKind.SANDBOX:
            view = evolve(view, sandbox=record)
        elif kind is RecordKind.CONTEXT:
            view = evolve(view, contexts=(*view.contexts, record.text))
    return view


def cleanup_due(records: Iterable[Record]) -> bool:
    """Whether a run's working files may go: it is terminal, and they were not removed since it became so (R17)."""
    due = False
    for record in records:
        if record.kind is RecordKind.STATE:
            due = record.state in _TERMINAL
        elif record.kind is RecordKind.WORKSPACE_DELETED:
            due = False
    return due


class Views(Base):
    """The same on a store."""

    def run_view(self, run_id: str) -> RunView:
        """What the run's log says besides the conversation (R18). Raises ``RunNotFound``, ``StorageDamaged``."""
        with self._pool.snapshot() as connection:
            return run_view(_records(connection, run_name("run_id", run_id)))

    def cleanup_due(self, run_id: str) -> bool:
        """Whether the run's working files may go (R17). Raises ``RunNotFound``, ``StorageDamaged``."""
        with self._pool.snapshot() as connection:
            return cleanup_due(_records(connection, run_name("run_id", run_id)))

    def dump(self) -> Dump:
        """Everything, in one read transaction, every digest verified. For checkers and examiners."""
        with self._pool.snapshot() as connection:
            return _dump(connection)


def _records(connection: sqlite3.Connection, run_id: str) -> Iterable[Record]:
    head = log.known_head(connection, run_id)
    return (record for record, _ in log.walk(connection, run_id, head, 0, GENESIS))


def _dump(connection: sqlite3.Connection) -> Dump:
    attempts: dict[str, set[str]] = {}
    pairs: list[tuple[str, str]] = connection.execute("SELECT submission_id, attempt_id FROM attempts").fetchall()
    for submission_id, attempt_id in pairs:
        attempts.setdefault(submission_id, set()).add(attempt_id)
    segments: dict[str, list[Segment]] = {}
    bodies: list[tuple[str, int, str, bytes]] = connection.execute(
        "SELECT stream_key, segment_index, body, body_digest FROM segments ORDER BY stream_key, segment_index"
    ).fetchall()
    for stream_key, index, body, digest in bodies:
        segments.setdefault(stream_key, []).append(segment_of(stream_key, (index, body, digest)))
    markers: list[tuple[str, str, int]] = connection.execute(
        "SELECT submission_id, attempt_id, created_at FROM markers ORDER BY submission_id, attempt_id"
    ).fetchall()
    receipts: list[tuple[str, int]] = connection.execute("SELECT submission_id, accepted_at FROM receipts").fetchall()
    deletions: list[tuple[str]] = connection.execute(
        "SELECT session_key FROM deletions ORDER BY session_key"
    ).fetchall()
    last: tuple[int] | None = connection.execute(
        "SELECT seq FROM sqlite_sequence WHERE name = 'submissions'"
    ).fetchone()
    return Dump(
        submissions={row.submission_id: row for row in submissions(connection, "ORDER BY sequence")},
        attempts={submission_id: frozenset(owned) for submission_id, owned in attempts.items()},
        slots={slot.submission_id: slot for slot in slots(connection, "ORDER BY submission_id")},
        segments={key: tuple(found) for key, found in segments.items()},
        markers=tuple(AttemptMarker(submission_id=one, attempt_id=two, created_at=at) for one, two, at in markers),
        receipts=dict(receipts),
        deletions=tuple(session_key for (session_key,) in deletions),
        runs={run_id: _dumped(connection, run_id, head) for run_id, head in log.heads(connection).items()},
        last_sequence=0 if last is None else last[0],
    )


def _dumped(connection: sqlite3.Connection, run_id: str, head: Head) -> DumpedRun:
    return DumpedRun(head.state, tuple(record for record, _ in log.walk(connection, run_id, head, 0, GENESIS)))
