"""Opening: making, reopening, recognising, refusing (R9, R10, R15, X1, X4)."""

from __future__ import annotations

import os
import re
import shutil
import sqlite3
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from impl_helpers import NOW, bytes_of, message, outcome

from turnproof.impl import connection, open_store, schema
from turnproof.impl.connection import Pool
from turnproof.model.vocabulary import ErrorCode, InvalidArgument, StorageDamaged, StorageError, UnsupportedSchema


@pytest.mark.parametrize(("flush", "synchronous"), [("always", 2), ("relaxed", 1)])
def test_settings_are_read_back(directory: Path, flush: str, synchronous: int) -> None:
    with open_store(directory, flush) as store:
        found = store.settings()
    assert found == {
        "sqlite_version": sqlite3.sqlite_version,
        "journal_mode": "wal",
        "synchronous": synchronous,
        "fullfsync": True,
        "busy_timeout_ms": 10_000,
        "wal_autocheckpoint": 1000,
        "page_size": 4096,
        "application_id": schema.APPLICATION_ID,
        "schema_version": schema.VERSION,
    }


def test_only_the_owner_may_read(directory: Path) -> None:
    old = os.umask(0)
    try:
        with open_store(directory) as store:
            store.append("run1", message("e1"))
            modes = {name: stat.S_IMODE((directory / name).stat().st_mode) for name in os.listdir(directory)}
            store.backup(directory.parent / "copy.db")
    finally:
        os.umask(old)
    assert modes == {"journal.db": 0o600, "journal.db-wal": 0o600, "journal.db-shm": 0o600}
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    assert stat.S_IMODE((directory.parent / "copy.db").stat().st_mode) == 0o600


@pytest.mark.parametrize("given", [(), ("",)])
def test_default_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: tuple[str, ...]) -> None:
    monkeypatch.chdir(tmp_path)
    with open_store(*given) as store:
        assert store.file == str(tmp_path / ".turnproof" / "journal.db")
    assert list(bytes_of(tmp_path)) == [".turnproof/journal.db"]


def test_a_name_that_is_not_utf8_is_as_good_as_any(tmp_path: Path) -> None:
    directory = tmp_path / os.fsdecode(b"caf\xe9 100%?#&")
    with open_store(directory) as store:
        store.append("run1", message("e1"))
        before = store.dump()
        store.backup(directory / "copy.db")
    assert sorted(os.listdir(os.fsencode(directory))) == [b"copy.db", b"journal.db"]
    with open_store(os.fspath(directory)) as store:
        assert store.dump() == before


def test_close_and_reopen(directory: Path) -> None:
    with open_store(directory, clock=lambda: NOW) as store:
        store.append("run1", message("e1"))
        before = store.dump()
    store.close()
    with pytest.raises(StorageError, match="closed"):
        store.position("run1")
    for phase in ("before_provider", "provider_started", "committed"):
        with pytest.raises(StorageError, match="closed"):
            store.update_turn_journal_phase("s1", "a1", phase, stream_key="k")
    with open_store(directory) as store:
        assert store.dump() == before


def test_bad_options_are_invalid(directory: Path) -> None:
    with pytest.raises(InvalidArgument):
        open_store(directory, "sometimes")
    with open_store(directory) as store, pytest.raises(InvalidArgument):
        store.checkpoint_wal("EVERYTHING")
    assert not directory.with_name("sometimes").exists()


BAD_OPTIONS = {
    "path": [None, 5, b"x", "a\0b", "x\ud800", Path("x\ud800")],
    "flush": [None, 5, ["always"], "sometimes"],
    "clock": [None, 5, *(lambda answer=answer: answer for answer in (2**60, -(2**60), True, 1.5, None, "x"))],
    "busy_timeout_ms": ["x", None, -1, 1.5, True, 2**31],
    "wal_autocheckpoint": ["x", None, -1, 1.5, True, 2**31],
    "vfs": [5, b"x", "\ud800"],
}


@pytest.mark.parametrize("name", BAD_OPTIONS)
def test_every_bad_option_is_named_and_nothing_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    for value in BAD_OPTIONS[name]:
        with pytest.raises(InvalidArgument, match=name):
            open_store(**{"path": "store", name: value})
        assert os.listdir(tmp_path) == []


