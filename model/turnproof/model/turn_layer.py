"""The operations of the turn layer on the whole state: submissions, slots, transfer, segments, markers, deletion.

Each function finds the rows that an operation names, puts them before the rule that decides (``submission``,
``journal``, ``stream``), and stores what the rule answers. Arguments are well-formed here: ``system`` saw to it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from attrs import evolve

from turnproof.model import journal, operations, stream, submission
from turnproof.model.choices import Choices
from turnproof.model.conversation import anchor_of
from turnproof.model.decision import Accept, Decision, Fail, Refuse
from turnproof.model.ids import mint_stream_key, split_stream_key
from turnproof.model.journal import Anchor
from turnproof.model.recovery import classify
from turnproof.model.rows import Admission, AttemptMarker, Receipt, Recovery, Segment, Slot, Submission
from turnproof.model.state import State
from turnproof.model.table import Table
from turnproof.model.vocabulary import DEFAULT_LEASE_MS, ErrorCode, Phase, Status, SubmissionKind

__all__ = ["DELETION_UNITS", "finish_deletion", "mark_deletion", "remove_transcript"]

Rows = tuple[Submission[str], ...]
Row = Submission[str]


def _store(state: State, decision: Decision[Row]) -> tuple[State, Decision[bool]]:
    """Store the row that a rule accepted, and answer True."""
    if isinstance(decision, Accept):
        return state.put(decision.value), Accept(True, decision.rule)
    return state, decision


def _store_slot(state: State, decision: Decision[Slot[str]]) -> tuple[State, Decision[bool]]:
    if isinstance(decision, Accept):
        return state.put_slot(decision.value), Accept(True, decision.rule)
    return state, decision


# --- submissions ----------------------------------------------------------------------------------------------------


def admit(state: State, op: operations.Admit, choices: Choices) -> tuple[State, Decision[Admission]]:
    """L1: by id; a receipt answers first, then a pending deletion, then the row there is."""
    accepted_at = state.receipts.get(op.submission_id)
    if accepted_at is not None:
        receipt = Receipt(submission_id=op.submission_id, accepted_at=accepted_at)
        return state, Accept(Admission(kind="receipt", receipt=receipt), "L1 L10")
    if op.session_key in state.deletions:
        return state, Fail(ErrorCode.SESSION_DELETING, "L1 L10", f"session {op.session_key!r} is being deleted")
    row = state.submissions.get(op.submission_id)
    if row is not None:
        same = (row.session_key, row.kind.value, row.payload) == (op.session_key, op.kind, op.payload)
        answer = Admission(kind="submission", submission=row) if same else Admission(kind="conflict")
        return state, Accept(answer, "L1")
    row = Submission(
        submission_id=op.submission_id,
        session_key=op.session_key,
        kind=SubmissionKind(op.kind),
        payload=op.payload,
        status=Status.QUEUED,
        sequence=state.last_sequence + 1,
        accepted_at=op.accepted_at,
    )
    state = evolve(state.put(row), last_sequence=row.sequence)
    return state, Accept(Admission(kind="submission", submission=row), "L1")


def get_submission(state: State, op: operations.GetSubmission, _: Choices) -> tuple[State, Decision[Row | None]]:
    return state, Accept(state.submissions.get(op.submission_id), "L1")


def claim(state: State, op: operations.Claim, choices: Choices) -> tuple[State, Decision[Row]]:
    row = state.submissions.get(op.submission_id)
    decision = submission.claim(
        row,
        op.attempt_id,
        op.owner_id,
        op.lease_expires_at,
        op.now,
        is_head=row is not None and state.is_head(row),
        former=state.former.get(op.submission_id, ()),
        choices=choices,
    )
    return (state.owned(decision.value, op.attempt_id) if isinstance(decision, Accept) else state), decision


def mark_input_applied(state: State, op: operations.MarkInputApplied, _: Choices) -> tuple[State, Decision[bool]]:
    row = state.submissions.get(op.submission_id)
    return _store(state, submission.mark_input_applied(row, op.attempt_id, op.max_retry, op.timeout_at, op.now))


def request_recovery(state: State, op: operations.RequestRecovery, _: Choices) -> tuple[State, Decision[bool]]:
    return _store(state, submission.request_recovery(state.submissions.get(op.submission_id), op.attempt_id, op.now))


def requeue(state: State, op: operations.Requeue, _: Choices) -> tuple[State, Decision[bool]]:
    row, slot = state.submissions.get(op.submission_id), state.slots.get(op.submission_id)
    return _store(state, submission.requeue(row, slot, op.attempt_id))


def complete(state: State, op: operations.Complete, _: Choices) -> tuple[State, Decision[bool]]:
    return _store(state, submission.settle(state.submissions.get(op.submission_id), op.attempt_id, None, op.now))


def fail(state: State, op: operations.FailSubmission, _: Choices) -> tuple[State, Decision[bool]]:
    return _store(state, submission.settle(state.submissions.get(op.submission_id), op.attempt_id, op.error, op.now))


def list_runnable(state: State, op: operations.ListRunnable, _: Choices) -> tuple[State, Decision[Rows]]:
    rows = (row for row in state.submissions.values() if row.status is Status.QUEUED and state.is_head(row))
    return state, Accept(tuple(rows), "L8")


def list_running(state: State, op: operations.ListRunning, _: Choices) -> tuple[State, Decision[Rows]]:
    return state, Accept(tuple(row for row in state.submissions.values() if row.status is Status.RUNNING), "L8")


def list_expired(state: State, op: operations.ListExpired, _: Choices) -> tuple[State, Decision[Rows]]:
    rows = (row for row in state.submissions.values() if submission.is_expired(row, op.now))
    return state, Accept(tuple(rows), "L8")


def has_unsettled(state: State, op: operations.HasUnsettled, _: Choices) -> tuple[State, Decision[bool]]:
    return state, Accept(any(row.status is not Status.SETTLED for row in state.submissions.values()), "L8")


def renew_leases(state: State, op: operations.RenewLeases, _: Choices) -> tuple[State, Decision[tuple[str, ...]]]:
    """L7: each listed submission by itself; the answer tells a lost owner which are no longer its own."""
    lease_ms = DEFAULT_LEASE_MS if op.lease_ms is None else op.lease_ms
    renewed: list[str] = []
    for submission_id in op.submission_ids:
        decision = submission.renew(state.submissions.get(submission_id), op.owner_id, lease_ms, op.now)
        if isinstance(decision, Accept):
            state = state.put(decision.value)
            renewed.append(submission_id)
    return state, Accept(tuple(renewed), "L7")


# --- attempt markers ------------------------------------------------------------------------------------------------


def insert_attempt_marker(state: State, op: operations.InsertAttemptMarker, _: Choices) -> tuple[State, Decision[None]]:
    """L9: the first time stays; nothing is kept for a deleted submission (L10)."""
    key = (op.submission_id, op.attempt_id)
    if op.submission_id in state.receipts:
        return state, Accept(None, "L9 L10")
    if key not in state.markers:
        state = evolve(state, markers=state.markers.put(key, op.now))
    return state, Accept(None, "L9")


def delete_attempt_marker(state: State, op: operations.DeleteAttemptMarker, _: Choices) -> tuple[State, Decision[None]]:
    return evolve(state, markers=state.markers.drop((op.submission_id, op.attempt_id))), Accept(None, "L9")


def list_attempt_markers(
    state: State, op: operations.ListAttemptMarkers, _: Choices
) -> tuple[State, Decision[tuple[AttemptMarker, ...]]]:
    rows = (AttemptMarker(submission_id=s, attempt_id=a, created_at=at) for (s, a), at in sorted(state.markers.items()))
    return state, Accept(tuple(rows), "L9")


# --- turn journal and attempt transfer ------------------------------------------------------------------------------


def _anchor(state: State, slot: Slot[str] | None, leaf: str | None, choices: Choices, *, committed: bool) -> Anchor:
    if choices.anchors == "trusted" or slot is None or leaf is None:
        return Anchor.SOUND
    tree = state.transcript(slot.session_key, choices) if slot.session_key in state.runs else None
    return anchor_of(tree, leaf, slot.checkpoint_leaf_id, committed=committed)


def begin_turn_journal(state: State, op: operations.BeginTurnJournal, choices: Choices) -> tuple[State, Decision[bool]]:
    if op.submission_id in state.receipts:
        return state, Refuse("J2 L10")
    decision = journal.begin(
        state.submissions.get(op.submission_id),
        state.slots.get(op.submission_id),
        op.submission_id,
        op.attempt_id,
        op.session_key,
        SubmissionKind(op.kind),
        op.operation_id,
        op.turn_id,
        op.now,
        choices,
    )
    return _store_slot(state, decision)


def update_turn_journal_phase(
    state: State, op: operations.UpdateTurnJournalPhase, choices: Choices
) -> tuple[State, Decision[bool]]:
    slot = state.slots.get(op.submission_id)
    checkpoint = op.checkpoint_leaf_id or None
    decision = journal.advance(
        state.submissions.get(op.submission_id),
        slot,
        op.attempt_id,
        Phase(op.phase),
        op.stream_key or None,
        None if slot is None else mint_stream_key(op.submission_id, slot.turn_id, op.attempt_id),
        op.tool_request or None,
        checkpoint,
        _anchor(state, slot, checkpoint, choices, committed=False),
        op.now,
        choices,
    )
    if isinstance(decision, Accept) and decision.value.stream_key and choices.stream_key == "opaque":
        state = state.given(op.submission_id, decision.value.stream_key)
    return _store_slot(state, decision)


def mark_stream_consumed(
    state: State, op: operations.MarkStreamConsumed, choices: Choices
) -> tuple[State, Decision[bool]]:
    row, slot = state.submissions.get(op.submission_id), state.slots.get(op.submission_id)
    return _store_slot(state, journal.mark_consumed(row, slot, op.attempt_id, op.stream_key, op.now, choices))


def commit_turn_journal(
    state: State, op: operations.CommitTurnJournal, choices: Choices
) -> tuple[State, Decision[bool]]:
    row, slot = state.submissions.get(op.submission_id), state.slots.get(op.submission_id)
    leaf = op.committed_leaf_id or None
    anchor = _anchor(state, slot, leaf, choices, committed=True)
    return _store_slot(state, journal.commit(row, slot, op.attempt_id, leaf, anchor, op.now, choices))


def replace_turn_journal_attempt(
    state: State, op: operations.ReplaceTurnJournalAttempt, choices: Choices
) -> tuple[State, Decision[Row]]:
    """T1-T7: submission and slot move in one unit."""
    decision = submission.transfer(
        state.submissions.get(op.submission_id),
        state.slots.get(op.submission_id),
        op.attempt_id,
        op.next_attempt_id,
        op.lease,
        op.observed_lease_expires_at,
        op.now,
        former=state.former.get(op.submission_id, ()),
        choices=choices,
    )
    if not isinstance(decision, Accept):
        return state, decision
    row, slot = decision.value
    state = state.owned(row, op.next_attempt_id)
    return (state if slot is None else state.put_slot(slot)), Accept(row, decision.rule)


def get_turn_journal(
    state: State, op: operations.GetTurnJournal, _: Choices
) -> tuple[State, Decision[Slot[str] | None]]:
    return state, Accept(state.slots.get(op.submission_id), "J1 J12")


def recover(state: State, op: operations.Recover, choices: Choices) -> tuple[State, Decision[Recovery]]:
    row = state.submissions.get(op.submission_id)
    tree = state.transcript("" if row is None else row.session_key, choices)
    return state, Accept(classify(row, state.slots.get(op.submission_id), tree, op.now, choices), "C1")


# --- stream segments ------------------------------------------------------------------------------------------------


def append_stream_segment(state: State, op: operations.AppendStreamSegment, _: Choices) -> tuple[State, Decision[bool]]:
    minted = split_stream_key(op.stream_key)
    if minted is not None and minted[0] in state.receipts:
        return state, Refuse("S1 L10")
    decision = stream.insert(state.segments.get(op.stream_key, ()), op.segment_index, op.body)
    if not isinstance(decision, Accept):
        return state, decision
    return evolve(state, segments=state.segments.put(op.stream_key, decision.value)), Accept(True, decision.rule)


def get_stream_segments(
    state: State, op: operations.GetStreamSegments, _: Choices
) -> tuple[State, Decision[tuple[Segment, ...]]]:
    rows = (Segment(segment_index=index, body=body) for index, body in state.segments.get(op.stream_key, ()))
    return state, Accept(tuple(rows), "S2")


def delete_stream_segments(
    state: State, op: operations.DeleteStreamSegments, _: Choices
) -> tuple[State, Decision[None]]:
    return evolve(state, segments=state.segments.drop(op.stream_key)), Accept(None, "S6")


# --- session deletion: three units and a marker (L10) ---------------------------------------------------------------


def mark_deletion(state: State, session_key: str, _: Choices) -> State:
    """Unit 1: the durable marker, which blocks admissions from here on."""
    return evolve(state, deletions=state.deletions | {session_key})


def remove_transcript(state: State, session_key: str, _: Choices) -> State:
    """Unit 2: the run goes, log and state."""
    return evolve(state, runs=state.runs.drop(session_key))


def finish_deletion(state: State, session_key: str, choices: Choices) -> State:
    """Unit 3: receipts stay; rows, slots, segments of all stream keys and markers go; last the marker."""
    rows = state.admitted(session_key)
    gone = {row.submission_id for row in rows}
    kept = {r.submission_id: r.accepted_at for r in rows if _leaves_receipt(r, choices)}
    given = frozenset[str]().union(*(state.opaque_keys.get(submission_id, ()) for submission_id in gone))
    if choices.stream_key == "minted":
        given = frozenset(key for key in state.segments if (split_stream_key(key) or ("",))[0] in gone)
    return evolve(
        state,
        submissions=state.submissions.drop(*gone),
        former=state.former.drop(*gone),
        slots=state.slots.drop(*gone),
        segments=state.segments.drop(*given),
        opaque_keys=state.opaque_keys.drop(*gone),
        markers=Table({key: at for key, at in state.markers.items() if key[0] not in gone}),
        receipts=Table({**state.receipts, **kept}),
        deletions=state.deletions - {session_key},
    )


def _leaves_receipt(row: Row, choices: Choices) -> bool:
    return choices.receipts == "all_kinds" or row.kind is SubmissionKind.DISPATCH


DELETION_UNITS: Final[tuple[Callable[[State, str, Choices], State], ...]] = (
    mark_deletion,
    remove_transcript,
    finish_deletion,
)
"""The three units of a deletion, in order: a crash may fall between any two."""


def delete_session(state: State, op: operations.DeleteSession, choices: Choices) -> tuple[State, Decision[None]]:
    if any(row.status is not Status.SETTLED for row in state.admitted(op.session_key)):
        return state, Fail(
            ErrorCode.SESSION_BUSY, "L10", f"session {op.session_key!r} has unsettled submissions; settle them first"
        )
    for unit in DELETION_UNITS:
        state = unit(state, op.session_key, choices)
    return state, Accept(None, "L10")


def list_pending_deletions(
    state: State, op: operations.ListPendingDeletions, _: Choices
) -> tuple[State, Decision[tuple[str, ...]]]:
    return state, Accept(tuple(sorted(state.deletions)), "L10")
