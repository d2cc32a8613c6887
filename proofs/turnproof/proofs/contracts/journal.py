"""Contracts of the turn journal: one step of ``model.journal`` under the slot invariant (J, A4).

Here are ``begin``, ``update`` and ``mark``; ``commit`` has a module of its own. Each verb has the same five questions:
does the invariant hold afterwards, who gets through, what is written (and that nothing else is), which arguments are
errors, and is a committed slot left alone.
"""

from __future__ import annotations

from attrs import evolve

from turnproof.model import journal
from turnproof.model.decision import Accept, Decision, Refuse
from turnproof.model.journal import Anchor
from turnproof.model.rows import Slot
from turnproof.model.submission import owns
from turnproof.model.vocabulary import ErrorCode, Phase, SubmissionKind
from turnproof.proofs.contracts.registry import accepted, error, keeps, promises, same
from turnproof.proofs.contracts.shapes import Gate

_IN_CONDITIONS = (
    Accept,
    ErrorCode,
    Refuse,
    error,
    keeps,
)
"""Named in conditions only, and those stand in docstrings, where no linter looks."""


ARROWS = (
    (Phase.BEFORE_PROVIDER, Phase.PROVIDER_STARTED),
    (Phase.PROVIDER_STARTED, Phase.TOOL_REQUEST_RECORDED),
)
"""The arrows of SPEC section 2 that an update may go, written out a second time on purpose."""

STARTED, RECORDED = Phase.PROVIDER_STARTED, Phase.TOOL_REQUEST_RECORDED
KEY = 7
"""The key that is minted for the turn, wherever a contract does not ask about the key."""


def gated(row: Gate | None, slot: Slot[int] | None, attempt: int) -> bool:
    """The slot gate of SPEC section 2, written out a second time on purpose."""
    return owns(row, attempt) and slot is not None and slot.attempt_id == attempt and slot.phase is not Phase.COMMITTED


def valid(slot: Slot[int] | None) -> bool:
    return slot is None or journal.invariant(slot)


# --- begin (J1, J2, J3, J10) ----------------------------------------------------------------------------------------


DISPATCH = SubmissionKind.DISPATCH
"""The kind of every gate row: only ``begin`` looks at it, and is asked with both kinds."""


@promises("J2")
def j2_begin_gets_through_for_the_owner_alone(
    row: Gate | None, slot: Slot[int] | None, attempt: int, session: int, kind: SubmissionKind, now: int
) -> Decision[Slot[int]]:
    r"""
    pre: valid(slot)
    post: isinstance(__return__, Refuse) == (not owns(row, attempt))
    """
    return journal.begin(row, slot, 1, attempt, session, kind, 2, 3, now)


@promises("J2")
def j2_begin_of_another_session_or_kind_is_an_error(
    row: Gate, slot: Slot[int] | None, attempt: int, session: int, kind: SubmissionKind, now: int
) -> Decision[Slot[int]]:
    r"""
    pre: valid(slot) and owns(row, attempt)
    pre: row.session_key != session or row.kind is not kind
    post: error(__return__) is ErrorCode.INVALID_ARGUMENT
    """
    return journal.begin(row, slot, 1, attempt, session, kind, 2, 3, now)


@promises("J1", "J3", "J10", "J12")
def j3_begin_writes_the_identity_and_clears_the_turn(
    row: Gate, slot: Slot[int] | None, submission: int, attempt: int, operation: int, turn: int, now: int
) -> Decision[Slot[int]]:
    r"""
    pre: valid(slot) and owns(row, attempt)
    post: begun(__return__, row, slot, submission, attempt, operation, turn, now)
    """
    return journal.begin(row, slot, submission, attempt, row.session_key, row.kind, operation, turn, now)


def begun(
    decision: Decision[Slot[int]],
    row: Gate,
    slot: Slot[int] | None,
    submission: int,
    attempt: int,
    operation: int,
    turn: int,
    now: int,
) -> bool:
    """The whole slot that J3 describes: one slot under the submission's id, all of the turn before cleared."""
    return same(
        accepted(decision),
        Slot(
            submission_id=submission,
            session_key=row.session_key,
            kind=row.kind,
            attempt_id=attempt,
            operation_id=operation,
            turn_id=turn,
            phase=Phase.BEFORE_PROVIDER,
            revision=1 if slot is None else slot.revision + 1,
            created_at=now if slot is None else slot.created_at,
            updated_at=now,
        ),
    )


