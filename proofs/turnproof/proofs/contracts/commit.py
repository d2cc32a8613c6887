"""Contracts of ``commit``, and the lemmas over any verb: monotone, frozen, counted (J4, J7, J8, J10, A4, A6, E3)."""

from __future__ import annotations

from attrs import evolve

from turnproof.model import journal
from turnproof.model.decision import Accept, Decision, Refuse
from turnproof.model.journal import Anchor
from turnproof.model.rows import Slot
from turnproof.model.vocabulary import ErrorCode, Phase
from turnproof.proofs.contracts.journal import KEY, RECORDED, STARTED, gated, valid
from turnproof.proofs.contracts.registry import accepted, error, keeps, kept, promises, same
from turnproof.proofs.contracts.shapes import Gate

_IN_CONDITIONS = (
    Accept,
    RECORDED,
    Refuse,
    STARTED,
    error,
    evolve,
    gated,
    keeps,
    kept,
    same,
    valid,
)
"""Named in conditions only, and those stand in docstrings, where no linter looks."""

# --- commit (J7, J8, A4, A6) ----------------------------------------------------------------------------------------


@promises("J7", "T3")
def j7_commit_gets_through_the_slot_gate_from_a_started_phase_only(
    row: Gate | None, slot: Slot[int] | None, attempt: int, leaf: int, now: int
) -> Decision[Slot[int]]:
    r"""
    pre: valid(slot)
    post: isinstance(__return__, Accept) == (gated(row, slot, attempt) and slot.phase in (STARTED, RECORDED))
    """
    return journal.commit(row, slot, attempt, leaf, Anchor.SOUND, now)


@promises("J7", "A6", "J10")
def j7_commit_writes_the_leaf_and_closes_the_turn(
    row: Gate, slot: Slot[int], attempt: int, leaf: int, now: int
) -> Decision[Slot[int]]:
    r"""
    pre: journal.invariant(slot) and gated(row, slot, attempt)
    pre: slot.phase is not Phase.BEFORE_PROVIDER
    post: same(accepted(__return__), evolve(slot, phase=Phase.COMMITTED, committed_leaf_id=leaf, updated_at=now))
    """
    return journal.commit(row, slot, attempt, leaf, Anchor.SOUND, now)


@promises("J7")
def j7_a_missing_leaf_is_an_error_whatever_the_state(
    row: Gate | None, slot: Slot[int] | None, attempt: int, now: int
) -> Decision[Slot[int]]:
    r"""
    pre: valid(slot)
    post: error(__return__) is ErrorCode.INVALID_ARGUMENT
    """
    return journal.commit(row, slot, attempt, None, Anchor.SOUND, now)


@promises("J8", "A6", "E3")
def j8_committed_is_frozen_for_commit(
    row: Gate | None, slot: Slot[int], attempt: int, leaf: int, anchor: Anchor, now: int
) -> Decision[Slot[int]]:
    r"""
    pre: journal.invariant(slot) and slot.committed
    post: isinstance(__return__, Refuse)
    """
    return journal.commit(row, slot, attempt, leaf, anchor, now)


@promises("A6", "E3")
def a6_a_slot_with_a_committed_leaf_is_not_committed_again(
    row: Gate | None, slot: Slot[int], attempt: int, leaf: int, anchor: Anchor, now: int
) -> Decision[Slot[int]]:
    r"""
    pre: journal.invariant(slot) and slot.committed_leaf_id is not None
    post: isinstance(__return__, Refuse)
    """
    return journal.commit(row, slot, attempt, leaf, anchor, now)


@promises("A4")
def a4_commit_takes_no_leaf_that_is_not_sound(
    row: Gate, slot: Slot[int], attempt: int, leaf: int, anchor: Anchor, now: int
) -> Decision[Slot[int]]:
    r"""
    pre: journal.invariant(slot) and gated(row, slot, attempt) and slot.phase is not Phase.BEFORE_PROVIDER
    pre: anchor is not Anchor.SOUND
    post: error(__return__) is UNSOUND[anchor]
    """
    return journal.commit(row, slot, attempt, leaf, anchor, now)


UNSOUND = {Anchor.UNKNOWN: ErrorCode.ENTRY_NOT_FOUND, Anchor.MISMATCH: ErrorCode.ANCHOR_MISMATCH}


@promises("J7")
def j7_commit_keeps_the_invariant(row: Gate, slot: Slot[int], attempt: int, leaf: int, now: int) -> Decision[Slot[int]]:
    r"""
    pre: journal.invariant(slot)
    post: keeps(journal.invariant, __return__)
    """
    return journal.commit(row, slot, attempt, leaf, Anchor.SOUND, now)


# --- lemmas over any verb -------------------------------------------------------------------------------------------


def any_write(
    verb: int, row: Gate | None, slot: Slot[int], attempt: int, phase: Phase, anchor: Anchor, now: int
) -> Decision[Slot[int]]:
    """Any verb that writes a slot but ``begin``."""
    if verb == 0:
        return journal.advance(row, slot, attempt, phase, KEY, KEY, 2, 3, anchor, now)
    if verb == 1:
        return journal.mark_consumed(row, slot, attempt, KEY, now)
    return journal.commit(row, slot, attempt, 4, anchor, now)


@promises("J4")
def j4_the_phase_is_monotone_until_reset(
    verb: int, row: Gate, slot: Slot[int], attempt: int, phase: Phase, now: int
) -> Decision[Slot[int]]:
    r"""
    pre: journal.invariant(slot)
    post: accepted(__return__) is None or rank(accepted(__return__).phase) >= rank(slot.phase)
    """
    return any_write(verb, row, slot, attempt, phase, Anchor.SOUND, now)


def rank(phase: Phase) -> int:
    return list(Phase).index(phase)


@promises("J8")
def j8_committed_is_frozen_until_begin(
    verb: int, row: Gate | None, slot: Slot[int], attempt: int, phase: Phase, anchor: Anchor, now: int
) -> Decision[Slot[int]]:
    r"""
    pre: journal.invariant(slot) and slot.committed
    post: isinstance(__return__, Refuse)
    """
    return any_write(verb, row, slot, attempt, phase, anchor, now)


@promises("J10", "J1")
def j10_nothing_but_begin_moves_revision_or_identity(
    verb: int, row: Gate, slot: Slot[int], attempt: int, phase: Phase, now: int
) -> Decision[Slot[int]]:
    r"""
    pre: journal.invariant(slot)
    post: accepted(__return__) is None or kept(slot, accepted(__return__), WRITABLE)
    """
    return any_write(verb, row, slot, attempt, phase, Anchor.SOUND, now)


WRITABLE = (
    "phase",
    "updated_at",
    "stream_key",
    "stream_consumed_at",
    "tool_request",
    "checkpoint_leaf_id",
    "committed_leaf_id",
)


@promises("E3", "A6")
def e3_of_two_commits_the_second_is_refused(
    row: Gate, slot: Slot[int], attempt: int, other: int, leaf: int, now: int
) -> Decision[Slot[int]]:
    r"""
    pre: journal.invariant(slot) and gated(row, slot, attempt) and slot.phase is not Phase.BEFORE_PROVIDER
    post: isinstance(__return__, Refuse)
    """
    first = accepted(journal.commit(row, slot, attempt, leaf, Anchor.SOUND, now))
    return journal.commit(row, first, other, leaf + 1, Anchor.SOUND, now)
