"""Crash images: what each may hold, by hand on small logs; and that the power model is not too kind, nor too harsh."""

from __future__ import annotations

import random
import sqlite3
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TypeAlias

import attrs
import pytest

from turnproof.proofs.disk import (
    Disk,
    Event,
    Image,
    Kind,
    Mark,
    NoSuchImage,
    Readings,
    Recording,
    kill_images,
    power_images,
    rebuild,
    replayed,
    reproducible,
)
from turnproof.proofs.disk.images import SECTOR, _Content

Step: TypeAlias = tuple[Kind, str, int, bytes] | tuple[Kind, str] | tuple[Kind, str, str]


def log(*steps: Step) -> tuple[Event, ...]:
    """(kind, file), (kind, file, target) or (kind, file, offset, data)."""
    events = []
    for index, (kind, file, *rest) in enumerate(steps):
        if len(rest) == 1:
            events.append(Event(index, kind, file, target=str(rest[0])))
        else:
            offset, data = rest or (0, b"")
            events.append(Event(index, kind, file, offset, data))
    return tuple(events)


def after(recording: Recording, *, bound: int = 64, torn: int = 0) -> list[dict[str, bytes]]:
    """Distinct disks after a power cut past the last event, in the order made."""
    distinct: list[dict[str, bytes]] = []
    for image in power_images(recording, bound=bound, torn=torn):
        if image.point == len(recording.events) and dict(image.files) not in distinct:
            distinct.append(dict(image.files))
    return distinct


def test_a_kill_keeps_every_earlier_event() -> None:
    recording = Recording(
        log(
            ("create", "/a"),
            ("write", "/a", 2, b"xy"),
            ("truncate", "/a", 1, b""),
            ("rename", "/a", "/b"),
            ("delete", "/b"),
        ),
        {"/base": b"0"},
    )
    assert [dict(image.files) for image in kill_images(recording)] == [
        {"/base": b"0"},
        {"/base": b"0", "/a": b""},
        {"/base": b"0", "/a": b"\0\0xy"},
        {"/base": b"0", "/a": b"\0"},
        {"/base": b"0", "/b": b"\0"},
        {"/base": b"0"},
    ]
    assert replayed(recording) == {"/base": b"0"}


def test_unsynced_writes_come_in_every_subset_and_order() -> None:
    writes: tuple[Step, ...] = (("write", "/a", 0, b"11"), ("write", "/a", 1, b"22"), ("write", "/b", 0, b"3"))
    found = after(Recording(log(*writes), {"/a": b"", "/b": b""}))
    contents = {(disk["/a"], disk["/b"]) for disk in found}
    assert contents == {(a, b) for a in (b"", b"11", b"\x0022", b"122") for b in (b"", b"3")}


def test_a_sync_covers_one_file_and_no_entry() -> None:
    events = log(("create", "/a"), ("write", "/a", 0, b"1"), ("write", "/b", 0, b"2"), ("sync", "/a"))
    assert after(Recording(events, {"/b": b""})) == [
        {"/b": b""}, {"/b": b"", "/a": b"1"}, {"/b": b"2"}, {"/b": b"2", "/a": b"1"},
    ]  # fmt: skip
    settled = (*events, *(attrs.evolve(event, index=4) for event in log(("syncdir", "/"))))
    assert after(Recording(settled, {"/b": b""})) == [{"/b": b"", "/a": b"1"}, {"/b": b"2", "/a": b"1"}]


def test_entries_of_one_directory_are_synced_alone() -> None:
    found = after(Recording(log(("create", "/d/a"), ("create", "/e/a"), ("syncdir", "/d"))))
    assert found == [{"/d/a": b""}, {"/d/a": b"", "/e/a": b""}]


def test_a_rename_is_old_or_new_and_a_delete_may_be_undone() -> None:
    base = {"/x": b"x", "/y": b"y"}
    assert after(Recording(log(("rename", "/x", "/y")), base)) == [base, {"/y": b"x"}]
    assert after(Recording(log(("delete", "/x"), ("create", "/x"), ("write", "/x", 0, b"new")), base)) == [
        base, {"/y": b"y"}, {"/x": b"", "/y": b"y"}, {"/x": b"new", "/y": b"y"},
    ]  # fmt: skip
    moved = Recording(log(("create", "/n"), ("rename", "/n", "/x"), ("delete", "/x")), base)
    assert {tuple(sorted(disk)) for disk in after(moved)} == {("/x", "/y"), ("/y",), ("/n", "/x", "/y")}


def test_a_truncate_may_be_lost() -> None:
    assert after(Recording(log(("truncate", "/a", 1, b"")), {"/a": b"123"})) == [{"/a": b"123"}, {"/a": b"1"}]


