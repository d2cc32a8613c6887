"""The life of a submission: queued, running, settled; and who owns it while it runs (L1-L8, T1-T7).

A submission is admitted once, claimed by an *attempt*, and settled once. The attempt id is the token of ownership: a
verb of an attempt happens only while the submission is running *and* names that attempt (the **owner gate**).
Ownership changes hands in two ways only. ``claim`` takes a queued submission; ``transfer`` takes a running one from
the attempt that is believed dead. Both are one compare-and-set on the row, so of many rivals exactly one wins; and
since no attempt id is ever accepted twice (T5), a superseded attempt can never become the owner again. It may wake at
any later time and try every verb; each answers a refusal and changes nothing.

Every function takes a row and answers a decision. None looks at a clock: ``now`` is an argument, and no rule compares
it with a stored time except for expiry, so equal and backward times are harmless.
"""

from __future__ import annotations

from typing import TypeVar

from attrs import evolve

from turnproof.model.choices import STRICT, Choices
from turnproof.model.decision import Accept, Decision, Fail, Refuse
from turnproof.model.rows import Lease, Slot, Submission
from turnproof.model.vocabulary import DEFAULT_TIMEOUT_MS, ErrorCode, Phase, Status

__all__ = [
    "claim",
    "counted",
    "invariant",
    "is_expired",
    "mark_input_applied",
    "owns",
    "renew",
    "request_recovery",
    "requeue",
    "settle",
    "stale",
    "transfer",
]

Id = TypeVar("Id")


def owns(row: Submission[Id] | None, attempt_id: Id) -> bool:
    """The owner gate: the submission is running and its attempt is this one (SPEC section 1)."""
    return row is not None and row.status is Status.RUNNING and row.attempt_id == attempt_id


def stale(row: Submission[Id] | None, promise: str) -> Refuse:
    """The refusal of a verb that does not own its submission; a running one means a superseded attempt (T3)."""
    return Refuse(f"T3 {promise}" if row is not None and row.status is Status.RUNNING else promise)


def counted(row: Submission[Id] | None, slot: Slot[Id] | None) -> Slot[Id] | None:
    """The slot if it counts: committed, or held by the current attempt (section 8); else as if there were none."""
    if slot is None or row is None:
        return None
    return slot if slot.phase is Phase.COMMITTED or slot.attempt_id == row.attempt_id else None


def claim(
    row: Submission[Id] | None,
    attempt_id: Id,
    owner_id: Id,
    lease_expires_at: int,
    now: int,
    *,
    is_head: bool,
    former: tuple[Id, ...] = (),
    choices: Choices = STRICT,
) -> Decision[Submission[Id]]:
    """Take a queued submission that is the head of its session (L2).

    ``former`` are the attempts that ever owned it; none of them is accepted again (T5, error ``attempt_reused``).
    """
    if row is None or row.status is not Status.QUEUED or not is_head:
        return Refuse("L2")
    if choices.attempt_reuse == "rejected" and attempt_id in former:
        return Fail(ErrorCode.ATTEMPT_REUSED, "T5", "this attempt id owned the submission before; mint a new one")
    reset = choices.claim_budget == "reset_each_claim"
    return Accept(
        evolve(
            row,
            status=Status.RUNNING,
            attempt_id=attempt_id,
            owner_id=owner_id,
            lease_expires_at=lease_expires_at,
            started_at=now,
            attempt_count=1 if reset else row.attempt_count + 1,
            timeout_at=now + DEFAULT_TIMEOUT_MS if reset or row.timeout_at == 0 else row.timeout_at,
        ),
        "L2",
    )


def mark_input_applied(
    row: Submission[Id] | None, attempt_id: Id, max_retry: int | None, timeout_at: int | None, now: int
) -> Decision[Submission[Id]]:
    """Stamp, once, that the input entry is in the transcript; install the budget when given (L3)."""
    if row is None or not owns(row, attempt_id):
        return stale(row, "L3")
    if row.input_applied_at is not None:
        return Accept(row, "L3")
    return Accept(
        evolve(
            row,
            input_applied_at=now,
            max_retry=row.max_retry if max_retry is None else max_retry,
            timeout_at=row.timeout_at if timeout_at is None else timeout_at,
        ),
        "L3",
    )


def request_recovery(row: Submission[Id] | None, attempt_id: Id, now: int) -> Decision[Submission[Id]]:
    """Stamp, once, that this attempt asks to be recovered (L4)."""
    if row is None or not owns(row, attempt_id):
        return stale(row, "L4")
    return Accept(row if row.recovery_requested_at is not None else evolve(row, recovery_requested_at=now), "L4")


