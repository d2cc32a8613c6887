"""Contracts that are false on purpose: a prover that confirms everything must not pass.

Each states something that is nearly true, or that people believe of such stores. ``turnproof prove`` must refute every
one of them in the same run, in which it confirms the others; if it does not, the run is a violation of its own.
"""

from __future__ import annotations

from turnproof.model import journal, stream, submission
from turnproof.model.decision import Accept, Decision, Refuse
from turnproof.model.journal import Anchor
from turnproof.model.log import Line, place
from turnproof.model.recovery import Input
from turnproof.model.repair import Finding, Item, Verdict, examine
from turnproof.model.rows import Slot, Submission
from turnproof.model.submission import owns
from turnproof.model.vocabulary import Phase
from turnproof.proofs.contracts.journal import KEY
from turnproof.proofs.contracts.log import Seqs, log
from turnproof.proofs.contracts.recovery import decision
from turnproof.proofs.contracts.registry import accepted, promises, same
from turnproof.proofs.contracts.repair import sound
from turnproof.proofs.contracts.shapes import Gate, Running
from turnproof.proofs.contracts.stream import Stored
from turnproof.proofs.contracts.transfer import Moved, slot_of

_IN_CONDITIONS = (
    Accept,
    Refuse,
    Verdict,
    accepted,
    owns,
    same,
    slot_of,
    sound,
)
"""Named in conditions only, and those stand in docstrings, where no linter looks."""


@promises("J7", refuted=True)
def false_whoever_owns_the_submission_can_commit(
    row: Gate, slot: Slot[int], attempt: int, now: int
) -> Decision[Slot[int]]:
    r"""
    False: the slot may be held by an earlier attempt, be committed, or be too early.

    pre: journal.invariant(slot) and owns(row, attempt)
    post: isinstance(__return__, Accept)
    """
    return journal.commit(row, slot, attempt, 4, Anchor.SOUND, now)


@promises("J8", refuted=True)
def false_committed_is_frozen_for_begin_too(row: Gate, slot: Slot[int], attempt: int, now: int) -> Decision[Slot[int]]:
    r"""
    False: a new turn resets a committed slot (J3).

    pre: journal.invariant(slot) and slot.committed
    post: isinstance(__return__, Refuse)
    """
    return journal.begin(row, slot, 1, attempt, row.session_key, row.kind, 2, 3, now)


@promises("J4", refuted=True)
def false_an_update_may_repeat_a_phase(row: Gate, slot: Slot[int], attempt: int, now: int) -> Decision[Slot[int]]:
    r"""
    False: a repeated phase is refused, an update is no retry.

    pre: journal.invariant(slot) and owns(row, attempt) and slot.attempt_id == attempt
    pre: slot.phase is Phase.PROVIDER_STARTED
    post: isinstance(__return__, Accept)
    """
    return journal.advance(row, slot, attempt, slot.phase, KEY, KEY, None, None, Anchor.SOUND, now)


@promises("J10", refuted=True)
def false_the_revision_counts_writes(row: Gate, slot: Slot[int], attempt: int, now: int) -> Decision[Slot[int]]:
    r"""
    False: it counts begins.

    pre: journal.invariant(slot)
    post: accepted(__return__) is None or accepted(__return__).revision == slot.revision + 1
    """
    return journal.commit(row, slot, attempt, 4, Anchor.SOUND, now)


@promises("T1", refuted=True)
def false_a_transfer_always_takes_the_slot_along(
    row: Gate, slot: Slot[int], attempt: int, following: int, now: int
) -> Decision[Moved]:
    r"""
    False: a committed slot, or one of a third attempt, is not touched.

    pre: journal.invariant(slot) and owns(row, attempt) and attempt != following
    post: slot_of(__return__).attempt_id == following
    """
    return submission.transfer(row, slot, attempt, following, None, None, now)


@promises("L3", refuted=True)
def false_a_later_mark_installs_its_budget(row: Running, attempt: int, retry: int, now: int) -> Decision[object]:
    r"""
    False: only the first mark does.

    pre: owns(row, attempt)
    post: accepted(__return__).max_retry == retry
    """
    return submission.mark_input_applied(row, attempt, retry, None, now)


@promises("L7", refuted=True)
def false_a_renewal_sets_the_lease(row: Running, owner: int, lease: int, now: int) -> Decision[Submission[int]]:
    r"""
    False: it never shortens one.

    pre: row.owner_id == owner
    post: accepted(__return__).lease_expires_at == now + lease
    """
    return submission.renew(row, owner, lease, now)


@promises("S1", refuted=True)
def false_a_repeat_with_the_same_body_is_accepted(index: int, body: int) -> Decision[Stored]:
    r"""
    False: every repeat is refused, whatever it says.

    post: isinstance(__return__, Accept)
    """
    return stream.insert(((index, body),), index, body)


@promises("R8", refuted=True)
def false_a_record_that_is_sent_twice_is_stored_once(x: Line[int]) -> Decision[Seqs]:
    r"""
    False: a record without an entry id is never recognised.

    post: accepted(__return__) == (1,)
    """
    return place(log(x), (x,), 1)


@promises("P6", refuted=True)
def false_every_path_can_be_repaired(a: Item[int], b: Item[int]) -> Finding:
    r"""
    False: a stray result is corruption, and nothing is cut.

    post: __return__.row.verdict is Verdict.CUT or sound((a, b))
    """
    return examine((a, b))


@promises("C1", refuted=True)
def false_an_exhausted_submission_is_given_up(phase: Phase | None, answered: bool) -> str:
    r"""
    False: finished work is recognised first.

    post: __return__ == "give_up"
    """
    return decision(phase, answered, True, Input.APPLIED, False)


@promises("L6", refuted=True)
def false_settling_changes_nothing(row: Submission[int], attempt: int, now: int) -> Decision[Submission[int]]:
    r"""
    False, by one path in many.

    pre: submission.invariant(row)
    post: accepted(__return__) is None or same(accepted(__return__), row)
    """
    return submission.settle(row, attempt, None, now)
