"""The recording disk: it is a disk, it misses nothing that is written, and a disk that did would be caught (X6)."""

from __future__ import annotations

import ctypes
import itertools
import re
import shutil
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from turnproof.proofs.disk import Disk, DiskError, DiskUnavailable, Kind, Mark, replayed, reproducible
from turnproof.proofs.disk import library as sqlite
from turnproof.proofs.disk.node import Handle, Node

WORKLOAD = '''
def workload(one, two):
    """Two connections: a journal, WAL, commits, autocheckpoints, a TRUNCATE checkpoint, a roll-back, close."""
    one.execute("PRAGMA synchronous=EXTRA")  # syncs the directory after the journal is deleted
    one.execute("CREATE TABLE s(a)")
    one.execute("PRAGMA journal_mode=WAL")
    for connection in (one, two):
        connection.execute("PRAGMA synchronous=FULL")
        connection.execute("PRAGMA wal_autocheckpoint=4")
    one.execute("CREATE TABLE t(id INTEGER PRIMARY KEY, v BLOB)")
    for number in range(12):
        (one, two)[number % 2].execute("INSERT INTO t VALUES(?, zeroblob(3000))", (number,))
    two.execute("BEGIN IMMEDIATE")
    two.execute("DELETE FROM t WHERE id < 6")
    two.execute("ROLLBACK")
    one.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    two.execute("DELETE FROM t WHERE id < 3")
    one.execute("PRAGMA journal_size_limit=0")
    two.close()
    one.close()
'''
CHILD = (
    WORKLOAD
    + """
import sqlite3, sys
workload(*(sqlite3.connect(sys.argv[1], isolation_level=None) for _ in range(2)))
"""
)


def run_workload(disk: Disk) -> None:
    scope: dict[str, Callable[..., None]] = {}
    exec(WORKLOAD, scope)
    scope["workload"](disk.connect(), disk.connect())


def logged(disk: Disk) -> list[tuple[str, str, int, int]]:
    """What strace can see of the log: system call, base name, offset or size, length."""
    calls = {
        "write": "pwrite64",
        "truncate": "ftruncate",
        "sync": "fdatasync",
        "syncdir": "fdatasync",
        "delete": "unlink",
    }
    return [
        (calls[event.kind], Path(event.file).name, event.offset, len(event.data))
        for event in disk.events
        if event.kind in calls
    ]


def traced(directory: Path) -> list[tuple[str, str, int, int]]:
    """The same of the same workload on real files with SQLite's own VFS, counted by strace."""
    strace = shutil.which("strace")
    assert strace, "this test counts system calls with strace, which is not installed: apt-get install strace"
    log = directory / "strace.log"
    calls = "trace=pwrite64,write,fsync,fdatasync,ftruncate,unlink,rename"
    database = directory / "d" / "journal.db"
    database.parent.mkdir()
    command = [strace, "-f", "-y", "-s0", "-e", calls, "-o", str(log), sys.executable, "-c", CHILD, str(database)]
    subprocess.run(command, check=True)
    seen = []
    for line in log.read_text().splitlines():
        match = re.search(
            r'(\w+)\((?:\d+<([^>]+)>|"([^"]*)"(?:\.\.\.)?)(?:, ""\.\.\.)?(?:, (\d+))?(?:, (\d+))?\) += ', line
        )
        if not match:
            continue
        call, opened, named, first, second = match.groups()
        path = Path(opened or named)
        if not path.is_relative_to(database.parent) or path.name.endswith("-shm"):
            continue  # the child's standard error; shared memory, which is not durable: see images.py
        name = "" if path == database.parent else path.name
        size, offset = (int(first), int(second)) if call == "pwrite64" else (0, int(first or 0))
        seen.append((call.replace("fsync", "fdatasync"), name, offset, size))
    return seen


def test_every_write_is_logged_as_strace_counts_it(tmp_path: Path) -> None:
    """Not the count alone: the same calls on the same files at the same offsets, in the same order."""
    with Disk() as disk:
        run_workload(disk)
        ours = logged(disk)
        assert len(ours) > 100
        assert ours == traced(tmp_path)


STATEMENTS = (
    "PRAGMA journal_mode=WAL",
    "CREATE TABLE t(a, b)",
    "INSERT INTO t VALUES(1, zeroblob(9000))",
    "PRAGMA wal_checkpoint(TRUNCATE)",
    "INSERT INTO t VALUES(2, zeroblob(900))",
)


def check_replay(disk: Disk) -> None:
    """The self-check: after every statement the log so far gives the disk, byte for byte."""
    connection = disk.connect()
    try:
        for statement in STATEMENTS:
            connection.execute(statement)
            assert replayed(disk.recording()) == disk.snapshot(), statement
    finally:
        connection.close()
    assert replayed(disk.recording()) == disk.snapshot(), "close"