def test_a_backup_to_no_path_is_named_and_nothing_is_made(directory: Path) -> None:
    with open_store(directory) as store:
        before = bytes_of(directory.parent)
        for value in BAD_OPTIONS["path"]:
            with pytest.raises(InvalidArgument, match="path"):
                store.backup(value)
        assert bytes_of(directory.parent) == before


def test_what_the_clock_answers_is_judged_like_now(directory: Path) -> None:
    times: list[object] = [NOW]
    with open_store(directory, clock=lambda: times[-1]) as store:
        store.admit("s1", "run1", "dispatch", "{}", 1)
        before = store.dump()
        for answer in (2**60, True, 1.5, None, "x"):
            times.append(answer)
            calls = [
                lambda: store.admit("s2", "run2", "dispatch", "{}", 1),
                lambda: store.claim("s1", "a1", "w1", 9),
                lambda: store.append("run1", message("e1")),
                lambda: store.insert_attempt_marker("s1", "a1"),
                lambda: store.delete_session("run2"),
                lambda: store.list_expired(),
            ]
            assert {outcome(call) for call in calls} == {ErrorCode.INVALID_ARGUMENT}
            assert store.dump() == before
        assert store.append("run1", message("e1"), now=NOW) == 1


def test_no_statement_numbers_its_placeholders() -> None:
    """SQLite knows ``?1`` as a name, and a tuple that fills a name is deprecated from Python 3.12 on."""
    sources = sorted(Path(schema.__file__).parent.glob("*.py"))
    assert [file.name for file in sources if re.search(r"\?\d", file.read_text(encoding="utf-8"))] == []


# --- what is not ours -------------------------------------------------------------------------------------------------


def _newer(file: Path) -> None:
    with sqlite3.connect(file, isolation_level=None) as db:
        db.execute("PRAGMA user_version = 99")
    db.close()


def test_newer_schema_is_refused_untouched(directory: Path) -> None:
    open_store(directory).close()
    _newer(directory / "journal.db")
    before = bytes_of(directory)
    assert list(before) == ["journal.db"]
    with pytest.raises(UnsupportedSchema, match="99"):
        open_store(directory)
    assert bytes_of(directory) == before


def test_newer_schema_that_only_the_log_holds_is_refused_untouched(directory: Path) -> None:
    open_store(directory).close()
    db = sqlite3.connect(directory / "journal.db", isolation_level=None)
    db.execute("PRAGMA user_version = 99")
    image = directory.with_name("image")
    shutil.copytree(directory, image, ignore=shutil.ignore_patterns("*-shm"))
    db.close()
    before = bytes_of(image)
    assert len(before["journal.db-wal"]) > 0
    with pytest.raises(UnsupportedSchema, match="99"):
        open_store(image)
    assert bytes_of(image) == before


def test_newer_schema_that_was_never_committed_is_not_seen(directory: Path) -> None:
    open_store(directory).close()
    db = sqlite3.connect(directory / "journal.db", isolation_level=None)
    db.execute("PRAGMA user_version = 99")
    image = directory.with_name("image")
    shutil.copytree(directory, image, ignore=shutil.ignore_patterns("*-shm"))
    db.close()
    log = image / "journal.db-wal"
    data = bytearray(log.read_bytes())
    data[32 + 24 + 200] ^= 1  # a torn page: the frame's checksum no longer holds
    log.write_bytes(data)
    with open_store(image) as store:
        assert store.settings()["schema_version"] == schema.VERSION


FOREIGN = {
    "empty": b"",
    "garbage": b"\x07garbage" * 1000,
    "short": b"SQLite format 3\0",
    "text": b'{"seq":1}\n',
}


@pytest.mark.parametrize("name", FOREIGN)
def test_foreign_file_is_damage_and_is_not_touched(directory: Path, name: str) -> None:
    directory.mkdir()
    (directory / "journal.db").write_bytes(FOREIGN[name])
    for _ in range(2):
        with pytest.raises(StorageDamaged, match=r"journal\.db"):
            open_store(directory)
        assert bytes_of(directory) == {"journal.db": FOREIGN[name]}


