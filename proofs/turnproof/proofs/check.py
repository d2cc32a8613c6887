"""``turnproof check``: judge a store against the model on generated histories.

The subject is our SQLite store in this process, or any program that speaks the wire protocol (after ``--``). Nothing a
foreign program does can make this verb hang or leave a process behind; what it cannot judge it does not pass.
"""

from __future__ import annotations

import argparse
import os
import random
import shlex
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import attrs

from turnproof.impl import open_store
from turnproof.model.choices import Choices
from turnproof.model.operations import Operation
from turnproof.model.promises import PROMISES
from turnproof.model.state import EMPTY
from turnproof.proofs.adapter import Adapter, AdapterFailure
from turnproof.proofs.compare import TIMES
from turnproof.proofs.crash.evidence import counts, judgements, saved
from turnproof.proofs.crash.stage import Setting
from turnproof.proofs.crash.standard import standard_set
from turnproof.proofs.disk import DiskUnavailable
from turnproof.proofs.history import Divergence, Move, Tally
from turnproof.proofs.judging import judge
from turnproof.proofs.report import Judgement, Report, Violation, environment, render, write_reports
from turnproof.proofs.search import Budget, Search
from turnproof.proofs.serve import add_subject_options, subject_of
from turnproof.proofs.subjects import Flush, StoreSubject, Subject, expected
from turnproof.proofs.terminal import Progress, UserError, add_report_options, add_seed_option, seconds
from turnproof.proofs.traces import Case, Step, write_trace
from turnproof.proofs.wire import Err, Json, Ok, Outcome, encode_args

__all__ = ["add_arguments", "check", "deliver", "run", "subject_for"]

DEFAULT_BUDGET: Final = 20.0
"""Seconds. Enough to be at every promise many times over."""

_LEAST: Final = 6000
"""Operations that a run without a budget compares, if it takes a busy machine up to ``_LATEST`` seconds."""

_LATEST: Final = 70.0
_CRASHING: Final = 4.0
"""Seconds for the standard set of crashes."""

