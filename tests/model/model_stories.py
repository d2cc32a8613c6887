"""What the model's tests tell their stories with: one state, moved by operations that are named as on the wire."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from turnproof.model.choices import STRICT, Choices
from turnproof.model.decision import Accept, Fail, Refuse
from turnproof.model.operations import ALPHABET
from turnproof.model.rows import Draft, Fence, Lease, Slot, Submission
from turnproof.model.system import EMPTY, State, apply
from turnproof.model.vocabulary import ErrorCode

S, RUN = "s1", "run1"
REQUEST = '{"tool_calls":[{"id":"c1","name":"read","input":{}},{"id":"c2","name":"write","input":{"a":1}}]}'
KEY = "s1:t1:a1"


class Story:
    """A state and the operations that happen to it. Every refusal is tested twice: the answer, and the state."""

    def __init__(self, state: State = EMPTY, choices: Choices = STRICT) -> None:
        self.state = state
        self.choices = choices
        self.now = 1000

    def _answer(self, verb: str, args: Mapping[str, object]) -> tuple[State, object]:
        self.now += 1
        return apply(self.state, ALPHABET[verb](**{"now": self.now, **args}), self.choices)

    def do(self, verb: str, **args: object) -> Any:
        """The operation is accepted; answers its value."""
        self.state, answer = self._answer(verb, args)
        assert isinstance(answer, Accept), answer
        return answer.value

    def refused(self, verb: str, **args: object) -> None:
        """The operation is refused, and nothing changed."""
        after, answer = self._answer(verb, args)
        assert isinstance(answer, Refuse), (verb, answer)
        assert after == self.state

    def error(self, code: ErrorCode, verb: str, **args: object) -> None:
        """The operation is an error, and nothing changed."""
        after, answer = self._answer(verb, args)
        assert isinstance(answer, Fail), (verb, answer)
        assert (answer.code, answer.message != "") == (code, True)
        assert after == self.state

    @property
    def row(self) -> Submission[str]:
        return self.state.submissions[S]

    @property
    def slot(self) -> Slot[str]:
        return self.state.slots[S]

    # --- the usual beginnings ---

    def admitted(self) -> Story:
        self.do("admit", submission_id=S, session_key=RUN, kind="dispatch", payload="{}", accepted_at=1000)
        return self

    def claimed(self, attempt: str = "a1") -> Story:
        self.do("claim", submission_id=S, attempt_id=attempt, owner_id="w1", lease_expires_at=9000)
        return self

    def begun(self, attempt: str = "a1", turn: str = "t1") -> Story:
        args = {"session_key": RUN, "kind": "dispatch", "operation_id": "o1", "turn_id": turn}
        self.do("begin_turn_journal", submission_id=S, attempt_id=attempt, **args)
        return self

    def started(self, attempt: str = "a1", turn: str = "t1") -> Story:
        key = f"{S}:{turn}:{attempt}"
        self.do(
            "update_turn_journal_phase", submission_id=S, attempt_id=attempt, phase="provider_started", stream_key=key
        )
        return self

    def recorded(self, attempt: str = "a1", checkpoint: str = "e1") -> Story:
        self.do(
            "update_turn_journal_phase",
            submission_id=S,
            attempt_id=attempt,
            phase="tool_request_recorded",
            tool_request=REQUEST,
            checkpoint_leaf_id=checkpoint,
        )
        return self

    def append(self, *records: Draft, fence: Fence | None = None) -> Story:
        self.do("append_step", run_id=RUN, records=records, fence=fence)
        return self

    def running(self) -> Story:
        """Admitted and claimed by a1, the question stored as e1."""
        return self.admitted().claimed().append(user("e1", ""))


def message(entry: str, parent: str, role: str, *parts: Mapping[str, object]) -> Draft:
    payload = json.dumps({"role": role, "parts": list(parts)})
    return Draft(kind="message", entry_id=entry, parent_id=parent, role=role, payload=payload)


def text(words: str) -> dict[str, object]:
    return {"type": "text", "text": words}


def call(call_id: str) -> dict[str, object]:
    return {"type": "tool_call", "id": call_id, "name": "read", "input": {}}


def result(call_id: str, *, is_error: bool = False) -> dict[str, object]:
    return {"type": "tool_result", "call_id": call_id, "output": "ok", "is_error": is_error}


def user(entry: str, parent: str) -> Draft:
    return message(entry, parent, "user", text("please"))


def asks(entry: str, parent: str, *calls: str) -> Draft:
    """An assistant message that makes these calls."""
    return message(entry, parent, "assistant", *(call(c) for c in calls))


def answers(entry: str, parent: str, *calls: str) -> Draft:
    """A tool message that answers these calls."""
    return message(entry, parent, "tool", *(result(c) for c in calls))


def says(entry: str, parent: str) -> Draft:
    """An assistant message without calls."""
    return message(entry, parent, "assistant", text("done"))


def fence(attempt: str) -> Fence:
    return Fence(submission_id=S, attempt_id=attempt)


def lease(owner: str, until: int) -> Lease[str]:
    return Lease(owner_id=owner, lease_expires_at=until)
