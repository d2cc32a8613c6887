"""A counterexample is a file: the history, which store under which policy, and the one crash or fault it is about.

The run is recorded anew when the file is replayed, with the same seed, and the crash made again from that recording: a
file says what happened, not what the bytes were, and so it also tells whether a store was put right since.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Literal, cast

import attrs

from turnproof.model.operations import Operation
from turnproof.model.promises import PROMISES
from turnproof.model.rows import Record
from turnproof.model.vocabulary import InvalidArgument, RecordKind, TurnproofError
from turnproof.proofs.crash.faulting import Fault, one_fault
from turnproof.proofs.crash.judge import Finding, Judge
from turnproof.proofs.crash.script import Scenario, Step
from turnproof.proofs.crash.stage import ALWAYS, Nonconforming, Opener, Played, Setting, record
from turnproof.proofs.crash.sweep import Crash, follow, quiet_points, sweep, sweep_deeper
from turnproof.proofs.crash.wrong import WRONG
from turnproof.proofs.disk import Image, NoSuchImage, Recording, rebuild
from turnproof.proofs.disk.faults import Call, FaultKind
from turnproof.proofs.subjects import Flush
from turnproof.proofs.wire import Json, Object, parse_line

__all__ = ["Counterexample", "Point", "Replayed", "of_crash", "read", "replay", "write"]

FORMAT: Final = 1
OURS: Final = "turnproof"


@attrs.frozen
class Point:
    """One image of a recording, as `rebuild` takes it."""

    kind: Literal["kill", "power"]
    point: int
    choice: str = ""
    seed: int = 0

    @classmethod
    def of(cls, image: Image) -> Point:
        return cls(image.kind, image.point, image.choice, image.seed)

    def __str__(self) -> str:
        fates = f", unsynced {self.choice}" if self.choice else ""
        return f"{self.kind} before event {self.point}{fates}"


@attrs.frozen(kw_only=True)
class Counterexample:
    """``crash`` or ``fault``; ``first`` is the kill before, at depth 2."""

    scenario: Scenario
    store: str = OURS
    flush: Flush = "always"
    seed: int = 1
    crash: Point | None = None
    first: Point | None = None
    fault: Fault | None = None
    promise: str = "X1"
    what: str = ""
    expected: str = ""
    got: str = ""

    @property
    def setting(self) -> Setting:
        opener: Opener = ALWAYS.opener if self.store == OURS else WRONG[self.store].opener
        return Setting(self.flush, opener)


def of_crash(played: Played, crash: Crash, store: str, seed: int) -> Counterexample:
    """The counterexample that a crash is."""
    return Counterexample(
        scenario=played.scenario,
        store=store,
        flush=played.setting.flush,
        seed=seed,
        crash=Point.of(crash.image),
        first=None if crash.first is None else Point.of(crash.first),
        promise=crash.finding.promise,
        what=crash.finding.what,
        expected=crash.finding.expected,
        got=crash.finding.got,
    )


@attrs.frozen
class Replayed:
    """What came of a replay. ``note`` says so when the store no longer writes what the file's crash cut off."""

    finding: Finding | None
    note: str = ""


def replay(example: Counterexample) -> Replayed:
    """Crash again at the same point.

    A store that was changed since may have no such point any more. Then every crash of that kind is made.
    """
    if example.fault is not None:
        return Replayed(one_fault(example.scenario, example.fault, example.setting, example.seed))
    try:
        played = record(example.scenario, example.setting, example.seed)
    except Nonconforming as wrong:
        return Replayed(Finding(example.promise, str(wrong)))
    assert example.crash is not None
    try:
        return Replayed(_once(played, example.crash, example.first))
    except NoSuchImage as gone:
        again = (sweep if example.first is None else sweep_deeper)(played, example.crash.kind)
        finding = again.crashes[0].finding if again.crashes else None
        return Replayed(finding, f"{gone}; so all {again.counts.images:,} images of the scenario were judged")


def _once(played: Played, crash: Point, before: Point | None) -> Finding | None:
    scenario = played.scenario
    with Judge(played.timeline, scenario.steps, scenario.legacy, played.setting) as judge:
        if before is None:
            return judge(_image(played.recording, crash))
        first = _image(played.recording, before)
        second = follow(played, first, judge, quiet_points(played.recording)[first.point])
    if second is None:
        return None
    image = _image(second.recording, crash)
    with Judge(second.told, second.steps, scenario.legacy, played.setting) as judge:
        return judge(image)


def _image(recording: Recording, at: Point) -> Image:
    return rebuild(recording, at.kind, at.point, at.choice, at.seed)


# --- as a file -------------------------------------------------------------------------------------------------------


def write(example: Counterexample, directory: Path) -> Path:
    """Save it under a name that says what it is about."""
    where = example.fault or (example.first or example.crash)
    at = f"{where.nth}" if isinstance(where, Fault) else f"{where.point}" if where else ""
    name = re.sub(r"[^A-Za-z0-9]+", "-", f"{example.promise} {example.scenario.name}").strip("-")
    path = directory / f"turnproof-crash-{name}-{at}.json"
    path.write_text(json.dumps(as_json(example), indent=1) + "\n", encoding="utf-8")
    return path


