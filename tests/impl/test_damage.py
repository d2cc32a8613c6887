"""Damage is an error that names the place, never an answer (R14, X3, X4); and what backup leaves out (nothing)."""

from __future__ import annotations

import shutil
import sqlite3
import threading
from pathlib import Path

import pytest
from impl_helpers import NOW, answers, asks, bytes_of, message, running

from turnproof.impl import Store, open_store
from turnproof.model.rows import Draft
from turnproof.model.vocabulary import StorageDamaged, StorageError, TurnproofError


def _edit(directory: Path, *statements: str) -> None:
    db = sqlite3.connect(directory / "journal.db", isolation_level=None)
    for statement in statements:
        db.execute(statement)
    db.close()


EDITS = {
    "changed text": ("UPDATE records SET text = 'other' WHERE seq = 2", 2),
    "changed payload": ("UPDATE records SET payload = replace(payload, 'hi', 'ho') WHERE seq = 1", 1),
    "changed time": ("UPDATE records SET timestamp = 1 WHERE seq = 3", 3),
    "removed first": ("DELETE FROM records WHERE seq = 1", 2),
    "removed middle": ("DELETE FROM records WHERE seq = 2", 3),
    "removed last": ("DELETE FROM records WHERE seq = 3", 3),
    "swapped": ("UPDATE records SET seq = CASE seq WHEN 1 THEN 9 ELSE seq END", 2),
    "moved field": ("UPDATE records SET role = 'a', ext_type = 'b' WHERE seq = 2", 2),
}


@pytest.mark.parametrize("name", EDITS)
def test_an_edited_log_is_found(directory: Path, name: str) -> None:
    with open_store(directory) as store:
        store.append_step("run1", [message("e1"), Draft(kind="step", role="ab"), message("e2", "e1")])
    statement, seq = EDITS[name]
    _edit(directory, statement)
    with open_store(directory) as store:
        for read in (store.replay, store.restore, store.inspect, store.context, store.run_view, lambda _: store.dump()):
            with pytest.raises(StorageDamaged, match=rf"journal\.db: run 'run1' seq {seq}\b"):
                read("run1")
        with pytest.raises(StorageDamaged, match=rf"seq {seq}\b"):
            list(store.stream("run1"))


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE runs SET state = 'completed'",
        "UPDATE runs SET position = 2",
        "UPDATE runs SET digest = zeroblob(32)",
        "UPDATE runs SET seal = zeroblob(32)",
        "DELETE FROM runs",
    ],
)
def test_an_edited_head_is_found(directory: Path, statement: str) -> None:
    with open_store(directory) as store:
        store.append_step("run1", [message("e1"), message("e2", "e1"), message("e3", "e2")])
    _edit(directory, statement)
    with open_store(directory) as store:
        lists = (lambda _: store.runs(), lambda _: store.runs("completed"), lambda _: store.dump())
        for read in (store.replay, store.state, store.position, store.inspect, *lists):
            with pytest.raises(StorageDamaged, match="run 'run1'"):
                read("run1")
        with pytest.raises(StorageDamaged, match="run 'run1'"):
            store.append("run1", message("e4", "e3"))


RENAMED = {
    "lost": "UPDATE records SET entry_id = 'x' WHERE entry_id = 'input:s1'",
    "found": "UPDATE records SET entry_id = 'input:s1' WHERE entry_id = 'other'",
    "gone": "DELETE FROM records WHERE entry_id = 'input:s1'",
    "without a head": "DELETE FROM runs",
}


@pytest.mark.parametrize("name", RENAMED)
def test_recovery_is_not_told_by_a_changed_log(directory: Path, name: str) -> None:
    with open_store(directory, clock=lambda: NOW) as store:
        running(store)
        store.append_step("run1", [message("other"), message("e2", "other")])
        if name != "found":
            store.append("run1", message("input:s1", "e2"))
        assert store.recover("s1").decision == ("requeue" if name == "found" else "mark_input")
    _edit(directory, RENAMED[name])
    before = bytes_of(directory)
    with open_store(directory, clock=lambda: NOW) as store, pytest.raises(StorageDamaged, match="run 'run1'"):
        store.recover("s1")
    assert bytes_of(directory) == before


