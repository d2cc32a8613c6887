"""Contracts of the attempt transfer, and of what a superseded attempt can still do: nothing (T).

A **superseded** attempt once owned the submission and does not own it now. The two lemmas at the end are an induction:
no verb of anybody makes a superseded attempt an owner again, and while it is none each of its verbs is
refused. Together: refused by every verb in every later state.
"""

from __future__ import annotations

from attrs import evolve

from turnproof.model import journal, submission
from turnproof.model.decision import Accept, Decision, Fail, Refuse
from turnproof.model.journal import Anchor
from turnproof.model.rows import Lease, Slot, Submission
from turnproof.model.submission import owns
from turnproof.model.vocabulary import ErrorCode, Phase, Status, SubmissionKind
from turnproof.proofs.contracts.registry import accepted, error, promises, same
from turnproof.proofs.contracts.shapes import Gate, Running
from turnproof.proofs.contracts.submission import any_verb

_IN_CONDITIONS = (
    ErrorCode,
    Fail,
    Refuse,
    Status,
    error,
    same,
)
"""Named in conditions only, and those stand in docstrings, where no linter looks."""

Moved = tuple[Submission[int], Slot[int] | None]


def row_of(decision: Decision[Moved]) -> Submission[int] | None:
    value = accepted(decision)
    return None if value is None else value[0]


def slot_of(decision: Decision[Moved]) -> Slot[int] | None:
    value = accepted(decision)
    return None if value is None else value[1]


# --- one transfer (T1, T2, T5, T6, T7) ------------------------------------------------------------------------------


@promises("T1", "T2", "T5", "T6")
def t1_transfer_gets_through_for_the_owner_with_the_lease_it_saw_and_a_new_attempt(
    row: Submission[int] | None, attempt: int, following: int, observed: int | None, former: int, now: int
) -> Decision[Moved]:
    r"""
    pre: row is None or submission.invariant(row)
    post: isinstance(__return__, Accept) == transferable(row, attempt, following, observed, former)
    """
    return submission.transfer(row, None, attempt, following, None, observed, now, former=(former,))


def transferable(row: Submission[int] | None, attempt: int, following: int, observed: int | None, former: int) -> bool:
    if row is None or not owns(row, attempt):
        return False
    return observed in (None, row.lease_expires_at) and following not in (attempt, former)


@promises("T1", "J10")
def t1_transfer_moves_the_submission_and_clears_the_recovery_request(
    row: Running, attempt: int, following: int, lease: Lease[int] | None, now: int
) -> Decision[Moved]:
    r"""
    pre: submission.invariant(row) and owns(row, attempt) and attempt != following
    post: same(row_of(__return__), moved(row, following, lease, now))
    """
    return submission.transfer(row, None, attempt, following, lease, None, now)


def moved(row: Submission[int], following: int, lease: Lease[int] | None, now: int) -> Submission[int]:
    """The whole row that T1 describes."""
    return evolve(
        row,
        attempt_id=following,
        attempt_count=row.attempt_count + 1,
        started_at=now,
        recovery_requested_at=None,
        owner_id=lease.owner_id if lease is not None else row.owner_id,
        lease_expires_at=lease.lease_expires_at if lease is not None else row.lease_expires_at,
    )


@promises("T1", "A5", "J10")
def t1_transfer_repoints_the_uncommitted_slot_and_keeps_the_turns_data(
    row: Gate, slot: Slot[int] | None, attempt: int, following: int, lease: Lease[int] | None, now: int
) -> Decision[Moved]:
    r"""
    pre: slot is None or journal.invariant(slot)
    pre: owns(row, attempt) and attempt != following
    post: same(slot_of(__return__), repointed(slot, attempt, following, now))
    """
    return submission.transfer(row, slot, attempt, following, lease, None, now)


def repointed(slot: Slot[int] | None, attempt: int, following: int, now: int) -> Slot[int] | None:
    if slot is None or slot.committed or slot.attempt_id != attempt:
        return slot
    return evolve(slot, attempt_id=following, updated_at=now)


