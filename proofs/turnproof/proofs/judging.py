"""Which promises ``turnproof check`` can judge, and what its counts say about each.

One client that calls one operation after the other cannot see what happens inside an operation, between two clients, or
above the store. Those promises are listed here with the reason, so that a run that judges all it can is not undecided
for what it cannot; everything else must have been exercised or the run says so.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from turnproof.model.choices import Choices
from turnproof.model.promises import PROMISES
from turnproof.proofs.history import Tally
from turnproof.proofs.report import Judgement
from turnproof.proofs.subjects import Identity

__all__ = ["JUDGED_BY_CHECK", "NOT_JUDGED_BY_CHECK", "judge"]

_CONCURRENT: Final = "needs several clients at once"
_CRASH: Final = "needs a crash inside an operation"
_DRIVER: Final = "is kept by the turn driver above the store"
_ASIDE: Final = "is not visible on the wire"

NOT_JUDGED_BY_CHECK: Final[Mapping[str, str]] = {
    "J11": _CONCURRENT,
    "T4": _CRASH,
    "T7": _CONCURRENT,
    "S3": _DRIVER,
    "R9": "needs a store of a newer schema",
    "R10": "needs a power cut",
    "R12": "needs legacy files",
    "R13": "needs a cancelled caller",
    "R14": "needs a damaged store",
    "R15": _ASIDE,
    "R16": _ASIDE,
    "R17": _ASIDE,
    "R18": _ASIDE,
    "A5": _DRIVER,
    "P8": _DRIVER,
    "C2": _DRIVER,
    **{f"E{number}": _DRIVER for number in range(1, 8)},
    "X1": _CRASH,
    "X2": "needs a power cut",
    "X3": "needs a failing disk",
    "X4": "needs a damaged store",
    "X5": _CONCURRENT,
    "X6": _CRASH,
}
"""Promises that this verb says nothing about, and why."""

JUDGED_BY_CHECK: Final = tuple(promise for promise in PROMISES if promise not in NOT_JUDGED_BY_CHECK)

_WAIVED: Final = {
    # what a declared choice takes out of a promise leaves nothing to check of it
    "J2": ("begin_gate", "open"),
    "T5": ("attempt_reuse", "trusted"),
    "A4": ("anchors", "trusted"),
    "S4": ("stream_key", "opaque"),
    "P1": ("pairing", "path"),
    "P5": ("repair_record", "recomputed"),
}


def judge(tally: Tally, identity: Identity, choices: Choices, broken: str | None) -> dict[str, Judgement]:
    """What a run showed of every promise of the ledger."""
    return {promise: _judged(promise, tally, identity, choices, broken) for promise in PROMISES}


def _judged(promise: str, tally: Tally, identity: Identity, choices: Choices, broken: str | None) -> Judgement:
    sorts = ("accepted", "refused", "errors")
    figures = {sort: tally.promises[promise, sort] for sort in sorts if tally.promises[promise, sort]}
    evidence = {"sampled": sum(figures.values()), **figures} if figures else {}
    if promise == broken:
        return Judgement(verdict="broken", evidence=evidence)
    missing = [need for need in PROMISES[promise].needs if need not in identity.capabilities]
    if missing and promise not in NOT_JUDGED_BY_CHECK:
        return Judgement(verdict="not_offered", reason=f"needs {', '.join(missing)}")
    if promise in _WAIVED and getattr(choices, _WAIVED[promise][0]) == _WAIVED[promise][1]:
        return Judgement(verdict="not_offered", reason="=".join(_WAIVED[promise]))
    if promise in NOT_JUDGED_BY_CHECK:
        return Judgement(verdict="not_checked", reason=NOT_JUDGED_BY_CHECK[promise])
    return Judgement(verdict="kept" if figures else "not_checked", evidence=evidence)
