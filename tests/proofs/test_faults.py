"""Faults at every write-like call of a plain SQLite workload: errors are answered, acknowledged work is kept (X3)."""

from __future__ import annotations

import contextlib
import errno
import itertools
import sqlite3
from collections.abc import Callable

import pytest

from turnproof.proofs.disk import Disk, DiskError, FaultPlan, kill_images, power_images, replayed
from turnproof.proofs.disk.faults import Call, FaultKind

COMBINATIONS: list[tuple[FaultKind, Call]] = [
    *(("eio", call) for call in ("write", "sync", "truncate", "open", "delete", "any")),
    *(("enospc", call) for call in ("write", "sync", "truncate", "open", "delete", "any")),
    ("short", "write"),
    ("fsync", "sync"),
]


def insert(connection: sqlite3.Connection, number: int, answered: set[int], refused: set[int]) -> None:
    try:
        connection.execute("INSERT INTO t VALUES(?, zeroblob(3000))", (number,))
        answered.add(number)
    except sqlite3.OperationalError:
        refused.add(number)
        assert not connection.in_transaction


def run(disk: Disk, plan: FaultPlan) -> None:
    """Opens, inserts, checkpoints and closes under the fault; then without it the disk must be a sound one."""
    answered: set[int] = set()
    refused: set[int] = set()
    with disk.failing(plan):
        try:
            connection = disk.connect()
        except sqlite3.OperationalError:
            assert plan.fired
        else:
            _use(connection, answered, refused)
            visible = _rows(connection)
            connection.close()
            assert visible is None or visible == answered  # nothing of a refused one, all of an acknowledged one
    connection = disk.connect()
    assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    rows = _rows(connection)
    connection.close()
    assert rows is not None and answered <= rows <= answered | refused
    assert replayed(disk.recording()) == disk.snapshot()


def _use(connection: sqlite3.Connection, answered: set[int], refused: set[int]) -> None:
    with contextlib.suppress(sqlite3.OperationalError):
        connection.execute("PRAGMA wal_autocheckpoint=3")
    for number in range(3):
        insert(connection, number, answered, refused)
    with contextlib.suppress(sqlite3.OperationalError):
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()


def _rows(connection: sqlite3.Connection) -> set[int] | None:
    try:
        return {row for (row,) in connection.execute("SELECT id FROM t")}
    except sqlite3.OperationalError:
        return None


@pytest.fixture(scope="module")
def prepared() -> dict[str, bytes]:
    with Disk() as disk:
        connection = disk.connect()
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=FULL")
        connection.execute("CREATE TABLE t(id INTEGER PRIMARY KEY, v BLOB)")
        connection.close()
        return disk.snapshot()


@pytest.mark.parametrize("sticky", [False, True], ids=["once", "from-then-on"])
@pytest.mark.parametrize(("kind", "call"), COMBINATIONS)
def test_a_fault_at_every_call(kind: FaultKind, call: Call, sticky: bool, prepared: dict[str, bytes]) -> None:
    with Disk() as disk:
        for nth in itertools.count(1):
            disk.load(prepared)
            run(disk, plan := FaultPlan(kind=kind, call=call, nth=nth, sticky=sticky))
            if not plan.fired:
                break
            assert plan.fired[0].code in (10, 13, 14) or plan.fired[0].code & 0xFF == 10
            assert len(plan.fired) == (plan.seen - nth + 1 if sticky else 1)
            assert nth < 200
        assert plan.seen == nth - 1
        assert nth > 1


def test_the_error_is_the_one_planned(prepared: dict[str, bytes]) -> None:
    kinds: list[tuple[FaultKind, str]] = [("enospc", "full"), ("eio", "disk I/O error"), ("short", "disk I/O error")]
    for kind, message in kinds:
        with Disk(prepared) as disk:
            connection = disk.connect()
            with disk.failing(FaultPlan(kind, "write", 1)), pytest.raises(sqlite3.OperationalError, match=message):
                connection.execute("INSERT INTO t VALUES(1, NULL)")
            connection.execute("INSERT INTO t VALUES(1, NULL)")
            connection.close()


def test_a_short_write_lands_in_part_and_is_logged(prepared: dict[str, bytes]) -> None:
    with Disk(prepared) as disk:
        connection = disk.connect()
        connection.execute("SELECT * FROM t").fetchall()
        with disk.failing(FaultPlan("short", nth=3)) as plan, pytest.raises(sqlite3.OperationalError):
            connection.execute("INSERT INTO t VALUES(1, NULL)")
        (fired,) = plan.fired
        assert (fired.file, fired.landed, fired.errno) == ("/journal.db-wal", 2048, errno.EIO)
        assert len(disk.events[fired.at].data) == 2048
        connection.close()


def test_a_failed_sync_leaves_no_sync_in_the_log(prepared: dict[str, bytes]) -> None:
    with Disk(prepared) as disk:
        connection = disk.connect()
        with disk.failing(FaultPlan("fsync", sticky=True)) as plan, pytest.raises(sqlite3.OperationalError):
            connection.execute("INSERT INTO t VALUES(1, NULL)")
        assert plan.call == "sync" and plan.fired
        assert not any(event.kind == "sync" for event in disk.events)
        recording = disk.recording()
        connection.close()
    assert any(image.files["/journal.db"] and len(image.files) == 1 for image in power_images(recording))
    assert list(kill_images(recording))[-1].files.keys() == {"/journal.db", "/journal.db-wal"}


def test_file_operations_fail_as_the_operating_system_does() -> None:
    with Disk({"/a": b""}) as disk:
        operations: list[tuple[Call, Callable[[], None]]] = [
            ("rename", lambda: disk.files.rename("/a", "/b")),
            ("delete", lambda: disk.files.unlink("/a")),
            ("open", lambda: disk.files.create("/b")),
            ("write", lambda: disk.files.create("/c", b"x")),
            ("sync", lambda: disk.files.sync("/a")),
        ]
        for call, operation in operations:
            with disk.failing(FaultPlan("enospc", call)) as plan, pytest.raises(OSError, match="No space") as caught:
                operation()
            assert caught.value.errno == errno.ENOSPC and len(plan.fired) == 1
        assert disk.snapshot() == {"/a": b"", "/c": b""}


def test_a_plan_that_cannot_fire_is_refused() -> None:
    with pytest.raises(ValueError, match="only come from 'write'"):
        FaultPlan("short", "sync")
    with pytest.raises(ValueError, match="only come from 'sync'"):
        FaultPlan("fsync", "write")
    with pytest.raises(ValueError, match="counts from 1"):
        FaultPlan("eio", nth=0)
    with Disk(record=False) as disk, pytest.raises(DiskError, match="does not record"), disk.failing(FaultPlan("eio")):
        pass
