"""The operations of the run journal on the whole state: append, state, transcript, repair.

The order of checks is SPEC section 0's: run id, record shape, fence, exact replay, expected position, conflict,
parents.
"""

from __future__ import annotations

from collections.abc import Sequence

from attrs import evolve

from turnproof.model import operations
from turnproof.model.choices import Choices
from turnproof.model.conversation import (
    Recorded,
    compaction_problem,
    context_of,
    read,
    recorded_request,
    repair_problem,
)
from turnproof.model.decision import Accept, Decision, Fail, Refuse
from turnproof.model.ids import is_reserved_run
from turnproof.model.log import Run, Stored, line_of, moved_state, numbered, place, shape
from turnproof.model.payload import decode_repair, encode_repair
from turnproof.model.rows import Context, Draft, Fence, Record, Restored
from turnproof.model.state import State
from turnproof.model.submission import owns
from turnproof.model.transcript import Damage, Transcript, fold
from turnproof.model.vocabulary import TREE_KINDS, ErrorCode, RecordKind

Seqs = tuple[int, ...]
_NO_RUN = Run()


# --- appending (R1, R3, R4, R7, R8, R11) ----------------------------------------------------------------------------


def _fenced_out(state: State, run_id: str, fence: Fence | None) -> bool:
    """Whether a fence is given and does not hold: the owner gate, and the submission's session is this run (R11)."""
    if fence is None:
        return False
    row = state.submissions.get(fence.submission_id)
    return row is None or not owns(row, fence.attempt_id) or row.session_key != run_id


def _parent_problem(tree: Transcript, record: Record) -> Fail | None:
    """What stands against a record's place in the tree (R8, A1, A3, A8)."""
    unknown = record.parent_id != "" and record.parent_id not in tree.index
    if record.kind is RecordKind.REPAIR:
        problem = repair_problem(tree, record.parent_id, decode_repair(record.payload))
        return None if problem is None else Fail(ErrorCode.ENTRY_NOT_FOUND, "A1", problem)
    if unknown and (record.kind in TREE_KINDS or record.kind is RecordKind.BRANCH):
        rule = "A3" if record.kind is RecordKind.BRANCH else "R8"
        return Fail(ErrorCode.ENTRY_NOT_FOUND, rule, f"the entry {record.parent_id!r} is not stored in this run")
    if record.kind is RecordKind.COMPACTION:
        problem = compaction_problem(tree, record)
        return None if problem is None else Fail(ErrorCode.INVALID_RECORD, "A8", problem)
    return None


def _write(
    state: State,
    run_id: str,
    drafts: Sequence[Draft],
    fence: Fence | None,
    expected_position: int | None,
    now: int,
    choices: Choices,
) -> tuple[State, Decision[Seqs]]:
    """Append the records of one step, all or none."""
    shaped: list[Record] = []
    for draft in drafts:
        record = shape(draft, run_id, now)
        if isinstance(record, Fail):
            return state, record
        shaped.append(record)
    if _fenced_out(state, run_id, fence):
        return state, Refuse("R11 T3")
    if not shaped:
        return state, Accept((), "R3")
    run = state.runs.get(run_id, _NO_RUN)
    stored = [Stored(record.seq, line_of(record)) for record in run.records]
    placed = place(stored, [line_of(record) for record in shaped], run.position, expected_position, choices)
    if not isinstance(placed, Accept) or placed.value[0] <= run.position:
        return state, placed
    records = run.records
    for record in numbered(shaped, placed.value):
        problem = _parent_problem(fold(records, choices), record)
        if problem is not None:
            return state, problem
        records = (*records, record)
    run = Run(records, moved_state(run.state, shaped))
    return evolve(state, runs=state.runs.put(run_id, run)), placed


def append(state: State, op: operations.Append, choices: Choices) -> tuple[State, Decision[int]]:
    after, decision = _write(state, op.run_id, [op.record], op.fence, op.expected_position, op.now, choices)
    return after, Accept(decision.value[0], decision.rule) if isinstance(decision, Accept) else decision


def append_step(state: State, op: operations.AppendStep, choices: Choices) -> tuple[State, Decision[Seqs]]:
    after, decision = _write(state, op.run_id, op.records, op.fence, op.expected_position, op.now, choices)
    return after, Accept(decision.value, f"R3 {decision.rule}") if isinstance(decision, Accept) else decision


def checkpoint(state: State, op: operations.Checkpoint, choices: Choices) -> tuple[State, Decision[int]]:
    """R4: a state is moved by appending a ``state`` record."""
    draft = Draft(kind=RecordKind.STATE.value, state=op.state)
    after, decision = _write(state, op.run_id, [draft], op.fence, None, op.now, choices)
    return after, Accept(decision.value[0], "R4") if isinstance(decision, Accept) else decision


