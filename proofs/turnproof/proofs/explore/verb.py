"""``turnproof explore``: every schedule of crashes, takeovers and waking workers of a small scope, without a sample."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import Final

import attrs

from turnproof.proofs.explore.cover import cover, explored, replay_on
from turnproof.proofs.explore.designs import DESIGNS, Design
from turnproof.proofs.explore.machine import Machine
from turnproof.proofs.explore.scope import SCOPES, Scope
from turnproof.proofs.explore.search import Found, Search
from turnproof.proofs.explore.sometimes import missing
from turnproof.proofs.explore.timeline import describe, draw, placed
from turnproof.proofs.history import Divergence
from turnproof.proofs.subjects import StoreSubject
from turnproof.proofs.terminal import UserError

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
    def code(self) -> int:
        if self.search.found or (self.search.exhausted and self.missing):
            return 1
        return 0 if self.search.exhausted else 3


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
    parser.add_argument("--budget", type=float, default=600, metavar="S", help="seconds (default: %(default)s)")
    parser.add_argument("--json", metavar="FILE", help="write the figures as JSON ('-': to standard output)")


def run(args: argparse.Namespace) -> int:
    if args.design == "all":
        found = [explore(design.bounds, design, args.budget) for design in DESIGNS.values()]
    elif args.design is not None:
        found = [explore(DESIGNS[args.design].bounds, DESIGNS[args.design], args.budget)]
    else:
        found = [explore(_scope(args), None, args.budget)]
    if args.json != "-":
        print("\n\n".join(map(_told, found)))
    if args.json is not None:
        text = json.dumps([_figures(e) for e in found] if args.design == "all" else _figures(found[0]), indent=1)
        if args.json == "-":
            sys.stdout.write(text + "\n")
        else:
            Path(args.json).write_text(text + "\n", encoding="utf-8")
    if args.on_store and args.design is None:
        return max(found[0].code, _replayed(found[0]))
    return max(e.code for e in found)


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


def _figures(exploration: Exploration) -> dict[str, object]:
    search = exploration.search
    machine = search.machine
    return {
        "scope": attrs.asdict(exploration.scope),
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
        "violations": [
            {
                "promise": found.fault.promise,
                "text": found.fault.text,
                "history": [
                    {"worker": None if place is None else place + 1, "does": describe(step.label)}
                    for place, step in placed(found.steps, exploration.scope.workers)
                ],
            }
            for found in search.found
        ],
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
    elif exploration.code == 0:
        lines.append(f"no violation, no dead end; all {len(search.machine.reached)} kinds of step as they must be")
    return "\n".join(lines)


def _violation(found: Found, scope: Scope) -> str:
    return f"\nviolation of {found.fault}\n{len(found.steps)} steps, the shortest history:\n\n" + draw(
        found.steps, scope.workers
    )
