"""What is done after a crash: the work that must be possible on whatever a crash left (X1: "work goes on").

It depends on the state and on the operation that was in flight, so it is thought out once for each and then put to
every image that holds that state.
"""

from __future__ import annotations

from typing import Final
from weakref import WeakKeyDictionary

import attrs

from turnproof.model import operations as ops
from turnproof.model.choices import STRICT
from turnproof.model.driver import Job
from turnproof.model.operations import Operation
from turnproof.model.rows import Draft
from turnproof.model.state import State
from turnproof.model.vocabulary import Status
from turnproof.proofs.crash.acting import perform
from turnproof.proofs.crash.script import Legacy, Moment, Timeline, adopt
from turnproof.proofs.subjects import Expected, expected

__all__ = ["Aftermath", "Memory", "after", "memory_of"]

_LATER: Final = 100_000_000
"""When the aftermath happens, in ms: after everything in any scenario."""


@attrs.frozen(eq=False)
class Aftermath:
    """The work that goes on after a crash that left one state, with the model's answers, and the state in the end."""

    operations: tuple[Operation, ...]
    answers: tuple[Expected, ...]
    end: Moment


def after(state: State, flying: Operation | None) -> Aftermath:
    """What is done after a crash: retry, finish deletions, recover, new work."""
    operations: list[Operation] = []
    answers: list[Expected] = []

    def do(operation: Operation) -> None:
        nonlocal state
        answer = expected(operation, state, STRICT)
        operations.append(operation)
        answers.append(answer)
        state = answer.state

    if flying is not None:
        do(flying)
    for session in sorted(state.deletions):
        do(ops.DeleteSession(now=_LATER, session_key=session))
    for row in [row for row in state.submissions.values() if row.status is Status.RUNNING]:
        rescue = Job(
            submission_id=row.submission_id,
            attempt_id=f"rescue of {row.attempt_id}",
            owner_id="rescuer",
            predecessor=row.attempt_id,
        )
        for operation in perform(state, rescue, now=_LATER):
            if not operation.reads:  # everything is read in the end
                do(operation)
    do(ops.Admit(now=_LATER, submission_id="new", session_key="new", kind="direct", payload="{}", accepted_at=_LATER))
    do(ops.Append(now=_LATER, run_id="new", record=Draft(kind="trigger", text="new work")))
    for run_id in state.runs:
        do(ops.Inspect(now=_LATER, run_id=run_id))
    return Aftermath(tuple(operations), tuple(answers), Moment(state))


@attrs.define(eq=False)
class Memory:
    """What was thought out for one timeline, shared by all who judge by it."""

    aftermaths: dict[tuple[Moment, int, str], Aftermath] = attrs.Factory(dict)
    imported: dict[Moment, Moment] = attrs.Factory(dict)

    def adopted(self, moment: Moment, legacy: Legacy) -> Moment:
        """A state as opening shows it: with what waited for import (R12)."""
        if moment not in self.imported:
            self.imported[moment] = Moment(adopt(moment.state, legacy))
        return self.imported[moment]


_MEMORIES: Final[WeakKeyDictionary[Timeline, Memory]] = WeakKeyDictionary()


def memory_of(told: Timeline) -> Memory:
    return _MEMORIES.setdefault(told, Memory())
