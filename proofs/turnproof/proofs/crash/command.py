"""``turnproof crash``: crash our store at every write, and prove that the crashes happened.

Modes: ``kill`` (X1), ``power`` (X2), ``fault`` (X3, with obstacles on a real file system), ``process`` (children killed
by SIGKILL, at random and at each of their first system calls), ``all``.
"""

from __future__ import annotations

import argparse
import random
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, cast

import attrs

from turnproof.model.promises import PROMISES
from turnproof.model.vocabulary import InvalidArgument
from turnproof.proofs import fleet
from turnproof.proofs.crash.counterexample import OURS, Counterexample, Replayed, read, replay
from turnproof.proofs.crash.evidence import counts, judgements, proof, saved, violation_of
from turnproof.proofs.crash.judge import ALL, FIRST
from turnproof.proofs.crash.obstacles import Met, meet_all
from turnproof.proofs.crash.process import Trials, forked
from turnproof.proofs.crash.scenarios import SCENARIOS, by_name
from turnproof.proofs.crash.stage import Setting
from turnproof.proofs.crash.standard import Cell, CellMode, Summary, run_matrix, scenarios_for
from turnproof.proofs.crash.wrong import WRONG
from turnproof.proofs.disk import DiskError, DiskUnavailable
from turnproof.proofs.report import Report, Violation, environment, write_json, write_reports
from turnproof.proofs.subjects import Flush, Identity, StoreSubject
from turnproof.proofs.terminal import UserError, add_report_options, add_seed_option, seconds

__all__ = ["add_arguments", "replay_crash", "run"]

