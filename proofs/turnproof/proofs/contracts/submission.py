"""Contracts of the life of a submission: one step of ``model.submission`` under its invariant (L)."""

from __future__ import annotations

from attrs import evolve

from turnproof.model import submission
from turnproof.model.decision import Accept, Decision, Refuse
from turnproof.model.rows import Slot, Submission
from turnproof.model.submission import owns
from turnproof.model.vocabulary import DEFAULT_TIMEOUT_MS, Phase, Status, SubmissionKind
from turnproof.proofs.contracts.registry import accepted, error, keeps, promises, same
from turnproof.proofs.contracts.shapes import Running

_IN_CONDITIONS = (
    Accept,
    Refuse,
    error,
    keeps,
    owns,
    same,
)
"""Named in conditions only, and those stand in docstrings, where no linter looks."""

# --- the invariant, and admission -----------------------------------------------------------------------------------


@promises("L1", "L2")
def l1_an_admitted_submission_satisfies_the_invariant(
    identity: int, session: int, kind: SubmissionKind, payload: int, sequence: int, now: int
) -> Submission[int]:
    r"""
    pre: sequence >= 1
    post: submission.invariant(__return__)
    """
    return Submission(
        submission_id=identity,
        session_key=session,
        kind=kind,
        payload=payload,
        status=Status.QUEUED,
        sequence=sequence,
        accepted_at=now,
    )


# --- claim (L2) -----------------------------------------------------------------------------------------------------


@promises("L2")
def l2_claim_gets_through_for_a_queued_head_and_a_new_attempt_only(
    row: Submission[int] | None, attempt: int, head: bool, former: int, now: int
) -> Decision[Submission[int]]:
    r"""
    pre: row is None or submission.invariant(row)
    post: isinstance(__return__, Accept) == (queued(row) and head and attempt != former)
    """
    return submission.claim(row, attempt, 1, 2, now, is_head=head, former=(former,))


def queued(row: Submission[int] | None) -> bool:
    return row is not None and row.status is Status.QUEUED


@promises("L2")
def l2_claim_installs_owner_lease_and_deadline_and_counts(
    row: Submission[int], attempt: int, owner: int, lease: int, now: int
) -> Decision[Submission[int]]:
    r"""
    pre: submission.invariant(row) and queued(row)
    post: same(accepted(__return__), claimed(row, attempt, owner, lease, now))
    """
    return submission.claim(row, attempt, owner, lease, now, is_head=True)


def claimed(row: Submission[int], attempt: int, owner: int, lease: int, now: int) -> Submission[int]:
    """The whole row that L2 describes."""
    return evolve(
        row,
        status=Status.RUNNING,
        attempt_id=attempt,
        owner_id=owner,
        lease_expires_at=lease,
        started_at=now,
        attempt_count=row.attempt_count + 1,
        timeout_at=row.timeout_at if row.timeout_at != 0 else now + DEFAULT_TIMEOUT_MS,
    )


@promises("L2")
def l2_of_two_claims_the_second_is_refused(
    row: Submission[int], first: int, second: int, head: bool, now: int, later: int
) -> Decision[Submission[int]]:
    r"""
    pre: submission.invariant(row) and queued(row)
    post: isinstance(__return__, Refuse)
    """
    won = accepted(submission.claim(row, first, 1, 2, now, is_head=True))
    return submission.claim(won, second, 3, 4, later, is_head=head)


@promises("L2")
def l2_claim_keeps_the_invariant(
    row: Submission[int], attempt: int, head: bool, former: int, now: int
) -> Decision[Submission[int]]:
    r"""
    pre: submission.invariant(row)
    post: keeps(submission.invariant, __return__)
    """
    return submission.claim(row, attempt, 1, 2, now, is_head=head, former=(former,))


# --- input, recovery request (L3, L4) -------------------------------------------------------------------------------


@promises("L3", "T3")
def l3_mark_input_applied_gets_through_for_the_owner_alone(
    row: Submission[int] | None, attempt: int, now: int
) -> Decision[Submission[int]]:
    r"""
    pre: row is None or submission.invariant(row)
    post: isinstance(__return__, Accept) == owns(row, attempt) and error(__return__) is None
    """
    return submission.mark_input_applied(row, attempt, None, None, now)


@promises("L3")
def l3_the_first_mark_stamps_and_installs_the_budget_when_given(
    row: Running, attempt: int, retry: int | None, timeout: int | None, now: int
) -> Decision[Submission[int]]:
    r"""
    pre: submission.invariant(row) and owns(row, attempt) and row.input_applied_at is None
    post: same(accepted(__return__), marked(row, retry, timeout, now))
    """
    return submission.mark_input_applied(row, attempt, retry, timeout, now)