def as_json(example: Counterexample) -> Object:
    value: Object = {
        "crash": FORMAT,
        "promise": example.promise,
        "statement": PROMISES[example.promise].statement,
        "what": example.what,
        "expected": example.expected,
        "got": example.got,
        "store": example.store,
        "flush": example.flush,
        "seed": example.seed,
        "scenario": example.scenario.as_json(),
    }
    for name, part in (("at", example.crash), ("after", example.first), ("fault", example.fault)):
        if part is not None:
            value[name] = attrs.asdict(part)
    return value


def read(path: Path) -> Counterexample:
    """Raises ``InvalidArgument`` for a file that is none, naming it."""
    try:
        value = parse_line(path.read_bytes())
        if not isinstance(value, dict) or value.get("crash") != FORMAT:
            raise InvalidArgument('it has no "crash": 1')
        return _decoded(value)
    except OSError as error:
        raise InvalidArgument(f"{path}: {error.strerror}") from None
    except (TurnproofError, KeyError, TypeError, ValueError) as error:
        raise InvalidArgument(f"{path} is no counterexample of 'turnproof crash': {error}") from None


def _decoded(value: Object) -> Counterexample:
    store, flush, seed = value["store"], value["flush"], value["seed"]
    if store != OURS and store not in WRONG:
        raise InvalidArgument(f"unknown store {store!r}")
    if flush not in ("always", "relaxed") or not isinstance(seed, int):
        raise InvalidArgument("'flush' is always or relaxed, 'seed' a number")
    at, before, fault = value.get("at"), value.get("after"), value.get("fault")
    if (at is None) == (fault is None):
        raise InvalidArgument("there is either 'at' or 'fault'")
    return Counterexample(
        scenario=_scenario(_object(value["scenario"])),
        store=str(store),
        flush=cast(Flush, flush),
        seed=seed,
        crash=None if at is None else _point(_object(at)),
        first=None if before is None else _point(_object(before)),
        fault=None if fault is None else _fault(_object(fault)),
        promise=_promise(value["promise"]),
    )


def _promise(value: Json) -> str:
    if not isinstance(value, str) or value not in PROMISES:
        raise InvalidArgument(f"unknown promise {value!r}")
    return value


def _object(value: Json) -> Object:
    if not isinstance(value, dict):
        raise InvalidArgument("a JSON object is missing")
    return value


def _point(value: Object) -> Point:
    kind, point, choice, seed = value["kind"], value["point"], value.get("choice", ""), value.get("seed", 0)
    if kind not in ("kill", "power") or not isinstance(point, int) or not isinstance(seed, int):
        raise InvalidArgument("a crash has 'kind' (kill or power), 'point' and 'seed'")
    if not isinstance(choice, str) or not re.fullmatch(r"(?:[+-]|[tg]\d+)*", choice):
        raise InvalidArgument("'choice' has a + or - for each unsynced event, or t or g and a number of sectors")
    return Point(cast(Literal["kill", "power"], kind), point, choice, seed)


def _fault(value: Object) -> Fault:
    kind, call, sticky, nth = value["kind"], value["call"], value["sticky"], value["nth"]
    if not isinstance(sticky, bool) or not isinstance(nth, int):
        raise InvalidArgument("a fault has 'kind', 'call', 'sticky' and 'nth'")
    fault = Fault(cast(FaultKind, kind), cast(Call, call), sticky, nth)
    fault.plan()
    return fault


def _scenario(value: Object) -> Scenario:
    steps, prior, legacy = value["steps"], value["prior"], _object(value["legacy"])
    pages, hot = value["wal_autocheckpoint"], value["hot"]
    if not isinstance(steps, list) or not isinstance(prior, list) or not isinstance(pages, int):
        raise InvalidArgument("a scenario has 'steps', 'prior' and 'wal_autocheckpoint'")
    before = [Step.from_json(step).what for step in prior]
    return Scenario(
        name=str(value["name"]),
        steps=tuple(map(Step.from_json, steps)),
        prior=tuple(operation for operation in before if isinstance(operation, Operation)),
        hot=bool(hot),
        legacy={run_id: _records(records) for run_id, records in legacy.items()},
        wal_autocheckpoint=pages,
    )


def _records(value: Json) -> tuple[Record, ...]:
    if not isinstance(value, list):
        raise InvalidArgument("a legacy run is a list of records")
    return tuple(_record(_object(line)) for line in value)


def _record(line: Mapping[str, Json]) -> Record:
    seq, timestamp = line["seq"], line["timestamp"]
    if not isinstance(seq, int) or not isinstance(timestamp, int):
        raise InvalidArgument("'seq' and 'timestamp' are numbers")
    texts = {
        name: str(line.get(name, ""))
        for name in ("run_id", "entry_id", "parent_id", "role", "ext_type", "text", "state", "payload")
    }
    return Record(seq=seq, timestamp=timestamp, kind=RecordKind(str(line["kind"])), **texts)
