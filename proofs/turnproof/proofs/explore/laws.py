"""What must hold: in every state of the store, on every step of a worker, and for what was done to the outside world.

A law answers a ``Fault`` that names the promise. State laws look at the durable state alone; step laws at one operation
of one worker, before and after; world laws at counts that are never rolled back.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Final

from attrs import frozen

from turnproof.model import operations as ops
from turnproof.model.conversation import read, recorded_request
from turnproof.model.driver import Driver
from turnproof.model.journal import invariant
from turnproof.model.recovery import classify
from turnproof.model.rows import Slot, Submission
from turnproof.model.state import State
from turnproof.model.submission import owns
from turnproof.model.transcript import Damage
from turnproof.model.vocabulary import Status
from turnproof.proofs.explore.scope import NOW, SESSION, Script

__all__ = ["LAWS", "Event", "Fault", "World", "act_on", "conversation_faults", "state_fault", "step_fault"]


LAWS: Final = frozenset({"C1", "C2", "E1", "E2", "E3", "E4", "E5", "E6", "E7", "J6", "J8", "L2", "L6", "P3"})
"""The promises that are checked here, in every state or at every step."""


@frozen
class Fault:
    """A broken promise, and what is wrong."""

    promise: str
    text: str

    def __str__(self) -> str:
        return f"{self.promise}: {self.text}"


# --- the durable state ----------------------------------------------------------------------------------------------


def state_fault(state: State, script: Script) -> Fault | None:
    """The first law that a state of the store breaks."""
    return next(_state_faults(state, script), None)


def _state_faults(state: State, script: Script) -> Iterator[Fault]:
    rows = tuple(state.submissions.values())
    for submission_id, slot in state.slots.items():
        if not invariant(slot):
            yield Fault("J6", f"the slot of {submission_id} stands in {slot.phase.value} without what the phase needs")
    if sum(row.status is Status.RUNNING for row in rows) > 1:
        yield Fault("L2", "two submissions of one session are running")
    for row in rows:
        owners = len(state.former.get(row.submission_id, ()))
        if row.attempt_count != owners:
            yield Fault("E5", f"{row.submission_id} had {owners} attempts and counts {row.attempt_count}")
    if SESSION in state.runs:
        yield from _conversation_faults(state, script)


def _conversation_faults(state: State, script: Script) -> Iterator[Fault]:
    running = state.running_in(SESSION)
    recorded = None if running is None else recorded_request(running, state.slots.get(running.submission_id))
    reading = read(state.transcript(SESSION, script.scope.choices), recorded, script.scope.choices)
    if isinstance(reading, Damage):
        yield Fault("P3", f"the conversation is corrupt: {reading}")
        return
    yield from conversation_faults(script, state.submissions.values(), reading.messages)


def conversation_faults(script: Script, rows: Iterable[Submission[str]], messages: Iterable[str]) -> Iterator[Fault]:
    """What a session's conversation says that an uncrashed run would not, or lacks (E3, E6). Rows as admitted."""
    tokens = [script.tokens.get(message, ("?",)) for message in messages]
    for row in rows:
        answered = row.status is Status.SETTLED and row.error is None
        problem, tokens = _told(script, row.submission_id, tokens, whole=answered, ended=row.status is Status.SETTLED)
        if problem:
            yield Fault("E6" if answered else "E3", problem)
    if tokens:
        yield Fault("E3", f"the active path holds what no uncrashed run says there: {' '.join(tokens[0])}")


def _told(
    script: Script, submission_id: str, tokens: list[tuple[str, ...]], *, whole: bool, ended: bool
) -> tuple[str, list[tuple[str, ...]]]:
    """What is wrong with a submission's part of the path, and the tokens after it.

    The path must be what an uncrashed run says, up to interrupted results (E6): whole if it was completed, a beginning
    if it is at work or was given up, and then without an open call.
    """
    plan = script.scope.plan[script.scope.submissions.index(submission_id)]
    if tokens[:1] != [("input", submission_id)]:
        return ("the input is not on the path" if whole else ""), tokens
    tokens = tokens[1:]
    for turn, calls in enumerate(plan):
        if tokens[:1] != [("says", submission_id, str(turn))]:
            return (f"{submission_id} was completed without its answer" if whole else ""), tokens
        tokens = tokens[1:]
        for n in range(calls):
            if tokens[:1] not in ([("result", f"c{n + 1}")], [("interrupted", f"c{n + 1}")]):
                return (f"{submission_id} was settled with an open call" if ended else ""), tokens
            tokens = tokens[1:]
    return "", tokens