def test_foreign_database_is_damage_and_is_not_touched(directory: Path) -> None:
    directory.mkdir()
    db = sqlite3.connect(directory / "journal.db")
    db.execute("CREATE TABLE t (x)")
    db.commit()
    db.close()
    before = bytes_of(directory)
    with pytest.raises(StorageDamaged, match="not a turnproof store"):
        open_store(directory)
    assert bytes_of(directory) == before


@pytest.mark.parametrize("keep", [100, 4096, 20_000])
def test_truncated_file_is_damage_and_is_not_touched(directory: Path, keep: int) -> None:
    with open_store(directory) as store:
        store.append("run1", message("e1", text="x" * 30_000))
    file = directory / "journal.db"
    file.write_bytes(file.read_bytes()[:keep])
    before = bytes_of(directory)
    with pytest.raises(StorageDamaged, match=r"journal\.db"):
        open_store(directory)
    assert bytes_of(directory) == before


def test_missing_database_beside_its_log_is_damage(directory: Path) -> None:
    store = open_store(directory)
    store.append("run1", message("e1"))
    image = directory.with_name("image")
    shutil.copytree(directory, image, ignore=shutil.ignore_patterns("*-shm"))
    store.close()
    (image / "journal.db").unlink()
    before = bytes_of(image)
    with pytest.raises(StorageDamaged, match="missing"):
        open_store(image)
    assert bytes_of(image) == before


def test_missing_table_is_damage(directory: Path) -> None:
    open_store(directory).close()
    db = sqlite3.connect(directory / "journal.db")
    db.execute("DROP TABLE receipts")
    db.commit()
    db.close()
    with pytest.raises(StorageDamaged, match="receipts"):
        open_store(directory)


def test_unusable_directory_is_a_storage_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match=r"journal\.db"):
        open_store(tmp_path / "file")
    assert bytes_of(tmp_path) == {"file": b""}


def test_leftovers_of_a_crashed_creation_go(directory: Path) -> None:
    directory.mkdir()
    (directory / "journal.db.new-0123").write_bytes(schema.image()[:5000])
    with open_store(directory) as store:
        assert store.runs() == []
    assert os.listdir(directory) == ["journal.db"]


def test_eight_threads_create_one_store(directory: Path) -> None:
    barrier = threading.Barrier(8)
    seqs: list[object] = []

    def work() -> None:
        barrier.wait()
        with open_store(directory) as store:
            seqs.append(outcome(lambda: store.checkpoint("run1", "running")))

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(map(str, seqs)) == list("12345678")
    assert os.listdir(directory) == ["journal.db"]


# --- connections (R15) ------------------------------------------------------------------------------------------------