MODES: Final[dict[str, tuple[CellMode, ...]]] = {
    "kill": ("kill",),
    "power": ("power",),
    "fault": ("fault",),
    "process": (),
    "all": ("kill", "power", "fault"),
}
_KILLS, _CALLS = 200, 300
_PROCESSES: Final = 0.3
"""Part of a budget that real processes get; some 20 of them are killed a second."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = 'example: turnproof crash --mode power --scenario "turn with tools" --depth 2'
    parser.add_argument("--mode", choices=MODES, default="all", help="what crashes (all)")
    parser.add_argument("--scenario", metavar="NAME", help="only this one, or those that start so ('list' lists them)")
    parser.add_argument("--depth", type=int, choices=(1, 2), default=1, help="2: crash what follows a crash too")
    parser.add_argument(
        "--budget", type=seconds, metavar="SECONDS", help="stop after so long, undecided (default: every point)"
    )
    parser.add_argument("--flush", choices=("always", "relaxed"), default="always", help="flush policy (always)")
    parser.add_argument("--wrong", metavar="NAME", help="crash a wrong store instead ('list' lists them)")
    parser.add_argument("--traces", metavar="DIR", default=".", help="where counterexamples are saved (here)")
    parser.add_argument("--workers", type=int, metavar="N", help="run a fleet of N killed processes instead")
    parser.add_argument("--submissions", type=int, metavar="M", default=200, help="of the fleet (200)")
    add_seed_option(parser)
    add_report_options(parser)


def run(args: argparse.Namespace) -> int:
    seed = random.SystemRandom().randrange(2**31) if args.seed is None else args.seed
    if args.workers is not None:
        return _fleet(args, seed)
    for asked, names in ((args.scenario, [scenario.name for scenario in SCENARIOS]), (args.wrong, list(WRONG))):
        if asked == "list":
            print("\n".join(names))
            return 0
    if args.wrong is not None and args.wrong not in WRONG:
        raise UserError(f"no wrong store {args.wrong!r}; 'turnproof crash --wrong list' lists them")
    if not Path(args.traces).is_dir():
        raise UserError(f"--traces: {args.traces} is no directory")
    lines = _Lines(quiet=args.json == "-")
    try:
        summary = _matrix(args, seed, lines)
    except DiskUnavailable as error:
        return _deliver(_not_judged(str(error), seed), args, lines)
    obstacles = list(meet_all()) if "fault" in MODES[args.mode] and args.wrong is None and args.scenario is None else []
    whole = args.wrong is None and (args.mode == "process" or (args.mode == "all" and args.scenario is None))
    processes = dict(_processes(args, seed)) if whole else {}
    return _deliver(_report(args, seed, summary, obstacles, processes), args, lines)


def _matrix(args: argparse.Namespace, seed: int, lines: _Lines) -> Summary:
    modes = MODES[args.mode]
    opener = Setting().opener if args.wrong is None else WRONG[args.wrong].opener
    chosen = scenarios_for(args.depth) if args.scenario is None else by_name(args.scenario)
    if not chosen:
        raise UserError(f"no scenario {args.scenario!r}; 'turnproof crash --scenario list' lists them")
    if not modes:
        return Summary()
    lines.heading()
    return run_matrix(
        chosen,
        modes,
        depth=args.depth,
        setting=Setting(cast(Flush, args.flush), opener),
        store=args.wrong or OURS,
        budget=float("inf") if args.budget is None else args.budget * (1 - _PROCESSES),
        seed=seed,
        drawn=args.scenario is None and args.budget is not None,
        alike=ALL if args.budget is None else FIRST,
        progress=lines.cell,
    )


def _processes(args: argparse.Namespace, seed: int) -> Iterator[tuple[str, Trials | str]]:
    """Real processes: what came of it, or why it could not be done."""
    share = float("inf") if args.budget is None else args.budget * _PROCESSES
    kills, calls = (max(1, int(min(most, share * rate))) for most, rate in ((_KILLS, 8), (_CALLS, 6)))
    for name, arguments in (
        ("killed at random", ("random", str(kills), str(seed))),
        ("killed at each system call", ("strace", str(calls))),
    ):
        if arguments[0] == "strace" and shutil.which("strace") is None:
            yield name, "strace is not installed"
            continue
        try:
            yield name, forked(*arguments)
        except RuntimeError as error:
            yield name, str(error)


def _fleet(args: argparse.Namespace, seed: int) -> int:
    """Hand over to the fleet: many real workers on one store."""
    args.seed = seed
    return fleet.run(args)


# --- the report ------------------------------------------------------------------------------------------------------


def _report(
    args: argparse.Namespace,
    seed: int,
    summary: Summary,
    obstacles: Sequence[Met],
    processes: dict[str, Trials | str],
) -> Report:
    violations = saved(summary, Path(args.traces))
    violations += [_found("X3", f"{met.name}: {met.reason}") for met in obstacles if met.verdict == "broken"]
    trials = [done for done in processes.values() if isinstance(done, Trials)]
    violations += [_found("X1", wrong) for done in trials for wrong in done.violations]
    missing = [f"{name}: {why}" for name, why in processes.items() if isinstance(why, str)]
    missing += [f"{met.name}: not done, {met.reason}" for met in obstacles if met.verdict == "not done"]
    late = [cell for cell in summary.cells if not cell.complete]
    return Report(
        verb="crash",
        subject=_identity(args),
        verdict="violation" if violations else "undecided" if missing or late else "conforms",
        seed=seed,
        environment=environment(summary.facts),
        counts={
            **counts(summary),
            "obstacles": sum(met.verdict == "held" for met in obstacles),
            "processes_killed": sum(done.killed for done in trials),
        },
        promises=judgements(summary, violations),
        violations=tuple(violations),
        notes=(
            *proof(summary),
            *missing,
            *([f"{len(late)} of {len(summary.cells)} lines ran out of time"] if late else []),
        ),
    )


def _identity(args: argparse.Namespace) -> Identity:
    return attrs.evolve(StoreSubject(flush=args.flush).identity, name=args.wrong or OURS)


def _found(promise: str, what: str) -> Violation:
    return Violation(
        promise=promise, statement=PROMISES[promise].statement, operation="crash", expected=None, got=what, steps=()
    )


def _not_judged(reason: str, seed: int) -> Report:
    return Report(
        verb="crash",
        subject=None,
        verdict="could_not_judge",
        seed=seed,
        environment=environment({}),
        counts={},
        notes=(reason, "without a virtual disk only --mode process can crash this store"),
    )


def _deliver(report: Report, args: argparse.Namespace, lines: _Lines) -> int:
    write_reports(report, args)
    lines.end(report)
    return report.exit


# --- for people ------------------------------------------------------------------------------------------------------


@attrs.define
class _Lines:
    """The matrix, line by line as the cells are done."""

    quiet: bool

    def say(self, text: str) -> None:
        if not self.quiet:
            print(text, flush=True)

    def heading(self) -> None:
        names = ("writes", "points", "images", "distinct", "lost", "violations")
        self.say(f"{'scenario':38} {'mode':8}" + "".join(f"{name:>11}" for name in names))

    def cell(self, cell: Cell) -> None:
        mode = cell.mode if cell.depth == 1 else f"{cell.mode} x2"
        done = cell.counts
        figures = (done.writes, done.points, done.images, done.distinct, done.lost, done.violations)
        shown = "".join(f"{figure or '·':>11}" for figure in figures)
        self.say(f"{cell.scenario:38} {mode:8}{shown}{'' if cell.complete else '  out of time'}")

    def end(self, report: Report) -> None:
        for violation in report.violations:
            self.say(f"broken: {violation.promise} {violation.statement}")
            self.say(f"     got      {str(violation.got)[:400]}")
            if violation.trace:
                self.say(f"     again    turnproof replay --crash {violation.trace}")
        self.say("  ".join(f"{name.replace('_', ' ')} {count:,}" for name, count in report.counts.items() if count))
        for note in report.notes:
            self.say(f"note: {note}")
        self.say(f"{report.verdict.replace('_', ' ')} (seed {report.seed})")


def replay_crash(file: str, json_file: str | None = None) -> int:
    """``turnproof replay --crash FILE``: crash again at the same point. 1 when it is still wrong, else 0."""
    try:
        example = read(Path(file))
    except InvalidArgument as error:
        raise UserError(error.message) from None
    try:
        report = _replayed(example, replay(example))
    except (DiskError, LookupError) as error:
        raise UserError(f"{file} tells a history that cannot be played: {error}") from None
    except DiskUnavailable as error:
        report = _not_judged(str(error), example.seed)
    if json_file is not None:
        write_json(report, json_file)
    if json_file != "-":
        print("\n".join(_story(example, report)))
    return report.exit


def _replayed(example: Counterexample, again: Replayed) -> Report:
    shown = None if again.finding is None else attrs.evolve(example, **attrs.asdict(again.finding))
    return Report(
        verb="replay",
        subject=attrs.evolve(StoreSubject(flush=example.flush).identity, name=example.store),
        verdict="conforms" if shown is None else "violation",
        seed=example.seed,
        environment=environment({}),
        counts={"faults" if example.fault else "crash_points": 1},
        violations=() if shown is None else (violation_of(shown),),
        notes=(again.note,) if again.note else (),
    )


def _story(example: Counterexample, report: Report) -> Iterator[str]:
    where = example.fault if example.fault is not None else example.crash
    yield f"{example.store}, flush {example.flush}, scenario {example.scenario.name!r}: {where}"
    yield from (f"  {number:2} {step.label}" for number, step in enumerate(example.scenario.steps))
    yield from (f"note: {note}" for note in report.notes)
    for violation in report.violations:
        yield f"broken: {violation.promise} {violation.statement}"
        yield f"     expected {violation.expected}"
        yield f"     got      {violation.got}"
    yield report.verdict.replace("_", " ")