def requeue(row: Submission[Id] | None, slot: Slot[Id] | None, attempt_id: Id) -> Decision[Submission[Id]]:
    """Give a submission back untouched: only before its input is applied and its provider asked (L5).

    The attempt count and the deadline stay, so that giving back cannot be repeated for ever (E5).
    """
    if row is None or not owns(row, attempt_id):
        return stale(row, "L5")
    held = counted(row, slot)
    if row.input_applied_at is not None or (held is not None and held.phase is not Phase.BEFORE_PROVIDER):
        return Refuse("L5")
    return Accept(
        evolve(
            row,
            status=Status.QUEUED,
            attempt_id=None,
            owner_id=None,
            lease_expires_at=0,
            started_at=None,
            recovery_requested_at=None,
        ),
        "L5",
    )


def settle(row: Submission[Id] | None, attempt_id: Id, error: Id | None, now: int) -> Decision[Submission[Id]]:
    """``complete`` (no error) or ``fail``: the first terminal state wins (L6)."""
    if row is None or not owns(row, attempt_id):
        return stale(row, "L6")
    return Accept(evolve(row, status=Status.SETTLED, settled_at=now, error=error), "L6")


def renew(row: Submission[Id] | None, owner_id: Id, lease_ms: int, now: int) -> Decision[Submission[Id]]:
    """Lengthen the lease of a submission running under this owner; never shorten it (L7)."""
    if row is None or row.status is not Status.RUNNING or row.owner_id != owner_id:
        return Refuse("L7")
    return Accept(evolve(row, lease_expires_at=max(row.lease_expires_at, now + lease_ms)), "L7")


def is_expired(row: Submission[Id], now: int) -> bool:
    """Running under a lease that has passed; 0 is no lease (L8)."""
    return row.status is Status.RUNNING and 0 < row.lease_expires_at < now


def transfer(
    row: Submission[Id] | None,
    slot: Slot[Id] | None,
    attempt_id: Id,
    next_attempt_id: Id,
    lease: Lease[Id] | None,
    observed_lease_expires_at: int | None,
    now: int,
    *,
    former: tuple[Id, ...] = (),
    choices: Choices = STRICT,
) -> Decision[tuple[Submission[Id], Slot[Id] | None]]:
    """Hand a running submission, and its uncommitted slot, from one attempt to the next: all or nothing (T1-T7).

    A missing slot, a committed one, or one that another attempt holds does not stop the transfer and is not touched.
    Phase, stream fields, tool request and leaves are carried over unchanged: they are what recovery reads.
    ``observed_lease_expires_at`` is the lease that a reconciler saw when it decided to take over (T6).
    """
    if row is None or not owns(row, attempt_id):
        return stale(row, "T2")
    if observed_lease_expires_at is not None and row.lease_expires_at != observed_lease_expires_at:
        return Refuse("T6")
    if choices.attempt_reuse == "rejected" and (next_attempt_id == attempt_id or next_attempt_id in former):
        return Fail(ErrorCode.ATTEMPT_REUSED, "T5", "this attempt id owned the submission before; mint a new one")
    moved = evolve(
        row,
        attempt_id=next_attempt_id,
        attempt_count=row.attempt_count + 1,
        started_at=now,
        recovery_requested_at=None,
        owner_id=row.owner_id if lease is None else lease.owner_id,
        lease_expires_at=row.lease_expires_at if lease is None else lease.lease_expires_at,
    )
    if slot is not None and not slot.committed and slot.attempt_id == attempt_id:
        revision = slot.revision + 1 if choices.revision == "per_write" else slot.revision
        slot = evolve(slot, attempt_id=next_attempt_id, revision=revision, updated_at=now)
    return Accept((moved, slot), "T1 T7")


def invariant(row: Submission[Id]) -> bool:
    """What is true of every submission that the rules can reach: its status never stands without its data.

    Queued: nobody owns it, and nothing of an owner is left. Running or settled: it was claimed, so it has an attempt,
    an owner and a start. Only a settled one has an end, and only it can have an error.
    """
    owned = row.status is not Status.QUEUED
    settled = row.status is Status.SETTLED
    return (
        row.sequence >= 1
        and row.attempt_count >= (1 if owned else 0)
        and (row.attempt_id is not None) == owned
        and (row.owner_id is not None) == owned
        and (row.started_at is not None) == owned
        and (owned or row.lease_expires_at == 0)
        and (owned or (row.input_applied_at is None and row.recovery_requested_at is None))
        and (row.settled_at is not None) == settled
        and (settled or row.error is None)
    )
