"""When two answers are the same, what there is to read of a state, and which promise a difference breaks.

An answer is compared with the model's as it is on the wire: values strictly (true is not 1), absent like null, an
unknown extra field ignored. Two things are not promised and so not compared: the number that a submission's
``sequence`` has (only that it rises), and stored times where the subject runs on its own clock.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Final

import attrs

from turnproof.model import operations as ops
from turnproof.model.operations import Operation
from turnproof.model.state import State
from turnproof.proofs.subjects import Identity
from turnproof.proofs.traces import needs
from turnproof.proofs.wire import Err, Json, Ok, Outcome, encode_args

__all__ = ["TIMES", "Comparison", "Known", "blame", "offered"]

TIMES: Final = frozenset(
    [
        "created_at",
        "input_applied_at",
        "recovery_requested_at",
        "settled_at",
        "started_at",
        "stream_consumed_at",
        "timeout_at",
        "timestamp",
        "updated_at",
    ]
)


@attrs.define
class Comparison:
    """Compares answers of one subject; remembers which sequence number stands for which."""

    own_clock: bool = False
    _ranks: dict[int, int] = attrs.Factory(dict)

    def same(self, expected: Outcome, got: Outcome) -> bool:
        """Whether ``got`` is what the model expects."""
        if isinstance(expected, Err):
            return isinstance(got, Err) and expected.code == got.code
        return isinstance(got, Ok) and self._same(expected.value, got.value)

    def _same(self, expected: Json, got: Json) -> bool:
        if isinstance(expected, dict):
            return isinstance(got, dict) and all(
                self._same_field(name, value, got.get(name)) for name, value in expected.items()
            )
        if isinstance(expected, list):
            return isinstance(got, list) and len(got) == len(expected) and all(map(self._same, expected, got))
        return type(expected) is type(got) and expected == got

    def _same_field(self, name: str, expected: Json, got: Json) -> bool:
        if name == "sequence" and isinstance(expected, int):
            return isinstance(got, int) and self._ranked(expected, got)
        if self.own_clock and name in TIMES:
            return bool(expected is None or expected == 0) is bool(got is None or got == 0)
        if expected == "" and got is None:
            return True  # in a record, absent and "" are the same (SPEC section 0)
        return self._same(expected, got)

    def _ranked(self, expected: int, got: int) -> bool:
        """Whether ``got`` may be what the model numbers ``expected``: the same as before, in rising order."""
        known = self._ranks.get(expected)
        if known is not None:
            return known == got
        self._ranks[expected] = got
        order = [self._ranks[number] for number in sorted(self._ranks)]
        return all(one < other for one, other in pairwise(order))


def offered(operation: Operation, identity: Identity) -> bool:
    """Whether the subject declares every capability that the operation takes."""
    return all(need in identity.capabilities for need in needs(operation.verb, encode_args(operation)))


@attrs.define
class Known:
    """Every id that a history mentioned, whether or not it still names anything: what is gone must stay gone."""

    submissions: dict[str, None] = attrs.Factory(dict)
    runs: dict[str, None] = attrs.Factory(dict)
    keys: dict[str, None] = attrs.Factory(dict)

    def note(self, operation: Operation) -> None:
        for name, ids in (
            ("submission_id", self.submissions),
            ("run_id", self.runs),
            ("session_key", self.runs),
            ("stream_key", self.keys),
        ):
            value = getattr(operation, name, None)
            if value is not None:
                ids[value] = None

    def reads(self, now: int) -> Iterator[Operation]:
        """The complete readable state."""
        yield from self._rows(now)
        for submission_id in self.submissions:
            yield ops.Recover(now=now, submission_id=submission_id)
        for run_id in self.runs:
            yield ops.State(now=now, run_id=run_id)
            yield ops.Position(now=now, run_id=run_id)
            yield ops.ContextOf(now=now, run_id=run_id)
        yield ops.ListRunnable(now=now)
        yield ops.ListRunning(now=now)
        yield ops.ListExpired(now=now)
        yield ops.HasUnsettled(now=now)
        yield ops.ListAttemptMarkers(now=now)
        yield ops.ListPendingDeletions(now=now)
        yield ops.Runs(now=now)

    @staticmethod
    def reads_near(operation: Operation, state: State) -> Iterator[Operation]:
        """The rows that an operation names: what it may have changed, but for the lists they stand in."""
        near = Known()
        near.note(operation)
        session = getattr(operation, "session_key", None)
        for row in () if session is None else state.admitted(session):
            near.submissions[row.submission_id] = None
        yield from near._rows(operation.now)

    def _rows(self, now: int) -> Iterator[Operation]:
        for submission_id in self.submissions:
            yield ops.GetSubmission(now=now, submission_id=submission_id)
            yield ops.GetTurnJournal(now=now, submission_id=submission_id)
        for run_id in self.runs:
            yield ops.Replay(now=now, run_id=run_id)
            yield ops.Inspect(now=now, run_id=run_id)
        for stream_key in self.keys:
            yield ops.GetStreamSegments(now=now, stream_key=stream_key)


_TELLING: Final = ("L10", "R11")
"""Promises that say more than what they stand beside in a rule: of a late write, that it was late."""

_MOVED: Final = ("P5", "A3", "A1")
"""What a write may have done to the leaf, when afterwards there is a conversation or none against expectation."""

_ROWS: Final = (ops.GetSubmission, ops.GetTurnJournal, ops.Replay)
"""Reads of what a write itself stores."""

_BLAMED: Final = {
    # A stored field that differs breaks one of these: that which the last write was about, else the first.
    "status": "L6 L2 L5",
    "sequence": "L1",
    "accepted_at": "L1",
    "payload": "L1 R7",
    "attempt_id": "T1 L2 L5 T3",
    "owner_id": "T1 L2 L5",
    "lease_expires_at": "L7 T1 L2 L5",
    "input_applied_at": "L3",
    "recovery_requested_at": "L4 T1 L5",
    "started_at": "L2 T1 L5",
    "settled_at": "L6",
    "error": "L6",
    "attempt_count": "L2 T1 L5",
    "max_retry": "L3",
    "timeout_at": "L2 L3",
    "operation_id": "J3",
    "turn_id": "J3",
    "phase": "J4 J8 J3",
    "revision": "J10",
    "created_at": "J3 L9",
    "updated_at": "J4 J3 T1",
    "stream_key": "J5 J3 T1",
    "stream_consumed_at": "J9 J3 T1",
    "tool_request": "J6 J3 T1",
    "checkpoint_leaf_id": "J6 A4 J3",
    "committed_leaf_id": "J7 J8 J3",
    "body": "S1 S6",
    "leaf": "P5 A3 P2 A1",
    "path": "P5 P2 A2",
    "messages": "A7 A2",
    "model": "A2",
    "repair": "P4 P2",
    "dropped_entry_ids": "P2 P4",
    "pending": "P9",
    "summary": "A8",
    "entries": "A8",
}


def blame(operation: Operation, expected: Outcome, got: Outcome, rule: str, written: Sequence[str]) -> str:
    """The promise that a differing answer breaks.

    ``rule`` is what decided the answer itself. When a *read* differs although the write before it answered well, that
    write did something else than it said: what it was about (``written``), and the field that differs, say what.
    """
    rules = rule.split()
    if not operation.reads or not written:
        return next((promise for promise in _TELLING if promise in rules), rules[0])
    for field in _differing(expected, got):
        suspects = _BLAMED.get(field, "").split()
        if suspects:
            return next((promise for promise in suspects if promise in written), suspects[0])
    if isinstance(operation, ops.State):
        return "R4"
    if isinstance(operation, ops.Inspect | ops.ContextOf):
        moved = next((promise for promise in _MOVED if promise in written), None)
        return moved or (rules[-1] if isinstance(expected, Err) else rules[0])
    return written[0] if isinstance(operation, _ROWS) else rules[0]


def _differing(expected: Outcome, got: Outcome) -> Iterator[str]:
    """The names of the fields in which two answers differ, the innermost first."""
    if isinstance(expected, Ok) and isinstance(got, Ok):
        yield from _fields(expected.value, got.value)


def _fields(expected: Json, got: Json) -> Iterator[str]:
    if isinstance(expected, dict) and isinstance(got, dict):
        for name, value in expected.items():
            if value != got.get(name):
                yield from _fields(value, got.get(name))
                yield name
    elif isinstance(expected, list) and isinstance(got, list):
        for one, other in zip(expected, got, strict=False):
            yield from _fields(one, other)