def test_the_log_replayed_is_the_disk() -> None:
    with Disk() as disk:
        check_replay(disk)
        assert list(disk.snapshot()) == ["/journal.db"]
        assert not any("shm" in event.file for event in disk.events)
        assert {event.kind for event in disk.events} == {"create", "write", "truncate", "sync", "syncdir", "delete"}


class Forgetful(Disk):
    """A wrong disk: it does not log the nth event of one kind."""

    def __init__(self, kind: Kind, nth: int) -> None:
        self.kind, self.left = kind, nth
        super().__init__()

    def log(self, kind: Kind, file: str, offset: int = 0, data: bytes = b"", target: str = "") -> None:
        self.left -= kind == self.kind
        if kind != self.kind or self.left != 0:
            super().log(kind, file, offset, data, target)


@pytest.mark.parametrize("kind", ["create", "write", "truncate", "delete"])
def test_a_disk_that_forgets_one_event_is_caught(kind: Kind) -> None:
    """The self-check, failing (a missing sync is not seen by it but by the power cuts: test_images)."""
    with Disk() as disk:
        check_replay(disk)
        # Truncating to the size a file has changes nothing; that of the WAL by the checkpoint does.
        events = [event for event in disk.events if event.kind == kind]
        nth = len(events) if kind != "truncate" else [event.file for event in events].index("/journal.db-wal") + 1
    with Forgetful(kind, nth) as wrong, pytest.raises((AssertionError, KeyError)):
        check_replay(wrong)


def test_a_disk_that_forgets_a_sync_is_caught_by_the_count(tmp_path: Path) -> None:
    with Forgetful("sync", 3) as wrong:
        run_workload(wrong)
        assert logged(wrong) != traced(tmp_path)


def test_events_know_the_operation_in_flight() -> None:
    with Disk() as disk:
        connection = disk.connect()
        connection.execute("PRAGMA journal_mode=WAL")
        disk.begin("create")
        connection.execute("CREATE TABLE t(a)")
        disk.acknowledge()
        disk.begin("insert")
        with pytest.raises(DiskError, match="still in flight"):
            disk.begin("another")
        connection.execute("INSERT INTO t VALUES(1)")
        disk.abandon()
        assert disk.mark == Mark(1)
        connection.close()
        marks = [mark for mark, _ in itertools.groupby(event.mark for event in disk.events)]
        assert marks == [Mark(0), Mark(0, "create"), Mark(1, "insert"), Mark(1)]


def test_one_history_gives_one_log() -> None:
    logs = []
    for _ in range(2):
        with Disk() as disk:
            reproducible(5)
            run_workload(disk)
            logs.append(disk.events)
    reproducible(0)
    assert logs[0] == logs[1]


@pytest.mark.parametrize("mode", ["WAL", "DELETE"])
@pytest.mark.parametrize("record", [True, False])
def test_connections_exclude_each_other(mode: str, record: bool) -> None:
    with Disk(record=record) as disk:
        one, two = disk.connect(), disk.connect()
        assert one.execute(f"PRAGMA journal_mode={mode}").fetchone() == (mode.lower(),)
        one.execute("CREATE TABLE t(a)")
        two.execute("PRAGMA busy_timeout=0")
        one.execute("BEGIN IMMEDIATE")
        one.execute("INSERT INTO t VALUES(1)")
        with pytest.raises(sqlite3.OperationalError, match="locked"):
            two.execute("BEGIN IMMEDIATE")
        assert two.execute("SELECT count(*) FROM t").fetchone() == (0,)
        one.execute("COMMIT")
        assert two.execute("SELECT count(*) FROM t").fetchone() == (1,)
        one.close()
        two.close()


def test_an_exclusive_lock_waits_for_readers() -> None:
    with Disk() as disk:
        reader, writer = disk.connect(), disk.connect()
        writer.execute("CREATE TABLE t(a)")
        writer.execute("PRAGMA busy_timeout=0")
        reader.execute("BEGIN")
        reader.execute("SELECT * FROM t").fetchall()
        with pytest.raises(sqlite3.OperationalError, match="locked"):
            writer.execute("INSERT INTO t VALUES(1)")
        reader.execute("COMMIT")
        writer.execute("INSERT INTO t VALUES(1)")
        reader.close()
        writer.close()


LEVELS = {"shared": sqlite.SHARED, "reserved": sqlite.RESERVED, "exclusive": sqlite.EXCLUSIVE}


