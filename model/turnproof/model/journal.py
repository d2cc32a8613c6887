"""The turn journal: one slot for each submission, moved forward one durable write at a time (J1-J12).

An agent turn is not atomic. The provider streams, tools run, the transcript grows; each of these is irreversible, and
the process may die between any two. The slot is written *before* each of them, so that a successor who reads it knows
what may already have happened:

* ``before_provider``: nothing irreversible yet. Run the turn.
* ``provider_started``: the provider may have been asked. The stream key says where its output was captured.
* ``tool_request_recorded``: the provider answered with tool calls, which are kept in the slot together with the
  *checkpoint leaf*, the transcript entry from which the turn started. Tools may have run: their outcome is unknown
  unless the transcript says it. Neither the provider nor a tool may be asked again.
* ``committed``: the turn's output is in the transcript, ending at the *committed leaf*. A frozen slot: no verb of any
  attempt changes it, the one that committed it included. Only ``begin`` (a new turn) resets it.

A slot is not a log. It holds one turn, the latest; ``begin`` replaces it in place, over a committed turn or an
abandoned one, and ``revision`` counts how often that happened.

The table below is the whole machine: what is not in it is refused. Two conditions stand before it. The **slot gate**:
the attempt owns the submission, and holds the slot. And the arguments that a phase needs: a missing one is an error,
because a phase without its data would tell recovery less than nothing.

    before_provider --> provider_started --> tool_request_recorded --> committed
                              |                                            ^
                              +------------ text-only turn ----------------+
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto
from typing import Final, TypeVar

from attrs import evolve

from turnproof.model.choices import STRICT, Choices
from turnproof.model.decision import Accept, Decision, Fail, Refuse
from turnproof.model.rows import Slot, Submission
from turnproof.model.submission import owns, stale
from turnproof.model.vocabulary import ErrorCode, Phase, SubmissionKind

__all__ = ["TABLE", "Anchor", "Event", "advance", "begin", "commit", "invariant", "mark_consumed"]

Id = TypeVar("Id")


class Event(Enum):
    """What can happen to a slot."""

    BEGIN = auto()
    START_PROVIDER = auto()
    CONSUME_STREAM = auto()
    RECORD_TOOL_REQUEST = auto()
    COMMIT = auto()


class Anchor(Enum):
    """What the transcript says of a leaf that a write names (A4)."""

    SOUND = auto()
    UNKNOWN = auto()
    """No such entry in the session's tree, or excluded from it."""
    MISMATCH = auto()
    """Not at or below the checkpoint, or on a path that a repair would cut."""


TABLE: Final[Mapping[Phase | None, Mapping[Event, Phase]]] = {
    # None: the submission has no slot yet (J12).
    None: {
        Event.BEGIN: Phase.BEFORE_PROVIDER,
    },
    Phase.BEFORE_PROVIDER: {
        Event.BEGIN: Phase.BEFORE_PROVIDER,
        Event.START_PROVIDER: Phase.PROVIDER_STARTED,
    },
    Phase.PROVIDER_STARTED: {
        Event.BEGIN: Phase.BEFORE_PROVIDER,
        Event.CONSUME_STREAM: Phase.PROVIDER_STARTED,
        Event.RECORD_TOOL_REQUEST: Phase.TOOL_REQUEST_RECORDED,
        Event.COMMIT: Phase.COMMITTED,
    },
    Phase.TOOL_REQUEST_RECORDED: {
        Event.BEGIN: Phase.BEFORE_PROVIDER,
        Event.COMMIT: Phase.COMMITTED,
    },
    # Frozen (J8): only a new turn.
    Phase.COMMITTED: {
        Event.BEGIN: Phase.BEFORE_PROVIDER,
    },
}

UPDATES: Final[Mapping[Phase, Event]] = {
    # The phases that an update may ask for; the other two are reached by begin and commit alone (J4).
    Phase.PROVIDER_STARTED: Event.START_PROVIDER,
    Phase.TOOL_REQUEST_RECORDED: Event.RECORD_TOOL_REQUEST,
}


