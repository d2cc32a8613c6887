"""JSON texts at the edge: what a payload or a tool request must look like before anything is written (R7, J6).

A payload is kept byte for byte; these functions only look at it. They are smart constructors: they answer the few facts
that the rules need (roles, call ids, result ids) or raise the typed error that names what is wrong. Numbers are never
interpreted, so that no JSON number is out of range.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from functools import lru_cache, wraps
from typing import Final, NoReturn, TypeAlias, TypeVar

from attrs import frozen

from turnproof.model.ids import is_text
from turnproof.model.rows import ModelChoice
from turnproof.model.vocabulary import InvalidArgument, InvalidRecord

__all__ = [
    "MAX_JSON_DEPTH",
    "Call",
    "Compaction",
    "Json",
    "Message",
    "Result",
    "decode_compaction",
    "decode_message",
    "decode_model_change",
    "decode_repair",
    "decode_tool_request",
    "encode_repair",
    "legacy_message",
    "message_text",
    "parse_json",
]

Json: TypeAlias = "bool | float | str | list[Json] | dict[str, Json] | None"

MAX_JSON_DEPTH: Final = 256
"""Deepest nesting that is read. A fixed bound, because the reader's own would depend on who calls it."""

_STRING: Final = re.compile(r'"(?:[^"\\]|\\.)*"', re.DOTALL)
_REMEMBERED: Final = 4096
"""How many texts a decoder remembers, and how long (in characters) a text may be to be remembered."""

T = TypeVar("T")


def _remembering(decode: Callable[[str], T]) -> Callable[[str], T]:
    """``decode`` with a memory for small texts: a model asks the same ones again and again, a store keeps large ones
    alive for nothing."""
    remembered = lru_cache(_REMEMBERED)(decode)

    @wraps(decode)
    def look(text: str) -> T:
        return remembered(text) if len(text) <= _REMEMBERED else decode(text)

    return look


@frozen
class Call:
    """A tool call as a message or a tool request names it."""

    id: str
    name: str


@frozen
class Result:
    """A tool result: which call it answers."""

    call_id: str
    is_error: bool


@frozen
class Message:
    """What the rules need to know of a message (A7)."""

    role: str
    calls: tuple[Call, ...] = ()
    results: tuple[Result, ...] = ()


@frozen
class Compaction:
    """The payload of a compaction (A8)."""

    summary: str
    first_kept: str


def _depth(text: str) -> int:
    """The deepest nesting of brackets outside strings."""
    deepest = depth = 0
    for char in _STRING.sub("", text):
        if char in "[{":
            depth += 1
            deepest = max(deepest, depth)
        elif char in "]}":
            depth -= 1
    return deepest


