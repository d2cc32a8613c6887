"""What a store is made to do before it crashes: a scenario as data, and what the model says of every moment of it.

A *step* is an operation, or an act that no wire operation is but that writes: opening (creation, import), closing (the
last connection moves the write-ahead log), a checkpoint. A *timeline* is the same history on the model: which states a
crash may leave while a step is in flight. That is before or after it; of a session deletion also what its first and
second unit leave (L10).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Final, Literal, TypeAlias

import attrs

from turnproof.impl.memory import dump_of
from turnproof.impl.views import Dump
from turnproof.model.choices import STRICT
from turnproof.model.log import Run, moved_state
from turnproof.model.operations import DeleteSession, Operation
from turnproof.model.rows import Record
from turnproof.model.state import EMPTY, State
from turnproof.model.turn_layer import DELETION_UNITS
from turnproof.model.vocabulary import InvalidArgument, RunState
from turnproof.proofs.subjects import Expected, expected
from turnproof.proofs.wire import Json, Object, decode_operation, encode, encode_args

__all__ = ["ACTS", "DIRECTORY", "Act", "Legacy", "Moment", "Scenario", "Step", "Timeline", "adopt", "timeline"]

DIRECTORY: Final = "/store"
"""Where the store is, on the memory disk."""

Act: TypeAlias = Literal["open", "close", "checkpoint"]
ACTS: Final[tuple[Act, ...]] = ("open", "close", "checkpoint")

Legacy: TypeAlias = Mapping[str, tuple[Record, ...]]
"""Runs in the former format, waiting to be imported (R12), by run id."""


@attrs.frozen
class Step:
    """One thing that a client does. ``store`` tells apart connections to the same file, each an open store."""

    what: Operation | Act
    store: int = 0

    @property
    def label(self) -> str:
        name = self.what if isinstance(self.what, str) else self.what.verb
        return name if self.store == 0 else f"{name} on store {self.store}"

    def as_json(self) -> Object:
        told: Object = {"store": self.store} if self.store else {}
        if isinstance(self.what, str):
            return {"act": self.what, **told}
        return {"op": self.what.verb, "args": encode_args(self.what), **told}

    @classmethod
    def from_json(cls, value: Json) -> Step:
        """Raises ``InvalidArgument`` for what is no step."""
        if not isinstance(value, dict):
            raise InvalidArgument("a step is a JSON object")
        store, act, op, args = value.get("store", 0), value.get("act"), value.get("op"), value.get("args")
        if not isinstance(store, int):
            raise InvalidArgument("'store' is a number")
        for known in ACTS:
            if act == known:
                return cls(known, store)
        if not isinstance(op, str) or not isinstance(args, dict):
            raise InvalidArgument(f"a step has 'op' and 'args', or an 'act' of {', '.join(ACTS)}")
        return cls(decode_operation(op, args, 0), store)


@attrs.frozen(kw_only=True)
class Scenario:
    """A history to crash in. ``prior`` happens before the recording and is durable; ``steps`` are crashed."""

    name: str
    steps: tuple[Step, ...]
    prior: tuple[Operation, ...] = ()
    hot: bool = False
    """The prior state was left by a kill, so that its last writes are still in the write-ahead log."""
    legacy: Legacy = attrs.field(factory=dict)
    wal_autocheckpoint: int = 1000

    def files(self) -> dict[str, bytes]:
        """The legacy logs as files, each beside the lock that its dead writer left."""
        found: dict[str, bytes] = {}
        for run_id, records in self.legacy.items():
            lines = (json.dumps({k: v for k, v in _line(record).items() if v != ""}) + "\n" for record in records)
            found[f"{DIRECTORY}/runs/{run_id}.jsonl"] = "".join(lines).encode()
            found[f"{DIRECTORY}/runs/{run_id}.lock"] = b""
        return found

    def start(self) -> State:
        """The model after ``prior``."""
        state = EMPTY
        for operation in self.prior:
            state = expected(operation, state, STRICT).state
        return state

    def as_json(self) -> Object:
        return {
            "name": self.name,
            "prior": [Step(operation).as_json() for operation in self.prior],
            "hot": self.hot,
            "legacy": {run_id: [_line(record) for record in records] for run_id, records in self.legacy.items()},
            "wal_autocheckpoint": self.wal_autocheckpoint,
            "steps": [step.as_json() for step in self.steps],
        }


def _line(record: Record) -> Object:
    line = encode(record)
    assert isinstance(line, dict)
    return line


def adopt(state: State, legacy: Legacy) -> State:
    """The state after an open has imported what waits: runs that are there already are skipped (R12)."""
    runs = state.runs
    for run_id, records in legacy.items():
        if run_id not in runs:
            runs = runs.put(run_id, Run(records, moved_state(RunState.PENDING, records)))
    return attrs.evolve(state, runs=runs)


@attrs.define(eq=False)
class Moment:
    """One state that a crash may leave, with its dump (made once: it is compared with thousands of images)."""

    state: State
    _dump: Dump | None = None

    @property
    def dump(self) -> Dump:
        if self._dump is None:
            self._dump = dump_of(self.state)
        return self._dump


@attrs.frozen(eq=False)
class Timeline:
    """``moments[k]``: after k steps. ``flying[k]``: all that may be found while step k is in flight, in order."""

    moments: tuple[Moment, ...]
    flying: tuple[tuple[Moment, ...], ...]
    answers: tuple[Expected | None, ...]
    """What the model answers to each step; ``None`` for an act."""

    def allowed(self, acknowledged: int, in_flight: bool, lose: bool = False) -> tuple[Moment, ...]:
        """What a crash may leave (X1, X2); ``lose``: any prefix of the acknowledged history too (relaxed, R10).

        The latest comes first: it is what most images hold.
        """
        last = self.flying[acknowledged] if in_flight else (self.moments[acknowledged],)
        earlier = [moment for flying in self.flying[:acknowledged] for moment in flying] if lose else []
        return (*reversed(last), *reversed(earlier))


def timeline(start: State, steps: Sequence[Step], legacy: Legacy) -> Timeline:
    """Tell a history on the model."""
    moments = [Moment(start)]
    flying: list[tuple[Moment, ...]] = []
    answers: list[Expected | None] = []
    for step in steps:
        before = moments[-1]
        answer: Expected | None = None
        between: list[State] = []
        if isinstance(step.what, Operation):
            answer = expected(step.what, before.state, STRICT)
            between = _units(step.what, before.state, answer)
            after = answer.state
        else:
            after = adopt(before.state, legacy) if step.what == "open" else before.state
        now = before if after == before.state else Moment(after)
        middle = [Moment(state) for state in between if state not in (before.state, after)]
        done = [now] if middle or now is not before else []  # a deletion of nothing ends where it began
        flying.append((before, *middle, *done))
        moments.append(now)
        answers.append(answer)
    return Timeline(tuple(moments), tuple(flying), tuple(answers))


def _units(operation: Operation, state: State, answer: Expected) -> list[State]:
    """The states between the units of a deletion; every other operation is one unit."""
    found: list[State] = []
    if isinstance(operation, DeleteSession) and answer.sort == "accepted":
        for unit in DELETION_UNITS[:-1]:
            state = unit(state, operation.session_key, STRICT)
            found.append(state)
    return found