@promises("T1")
def t1_no_slot_stops_a_transfer(
    row: Gate, slot: Slot[int] | None, attempt: int, following: int, now: int
) -> Decision[Moved]:
    r"""
    pre: slot is None or journal.invariant(slot)
    pre: owns(row, attempt) and attempt != following
    post: isinstance(__return__, Accept)
    """
    return submission.transfer(row, slot, attempt, following, None, None, now)


@promises("T1", "T4")
def t1_transfer_keeps_both_invariants(
    row: Running, slot: Slot[int] | None, attempt: int, following: int, lease: Lease[int] | None, now: int
) -> Decision[Moved]:
    r"""
    pre: submission.invariant(row) and (slot is None or journal.invariant(slot))
    post: not isinstance(__return__, Accept) or sound(__return__.value)
    """
    return submission.transfer(row, slot, attempt, following, lease, None, now)


def sound(value: Moved) -> bool:
    row, slot = value
    return submission.invariant(row) and (slot is None or journal.invariant(slot))


@promises("T4")
def t4_submission_and_slot_move_together_or_not_at_all(
    row: Gate, slot: Slot[int], attempt: int, following: int, now: int
) -> Decision[Moved]:
    r"""
    pre: journal.invariant(slot) and not slot.committed
    pre: slot.attempt_id == attempt and row.attempt_id == attempt
    post: together(__return__, following)
    """
    return submission.transfer(row, slot, attempt, following, None, None, now)


def together(decision: Decision[Moved], following: int) -> bool:
    if not isinstance(decision, Accept):
        return True
    row, slot = decision.value
    return row.attempt_id == following and slot is not None and slot.attempt_id == following


@promises("T2")
def t2_a_transfer_from_a_non_owner_is_refused(
    row: Submission[int] | None, attempt: int, following: int, observed: int | None, former: int, now: int
) -> Decision[Moved]:
    r"""
    pre: row is None or submission.invariant(row)
    pre: not owns(row, attempt)
    post: isinstance(__return__, Refuse)
    """
    return submission.transfer(row, None, attempt, following, None, observed, now, former=(former,))


@promises("T5")
def t5_a_former_attempt_is_an_error(
    row: Running, attempt: int, following: int, first: int, second: int, now: int
) -> Decision[Moved]:
    r"""
    pre: owns(row, attempt) and following in (attempt, first, second)
    post: error(__return__) is ErrorCode.ATTEMPT_REUSED
    """
    return submission.transfer(row, None, attempt, following, None, None, now, former=(first, second))


@promises("T6")
def t6_a_transfer_that_saw_another_lease_is_refused(
    row: Running, attempt: int, following: int, observed: int, now: int
) -> Decision[Moved]:
    r"""
    pre: owns(row, attempt) and observed != row.lease_expires_at
    post: isinstance(__return__, Refuse)
    """
    return submission.transfer(row, None, attempt, following, None, observed, now)


@promises("T6", "L7")
def t6_a_renewal_in_between_stops_the_reconciler(
    row: Running, attempt: int, following: int, owner: int, lease: int, now: int
) -> Decision[Moved]:
    r"""
    pre: owns(row, attempt) and row.owner_id == owner and now + lease > row.lease_expires_at
    post: isinstance(__return__, Refuse)
    """
    renewed = accepted(submission.renew(row, owner, lease, now))
    return submission.transfer(renewed, None, attempt, following, None, row.lease_expires_at, now)


@promises("T7")
def t7_of_two_transfers_from_one_attempt_the_second_is_refused(
    row: Running, attempt: int, first: int, second: int, lease: Lease[int] | None, now: int
) -> Decision[Moved]:
    r"""
    pre: owns(row, attempt) and attempt != first
    post: isinstance(__return__, Refuse)
    """
    won = row_of(submission.transfer(row, None, attempt, first, lease, None, now))
    return submission.transfer(won, None, attempt, second, lease, None, now)


