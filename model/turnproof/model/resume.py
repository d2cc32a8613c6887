"""Resuming: what is done about each row of the recovery table (``recovery.ROWS``).

``recovery`` decides, from durable state alone; this module turns the decision into where the driver goes on, where it
attaches (A5), and what it appends first. It is called again on whatever it caused, by the next attempt, when this one
dies in the middle; so it asks for nothing that is there already (C1). And it is called again in the same attempt when
the turn could not be closed or committed: then it goes on if less is missing than before, and gives up if not (E5).
"""

from __future__ import annotations

from typing import Final

from attrs import evolve

from turnproof.model.driver import Driver, End, Stage
from turnproof.model.ids import assistant_entry_id
from turnproof.model.rebuild import closing_of
from turnproof.model.recovery import facts_of
from turnproof.model.rows import Draft, Recovery, Slot
from turnproof.model.transcript import Transcript

__all__ = ["act"]

_EXHAUSTED: Final = "attempts or time used up"


def act(d: Driver, found: Recovery, tree: Transcript, now: int) -> Driver:
    """What is done about each row of ``recovery.ROWS``."""
    row, slot, problem, wanted = d.row, d.slot, d.error, len(d.entries)
    d = evolve(d, decision=found.decision, row=None, slot=None, error="", entries=(), then=Stage.DONE)
    match found.decision:
        case "none":
            return d.ended(End.LOST)
        case "requeue":
            return evolve(d, stage=Stage.REQUEUE)
        case "mark_input":
            return evolve(d, stage=Stage.REMARK)
        case "run_turn":
            return evolve(d, stage=Stage.OPEN, then=Stage.BEGIN)
    if row is None or slot is None:
        # only give_up has neither a slot nor an earlier row
        return evolve(d, stage=Stage.FAIL, error=_EXHAUSTED)
    exhausted = facts_of(row, slot, tree, now, d.job.choices).exhausted
    checkpoint = slot.checkpoint_leaf_id or tree.id_of(tree.leaf)
    closing = closing_of(row, slot, tree)
    missing = 0 if closing is None else len(closing.entries)
    if problem and found.decision != "finish" and missing >= wanted:
        # What cannot be closed leaves the active path, so that the session goes on without it.
        return _attach(evolve(d, decision="give_up", error=problem), tree, checkpoint, Stage.FAIL)
    match found.decision:
        case "finish":
            return _finish(d, slot, tree, exhausted)
        case "commit_stored":
            return _attach(d, tree, assistant_entry_id(row.submission_id, slot.turn_id), Stage.COMMIT)
        case "redrive":
            return _attach(d, tree, checkpoint, Stage.BEGIN)
        case "replay_stream":
            return evolve(_attach(d, tree, checkpoint, Stage.CAPTURED), slot=slot, turn_id=slot.turn_id)
        case _:
            # A turn that is given up is closed and not committed: the next recovery would take it for finished work.
            after = Stage.COMMIT if found.decision == "interrupt_tools" else Stage.FAIL
            d = evolve(d, error="" if after is Stage.COMMIT else _EXHAUSTED)
            return evolve(d, stage=after) if closing is None else _attach(d, tree, closing.leaf, after, closing.entries)


def _attach(d: Driver, tree: Transcript, leaf: str, then: Stage, entries: tuple[Draft, ...] = ()) -> Driver:
    """Move the leaf there unless it is there already (A5), append what is missing, and go on."""
    stage = Stage.CLOSE if entries else then
    d = evolve(d, leaf=leaf, entries=entries, then=then if entries else Stage.DONE)
    if tree.id_of(tree.leaf) == leaf:
        return evolve(d, stage=stage)
    return evolve(d, stage=Stage.ATTACH, then=then)


def _finish(d: Driver, slot: Slot[str], tree: Transcript, exhausted: bool) -> Driver:
    """The turn is done. Only what comes after it is counted against the budget."""
    leaf = slot.committed_leaf_id or ""
    then = Stage.COMPLETE if slot.tool_request is None else Stage.FAIL if exhausted else Stage.BEGIN
    d = evolve(d, error=_EXHAUSTED if then is Stage.FAIL else "")
    on_path = tree.index.get(leaf) in tree.path()
    return _attach(d, tree, tree.id_of(tree.leaf) if on_path else leaf, then)
