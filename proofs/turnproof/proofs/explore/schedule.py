"""Long runs: many submissions, any schedule, on any store; what enumeration does not reach.

The workers are the explorer's, the laws too; the store is a real one behind ``runner.Ask``, and the schedule is drawn
by whoever calls ``choose`` (Hypothesis, a seed). Time moves with every step, so that leases really pass.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import attrs

from turnproof.model import operations as ops
from turnproof.model.decision import Accept
from turnproof.model.driver import (
    Answer,
    Assemble,
    Driver,
    End,
    Job,
    Piece,
    ProviderCall,
    Said,
    Stage,
    StoreCall,
    ToolRun,
)
from turnproof.model.rows import Restored, Slot, Submission
from turnproof.model.turn import next_step, receive, start
from turnproof.model.vocabulary import Phase, Status
from turnproof.proofs.explore.laws import Event, Fault, World, act_on, conversation_faults
from turnproof.proofs.explore.scope import NOW, Scope, Script
from turnproof.proofs.runner import Ask

__all__ = ["Schedule"]

_TICK = 10
_LEASE_MS = 50


@attrs.define
class Schedule:
    """A run in progress: the store, the workers, the world outside, and what was seen."""

    ask: Ask
    scope: Scope
    workers: list[Driver | None] = attrs.field(init=False)
    world: World = attrs.Factory(World)
    now: int = NOW
    attempts: int = 0
    crashes: int = 0
    refusals: int = 0
    decisions: set[str] = attrs.Factory(set)
    faults: list[Fault] = attrs.Factory(list)
    _script: Script = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.workers = [None] * self.scope.workers
        self._script = Script(self.scope)
        for operation in self.scope.admissions():
            self.ask(operation)

    def run(self, choices: Sequence[int]) -> None:
        """One move for each choice, then everything to its end."""
        for choice in choices:
            moves = self._moves()
            moves[choice % len(moves)]()
        self._finish()

    # --- moves ---

    def _moves(self) -> list[Callable[[], None]]:
        """What may happen next: a step of a worker (several times, to come forward), its death, or new work."""
        moves: list[Callable[[], None]] = []
        for place, driver in enumerate(self.workers):
            if driver is None:
                moves += [self._starter(place, job) for job in self._jobs()]
            else:
                moves += [self._stepper(place)] * 4 + [self._killer(place)]
        return moves or [self._wait]

    def _wait(self) -> None:
        self.now += _TICK

    def _starter(self, place: int, job: Job) -> Callable[[], None]:
        def begin() -> None:
            self.workers[place] = start(job)

        return begin

    def _stepper(self, place: int) -> Callable[[], None]:
        return lambda: self._step(place)

    def _killer(self, place: int) -> Callable[[], None]:
        def kill() -> None:
            self.workers[place] = None
            self.crashes += 1

        return kill

    def _jobs(self) -> list[Job]:
        """A claim of each runnable submission, a takeover of each whose lease has passed."""
        jobs = []
        for row in (*self._rows(ops.ListRunnable(now=self.now)), *self._rows(ops.ListExpired(now=self.now))):
            self.attempts += 1
            queued = row.status is Status.QUEUED
            jobs.append(
                Job(
                    submission_id=row.submission_id,
                    attempt_id=f"a{self.attempts}",
                    owner_id=f"w{self.attempts}",
                    predecessor=None if queued else row.attempt_id,
                    observed_lease=None if queued else row.lease_expires_at,
                    lease_ms=_LEASE_MS,
                    max_retry=self.scope.retries_of(row.submission_id),
                    atomic_steps=self.scope.atomic_steps,
                    choices=self.scope.choices,
                )
            )
        return jobs

    def _step(self, place: int) -> None:
        driver = self.workers[place]
        if driver is None:
            return
        self.now += _TICK
        step = next_step(driver, self.now)
        match step:
            case StoreCall(operation):
                answer: Answer = self._asked(driver, operation)
            case ProviderCall():
                answer = self._heard(step)
            case ToolRun(calls=(call, *_)):
                self._act(("runs", step.submission_id, step.turn_id, call.id, call.input))
                answer = self._script.outcome(call.id)
            case Assemble(pieces=pieces):
                answer = Said("".join(pieces))
            case _:
                raise AssertionError(f"a driver that is done was left at work: {step}")
        driver = receive(driver, answer, self.now)
        self.decisions.add(driver.decision)
        if driver.end is End.ERROR:
            self.faults.append(Fault("E5", f"the driver cannot go on: {driver.error}"))
        self.workers[place] = None if driver.stage is Stage.DONE else driver

    def _heard(self, call: ProviderCall) -> Answer:
        pieces = self._script.pieces(call)
        if call.received == 0:
            self._act(("asks", call.submission_id, call.turn_id))
        return Piece(pieces[call.received]) if call.received < len(pieces) else Said("".join(pieces))

    def _asked(self, driver: Driver, operation: ops.Operation) -> Answer:
        """The store's answer. E7: one who does not own the submission is accepted with nothing but a segment."""
        row, slot = self._row(driver), self._slot(driver)
        answer = self.ask(operation)
        taking = isinstance(operation, ops.Claim | ops.ReplaceTurnJournalAttempt | ops.AppendStreamSegment)
        if not isinstance(answer, Accept):
            self.refusals += 1
        elif not operation.reads and not taking:
            if row.attempt_id != driver.job.attempt_id or row.status is not Status.RUNNING:
                self.faults.append(Fault("E7", f"{operation.verb} of a superseded attempt was accepted"))
            event = _event_of(operation)
            if event is not None and slot is not None:
                self._act((event, slot.submission_id, slot.turn_id))
        return answer

    def _act(self, event: Event) -> None:
        self.world, fault = act_on(self.world, event)
        if fault is not None:
            self.faults.append(fault)

    # --- the end ---

    def _finish(self) -> None:
        """Every frozen worker wakes, every lease passes, and what is left is recovered, until all is settled (E5)."""
        for _ in range(len(self.scope.plan) * self.scope.workers * 4):
            for place in range(len(self.workers)):
                while self.workers[place] is not None:
                    self._step(place)
            self.now += 10 * _LEASE_MS
            jobs = self._jobs()
            if not jobs:
                break
            self.workers[0] = start(jobs[0])
        rows = [self._get(submission_id) for submission_id in self.scope.submissions]
        for row in rows:
            if row.status is not Status.SETTLED:
                self.faults.append(Fault("E5", f"{row.submission_id} does not end settled"))
        answer = self.ask(ops.Inspect(now=self.now, run_id=self.scope.session))
        if isinstance(answer, Accept) and isinstance(answer.value, Restored):
            self.faults += conversation_faults(self._script, rows, answer.value.messages)
        else:
            self.faults.append(Fault("P3", f"the conversation cannot be read: {answer}"))

    def _get(self, submission_id: str) -> Submission[str]:
        answer = self.ask(ops.GetSubmission(now=self.now, submission_id=submission_id))
        if isinstance(answer, Accept) and isinstance(answer.value, Submission):
            return answer.value
        raise AssertionError(f"an admitted submission is gone: {submission_id}")

    def _row(self, driver: Driver) -> Submission[str]:
        return self._get(driver.job.submission_id)

    def _slot(self, driver: Driver) -> Slot[str] | None:
        answer = self.ask(ops.GetTurnJournal(now=self.now, submission_id=driver.job.submission_id))
        return answer.value if isinstance(answer, Accept) and isinstance(answer.value, Slot) else None

    def _rows(self, operation: ops.Operation) -> tuple[Submission[str], ...]:
        answer = self.ask(operation)
        found = answer.value if isinstance(answer, Accept) else ()
        return tuple(row for row in found if isinstance(row, Submission)) if isinstance(found, tuple) else ()


def _event_of(operation: ops.Operation) -> str | None:
    """What an accepted operation does once and for all, as the laws call it."""
    match operation:
        case ops.CommitTurnJournal():
            return "commits"
        case ops.UpdateTurnJournalPhase(phase=Phase.TOOL_REQUEST_RECORDED):
            return "records"
        case _:
            return None