# --- reading (R5, R6) -----------------------------------------------------------------------------------------------


def _unknown(run_id: str, rule: str) -> Fail:
    return Fail(ErrorCode.RUN_NOT_FOUND, rule, f"no run {run_id!r}")


def replay(state: State, op: operations.Replay, _: Choices) -> tuple[State, Decision[tuple[Record, ...]]]:
    run = state.runs.get(op.run_id)
    return state, _unknown(op.run_id, "R5") if run is None else Accept(run.records, "R5")


def state_of(state: State, op: operations.State, _: Choices) -> tuple[State, Decision[str]]:
    run = state.runs.get(op.run_id)
    return state, _unknown(op.run_id, "R5") if run is None else Accept(run.state.value, "R4 R5")


def runs(state: State, op: operations.Runs, _: Choices) -> tuple[State, Decision[tuple[str, ...]]]:
    found = (
        run_id
        for run_id, run in state.runs.items()
        if (not op.state or run.state.value == op.state) and (op.include_reserved or not is_reserved_run(run_id))
    )
    return state, Accept(tuple(sorted(found)), "R5 R6")


def position(state: State, op: operations.Position, _: Choices) -> tuple[State, Decision[int]]:
    return state, Accept(state.runs.get(op.run_id, _NO_RUN).position, "R1 R5")


# --- conversation (A, P) --------------------------------------------------------------------------------------------


def _recorded(state: State, run_id: str) -> Recorded | None:
    """The tool request that the journal holds for the session's running submission (P9)."""
    row = state.running_in(run_id)
    return recorded_request(row, None if row is None else state.slots.get(row.submission_id))


def _corrupt(damage: Damage, rule: str) -> Fail:
    return Fail(ErrorCode.CORRUPT_CONVERSATION, rule, str(damage))


def _read(state: State, run_id: str, choices: Choices) -> Decision[Restored]:
    if run_id not in state.runs:
        return _unknown(run_id, "A1")
    reading = read(state.transcript(run_id, choices), _recorded(state, run_id), choices)
    if isinstance(reading, Damage):
        return _corrupt(reading, "A2 P3")
    if reading.repair is not None:
        return Accept(reading, "A2 P2 P4")
    return Accept(reading, "A2 P6" if reading.pending is None else "A2 P9")


def inspect(state: State, op: operations.Inspect, choices: Choices) -> tuple[State, Decision[Restored]]:
    decision = _read(state, op.run_id, choices)
    return state, Accept(decision.value, f"{decision.rule} P7") if isinstance(decision, Accept) else decision


def restore(state: State, op: operations.Restore, choices: Choices) -> tuple[State, Decision[Restored]]:
    """P4: what the reading cuts is recorded in the same unit, once."""
    if _fenced_out(state, op.run_id, op.fence):
        return state, Refuse("R11 T3")
    decision = _read(state, op.run_id, choices)
    if not isinstance(decision, Accept) or decision.value.repair is None:
        return state, decision
    draft = Draft(
        kind=RecordKind.REPAIR.value,
        parent_id=decision.value.leaf,
        payload=encode_repair(decision.value.repair.dropped_entry_ids),
    )
    after, written = _write(state, op.run_id, [draft], None, None, op.now, choices)
    return (after, decision) if isinstance(written, Accept) else (state, decision)


def context(state: State, op: operations.ContextOf, choices: Choices) -> tuple[State, Decision[Context]]:
    decision = _read(state, op.run_id, choices)
    if not isinstance(decision, Accept):
        return state, decision
    found = context_of(state.transcript(op.run_id, choices), decision.value)
    return state, _corrupt(found, "A8") if isinstance(found, Damage) else Accept(found, "A8")


def _point(
    state: State, run_id: str, draft: Draft, fence: Fence | None, now: int, choices: Choices, rule: str
) -> tuple[State, Decision[int]]:
    """Append a record that moves the leaf of a known run."""
    if _fenced_out(state, run_id, fence):
        return state, Refuse("R11 T3")
    if run_id not in state.runs:
        return state, _unknown(run_id, rule)
    after, decision = _write(state, run_id, [draft], None, None, now, choices)
    return after, Accept(decision.value[0], rule) if isinstance(decision, Accept) else decision


def set_leaf(state: State, op: operations.SetLeaf, choices: Choices) -> tuple[State, Decision[int]]:
    draft = Draft(kind=RecordKind.BRANCH.value, parent_id=op.entry_id)
    return _point(state, op.run_id, draft, op.fence, op.now, choices, "A3")


def clear(state: State, op: operations.Clear, choices: Choices) -> tuple[State, Decision[int]]:
    return _point(state, op.run_id, Draft(kind=RecordKind.CLEAR.value), op.fence, op.now, choices, "A1")
