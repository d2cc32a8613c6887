"""``turnproof prove``: every contract of the model put to CrossHair, and what it confirms is counted.

The verdict of a contract is *proved* (every path was followed), a *counterexample* (printed as the call that shows it),
or *undecided* (bound or time ran out). What is undecided is tried once more with three times the time. Contracts that
are false on purpose stand among the others and must be refuted, so that a prover which confirms everything is caught.
"Proved" means that the path tree of one step was exhausted within the stated bounds; enumeration and samples stand
beside it in the ledger.

Where the store says the same rules in SQL, no prover looks: there the table of all cases (``sqltable``) is gone through
in the same run.
"""

from __future__ import annotations

import argparse
import importlib.util
import tempfile
import time
from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from importlib import metadata
from pathlib import Path
from typing import Final

from turnproof.impl import open_store
from turnproof.model.promises import PROMISES
from turnproof.proofs import sqltable
from turnproof.proofs.contracts import CONTRACTS, Contract
from turnproof.proofs.contracts.prover import Limits, Proof, conditions_of, prove_all
from turnproof.proofs.contracts.reasons import NO_CONTRACT
from turnproof.proofs.contracts.seeded import SEEDED, planted
from turnproof.proofs.mutation import load_mutated
from turnproof.proofs.report import Judgement, Report, Violation, environment, write_reports
from turnproof.proofs.terminal import Progress, UserError, add_report_options, seconds

__all__ = ["add_arguments", "chosen", "report_of", "run"]

BUDGET: Final = 300.0
"""Seconds. The proof set of CI fits into it on two cores with room to spare."""

PER_CONDITION: Final = 60.0
"""Seconds of processor time for one post condition; the slowest takes about a third of it."""

TABLE: Final = "table"
"""The word for ``--only`` that chooses the table of the store's statements."""

AGAIN: Final = 3
"""What is undecided is tried once more with so many times the time."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = "example: turnproof prove --only J8 --only transfer      needs: pip install 'turnproof[prove]'"
    parser.add_argument(
        "--only",
        action="append",
        metavar="WORD",
        help=f"a promise, a layer, a part of a contract's name, or '{TABLE}' for the store's statements; repeatable",
    )
    parser.add_argument("--all", action="store_true", help="no budget: go on until everything is decided")
    parser.add_argument("--budget", type=seconds, default=BUDGET, metavar="SECONDS", help=f"in all ({BUDGET:g})")
    parser.add_argument(
        "--timeout",
        type=seconds,
        default=PER_CONDITION,
        metavar="SECONDS",
        help=f"for one contract ({PER_CONDITION:g})",
    )
    parser.add_argument("--jobs", type=int, default=2, metavar="N", help="provers at once (2)")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="hash seed of the provers (0)")
    parser.add_argument("--list", action="store_true", help="list the contracts with their promises and bounds")
    parser.add_argument(
        "--seed-error",
        choices=sorted(SEEDED),
        metavar="NAME",
        help=f"plant an error into a copy of the model and stop when it is found: {', '.join(sorted(SEEDED))}",
    )
    add_report_options(parser)


def chosen(words: Sequence[str] | None) -> list[Contract]:
    """The contracts that a user asked for, all without a word. Raises ``UserError`` for a word that fits none."""
    for word in words or ():
        if word != TABLE and not any(_fits(contract, word) for contract in CONTRACTS.values()):
            raise UserError(f"--only {word}: no contract for it; turnproof prove --list shows them")
    return [c for c in CONTRACTS.values() if not words or any(_fits(c, word) for word in words)]


def _fits(contract: Contract, word: str) -> bool:
    return word in contract.promises or word == contract.layer or (len(word) > 2 and word in contract.name)


def run(args: argparse.Namespace) -> int:
    if args.jobs < 1 or not 0 <= args.seed < 2**32:
        raise UserError("--jobs must be positive, --seed within 0 and 2**32 - 1")
    contracts = chosen(args.only)
    if args.list:
        for contract in contracts:
            print(_listed(contract))
        return 0
    if contracts and importlib.util.find_spec("crosshair") is None:
        raise UserError("CrossHair is not installed, so nothing can be proved; pip install 'turnproof[prove]'")
    error = SEEDED[args.seed_error] if args.seed_error is not None else None
    if error is not None:
        contracts = error.near(contracts)
    quiet = args.json == "-"
    with nullcontext() if error is None else planted(error) as directory:
        limits = Limits(args.timeout, args.seed, directory)
        proofs = _prove(contracts, limits, args, stop_at_first=error is not None, quiet=quiet)
    wants_table = TABLE in args.only if args.only is not None else error is None
    table = _table(args.seed_error) if wants_table else None
    report = report_of(proofs, args.seed, table)
    write_reports(report, args)
    if not quiet:
        print("\n".join(_shown(report, proofs, table)))
    return report.exit


def _table(error: str | None) -> sqltable.Result:
    """The table of the store's statements; of a store with an error in them, when one is asked for."""
    opener = open_store if error is None else load_mutated(f"sql-{error}", (sqltable.IN_SQL[error],))
    with tempfile.TemporaryDirectory(prefix="turnproof-") as directory:
        return sqltable.compare(Path(directory) / "store", opener)


