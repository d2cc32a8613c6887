"""What a turn writes into the transcript, built from what the provider and the tools said, or from the journal.

The same entry must come out whoever builds it: the attempt that heard the answer, or the one that finds only the
recorded tool request (P8). So ids are derived (``ids``), and JSON is carried over *as text*: a number keeps every
digit, an object keeps its members in order, twice-named ones too. Reading it into Python values and writing those
would lose ``1.0``, ``1e400`` and the second ``"a"``.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Final, TypeAlias

from attrs import frozen

from turnproof.model.conversation import recorded_request, recorded_step
from turnproof.model.ids import assistant_entry_id, input_entry_id, is_text, result_entry_id
from turnproof.model.payload import decode_message, decode_tool_request
from turnproof.model.rows import Draft, Slot, Submission
from turnproof.model.transcript import Transcript
from turnproof.model.vocabulary import InvalidRecord, RecordKind

__all__ = [
    "INTERRUPTED",
    "Closing",
    "Outcome",
    "ToolCall",
    "calls_of",
    "closing_of",
    "draft_answer",
    "draft_input",
    "draft_results",
    "draft_step",
    "input_message",
    "is_answer",
    "rebuild_message",
    "write_request",
]


@frozen
class _Number:
    """A number as it was written."""

    digits: str


@frozen
class _Members:
    """An object as it was written: its members in order, names that come twice included."""

    pairs: tuple[tuple[str, _Value], ...]

    def get(self, name: str) -> _Value:
        """The member that every JSON reader takes: the last of that name."""
        return next((value for key, value in reversed(self.pairs) if key == name), None)


_Value: TypeAlias = "bool | str | _Number | list[_Value] | _Members | None"


def _parse(text: str) -> _Value:
    value: _Value = json.loads(
        text, parse_int=_Number, parse_float=_Number, object_pairs_hook=lambda pairs: _Members(tuple(pairs))
    )
    return value


def _write_text(text: str) -> str:
    """``text`` as a JSON string; a lone surrogate stays the escape that it was."""
    return json.dumps(text, ensure_ascii=not is_text(text))


def _write(value: _Value) -> str:
    """``value`` as compact JSON."""
    match value:
        case _Number(digits):
            return digits
        case _Members(pairs):
            return "{" + ",".join(f"{_write_text(name)}:{_write(item)}" for name, item in pairs) + "}"
        case list():
            return "[" + ",".join(map(_write, value)) + "]"
        case str():
            return _write_text(value)
        case _:
            return json.dumps(value)


def _object(**members: _Value) -> _Members:
    return _Members(tuple(members.items()))


# --- messages and the tool request (A7, J6) -------------------------------------------------------------------------


@frozen
class ToolCall:
    """A call as the model made it: ``input`` is JSON text."""

    id: str
    name: str
    input: str


@frozen
class Outcome:
    """How a tool call ended: ``output`` is JSON text."""

    call_id: str
    output: str
    is_error: bool = False


INTERRUPTED: Final = '{"type":"interrupted"}'
"""The output of a call whose outcome is unknown; never a success (P8)."""


def input_message(payload: str) -> str:
    """The message that a submission's payload is: itself if it is a user message that calls and answers nothing, else
    its text.

    Whoever admits a submission may ask something; he cannot speak for the model or for a tool. A call without its
    result, or a result without its call, would tear the session for everyone after him (P1).
    """
    try:
        said = decode_message(payload)
    except InvalidRecord:
        said = None
    if said is None or said.role != "user" or said.calls or said.results:
        return _write(_object(role="user", parts=[_object(type="text", text=payload)]))
    return payload


def is_answer(message: str) -> bool:
    """Whether a message is what a model says: an assistant message without results. Raises ``InvalidRecord`` when it is
    no message (A7).

    Anything else could be stored but never committed: its calls or results would belong to no step (P1).
    """
    said = decode_message(message)
    return said.role == "assistant" and not said.results


def _call_parts(message: str) -> list[_Members]:
    """The tool calls in a message payload, as they were written."""
    value = _parse(message)
    parts = value.get("parts") if isinstance(value, _Members) else None
    found = parts if isinstance(parts, list) else []
    return [part for part in found if isinstance(part, _Members) and part.get("type") == "tool_call"]


def calls_of(message: str) -> tuple[ToolCall, ...]:
    """The calls that a message makes, in order. Raises ``InvalidRecord`` when it is no message (A7)."""
    made = decode_message(message).calls
    return tuple(
        ToolCall(call.id, call.name, _write(part.get("input")))
        for call, part in zip(made, _call_parts(message), strict=True)
    )


def write_request(message: str) -> str:
    """The tool request that records an assistant message with calls (J6).

    Where the message says more than its calls (text, reasoning), it is kept whole beside them, so that a rebuilt
    message is the one that was said.
    """
    calls = _call_parts(message)
    plain: list[_Value] = [_object(id=c.get("id"), name=c.get("name"), input=c.get("input")) for c in calls]
    request = _object(tool_calls=plain)
    if _write(_parse(message)) != _assistant(request):
        request = _object(tool_calls=plain, message=_parse(message))
    return _write(request)


def _assistant(request: _Members) -> str:
    calls = request.get("tool_calls")
    parts: list[_Value] = [
        _object(type="tool_call", id=call.get("id"), name=call.get("name"), input=call.get("input"))
        for call in (calls if isinstance(calls, list) else [])
        if isinstance(call, _Members)
    ]
    return _write(_object(role="assistant", parts=parts))


def rebuild_message(tool_request: str) -> str:
    """The assistant message that a tool request names: the one kept in it if it makes these calls, else its calls."""
    request = _parse(tool_request)
    if not isinstance(request, _Members):
        return tool_request
    kept = request.get("message")
    if kept is not None:
        message = _write(kept)
        try:
            if is_answer(message) and decode_message(message).calls == decode_tool_request(tool_request):
                return message
        except InvalidRecord:
            pass
    return _assistant(request)


def _result_message(outcome: Outcome) -> str:
    """A tool message with one result."""
    result = _object(
        type="tool_result", call_id=outcome.call_id, output=_parse(outcome.output), is_error=outcome.is_error
    )
    return _write(_object(role="tool", parts=[result]))


# --- entries (P8) ---------------------------------------------------------------------------------------------------


def _draft(entry_id: str, parent_id: str, role: str, payload: str) -> Draft:
    return Draft(kind=RecordKind.MESSAGE.value, entry_id=entry_id, parent_id=parent_id, role=role, payload=payload)


def draft_input(submission_id: str, payload: str, leaf: str) -> Draft:
    """The entry that holds a submission's input."""
    message = input_message(payload)
    return _draft(input_entry_id(submission_id), leaf, decode_message(message).role, message)