@promises("J1", "J3")
def j3_begin_keeps_the_invariant(
    row: Gate | None, slot: Slot[int] | None, attempt: int, session: int, now: int
) -> Decision[Slot[int]]:
    r"""
    pre: valid(slot)
    post: keeps(journal.invariant, __return__)
    """
    return journal.begin(row, slot, 1, attempt, session, DISPATCH, 2, 3, now)


# --- update (J4, J5, J6) --------------------------------------------------------------------------------------------


@promises("J4", "T3")
def j4_update_gets_through_the_slot_gate_and_along_an_arrow_only(
    row: Gate | None, slot: Slot[int] | None, attempt: int, phase: Phase, now: int
) -> Decision[Slot[int]]:
    r"""
    pre: valid(slot)
    post: isinstance(__return__, Accept) == (gated(row, slot, attempt) and (slot.phase, phase) in ARROWS)
    """
    return journal.advance(row, slot, attempt, phase, KEY, KEY, 2, 3, Anchor.SOUND, now)


@promises("J4", "J8", "J12")
def j4_an_update_that_may_not_be_is_refused_not_an_error(
    row: Gate | None, slot: Slot[int] | None, attempt: int, phase: Phase, now: int
) -> Decision[Slot[int]]:
    r"""
    pre: valid(slot)
    pre: not (gated(row, slot, attempt) and (slot.phase, phase) in ARROWS)
    post: isinstance(__return__, Refuse)
    """
    return journal.advance(row, slot, attempt, phase, KEY, 8, 2, 3, Anchor.UNKNOWN, now)


@promises("J5")
def j5_provider_started_writes_key_and_checkpoint_alone(
    row: Gate, slot: Slot[int], attempt: int, key: int, tools: int | None, checkpoint: int | None, now: int
) -> Decision[Slot[int]]:
    r"""
    pre: journal.invariant(slot) and gated(row, slot, attempt)
    pre: slot.phase is Phase.BEFORE_PROVIDER
    post: same(accepted(__return__), started(slot, key, checkpoint, now))
    """
    return journal.advance(row, slot, attempt, STARTED, key, key, tools, checkpoint, Anchor.SOUND, now)


def started(slot: Slot[int], key: int, checkpoint: int | None, now: int) -> Slot[int]:
    leaf = slot.checkpoint_leaf_id if checkpoint is None else checkpoint
    return evolve(slot, phase=STARTED, stream_key=key, checkpoint_leaf_id=leaf, updated_at=now)


@promises("J5", "S4")
def j5_a_key_that_is_not_the_minted_one_is_an_error(
    row: Gate, slot: Slot[int], attempt: int, key: int, minted: int, now: int
) -> Decision[Slot[int]]:
    r"""
    pre: journal.invariant(slot) and gated(row, slot, attempt)
    pre: slot.phase is Phase.BEFORE_PROVIDER and key != minted
    post: error(__return__) is ErrorCode.INVALID_ARGUMENT
    """
    return journal.advance(row, slot, attempt, STARTED, key, minted, None, None, Anchor.SOUND, now)


@promises("J5")
def j5_a_missing_key_is_an_error_whatever_the_state(
    row: Gate | None, slot: Slot[int] | None, attempt: int, now: int
) -> Decision[Slot[int]]:
    r"""
    pre: valid(slot)
    post: error(__return__) is ErrorCode.INVALID_ARGUMENT
    """
    return journal.advance(row, slot, attempt, STARTED, None, KEY, None, None, Anchor.SOUND, now)


@promises("J6")
def j6_tool_request_recorded_writes_request_and_checkpoint_alone(
    row: Gate, slot: Slot[int], attempt: int, key: int | None, tools: int, checkpoint: int, now: int
) -> Decision[Slot[int]]:
    r"""
    pre: journal.invariant(slot) and gated(row, slot, attempt)
    pre: slot.phase is STARTED
    post: same(accepted(__return__), recorded(slot, tools, checkpoint, now))
    """
    return journal.advance(row, slot, attempt, RECORDED, key, KEY, tools, checkpoint, Anchor.SOUND, now)


def recorded(slot: Slot[int], tools: int, checkpoint: int, now: int) -> Slot[int]:
    return evolve(slot, phase=RECORDED, tool_request=tools, checkpoint_leaf_id=checkpoint, updated_at=now)


