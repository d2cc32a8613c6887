"""Tail repair: what may be cut from the end of a conversation, what is kept, and what is corruption (P1-P7, P9).

A provider accepts a conversation only if every tool call is answered, once, before anything else is said. A crash can
leave one that is not. Most of the damage in the field was done by repairs that guessed; this one only ever cuts the
*last* step, whole, and calls everything else by its name.

A **step** is an assistant message with calls and the block of tool messages right after it on the active path; entries
that are no messages do not break the block. Pairing never looks outside the step, since providers use the same call ids
again in later turns (P1). Each step is judged by four predicates, and each item outside a step by one; ``ROWS`` lists
what follows, every row with the paragraph how its state arises. The rows are disjoint and complete: for every
combination of the predicates exactly one fits.

The rules work on ``Item``: what is left of an entry when text is taken away. Call ids are compared for equality only.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum, auto
from typing import Final, Generic, TypeVar

from attrs import frozen

from turnproof.model.choices import STRICT, Choices
from turnproof.model.payload import Message

__all__ = [
    "ROWS",
    "WHOLE",
    "Finding",
    "Item",
    "Row",
    "Sort",
    "Step",
    "Verdict",
    "examine",
    "item_of",
    "split_into_steps",
]

Id = TypeVar("Id")


class Sort(Enum):
    """What kind of entry an item stands for."""

    ASSISTANT = auto()
    TOOL = auto()
    MESSAGE = auto()
    """A message of any other role."""
    OTHER = auto()
    """An entry that is no message."""


@frozen
class Item(Generic[Id]):
    """An entry of the active path, as the rules of pairing see it."""

    sort: Sort
    calls: tuple[Id, ...] = ()
    results: tuple[Id, ...] = ()


class Verdict(Enum):
    """What is done about it."""

    KEEP = auto()
    CUT = auto()
    """The whole step leaves the active path."""
    CLOSE = auto()
    """The step stays, and recovery answers its open calls (P8)."""
    CORRUPT = auto()


@frozen
class Row:
    """One row of the decision table. A predicate that is ``None`` does not matter to the row."""

    name: str
    promise: str
    verdict: Verdict
    stray: bool | None
    """The item holds a result that answers no open call of its step, or a call where none may be."""
    open: bool | None
    """The step has a call without a result."""
    followed: bool | None
    """A message stands after the step's block."""
    recorded: bool | None
    """The journal is in tool_request_recorded for exactly this step."""
    arises: str

    def fits(self, *, stray: bool, open: bool, followed: bool, recorded: bool) -> bool:
        pairs = ((self.stray, stray), (self.open, open), (self.followed, followed), (self.recorded, recorded))
        return all(wanted is None or wanted == found for wanted, found in pairs)


ROWS: Final = (
    Row(
        name="stray",
        promise="P3",
        verdict=Verdict.CORRUPT,
        stray=True,
        open=None,
        followed=None,
        recorded=None,
        arises="A result was stored twice after a lost acknowledgement, or its call was cut from under it by a "
        "compaction or by a repair that dropped single calls, or it was appended to the wrong parent. Which of two "
        "results is true, or what an answer without a question means, cannot be decided here.",
    ),
    Row(
        name="whole",
        promise="P6",
        verdict=Verdict.KEEP,
        stray=False,
        open=False,
        followed=None,
        recorded=None,
        arises="The step was stored as one unit, or record by record without a crash between. A complete step is never "
        "dropped, wherever it stands and whatever the journal says.",
    ),
    Row(
        name="hole",
        promise="P3",
        verdict=Verdict.CORRUPT,
        stray=False,
        open=True,
        followed=True,
        recorded=None,
        arises="A crash tore the step, and somebody went on after it without repairing: the hole is now in the middle "
        "of history. To cut it would take away what came after; to leave it would be refused by every provider.",
    ),
    Row(
        name="torn",
        promise="P2",
        verdict=Verdict.CUT,
        stray=False,
        open=True,
        followed=False,
        recorded=False,
        arises="A store without atomic steps crashed between the assistant message and the last of its results, and no "
        "journal knows the calls. Nothing after it depends on it, so the step leaves the path whole, answered siblings "
        "too: half a batch replayed would run finished tools again.",
    ),
    Row(
        name="pending",
        promise="P9",
        verdict=Verdict.CLOSE,
        stray=False,
        open=True,
        followed=False,
        recorded=True,
        arises="The attempt recorded its tool request, stored the step or a part of it, and died. The journal knows "
        "more than the transcript: the tools may have run. The step stays, and recovery answers what is open with "
        "'interrupted, outcome unknown'.",
    ),
)
"""What is done about a step, or about an item outside any step."""