def _reject(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")


def parse_json(text: str) -> Json:
    """The value of a JSON text, every number a float. Raises ``ValueError`` for text that is not JSON (RFC 8259)."""
    if text.count("[") + text.count("{") > MAX_JSON_DEPTH and _depth(text) > MAX_JSON_DEPTH:
        raise ValueError(f"nested deeper than {MAX_JSON_DEPTH}")
    value: Json = json.loads(text, parse_constant=_reject, parse_int=float)
    return value


def _read(what: str, text: str) -> dict[str, Json]:
    try:
        value = parse_json(text)
    except ValueError as error:
        raise InvalidRecord(f"{what} is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise InvalidRecord(f"{what} must be a JSON object")
    return value


def _text(what: str, holder: dict[str, Json], field: str, *, exact: bool = True) -> str:
    """The text under ``field``; ``exact`` refuses lone surrogates, which could not be answered on the wire."""
    value = holder.get(field)
    if not isinstance(value, str):
        raise InvalidRecord(f"{what} needs {field!r} as text")
    if exact and not is_text(value):
        raise InvalidRecord(f"{what}: {field!r} holds a lone surrogate")
    return value


def _call(what: str, part: dict[str, Json]) -> Call:
    if "input" not in part:
        raise InvalidRecord(f"{what} needs 'input'")
    return Call(_text(what, part, "id"), _text(what, part, "name"))


def _result(what: str, part: dict[str, Json]) -> Result:
    if "output" not in part:
        raise InvalidRecord(f"{what} needs 'output'")
    is_error = part.get("is_error")
    if not isinstance(is_error, bool):
        raise InvalidRecord(f"{what} needs 'is_error' as true or false")
    return Result(_text(what, part, "call_id"), is_error)


def _distinct(what: str, ids: Iterable[str]) -> None:
    seen: set[str] = set()
    for call_id in ids:
        if call_id in seen:
            raise InvalidRecord(f"{what} names the call {call_id!r} twice")
        seen.add(call_id)


@_remembering
def decode_message(payload: str) -> Message:
    """The facts of a message payload (A7). Raises ``InvalidRecord`` when it has not that shape."""
    value = _read("the message payload", payload)
    role = _text("the message payload", value, "role", exact=False)
    parts = value.get("parts")
    if not isinstance(parts, list):
        raise InvalidRecord("the message payload needs 'parts' as a list")
    calls: list[Call] = []
    results: list[Result] = []
    for index, part in enumerate(parts):
        what = f"part {index} of the message"
        if not isinstance(part, dict):
            raise InvalidRecord(f"{what} must be a JSON object")
        match _text(what, part, "type", exact=False):
            case "text":
                _text(what, part, "text", exact=False)
            case "tool_call":
                calls.append(_call(what, part))
            case "tool_result":
                results.append(_result(what, part))
    _distinct("the message", (call.id for call in calls))
    return Message(role, tuple(calls), tuple(results))


@_remembering
def decode_compaction(payload: str) -> Compaction:
    """The payload of a compaction (A8). Raises ``InvalidRecord``."""
    value = _read("the compaction payload", payload)
    summary = _text("the compaction payload", value, "summary")
    return Compaction(summary, _text("the compaction payload", value, "first_kept"))


@_remembering
def decode_model_change(payload: str) -> ModelChoice:
    """The payload of a model change (A8). Raises ``InvalidRecord``."""
    value = _read("the model_change payload", payload)
    provider = _text("the model_change payload", value, "provider")
    return ModelChoice(provider=provider, model=_text("the model_change payload", value, "model"))


@_remembering
def decode_repair(payload: str) -> tuple[str, ...]:
    """The ids that a repair excludes (P4). Raises ``InvalidRecord``."""
    ids = _read("the repair payload", payload).get("dropped_entry_ids")
    if not isinstance(ids, list):
        raise InvalidRecord("the repair payload needs 'dropped_entry_ids' as a list")
    texts = tuple(entry for entry in ids if isinstance(entry, str))
    if len(texts) != len(ids):
        raise InvalidRecord("the repair payload needs every dropped entry id as text")
    return texts


@_remembering
def decode_tool_request(tool_request: str) -> tuple[Call, ...]:
    """The calls of a tool request, at least one, ids distinct (J6). Raises ``InvalidArgument``."""
    try:
        calls = _read("tool_request", tool_request).get("tool_calls")
        if not isinstance(calls, list) or not calls:
            raise InvalidRecord("tool_request needs 'tool_calls' with at least one call")
        found = []
        for index, call in enumerate(calls):
            if not isinstance(call, dict):
                raise InvalidRecord(f"call {index} of tool_request must be a JSON object")
            found.append(_call(f"call {index} of tool_request", call))
        _distinct("tool_request", (call.id for call in found))
    except InvalidRecord as error:
        raise InvalidArgument(error.message) from None
    return tuple(found)


def encode_repair(dropped: Iterable[str]) -> str:
    """The payload of a repair that excludes ``dropped`` (P4)."""
    return _compact({"dropped_entry_ids": list(dropped)})


def legacy_message(role: str, text: str) -> str:
    """The payload that stands for an empty one (A7), as ``JSON.stringify`` would write it."""
    return _compact({"role": role, "parts": [{"type": "text", "text": text}]})


def message_text(role: str, text: str, payload: str) -> str:
    """The payload text of a stored message: its own, or the legacy form where it has none (A7)."""
    return payload or legacy_message(role, text)


def _compact(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
