"""Contracts of the recovery decision: total, deterministic, idempotent, and never a second question (C1, E1, E2)."""

from __future__ import annotations

from turnproof.model import submission
from turnproof.model.decision import Accept, Decision
from turnproof.model.recovery import ROWS, Facts, Input, decide
from turnproof.model.rows import Slot, Submission
from turnproof.model.vocabulary import Phase
from turnproof.proofs.contracts.registry import promises
from turnproof.proofs.contracts.shapes import Running

_IN_CONDITIONS = (Accept,)
"""Named in conditions only, and those stand in docstrings, where no linter looks."""


def facts(
    running: bool, phase: Phase | None, answered: bool, exhausted: bool, source: Input, replayable: bool
) -> Facts:
    """Facts that can arise: an assistant entry is only looked for while the provider runs."""
    return Facts(
        running=running,
        phase=phase,
        answered=answered and phase is Phase.PROVIDER_STARTED,
        exhausted=exhausted,
        input=source,
        replayable=replayable,
    )


def decision(
    phase: Phase | None, answered: bool, exhausted: bool, source: Input, replayable: bool, running: bool = True
) -> str:
    return decide(facts(running, phase, answered, exhausted, source, replayable)).decision


@promises("C1")
def c1_exactly_one_row_fits(
    running: bool, phase: Phase | None, answered: bool, exhausted: bool, source: Input, replayable: bool
) -> int:
    r"""
    post: __return__ == 1
    """
    known = facts(running, phase, answered, exhausted, source, replayable)
    return sum(row.fits(known) for row in ROWS)


@promises("C1")
def c1_nothing_is_recovered_that_is_not_running(
    phase: Phase | None, answered: bool, exhausted: bool, source: Input, replayable: bool
) -> str:
    r"""
    post: __return__ == "none"
    """
    return decision(phase, answered, exhausted, source, replayable, running=False)


@promises("C1", "E3")
def c1_finished_work_is_recognised_before_any_budget(
    answered: bool, exhausted: bool, source: Input, replayable: bool
) -> str:
    r"""
    post: __return__ == "finish"
    """
    return decision(Phase.COMMITTED, answered, exhausted, source, replayable)


@promises("C1", "E4")
def c1_an_answer_that_is_stored_is_committed_before_any_budget(exhausted: bool, source: Input, replayable: bool) -> str:
    r"""
    post: __return__ == "commit_stored"
    """
    return decision(Phase.PROVIDER_STARTED, True, exhausted, source, replayable)


@promises("E5", "C1")
def e5_an_exhausted_submission_is_given_up_unless_its_turn_is_done(
    phase: Phase | None, answered: bool, source: Input, replayable: bool
) -> str:
    r"""
    pre: phase is not Phase.COMMITTED and not (answered and phase is Phase.PROVIDER_STARTED)
    post: __return__ == "give_up"
    """
    return decision(phase, answered, True, source, replayable)


@promises("E1", "E2", "P8")
def e1_a_recorded_request_is_closed_and_nobody_is_asked_again(
    answered: bool, exhausted: bool, source: Input, replayable: bool
) -> str:
    r"""
    post: __return__ in ("interrupt_tools", "give_up", "mark_input")
    """
    return decision(Phase.TOOL_REQUEST_RECORDED, answered, exhausted, source, replayable)


ASKS = ("run_turn", "redrive")


@promises("E1", "E2")
def e2_the_provider_is_asked_again_only_while_no_answer_is_durable(
    phase: Phase | None, answered: bool, exhausted: bool, source: Input, replayable: bool
) -> str:
    r"""
    post: __return__ not in ASKS or (phase in UNANSWERED and not (answered and phase is Phase.PROVIDER_STARTED))
    """
    return decision(phase, answered, exhausted, source, replayable)


UNANSWERED = (None, Phase.BEFORE_PROVIDER, Phase.PROVIDER_STARTED)


@promises("C1")
def c1_recovering_twice_is_recovering_once(
    phase: Phase | None, answered: bool, exhausted: bool, source: Input, replayable: bool
) -> tuple[str, str]:
    r"""
    What a decision does to the facts: a turn that is closed is committed, what is given up or requeued does not run.

    post: settled_down(*__return__)
    """
    first = decision(phase, answered, exhausted, source, replayable)
    if first in ("interrupt_tools", "commit_stored", "finish"):
        return first, decision(Phase.COMMITTED, False, exhausted, source, replayable)
    if first == "mark_input":
        return first, decision(phase, answered, exhausted, Input.APPLIED, replayable)
    if first in ("give_up", "requeue"):
        return first, decision(phase, answered, exhausted, source, replayable, running=False)
    return first, decision(phase, answered, exhausted, source, replayable)


def settled_down(first: str, second: str) -> bool:
    """The second decision finds the first one's work done, or (nothing durable happened) decides the same."""
    if first in ("interrupt_tools", "commit_stored", "finish"):
        return second == "finish"
    if first in ("give_up", "requeue"):
        return second == "none"
    return second != "mark_input"


@promises("C1", "L3")
def c1_an_input_that_is_stored_is_marked_never_stored_again(
    phase: Phase | None, exhausted: bool, replayable: bool
) -> str:
    r"""
    post: __return__ in ("mark_input", "finish", "give_up")
    """
    return decision(phase, False, exhausted, Input.STORED, replayable)


@promises("C1", "L5")
def c1_a_requeue_that_is_decided_is_accepted(
    row: Running, slot: Slot[int] | None, replayable: bool
) -> Decision[Submission[int]]:
    r"""
    pre: row.input_applied_at is None
    pre: decision(phase_of(row, slot), False, False, Input.ABSENT, replayable) == "requeue"
    post: isinstance(__return__, Accept)
    """
    return submission.requeue(row, slot, row.attempt_id or 0)


def phase_of(row: Submission[int], slot: Slot[int] | None) -> Phase | None:
    held = submission.counted(row, slot)
    return None if held is None else held.phase


@promises("C1", "T1")
def c1_a_slot_that_another_attempt_holds_is_as_if_there_were_none(
    row: Submission[int], slot: Slot[int]
) -> Slot[int] | None:
    r"""
    pre: not slot.committed and slot.attempt_id != row.attempt_id
    post: __return__ is None
    """
    return submission.counted(row, slot)


@promises("C1")
def c1_a_committed_slot_counts_whoever_holds_it(row: Submission[int], slot: Slot[int]) -> Slot[int] | None:
    r"""
    pre: slot.committed
    post: __return__ is slot
    """
    return submission.counted(row, slot)