def marked(row: Running, retry: int | None, timeout: int | None, now: int) -> Submission[int]:
    return evolve(
        row,
        input_applied_at=now,
        max_retry=retry if retry is not None else row.max_retry,
        timeout_at=timeout if timeout is not None else row.timeout_at,
    )


@promises("L3")
def l3_later_marks_are_accepted_and_change_nothing(
    row: Running, attempt: int, retry: int | None, timeout: int | None, now: int
) -> Decision[Submission[int]]:
    r"""
    pre: submission.invariant(row) and owns(row, attempt) and row.input_applied_at is not None
    post: same(accepted(__return__), row)
    """
    return submission.mark_input_applied(row, attempt, retry, timeout, now)


@promises("L3")
def l3_mark_input_applied_keeps_the_invariant(
    row: Submission[int], attempt: int, retry: int | None, now: int
) -> Decision[Submission[int]]:
    r"""
    pre: submission.invariant(row)
    post: keeps(submission.invariant, __return__)
    """
    return submission.mark_input_applied(row, attempt, retry, None, now)


@promises("L4", "T3")
def l4_request_recovery_gets_through_for_the_owner_alone(
    row: Submission[int] | None, attempt: int, now: int
) -> Decision[Submission[int]]:
    r"""
    pre: row is None or submission.invariant(row)
    post: isinstance(__return__, Accept) == owns(row, attempt) and error(__return__) is None
    """
    return submission.request_recovery(row, attempt, now)


@promises("L4")
def l4_a_recovery_request_is_stamped_once(row: Running, attempt: int, now: int) -> Decision[Submission[int]]:
    r"""
    pre: submission.invariant(row) and owns(row, attempt)
    post: same(accepted(__return__), requested(row, now))
    """
    return submission.request_recovery(row, attempt, now)


def requested(row: Running, now: int) -> Submission[int]:
    return row if row.recovery_requested_at is not None else evolve(row, recovery_requested_at=now)


@promises("L4")
def l4_request_recovery_keeps_the_invariant(row: Submission[int], attempt: int, now: int) -> Decision[Submission[int]]:
    r"""
    pre: submission.invariant(row)
    post: keeps(submission.invariant, __return__)
    """
    return submission.request_recovery(row, attempt, now)


# --- requeue (L5) ---------------------------------------------------------------------------------------------------


@promises("L5", "T3")
def l5_requeue_gets_through_before_the_input_and_before_the_provider_only(
    row: Submission[int] | None, slot: Slot[int] | None, attempt: int
) -> Decision[Submission[int]]:
    r"""
    pre: row is None or submission.invariant(row)
    post: isinstance(__return__, Accept) == (owns(row, attempt) and untouched(row, slot))
    """
    return submission.requeue(row, slot, attempt)


def untouched(row: Submission[int] | None, slot: Slot[int] | None) -> bool:
    """Nothing happened yet: no input, and no slot that counts (section 8) beyond before_provider."""
    if row is None or row.input_applied_at is not None:
        return False
    if slot is None or (not slot.committed and slot.attempt_id != row.attempt_id):
        return True
    return slot.phase is Phase.BEFORE_PROVIDER


@promises("L5", "E5")
def l5_requeue_clears_the_owner_and_keeps_the_budget(
    row: Running, slot: Slot[int] | None, attempt: int
) -> Decision[Submission[int]]:
    r"""
    pre: submission.invariant(row) and owns(row, attempt) and untouched(row, slot)
    post: same(accepted(__return__), given_back(row))
    """
    return submission.requeue(row, slot, attempt)


def given_back(row: Running) -> Submission[int]:
    return evolve(
        row,
        status=Status.QUEUED,
        attempt_id=None,
        owner_id=None,
        lease_expires_at=0,
        started_at=None,
        recovery_requested_at=None,
    )


@promises("L5")
def l5_requeue_keeps_the_invariant(row: Submission[int], attempt: int) -> Decision[Submission[int]]:
    r"""
    pre: submission.invariant(row)
    post: keeps(submission.invariant, __return__)
    """
    return submission.requeue(row, None, attempt)


# --- settle (L6) ----------------------------------------------------------------------------------------------------


@promises("L6", "T3")
def l6_settle_gets_through_for_the_owner_alone(
    row: Submission[int] | None, attempt: int, problem: int | None, now: int
) -> Decision[Submission[int]]:
    r"""
    pre: row is None or submission.invariant(row)
    post: isinstance(__return__, Accept) == owns(row, attempt) and error(__return__) is None
    """
    return submission.settle(row, attempt, problem, now)