@frozen
class Step(Generic[Id]):
    """A step found on a path."""

    start: int
    """The index of the assistant message."""
    calls: tuple[Id, ...]
    open: tuple[Id, ...]
    """Calls without a result, in the order of the message."""
    end: int
    """The index of the last tool message of the block, ``start`` when there is none."""
    followed: bool


@frozen
class Finding:
    """The row that decides a path, and the index of the item it speaks of (the step's start, or the stray item)."""

    row: Row
    at: int


_BY_NAME: Final = {row.name: row for row in ROWS}
WHOLE: Final = Finding(_BY_NAME["whole"], -1)


def split_into_steps(path: Sequence[Item[Id]]) -> tuple[tuple[Step[Id], ...], tuple[int, ...]]:
    """The steps of a path, and the indices of items that hold a stray result or a misplaced call (P1, P3)."""
    steps: list[Step[Id]] = []
    strays: list[int] = []
    for at, item in enumerate(path):
        if item.sort is Sort.OTHER:
            continue
        step = steps[-1] if steps and not steps[-1].followed else None
        if step is not None and item.sort is Sort.TOOL:
            still_open = step.open
            for result in item.results:
                if result not in still_open:
                    strays.append(at)
                still_open = tuple(call for call in still_open if call != result)
            steps[-1] = Step(step.start, step.calls, still_open, at, False)
        elif item.results:
            strays.append(at)
        if item.sort is not Sort.TOOL and step is not None:
            steps[-1] = Step(step.start, step.calls, step.open, step.end, True)
        if item.calls and item.sort is Sort.ASSISTANT:
            steps.append(Step(at, item.calls, item.calls, at, False))
        elif item.calls:
            strays.append(at)
    return tuple(steps), tuple(strays)


def _across_path(path: Sequence[Item[Id]], steps: tuple[Step[Id], ...]) -> tuple[tuple[Step[Id], ...], tuple[int, ...]]:
    """The laxer pairing of the choice ``pairing=path``: any result anywhere on the path answers a call."""
    calls = [call for step in steps for call in step.calls]
    results = [result for item in path for result in item.results]
    wider = tuple(
        Step(s.start, s.calls, tuple(call for call in s.calls if call not in results), s.end, s.followed) for s in steps
    )
    return wider, tuple(
        at
        for at, item in enumerate(path)
        if any(result not in calls for result in item.results) or (item.calls and item.sort is not Sort.ASSISTANT)
    )


def examine(path: Sequence[Item[Id]], recorded: int | None = None, choices: Choices = STRICT) -> Finding:
    """What is to be done about a path: the first corruption on it, else the row of its last open step.

    ``recorded`` is the index of the assistant message whose calls the journal holds, if it does (P9).
    """
    steps, strays = split_into_steps(path)
    if choices.pairing == "path":
        steps, strays = _across_path(path, steps)
    found = [
        Finding(row, step.start)
        for step in steps
        for row in ROWS
        if row.fits(stray=False, open=bool(step.open), followed=step.followed, recorded=step.start == recorded)
        and row.verdict is not Verdict.KEEP
    ]
    found += [Finding(_BY_NAME["stray"], at) for at in strays]
    corrupt = [finding for finding in found if finding.row.verdict is Verdict.CORRUPT]
    return min(corrupt, key=lambda finding: finding.at) if corrupt else found[-1] if found else WHOLE


def item_of(message: Message | None) -> Item[str]:
    """The item that an entry is to the rules; ``None`` for an entry that is no message."""
    if message is None:
        return Item(Sort.OTHER)
    sort = {"assistant": Sort.ASSISTANT, "tool": Sort.TOOL}.get(message.role, Sort.MESSAGE)
    return Item(sort, tuple(c.id for c in message.calls), tuple(r.call_id for r in message.results))
