"""The specification as one function: ``apply(state, operation, choices) -> (state, answer)``.

This is what every store is compared with. It is total: for any operation whose arguments have the right types it
answers, and it never raises. Malformed arguments are found here, before any rule looks at the state (SPEC section 0,
"Order of checks"); then the layer that owns the verb decides.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, TypeAlias, cast

from attrs import fields

from turnproof.model import run_layer, turn_layer
from turnproof.model.choices import STRICT, Choices
from turnproof.model.decision import Decision, Fail
from turnproof.model.ids import is_run_id, is_text
from turnproof.model.operations import (
    ALPHABET,
    Admit,
    AppendStreamSegment,
    BeginTurnJournal,
    Claim,
    Operation,
    RenewLeases,
    Runs,
    UpdateTurnJournalPhase,
)
from turnproof.model.payload import decode_tool_request, parse_json
from turnproof.model.rows import Fence, Lease
from turnproof.model.state import EMPTY, State
from turnproof.model.vocabulary import (
    DEFAULT_LEASE_MS,
    DEFAULT_TIMEOUT_MS,
    MAX_INTEGER,
    ErrorCode,
    InvalidArgument,
    Phase,
    RunState,
    SubmissionKind,
)

__all__ = ["EMPTY", "PROMISE_OF_VERB", "Answer", "State", "apply"]

Answer: TypeAlias = Decision[object]
Rule: TypeAlias = Callable[[State, Operation, Choices], tuple[State, Answer]]

_RUN_IDS: Final = ("run_id", "session_key")
_KINDS: Final = {kind.value for kind in SubmissionKind}
_PHASES: Final = {phase.value for phase in Phase}
_STATES: Final = {state.value for state in RunState}

PROMISE_OF_VERB: Final = {
    "admit": "L1",
    "get_submission": "L1",
    "claim": "L2",
    "mark_input_applied": "L3",
    "request_recovery": "L4",
    "requeue": "L5",
    "complete": "L6",
    "fail": "L6",
    "renew_leases": "L7",
    "list_runnable": "L8",
    "list_running": "L8",
    "list_expired": "L8",
    "has_unsettled": "L8",
    "insert_attempt_marker": "L9",
    "delete_attempt_marker": "L9",
    "list_attempt_markers": "L9",
    "delete_session": "L10",
    "list_pending_deletions": "L10",
    "begin_turn_journal": "J2",
    "update_turn_journal_phase": "J4",
    "mark_stream_consumed": "J9",
    "commit_turn_journal": "J7",
    "replace_turn_journal_attempt": "T1",
    "get_turn_journal": "J12",
    "append_stream_segment": "S1",
    "get_stream_segments": "S2",
    "delete_stream_segments": "S6",
    "append": "R1",
    "append_step": "R3",
    "checkpoint": "R4",
    "replay": "R5",
    "state": "R5",
    "runs": "R5",
    "position": "R1",
    "restore": "P4",
    "inspect": "P7",
    "context": "A8",
    "set_leaf": "A3",
    "clear": "A1",
    "recover": "C1",
}
"""The promise that is at stake when a verb's arguments are malformed, or when nothing more precise is known."""


def _rule_of(verb: str) -> Rule:
    """The function that decides a verb carries its name, in the layer that owns it."""
    name = "state_of" if verb == "state" else verb
    return cast(Rule, getattr(turn_layer if hasattr(turn_layer, name) else run_layer, name))


_RULES: Final[dict[str, Rule]] = {verb: _rule_of(verb) for verb in ALPHABET}


def _leaves(name: str, value: object) -> Iterator[tuple[str, object]]:
    """The texts and integers in an argument, by name. Drafts are judged as records, later (R7)."""
    if isinstance(value, tuple):
        for item in value:
            yield from _leaves(name, item)
    elif isinstance(value, Operation | Fence | Lease):
        for field in fields(type(value)):
            yield from _leaves(f"{name}.{field.name}" if name else field.name, getattr(value, field.name))
    else:
        yield name, value


def _is_kept_exact(number: int) -> bool:
    """Whether every JSON reader keeps the number (PROTOCOL). A sum that is stored must be as exact as an argument."""
    return abs(number) <= MAX_INTEGER


def _problem(operation: Operation) -> str | None:
    """What is wrong with the arguments of this verb in particular."""
    match operation:
        case Admit(kind=kind) | BeginTurnJournal(kind=kind) if kind not in _KINDS:
            return f"kind must be dispatch or direct, not {kind!r}"
        case Admit(payload=payload):
            try:
                parse_json(payload)
            except ValueError as error:
                return f"payload is not JSON: {error}"
        case Claim(now=now) if not _is_kept_exact(now + DEFAULT_TIMEOUT_MS):
            return f"the deadline that a claim grants at {now} is beyond 2**53"
        case RenewLeases(now=now, lease_ms=lease_ms) if not _is_kept_exact(
            now + (DEFAULT_LEASE_MS if lease_ms is None else lease_ms)
        ):
            return f"now + lease_ms is beyond 2**53: {now} + {lease_ms}"
        case UpdateTurnJournalPhase(phase=phase) if phase not in _PHASES:
            return f"unknown phase {phase!r}"
        case UpdateTurnJournalPhase(phase=Phase.TOOL_REQUEST_RECORDED, tool_request=request) if request:
            try:
                decode_tool_request(request)
            except InvalidArgument as error:
                return error.message
        case AppendStreamSegment(segment_index=index) if index < 0:
            return f"segment_index must not be negative, it is {index}"
        case Runs(state=state) if state and state not in _STATES:
            return f"unknown state {state!r}"
        case _:
            pass
    return None


def malformed(operation: Operation) -> Fail | None:
    """What is wrong with an operation's arguments, whatever the state is."""
    promise = PROMISE_OF_VERB[operation.verb]
    for name in _RUN_IDS:
        run_id = getattr(operation, name, None)
        if run_id is not None and not is_run_id(run_id):
            message = f"{name} {run_id!r} is no run id: 1 to 200 of A-Za-z0-9._-, not starting with a dot"
            return Fail(ErrorCode.INVALID_RUN_ID, "R6", message)
    for name, value in _leaves("", operation):
        if isinstance(value, str) and not is_text(value):
            return Fail(ErrorCode.INVALID_ARGUMENT, promise, f"{name} holds a lone surrogate")
        if isinstance(value, int) and not _is_kept_exact(value):
            return Fail(ErrorCode.INVALID_ARGUMENT, promise, f"{name} is beyond 2**53: {value}")
    problem = _problem(operation)
    return None if problem is None else Fail(ErrorCode.INVALID_ARGUMENT, promise, problem)


def apply(state: State, operation: Operation, choices: Choices = STRICT) -> tuple[State, Answer]:
    """The state after an operation, and its answer. A refusal or an error leaves the state as it was."""
    fault = malformed(operation)
    if fault is not None:
        return state, fault
    return _RULES[operation.verb](state, operation, choices)
