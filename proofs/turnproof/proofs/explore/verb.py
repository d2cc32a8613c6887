"""``turnproof explore``: every schedule of crashes, takeovers and waking workers of a small scope, without a sample."""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import attrs

from turnproof.model.promises import PROMISES
from turnproof.proofs.explore.cover import cover, explored, replay_on
from turnproof.proofs.explore.designs import DESIGNS, Design
from turnproof.proofs.explore.laws import LAWS
from turnproof.proofs.explore.machine import Machine
from turnproof.proofs.explore.scope import SCOPES, Scope
from turnproof.proofs.explore.search import Found, Search
from turnproof.proofs.explore.sometimes import missing
from turnproof.proofs.explore.timeline import describe, draw, placed
from turnproof.proofs.history import Divergence
from turnproof.proofs.report import Judgement, Report, Violation, environment, write_reports
from turnproof.proofs.subjects import StoreSubject
from turnproof.proofs.terminal import UserError, add_report_options, seconds
from turnproof.proofs.wire import Object, encode

__all__ = ["Exploration", "add_arguments", "explore", "run"]

_EXAMPLE: Final = """\
examples:
  turnproof explore                                   the default scope, exhaustively
  turnproof explore --scope one --json -              a smaller one, as JSON
  turnproof explore --plan 1,0/0 --workers 2          two submissions: one tool and an answer; an answer
  turnproof explore --design phase-after-tools        how a wrong design of the field is refuted
  turnproof explore --design all

exit code: 0 all laws hold and everything was reached, 1 a law is broken (for a design: it is refuted),
3 the budget ran out first"""


@attrs.frozen
class Exploration:
    """An exploration and what came of it."""

    scope: Scope
    search: Search
    missing: tuple[str, ...]
    design: Design | None = None

    @property
    def verdict(self) -> str:
        """Of the driver, or of a wrong design: that one is refuted when it shows a violation."""
        if self.search.found or (self.search.exhausted and self.missing):
            return "violation"
        return "conforms" if self.search.exhausted else "undecided"


def explore(scope: Scope, design: Design | None = None, budget: float = float("inf")) -> Exploration:
    """Explore a scope with the reference driver, or with a wrong design until it is refuted."""
    machine = Machine(scope) if design is None else Machine(scope, design.table, design.stop)
    search = Search(machine)
    search.run(budget)
    return Exploration(scope, search, missing(machine) if search.exhausted else (), design)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = _EXAMPLE
    parser.add_argument("--scope", choices=sorted(SCOPES), default="default", help="the bounds (default: %(default)s)")
    parser.add_argument("--plan", help="tool calls by turn and submission, 0 for text: '2,0/1,0'")
    parser.add_argument("--retries", help="attempts that each submission may use: '10,1'")
    for name, what in (
        ("workers", "workers that run at once (at most 7)"),
        ("attempts", "attempts that may own a submission"),
        ("crashes", "workers that may be killed"),
        ("pieces", "segments that a stream is stored in"),
        ("notices", "entries that somebody else may append"),
        ("renewals", "renewals of a lease"),
    ):
        parser.add_argument(f"--{name}", type=int, metavar="N", help=what)
    parser.add_argument("--single-appends", action="store_true", help="a store without append_step (R16)")
    parser.add_argument("--design", choices=[*DESIGNS, "all"], help="explore a wrong design instead")
    parser.add_argument(
        "--on-store", action="store_true", help="then put every step of the stores to the SQLite store, and compare"
    )
    parser.add_argument("--budget", type=seconds, default=600, metavar="S", help="seconds (default: %(default)s)")
    add_report_options(parser)


def run(args: argparse.Namespace) -> int:
    if args.design is None:
        found = [explore(_scope(args), None, args.budget)]
    else:
        chosen = DESIGNS.values() if args.design == "all" else [DESIGNS[args.design]]
        found = [explore(design.bounds, design, args.budget) for design in chosen]
    report = _report(found)
    if args.json != "-":
        print("\n\n".join(map(_told, found)))
    write_reports(report, args)
    if args.on_store and args.design is None:
        return max(report.exit, _replayed(found[0]))
    return report.exit


def _replayed(exploration: Exploration) -> int:
    """Put what was explored to the SQLite store, in covering histories."""
    covered = cover(explored(exploration.scope))
    edges = covered.edges
    with tempfile.TemporaryDirectory() as directory:
        try:
            tally = replay_on(StoreSubject(flush="relaxed"), covered, Path(directory))
        except Divergence as divergence:
            print(f"the SQLite store differs: {divergence.promise} at {divergence.operation}", file=sys.stderr)
            return 1
    print(
        f"SQLite store: all {edges:,} steps of the stores walked in {tally.sequences} histories, "
        f"{tally.operations:,} operations and {tally.reads:,} reads compared, no difference",
        file=sys.stderr,
    )
    return 0


