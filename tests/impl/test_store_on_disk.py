"""The store on a disk that records and fails: making and importing survive a crash at every write (R12, X1-X3).

The crash room tells the whole story; here stands what is the store's own: files that it makes and renames itself.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from functools import partial

import pytest
from impl_helpers import message, outcome

from turnproof.impl import Store, open_store
from turnproof.impl.views import Dump
from turnproof.model.vocabulary import StorageError
from turnproof.proofs.disk import Disk, FaultPlan, kill_images, power_images

DIRECTORY = "/store"
LEGACY = {
    f"{DIRECTORY}/runs/{run}.jsonl": b"".join(b'{"seq":%d,"kind":"turn","timestamp":1}\n' % seq for seq in (2, 1, 5))
    for run in ("run1", "run2")
} | {f"{DIRECTORY}/runs/run1.lock": b""}
RETIRED = ["run1.jsonl.imported", "run2.jsonl.imported"]


def opened(disk: Disk, flush: str = "always") -> Store:
    disk.add_directory(DIRECTORY)
    return open_store(DIRECTORY, flush, clock=lambda: 1, vfs=disk.name, files=disk.files, busy_timeout_ms=50)


def after(disk: Disk, flush: str) -> tuple[Dump, list[str], list[str]]:
    with opened(disk, flush) as store:
        found = store.dump()
        assert store.append("work", message("e1")) == 1
    return found, disk.files.listdir(DIRECTORY), disk.files.listdir(f"{DIRECTORY}/runs")


@pytest.mark.parametrize("flush", ["always", "relaxed"])
@pytest.mark.parametrize("kind", ["kill", "power"])
def test_a_crash_while_making_and_importing(flush: str, kind: str) -> None:
    with Disk(LEGACY) as disk:
        expected = after(disk, flush)[0]
        recording = disk.recording()
    assert len(recording.events) > 20
    images: Iterator[object] = kill_images(recording) if kind == "kill" else power_images(recording, bound=24)
    seen: set[bytes] = set()
    with Disk(record=False) as disk:
        for image in images:
            if image.digest in seen:
                continue
            seen.add(image.digest)
            disk.load(image.files)
            disk.add_directory(f"{DIRECTORY}/runs")
            dump, names, runs = after(disk, flush)
            assert {run: dump.runs[run] for run in ("run1", "run2")} == expected.runs, image
            assert names == ["journal.db", "runs"] and runs == RETIRED, image
    assert len(seen) > 20


@pytest.mark.parametrize("kind", ["eio", "enospc", "short", "fsync"])
@pytest.mark.parametrize("sticky", [False, True])
def test_a_fault_while_making_and_importing_is_an_error_and_no_more(kind: str, sticky: bool) -> None:
    for nth in itertools.count(1):
        with Disk(LEGACY) as disk:
            plan = FaultPlan(kind=kind, nth=nth, sticky=sticky)
            with disk.failing(plan):
                try:
                    opened(disk).close()
                except StorageError as error:
                    assert plan.fired and DIRECTORY in str(error)
            dump, names, runs = after(disk, "always")
            assert sorted(dump.runs) == ["run1", "run2"] and names == ["journal.db", "runs"] and runs == RETIRED
        if not plan.fired:
            return


@pytest.mark.parametrize("kind", ["eio", "enospc", "short", "fsync"])
@pytest.mark.parametrize("sticky", [False, True])
def test_a_failed_write_stays_failed_and_the_store_goes_on(kind: str, sticky: bool) -> None:
    for nth in itertools.count(1):
        with Disk() as disk:
            with opened(disk) as store:
                store.append("run1", message("e1"))
                before = store.dump()
                plan = FaultPlan(kind=kind, nth=nth, sticky=sticky)
                with disk.failing(plan):
                    answer = outcome(partial(store.append, "run1", message("e2", "e1", text="x" * 9000)))
                if answer == "storage_error":
                    assert store.dump() == before
                    assert store.append("run1", message("e2", "e1", text="x" * 9000)) == 2
                else:
                    assert answer == 2
            with opened(disk) as store:
                assert store.position("run1") == 2
        if not plan.fired:
            return
