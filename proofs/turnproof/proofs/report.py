"""The report of a run: what was judged, how, and what came of it; as one JSON object, as JUnit XML, and for people.

Every verb that checks something fills in the same object (PROTOCOL, "Report"), so that the evidence of several verbs
can be joined per promise. A verdict has four values, and *undecided* and *could not judge* are never a pass.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final
from xml.etree import ElementTree

import attrs

from turnproof.model.promises import PROMISES
from turnproof.proofs.subjects import Identity
from turnproof.proofs.terminal import UserError, plain
from turnproof.proofs.wire import Json, Object, encode

__all__ = [
    "EXIT",
    "Judgement",
    "Report",
    "Violation",
    "environment",
    "render",
    "wal_warning",
    "write_json",
    "write_junit",
    "write_reports",
]

EXIT: Final = {"conforms": 0, "violation": 1, "could_not_judge": 2, "undecided": 3}
"""Exit codes by verdict."""

_SYNCHRONOUS: Final = {"0": "OFF", "1": "NORMAL", "2": "FULL", "3": "EXTRA"}
"""What SQLite calls the numbers that it answers."""

_FIELDS: Final = 5
"""Fields that are shown of two rows that differ."""

_WAL_RESET_BUG: Final = ((3, 7, 0), (3, 51, 2))
"""SQLite versions, first and last, with a rare bug when several connections reset the WAL."""


@attrs.frozen(kw_only=True)
class Violation:
    """A broken promise and the shortest history that shows it. The last step is the one that differs."""

    promise: str
    statement: str
    operation: str
    expected: Json
    got: Json
    steps: tuple[Object, ...]
    trace: str | None = None


@attrs.frozen(kw_only=True)
class Judgement:
    """What is known of one promise: ``kept``, ``broken``, ``not_offered`` or ``not_checked``, and why."""

    verdict: str
    evidence: Mapping[str, int] = attrs.Factory(dict)
    reason: str = ""


@attrs.frozen(kw_only=True)
class Report:
    """One run of one verb."""

    verb: str
    subject: Identity | None
    verdict: str
    seed: int | None
    environment: Mapping[str, str | None]
    counts: Mapping[str, int]
    promises: Mapping[str, Judgement] = attrs.Factory(dict)
    violations: tuple[Violation, ...] = ()
    notes: tuple[str, ...] = ()
    """What a reader must know to weigh the verdict: why it is undecided, or could not be reached."""
    more: Object = attrs.Factory(dict)
    """What only this verb has to say, beside the fields of PROTOCOL."""

    @property
    def exit(self) -> int:
        return EXIT[self.verdict]

    def as_json(self) -> Object:
        """The object of PROTOCOL, "Report"."""
        return {
            "report": 1,
            "verb": self.verb,
            "subject": None if self.subject is None else _subject(self.subject),
            "verdict": self.verdict,
            "seed": self.seed,
            "environment": dict(self.environment),
            "counts": dict(self.counts),
            "promises": {promise: _judgement(promise, row) for promise, row in self.promises.items()},
            "violations": [encode(violation) for violation in self.violations],
            "notes": list(self.notes),
            **self.more,
        }


def _subject(identity: Identity) -> Object:
    hello = identity.hello()
    return {name: hello[name] for name in ("name", "version", "capabilities", "choices")}


def _judgement(promise: str, row: Judgement) -> Object:
    shown: Object = {
        "statement": PROMISES[promise].statement,
        "verdict": row.verdict,
        "evidence": dict(row.evidence),
    }
    if row.reason:
        shown["reason"] = row.reason
    return shown


def environment(settings: Mapping[str, str]) -> dict[str, str | None]:
    """Where this ran; ``settings`` are those that the store read back about itself, never assumed (X6)."""
    return {
        "python": platform.python_version(),
        "sqlite": settings.get("sqlite_version"),
        "journal_mode": settings.get("journal_mode"),
        "synchronous": _SYNCHRONOUS.get(settings.get("synchronous", ""), settings.get("synchronous")),
        "platform": platform.platform(),
    }


def wal_warning(version: str | None) -> str | None:
    """A warning for claims about several processes, when this SQLite has the WAL-reset bug."""
    if version is None:
        return None
    numbers = tuple(int(part) for part in version.split("."))
    first, last = _WAL_RESET_BUG
    if not first <= numbers <= last:
        return None
    return f"SQLite {version} has a rare WAL-reset bug with several connections; 3.51.3 and later do not"


def write_json(report: Report, target: str) -> None:
    """Write the report to a file, or to standard output for ``-``."""
    text = json.dumps(report.as_json(), ensure_ascii=True, indent=2) + "\n"
    if target == "-":
        sys.stdout.write(text)
        sys.stdout.flush()
        return
    try:
        Path(target).write_text(text, encoding="utf-8")
    except OSError as error:
        raise UserError(f"--json: {target} cannot be written: {error.strerror}") from None


def write_reports(report: Report, args: argparse.Namespace) -> None:
    """Write the report wherever the options of ``add_report_options`` asked for it."""
    if args.junit is not None:
        write_junit(report, args.junit)
    if args.json is not None:
        write_json(report, args.json)


def write_junit(report: Report, target: str) -> None:
    """The report as JUnit XML: a case a promise, skipped where it is not offered or not checked."""
    suite = ElementTree.Element("testsuite", name=f"turnproof {report.verb}", tests=str(len(report.promises)))
    for promise, row in report.promises.items():
        case = ElementTree.SubElement(
            suite, "testcase", classname=PROMISES[promise].layer, name=f"{promise} {PROMISES[promise].statement}"
        )
        if row.verdict == "broken":
            found = [violation for violation in report.violations if violation.promise == promise]
            failure = ElementTree.SubElement(case, "failure", message=f"{promise} is broken")
            failure.text = plain("\n".join(describe(found)))
        elif row.verdict != "kept":
            ElementTree.SubElement(case, "skipped", message=f"{row.verdict.replace('_', ' ')} {row.reason}".strip())
    broken = sum(row.verdict == "broken" for row in report.promises.values())
    suite.set("failures", str(broken))
    suite.set("skipped", str(sum(row.verdict not in ("kept", "broken") for row in report.promises.values())))
    if report.verdict == "could_not_judge":
        case = ElementTree.SubElement(suite, "testcase", classname="turnproof", name="could judge")
        ElementTree.SubElement(case, "error", message=plain("\n".join(report.notes)))
    try:
        ElementTree.ElementTree(suite).write(target, encoding="utf-8", xml_declaration=True)
    except OSError as error:
        raise UserError(f"--junit: {target} cannot be written: {error.strerror}") from None


# --- for people --------------------------------------------------------------------------------------------------


def render(report: Report) -> str:
    """The report as a terminal shows it: promises first, what is broken last, the verdict at the end."""
    lines = [*_promises(report.promises), *describe(report.violations)]
    if report.counts:
        lines.append("  ".join(f"{name.replace('_', ' ')} {count:,}" for name, count in report.counts.items() if count))
    place = [f"{name} {value}" for name, value in report.environment.items() if value]
    lines.append("  ".join(place))
    lines.extend(f"note: {note}" for note in report.notes)
    seed = "" if report.seed is None else f" (seed {report.seed})"
    lines.append(f"{report.verdict.replace('_', ' ')}{seed}")
    return plain("\n".join(lines))


def _promises(promises: Mapping[str, Judgement]) -> Iterable[str]:
    """The table of promises; those that this verb does not judge are counted in one line."""
    elsewhere = [promise for promise, row in promises.items() if row.verdict == "not_checked" and row.reason]
    shown = {promise: row for promise, row in promises.items() if promise not in elsewhere}
    if shown:
        yield f"{'':4} {'':11} {'accepted':>8} {'refused':>8} {'errors':>8}"
    for promise, row in shown.items():
        verdict = row.verdict.replace("_", " ")
        yield f"{promise:4} {verdict:11} {_figures(row.evidence):26}  {PROMISES[promise].statement}"
    if elsewhere:
        yield f"not checked by this verb: {' '.join(elsewhere)}"
    if promises:
        yield ""


def _figures(evidence: Mapping[str, int]) -> str:
    """Answers by their sort; or what was crashed."""
    if "sampled" not in evidence and evidence:
        return ", ".join(f"{count:,} {name.replace('_', ' ')}" for name, count in evidence.items())
    return " ".join(f"{evidence.get(name, 0) or '·':>8}" for name in ("accepted", "refused", "errors"))


def describe(violations: Iterable[Violation]) -> Iterable[str]:
    """Each violation: the promise, the history, what was expected and what came, and how to see it again."""
    for violation in violations:
        yield f"broken: {violation.promise} {violation.statement}"
        for number, step in enumerate(violation.steps, 1):
            yield f"  {number:2} {_step(step)}"
        yield f"     expected {_compact(violation.expected)}"
        yield f"     got      {_compact(violation.got)}"
        yield from _differing(violation.expected, violation.got)
        if violation.trace:
            yield f"     trace    {violation.trace}"
        yield ""


def _differing(expected: Json, got: Json) -> Iterable[str]:
    """The fields in which two answers differ, where each is one object: a row is long, and a fault is in one place."""
    if isinstance(expected, dict) and isinstance(got, dict):
        one, other = expected.get("ok"), got.get("ok")
        if isinstance(one, dict) and isinstance(other, dict):
            for name in [name for name in {**one, **other} if one.get(name) != other.get(name)][:_FIELDS]:
                yield f"     differs  {name}: {_compact(one.get(name))}, got {_compact(other.get(name))}"


def _step(step: Object) -> str:
    args = step.get("args")
    shown = ", ".join(f"{name}={_compact(value)}" for name, value in args.items()) if isinstance(args, dict) else ""
    return f"{step.get('op')}({shown})"


def _compact(value: Json) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace").decode()
