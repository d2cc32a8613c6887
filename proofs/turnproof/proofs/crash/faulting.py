"""Faults: the k-th write-like call of a scenario fails, for k = 1, 2, 3 … until a run completes unharmed (X3).

While the fault lasts a step is either answered as the model answers it, or by a typed `storage_error`. Then nothing of
it may be visible (of a deletion: whole units may), and the store goes on: the same step, tried again, is answered as if
the first try had not been, or the store says that it must be opened again and does so then.

What a failed step leaves *on the disk* is a second question, asked by killing the process there and then. A commit
whose sync failed was refused, and no reader of the running process sees it; yet its frames stand in the write-ahead
log, whole, and who opens the file after a kill cannot tell them from a commit. So until the next accepted write (which
overwrites them) a failed step is *in doubt*: after a kill it may be there whole, like a step in flight. That is no
loophole: nobody was told that it happened, and a retry is safe either way. Acknowledged work is never in doubt.
"""

from __future__ import annotations

import itertools
import time
from typing import Final

import attrs

from turnproof.model.choices import STRICT
from turnproof.model.operations import Operation
from turnproof.model.state import State
from turnproof.model.vocabulary import TurnproofError
from turnproof.proofs.compare import Comparison
from turnproof.proofs.crash.judge import Finding, Judge, difference
from turnproof.proofs.crash.script import Moment, Scenario, Step, adopt, timeline
from turnproof.proofs.crash.stage import ALWAYS, Setting, Stage, prepare
from turnproof.proofs.disk import Disk, FaultPlan, Image, Mark, reproducible
from turnproof.proofs.disk.faults import Call, FaultKind
from turnproof.proofs.subjects import expected
from turnproof.proofs.wire import Err, Ok, Outcome

__all__ = ["PLANS", "Fault", "FaultCounts", "FaultSweep", "one_fault", "sweep_faults"]

_FAILED: Final = "storage_error"

_KINDS: Final[tuple[tuple[FaultKind, Call], ...]] = (
    ("eio", "any"),
    ("enospc", "any"),
    ("short", "write"),
    ("fsync", "sync"),
)
PLANS: Final = tuple((kind, call, sticky) for kind, call in _KINDS for sticky in (False, True))
"""Each kind once, and from then on."""


@attrs.frozen
class Fault:
    """Which call of a scenario fails, and how."""

    kind: FaultKind
    call: Call
    sticky: bool
    nth: int

    def plan(self) -> FaultPlan:
        return FaultPlan(kind=self.kind, call=self.call, nth=self.nth, sticky=self.sticky)

    def __str__(self) -> str:
        return f"{self.kind} from {self.call} call {self.nth}{' on' if self.sticky else ''}"


@attrs.define
class FaultCounts:
    """``points``: runs in which a call failed. ``answered``: steps answered by an error; ``silent``: faults that no
    step had to be told of (a checkpoint that is made later, a close)."""

    points: int = 0
    answered: int = 0
    silent: int = 0
    reopened: int = 0
    violations: int = 0


@attrs.define(eq=False)
class FaultSweep:
    scenario: Scenario
    counts: FaultCounts = attrs.field(factory=FaultCounts)
    calls: int = 0
    """Write-like calls of an unharmed run."""
    found: list[tuple[Fault, Finding]] = attrs.field(factory=list)
    complete: bool = True


def sweep_faults(
    scenario: Scenario, setting: Setting = ALWAYS, until: float = float("inf"), seed: int = 1
) -> FaultSweep:
    """Every kind of fault at every call of a scenario."""
    result = FaultSweep(scenario)
    with Disk() as disk, _judge_of(scenario, setting) as judge:
        prepare(disk, scenario, setting)
        base = disk.snapshot()
        for kind, call, sticky in PLANS:
            for nth in itertools.count(1):
                if result.counts.points and time.monotonic() > until:
                    result.complete = False
                    return result
                fault = Fault(kind, call, sticky, nth)
                disk.load(base)
                run = _Run(disk, scenario, setting, judge, result.counts)
                plan = fault.plan()
                finding = run.go(plan, seed)
                if not plan.fired:
                    result.calls = max(result.calls, plan.seen)
                    break
                result.counts.points += 1
                if finding is not None:
                    result.counts.violations += 1
                    result.found.append((fault, finding))
    return result


def one_fault(scenario: Scenario, fault: Fault, setting: Setting = ALWAYS, seed: int = 1) -> Finding | None:
    """One run of a sweep again."""
    with Disk() as disk, _judge_of(scenario, setting) as judge:
        prepare(disk, scenario, setting)
        disk.load(disk.snapshot())
        return _Run(disk, scenario, setting, judge, FaultCounts()).go(fault.plan(), seed)


def _judge_of(scenario: Scenario, setting: Setting) -> Judge:
    told = timeline(scenario.start(), scenario.steps, scenario.legacy)
    return Judge(told, scenario.steps, scenario.legacy, setting)


class _Wrong(Exception):
    def __init__(self, finding: Finding) -> None:
        self.finding = finding