@pytest.mark.parametrize(
    ("statement", "record"),
    [
        ("UPDATE records SET entry_id = 'x' WHERE seq = 2", message("e4", "e2")),
        ("UPDATE records SET entry_id = 'x' WHERE seq = 2", message("e4", "x")),
        ("UPDATE records SET entry_id = 'x' WHERE seq = 2", Draft(kind="branch", parent_id="e2")),
        ("UPDATE records SET payload = replace(payload, 'hi', 'ho') WHERE seq = 2", message("e2", "e1")),
        ("UPDATE records SET payload = replace(payload, 'hi', 'ho') WHERE seq = 2", message("e2", "e1", text="ho")),
    ],
)
def test_an_append_is_not_judged_by_a_changed_record(directory: Path, statement: str, record: Draft) -> None:
    with open_store(directory) as store:
        store.append_step("run1", [message("e1"), message("e2", "e1"), message("e3", "e2")])
    _edit(directory, statement)
    before = bytes_of(directory)
    with open_store(directory) as store, pytest.raises(StorageDamaged, match="run 'run1' seq 2"):
        store.append("run1", record)
    assert bytes_of(directory) == before


def _filled(directory: Path) -> object:
    with open_store(directory, clock=lambda: NOW) as store:
        for number in range(40):
            running(store, f"s{number}", f"run{number}")
            store.append_step(
                f"run{number}", [message("e1", text="x" * 9000), asks("e2", "e1", "c1"), answers("e3", "e2", "c1")]
            )
            store.append_stream_segment(f"s{number}:t:a1", 0, "y" * (9000 if number % 4 == 0 else 100))
            if number % 8 == 0:
                store.fail(f"s{number}", "a1", "z" * 9000)
            store.insert_attempt_marker(f"s{number}", "a1")
        return store.dump()


def test_a_zeroed_page_is_an_error_or_does_not_matter(directory: Path) -> None:
    whole = _filled(directory)
    file = directory / "journal.db"
    original = file.read_bytes()
    found = 0
    for page in range(len(original) // 4096):
        image = bytearray(original)
        image[page * 4096 : (page + 1) * 4096] = bytes(4096)
        file.write_bytes(image)
        try:
            with open_store(directory) as store:
                assert store.dump() == whole
        except TurnproofError as error:
            found += 1
            assert isinstance(error, StorageDamaged), (page, error)
            assert str(file) in str(error)
        assert bytes_of(directory) == {"journal.db": bytes(image)}
    assert found > len(original) // 4096 // 2


def test_closing_after_damage_writes_nothing(directory: Path) -> None:
    with open_store(directory, wal_autocheckpoint=0) as store:
        store.append("run1", message("e1", text="x" * 20_000))
        store.checkpoint_wal()
        store.append("run2", message("e1"))
        image = directory.with_name("image")
        shutil.copytree(directory, image, ignore=shutil.ignore_patterns("*-shm"))
    file = image / "journal.db"
    data = bytearray(file.read_bytes())
    at = data.index(b"x" * 4000) // 4096 * 4096
    data[at : at + 4096] = bytes(4096)
    file.write_bytes(data)
    log = (image / "journal.db-wal").read_bytes()
    assert log
    for _ in range(2):
        with open_store(image) as store, pytest.raises(StorageDamaged):
            store.dump()
        assert file.read_bytes() == bytes(data)
        assert (image / "journal.db-wal").read_bytes() == log


def test_undecodable_text_is_damage(directory: Path) -> None:
    with open_store(directory) as store:
        store.append_stream_segment("k", 0, "x")
    _edit(directory, "UPDATE segments SET body = 'y'")
    with open_store(directory) as store, pytest.raises(StorageDamaged, match="segment 0 of stream 'k'"):
        store.get_stream_segments("k")
    _edit(directory, "UPDATE segments SET body = CAST(x'ff' AS TEXT)")
    with open_store(directory) as store, pytest.raises(StorageDamaged, match=r"journal\.db"):
        store.get_stream_segments("k")


# --- backup -----------------------------------------------------------------------------------------------------------


def test_backup_of_a_live_store(directory: Path) -> None:
    with open_store(directory, "relaxed", clock=lambda: NOW) as store:
        stop = threading.Event()

        def write() -> None:
            number = 0
            while not stop.is_set():
                store.append_step("run1", [Draft(kind="step", text=str(number)), Draft(kind="step")])
                number += 1

        writer = threading.Thread(target=write)
        writer.start()
        copies = [directory.parent / f"copy{number}" for number in range(5)]
        for copy in copies:
            copy.mkdir()
            store.backup(copy / "journal.db")
        stop.set()
        writer.join()
        whole = store.replay("run1")
        for copy in copies:
            assert list(bytes_of(copy)) == ["journal.db"]
            with open_store(copy) as restored:
                if restored.runs():
                    records = restored.replay("run1")
                    assert records == whole[: len(records)] and len(records) % 2 == 0
        with pytest.raises(StorageError, match="exists"):
            store.backup(copies[0] / "journal.db")
        with pytest.raises(StorageError):
            store.backup(directory / "nowhere" / "x.db")


def test_store(store: Store) -> None:
    assert repr(store) == f"<Store {store.file}>"