def _prove(
    contracts: list[Contract], limits: Limits, args: argparse.Namespace, *, stop_at_first: bool, quiet: bool
) -> list[Proof]:
    """All contracts once, the undecided a second time with more time."""
    deadline = None if args.all else time.monotonic() + args.budget
    progress, done = Progress(), 0

    def seen(proof: Proof) -> None:
        nonlocal done
        done += 1
        progress.show(f"{done} of {len(contracts)}  {proof.contract.name}")
        if not quiet and not proof.as_expected and proof.outcome != "undecided":
            progress.clear()
            print("\n".join(_problem(proof)), flush=True)

    proofs = prove_all(contracts, limits, jobs=args.jobs, deadline=deadline, stop_at_first=stop_at_first, seen=seen)
    open_ones = [proof.contract for proof in proofs if proof.outcome == "undecided"]
    longer = Limits(limits.per_condition * AGAIN, limits.hash_seed, limits.first_on_path)
    again = prove_all(open_ones, longer, jobs=args.jobs, deadline=deadline, seen=seen)
    progress.clear()
    second = {proof.contract.name: proof for proof in again}
    return [second.get(proof.contract.name, proof) for proof in proofs]


# --- the report -----------------------------------------------------------------------------------------------------


def report_of(proofs: Sequence[Proof], seed: int, table: sqltable.Result | None = None) -> Report:
    """The verdict over all contracts and cells, and per promise."""
    true = [proof for proof in proofs if not proof.contract.refuted]
    false = [proof for proof in proofs if proof.contract.refuted]
    failed = [proof for proof in proofs if proof.outcome == "failed"]
    undecided = [proof for proof in proofs if proof.outcome == "undecided"]
    differences = () if table is None else table.differences
    violations = (
        *(_violation(proof) for proof in proofs if _violates(proof)),
        *(_difference(cell) for cell in differences),
    )
    if violations:
        verdict = "violation"
    elif failed:
        verdict = "could_not_judge"
    else:
        verdict = "undecided" if undecided or not (proofs or table) else "conforms"
    counts = {
        "contracts": len(true),
        "confirmed": sum(proof.outcome == "proved" for proof in true),
        "undecided": len(undecided),
        "known_false": len(false),
        "refuted": sum(proof.outcome == "counterexample" for proof in false),
    }
    if table is not None:
        counts |= {"cells": table.cells, "differing_cells": table.differing}
    return Report(
        verb="prove",
        subject=None,
        verdict=verdict,
        seed=seed,
        environment=environment({}),
        counts=counts,
        promises={promise: _judgement(promise, true, table, violations) for promise in PROMISES},
        violations=violations,
        notes=tuple(_notes(failed, undecided)),
    )


def _violates(proof: Proof) -> bool:
    return proof.outcome == ("proved" if proof.contract.refuted else "counterexample")


def _notes(failed: Iterable[Proof], undecided: Iterable[Proof]) -> Iterable[str]:
    if importlib.util.find_spec("crosshair") is not None:
        yield f"crosshair-tool {metadata.version('crosshair-tool')}; ids are int, sequences bounded as listed"
    for proof in failed:
        yield f"{proof.contract.name} could not be judged: {proof.reason}"
    for proof in undecided:
        yield f"{proof.contract.name} is undecided: {proof.reason}"