def _gate(
    row: Submission[Id] | None, slot: Slot[Id] | None, attempt_id: Id, promise: str, choices: Choices
) -> Refuse | None:
    """The slot gate (SPEC section 2): owner gate, the slot held by the same attempt, the slot not committed."""
    if choices.write_gate == "owner" and not owns(row, attempt_id):
        return stale(row, promise)
    if slot is None:
        return Refuse(f"J12 {promise}")
    if slot.committed:
        return Refuse(f"J8 {promise}")
    if slot.attempt_id != attempt_id:
        return Refuse(promise)
    return None


def _moves(phase: Phase, event: Event, choices: Choices) -> bool:
    """Whether the table has the event for this phase; the laxer choices have it for every uncommitted phase."""
    if event is Event.CONSUME_STREAM and choices.consume_phase == "any_uncommitted":
        return phase is not Phase.COMMITTED
    if event is not Event.CONSUME_STREAM and choices.phase_order == "any":
        return phase is not Phase.COMMITTED
    return event in TABLE[phase]


def _written(slot: Slot[Id], now: int, choices: Choices) -> Slot[Id]:
    """``slot`` with the stamps that every accepted write leaves; revision counts begins alone (J10)."""
    return evolve(slot, updated_at=now, revision=slot.revision + (1 if choices.revision == "per_write" else 0))


def _unsound(anchor: Anchor, promise: str) -> Fail | None:
    if anchor is Anchor.UNKNOWN:
        return Fail(ErrorCode.ENTRY_NOT_FOUND, f"A4 {promise}", "the leaf is no entry of this session's active tree")
    if anchor is Anchor.MISMATCH:
        return Fail(
            ErrorCode.ANCHOR_MISMATCH,
            f"A4 {promise}",
            "the leaf is not at or below the checkpoint, or a repair would cut the path to it",
        )
    return None


def begin(
    row: Submission[Id] | None,
    slot: Slot[Id] | None,
    submission_id: Id,
    attempt_id: Id,
    session_key: Id,
    kind: SubmissionKind,
    operation_id: Id,
    turn_id: Id,
    now: int,
    choices: Choices = STRICT,
) -> Decision[Slot[Id]]:
    """Start a turn: create the slot, or reset the one there is (J1-J3, J10)."""
    if choices.begin_gate == "owner":
        if row is None or not owns(row, attempt_id):
            return stale(row, "J2")
        if row.session_key != session_key or row.kind is not kind:
            return Fail(ErrorCode.INVALID_ARGUMENT, "J2", "session_key and kind must be those of the submission")
    first = slot is None or choices.created_at == "each_begin"
    return Accept(
        Slot(
            submission_id=submission_id,
            session_key=session_key,
            kind=kind,
            attempt_id=attempt_id,
            operation_id=operation_id,
            turn_id=turn_id,
            phase=TABLE[None if slot is None else slot.phase][Event.BEGIN],
            revision=1 if slot is None else slot.revision + 1,
            created_at=now if first or slot is None else slot.created_at,
            updated_at=now,
        ),
        "J1 J3 J10",
    )