def test_writes_are_torn_at_sectors_of_the_file_and_garbled_within_their_range() -> None:
    data = bytes(range(1, 201)) * 6
    recording = Recording(log(("write", "/a", 500, data)), {"/a": b"\xff" * 2000})
    further = Recording(log(("write", "/a", 5 * SECTOR, data)))
    with pytest.raises(KeyError):
        replayed(further)  # a write to a file that never was is a gap in the log
    further = Recording(further.events, {"/a": b""})
    assert rebuild(further, "power", 1, "t2").files["/a"] == bytes(5 * SECTOR) + data[: 2 * SECTOR]

    def body(choice: str) -> bytes:
        return rebuild(recording, "power", 1, choice, seed=3).files["/a"]

    for sectors in (1, 2, 3):
        kept = sectors * SECTOR - 500
        assert body(f"t{sectors}") == b"\xff" * 500 + data[:kept] + b"\xff" * (1500 - kept)
        garbled = body(f"g{sectors}")
        assert garbled[: 500 + kept] == body(f"t{sectors}")[: 500 + kept]
        assert garbled[500 + kept : 1700] not in (data[kept:], b"\xff" * (1200 - kept))
        assert garbled[1700:] == b"\xff" * 300
    assert body("g0")[:500] == b"\xff" * 500
    assert body("g1") == body("g1")
    drawn = {choice for seed in range(60) for choice in choices(recording, seed)}
    assert drawn == {"+", "-", "t1", "t2", "t3", "g0", "g1", "g2", "g3"}


def choices(recording: Recording, seed: int) -> Iterator[str]:
    return (image.choice for image in power_images(recording, seed=seed) if image.point == 1)


def test_beyond_the_bound_the_telling_subsets_come_first() -> None:
    events = log(*(("write", "/a", place, b"x") for place in range(20)))
    found = [
        image.choice for image in power_images(Recording(events, {"/a": b""}), bound=200, torn=0) if image.point == 20
    ]
    assert found[:2] == ["-" * 20, "+" * 20]
    assert len(found) == len(set(found)) <= 200
    assert {"+" * 7 + "-" * 13, "+" * 7 + "-" + "+" * 12, "-" * 7 + "+" + "-" * 12} <= set(found)
    bounded = Counter(image.point for image in power_images(Recording(events, {"/a": b""}), bound=16, torn=4))
    assert max(bounded.values()) <= 20
    assert bounded[0] == 1 and bounded[1] >= 2 and bounded[4] >= 16


def test_a_choice_that_does_not_fit_is_refused() -> None:
    recording = Recording(log(("create", "/a")))
    for point, choice in ((1, ""), (1, "++"), (1, "x"), (0, "+"), (2, "+"), (-1, "")):
        with pytest.raises(NoSuchImage, match="point"):
            rebuild(recording, "power", point, choice)


def test_digests_are_equal_exactly_when_the_bytes_are() -> None:
    rng = random.Random(1)
    for _ in range(40):
        content = _Content(rng.randbytes(rng.randrange(10_000)))
        for _ in range(12):
            if rng.random() < 0.3:
                content.apply(
                    Event(0, "truncate", "/a", rng.choice((0, 4096, 5000, 8192, 12_000, rng.randrange(9000)))), b""
                )
            else:
                content.apply(Event(0, "write", "/a", rng.randrange(9000)), rng.randbytes(rng.randrange(3000)))
            content = content.copy() if rng.random() < 0.3 else content
            assert content.digest() == _Content(content.value()).digest()
    assert len({_Content(data).digest() for data in (b"", b"\0", b"\0\0", b"\0" * 4096, b"\0" * 8192)}) == 5


# ------------------------------------------------------------------------------- against SQLite itself

ROWS = 7


def record(synchronous: str, forget: Sequence[Kind] = ()) -> Recording:
    """Inserts 0, 1, 2 …, each acknowledged; checkpoints among them. `forget`: a wrong disk that logs none of these."""
    reproducible(11)
    with Disk() as disk:
        connection = disk.connect()
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute(f"PRAGMA synchronous={synchronous}")
        connection.execute("PRAGMA wal_autocheckpoint=6")
        connection.execute("CREATE TABLE t(id INTEGER PRIMARY KEY, v BLOB)")
        for number in range(ROWS):
            disk.begin(f"insert {number}")
            connection.execute("INSERT INTO t VALUES(?, ?)", (number, bytes([number]) * 1500))
            disk.acknowledge()
        connection.close()
        recording = disk.recording()
    reproducible(0)
    kept = (event for event in recording.events if event.kind not in forget)
    return Recording(tuple(attrs.evolve(event, index=index) for index, event in enumerate(kept)), end=recording.end)


def read(disk: Disk, image: Image) -> list[int] | None:
    """The rows that are found after recovery; None where SQLite or its integrity check finds damage."""
    disk.load(image.files)
    connection = disk.connect()
    try:
        if connection.execute("PRAGMA integrity_check").fetchall() != [("ok",)]:
            return None
        if not connection.execute("SELECT 1 FROM sqlite_schema WHERE name = 't'").fetchone():
            return []
        return [row for (row,) in connection.execute("SELECT id FROM t ORDER BY id")]
    except sqlite3.DatabaseError:
        return None
    finally:
        connection.close()


