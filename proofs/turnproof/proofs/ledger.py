"""``turnproof promises``: the evidence ledger. One row a promise, one column a method, figures from what actually ran.

The other verbs write a report each (``--json FILE``); this one joins the reports of a directory. A cell says what is
known: *proved* (contracts confirmed), *exhaustive* (cells or states, all of them), *sampled* (times that generated
histories exercised it), *crashed* (crash points), *mutants* (wrong stores that were caught), or that it is *not
checked*. Nothing is carried over from a run that is not in the directory.

The README carries the table between two comments. Counts of samples and crash points differ from run to run and are
left out there, so that the table is stale only when something changed.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

import attrs

from turnproof.model.promises import PROMISES, Promise
from turnproof.proofs.contracts.reasons import NO_CONTRACT
from turnproof.proofs.terminal import UserError
from turnproof.proofs.wire import Json, Object

__all__ = ["BEGIN", "COLUMNS", "ELSEWHERE", "END", "Row", "add_arguments", "markdown", "rows_of", "run"]

REPORTS: Final = ".turnproof/reports"
BEGIN: Final = "<!-- turnproof promises: begin -->"
END: Final = "<!-- turnproof promises: end -->"
_ABSENT: Final = "not checked"

COLUMNS: Final[Mapping[str, Mapping[str, str]]] = {
    # method: what a report's evidence calls its figures, and the unit that is shown
    "proved": {"proved": "contracts"},
    "exhaustive": {"cells": "cells", "states": "states"},
    "sampled": {"sampled": "times", "histories": "histories"},
    "crashed": {"crash_points": "points", "faults": "faults"},
    "mutants": {"killed": "caught"},
}
_OF: Final = {"proved": "contracts", "killed": "mutants"}
"""Figures that are so many *of* so many."""
_VOLATILE: Final = ("sampled", "crashed")
"""Methods whose figures differ from run to run."""

ELSEWHERE: Final[Mapping[str, str]] = {
    # a promise that ``check`` cannot judge: where it is sampled, enumerated or crashed instead
    "J11": "tests/impl/test_races.py",
    "T4": "proofs/turnproof/proofs/crash/wrong.py",
    "T7": "tests/impl/test_races.py",
    "S3": "tests/model/test_model_logs.py",
    "R9": "tests/impl/test_open.py",
    "R10": "proofs/turnproof/proofs/crash/judge.py",
    "R12": "tests/impl/test_import.py",
    "R13": "tests/impl/test_aio.py",
    "R14": "tests/impl/test_damage.py",
    "R15": "tests/impl/test_open.py",
    "R16": "tests/impl/test_session.py",
    "R17": "tests/model/test_model_logs.py",
    "R18": "tests/model/test_model_logs.py",
    "A5": "tests/model/test_turn.py",
    "P8": "tests/model/test_turn.py",
    "C2": "proofs/turnproof/proofs/explore/laws.py",
    **{f"E{number}": "proofs/turnproof/proofs/explore/laws.py" for number in range(1, 8)},
    "X1": "proofs/turnproof/proofs/crash/judge.py",
    "X2": "proofs/turnproof/proofs/crash/judge.py",
    "X3": "proofs/turnproof/proofs/crash/faulting.py",
    "X4": "tests/impl/test_damage.py",
    "X5": "tests/impl/test_races.py",
    "X6": "proofs/turnproof/proofs/crash/sweep.py",
}


@attrs.frozen
class Row:
    """A promise and what is known of it: figures by column and by name."""

    promise: Promise
    figures: Mapping[str, Mapping[str, int]]
    broken: bool

    def cell(self, column: str, *, brief: bool = False) -> str:
        """What one method says; ``brief`` leaves out what differs from run to run."""
        figures = self.figures.get(column)
        if not figures:
            return _ABSENT
        if brief and column in _VOLATILE:
            return column
        parts = []
        for name, unit in COLUMNS[column].items():
            if name in figures:
                of = f" of {figures[_OF[name]]:,}" if _OF.get(name) in figures else ""
                parts.append(f"{figures[name]:,}{of} {unit}")
        return ", ".join(parts)

    def as_json(self) -> Object:
        fields: Object = attrs.asdict(self.promise, value_serializer=lambda *value: _plain(value[-1]))
        methods: Object = {column: dict(self.figures.get(column, {})) for column in COLUMNS}
        reason = NO_CONTRACT.get(self.promise.id)
        return fields | {"methods": methods, "broken": self.broken, "no_contract": reason}


def _plain(value: object) -> object:
    return list(value) if isinstance(value, tuple) else value


# --- joining the reports ---------------------------------------------------------------------------------------------


def rows_of(directory: Path) -> list[Row]:
    """The ledger: every promise, with the evidence of all reports in a directory. Raises ``UserError``."""
    figures: dict[str, dict[str, dict[str, int]]] = {promise: {} for promise in PROMISES}
    broken: set[str] = set()
    for file in sorted(directory.glob("*.json")) if directory.is_dir() else ():
        for promise, evidence, is_broken in _evidence(file):
            if promise not in PROMISES:
                raise UserError(f"{file}: no promise is called {promise!r}")
            if is_broken:
                broken.add(promise)
            for column, names in COLUMNS.items():
                for name in (*names, *(_OF[name] for name in names if name in _OF)):
                    if name in evidence:
                        known = figures[promise].setdefault(column, {})
                        known[name] = known.get(name, 0) + evidence[name]
    return [Row(promise, figures[name], name in broken) for name, promise in PROMISES.items()]


def _evidence(file: Path) -> Iterable[tuple[str, dict[str, int], bool]]:
    """What one report says: promise, figures by name, and whether it is broken."""
    try:
        report: Json = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UserError(f"{file}: no report can be read from it: {error}") from None
    if not isinstance(report, dict):
        raise UserError(f"{file}: a report is a JSON object")
    promises = report.get("promises")
    if isinstance(promises, dict):
        for promise, row in promises.items():
            if isinstance(row, dict):
                yield promise, _numbers(row.get("evidence")), row.get("verdict") == "broken"
    elif report.get("report") != 1:
        raise UserError(f"{file}: this is no report of turnproof")


def _numbers(value: Json) -> dict[str, int]:
    if not isinstance(value, dict):
        return {}
    return {name: int(n) for name, n in value.items() if isinstance(n, int | float) and not isinstance(n, bool)}


# --- the verb --------------------------------------------------------------------------------------------------------


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = "example: turnproof promises J8 T3      turnproof promises --reports reports --check README.md"
    parser.add_argument("promise", nargs="*", metavar="PROMISE", help="an id, or a letter for a layer (all)")
    parser.add_argument(
        "--reports", metavar="DIR", default=REPORTS, help=f"where the verbs' --json reports are ({REPORTS})"
    )
    parser.add_argument("--markdown", action="store_true", help="print the table as Markdown")
    parser.add_argument("--json", metavar="FILE", help="write the ledger as JSON ('-': to standard output)")
    parser.add_argument("--write", metavar="FILE", help="renew the table in a file, between its two comments")
    parser.add_argument("--check", metavar="FILE", help="fail when the table in a file is stale")


def run(args: argparse.Namespace) -> int:
    if args.reports != REPORTS and not Path(args.reports).is_dir():
        raise UserError(f"--reports: {args.reports} is no directory")
    chosen = [row for row in rows_of(Path(args.reports)) if _wanted(row.promise, args.promise)]
    if not chosen:
        raise UserError(f"no promise {' '.join(args.promise)!r}; ids are {', '.join(PROMISES)}")
    if args.json is not None:
        text = json.dumps([row.as_json() for row in chosen], indent=2) + "\n"
        if args.json != "-":
            Path(args.json).write_text(text, encoding="utf-8")
        else:
            print(text, end="")
            return 0
    if args.write is not None or args.check is not None:
        return _renew(chosen, args)
    print("\n".join(markdown(chosen, brief=False) if args.markdown else _table(chosen, detailed=bool(args.promise))))
    return 0


def _wanted(promise: Promise, asked: Sequence[str]) -> bool:
    return not asked or any(word in (promise.id, promise.id[0]) for word in asked)


def _renew(rows: Sequence[Row], args: argparse.Namespace) -> int:
    """Write the table between the two comments of a file, or say that it is not the one of these reports."""
    file = Path(args.write or args.check)
    try:
        text = file.read_text(encoding="utf-8")
    except OSError as error:
        raise UserError(f"{file}: {error.strerror}") from None
    if text.count(BEGIN) != 1 or text.count(END) != 1 or text.index(BEGIN) > text.index(END):
        raise UserError(f"{file} needs a line {BEGIN} and, below it, a line {END}")
    before, rest = text.split(BEGIN)
    table = "\n".join(markdown(rows, brief=True))
    renewed = f"{before}{BEGIN}\n{table}\n{END}{rest.split(END)[1]}"
    if args.write is not None:
        file.write_text(renewed, encoding="utf-8")
        print(f"{file}: the table of {len(rows)} promises is written")
    elif renewed != text:
        old, new = text.splitlines(), renewed.splitlines()
        changed = [line for line in new if line.startswith("|") and line not in old]
        print(f"{file}: the table of promises is stale; turnproof promises --write {file}")
        print("\n".join(f"  now {line}" for line in changed[:5]))
        return 1
    return 0


def markdown(rows: Sequence[Row], *, brief: bool) -> Iterable[str]:
    """The ledger as a Markdown table."""
    yield f"| promise | statement | source | {' | '.join(COLUMNS)} |"
    yield "|" + "---|" * (3 + len(COLUMNS))
    for row in rows:
        cells = " | ".join(row.cell(column, brief=brief) for column in COLUMNS)
        name = f"{row.promise.id} **broken**" if row.broken else row.promise.id
        yield f"| {name} | {row.promise.statement} | {row.promise.source} | {cells} |"


def _table(rows: Sequence[Row], *, detailed: bool) -> Iterable[str]:
    """The ledger for a terminal: the methods that say something, then the statement."""
    layer = ""
    for row in rows:
        promise = row.promise
        if promise.layer != layer:
            layer = promise.layer
            yield f"{layer} ({promise.source})"
        yield f"  {promise.id:4} {promise.statement}{'  BROKEN' if row.broken else ''}"
        said = [f"{column}: {row.cell(column)}" for column in COLUMNS if row.figures.get(column)]
        yield f"       {'; '.join(said) or _ABSENT}"
        if detailed:
            yield from _details(promise)


def _details(promise: Promise) -> Iterable[str]:
    """What one wants to know who asks for a promise by name."""
    if promise.needs:
        yield f"       needs the capabilities {', '.join(promise.needs)}"
    if promise.property is not None:
        yield f'       part of "{promise.property}" (Resume Means Resume)'
    if promise.id in NO_CONTRACT:
        yield f"       has no contract: it {NO_CONTRACT[promise.id]}"
    if promise.id in ELSEWHERE:
        yield f"       checked in {ELSEWHERE[promise.id]}"
