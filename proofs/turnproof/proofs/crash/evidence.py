"""What a matrix of crashes shows of the promises: for the report of ``crash``, and for that of ``check``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from turnproof.model.promises import PROMISES
from turnproof.proofs.crash.counterexample import Counterexample, as_json, write
from turnproof.proofs.crash.standard import Cell, CellMode, Summary
from turnproof.proofs.report import Judgement, Violation, wal_warning

__all__ = ["counts", "judgements", "proof", "saved", "violation_of"]

PROMISE: Final[dict[CellMode, str]] = {"kill": "X1", "power": "X2", "fault": "X3"}
"""What each mode is about."""


ALSO: Final[Mapping[str, tuple[str, ...]]] = {
    # promise: scenarios (how their names begin) that a store which breaks it does not survive
    "T4": ("transfer", "replace_turn_journal_attempt"),
    "J11": ("turn with tools", "text turn", "update to", "commit_turn_journal", "mark_stream_consumed"),
    "L10": ("deletion", "delete_session"),
    "R3": ("step", "append_step", "turn with tools"),
    "R4": ("checkpoint/",),
    "R10": (),
    "R12": ("import",),
}
"""Promises beside X1 to X3 that speak of one write, and so of a crash inside it."""


def saved(summary: Summary, directory: Path) -> list[Violation]:
    """The violations, each with its counterexample as a file in ``directory``."""
    return [violation_of(example, write(example, directory)) for example in summary.counterexamples]


def violation_of(example: Counterexample, path: Path | None = None) -> Violation:
    """A counterexample as the violation that it shows."""
    steps = [step.as_json() for step in example.scenario.steps]
    crash = as_json(example).get("at") or as_json(example).get("fault")
    return Violation(
        promise=example.promise,
        statement=PROMISES[example.promise].statement,
        operation="crash",
        expected=example.expected or None,
        got=f"{example.what}: {example.got}" if example.got else example.what,
        steps=({"op": "crash", "args": crash}, *({"op": str(s.get("op") or s.get("act")), **s} for s in steps)),
        trace=None if path is None else str(path),
    )


def judgements(summary: Summary, violations: Sequence[Violation]) -> dict[str, Judgement]:
    """What was crashed for each promise; of what did not run nothing is claimed."""
    figures: dict[str, dict[str, int]] = {promise: {} for promise in (*PROMISE.values(), *ALSO)}
    for cell in summary.cells:
        figure = "faults" if cell.mode == "fault" else "crash_points"
        for promise in _about(cell):
            figures[promise][figure] = figures[promise].get(figure, 0) + cell.counts.points
    if summary.facts:
        figures["X6"] = {
            "crash_points": sum(row.get("crash_points", 0) for row in map(figures.get, ("X1", "X2")) if row)
        }
    broken = {violation.promise for violation in violations}
    return {
        promise: Judgement(
            verdict="broken" if promise in broken else "kept" if any(evidence.values()) else "not_checked",
            evidence=evidence,
        )
        for promise, evidence in {**{promise: {} for promise in broken}, **figures}.items()
    }


def _about(cell: Cell) -> Iterator[str]:
    yield PROMISE[cell.mode]
    if cell.mode == "power":
        yield "R10"
    yield from (promise for promise, names in ALSO.items() if cell.scenario.startswith(names))


def counts(summary: Summary) -> dict[str, int]:
    """How much was crashed."""
    kill, power, fault = (summary.total(mode).counts for mode in PROMISE)
    return {
        "writes": kill.writes or power.writes or fault.writes,
        "crash_points": kill.points + power.points,
        "images": kill.images + power.images,
        "distinct_images": kill.distinct + power.distinct,
        "lost_as_allowed": power.lost,
        "faults": fault.points,
    }


def proof(summary: Summary) -> Iterator[str]:
    """The proof that it crashed (X6)."""
    for mode in PROMISE:
        cell = summary.total(mode)
        total = cell.counts
        if total.points:
            seen = f"{total.writes:,} writes seen, crashed at {total.points:,} points"
            images = (
                f", {total.images:,} images ({total.distinct:,} distinct, work went on after {total.continued:,})"
                if total.images
                else ""
            )
            rate = f", {(total.images or total.points) / max(cell.seconds, 0.001):,.0f} a second"
            yield f"{mode}: {seen}{images}{rate}"
    if summary.facts:
        names = ("journal_mode", "synchronous", "fullfsync", "page_size", "sqlite_version")
        yield "read back: " + ", ".join(f"{name} {summary.facts[name]}" for name in names)
        if warning := wal_warning(summary.facts["sqlite_version"]):
            yield warning