@pytest.mark.parametrize(
    ("held", "asked", "given"),
    [
        *((held, asked, True) for held in ("unlocked",) for asked in LEVELS),
        ("shared", "shared", True), ("shared", "reserved", True), ("shared", "exclusive", False),
        ("reserved", "shared", True), ("reserved", "reserved", False), ("reserved", "exclusive", False),
        ("pending", "shared", False), ("pending", "reserved", False), ("pending", "exclusive", False),
        ("exclusive", "shared", False), ("exclusive", "reserved", False), ("exclusive", "exclusive", False),
    ],
)  # fmt: skip
def test_the_lock_table(held: str, asked: str, given: bool) -> None:
    node = Node("/a")
    one, two = (Handle(node, sync_directory=False) for _ in range(2))
    node.handles += [one, two]
    one.level = {**LEVELS, "unlocked": sqlite.UNLOCKED, "pending": sqlite.PENDING}[held]
    assert two.lock(LEVELS[asked]) == (sqlite.OK if given else sqlite.BUSY)
    one.unlock(sqlite.UNLOCKED)
    assert two.lock(LEVELS[asked]) == sqlite.OK
    node.free()


def test_shared_memory_locks_exclude_slot_by_slot() -> None:
    node = Node("/a")
    one, two = (Handle(node, sync_directory=False) for _ in range(2))
    node.handles += [one, two]
    lock, shared, exclusive = 2, sqlite.SHM_SHARED, 8
    assert one.lock_shared_memory(3, 1, lock | shared) == sqlite.OK
    assert two.lock_shared_memory(3, 1, lock | shared) == sqlite.OK
    assert two.lock_shared_memory(3, 5, lock | exclusive) == sqlite.BUSY
    assert two.lock_shared_memory(0, 3, lock | exclusive) == sqlite.OK
    assert one.lock_shared_memory(2, 1, lock | shared) == sqlite.BUSY
    assert one.lock_shared_memory(2, 2, lock | exclusive) == sqlite.BUSY
    assert two.lock_shared_memory(0, 3, sqlite.SHM_UNLOCK | exclusive) == sqlite.OK
    assert one.lock_shared_memory(2, 1, lock | exclusive) == sqlite.OK
    two.unmap()
    assert one.lock_shared_memory(3, 5, lock | exclusive) == sqlite.OK
    node.free()


def test_content_grows_with_zeros() -> None:
    node = Node("/a", b"12")
    node.write(4, b"5")
    node.truncate(7)
    assert node.read() == b"12\0\x005\0\0"
    node.truncate(1)
    assert node.read() == b"1"
    node.fill(b"")
    assert (node.read(), node.size()) == (b"", 0)
    node.free()


def test_an_empty_file_is_looked_up_as_the_unix_vfs_does() -> None:
    with Disk({"/empty": b"", "/full": b"x"}) as disk:
        found = ctypes.c_int()
        for name, flags, there in ((b"/empty", 0, 0), (b"/empty", 1, 1), (b"/full", 0, 1), (b"/none", 1, 0)):
            disk._access(0, name, flags, ctypes.addressof(found))
            assert found.value == there