def draft_answer(submission_id: str, turn_id: str, message: str, leaf: str) -> Draft:
    """The entry that holds what the model said in a turn."""
    return _draft(assistant_entry_id(submission_id, turn_id), leaf, "assistant", message)


def draft_results(submission_id: str, turn_id: str, outcomes: Sequence[Outcome], leaf: str) -> tuple[Draft, ...]:
    """The entries of a turn's results, one below the other."""
    drafts: list[Draft] = []
    for outcome in outcomes:
        entry_id = result_entry_id(submission_id, turn_id, outcome.call_id)
        drafts.append(_draft(entry_id, drafts[-1].entry_id if drafts else leaf, "tool", _result_message(outcome)))
    return tuple(drafts)


def draft_step(
    submission_id: str, turn_id: str, message: str, outcomes: Sequence[Outcome], leaf: str
) -> tuple[Draft, ...]:
    """A whole step: the message with the calls, and the results in call order."""
    answer = draft_answer(submission_id, turn_id, message, leaf)
    return (answer, *draft_results(submission_id, turn_id, outcomes, answer.entry_id))


@frozen
class Closing:
    """How a recorded tool request is closed (A5, P8): attach at ``leaf``, then write ``entries`` below it."""

    leaf: str
    entries: tuple[Draft, ...]


def closing_of(row: Submission[str], slot: Slot[str], tree: Transcript) -> Closing | None:
    """How to close what the slot recorded: stored results stay, every open call is answered 'interrupted'.

    ``None`` when the slot holds no request that counts. Called again on what it caused, it asks for nothing more. Of
    several continuations of the step, the one with the most answers goes on, then the one on the active path, then the
    latest (``recorded_step``). An id that is stored elsewhere, on another continuation or as something else, cannot be
    written again: the store's conflict says that the turn cannot be closed. So it does for a step that does not make
    the recorded calls or hangs elsewhere, since that is none of this turn's: the whole is asked for.
    """
    recorded = recorded_request(row, slot)
    if recorded is None or slot.tool_request is None:
        return None
    step = recorded_step(tree, recorded)
    if step is not None and not (step.below_checkpoint and step.calls >= set(recorded.call_ids)):
        step = None
    answered = frozenset[str]() if step is None else step.answered
    open_calls = [Outcome(call, INTERRUPTED, True) for call in recorded.call_ids if call not in answered]
    if step is None:
        message = rebuild_message(slot.tool_request)
        entries = draft_step(row.submission_id, slot.turn_id, message, open_calls, recorded.checkpoint)
        return Closing(recorded.checkpoint, entries)
    deepest = tree.id_of(step.deepest)
    return Closing(deepest, draft_results(row.submission_id, slot.turn_id, open_calls, deepest))
