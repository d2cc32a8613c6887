"""``turnproof replay``: run the cases of a trace file on a store, and name the step whose answer is not as expected."""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import attrs

from turnproof.model.choices import STRICT
from turnproof.model.promises import PROMISES
from turnproof.model.state import EMPTY
from turnproof.model.system import PROMISE_OF_VERB
from turnproof.model.vocabulary import TurnproofError
from turnproof.proofs.adapter import AdapterFailure
from turnproof.proofs.check import deliver, subject_for
from turnproof.proofs.compare import TIMES
from turnproof.proofs.crash import replay_crash
from turnproof.proofs.history import on_empty_store
from turnproof.proofs.report import Report, Violation, environment
from turnproof.proofs.serve import add_subject_options
from turnproof.proofs.subjects import Subject, expected, reopen
from turnproof.proofs.terminal import UserError, add_report_options, seconds
from turnproof.proofs.traces import SPECIAL, Case, Step, TraceError, fits, needs, read_trace
from turnproof.proofs.wire import Err, Json, Object, Ok, Outcome, decode_operation

__all__ = ["Played", "add_arguments", "play_case", "run"]


@attrs.frozen
class Played:
    """How a case went: ``passed``, ``failed`` at a step, or ``not offered``."""

    case: Case
    verdict: str
    reason: str = ""
    steps: int = 0
    violation: Violation | None = None


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = "turnproof replay FILE [options] [-- COMMAND ...]"
    parser.epilog = "example: turnproof replay turnproof-J8-17.jsonl -- node my-adapter.mjs"
    parser.add_argument("file", type=Path, metavar="FILE", help="a trace file")
    parser.add_argument("--crash", action="store_true", help="the file is a counterexample of 'turnproof crash'")
    parser.add_argument("--only", metavar="CASE", help="only the case of this name")
    parser.add_argument("--timeout", type=seconds, default=10.0, metavar="SECONDS", help="for an adapter's answer (10)")
    add_subject_options(parser)
    add_report_options(parser)


def run(args: argparse.Namespace) -> int:
    if args.crash:
        if args.command:
            raise UserError("--crash replays crashes inside our own store; it takes no COMMAND")
        return replay_crash(str(args.file), args.json)
    try:
        cases = read_trace(args.file)
    except TraceError as error:
        raise UserError(str(error)) from None
    chosen = [case for case in cases if args.only in (None, case.name)]
    if not chosen:
        raise UserError(f"no case {args.only!r} in {args.file}; there are: {', '.join(case.name for case in cases)}")
    try:
        with subject_for(args) as subject, tempfile.TemporaryDirectory(prefix="turnproof-") as directory:
            played = []
            for number, case in enumerate(chosen):
                played.append(play_case(case, subject, Path(directory) / f"store{number}"))
                if args.json != "-":
                    print("\n".join(_lines(played[-1])), flush=True)
            report = _report(subject, played)
    except AdapterFailure as failure:
        report = Report(
            verb="replay",
            subject=None,
            verdict="could_not_judge",
            seed=None,
            environment=environment({}),
            counts={},
            notes=(str(failure),),
        )
    return deliver(report, args)


def _report(subject: Subject, played: Sequence[Played]) -> Report:
    violations = tuple(case.violation for case in played if case.violation is not None)
    ran = [case for case in played if case.verdict != "not offered"]
    notes = [] if ran else ["no case could be run: what they need is not offered"]
    return Report(
        verb="replay",
        subject=subject.identity,
        verdict="violation" if violations else "conforms" if ran else "undecided",
        seed=None,
        environment=environment({}),
        counts={"sequences": len(ran), "operations": sum(case.steps for case in ran)},
        violations=violations,
        notes=tuple(notes),
    )


def _lines(played: Played) -> Iterator[str]:
    yield f"{played.verdict:12} {played.case.name}{f': {played.reason}' if played.reason else ''}"


def play_case(case: Case, subject: Subject, path: Path) -> Played:
    """Run one case on an empty store in ``path``."""
    reason = _not_offered(case, subject)
    if reason is not None:
        return Played(case, "not offered", reason)
    with on_empty_store(subject, path):
        for number, step in enumerate(case.steps, 1):
            if step.op == "crash":
                subject.crash()
            elif step.op == "reopen":
                reopen(subject, path)
            else:
                got = subject.ask(step.op, step.args)
                if not _as_expected(step, got, subject):
                    reason = f"step {number}{f' (line {step.line})' if step.line else ''}: {step.op}"
                    return Played(case, "failed", reason, number, _violation(case, number, got))
    return Played(case, "passed", steps=len(case.steps))


def _not_offered(case: Case, subject: Subject) -> str | None:
    """Why a subject is not held to a case."""
    identity = subject.identity
    if case.choices is not None and case.choices != identity.choices:
        wanted, made = case.choices.deviations(), identity.choices.deviations()
        return f"speaks for the choices {wanted or 'strict'}, declared are {made or 'strict'}"
    missing = {need for step in case.steps for need in needs(step.op, step.args)} - set(identity.capabilities)
    return f"needs {', '.join(sorted(missing))}" if missing else None


def _as_expected(step: Step, got: Outcome, subject: Subject) -> bool:
    if step.expect is None:
        return True
    if isinstance(step.expect, Err):
        return isinstance(got, Err) and got.code == step.expect.code
    expect = step.expect.value
    if subject.identity.clock == "own":
        expect = _without_times(expect)
    return isinstance(got, Ok) and fits(expect, got.value)


def _without_times(value: Json) -> Json:
    """What is left to expect of a store that runs on its own clock."""
    if isinstance(value, dict):
        return {name: _without_times(item) for name, item in value.items() if name not in TIMES}
    return [_without_times(item) for item in value] if isinstance(value, list) else value


def _violation(case: Case, number: int, got: Outcome) -> Violation:
    step = case.steps[number - 1]
    promise = _promise(case, number)
    expect: Object = {}
    if isinstance(step.expect, Err):
        expect = {"error": step.expect.code}
    elif step.expect is not None:
        expect = {"ok": step.expect.value}
    return Violation(
        promise=promise,
        statement=PROMISES[promise].statement,
        operation=step.op,
        expected=expect,
        got={"ok": got.value} if isinstance(got, Ok) else {"error": got.code, "message": got.message},
        steps=tuple(earlier.as_json() for earlier in case.steps[:number]),
    )


def _promise(case: Case, number: int) -> str:
    """The promise at stake in a step: that which decides it in the model, else its verb's."""
    named = case.about.partition(":")[0]
    if named in PROMISES:
        return named  # a saved counterexample says which promise it is about
    state, rule = EMPTY, ""
    for step in case.steps[:number]:
        if step.op not in SPECIAL:
            try:
                operation = decode_operation(step.op, step.args, 0)
            except TurnproofError:
                rule = ""
                continue
            model = expected(operation, state, case.choices or STRICT)
            state, rule = model.state, model.rule
    return rule.split()[0] if rule else PROMISE_OF_VERB[case.steps[number - 1].op]
