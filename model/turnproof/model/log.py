"""The run journal: an append-only log for each run, written by single records or by atomic steps (R1-R8, R17, R18).

A record is handed in as a draft, judged for its shape, and stored under the next ``seq``. Three guards stand before
the write, in this order (SPEC section 0): the *fence* (does this attempt own the submission whose run this is), the
*exact replay* (a retry whose answer was lost writes nothing and gets its first answer), and the *expected position*.

The rule of replay and conflict needs little of a record: the id under which it enters the tree, if it does, and its
content as one opaque value that is only compared. That is ``Line``; ``place`` is the rule, over any id type.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, Generic, TypeVar

from attrs import evolve, frozen

from turnproof.model.choices import STRICT, Choices
from turnproof.model.decision import Accept, Decision, Fail, Refuse
from turnproof.model.ids import is_text
from turnproof.model.payload import (
    decode_compaction,
    decode_message,
    decode_model_change,
    decode_repair,
    parse_json,
)
from turnproof.model.rows import Draft, Record, RunView
from turnproof.model.vocabulary import (
    MAX_INTEGER,
    TREE_KINDS,
    ErrorCode,
    InvalidRecord,
    RecordKind,
    RunState,
)

__all__ = ["Line", "Run", "Stored", "cleanup_due", "line_of", "moved_state", "place", "run_view", "shape"]

Id = TypeVar("Id")


@frozen
class Line(Generic[Id]):
    """What the rules of replay and conflict need of a record."""

    entry: Id | None
    """The id under which it enters the tree; ``None`` for a record that does not."""
    content: Id
    """Everything but run, seq and timestamp, compared for equality only (R8)."""


@frozen
class Stored(Generic[Id]):
    seq: int
    line: Line[Id]


@frozen
class Run:
    """One run: its records in ``seq`` order and the state that its last ``state`` record set (R4)."""

    records: tuple[Record, ...] = ()
    state: RunState = RunState.PENDING

    @property
    def position(self) -> int:
        """The last seq, 0 for a run without records (R1)."""
        return self.records[-1].seq if self.records else 0


# --- the rule of replay and conflict (R1, R3, R8, R11) --------------------------------------------------------------


def _stored_as(stored: Sequence[Stored[Id]], line: Line[Id]) -> Stored[Id] | None:
    """The stored record that carries the same tree entry id."""
    if line.entry is None:
        return None
    return next((s for s in stored if s.line.entry == line.entry), None)


def _twice(step: Sequence[Line[Id]]) -> bool:
    return any(
        line.entry is not None and any(line.entry == other.entry for other in step[:i]) for i, line in enumerate(step)
    )


def _replayed(stored: Sequence[Stored[Id]], step: Sequence[Line[Id]]) -> tuple[int, ...] | None:
    """The seqs of a step that is stored whole already, else ``None``.

    Entries are recognised by their ids, wherever they are; records without an id must be equal and stand at the same
    offset from the step's first entry. A step without entries is never recognised.
    """
    first = next((i for i, line in enumerate(step) if line.entry is not None), None)
    anchor = None if first is None else _stored_as(stored, step[first])
    if first is None or anchor is None or _twice(step):
        return None
    seqs: list[int] = []
    for i, line in enumerate(step):
        if line.entry is not None:
            found = _stored_as(stored, line)
        else:
            found = next((s for s in stored if s.seq == anchor.seq + i - first and s.line.entry is None), None)
        if found is None or found.line.content != line.content:
            return None
        seqs.append(found.seq)
    return tuple(seqs)


def place(
    stored: Sequence[Stored[Id]],
    step: Sequence[Line[Id]],
    position: int,
    expected_position: int | None = None,
    choices: Choices = STRICT,
) -> Decision[tuple[int, ...]]:
    """The seqs that a step gets, or got: all of it or none (R1, R3, R8, R11).

    An answer whose seqs are not above ``position`` is a replay: nothing is to be written.
    """
    idempotent = choices.entry_replay == "idempotent"
    seqs = _replayed(stored, step) if idempotent else None
    if seqs is not None:
        return Accept(seqs, "R8")
    if expected_position is not None and expected_position != position:
        return Refuse("R11")
    if _twice(step) or (idempotent and any(_stored_as(stored, line) is not None for line in step)):
        return Fail(
            ErrorCode.ENTRY_CONFLICT,
            "R8",
            "an entry id of this write is stored with other content, only in part, or named twice",
        )
    return Accept(tuple(range(position + 1, position + 1 + len(step))), "R1 R2")


# --- the shape of a record (R7, R8) ---------------------------------------------------------------------------------

_SHAPES: Final = {
    RecordKind.COMPACTION: decode_compaction,
    RecordKind.MODEL_CHANGE: decode_model_change,
    RecordKind.REPAIR: decode_repair,
}
_KINDS: Final = {kind.value: kind for kind in RecordKind}
_STATES: Final = {state.value for state in RunState}
_TEXTS: Final = ("kind", "entry_id", "parent_id", "role", "ext_type", "text", "state", "payload", "run_id")


def _invalid(rule: str, message: str) -> Fail:
    return Fail(ErrorCode.INVALID_RECORD, rule, message)


def _payload_problem(kind: RecordKind, payload: str) -> str | None:
    """What is wrong with a payload of this kind (R7)."""
    try:
        if kind in _SHAPES:
            _SHAPES[kind](payload)
        elif kind is RecordKind.MESSAGE and payload:
            decode_message(payload)
        elif payload:
            parse_json(payload)
    except InvalidRecord as error:
        return error.message
    except ValueError as error:
        return f"the payload is not JSON: {error}"
    return None


def shape(draft: Draft, run_id: str, now: int) -> Record | Fail:
    """The record that a draft makes (seq 0 until it is placed), or what is wrong with it (R7, R8)."""
    for name in _TEXTS:
        if not is_text(getattr(draft, name)):
            return Fail(ErrorCode.INVALID_ARGUMENT, "R7", f"the record's {name} holds a lone surrogate")
    if draft.timestamp is not None and abs(draft.timestamp) > MAX_INTEGER:
        return Fail(ErrorCode.INVALID_ARGUMENT, "R7", f"the record's timestamp is beyond 2**53: {draft.timestamp}")
    kind = _KINDS.get(draft.kind)
    if kind is None:
        return _invalid("R7", f"unknown record kind {draft.kind!r}")
    if draft.run_id not in ("", run_id):
        return _invalid("R7", f"the record names run {draft.run_id!r}, the append names {run_id!r}")
    if draft.state not in _STATES and (draft.state or kind is RecordKind.STATE):
        return _invalid("R7 R4", f"unknown state {draft.state!r}")
    if kind in TREE_KINDS and not draft.entry_id:
        return _invalid("R8", f"a {kind.value} record needs an entry_id")
    problem = _payload_problem(kind, draft.payload)
    if problem is not None:
        return _invalid("R7", problem)
    return Record(
        seq=0,
        run_id=run_id,
        kind=kind,
        timestamp=now if draft.timestamp is None else draft.timestamp,
        entry_id=draft.entry_id,
        parent_id=draft.parent_id,
        role=draft.role,
        ext_type=draft.ext_type,
        text=draft.text,
        state=draft.state,
        payload=draft.payload,
    )


def line_of(record: Record) -> Line[str | tuple[str, ...]]:
    """The record as ``place`` sees it."""
    content = (
        record.kind.value,
        record.entry_id,
        record.parent_id,
        record.role,
        record.ext_type,
        record.text,
        record.state,
        record.payload,
    )
    return Line(record.entry_id if record.kind in TREE_KINDS else None, content)


def numbered(records: Iterable[Record], seqs: Iterable[int]) -> tuple[Record, ...]:
    """``records`` under the seqs that ``place`` gave them."""
    return tuple(evolve(record, seq=seq) for record, seq in zip(records, seqs, strict=True))


# --- folds over a log (R4, R17, R18) --------------------------------------------------------------------------------


def moved_state(state: RunState, records: Iterable[Record]) -> RunState:
    """The run's state after ``records``: the last ``state`` record wins, others leave it (R4)."""
    for record in records:
        if record.kind is RecordKind.STATE:
            state = RunState(record.state)
    return state


