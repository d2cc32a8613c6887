"""What an exploration must *reach*, or it has shown nothing: every row of the recovery table, every refusal, every end.

A search that never got anywhere breaks no law either. These are the behaviours that must have been seen at least once.
"""

from __future__ import annotations

from collections.abc import Iterator

from turnproof.model.recovery import ROWS, classify
from turnproof.model.vocabulary import Status
from turnproof.proofs.explore.machine import Machine
from turnproof.proofs.explore.scope import NOW, SESSION, Scope

__all__ = ["missing", "rows_seen", "wanted"]


def wanted(scope: Scope) -> Iterator[str]:
    """The behaviours that a scope must reach, by the names under which the machine counts them."""
    calls = max(calls for plan in scope.plan for calls in plan)
    given_up = min(scope.retries) < scope.attempts
    replays = scope.choices.stream_recovery == "replay"
    seen = {row.decision for row in ROWS}
    seen -= set() if calls else {"interrupt_tools"}
    seen -= set() if given_up else {"give_up"}
    seen -= set() if replays else {"replay_stream"}
    yield from (f"row {decision}" for decision in sorted(seen))
    yield from (f"decision {decision}" for decision in sorted(seen - {"none"}))
    yield from ("end completed", "end requeued", "end lost", "end not owner")
    for verb in _refusable(scope, calls):
        yield f"refused {verb}"
    if given_up:
        yield from ("end failed", "refused fail")
    if scope.notices:
        yield "accepted set_leaf"
    if scope.renewals:
        yield "refused replace_turn_journal_attempt (T6)"


def _refusable(scope: Scope, calls: int) -> Iterator[str]:
    """The verbs of the driver that must have been refused to a worker that lost its submission."""
    yield from ("claim", "replace_turn_journal_attempt", "restore", "append", "mark_input_applied")
    yield from ("begin_turn_journal", "update_turn_journal_phase", "mark_stream_consumed")
    yield from ("commit_turn_journal", "complete")
    if scope.attempts > 2:
        yield "requeue"  # which only a recovery asks, so that it takes a second one to refuse it
    if calls and scope.atomic_steps:
        yield "append_step"


def rows_seen(machine: Machine) -> set[str]:
    """The rows of the recovery table that fit in some state of the store, whoever would ask."""
    found = set()
    for state in machine.stores.values:
        tree = state.transcript(SESSION, machine.scope.choices)
        for row in state.submissions.values():
            if row.status is not Status.RUNNING and "row none" in found:
                continue
            slot = state.slots.get(row.submission_id)
            found.add(f"row {classify(row, slot, tree, NOW, machine.scope.choices).decision}")
    return found


def missing(machine: Machine) -> tuple[str, ...]:
    """What should have been reached and was not."""
    reached = (*machine.reached, *rows_seen(machine))
    return tuple(want for want in wanted(machine.scope) if not any(name.startswith(want) for name in reached))