_UNBOUNDED: Final = 24 * 3600.0
_MEMORY_DISK: Final = Path("/dev/shm")
_ROOM: Final = 512 * 1024 * 1024
"""Free bytes without which the memory disk is left alone."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = "turnproof check [options] [-- COMMAND ...]"
    parser.epilog = "example: turnproof check --budget 60 --json report.json -- node my-adapter.mjs"
    parser.add_argument("--budget", type=seconds, metavar="SECONDS", help=f"how long to search ({DEFAULT_BUDGET:g})")
    parser.add_argument("--examples", type=int, metavar="N", help="stop after N histories")
    parser.add_argument("--traces", metavar="DIR", default=".", help="where counterexamples are saved (here)")
    parser.add_argument("--timeout", type=seconds, default=10.0, metavar="SECONDS", help="for an adapter's answer (10)")
    add_subject_options(parser)
    add_seed_option(parser)
    add_report_options(parser)


@contextmanager
def subject_for(args: argparse.Namespace) -> Iterator[Subject]:
    """The subject of a verb: the command after ``--``, or one of those at hand."""
    if args.command:
        with Adapter(args.command, timeout=args.timeout) as adapter:
            yield adapter
        return
    subject = subject_of(args)
    try:
        yield subject
    finally:
        subject.close()


def run(args: argparse.Namespace) -> int:
    seed = random.SystemRandom().randrange(2**32) if args.seed is None else args.seed
    traces = Path(args.traces)
    if not traces.is_dir():
        raise UserError(f"--traces: {traces} is no directory")
    if args.examples is not None and args.examples <= 0:
        raise UserError("--examples must be positive")
    try:
        with subject_for(args) as subject:
            report = check(subject, seed, _budget(args), traces)
            if args.examples is None and report.verdict != "violation" and _is_ours(subject):
                report = with_crashes(report, args.flush, args.budget, traces)
    except AdapterFailure as failure:
        report = _not_judged(failure, None, seed, Tally())
    return deliver(report, args, _again(report, args))


def _budget(args: argparse.Namespace) -> Budget:
    now = time.monotonic()
    if args.budget is not None:
        return Budget(now + args.budget, args.examples)
    if args.examples is not None:
        return Budget(now + _UNBOUNDED, args.examples)
    return Budget(now + DEFAULT_BUDGET, least=_LEAST, latest=now + _LATEST)


def deliver(report: Report, args: argparse.Namespace, *more: str) -> int:
    """Write the report where it was asked for, and show it, unless standard output is taken by the JSON."""
    write_reports(report, args)
    if args.json != "-":
        print("\n".join([render(report), *filter(None, more)]))
    return report.exit


def check(subject: Subject, seed: int, budget: Budget, traces: Path) -> Report:
    """Search for a divergence within a budget and report what came of it."""
    choices = _held_to(subject)
    progress = Progress()
    with tempfile.TemporaryDirectory(prefix="turnproof-", dir=_place(subject)) as directory:
        settings = _settings(subject, Path(directory) / "settings")
        search = Search(subject, choices, Path(directory), seed, progress=lambda tally: _show(progress, tally))
        try:
            found = search.run(budget)
        except AdapterFailure as failure:
            return _not_judged(failure, subject, seed, search.tally)
        finally:
            progress.clear()
    tally = search.tally
    judgements = judge(tally, subject.identity, choices, None if found is None else found.promise)
    unseen = [promise for promise, row in judgements.items() if row.verdict == "not_checked" and not row.reason]
    notes = [f"never exercised: {' '.join(unseen)}"] if unseen else []
    if tally.operations == 0:
        notes.append("the subject offers nothing that could be judged")
    return Report(
        verb="check",
        subject=subject.identity,
        verdict="violation" if found is not None else "undecided" if notes else "conforms",
        seed=seed,
        environment=environment(settings),
        counts=_counts(tally),
        promises=judgements,
        violations=() if found is None else (_violation(found, choices, subject, seed, traces),),
        notes=tuple(notes),
    )


def _joined(one: Mapping[str, Judgement], other: Mapping[str, Judgement]) -> dict[str, Judgement]:
    """The evidence of both; what the other did not check stays as it was."""
    joined = dict(one)
    for promise, row in other.items():
        known = one.get(promise, row)
        if row.verdict != "not_checked":
            verdict = "broken" if "broken" in (row.verdict, known.verdict) else "kept"
            joined[promise] = Judgement(verdict=verdict, evidence={**known.evidence, **row.evidence})
    return joined


def _is_ours(subject: Subject) -> bool:
    return isinstance(subject, StoreSubject) and subject.opener is open_store


def with_crashes(report: Report, flush: Flush, budget: float | None, traces: Path) -> Report:
    """The same report with the standard set of crashes, which only our own store can be put through here."""
    seconds = _CRASHING if budget is None else min(_CRASHING, budget / 6)
    try:
        summary = standard_set(seconds, setting=Setting(flush=flush))
    except DiskUnavailable as error:
        return attrs.evolve(report, notes=(*report.notes, f"the store was not crashed: {error}"))
    violations = saved(summary, traces)
    crashed = counts(summary)
    note = (
        f"standard crashes: {crashed['crash_points']:,} points, {crashed['images']:,} images of the disk, "
        f"{crashed['faults']:,} faults; all of them: turnproof crash"
    )
    return attrs.evolve(
        report,
        verdict="violation" if violations else report.verdict,
        counts={**report.counts, **crashed},
        promises=_joined(report.promises, judgements(summary, violations)),
        violations=(*report.violations, *violations),
        notes=(*report.notes, note),
    )


def _place(subject: Subject) -> Path | None:
    """Where stores are made: for one of this process in memory, since this verb cuts no power and syncs cost most."""
    if isinstance(subject, Adapter) or not os.access(_MEMORY_DISK, os.W_OK):
        return None
    return _MEMORY_DISK if shutil.disk_usage(_MEMORY_DISK).free > _ROOM else None


def _held_to(subject: Subject) -> Choices:
    """The choices that a subject is judged by. Anchors cannot be checked where there is no record log (PROTOCOL)."""
    identity = subject.identity
    if "records" in identity.capabilities:
        return identity.choices
    return attrs.evolve(identity.choices, anchors="trusted")


def _settings(subject: Subject, path: Path) -> dict[str, str]:
    """What an open store says about itself."""
    subject.open(path)
    try:
        return subject.environment()
    finally:
        subject.close()


def _show(progress: Progress, tally: Tally) -> None:
    progress.show(f"{tally.sequences:,} histories, {tally.operations:,} operations compared")


def _counts(tally: Tally) -> dict[str, int]:
    return {
        "operations": tally.operations,
        "sequences": tally.sequences,
        "reads": tally.reads,
        "reopened": tally.crashes,
    }


def _not_judged(failure: AdapterFailure, subject: Subject | None, seed: int, tally: Tally) -> Report:
    return Report(
        verb="check",
        subject=None if subject is None else subject.identity,
        verdict="could_not_judge",
        seed=seed,
        environment=environment({}),
        counts=_counts(tally),
        notes=(str(failure),),
    )


# --- counterexamples ---------------------------------------------------------------------------------------------


def _violation(found: Divergence, choices: Choices, subject: Subject, seed: int, traces: Path) -> Violation:
    """The violation that a divergence is, with its history saved as a trace."""
    promise, statement = found.promise, PROMISES[found.promise].statement
    own_clock = subject.identity.clock == "own"
    about = f"{promise}: {statement} (turnproof check --seed {seed}, {subject.identity.name})"
    case = Case(f"{promise}-{seed}", tuple(_steps(found.moves, choices, own_clock)), about, choices)
    path = traces / f"turnproof-{promise}-{seed}.jsonl"
    trace: str | None = str(path)
    try:
        write_trace(path, [case])
    except OSError as error:
        trace = None
        print(f"turnproof: the trace could not be saved: {path}: {error.strerror}", file=sys.stderr)
    return Violation(
        promise=promise,
        statement=statement,
        operation=found.operation.verb,
        expected=_shown(found.wanted),
        got=_shown(found.got),
        steps=tuple(step.as_json() for step in case.steps),
        trace=trace,
    )


def _shown(outcome: Outcome) -> Json:
    if isinstance(outcome, Err):
        return {"error": outcome.code, "message": outcome.message}
    return {"ok": outcome.value}


def _steps(moves: tuple[Move, ...], choices: Choices, own_clock: bool) -> Iterator[Step]:
    """The moves as steps of a trace, each with the answer that the model gives."""
    state = EMPTY
    for move in moves:
        if isinstance(move, Operation):
            model = expected(move, state, choices)
            state = model.state
            outcome = model.outcome
            if isinstance(outcome, Ok):
                outcome = Ok(_promised(outcome.value, own_clock))
            yield Step(move.verb, encode_args(move), outcome)
        else:
            yield Step(move)


def _promised(value: Json, own_clock: bool) -> Json:
    """An answer without what is not promised: the number in ``sequence``, times of the subject's own clock."""
    if isinstance(value, list):
        return [_promised(item, own_clock) for item in value]
    if isinstance(value, dict):
        return {
            name: _promised(item, own_clock)
            for name, item in value.items()
            if name != "sequence" and not (own_clock and name in TIMES)
        }
    return value


def _again(report: Report, args: argparse.Namespace) -> str:
    """The command that shows a violation again."""
    trace = next((violation.trace for violation in report.violations), None)
    if trace is None:
        return ""
    options = [f"--mutant {args.mutant}"] if args.mutant else ["--model"] if args.model else []
    command = f"-- {shlex.join(args.command)}" if args.command else ""
    return f"again: {' '.join(filter(None, ['turnproof replay', shlex.quote(trace), *options, command]))}"