@attrs.define(eq=False)
class _Run:
    """One run under one fault."""

    disk: Disk
    scenario: Scenario
    setting: Setting
    judge: Judge
    counts: FaultCounts
    state: State = attrs.field(init=False)
    doubt: list[State] = attrs.field(factory=list, init=False)
    """What a kill may leave besides ``state``."""
    same: Comparison = attrs.field(factory=Comparison, init=False)
    stage: Stage = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.state = self.scenario.start()
        self.stage = Stage(self.disk, self.setting, self.scenario.wal_autocheckpoint)

    def go(self, plan: FaultPlan, seed: int) -> Finding | None:
        """What is wrong."""
        answered = self.counts.answered
        reproducible(seed + 1)
        try:
            self._play(plan)
            self._after_kill()
            self.stage.close()
            self._after_close()
        except _Wrong as wrong:
            return wrong.finding
        finally:
            self.stage.close()
            reproducible(0)
        self.counts.silent += bool(plan.fired) and answered == self.counts.answered
        return None

    def _play(self, plan: FaultPlan) -> None:
        for step in self.scenario.steps:
            with self.disk.failing(plan):
                got = self._take(step)
            if self._is_right(step, got):
                continue
            if not (isinstance(got, Err) and got.code == _FAILED and plan.fired):
                raise _Wrong(Finding("X3", f"{step.label} is answered neither rightly nor by an error", "", str(got)))
            self.counts.answered += 1
            self._failed(step)
            if plan.sticky and step.what == "open":
                return
            if not plan.sticky:
                self._retry(step)

    def _take(self, step: Step) -> Outcome:
        """Take a step; an exception that is not typed is a wrong answer."""
        try:
            return self.stage.take(step)
        except Exception as error:
            return Err("exception", f"{type(error).__name__}: {error}")

    def _is_right(self, step: Step, got: Outcome) -> bool:
        """Whether this is the model's answer; then the model moves on, and nothing earlier is in doubt any more."""
        if isinstance(step.what, Operation):
            answer = expected(step.what, self.state, STRICT)
            wanted, after = answer.outcome, answer.state
        else:
            wanted = Ok(None)
            after = adopt(self.state, self.scenario.legacy) if step.what == "open" else self.state
        if not self.same.same(wanted, got):
            return False
        if after != self.state:
            self.doubt.clear()
        self.state = after
        return True

    def _failed(self, step: Step) -> None:
        """An error was answered: nothing is visible, and what a kill would show is noted."""
        possible = [moment.state for moment in timeline(self.state, [step], self.scenario.legacy).flying[0]]
        self.doubt += possible[1:]
        store = next(iter(self.stage.stores.values()), None)
        if store is None:
            return
        try:
            dump = store.dump()
        except TurnproofError as error:
            if error.code != _FAILED:
                raise _Wrong(Finding("X3", f"after {step.label} failed, reading answers {error.code}")) from None
            self._reopen(step, possible)
            return
        hidden = possible[:-1] if len(possible) > 1 else possible
        if step.what == "open":
            hidden = possible  # a second store on the file: the first one may see what was imported
        seen = next((state for state in hidden if Moment(state).dump == dump), None)
        if seen is None:
            raise _Wrong(
                Finding("X3", f"{step.label} failed and is visible", *difference(Moment(self.state).dump, dump))
            )
        self.state = seen

    def _reopen(self, step: Step, possible: list[State]) -> None:
        """The store says that it must be opened again: then it shows what was, or all of the failed step."""
        self.counts.reopened += 1
        numbers = list(self.stage.stores)
        self.stage.close()
        for number in numbers:
            self.stage.open(number)
        dump = self.stage.stores[numbers[0]].dump()
        seen = next((state for state in [*possible, *self.doubt] if Moment(state).dump == dump), None)
        if seen is None:
            raise _Wrong(Finding("X3", f"after {step.label} failed and a reopening the state is neither"))
        self.state = seen
        self.doubt.clear()

    def _retry(self, step: Step) -> None:
        """The fault is over: the same step again must be answered as if it had not been tried."""
        got = self._take(step)
        if isinstance(got, Err) and got.code == _FAILED and self.stage.stores:
            self._reopen(step, [self.state])
            got = self._take(step)
        if not self._is_right(step, got):
            raise _Wrong(Finding("X3", f"{step.label}, tried again after the fault, is answered wrongly", "", str(got)))

    def _after_kill(self) -> None:
        self._judge(self.disk.snapshot(), [self.state, *reversed(self.doubt)], "a kill after the fault")

    def _after_close(self) -> None:
        """A closed store moved its log: what was never visible is gone for good unless closing failed too."""
        self._judge(self.disk.snapshot(), [self.state, *reversed(self.doubt)], "closing after the fault")

    def _judge(self, files: dict[str, bytes], states: list[State], when: str) -> None:
        image = Image(files, 0, "kill", "", 0, Mark(), b"")
        finding = self.judge.judge(image, [Moment(state) for state in states])
        if finding is not None:
            raise _Wrong(attrs.evolve(finding, promise="X3", what=f"{when}: {finding.what}"))