def test_threads_lose_nothing() -> None:
    with Disk() as disk:
        main = disk.connect()
        main.execute("PRAGMA journal_mode=WAL")
        main.execute("CREATE TABLE t(thread, v)")

        def insert(thread: int) -> None:
            connection = disk.connect()
            connection.execute("PRAGMA wal_autocheckpoint=10")
            for _ in range(40):
                connection.execute("INSERT INTO t VALUES(?, zeroblob(2000))", (thread,))
            connection.close()

        threads = [threading.Thread(target=insert, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert main.execute("SELECT count(*) FROM t GROUP BY thread").fetchall() == [(40,)] * 4
        assert main.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        main.close()
        assert replayed(disk.recording()) == disk.snapshot()


def test_images_reopen_and_files_are_replaced() -> None:
    with Disk() as disk:
        run_workload(disk)
        kept = disk.snapshot()
        assert list(kept) == ["/journal.db"]
        disk.load({"/elsewhere/x": b"x"})
        assert disk.snapshot() == {"/elsewhere/x": b"x"}
        with pytest.raises(sqlite3.OperationalError, match="unable to open"):
            disk.connect("/nowhere/journal.db").execute("SELECT * FROM sqlite_schema")
        disk.load(kept, Mark(7))
        assert (disk.events, disk.mark) == ((), Mark(7))
        connection = disk.connect()
        assert connection.execute("SELECT count(*) FROM t").fetchone() == (9,)
        with pytest.raises(DiskError, match="close the connections"):
            disk.load({})
        with pytest.raises(DiskError, match=r"still open: /journal\.db"):
            disk.close()
        connection.close()


FORGETFUL = """
from turnproof.proofs.disk import Disk
disk = Disk()
open = [disk.connect() for _ in range(3)]
for connection in open:
    connection.execute("PRAGMA journal_mode=WAL")
open[0].execute("CREATE TABLE t(a)")
open[1].execute("BEGIN IMMEDIATE")
open[1].execute("INSERT INTO t VALUES(zeroblob(100000))")
cursor = open[2].execute("SELECT * FROM sqlite_schema")
raise SystemExit(5)
"""


def test_a_connection_left_open_at_exit_crashes_nothing() -> None:
    assert subprocess.run([sys.executable, "-c", FORGETFUL], check=False).returncode == 5


def test_many_opens_leave_nothing() -> None:
    name = ""
    with Disk(record=False) as disk:
        name = disk.name
        run_workload(disk)
        for _ in range(1000):
            connection = disk.connect()
            connection.execute("SELECT count(*) FROM t")
            connection.close()
        assert not disk._handles
    with pytest.raises(sqlite3.OperationalError, match="no such vfs"):
        sqlite3.connect(f"file:/journal.db?vfs={name}", uri=True)
    disk.close()  # twice is harmless


def test_files_beside_sqlite_are_in_the_same_log() -> None:
    with Disk({"/runs/a.jsonl": b"{}\n", "/runs/a.jsonl.lock": b""}) as disk:
        files = disk.files
        assert files.listdir("/runs") == ["a.jsonl", "a.jsonl.lock"]
        assert files.read("/runs/a.jsonl") == b"{}\n"
        connection = disk.connect()
        connection.execute("CREATE TABLE t(a)")
        files.rename("/runs/a.jsonl", "/runs/a.jsonl.imported")
        files.unlink("/runs/a.jsonl.lock")
        files.makedirs("/other/deep")
        files.create(Path("/other/deep/new"), b"new")
        files.chmod("/other/deep/new", 0o600)
        files.sync("/other/deep/new")
        files.sync("/other/deep")
        connection.close()
        assert files.listdir("/") == ["journal.db", "other", "runs"]
        assert [str(event).split(" ", 1)[1] for event in disk.events[-6:]] == [
            "rename /runs/a.jsonl to /runs/a.jsonl.imported",
            "delete /runs/a.jsonl.lock",
            "create /other/deep/new",
            "write /other/deep/new 0+3",
            "sync /other/deep/new",
            "syncdir /other/deep",
        ]
        assert replayed(disk.recording()) == disk.snapshot()
        for refused in (
            files.unlink,
            files.read,
            lambda path: files.chmod(path, 0),
            lambda path: files.rename(path, "/x"),
        ):
            with pytest.raises(FileNotFoundError):
                refused("/runs/a.jsonl")
        with pytest.raises(FileExistsError):
            files.create("/other/deep/new")


def test_a_file_deleted_under_a_connection_keeps_its_content() -> None:
    with Disk() as disk:
        connection = disk.connect()
        connection.execute("CREATE TABLE t(a)")
        disk.files.unlink("/journal.db")
        seen = len(disk.events)
        assert connection.execute("SELECT count(*) FROM t").fetchone() == (0,)
        connection.close()
        assert disk.snapshot() == {}
        assert len(disk.events) == seen


def test_an_exception_in_a_callback_comes_out_at_the_check(monkeypatch: pytest.MonkeyPatch) -> None:
    disk = Disk()
    connection = disk.connect()
    monkeypatch.setattr(disk, "write", lambda *_: 1 // 0)
    with pytest.raises(sqlite3.OperationalError, match="disk I/O error"):
        connection.execute("CREATE TABLE t(a)")
    connection.close()
    with pytest.raises(ZeroDivisionError):
        disk.close()
    disk.check()


def test_where_sqlite_is_hidden_the_reason_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    def hidden(path: str | None) -> object:
        raise OSError(f"cannot open {path}")

    monkeypatch.setattr(ctypes, "CDLL", hidden)
    with pytest.raises(DiskUnavailable, match=r"no virtual disk on this interpreter: the symbols of SQLite .* hidden"):
        sqlite.library.__wrapped__()
    monkeypatch.undo()
    other = sqlite3.connect  # as it would be with a second SQLite in the process: our names are not known there
    monkeypatch.setattr(sqlite3, "connect", lambda *_, uri: other("file:?vfs=registered-elsewhere", uri=uri))
    with pytest.raises(DiskUnavailable, match="another SQLite"):
        sqlite.library.__wrapped__()
    monkeypatch.undo()
    monkeypatch.setattr(sqlite3, "sqlite_version_info", (3, 35, 5))
    with pytest.raises(DiskUnavailable, match=r"3\.36"):
        sqlite.library.__wrapped__()