@promises("L6")
def l6_settle_writes_the_end_and_keeps_the_rest(
    row: Running, attempt: int, problem: int | None, now: int
) -> Decision[Submission[int]]:
    r"""
    pre: submission.invariant(row) and owns(row, attempt)
    post: same(accepted(__return__), evolve(row, status=Status.SETTLED, settled_at=now, error=problem))
    """
    return submission.settle(row, attempt, problem, now)


@promises("L6")
def l6_the_first_terminal_state_wins(
    verb: int, row: Submission[int], attempt: int, problem: int | None, now: int
) -> Decision[object]:
    r"""
    pre: submission.invariant(row) and row.status is Status.SETTLED
    post: isinstance(__return__, Refuse)
    """
    return any_verb(verb, row, None, attempt, attempt + 1, problem, now)


@promises("L6")
def l6_settle_keeps_the_invariant(
    row: Submission[int], attempt: int, problem: int | None, now: int
) -> Decision[Submission[int]]:
    r"""
    pre: submission.invariant(row)
    post: keeps(submission.invariant, __return__)
    """
    return submission.settle(row, attempt, problem, now)


def any_verb(
    verb: int,
    row: Submission[int],
    slot: Slot[int] | None,
    attempt: int,
    following: int,
    problem: int | None,
    now: int,
    former: tuple[int, ...] = (),
) -> Decision[object]:
    """Any verb that writes a submission; ``former`` are the attempts that owned it."""
    match verb:
        case 0:
            return submission.claim(row, attempt, 1, 2, now, is_head=True, former=former)
        case 1:
            return submission.mark_input_applied(row, attempt, None, None, now)
        case 2:
            return submission.request_recovery(row, attempt, now)
        case 3:
            return submission.requeue(row, slot, attempt)
        case 4:
            return submission.renew(row, 1, 30_000, now)
        case 5:
            return submission.transfer(row, slot, attempt, following, None, None, now, former=former)
        case _:
            return submission.settle(row, attempt, problem, now)


# --- leases and lists (L7, L8) --------------------------------------------------------------------------------------


@promises("L7")
def l7_renew_gets_through_for_the_owner_of_a_running_submission_only(
    row: Submission[int] | None, owner: int, lease: int, now: int
) -> Decision[Submission[int]]:
    r"""
    pre: row is None or submission.invariant(row)
    post: isinstance(__return__, Accept) == (running(row) and row.owner_id == owner)
    """
    return submission.renew(row, owner, lease, now)


def running(row: Submission[int] | None) -> bool:
    return row is not None and row.status is Status.RUNNING


@promises("L7")
def l7_renew_never_shortens_and_touches_the_lease_alone(
    row: Running, owner: int, lease: int, now: int
) -> Decision[Submission[int]]:
    r"""
    pre: submission.invariant(row) and row.owner_id == owner
    post: same(accepted(__return__), evolve(row, lease_expires_at=longer(row.lease_expires_at, now + lease)))
    """
    return submission.renew(row, owner, lease, now)


def longer(one: int, other: int) -> int:
    return one if one >= other else other


@promises("L7")
def l7_renew_keeps_the_invariant(row: Submission[int], owner: int, lease: int, now: int) -> Decision[Submission[int]]:
    r"""
    pre: submission.invariant(row)
    post: keeps(submission.invariant, __return__)
    """
    return submission.renew(row, owner, lease, now)


@promises("L8")
def l8_expired_is_running_under_a_lease_that_has_passed(row: Submission[int], now: int) -> bool:
    r"""
    pre: submission.invariant(row)
    post: __return__ == (running(row) and row.lease_expires_at > 0 and row.lease_expires_at < now)
    """
    return submission.is_expired(row, now)


@promises("L7", "L8")
def l8_a_renewed_lease_is_not_expired_until_it_ran_out(row: Running, owner: int, lease: int, now: int) -> bool:
    r"""
    pre: submission.invariant(row) and row.owner_id == owner and lease >= 0
    post: not __return__
    """
    renewed = accepted(submission.renew(row, owner, lease, now))
    return renewed is None or submission.is_expired(renewed, now)


@promises("L2", "L5", "E5")
def e5_no_verb_lowers_the_attempt_count(
    verb: int, row: Submission[int], attempt: int, problem: int | None, now: int
) -> Decision[object]:
    r"""
    pre: submission.invariant(row)
    post: count_after(__return__, row) >= row.attempt_count
    """
    return any_verb(verb, row, None, attempt, attempt + 1, problem, now)


def count_after(decision: Decision[object], before: Submission[int]) -> int:
    """The attempt count after a decision: a transfer answers the row and the slot."""
    value = accepted(decision)
    row = value[0] if isinstance(value, tuple) else value
    return row.attempt_count if isinstance(row, Submission) else before.attempt_count
