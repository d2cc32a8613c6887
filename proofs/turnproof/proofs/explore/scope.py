"""What is explored: how much work, how many workers, how often they may die; and the outside world that answers them.

The provider and the tools are scripted. A *plan* says for each submission how many tool calls each of its turns makes,
0 for an answer in text: ``((2, 0), (1, 0))`` are two submissions, of which the first runs two tools at once and then
answers. What the provider says depends on what it is shown and on nothing else, as with a real one: it counts its own
messages since the input. The tools' call ids are the same in every turn, as with real providers.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Final

from attrs import field, frozen

from turnproof.model import operations as ops
from turnproof.model.choices import STRICT, Choices
from turnproof.model.driver import Outcome, ProviderCall
from turnproof.model.rebuild import INTERRUPTED, input_message
from turnproof.model.system import EMPTY, State, apply

__all__ = ["LEASE_MS", "NOW", "SCOPES", "SESSION", "Scope", "Script"]

SESSION: Final = "session"
NOW: Final = 1000
"""The one time at which everything happens: no rule but expiry compares times, and expiry is an action here."""
LEASE_MS: Final = 30_000


@frozen(kw_only=True)
class Scope:
    """The bounds of an exploration."""

    name: str
    plan: tuple[tuple[int, ...], ...] = ((2, 0), (1, 0))
    retries: tuple[int, ...] = (10, 1)
    """By submission: the attempts that it may use before recovery gives up."""
    workers: int = 3
    attempts: int = 3
    """How many attempts may own a submission, by claim or transfer; the last of them is not killed."""
    crashes: int = 2
    pieces: int = 1
    """Segments that each stream is stored in."""
    notices: int = 0
    """How often somebody else may append an entry to the session, at any moment."""
    renewals: int = 0
    """How often an owner's lease may be renewed, at any moment."""
    atomic_steps: bool = True
    session: str = SESSION
    prefix: str = "s"
    """What the submissions are called, before their number."""
    choices: Choices = STRICT

    @property
    def submissions(self) -> tuple[str, ...]:
        return tuple(f"{self.prefix}{i + 1}" for i in range(len(self.plan)))

    def retries_of(self, submission_id: str) -> int:
        return self.retries[self.submissions.index(submission_id) % len(self.retries)]

    def admissions(self) -> tuple[ops.Operation, ...]:
        return tuple(
            ops.Admit(
                now=NOW,
                submission_id=submission_id,
                session_key=self.session,
                kind="dispatch",
                payload=json.dumps(f"question {submission_id}"),
                accepted_at=NOW,
            )
            for submission_id in self.submissions
        )

    def first(self) -> State:
        """The store with everything admitted and nothing begun."""
        state = EMPTY
        for operation in self.admissions():
            state, _ = apply(state, operation, self.choices)
        return state


SCOPES: Final[Mapping[str, Scope]] = {
    scope.name: scope
    for scope in (
        Scope(name="default"),
        Scope(name="tiny", plan=((0,),), retries=(10,), workers=2, attempts=2, crashes=1),
        Scope(name="one", plan=((2, 0),), retries=(10,)),
        Scope(name="single-appends", plan=((2, 0),), retries=(10,), atomic_steps=False),
        Scope(name="notices", plan=((2, 0),), retries=(10,), workers=2, notices=1),
        Scope(name="renewals", plan=((1, 0),), retries=(10,), workers=2, renewals=1),
        Scope(
            name="replay", plan=((2, 0),), retries=(10,), workers=2, pieces=2, choices=Choices(stream_recovery="replay")
        ),
    )
}
"""The scopes that have a name."""


def _json(value: object) -> str:
    return json.dumps(value, separators=(",", ":"))


@frozen
class Script:
    """What the world outside says, and how its words are recognised in a transcript."""

    scope: Scope
    tokens: Mapping[str, tuple[str, ...]] = field(init=False, eq=False)
    """By message payload: ``(input, s)``, ``(says, s, turn)``, ``(result, call)`` or ``(interrupted, call)``."""

    def __attrs_post_init__(self) -> None:
        object.__setattr__(self, "tokens", dict(self._tokens()))

    def message(self, submission_id: str, turn: int) -> str:
        """What the provider says in a submission's turn, counted from 0; text when the plan is at its end."""
        plan = self.scope.plan[self.scope.submissions.index(submission_id)]
        calls = plan[turn] if turn < len(plan) else 0
        if not calls:
            return _json({"role": "assistant", "parts": [{"type": "text", "text": f"answer {submission_id}.{turn}"}]})
        parts = [
            {"type": "tool_call", "id": f"c{n + 1}", "name": "work", "input": f"{submission_id}.{turn}.c{n + 1}"}
            for n in range(calls)
        ]
        return _json({"role": "assistant", "parts": parts})

    def pieces(self, call: ProviderCall) -> tuple[str, ...]:
        """The stream: the message in as many pieces as the scope says."""
        turn = sum(self.tokens.get(m, ("",))[:2] == ("says", call.submission_id) for m in call.messages)
        message, count = self.message(call.submission_id, turn), self.scope.pieces
        size = -(-len(message) // count) if count else len(message)
        return tuple(message[i : i + size] for i in range(0, len(message), size))

    @staticmethod
    def outcome(call_id: str) -> Outcome:
        return Outcome(call_id, '"done"')

    def _tokens(self) -> Iterable[tuple[str, tuple[str, ...]]]:
        most = max((calls for plan in self.scope.plan for calls in plan), default=0)
        for n in range(most):
            for name, output, is_error in (("result", '"done"', "false"), ("interrupted", INTERRUPTED, "true")):
                part = f'{{"type":"tool_result","call_id":"c{n + 1}","output":{output},"is_error":{is_error}}}'
                yield f'{{"role":"tool","parts":[{part}]}}', (name, f"c{n + 1}")
        for submission_id, plan in zip(self.scope.submissions, self.scope.plan, strict=True):
            yield input_message(_json(f"question {submission_id}")), ("input", submission_id)
            for turn in range(len(plan) + self.scope.attempts):
                yield self.message(submission_id, turn), ("says", submission_id, str(turn))