def _judgement(
    promise: str, proofs: Sequence[Proof], table: sqltable.Result | None, violations: Sequence[Violation]
) -> Judgement:
    mine = [proof for proof in proofs if promise in proof.contract.promises]
    proved = sum(proof.outcome == "proved" for proof in mine)
    cells = 0 if table is None else table.promises.get(promise, 0)
    evidence = {"proved": proved, "contracts": len(mine)} if mine else {}
    evidence |= {"cells": cells} if cells else {}
    broken = any(proof.outcome == "counterexample" for proof in mine)
    if broken or any(violation.promise == promise for violation in violations):
        return Judgement(verdict="broken", evidence=evidence)
    if proved < len(mine):
        return Judgement(verdict="not_checked", evidence=evidence, reason=f"{len(mine) - proved} undecided")
    if not evidence:
        return Judgement(verdict="not_checked", reason=NO_CONTRACT.get(promise, "not asked for"))
    return Judgement(verdict="kept", evidence=evidence)


def _difference(cell: sqltable.Cell) -> Violation:
    promise = cell.rule.split()[0]
    return Violation(
        promise=promise,
        statement=PROMISES[promise].statement,
        operation=cell.operation,
        expected=cell.expected,
        got=cell.got,
        steps=cell.steps,
    )


def _violation(proof: Proof) -> Violation:
    promise = proof.contract.promises[0]
    example = proof.counterexample
    return Violation(
        promise=promise,
        statement=PROMISES[promise].statement,
        operation=proof.contract.name,
        expected="a counterexample" if proof.contract.refuted else " and ".join(conditions_of(proof.contract)),
        got="confirmed over all paths" if example is None else example.outcome,
        steps=({"op": proof.contract.name, "args": dict(example.arguments) if example is not None else {}},),
    )


# --- for people -----------------------------------------------------------------------------------------------------


def _listed(contract: Contract) -> str:
    kind = "  [false on purpose]" if contract.refuted else ""
    bounds = f"  ({contract.bounds})" if contract.bounds else ""
    return f"{contract.layer:11} {contract.name}  {' '.join(contract.promises)}{bounds}{kind}"


def _problem(proof: Proof) -> Iterable[str]:
    """A contract that did not come out as it must, with the call that shows it."""
    name, example = proof.contract.name, proof.counterexample
    if proof.contract.refuted and proof.outcome == "proved":
        yield f"{name} is false on purpose, and was confirmed: this prover confirms too much"
        return
    if example is None:
        yield f"{name} could not be judged: {proof.reason}"
        return
    yield f"broken: {' '.join(proof.contract.promises)}  {name}  (after {proof.seconds:.1f} s)"
    for argument, value in example.arguments.items():
        yield f"    {argument} = {value}"
    for condition in conditions_of(proof.contract):
        yield f"  expected {condition}"
    yield f"  got      {example.outcome}"


def _shown(report: Report, proofs: Sequence[Proof], table: sqltable.Result | None) -> Iterable[str]:
    if table is not None:
        yield from _cells(table)
    if proofs:
        yield from _layers(report, proofs)
    yield from (f"note: {note}" for note in report.notes)
    yield report.verdict.replace("_", " ")


def _cells(table: sqltable.Result) -> Iterable[str]:
    """The table in a line, and the cells that differ, three at most."""
    for cell in table.differences[:3]:
        yield f"broken: {cell.rule}  {cell.operation} on {cell.prior}"
        yield from (f"    {name} = {value}" for name, value in cell.args.items())
        yield f"  expected {cell.expected}"
        yield f"  got      {cell.got}"
    yield (
        f"table of the store's statements: {table.priors} states, {table.cells:,} cells compared with the model, "
        f"{table.differing} differences"
    )


def _layers(report: Report, proofs: Sequence[Proof]) -> Iterable[str]:
    layers = dict.fromkeys(proof.contract.layer for proof in proofs)
    yield f"{'layer':11} {'contracts':>9} {'as expected':>11} {'seconds':>8} {'slowest':>8}"
    for layer in layers:
        mine = [proof for proof in proofs if proof.contract.layer == layer]
        times = [proof.seconds for proof in mine]
        right = sum(proof.as_expected for proof in mine)
        yield f"{layer:11} {len(mine):9} {right:11} {sum(times):8.1f} {max(times):8.1f}"
    counts = report.counts
    yield (
        f"{counts['confirmed']} of {counts['contracts']} contracts proved, {counts['undecided']} undecided, "
        f"{counts['refuted']} of {counts['known_false']} known-false ones refuted"
    )