# --- one step of one worker -----------------------------------------------------------------------------------------


def step_fault(driver: Driver, operation: ops.Operation, before: State, after: State) -> Fault | None:
    """The first law that an operation of a worker breaks."""
    return next(_step_faults(driver, operation, before, after), None)


def _step_faults(driver: Driver, operation: ops.Operation, before: State, after: State) -> Iterator[Fault]:
    if before is after or before == after:
        return
    job = driver.job
    row = before.submissions.get(job.submission_id)
    taking = isinstance(operation, ops.Claim | ops.ReplaceTurnJournalAttempt)
    if not taking and not isinstance(operation, ops.AppendStreamSegment) and not owns(row, job.attempt_id):
        if job.attempt_id in before.former.get(job.submission_id, ()):
            yield Fault("E7", f"{operation.verb} of a superseded attempt changed what is stored")
        else:
            yield Fault("C2", f"{operation.verb} changed history before the transfer succeeded")
    if isinstance(operation, ops.FailSubmission) and row is not None:
        slot = before.slots.get(job.submission_id)
        found = classify(row, slot, before.transcript(row.session_key), NOW).decision
        if found == "commit_stored" or (found == "finish" and slot is not None and slot.tool_request is None):
            yield Fault("C1", "finished work was made a failure")
    yield from _lost(before, after, operation)


def _lost(before: State, after: State, operation: ops.Operation) -> Iterator[Fault]:
    """E4, R2, J8, L6: what was acknowledged stays."""
    for run_id, run in before.runs.items():
        if after.runs[run_id].records[: len(run.records)] != run.records:
            yield Fault("E4", f"{operation.verb} changed a stored record")
    for key, segments in before.segments.items():
        if not set(segments) <= set(after.segments.get(key, ())):
            yield Fault("E4", f"{operation.verb} lost what was shown")
    for submission_id, row in before.submissions.items():
        if row.status is Status.SETTLED and after.submissions[submission_id] != row:
            yield Fault("L6", f"{operation.verb} changed a settled submission")
    for submission_id, slot in before.slots.items():
        now: Slot[str] = after.slots[submission_id]
        if slot.committed and now != slot and not isinstance(operation, ops.BeginTurnJournal):
            yield Fault("J8", f"{operation.verb} changed a committed slot")


# --- the outside world ----------------------------------------------------------------------------------------------

Event = tuple[str, ...]
"""What is done once and for all: ``(asks, s, turn)``, ``(records, s, turn)``, ``(runs, s, turn, call, input)`` or
``(commits, s, turn)``."""


@frozen
class World:
    """How often each thing was done; never rolled back."""

    events: frozenset[tuple[Event, int]] = frozenset()


def act_on(world: World, event: Event) -> tuple[World, Fault | None]:
    """The world after an event, and the law that the event breaks."""
    counts: Counter[Event] = Counter(dict(world.events))
    counts[event] += 1
    return World(frozenset(counts.items())), _world_fault(counts, event)


def _world_fault(counts: Counter[Event], event: Event) -> Fault | None:
    kind, *turn = event[:3]
    named = ":".join(turn)
    if kind == "asks" and counts["records", *turn]:
        return Fault("E2", f"the provider is asked for turn {named} after its tool request was recorded")
    if kind == "commits" and counts[event] > 1:
        return Fault("E3", f"turn {named} is committed {counts[event]} times")
    if kind == "runs":
        if counts[event] > 1:
            return Fault("E1", f"a tool runs {counts[event]} times for one request of turn {named}")
        if sum(n for other, n in counts.items() if other[0] == "runs" and other[4] == event[4]) > 1:
            return Fault("E1", f"the work {event[4]} is done twice")
    return None
