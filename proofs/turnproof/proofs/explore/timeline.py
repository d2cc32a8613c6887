"""A history as a timeline: one column a worker, one line a step, in ASCII."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from turnproof.model import operations as ops
from turnproof.model.decision import Accept, Fail, Refuse
from turnproof.proofs.explore.machine import IDLE, Label
from turnproof.proofs.explore.search import Step

__all__ = ["describe", "draw", "placed"]

_WIDTH: Final = 44


def placed(steps: Iterable[Step], workers: int) -> Iterator[tuple[int | None, Step]]:
    """Each step with the worker that takes it, counted from 0; ``None`` for what no worker does.

    In a history workers are known by what they are at; here each is given one place for good. New work goes to a
    worker who was never seen before, while there is one.
    """
    at = [IDLE] * workers
    fresh = list(range(workers))
    for step in steps:
        if step.before is None:
            yield None, step
            continue
        idle = [place for place in fresh if at[place] == IDLE] or [p for p in range(workers) if at[p] == IDLE]
        place = idle[0] if step.before == IDLE else at.index(step.before)
        if place in fresh:
            fresh.remove(place)
        at[place] = step.after
        yield place, step


def draw(steps: Sequence[Step], workers: int) -> str:
    """The timeline of a history."""
    lines = [(place, describe(step.label)) for place, step in placed(steps, workers)]
    used = sorted({place for place, _ in lines if place is not None})
    rows = ["     " + "".join(f"{f'worker {place + 1}':<{_WIDTH}}" for place in used)]
    for number, (place, text) in enumerate(lines, 1):
        if place is None:
            rows.append(f"{number:>3}  -- {text} --")
            continue
        cells = (text if place == column else "|" for column in used)
        rows.append(f"{number:>3}  " + "".join(f"{cell:<{_WIDTH}}" for cell in cells))
    return "\n".join(row.rstrip() for row in rows)


def describe(label: Label) -> str:
    """One step in a few words."""
    if isinstance(label.request, str):
        return label.request
    match label.answer:
        case Accept():
            return _request(label.request)
        case Refuse():
            return f"{_request(label.request)}: REFUSED"
        case Fail(code):
            return f"{_request(label.request)}: {code.value}"
        case _:
            return _request(label.request)


def _request(operation: ops.Operation) -> str:
    match operation:
        case ops.Claim(submission_id=submission, attempt_id=attempt):
            return f"claim {submission} as {attempt}"
        case ops.ReplaceTurnJournalAttempt(attempt_id=attempt, next_attempt_id=following):
            return f"transfer {attempt} -> {following}"
        case ops.BeginTurnJournal(turn_id=turn):
            return f"begin turn {turn}"
        case ops.UpdateTurnJournalPhase(phase=phase):
            return phase
        case ops.CommitTurnJournal(committed_leaf_id=leaf):
            return f"commit at {leaf}"
        case ops.Append(record=record):
            return f"append {record.entry_id}"
        case ops.AppendStep(records=records):
            return f"append step {records[0].entry_id} +{len(records) - 1}"
        case ops.AppendStreamSegment(segment_index=index):
            return f"segment {index}"
        case ops.SetLeaf(entry_id=entry):
            return f"set leaf {entry}"
        case _:
            return operation.verb.replace("_", " ")