@promises("J6")
def j6_a_missing_request_or_checkpoint_is_an_error_whatever_the_state(
    row: Gate | None, slot: Slot[int] | None, attempt: int, tools: int | None, checkpoint: int | None, now: int
) -> Decision[Slot[int]]:
    r"""
    pre: valid(slot)
    pre: tools is None or checkpoint is None
    post: error(__return__) is ErrorCode.INVALID_ARGUMENT
    """
    return journal.advance(row, slot, attempt, RECORDED, None, KEY, tools, checkpoint, Anchor.SOUND, now)


@promises("A4")
def a4_update_takes_no_checkpoint_that_is_not_sound(
    row: Gate | None, slot: Slot[int] | None, attempt: int, phase: Phase, anchor: Anchor, now: int
) -> Decision[Slot[int]]:
    r"""
    pre: valid(slot)
    pre: anchor is not Anchor.SOUND
    post: not isinstance(__return__, Accept)
    """
    return journal.advance(row, slot, attempt, phase, KEY, KEY, 2, 3, anchor, now)


@promises("J4", "J5", "J6")
def j4_update_keeps_the_invariant(
    row: Gate, slot: Slot[int], attempt: int, phase: Phase, tools: int | None, checkpoint: int | None, now: int
) -> Decision[Slot[int]]:
    r"""
    pre: journal.invariant(slot) and owns(row, attempt)
    post: keeps(journal.invariant, __return__)
    """
    return journal.advance(row, slot, attempt, phase, KEY, KEY, tools, checkpoint, Anchor.SOUND, now)


@promises("J8")
def j8_committed_is_frozen_for_update(
    row: Gate | None, slot: Slot[int], attempt: int, phase: Phase, now: int
) -> Decision[Slot[int]]:
    r"""
    pre: journal.invariant(slot) and slot.committed
    post: isinstance(__return__, Refuse)
    """
    return journal.advance(row, slot, attempt, phase, KEY, KEY, 2, 3, Anchor.SOUND, now)


# --- mark consumed (J9) ---------------------------------------------------------------------------------------------


@promises("J9", "T3")
def j9_mark_gets_through_once_a_turn_with_its_key_while_the_provider_runs(
    row: Gate | None, slot: Slot[int] | None, attempt: int, key: int, now: int
) -> Decision[Slot[int]]:
    r"""
    pre: valid(slot)
    post: isinstance(__return__, Accept) == consumable(row, slot, attempt, key)
    """
    return journal.mark_consumed(row, slot, attempt, key, now)


def consumable(row: Gate | None, slot: Slot[int] | None, attempt: int, key: int) -> bool:
    return (
        slot is not None
        and gated(row, slot, attempt)
        and slot.phase is STARTED
        and slot.stream_key == key
        and slot.stream_consumed_at is None
    )


@promises("J9", "J10")
def j9_mark_stamps_and_leaves_the_phase(
    row: Gate, slot: Slot[int], attempt: int, key: int, now: int
) -> Decision[Slot[int]]:
    r"""
    pre: journal.invariant(slot) and consumable(row, slot, attempt, key)
    post: same(accepted(__return__), evolve(slot, stream_consumed_at=now, updated_at=now))
    """
    return journal.mark_consumed(row, slot, attempt, key, now)


@promises("J9")
def j9_a_second_mark_is_refused(
    row: Gate, slot: Slot[int], attempt: int, second: int, key: int, now: int
) -> Decision[Slot[int]]:
    r"""
    pre: journal.invariant(slot) and consumable(row, slot, attempt, key)
    post: isinstance(__return__, Refuse)
    """
    return journal.mark_consumed(
        row, accepted(journal.mark_consumed(row, slot, attempt, key, now)), second, key, now + 1
    )


@promises("J8", "J9")
def j8_committed_is_frozen_for_mark(
    row: Gate | None, slot: Slot[int], attempt: int, key: int, now: int
) -> Decision[Slot[int]]:
    r"""
    pre: journal.invariant(slot) and slot.committed
    post: isinstance(__return__, Refuse)
    """
    return journal.mark_consumed(row, slot, attempt, key, now)


@promises("J9")
def j9_mark_keeps_the_invariant(row: Gate, slot: Slot[int], attempt: int, key: int, now: int) -> Decision[Slot[int]]:
    r"""
    pre: journal.invariant(slot)
    post: keeps(journal.invariant, __return__)
    """
    return journal.mark_consumed(row, slot, attempt, key, now)