def verdicts(images: Iterator[Image]) -> tuple[Counter[str], Readings[list[int] | None]]:
    with Disk(record=False) as disk:
        readings = Readings(lambda image: read(disk, image))
        found: Counter[str] = Counter()
        for image in images:
            rows = readings(image)
            if rows is None:
                found["corrupt"] += 1
            elif rows != list(range(len(rows))):
                found["hole"] += 1
            else:
                spare = len(rows) - image.mark.acknowledged
                found["lost" if spare < 0 else "whole" if spare <= bool(image.mark.operation) else "invented"] += 1
        return found, readings


@pytest.mark.parametrize("synchronous", ["FULL", "NORMAL", "OFF"])
def test_a_kill_loses_nothing_whatever_is_synced(synchronous: str) -> None:
    found, readings = verdicts(kill_images(recording := record(synchronous)))
    assert found.keys() == {"whole"}
    assert readings.points == readings.images == recording.points
    assert readings.distinct < readings.images  # a sync changes no byte


def test_full_loses_nothing_in_a_power_cut() -> None:
    found, readings = verdicts(power_images(record("FULL")))
    assert found.keys() == {"whole"}
    assert readings.images > 500 and readings.distinct < readings.images


def test_normal_loses_an_acknowledged_suffix_and_leaves_no_hole() -> None:
    found, _ = verdicts(power_images(record("NORMAL")))
    assert found.keys() == {"whole", "lost"}


def test_off_is_caught() -> None:
    found, _ = verdicts(power_images(record("OFF")))
    assert found.keys() >= {"whole", "lost", "corrupt"}


@pytest.mark.parametrize("forgotten", ["sync", "syncdir"])
def test_a_disk_that_forgets_syncs_is_caught(forgotten: Kind) -> None:
    """The check that FULL loses nothing, failing."""
    found, _ = verdicts(power_images(record("FULL", forget=[forgotten])))
    assert found["lost"]


def test_a_disk_that_invents_syncs_is_caught() -> None:
    """The check that NORMAL reaches a loss, failing: a model this kind proves nothing."""
    honest = record("NORMAL")
    events: list[Event] = []
    for event in honest.events:
        events.append(attrs.evolve(event, index=len(events)))
        if event.kind == "write":
            events.append(Event(len(events), "sync", event.file, mark=event.mark))
    found, _ = verdicts(power_images(Recording(tuple(events), end=honest.end)))
    assert "lost" not in found


def test_images_are_the_same_for_the_same_seed_and_every_one_can_be_rebuilt() -> None:
    recording = record("NORMAL")
    images = list(power_images(recording, bound=12, torn=4, seed=9))
    assert images == list(power_images(recording, bound=12, torn=4, seed=9))
    assert images != list(power_images(recording, bound=12, torn=4, seed=10))
    for image in [*images[::7], *kill_images(recording)]:
        assert rebuild(recording, image.kind, image.point, image.choice, image.seed) == image
    assert not any(name.endswith("-shm") for image in images for name in image.files)


def test_a_recovery_is_crashed_in_turn() -> None:
    """Depth two: recovery recorded on a kill image; the events of both runs make one recording.

    What recovery saw of the operation in flight was never synced by the dead, so a power cut may still take it, up to
    the moment at which the next operation is acknowledged.
    """
    first = record("FULL")
    started = next(event.index for event in first.events if event.mark.acknowledged == 2)
    with Disk() as disk, Disk(record=False) as reader:
        for point in range(started, first.points, 5):
            image = rebuild(first, "kill", point)
            disk.load(image.files)
            seen = again(disk)
            whole = first.until(point).then(disk.recording())
            assert replayed(whole) == disk.snapshot()
            for crash in power_images(whole, bound=16, torn=4):
                rows = read(reader, crash) if crash.point > point else None
                if crash.point > point:
                    least = seen + 1 if crash.mark.acknowledged else image.mark.acknowledged
                    assert rows is not None and rows == list(range(len(rows))) and least <= len(rows) <= seen + 1


def again(disk: Disk) -> int:
    """Open, recover, insert one more row, close; the number of rows that recovery found."""
    connection = disk.connect()
    (seen,) = connection.execute("SELECT count(*) FROM t").fetchone()
    disk.begin("insert again")
    connection.execute("INSERT INTO t VALUES(?, ?)", (seen, b""))
    disk.acknowledge()
    connection.close()
    return int(seen)


def test_images_say_what_they_are() -> None:
    recording = Recording(log(("create", "/a"), ("write", "/a", 0, b"x")), end=Mark(2, "append"))
    assert str(rebuild(recording, "power", 2, "+g0")) == "power before event 2 in append, 2 acknowledged, unsynced +g0"
    assert str(rebuild(recording, "kill", 0)) == "kill before event 0, 0 acknowledged"
