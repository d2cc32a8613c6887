"""Contracts of the record log: what a step is given, what a replay answers, and how the run state moves (R)."""

from __future__ import annotations

from turnproof.model.decision import Accept, Decision, Fail, Refuse
from turnproof.model.log import Line, Run, Stored, cleanup_due, moved_state, place
from turnproof.model.rows import Record
from turnproof.model.vocabulary import ErrorCode, RecordKind, RunState
from turnproof.proofs.contracts.registry import accepted, error, promises

_IN_CONDITIONS = (
    ErrorCode,
    error,
)
"""Named in conditions only, and those stand in docstrings, where no linter looks."""

Seqs = tuple[int, ...]
ONE = "1 stored record, steps of 2"
TWO = "2 stored records, steps of 2"


def log(*lines: Line[int]) -> tuple[Stored[int], ...]:
    """These lines as a dense log from seq 1."""
    return tuple(Stored(seq, line) for seq, line in enumerate(lines, 1))


def distinct(*lines: Line[int]) -> bool:
    """The invariant of a log: an entry id is stored once."""
    entries = [line.entry for line in lines if line.entry is not None]
    return all(entry not in entries[:i] for i, entry in enumerate(entries))


def clash(*lines: Line[int]) -> bool:
    return not distinct(*lines)


# --- placing a step (R1, R2, R3, R8, R11) ---------------------------------------------------------------------------


@promises("R1", "R2", "R3", bounds=ONE)
def r1_a_new_step_gets_the_next_seqs_in_order(a: Line[int], x: Line[int], y: Line[int]) -> Decision[Seqs]:
    r"""
    pre: distinct(a, x, y)
    post: accepted(__return__) == (2, 3)
    """
    return place(log(a), (x, y), 1)


@promises("R1", bounds="1 stored record at any seq, steps of 1")
def r1_seqs_go_on_from_the_position_whatever_gaps_there_are(a: Line[int], x: Line[int], seq: int) -> Decision[Seqs]:
    r"""
    pre: seq >= 1 and distinct(a, x)
    post: accepted(__return__) == (seq + 1,)
    """
    return place((Stored(seq, a),), (x,), seq)


@promises("R2", "R3", "R8", bounds=ONE)
def r3_a_step_is_stored_whole_or_answered_whole_or_not_at_all(
    a: Line[int], x: Line[int], y: Line[int], expected: int | None
) -> Decision[Seqs]:
    r"""
    post: whole(__return__, 1, 2)
    """
    return place(log(a), (x, y), 1, expected)


def whole(decision: Decision[Seqs], position: int, length: int) -> bool:
    """All seqs are new and dense, or all are of stored records; never some of each, never a stored seq for new."""
    seqs = accepted(decision)
    if seqs is None:
        return True
    fresh = tuple(range(position + 1, position + 1 + length))
    return len(seqs) == length and (seqs == fresh or all(1 <= seq <= position for seq in seqs))


@promises("R8", bounds="2 stored records, steps of 1")
def r8_an_exact_replay_answers_the_original_seq(
    a: Line[int], b: Line[int], first: bool, expected: int | None
) -> Decision[Seqs]:
    r"""
    pre: distinct(a, b) and (a if first else b).entry is not None
    post: accepted(__return__) == (1 if first else 2,)
    """
    again = a if first else b
    return place(log(a, b), (Line(again.entry, again.content),), 2, expected)


@promises("R8", bounds="2 stored records, steps of 1")
def r8_the_same_id_with_other_content_is_a_conflict(a: Line[int], b: Line[int], content: int) -> Decision[Seqs]:
    r"""
    pre: distinct(a, b) and a.entry is not None and content != a.content
    post: error(__return__) is ErrorCode.ENTRY_CONFLICT
    """
    return place(log(a, b), (Line(a.entry, content),), 2)


@promises("R8", "R3", bounds=TWO)
def r8_a_step_that_is_stored_in_part_is_a_conflict(a: Line[int], b: Line[int], x: Line[int]) -> Decision[Seqs]:
    r"""
    pre: distinct(a, b, x) and a.entry is not None and x.entry is not None
    post: error(__return__) is ErrorCode.ENTRY_CONFLICT
    """
    return place(log(a, b), (a, x), 2)