def test_connections_are_bounded(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    open_store(directory).close()
    opened: list[sqlite3.Connection] = []

    def connector(uri: str) -> sqlite3.Connection:
        opened.append(sqlite3.connect(uri, uri=True, isolation_level=None, check_same_thread=False))
        return opened[-1]

    with open_store(directory, connect=connector, busy_timeout_ms=100) as store:
        pool: Pool = store._pool
        held = [pool.read() for _ in range(16)]
        for one in held:
            one.__enter__()
        assert pool.open_count == 16
        with pytest.raises(StorageError, match="16"):
            store.runs()
        for one in held:
            one.__exit__(None, None, None)
        assert (pool.open_count, pool.idle_count) == (4, 4)
        settings = {tuple(store.settings().items()) for _ in range(4)}
        assert len(settings) == 1
        monkeypatch.setattr(connection, "IDLE_SECONDS", -1.0)
        pool._sweep()
        assert (pool.open_count, pool.idle_count) == (0, 0)
        assert store.runs() == []
    assert len(opened) == 17


def test_a_fork_does_not_share_connections(directory: Path) -> None:
    code = f"""
import os, sys
from turnproof.impl import open_store
store = open_store({str(directory)!r})
store.checkpoint("run1", "running")
child = os.fork()
if child == 0:
    ok = store.checkpoint("run1", "waiting") == 2
    store.close()
    os._exit(0 if ok else 1)
_, status = os.waitpid(child, 0)
assert status == 0, status
assert store.checkpoint("run1", "completed") == 3
store.close()
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
    with open_store(directory) as store:
        assert [record.state for record in store.replay("run1")] == ["running", "waiting", "completed"]


def test_what_the_child_of_a_fork_was_acknowledged_outlives_the_parents_close(directory: Path) -> None:
    """The parent's close used to take the log away under the child, whose SQLite held locks by hearsay only (X5)."""
    code = f"""
import os
from turnproof.impl import open_store
store = open_store({str(directory)!r})
ready, gone = os.pipe(), os.pipe()
child = os.fork()
if child == 0:
    store.checkpoint("run1", "running")
    os.write(ready[1], b"1")
    os.read(gone[0], 1)
    ok = [store.checkpoint("run1", "waiting"), store.checkpoint("run1", "completed")] == [2, 3]
    with open_store({str(directory)!r}) as other:
        ok &= other.state("run1") == "completed"
    os._exit(0 if ok else 1)
os.read(ready[0], 1)
store.close()
os.write(gone[1], b"1")
assert os.waitpid(child, 0)[1] == 0
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
    with open_store(directory) as store:
        assert [record.state for record in store.replay("run1")] == ["running", "waiting", "completed"]


def test_a_store_at_work_while_the_process_forks_is_of_no_use_in_the_child(directory: Path) -> None:
    code = f"""
import os
from turnproof.impl import open_store
from turnproof.model.vocabulary import StorageError
store = open_store({str(directory)!r}, busy_timeout_ms=50)
with store._pool.read() as connection:
    child = os.fork()
    if child == 0:
        try:
            store.checkpoint("run1", "waiting")
        except StorageError as error:
            os._exit(0 if "forked" in error.message else 2)
        os._exit(1)
    assert os.waitpid(child, 0)[1] == 0
    assert connection.execute("SELECT 1").fetchone() == (1,)
assert store.checkpoint("run1", "completed") == 1
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


@pytest.mark.parametrize("how", ["removed", "replaced"])
def test_a_file_that_is_gone_from_under_an_open_store_takes_no_write(how: str, directory: Path, tmp_path: Path) -> None:
    with open_store(directory) as store:
        store.checkpoint("run1", "running")
        if how == "removed":
            shutil.rmtree(directory)
        else:
            (directory / "journal.db").rename(tmp_path / "elsewhere.db")
            open_store(tmp_path / "other").close()
            shutil.copy(tmp_path / "other" / "journal.db", directory / "journal.db")
        with pytest.raises(StorageDamaged, match="removed or replaced"):
            store.checkpoint("run1", "completed")


@pytest.mark.parametrize("name", ["journal.db", "journal.db-wal", "runs/r.jsonl"])
def test_a_pipe_in_place_of_a_file_is_an_error_and_no_wait(name: str, directory: Path) -> None:
    open_store(directory).close()
    (directory / "runs").mkdir()
    (directory / name).unlink(missing_ok=True)
    os.mkfifo(directory / name)
    before = sorted(os.listdir(directory))
    with pytest.raises(StorageError, match="not a regular file"):
        open_store(directory)
    assert sorted(os.listdir(directory)) == before


def test_a_schema_that_is_not_utf8_is_damage(directory: Path) -> None:
    open_store(directory).close()
    file = directory / "journal.db"
    data = file.read_bytes()
    at = data.index(b"CREATE TABLE submissions")
    file.write_bytes(data[: at + 2] + b"\xfb" + data[at + 3 :])
    with pytest.raises(StorageDamaged, match=re.escape(str(file))):
        open_store(directory)


def test_a_place_that_cannot_be_had_leaves_nothing_behind(directory: Path) -> None:
    directory.mkdir()
    (directory / "journal.db").symlink_to(directory / "journal.db")
    with pytest.raises(StorageError):
        open_store(directory)
    assert os.listdir(directory) == ["journal.db"]


def test_busy_database_is_a_storage_error_and_the_store_goes_on(directory: Path) -> None:
    with open_store(directory, busy_timeout_ms=50) as store:
        other = sqlite3.connect(directory / "journal.db", isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StorageError, match="locked"):
            store.append("run1", message("e1"))
        assert store.position("run1") == 0
        other.execute("ROLLBACK")
        other.close()
        assert store.append("run1", message("e1")) == 1
