"""Conversations to generate with: payloads of messages, tool requests, compactions, and the records that carry them."""

from __future__ import annotations

import json
from collections.abc import Sequence

from turnproof.model.rows import Draft

__all__ = [
    "assistant",
    "change",
    "compaction",
    "entry",
    "message",
    "repair",
    "request",
    "results",
    "says",
]


def _text(value: object) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def says(text: str, role: str = "user") -> str:
    """The payload of a message of one text."""
    return _text({"role": role, "parts": [{"type": "text", "text": text}]})


def assistant(*calls: str, text: str = "") -> str:
    """The payload of an assistant message with tool calls."""
    parts: list[object] = [{"type": "text", "text": text}] if text else []
    parts += [{"type": "tool_call", "id": call, "name": "deploy", "input": {}} for call in calls]
    return _text({"role": "assistant", "parts": parts})


def results(*calls: str, error: bool = False, output: object = "ok") -> str:
    """The payload of a tool message that answers calls."""
    parts = [{"type": "tool_result", "call_id": call, "output": output, "is_error": error} for call in calls]
    return _text({"role": "tool", "parts": parts})


def request(*calls: str) -> str:
    """A tool request as the journal keeps it (J6)."""
    return _text({"tool_calls": [{"id": call, "name": "deploy", "input": {}} for call in calls]})


def compaction(summary: str, first_kept: str) -> str:
    return _text({"summary": summary, "first_kept": first_kept})


def change(model: str) -> str:
    return _text({"provider": "p", "model": model})


def repair(dropped: Sequence[str]) -> str:
    return _text({"dropped_entry_ids": list(dropped)})


def message(entry_id: str, parent_id: str, payload: str) -> Draft:
    """A message record; its role is the payload's."""
    role = json.loads(payload)["role"]
    return Draft(kind="message", entry_id=entry_id, parent_id=parent_id, role=role, payload=payload)


def entry(kind: str, entry_id: str, parent_id: str, payload: str = "") -> Draft:
    """A tree entry that is no message."""
    return Draft(kind=kind, entry_id=entry_id, parent_id=parent_id, payload=payload)