# --- the superseded attempt (T3, T5) --------------------------------------------------------------------------------


def superseded(row: Submission[int] | None, attempt: int, former: tuple[int, ...]) -> bool:
    """The attempt once owned the submission, and does not now."""
    return attempt in former and not owns(row, attempt)


@promises("T3", "E7", "C2")
def t3_after_a_transfer_the_old_attempt_is_superseded(
    row: Running, attempt: int, following: int, now: int
) -> Decision[Moved]:
    r"""
    pre: owns(row, attempt) and attempt != following
    post: superseded(row_of(__return__), attempt, (attempt, following))
    """
    return submission.transfer(row, None, attempt, following, None, None, now, former=(attempt,))


@promises("T3", "T5", "E7")
def t3_no_verb_of_anybody_makes_a_superseded_attempt_an_owner(
    verb: int, row: Submission[int], old: int, attempt: int, following: int, now: int
) -> Decision[object]:
    r"""
    pre: submission.invariant(row) and superseded(row, old, (old,))
    post: not owns(after(__return__, row), old)
    """
    return any_verb(verb, row, None, attempt, following, None, now, former=(old,))


def after(decision: Decision[object], before: Submission[int]) -> Submission[int]:
    value = accepted(decision)
    row = value[0] if isinstance(value, tuple) else value
    return row if isinstance(row, Submission) else before


@promises("T3", "E7")
def t3_a_superseded_attempt_is_refused_by_every_verb_of_a_submission(
    verb: int, row: Submission[int], old: int, following: int, problem: int | None, now: int
) -> Decision[object]:
    r"""
    pre: submission.invariant(row) and superseded(row, old, (old,)) and verb not in (0, 4)
    post: isinstance(__return__, Refuse)
    """
    return any_verb(verb, row, None, old, following, problem, now)


@promises("T3", "T5")
def t3_a_superseded_attempt_is_not_claimed_again(
    row: Submission[int], old: int, head: bool, now: int
) -> Decision[Submission[int]]:
    r"""
    pre: submission.invariant(row) and superseded(row, old, (old,))
    post: not isinstance(__return__, Accept)
    """
    return submission.claim(row, old, 1, 2, now, is_head=head, former=(old,))


@promises("T3", "E7")
def t3_a_superseded_attempt_is_refused_by_every_verb_of_the_journal(
    verb: int, row: Gate, slot: Slot[int] | None, old: int, phase: Phase, now: int
) -> Decision[Slot[int]]:
    r"""
    pre: slot is None or journal.invariant(slot)
    pre: superseded(row, old, (old,))
    post: isinstance(__return__, Refuse)
    """
    match verb:
        case 0:
            return journal.begin(row, slot, 1, old, row.session_key, SubmissionKind.DISPATCH, 2, 3, now)
        case 1:
            return journal.advance(row, slot, old, phase, 1, 1, 2, 3, Anchor.SOUND, now)
        case 2:
            return journal.mark_consumed(row, slot, old, 1, now)
        case _:
            return journal.commit(row, slot, old, 4, Anchor.SOUND, now)


@promises("T3", "R11")
def t3_the_fence_of_a_superseded_attempt_does_not_hold(row: Submission[int], old: int) -> bool:
    r"""
    A fenced append asks this one question of the submission (``run_layer._fenced_out``).

    pre: submission.invariant(row) and row.attempt_id != old
    post: not __return__
    """
    return owns(row, old)


@promises("T3", "L6", "R11")
def t3_nobody_owns_a_submission_that_is_not_running(row: Submission[int], attempt: int) -> bool:
    r"""
    pre: submission.invariant(row) and row.status is not Status.RUNNING
    post: not __return__
    """
    return owns(row, attempt)


@promises("T5")
def t5_the_attempts_id_is_no_refusal_but_an_error(row: Running, attempt: int, now: int) -> Decision[Moved]:
    r"""
    pre: owns(row, attempt)
    post: isinstance(__return__, Fail)
    """
    return submission.transfer(row, None, attempt, attempt, None, None, now)