_TERMINAL: Final = frozenset({RunState.COMPLETED, RunState.FAILED, RunState.CANCELLED, RunState.RETIRED})


def cleanup_due(run: Run) -> bool:
    """Whether the run's working files may be removed: terminal, and not removed since it became so (R17)."""
    due = False
    for record in run.records:
        if record.kind is RecordKind.STATE:
            due = record.state in _TERMINAL
        elif record.kind is RecordKind.WORKSPACE_DELETED:
            due = False
    return due


def run_view(run: Run) -> RunView:
    """The turn, cancellation, suspension, trigger, sandbox and context strings of a run (R18)."""
    view = RunView()
    for record in run.records:
        match record.kind:
            case RecordKind.TURN:
                view = evolve(view, turn=record.text, cancel_requested=False, contexts=())
            case RecordKind.CANCEL if record.text == view.turn:
                view = evolve(view, cancel_requested=True)
            case RecordKind.STATE if record.state == RunState.CANCELLED:
                view = evolve(view, cancel_requested=False)
            case RecordKind.SUSPEND:
                view = evolve(view, suspension=record)
            case RecordKind.RESUME:
                view = evolve(view, suspension=None)
            case RecordKind.TRIGGER:
                view = evolve(view, trigger=record)
            case RecordKind.SANDBOX:
                view = evolve(view, sandbox=record)
            case RecordKind.CONTEXT:
                view = evolve(view, contexts=(*view.contexts, record.text))
            case _:
                pass
    return view
