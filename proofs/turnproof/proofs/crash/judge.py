"""The judgement of one disk after one crash (X1, X2, L10, R10, R12, R14).

An image is put on a disk and the real store opens it. Then: `PRAGMA integrity_check`; everything that can be read, with
every digest of every record log verified on the way, must be *one of* the states that the model allows at that moment;
each row keeps its invariant; what waited to be imported was imported and not lost. Then work goes on (`Aftermath`):
the operation that was in flight is repeated, deletions are finished, every running submission is recovered by the
reference recovery, and new work is done. Each answer is the model's, and so is the whole state in the end.

What happens to an image depends on its bytes and on what is allowed, and on nothing else: an image that was judged with
the same bytes for the same moment is not judged again. Counted are points, images, distinct images and judgements, and
after how many of these work went on: all of them, or when time is short the first of those that are `alike`.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections import Counter
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Final, Self

import attrs

from turnproof.impl import Store
from turnproof.impl.views import Dump
from turnproof.model import journal, submission
from turnproof.model.operations import Operation
from turnproof.model.vocabulary import TurnproofError
from turnproof.proofs.compare import Comparison
from turnproof.proofs.crash.aftermath import after, memory_of
from turnproof.proofs.crash.script import DIRECTORY, Legacy, Moment, Step, Timeline
from turnproof.proofs.crash.stage import ALWAYS, Loaded, Setting, Stage, call, without_timers
from turnproof.proofs.disk import Disk, Image, Mark

__all__ = ["ALL", "FIRST", "Finding", "Judge", "difference"]

ALL: Final = float("inf")
FIRST: Final = 1.0


@attrs.frozen
class Finding:
    """What is wrong with one image."""

    promise: str
    what: str
    expected: str = ""
    got: str = ""


def difference(wanted: Dump, got: Dump) -> tuple[str, str]:
    """The first part in which two dumps differ, as text of both."""
    for field in attrs.fields(Dump):
        one, two = getattr(wanted, field.name), getattr(got, field.name)
        if one != two:
            if isinstance(one, Mapping) and isinstance(two, Mapping):
                key = next(key for key in [*one, *two] if one.get(key) != two.get(key))
                return f"{field.name}[{key!r}] = {one.get(key)}", f"{field.name}[{key!r}] = {two.get(key)}"
            return f"{field.name} = {one}", f"{field.name} = {two}"
    return "", ""


@attrs.define(eq=False)
class Judge:
    """Judges images against a timeline. Close it when done; ``judged`` and ``lost`` are what came of it."""

    told: Timeline
    steps: Sequence[Step]
    legacy: Legacy
    setting: Setting = ALWAYS
    alike: float = ALL
    """After how many images that hold the same state at the same moment work goes on."""
    images: int = attrs.field(default=0, init=False)
    continued: int = attrs.field(default=0, init=False)
    """Images after which work went on."""
    lost: int = attrs.field(default=0, init=False)
    """Images that lost acknowledged work, as ``relaxed`` may."""
    found: Counter[int] = attrs.field(factory=Counter, init=False)
    """How often each of the allowed states was there, by its place among them: 0 is the latest."""
    _disk: Disk = attrs.field(init=False)
    _alike: Counter[tuple[int, str, int]] = attrs.field(factory=Counter, init=False)
    _quiet: contextlib.ExitStack = attrs.field(factory=contextlib.ExitStack, init=False)
    _known: dict[tuple[bytes, int, str, bool], Finding | None] = attrs.field(factory=dict, init=False)
    _digests: set[bytes] = attrs.field(factory=set, init=False)
    _dumps: dict[bytes, Dump] = attrs.field(factory=dict, init=False)
    _contents: dict[bytes, Dump | Finding] = attrs.field(factory=dict, init=False)

    def __attrs_post_init__(self) -> None:
        self._disk = Disk(record=False)

    def __enter__(self) -> Self:
        self._quiet.enter_context(without_timers())
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self._quiet.close()
        self._disk.close()

    @property
    def distinct(self) -> int:
        return len(self._digests)

    @property
    def judged(self) -> int:
        return len(self._known)

    def __call__(self, image: Image) -> Finding | None:
        """What is wrong with an image, ``None`` if nothing is."""
        self.images += 1
        self._digests.add(image.digest)
        lose = image.kind == "power" and self.setting.flush == "relaxed"
        key = (image.digest, image.mark.acknowledged, image.mark.operation, lose)
        if key not in self._known:
            allowed = self.told.allowed(image.mark.acknowledged, bool(image.mark.operation), lose)
            self._known[key] = self.judge(image, allowed)
        return self._known[key]

    def moment(self, image: Image) -> Moment | None:
        """Which of the allowed states an image holds, before anything is imported into it."""
        allowed = self.told.allowed(image.mark.acknowledged, bool(image.mark.operation))
        self._disk.load(image.files)
        stage = Stage(self._disk, self.setting)
        try:
            dump = stage.open().dump()
        except TurnproofError:
            return None
        finally:
            with self._disk.unplugged():
                stage.close()
        pairs = zip(allowed, self._adopted(allowed), strict=True)
        return next((raw for raw, adopted in pairs if adopted.dump == dump), None)

    def judge(self, image: Image, allowed: Sequence[Moment]) -> Finding | None:
        """Judge it against any set of states; what was read from the same bytes before is not read again."""
        promise = "X1" if image.kind == "kill" else "X2"
        settled: Moment | None = None
        if (known := self._dumps.get(image.digest)) is not None:
            result = self._settle(known, image.mark, allowed, promise)
            if not isinstance(result, Moment):
                return result
            settled = result
        self._disk.load(image.files)
        stage = Stage(self._disk, self.setting, files=Loaded(self._disk.files, dict(image.files)))
        return self._at(stage, image.mark, promise, settled, allowed, image.digest)

    def judge_at(self, stage: Stage, mark: Mark, allowed: Sequence[Moment], promise: str) -> Finding | None:
        """Judge what is where the stage opens its store."""
        return self._at(stage, mark, promise, None, allowed, b"")

    def _at(
        self,
        stage: Stage,
        mark: Mark,
        promise: str,
        settled: Moment | None,
        allowed: Sequence[Moment],
        digest: bytes,
    ) -> Finding | None:
        """Open the store; read and settle what it holds, unless that is done; go on working where that is wanted."""
        try:
            store = stage.open()
            if settled is not None:
                return self._go_on(store, settled, mark, promise)
            dump = self._read(stage, promise)
            if isinstance(dump, Finding):
                return dump
            if lost := self._lost_legacy():
                return Finding("R12", lost)
            if digest:
                self._dumps[digest] = dump
            result = self._settle(dump, mark, allowed, promise)
            return self._go_on(store, result, mark, promise) if isinstance(result, Moment) else result
        except TurnproofError as error:
            return Finding(promise, f"the store does not go on: {error.code.value}: {error.message}")
        except sqlite3.Error as error:
            return Finding(promise, f"an error that is not typed: {error}")
        finally:
            with stage.disk.unplugged():
                stage.close()

    def _read(self, stage: Stage, promise: str) -> Dump | Finding:
        """Everything that an open store holds, if it is sound in itself; the same pages are looked at once."""
        content = stage.content()
        if content not in self._contents:
            self._contents[content] = self._examine(stage, promise)
        return self._contents[content]

    def _examine(self, stage: Stage, promise: str) -> Dump | Finding:
        if (said := stage.integrity()) != "ok":
            return Finding(promise, "the database is not sound", "ok", said)
        dump = stage.stores[0].dump()
        broken = _broken_invariant(dump)
        return Finding(promise, broken) if broken else dump

    def _settle(self, dump: Dump, mark: Mark, allowed: Sequence[Moment], promise: str) -> Finding | Moment | None:
        """Whether a state is allowed; the moment that it is, if work is to go on there."""
        adopted = self._adopted(allowed)
        found = next((place for place, moment in enumerate(adopted) if moment.dump == dump), None)
        if found is None:
            wanted, got = difference(adopted[0].dump, dump)
            return Finding(promise, f"the state is none of the {len(adopted)} allowed ones", wanted, got)
        self.found[found] += 1
        self.lost += found >= len(self.told.allowed(mark.acknowledged, bool(mark.operation)))
        place = (mark.acknowledged, mark.operation, found)
        self._alike[place] += 1
        if self._alike[place] > self.alike:
            return None
        self.continued += 1
        return adopted[found]

    def _adopted(self, allowed: Sequence[Moment]) -> Sequence[Moment]:
        """The states as opening shows them: with what waits for import (R12)."""
        return allowed if not self.legacy else [memory_of(self.told).adopted(moment, self.legacy) for moment in allowed]

    def _lost_legacy(self) -> str:
        """Whether an open store still has each legacy log, retired once, and no lock."""
        names = self._disk.files.listdir(f"{DIRECTORY}/runs") if self.legacy else []
        kept = [f"{run_id}.jsonl.imported" for run_id in sorted(self.legacy)]
        return "" if sorted(names) == kept else f"the legacy logs are {names}, not {kept}"

    def _go_on(self, store: Store, moment: Moment, mark: Mark, promise: str) -> Finding | None:
        number = mark.acknowledged
        key = (moment, number, mark.operation)
        known = memory_of(self.told).aftermaths
        aftermath = known.get(key)
        if aftermath is None:
            flying = self.steps[number].what if mark.operation else None
            aftermath = after(moment.state, flying if isinstance(flying, Operation) else None)
            known[key] = aftermath
        same = Comparison()
        for operation, answer in zip(aftermath.operations, aftermath.answers, strict=True):
            got = call(store, operation)
            if got != answer.outcome and not same.same(answer.outcome, got):
                what = f"afterwards {operation.verb} answers otherwise than the model"
                return Finding(promise, what, str(answer.outcome), str(got))
        dump = store.dump()
        if dump != aftermath.end.dump:
            return Finding(promise, "work goes on wrongly", *difference(aftermath.end.dump, dump))
        return None


def _broken_invariant(dump: Dump) -> str:
    """The first row that no history leads to."""
    for row in dump.submissions.values():
        if not submission.invariant(row):
            return f"an impossible submission: {row}"
    for slot in dump.slots.values():
        if not journal.invariant(slot):
            return f"an impossible slot: {slot}"
    return ""
