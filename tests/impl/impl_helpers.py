"""What the tests of the store share: drafts in one line, a story that is told often, files looked at as bytes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from turnproof.impl import MemoryStore, Store
from turnproof.model.rows import Draft, Fence
from turnproof.model.vocabulary import TurnproofError

NOW = 1_000
REQUEST = json.dumps({"tool_calls": [{"id": "c1", "name": "deploy", "input": {}}]})


def message(entry: str, parent: str = "", role: str = "user", *parts: object, text: str = "hi") -> Draft:
    body = parts or ({"type": "text", "text": text},)
    return Draft(kind="message", entry_id=entry, parent_id=parent, payload=json.dumps({"role": role, "parts": body}))


def asks(entry: str, parent: str, *calls: str) -> Draft:
    parts = [{"type": "tool_call", "id": call, "name": "f", "input": {}} for call in calls]
    return message(entry, parent, "assistant", *parts)


def answers(entry: str, parent: str, *calls: str) -> Draft:
    parts = [{"type": "tool_result", "call_id": call, "output": "ok", "is_error": False} for call in calls]
    return message(entry, parent, "tool", *parts)


def fence(attempt: str = "a1", submission: str = "s1") -> Fence:
    return Fence(submission_id=submission, attempt_id=attempt)


def running(store: Store | MemoryStore, submission: str = "s1", session: str = "run1", attempt: str = "a1") -> None:
    """Admit and claim."""
    store.admit(submission, session, "dispatch", "{}", NOW, now=NOW)
    assert store.claim(submission, attempt, "w1", 31_000, now=NOW) is not None


def outcome(call: Callable[[], object]) -> object:
    """The answer, or the code of the typed error."""
    try:
        return call()
    except TurnproofError as error:
        return error.code


def bytes_of(directory: Path) -> dict[str, bytes]:
    return {str(p.relative_to(directory)): p.read_bytes() for p in sorted(directory.rglob("*")) if p.is_file()}
