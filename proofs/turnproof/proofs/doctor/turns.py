"""The turn layer: whether submissions, slots, attempts, streams and deletions agree with one another (L, J, T, S).

The model's invariants say what a row may hold; here they are asked of the rows that are stored, and the rows of each
other. What no sequence of accepted verbs can leave is damage; what waits for somebody needs attention.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from turnproof.model import journal, submission
from turnproof.model.ids import mint_stream_key, split_stream_key
from turnproof.model.payload import decode_tool_request
from turnproof.model.rows import Slot, Submission
from turnproof.model.vocabulary import InvalidArgument, Phase, Status
from turnproof.proofs.doctor.finding import Finding, Severity
from turnproof.proofs.doctor.tables import Tables

__all__ = ["judge"]

_BACKUP: Final = "no verb leaves this: the row was changed, or rows of two moments were mixed; restore a backup"


def judge(tables: Tables, runs: frozenset[str]) -> Iterator[Finding]:
    """Every disagreement. ``runs`` are the runs that have a row or a record."""
    for row in tables.submissions.values():
        yield from _submission(tables, row)
    for session, rows in tables.by_session().items():
        yield from _session(session, rows)
    for slot in tables.slots.values():
        yield from _slot(tables, slot)
    for owner in tables.attempts.keys() - tables.submissions.keys():
        yield _damage("attempt", owner, "attempts are remembered of a submission that does not exist")
    yield from _streams(tables)
    yield from _markers(tables)
    yield from _deletions(tables, runs)
    newest = max((row.sequence for row in tables.submissions.values()), default=0)
    if newest > tables.last_sequence:
        yield Finding(
            code="sequence",
            severity=Severity.DAMAGE,
            what=f"admission number {newest} is in use, but the counter stands at {tables.last_sequence}",
            remedy=_BACKUP,
        )


def _damage(code: str, submission_id: str, what: str, run: str | None = None) -> Finding:
    return Finding(code=code, severity=Severity.DAMAGE, run=run, submission=submission_id, what=what, remedy=_BACKUP)


# --- submissions -----------------------------------------------------------------------------------------------------


def _submission(tables: Tables, row: Submission[str]) -> Iterator[Finding]:
    name, attempts = row.submission_id, tables.attempts.get(row.submission_id, set())
    if not submission.invariant(row):
        yield _damage("submission", name, f"its fields do not go together with status {row.status.value!r}")
    if row.attempt_id is not None and row.attempt_id not in attempts:
        yield _damage(
            "attempt",
            name,
            f"its owner, attempt {row.attempt_id!r}, is not among the attempts remembered of it (T5), so that id could "
            "be accepted again",
        )
    elif row.attempt_count != len(attempts):
        yield _damage("attempt", name, f"it counts {row.attempt_count} attempts, and {len(attempts)} are remembered")
    if name in tables.receipts:
        yield _damage("receipt", name, "it has a receipt of a deleted session and is still there")
    if row.session_key in tables.deletions and row.status is not Status.SETTLED:
        yield _damage("deletion", name, f"it is {row.status.value} in a session that is being deleted", row.session_key)


def _session(session: str, rows: list[Submission[str]]) -> Iterator[Finding]:
    running = [row for row in rows if row.status is Status.RUNNING]
    if len(running) > 1:
        names = ", ".join(repr(row.submission_id) for row in running)
        yield Finding(
            code="two_running",
            severity=Severity.DAMAGE,
            run=session,
            submission=running[1].submission_id,
            what=f"{len(running)} submissions run in one session at once: {names} (L2)",
            remedy=_BACKUP,
        )
    head = next((row for row in rows if row.status is not Status.SETTLED), None)
    if head is not None and head.status is Status.QUEUED and running:
        yield _damage(
            "not_head",
            running[0].submission_id,
            f"it runs although {head.submission_id!r}, admitted before it, is still queued (L2)",
            session,
        )


# --- slots -----------------------------------------------------------------------------------------------------------


def _slot(tables: Tables, slot: Slot[str]) -> Iterator[Finding]:
    name = slot.submission_id
    row = tables.submissions.get(name)
    if row is None:
        yield _damage("slot", name, "there is a turn journal slot, but no such submission", slot.session_key)
        return
    if not journal.invariant(slot):
        yield _damage("slot", name, f"the slot is in {slot.phase.value}, and its fields do not go together with that")
    if (slot.session_key, slot.kind) != (row.session_key, row.kind):
        yield _damage(
            "slot", name, f"the slot says session {slot.session_key!r}, {slot.kind.value}; the submission not"
        )
    attempts = tables.attempts.get(name, set())
    if slot.attempt_id not in attempts:
        yield _damage(
            "slot", name, f"the slot is held by attempt {slot.attempt_id!r}, which never owned the submission"
        )
    if slot.stream_key is not None and all(
        slot.stream_key != mint_stream_key(name, slot.turn_id, attempt) for attempt in attempts
    ):
        yield _damage("slot", name, f"stream key {slot.stream_key!r} was minted for none of its attempts (J5)")
    if slot.tool_request is not None:
        try:
            decode_tool_request(slot.tool_request)
        except InvalidArgument as error:
            yield _damage("slot", name, f"the recorded tool request cannot be read: {error.message}")
    if row.status is Status.SETTLED and slot.phase is Phase.TOOL_REQUEST_RECORDED and row.error is None:
        yield Finding(
            code="uncommitted",
            severity=Severity.NOTE,
            run=slot.session_key,
            submission=name,
            what="it was completed with a recorded tool request that was never committed",
        )


# --- streams, markers, deletions -------------------------------------------------------------------------------------


def _streams(tables: Tables) -> Iterator[Finding]:
    foreign = 0
    for key, stream in tables.streams.items():
        parts = split_stream_key(key)
        if parts is None:
            foreign += stream.count
            continue
        if parts[0] not in tables.submissions:
            deleted = parts[0] in tables.receipts
            yield Finding(
                code="orphan_segments",
                severity=Severity.ATTENTION,
                submission=parts[0],
                stream=key,
                what=f"{stream.count} segments of a submission that "
                + ("was deleted with its session (L10)" if deleted else "does not exist"),
                remedy="delete_stream_segments removes them",
            )
        elif stream.captured < stream.count:
            yield Finding(
                code="gap",
                severity=Severity.NOTE,
                submission=parts[0],
                stream=key,
                what=f"segment {stream.captured} is missing; the {stream.count - stream.captured} beyond are never "
                "replayed (S3)",
            )
    if foreign:
        yield Finding(
            code="unminted_segments",
            severity=Severity.NOTE,
            what=f"{foreign} segments stand under keys that nobody minted, so it cannot be said whose they are",
        )


def _markers(tables: Tables) -> Iterator[Finding]:
    for owner, attempt in tables.markers:
        if owner in tables.receipts:
            yield _damage("marker", owner, f"attempt {attempt!r} is marked of a submission that was deleted (L10)")
        elif owner not in tables.submissions:
            yield Finding(
                code="marker",
                severity=Severity.NOTE,
                submission=owner,
                what=f"attempt {attempt!r} is marked of a submission that does not exist",
            )


def _deletions(tables: Tables, runs: frozenset[str]) -> Iterator[Finding]:
    by_session = tables.by_session()
    for session in tables.deletions:
        rows = len(by_session.get(session, ()))
        if session in runs:
            phase = "stopped after the first of three phases: the transcript is still there"
        else:
            phase = f"stopped after the second of three phases: the transcript is removed (or never was), {rows} " + (
                "submission is left" if rows == 1 else "submissions are left"
            )
        yield Finding(
            code="pending_deletion",
            severity=Severity.ATTENTION,
            run=session,
            what=f"the session's deletion was begun and not finished; it {phase}",
            remedy="call delete_session again; until then nothing is admitted to the session",
        )