def _numbers(what: str, text: str) -> tuple[int, ...]:
    try:
        numbers = tuple(int(number) for number in text.split(","))
    except ValueError:
        numbers = ()
    if not numbers or min(numbers) < 0:
        raise UserError(f"--{what}: {text!r} is not a row of numbers such as '2,0'")
    return numbers


def _scope(args: argparse.Namespace) -> Scope:
    """The named scope, with what the options change."""
    scope = SCOPES[args.scope]
    if args.plan is not None:
        scope = attrs.evolve(scope, plan=tuple(_numbers("plan", part) for part in args.plan.split("/")))
    if args.retries is not None:
        scope = attrs.evolve(scope, retries=_numbers("retries", args.retries))
    for name in ("workers", "attempts", "crashes", "pieces", "notices", "renewals"):
        number = getattr(args, name)
        if number is not None:
            if number < 0 or (name == "workers" and not 0 < number < 8):
                raise UserError(f"--{name} cannot be {number}")
            scope = attrs.evolve(scope, **{name: number})
    return attrs.evolve(scope, atomic_steps=False) if args.single_appends else scope


# --- telling --------------------------------------------------------------------------------------------------------


def _report(found: Sequence[Exploration]) -> Report:
    """One report of all that was explored. What a wrong design shows is no evidence for any promise."""
    verdicts = {exploration.verdict for exploration in found}
    violations = [_shown(one, exploration) for exploration in found for one in exploration.search.found]
    first = found[0]
    evidence = {"states": first.search.states} if first.search.exhausted else {}
    broken = {violation.promise for violation in violations}
    judged = LAWS if first.design is None else broken
    return Report(
        verb="explore",
        subject=None,
        verdict=next(verdict for verdict in ("violation", "undecided", "conforms") if verdict in verdicts),
        seed=None,
        environment=environment({}),
        counts={
            "states": sum(exploration.search.states for exploration in found),
            "transitions": sum(exploration.search.transitions for exploration in found),
            "depth": max(exploration.search.depth for exploration in found),
        },
        promises={
            promise: Judgement(
                verdict="broken" if promise in broken else "kept" if evidence else "not_checked", evidence=evidence
            )
            for promise in PROMISES
            if promise in judged
        },
        violations=tuple(violations),
        notes=tuple(f"never reached: {name}" for exploration in found for name in exploration.missing),
        more={"explorations": [_figures(exploration) for exploration in found]},
    )


def _shown(found: Found, exploration: Exploration) -> Violation:
    """A broken law with its shortest history: who does what, in order."""
    workers = exploration.scope.workers
    return Violation(
        promise=found.fault.promise,
        statement=PROMISES[found.fault.promise].statement,
        operation=describe(found.steps[-1].label),
        expected=None,
        got=found.fault.text,
        steps=tuple(
            {"op": describe(step.label), "worker": None if place is None else place + 1}
            for place, step in placed(found.steps, workers)
        ),
    )


def _figures(exploration: Exploration) -> Object:
    search = exploration.search
    machine = search.machine
    return {
        "scope": encode(attrs.asdict(exploration.scope)),
        "design": None if exploration.design is None else exploration.design.name,
        "exhausted": search.exhausted,
        "states": search.states,
        "transitions": search.transitions,
        "depth": search.depth,
        "store_states": len(machine.stores),
        "drivers": len(machine.drivers),
        "seconds": round(search.seconds, 3),
        "transitions_per_second": round(search.transitions / search.seconds),
        "bytes_per_state": round(search.bytes_per_state),
        "dead_ends": search.dead_ends,
        "missing": list(exploration.missing),
        "reached": dict(sorted(machine.reached.items())),
    }


def _told(exploration: Exploration) -> str:
    search, scope = exploration.search, exploration.scope
    lines = []
    if exploration.design is not None:
        lines.append(f"design {exploration.design.name}: {exploration.design.about}")
    lines.append(
        f"scope {scope.name}: {len(scope.plan)} submission(s), turns {scope.plan}, {scope.workers} workers, "
        f"{scope.attempts} attempts, {scope.crashes} crashes"
    )
    lines.append(
        f"{search.states:,} states, {search.transitions:,} transitions, depth {search.depth}, "
        f"{search.seconds:.1f} s, {search.transitions / search.seconds:,.0f} transitions/s, "
        f"{search.bytes_per_state:.0f} bytes/state"
    )
    lines += [_violation(found, scope) for found in search.found]
    lines += [f"never reached: {name}" for name in exploration.missing]
    if exploration.design is not None:
        lines.append("refuted" if search.found else "NOT refuted")
    elif not search.exhausted and not search.found:
        lines.append("undecided: the budget ran out before everything was seen")
    elif exploration.verdict == "conforms":
        lines.append(f"no violation, no dead end; all {len(search.machine.reached)} kinds of step as they must be")
    return "\n".join(lines)


def _violation(found: Found, scope: Scope) -> str:
    return f"\nviolation of {found.fault}\n{len(found.steps)} steps, the shortest history:\n\n" + draw(
        found.steps, scope.workers
    )