@promises("R8", bounds=ONE)
def r8_an_id_twice_in_one_step_is_a_conflict(a: Line[int], entry: int, x: int, y: int) -> Decision[Seqs]:
    r"""
    post: error(__return__) is ErrorCode.ENTRY_CONFLICT
    """
    return place(log(a), (Line(entry, x), Line(entry, y)), 1)


@promises("R8", "R3", bounds=ONE)
def r8_a_step_with_an_entry_that_is_sent_again_gets_its_first_answer(
    a: Line[int], x: Line[int], y: Line[int]
) -> Decision[Seqs]:
    r"""
    pre: distinct(a, x, y) and (x.entry is not None or y.entry is not None)
    post: accepted(__return__) == accepted(place(log(a), (x, y), 1))
    """
    return place(log(a, x, y), (x, y), 3)


@promises("R8", bounds="1 stored record, steps of 1")
def r8_a_record_without_an_id_is_never_a_replay(a: Line[int], content: int) -> Decision[Seqs]:
    r"""
    post: accepted(__return__) == (2,)
    """
    return place(log(a), (Line(None, content),), 1)


@promises("R11", bounds=ONE)
def r11_another_position_refuses_whatever_is_no_replay(
    a: Line[int], x: Line[int], y: Line[int], expected: int
) -> Decision[Seqs]:
    r"""
    pre: distinct(a, x, y) and expected != 1
    post: isinstance(__return__, Refuse)
    """
    return place(log(a), (x, y), 1, expected)


@promises("R11", "R8", bounds=ONE)
def r11_a_guard_that_holds_changes_no_answer(a: Line[int], x: Line[int], y: Line[int]) -> Decision[Seqs]:
    r"""
    post: like(__return__, place(log(a), (x, y), 1))
    """
    return place(log(a), (x, y), 1, 1)


def like(one: Decision[Seqs], other: Decision[Seqs]) -> bool:
    """The same answer: the same seqs, or the same error, or both refused."""
    if isinstance(one, Accept):
        return isinstance(other, Accept) and one.value == other.value
    if isinstance(one, Fail):
        return isinstance(other, Fail) and one.code is other.code
    return isinstance(other, Refuse)


# --- folds (R4, R17) ------------------------------------------------------------------------------------------------


def record(seq: int, kind: RecordKind, state: RunState) -> Record:
    return Record(seq=seq, run_id="r", kind=kind, timestamp=0, state=state.value)


@promises("R4", bounds="steps of 2 records")
def r4_the_last_state_of_a_step_wins(first: RunState, last: RunState) -> RunState:
    r"""
    post: __return__ is last
    """
    records = (record(1, RecordKind.STATE, first), record(2, RecordKind.STATE, last))
    return moved_state(RunState.PENDING, records)


@promises("R4", bounds="steps of 2 records")
def r4_a_record_after_it_does_not_take_a_state_back(kind: RecordKind, first: RunState) -> RunState:
    r"""
    pre: kind is not RecordKind.STATE
    post: __return__ is first
    """
    records = (record(1, RecordKind.STATE, first), record(2, kind, RunState.RETIRED))
    return moved_state(RunState.PENDING, records)


@promises("R4", bounds="steps of 1 record")
def r4_other_records_leave_the_state(old: RunState, kind: RecordKind) -> RunState:
    r"""
    pre: kind is not RecordKind.STATE
    post: __return__ is old
    """
    return moved_state(old, (record(1, kind, RunState.RETIRED),))


TERMINAL = (RunState.COMPLETED, RunState.FAILED, RunState.CANCELLED, RunState.RETIRED)


@promises("R17", bounds="logs of 2 records")
def r17_cleanup_is_due_from_a_terminal_state_until_the_files_are_gone(state: RunState, kind: RecordKind) -> bool:
    r"""
    pre: kind is not RecordKind.STATE
    post: __return__ == (state in TERMINAL and kind is not RecordKind.WORKSPACE_DELETED)
    """
    return cleanup_due(Run((record(1, RecordKind.STATE, state), record(2, kind, state))))


@promises("R17", bounds="logs of 3 records")
def r17_a_later_terminal_state_opens_a_new_cycle(first: RunState, last: RunState) -> bool:
    r"""
    post: __return__ == (last in TERMINAL)
    """
    records = (
        record(1, RecordKind.STATE, first),
        record(2, RecordKind.WORKSPACE_DELETED, first),
        record(3, RecordKind.STATE, last),
    )
    return cleanup_due(Run(records))
