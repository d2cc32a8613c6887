"""An examination as a person reads it, and as a program does."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from turnproof.proofs.doctor.finding import NOT_A_STORE, Examination, Finding, NotAStore, Severity, shown
from turnproof.proofs.doctor.repair import Repaired
from turnproof.proofs.wire import Json, Object

__all__ = ["examination_json", "not_a_store_json", "repaired_json", "tell", "tell_repaired"]

_MOST: Final = 50
"""Findings of one severity that are shown; JSON has all of them."""


def tell(answer: Examination) -> Iterator[str]:
    """The headline, what was found from cause to consequence, and what was read on the way."""
    yield _line(answer.headline)
    for severity in Severity:
        found = answer.of(severity)
        if found:
            yield ""
            yield f"{severity.value}:" if severity is not Severity.NOTE else "notes:"
        yield from _findings(found[:_MOST])
        if found[_MOST:]:
            yield f"  and {len(found) - _MOST} more (--json has all)"
    yield ""
    counts = "  ".join(f"{name} {number:,}" for name, number in answer.counts.items())
    if counts:
        yield counts
    if answer.method:
        yield f"read from: {answer.method}"
    for name, fact in answer.facts.items():
        yield _line(f"{name}: {fact:,}" if isinstance(fact, int) else f"{name}: {fact}")


def _findings(found: Iterable[Finding]) -> Iterator[str]:
    remedy = ""
    for finding in found:
        yield _line(f"  {finding.code}: {finding.told}")
        if finding.remedy and finding.remedy != remedy:
            yield _line(f"      {finding.remedy}")
        remedy = finding.remedy


def tell_repaired(repaired: Repaired) -> Iterator[str]:
    yield ""
    yield _line(f"copy: {shown(repaired.target)}")
    for line in repaired.changes.done:
        yield _line(f"  done: {line}")
    for line in repaired.changes.left_out:
        yield _line(f"  left out: {line}")
    if not repaired.changes.left_out:
        yield "  nothing was left out"
    counts = ", ".join(f"{number:,} {name}" for name, number in repaired.after.counts.items() if number)
    yield _line(f"  the copy, examined: {repaired.after.headline} ({counts or 'it holds nothing'})")


def _line(text: str) -> str:
    """One line, whatever an id or a file name holds."""
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


# --- for programs ----------------------------------------------------------------------------------------------------


def examination_json(answer: Examination) -> Object:
    facts: dict[str, Json] = dict(answer.facts)
    counts: dict[str, Json] = dict(answer.counts)
    return {
        "report": 1,
        "verb": "doctor",
        "path": shown(answer.path),
        "verdict": answer.verdict,
        "exit": answer.exit,
        "headline": answer.headline,
        "kind": answer.kind,
        "method": answer.method,
        "facts": facts,
        "counts": counts,
        "findings": [finding.as_json() for finding in answer.findings],
    }


def not_a_store_json(path: str, problem: NotAStore) -> Object:
    return {
        "report": 1,
        "verb": "doctor",
        "path": shown(path),
        "verdict": problem.headline.partition(":")[0],
        "exit": NOT_A_STORE,
        "headline": problem.headline,
        "code": problem.code,
        "remedy": problem.remedy,
        "findings": [],
    }


def repaired_json(repaired: Repaired) -> Object:
    return {
        "copy": shown(repaired.target),
        "done": list(repaired.changes.done),
        "left_out": list(repaired.changes.left_out),
        "after": examination_json(repaired.after),
    }
