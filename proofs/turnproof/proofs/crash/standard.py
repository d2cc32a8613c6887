"""What `turnproof crash` runs: each mode over each scenario, until a budget is spent, and what came of it.

The budget is shared fairly: a cell of the matrix that is done early leaves its time to the others, and a cell that ran
out of time says so, since a point that was not crashed was not judged.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, Literal, TypeAlias

import attrs

from turnproof.proofs.crash.counterexample import OURS, Counterexample, Point, of_crash
from turnproof.proofs.crash.draws import sweep_drawn
from turnproof.proofs.crash.faulting import FaultSweep, sweep_faults
from turnproof.proofs.crash.judge import ALL, FIRST
from turnproof.proofs.crash.scenarios import SCENARIOS, STANDARD
from turnproof.proofs.crash.script import Scenario
from turnproof.proofs.crash.stage import ALWAYS, Nonconforming, Played, Setting, record
from turnproof.proofs.crash.sweep import Counts, Mode, Sweep, sweep, sweep_deeper

__all__ = ["Cell", "CellMode", "Summary", "run_matrix", "standard_set"]

CellMode: TypeAlias = Literal["kill", "power", "fault"]
_DRAWN: Final = "drawn at random"
_KEPT: Final = 3
"""Counterexamples that are kept of one cell: the first ones, which are the earliest."""


@attrs.frozen(kw_only=True)
class Cell:
    """One scenario in one mode."""

    scenario: str
    mode: CellMode
    depth: int = 1
    counts: Counts = attrs.Factory(Counts)
    seconds: float = 0.0
    complete: bool = True
    counterexamples: tuple[Counterexample, ...] = ()


@attrs.define
class Summary:
    """All that ran. ``facts`` are the settings that the store read back (X6)."""

    facts: Mapping[str, str] = attrs.Factory(dict)
    cells: list[Cell] = attrs.Factory(list)

    @property
    def violations(self) -> int:
        return sum(cell.counts.violations for cell in self.cells)

    @property
    def complete(self) -> bool:
        return all(cell.complete for cell in self.cells)

    @property
    def counterexamples(self) -> tuple[Counterexample, ...]:
        return tuple(example for cell in self.cells for example in cell.counterexamples)

    def total(self, mode: CellMode) -> Cell:
        """The sum of the cells of one mode."""
        cells = [cell for cell in self.cells if cell.mode == mode]
        counts = Counts()
        for cell in cells:
            counts.add(cell.counts)
        seconds = sum(cell.seconds for cell in cells)
        return Cell(scenario="all", mode=mode, counts=counts, seconds=seconds, complete=all(c.complete for c in cells))


@attrs.frozen
class _Task:
    """One cell that is to be run."""

    scenario: Scenario
    mode: CellMode
    depth: int


def run_matrix(
    scenarios: Sequence[Scenario],
    modes: Sequence[CellMode],
    *,
    depth: int = 1,
    setting: Setting = ALWAYS,
    store: str = OURS,
    budget: float = float("inf"),
    seed: int = 1,
    drawn: bool = False,
    alike: float = ALL,
    progress: Callable[[Cell], None] = lambda _: None,
) -> Summary:
    """Run every cell. ``depth`` 2 adds the crashes that follow a crash, ``drawn`` random histories after the rest."""
    summary, end = Summary(), time.monotonic() + budget
    tasks = [
        _Task(scenario, mode, level)
        for level in range(1, depth + 1)
        for mode in modes
        for scenario in scenarios
        if level == 1 or mode != "fault"
    ]
    played: dict[str, Played | Cell] = {}
    for place, task in enumerate(tasks):
        share = (end - time.monotonic()) / (len(tasks) - place + (1 if drawn else 0))
        cell = _run(task, played, setting, store, time.monotonic() + share, seed, alike)
        summary.cells.append(cell)
        progress(cell)
    crashing: list[Mode] = [mode for mode in modes if mode != "fault"]
    if drawn and crashing:
        summary.cells += _drawn(crashing, setting, store, end, seed)
    summary.facts = next((one.facts for one in played.values() if isinstance(one, Played)), {})
    return summary


def _run(
    task: _Task,
    played: dict[str, Played | Cell],
    setting: Setting,
    store: str,
    until: float,
    seed: int,
    alike: float,
) -> Cell:
    start = time.monotonic()
    name = task.scenario.name
    if name not in played:
        try:
            played[name] = record(task.scenario, setting, seed)
        except Nonconforming as wrong:
            played[name] = _not_crashed(task, wrong, setting, store, seed)
    run = played[name]
    if isinstance(run, Cell):
        return attrs.evolve(run, mode=task.mode)
    if task.mode == "fault":
        return _of_faults(sweep_faults(task.scenario, setting, until, seed), setting, store, seed, start)
    swept = (sweep if task.depth == 1 else sweep_deeper)(run, task.mode, until, seed, alike)
    return _of_sweep(swept, store, seed, start)


def _not_crashed(task: _Task, wrong: Nonconforming, setting: Setting, store: str, seed: int) -> Cell:
    """A store that answers wrongly before anything crashed: one violation, and nothing else to be learnt here."""
    example = Counterexample(
        scenario=task.scenario, store=store, flush=setting.flush, seed=seed, crash=Point("kill", 0), what=str(wrong)
    )
    return Cell(scenario=task.scenario.name, mode=task.mode, counts=Counts(violations=1), counterexamples=(example,))


def _of_sweep(swept: Sweep, store: str, seed: int, start: float) -> Cell:
    return Cell(
        scenario=swept.played.scenario.name,
        mode=swept.mode,
        depth=swept.depth,
        seconds=time.monotonic() - start,
        complete=swept.complete,
        counterexamples=tuple(of_crash(swept.played, crash, store, seed) for crash in swept.crashes[:_KEPT]),
        counts=swept.counts,
    )


def _of_faults(swept: FaultSweep, setting: Setting, store: str, seed: int, start: float) -> Cell:
    examples = tuple(
        Counterexample(
            scenario=swept.scenario,
            store=store,
            flush=setting.flush,
            seed=seed,
            fault=fault,
            promise=finding.promise,
            what=finding.what,
            expected=finding.expected,
            got=finding.got,
        )
        for fault, finding in swept.found[:_KEPT]
    )
    counts = Counts(writes=swept.calls, points=swept.counts.points, violations=swept.counts.violations)
    return Cell(
        scenario=swept.scenario.name,
        mode="fault",
        counts=counts,
        seconds=time.monotonic() - start,
        complete=swept.complete,
        counterexamples=examples,
    )


def _drawn(modes: Sequence[Mode], setting: Setting, store: str, end: float, seed: int) -> Iterator[Cell]:
    """Histories drawn at random, with what time is left."""
    for place, mode in enumerate(modes):
        start = time.monotonic()
        if start >= end:
            return
        drawn = sweep_drawn([mode], setting, until=start + (end - start) / (len(modes) - place), seed=seed)
        found = () if drawn.found is None else (of_crash(*drawn.found, store, 1),)
        yield Cell(
            scenario=f"{_DRAWN} ({drawn.histories})",
            mode=mode,
            seconds=time.monotonic() - start,
            counterexamples=found,
            counts=drawn.counts,
        )


def standard_set(budget: float = 5.0, *, setting: Setting = ALWAYS, seed: int = 1) -> Summary:
    """What `turnproof check` runs by default: the scenarios that matter most, kills and power cuts, some faults."""
    wanted = ("creation", "turn with tools", "deletion", "import", "recovery: tools recorded")
    chosen = [scenario for scenario in STANDARD if scenario.name in wanted]
    summary = run_matrix(chosen, ("kill",), setting=setting, budget=budget, seed=seed, alike=FIRST)
    left = max(0.5, budget - sum(cell.seconds for cell in summary.cells))
    more = run_matrix(chosen, ("power", "fault"), setting=setting, budget=left, seed=seed, alike=FIRST)
    summary.cells += more.cells
    return summary


def scenarios_for(depth: int) -> tuple[Scenario, ...]:
    """All scenarios; at depth 2 the standard ones, exhaustively."""
    return SCENARIOS if depth == 1 else STANDARD
