"""A sweep: every crash of a recorded run, judged, and counted honestly (X1, X2, X6).

`sweep` crashes at every write (depth 1). `sweep_deeper` takes what each distinct kill left, lets the store reopen it
and do its first operations on a *recording* disk, and crashes at every write of those too (depth 2).
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from typing import Final, Literal, TypeAlias

import attrs

from turnproof.model.operations import Operation
from turnproof.proofs.crash.aftermath import after
from turnproof.proofs.crash.judge import ALL, FIRST, Finding, Judge
from turnproof.proofs.crash.script import Step, Timeline, timeline
from turnproof.proofs.crash.stage import Played, Stage
from turnproof.proofs.disk import Disk, Image, Recording, kill_images, power_images, rebuild, reproducible

__all__ = ["Counts", "Crash", "Mode", "Second", "Sweep", "follow", "images_of", "quiet_points", "sweep", "sweep_deeper"]

Mode: TypeAlias = Literal["kill", "power"]

_BOUND: Final = 24
_TORN: Final = 6
"""Power images a point: subsets of what was not synced, and torn or garbled ones."""
_SEED: Final = 2
"""Of SQLite's generator while what follows a crash is recorded."""
_FIRST_OPERATIONS: Final = 4
"""Writes of the aftermath that are crashed again."""


@attrs.define
class Counts:
    """What was crashed. ``points`` are moments, ``images`` disks, ``distinct`` those with different bytes."""

    writes: int = 0
    points: int = 0
    images: int = 0
    distinct: int = 0
    judged: int = 0
    continued: int = 0
    lost: int = 0
    violations: int = 0

    def add(self, other: Counts) -> None:
        for field in attrs.fields(Counts):
            setattr(self, field.name, getattr(self, field.name) + getattr(other, field.name))


@attrs.frozen(eq=False)
class Crash:
    """One image that was judged wrong, and what is wrong with it."""

    image: Image
    finding: Finding
    first: Image | None = None
    """At depth 2: the crash before, from which ``image`` counts."""


@attrs.define(eq=False)
class Sweep:
    """What a sweep came to."""

    played: Played
    mode: Mode
    depth: int = 1
    counts: Counts = attrs.field(factory=Counts)
    crashes: list[Crash] = attrs.field(factory=list)
    complete: bool = True
    """Whether the time sufficed for every point."""

    def take(self, images: Iterable[Image], judge: Judge, until: float, first: Image | None = None) -> None:
        """Judge images; stop at the time ``until`` (of ``time.monotonic``), but not before the first point."""
        point: int | None = None
        for image in images:
            if image.point != point:
                point = image.point
                if self.counts.points and time.monotonic() > until:
                    self.complete = False
                    break
                self.counts.points += 1
            finding = judge(image)
            if finding is not None:
                self.counts.violations += 1
                self.crashes.append(Crash(image, finding, first))
        self.counts.images += judge.images
        self.counts.distinct += judge.distinct
        self.counts.judged += judge.judged
        self.counts.continued += judge.continued
        self.counts.lost += judge.lost


def images_of(recording: Recording, mode: Mode, seed: int) -> Iterator[Image]:
    if mode == "kill":
        return kill_images(recording)
    return power_images(recording, bound=_BOUND, torn=_TORN, seed=seed)


def sweep(played: Played, mode: Mode, until: float = float("inf"), seed: int = 0, alike: float = ALL) -> Sweep:
    """Crash at every write of a recorded run."""
    result = Sweep(played, mode)
    result.counts.writes = played.writes
    scenario = played.scenario
    with Judge(played.timeline, scenario.steps, scenario.legacy, played.setting, alike) as judge:
        result.take(images_of(played.recording, mode, seed), judge, until)
    return result


# --- depth 2: a crash in what follows a crash ------------------------------------------------------------------------


@attrs.frozen(eq=False)
class Second:
    """What followed a kill, recorded: the disk from the last quiet moment before the kill on."""

    recording: Recording
    start: int
    """The event of ``recording`` that came first after the kill."""
    told: Timeline
    steps: tuple[Step, ...]


def follow(played: Played, first: Image, judge: Judge, quiet: int) -> Second | None:
    """Reopen what a kill left and do the first operations of the aftermath; ``None`` where nothing sound was left.

    ``quiet`` is a point at or before the kill at which nothing waited for a sync: what is recorded starts there, so
    that a power cut in the second run can still take what the first never synced.
    """
    moment = judge.moment(first)
    if moment is None:
        return None
    number = first.mark.acknowledged
    flying = played.scenario.steps[number].what if first.mark.operation else None
    work = after(moment.state, flying if isinstance(flying, Operation) else None).operations
    writes = [operation for operation in work if not operation.reads][:_FIRST_OPERATIONS]
    steps = (Step("open"), *map(Step, writes))
    reproducible(_SEED)
    with Disk() as disk:
        disk.load(first.files)
        stage = Stage(disk, played.setting, played.scenario.wal_autocheckpoint)
        try:
            for place, step in enumerate(steps):
                disk.begin(f"{place} {step.label}")
                stage.take(step)
                disk.acknowledge()
            recorded = disk.recording()
        finally:
            stage.close()
            reproducible(0)
    before = Recording(
        tuple(attrs.evolve(e, index=e.index - quiet) for e in played.recording.events[quiet : first.point]),
        _files_at(played.recording, quiet),
    )
    told = timeline(moment.state, steps, played.scenario.legacy)
    return Second(before.then(recorded), first.point - quiet, told, steps)


def _files_at(recording: Recording, point: int) -> dict[str, bytes]:
    return dict(rebuild(recording, "kill", point).files)


def quiet_points(recording: Recording) -> list[int]:
    """For each point, the last one at or before it at which nothing waits for a sync."""
    found = [0] * recording.points
    for image in power_images(recording, bound=2, torn=0):
        found[image.point] = image.point if image.choice == "" else found[image.point - 1]
    return found


def sweep_deeper(played: Played, mode: Mode, until: float = float("inf"), seed: int = 0, alike: float = FIRST) -> Sweep:
    """Crash at every write of what follows every distinct kill."""
    result = Sweep(played, mode, depth=2)
    quiet, seen = quiet_points(played.recording), set[tuple[bytes, str]]()
    scenario, setting = played.scenario, played.setting
    with Judge(played.timeline, scenario.steps, scenario.legacy, setting) as judge:
        for first in kill_images(played.recording):
            if (first.digest, first.mark.operation) in seen:
                continue
            if time.monotonic() > until:
                result.complete = False
                break
            seen.add((first.digest, first.mark.operation))
            second = follow(played, first, judge, quiet[first.point])
            if second is None:
                continue
            result.counts.writes += len(second.recording.events) - second.start
            with Judge(second.told, second.steps, scenario.legacy, setting, alike) as deep:
                images = images_of(second.recording, mode, seed)
                result.take((image for image in images if image.point > second.start), deep, until, first)
    return result