def advance(
    row: Submission[Id] | None,
    slot: Slot[Id] | None,
    attempt_id: Id,
    phase: Phase,
    stream_key: Id | None,
    minted_key: Id | None,
    tool_request: Id | None,
    checkpoint_leaf_id: Id | None,
    anchor: Anchor,
    now: int,
    choices: Choices = STRICT,
) -> Decision[Slot[Id]]:
    """Move the phase along one arrow, storing what the next phase needs (J4, J5, J6).

    ``minted_key`` is the only stream key that J5 accepts; ``anchor`` is what the transcript says of the checkpoint.
    Arguments that the phase does not name are ignored; absent is ``None``.
    """
    if phase is Phase.PROVIDER_STARTED and stream_key is None:
        return Fail(ErrorCode.INVALID_ARGUMENT, "J5", "provider_started needs a stream_key")
    if phase is Phase.TOOL_REQUEST_RECORDED and (tool_request is None or checkpoint_leaf_id is None):
        return Fail(
            ErrorCode.INVALID_ARGUMENT, "J6", "tool_request_recorded needs a tool_request and a checkpoint_leaf_id"
        )
    refusal = _gate(row, slot, attempt_id, "J4", choices)
    if refusal is not None or slot is None:
        return refusal or Refuse("J12 J4")
    event = UPDATES.get(phase)
    if event is None:
        if phase is Phase.BEFORE_PROVIDER and choices.phase_order == "any":
            return Accept(_written(evolve(slot, phase=phase), now, choices), "J4")
        return Refuse("J4")
    if not _moves(slot.phase, event, choices):
        return Refuse("J4")
    if event is Event.START_PROVIDER:
        if choices.stream_key == "minted" and stream_key != minted_key:
            return Fail(ErrorCode.INVALID_ARGUMENT, "J5 S4", "stream_key must be minted for this turn and attempt")
        moved = evolve(slot, phase=phase, stream_key=stream_key)
        promise = "J5"
    else:
        moved = evolve(slot, phase=phase, tool_request=tool_request)
        promise = "J6"
    if checkpoint_leaf_id is not None:
        unsound = _unsound(anchor, promise)
        if unsound is not None:
            return unsound
        moved = evolve(moved, checkpoint_leaf_id=checkpoint_leaf_id)
        promise = f"{promise} A4" if choices.anchors == "checked" else promise
    return Accept(_written(moved, now, choices), f"J4 {promise}")


def mark_consumed(
    row: Submission[Id] | None,
    slot: Slot[Id] | None,
    attempt_id: Id,
    stream_key: Id,
    now: int,
    choices: Choices = STRICT,
) -> Decision[Slot[Id]]:
    """Stamp, once in a turn, that the stream was read to its end; the phase stays (J9)."""
    refusal = _gate(row, slot, attempt_id, "J9", choices)
    if refusal is not None or slot is None:
        return refusal or Refuse("J12 J9")
    if (
        not _moves(slot.phase, Event.CONSUME_STREAM, choices)
        or slot.stream_key != stream_key
        or slot.stream_consumed_at is not None
    ):
        return Refuse("J9")
    return Accept(_written(evolve(slot, stream_consumed_at=now), now, choices), "J9")


def commit(
    row: Submission[Id] | None,
    slot: Slot[Id] | None,
    attempt_id: Id,
    committed_leaf_id: Id | None,
    anchor: Anchor,
    now: int,
    choices: Choices = STRICT,
) -> Decision[Slot[Id]]:
    """Close the turn at the leaf where its output ends (J7); from then on the slot is frozen (J8, A6)."""
    if committed_leaf_id is None:
        return Fail(ErrorCode.INVALID_ARGUMENT, "J7", "commit needs the committed_leaf_id")
    refusal = _gate(row, slot, attempt_id, "J7", choices)
    if refusal is not None or slot is None:
        return refusal or Refuse("J12 J7")
    if not _moves(slot.phase, Event.COMMIT, choices):
        return Refuse("J7")
    unsound = _unsound(anchor, "J7")
    if unsound is not None:
        return unsound
    moved = evolve(slot, phase=Phase.COMMITTED, committed_leaf_id=committed_leaf_id)
    return Accept(_written(moved, now, choices), "J7 A4 A6" if choices.anchors == "checked" else "J7 A6")


def invariant(slot: Slot[Id]) -> bool:
    """What is true of every slot that the strict rules can reach: a phase never stands without its data."""
    started = slot.phase is not Phase.BEFORE_PROVIDER
    recorded = slot.phase is Phase.TOOL_REQUEST_RECORDED
    return (
        slot.revision >= 1
        and (slot.stream_key is not None) == started
        and (slot.stream_consumed_at is None or started)
        and (slot.tool_request is None or recorded or slot.committed)
        and (not recorded or slot.tool_request is not None)
        and (slot.tool_request is None or slot.checkpoint_leaf_id is not None)
        and (slot.checkpoint_leaf_id is None or started)
        and (slot.committed_leaf_id is not None) == slot.committed
    )
