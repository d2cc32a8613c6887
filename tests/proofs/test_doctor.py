"""The doctor: an answer for everything that can be at a path, not one byte changed, and copies that open."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import stat
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import closing
from hashlib import sha256
from pathlib import Path

import pytest

from turnproof.impl import Store, open_store
from turnproof.impl.log import seal
from turnproof.model.ids import mint_stream_key
from turnproof.model.rows import Draft
from turnproof.proofs.cli import main
from turnproof.proofs.doctor import snapshot
from turnproof.proofs.doctor.examination import examine
from turnproof.proofs.doctor.finding import Examination, NotAStore
from turnproof.proofs.doctor.repair import Repaired, repair
from turnproof.proofs.terminal import UserError

NOW = 1_000
REQUEST = json.dumps({"tool_calls": [{"id": "c1", "name": "f", "input": {}}]})
KEY = mint_stream_key("s2", "t1", "a2")
PAGE = 4096


# --- stores ----------------------------------------------------------------------------------------------------------


def message(entry: str, parent: str = "", role: str = "user", *parts: object) -> Draft:
    texts = [{"type": "text", "text": part} if isinstance(part, str) else part for part in parts or ("hi",)]
    return Draft(kind="message", entry_id=entry, parent_id=parent, payload=json.dumps({"role": role, "parts": texts}))


def asks(entry: str, parent: str) -> Draft:
    return message(entry, parent, "assistant", {"type": "tool_call", "id": "c1", "name": "f", "input": {}})


def answers(entry: str, parent: str) -> Draft:
    return message(entry, parent, "tool", {"type": "tool_result", "call_id": "c1", "output": 1, "is_error": False})


def claim(store: Store, submission: str, session: str, attempt: str, lease: int = 10**15) -> None:
    store.admit(submission, session, "dispatch", "{}", NOW)
    assert store.claim(submission, attempt, "w1", lease) is not None


def fill(store: Store) -> None:
    """``chat``: a committed tool turn, settled. ``work``: a turn at work. ``wait``: one in the queue."""
    claim(store, "s1", "chat", "a1")
    store.append("chat", message("e1"))
    store.begin_turn_journal("s1", "a1", "chat", "dispatch", "o1", "t1")
    key = mint_stream_key("s1", "t1", "a1")
    assert store.update_turn_journal_phase("s1", "a1", "provider_started", stream_key=key, checkpoint_leaf_id="e1")
    assert store.update_turn_journal_phase(
        "s1", "a1", "tool_request_recorded", tool_request=REQUEST, checkpoint_leaf_id="e1"
    )
    store.append_step("chat", [asks("e2", "e1"), answers("e3", "e2")])
    assert store.commit_turn_journal("s1", "a1", "e3")
    assert store.complete("s1", "a1")
    claim(store, "s2", "work", "a2")
    store.append("work", message("w1"))
    store.begin_turn_journal("s2", "a2", "work", "dispatch", "o2", "t1")
    assert store.update_turn_journal_phase("s2", "a2", "provider_started", stream_key=KEY, checkpoint_leaf_id="w1")
    store.append_stream_segment(KEY, 0, "one")
    store.append_stream_segment(KEY, 1, "two")
    store.admit("s3", "wait", "dispatch", "{}", NOW)
    store.append("wait", Draft(kind="step", role="a"))


def opened(path: Path) -> Store:
    return open_store(path, clock=lambda: NOW)


def make(path: Path) -> Path:
    with opened(path) as store:
        fill(store)
    return path


def make_long(path: Path, runs: Sequence[str] = ("chat", "other")) -> Path:
    """Runs of 40 records each, several to a page."""
    with opened(path) as store:
        for run in runs:
            store.append_step(
                run, [message(f"e{i}", f"e{i - 1}" if i else "", "user", f"{run} {i}") for i in range(40)]
            )
    return path


def edit(path: Path, *statements: str) -> None:
    with closing(sqlite3.connect(path / "journal.db", isolation_level=None)) as db:
        db.execute("PRAGMA ignore_check_constraints = 1")
        for statement in statements:
            db.execute(statement)


def overwrite(file: Path, at: int, data: bytes) -> None:
    with file.open("r+b") as handle:
        handle.seek(at)
        handle.write(data)


def page_with(file: Path, text: bytes) -> int:
    """The number of the last page that holds ``text``; an earlier one may be what a split page left behind."""
    return file.read_bytes().rindex(text) // PAGE + 1


def zero(file: Path, page: int) -> None:
    overwrite(file, (page - 1) * PAGE, bytes(PAGE))


def with_log(path: Path, filler: Callable[[Store], None] = fill) -> Path:
    """A store as a killed process leaves it: database, log and index."""
    live = path.with_name(f"{path.name}-live")
    with opened(live) as store:
        filler(store)
        shutil.copytree(live, path)
    shutil.rmtree(live)
    return path


# --- looking ---------------------------------------------------------------------------------------------------------


def state_of(path: Path) -> dict[str, object]:
    """Names, modes, times and bytes. A file that was made and removed again still shows in its directory's time."""
    found: dict[str, object] = {}
    for place in [path, *path.rglob("*")] if path.is_dir() else [path, *path.parent.iterdir()]:
        status = place.lstat()
        found[str(place)] = (
            status.st_mode, status.st_mtime_ns, status.st_ino, place.read_bytes() if place.is_file() else None,
        )  # fmt: skip
    return found


def look(path: Path | str, tmp_path: Path) -> Examination:
    """Examine, and show that nothing was touched."""
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    before = state_of(Path(path))
    try:
        return examine(str(path), str(scratch), NOW, lambda text: None).answer
    finally:
        assert state_of(Path(path)) == before
        shutil.rmtree(scratch)


def mend(path: Path, tmp_path: Path, name: str = "copy") -> Repaired:
    """Repair to a copy, which only its owner can read; and show that nothing was touched."""
    scratch, target, before = tmp_path / "scratch", tmp_path / name, state_of(path)
    scratch.mkdir()
    found = examine(str(path), str(scratch), NOW, lambda text: None)
    repaired = repair(found, str(target), str(scratch), NOW, lambda text: None)
    shutil.rmtree(scratch)
    assert state_of(path) == before
    for place in [target, *target.rglob("*")]:
        assert stat.S_IMODE(place.stat().st_mode) == (0o700 if place.is_dir() else 0o600)
    with opened(target) as store:
        store.dump()
    return repaired


def found_in(answer: Examination, path: Path) -> list[str]:
    """Each finding in a line, but for the notes of every store of ``make``."""
    usual = {"closed", "running"}
    return [
        f"{finding.severity.value}: {finding.code}: {finding.told}".replace(str(path), "~")
        for finding in answer.findings
        if finding.severity.value != "note" or finding.code not in usual
    ]


# --- the seven cases, as a person meets them -------------------------------------------------------------------------


def cut(path: Path) -> Path:
    file = make_long(path) / "journal.db"
    os.truncate(file, file.stat().st_size - 2 * PAGE)
    return path


def zeroed(path: Path) -> Path:
    file = make_long(path) / "journal.db"
    zero(file, page_with(file, b"chat 20"))
    return path


def foreign(path: Path) -> Path:
    path.mkdir()
    edit(path, "CREATE TABLE t (x)")
    return path


def edited(path: Path) -> Path:
    edit(make(path), "UPDATE records SET text = 'other' WHERE run_id = 'chat' AND seq = 2")
    return path


def without_log(path: Path) -> Path:
    (with_log(path) / "journal.db-wal").unlink()
    return path


def jsonl(path: Path, tail: bytes = b"", name: str = "old.jsonl") -> Path:
    (path / "runs").mkdir(parents=True, exist_ok=True)
    lines = [{"seq": i, "kind": "message", "entry_id": f"e{i}", "parent_id": f"e{i - 1}" if i > 1 else "",
              "role": "user", "text": "hi"} for i in range(1, 4)]  # fmt: skip
    (path / "runs" / name).write_bytes(b"".join(json.dumps(line).encode() + b"\n" for line in lines) + tail)
    return path


def torn_jsonl(path: Path) -> Path:
    return jsonl(path, b'{"seq":4,"ki')


SEVEN: dict[str, tuple[Callable[[Path], Path], int, str]] = {
    "healthy": (make, 0, "healthy store: nothing to do"),
    "truncated": (
        cut,
        1,
        "damaged: ~/journal.db: the file is truncated: 86,016 of 94,208 bytes are there (3 more below)",
    ),
    "zeroed page": (zeroed, 1, "damaged: ~/journal.db: page 21 is zeroed (4096 bytes at 0x14000) (2 more below)"),
    "foreign": (
        foreign,
        2,
        "turnproof: not a store: ~/journal.db is a SQLite database of another program (application_id 0x0, a turnproof "
        "store has 0x54726e50); is it the right path? nothing was read further",
    ),
    "edited": (edited, 1, "damaged: run 'chat' seq 2: the record was changed: its digest is not that of its fields"),
    "missing -wal": (
        without_log,
        1,
        "damaged: ~/journal.db-wal: the write-ahead log is missing: it held 50 committed pages, 0 of them had been "
        "moved to the database, so 50 are lost",
    ),
    "torn JSONL": (
        torn_jsonl,
        1,
        "needs attention: ~/runs/old.jsonl line 4 run 'old': the last line is torn: 12 bytes at offset 289, without an "
        "end and no JSON",
    ),
}


@pytest.mark.parametrize("case", SEVEN)
def test_seven_cases_have_seven_answers(case: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    build, code, headline = SEVEN[case]
    path = build(tmp_path / "store")
    before = state_of(path)
    assert main(["doctor", str(path)]) == code
    shown = capsys.readouterr()
    assert (shown.err if code == 2 else shown.out).splitlines()[0].replace(str(path), "~") == headline
    assert (shown.out if code == 2 else shown.err) == ""
    assert state_of(path) == before
    assert main(["doctor", str(path), "--json", "-"]) == code
    shown = capsys.readouterr()
    report = json.loads(shown.out)
    assert (report["report"], report["verb"], report["exit"], report["path"]) == (1, "doctor", code, str(path))
    assert headline.removeprefix("turnproof: ").startswith(report["headline"].replace(str(path), "~"))
    assert state_of(path) == before
    assert len({line for _, _, line in SEVEN.values()}) == 7


def test_a_copy_of_each_of_the_seven(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for number, (build, code, _) in enumerate(SEVEN.values()):
        path, copy = build(tmp_path / f"store{number}"), tmp_path / f"copy{number}"
        before = state_of(path)
        assert main(["doctor", str(path), "--repair-to", str(copy)]) == code
        assert state_of(path) == before
        assert copy.exists() == (code != 2)
        capsys.readouterr()
        if copy.exists():
            assert main(["doctor", str(copy)]) == 0
            assert capsys.readouterr().out.startswith("healthy store: nothing to do\n")


# --- every finding, by a damage that is really there -----------------------------------------------------------------

RECEIPT = "and all that belongs to it (a receipt stands in its place)"
DAMAGE: dict[str, tuple[tuple[str, ...], list[str], list[str]]] = {
    # what was done: the statements, what is found, what a copy leaves out
    "a kind": (
        ("UPDATE records SET kind = 'nonsense' WHERE run_id = 'wait'",),
        ["integrity: ~/journal.db: SQLite's integrity check: CHECK constraint failed in records",
         "record_changed: run 'wait' seq 1: the record was changed: kind 'nonsense' is no word of this schema"],
        ["table records: the row of 'wait' is not one that a store writes (CHECK constraint failed: kind IN (…))",
         "run 'wait': seq 1 (0 could be read): seq 1 was removed from the end; seq 0 is the last one"],
    ),
    "a state": (
        ("UPDATE records SET kind = 'state', state = 'nonsense' WHERE run_id = 'wait'",),
        ["record_changed: run 'wait' seq 1: the record was changed: 'nonsense' is no state"],
        ["run 'wait': seq 1 (1 could be read): the record was changed: 'nonsense' is no state"],
    ),
    "a record removed": (
        ("DELETE FROM records WHERE run_id = 'chat' AND seq = 2",),
        ["record_removed: run 'chat' seq 3: its digest does not follow from seq 1: seq 2 removed, or this one changed"],
        ["run 'chat': seqs 2 to 3 (1 could be read): its digest does not follow from seq 1: seq 2 removed, or this one "
         "changed",
         f"submission 's1' {RECEIPT}: the committed leaf 'e3' is no entry of the run"],
    ),
    "the last record removed": (
        ("DELETE FROM records WHERE run_id = 'chat' AND seq = 3",),
        ["record_removed: run 'chat' seq 3: seq 3 was removed from the end; seq 2 is the last one"],
        ["run 'chat': seq 3 (0 could be read): seq 3 was removed from the end; seq 2 is the last one",
         f"submission 's1' {RECEIPT}: the committed leaf 'e3' is no entry of the run"],
    ),
    "a run's row removed": (
        ("DELETE FROM runs WHERE run_id = 'chat'",),
        ["run_row: run 'chat': it has 3 records, but its row is gone"],
        [],
    ),
    "a run's row changed": (
        ("UPDATE runs SET position = 1 WHERE run_id = 'chat'",),
        ["run_row: run 'chat': its row was changed (state 'pending', position 1)",
         "run_row: run 'chat' seq 3: its row stops at seq 1, but seq 3 is stored"],
        [],
    ),
    "a run renamed": (
        ("UPDATE records SET run_id = 'no run' WHERE run_id = 'wait'",
         "UPDATE runs SET run_id = 'no run' WHERE run_id = 'wait'"),
        ["run_id: run 'no run': its name is no run id, so no verb of the store can reach it",
         "record_changed: run 'no run' seq 1: the record was changed: its digest is not that of its fields",
         "run_row: run 'no run': its row was changed (state 'pending', position 1)"],
        ["run 'no run': seq 1 (1 could be read): its name is no run id, so no verb of the store can reach it"],
    ),
    "a payload": (
        ("UPDATE submissions SET payload = '[]' WHERE submission_id = 's3'",),
        ["row_changed: submission 's3': the payload of submission 's3' was changed on disk"],
        [f"submission 's3' {RECEIPT}: the payload of submission 's3' was changed on disk"],
    ),
    "a segment": (
        ("UPDATE segments SET body = 'eno' WHERE segment_index = 0",),
        ["row_changed: stream 's2:t1:a2': segment 0 of stream 's2:t1:a2' was changed on disk"],
        ["stream 's2:t1:a2': segment 0: it was changed on disk"],
    ),
    "a status": (
        ("UPDATE submissions SET settled_at = NULL WHERE submission_id = 's1'",),
        ["submission: submission 's1': its fields do not go together with status 'settled'"],
        [f"submission 's1' {RECEIPT}: its fields do not go together with status 'settled'"],
    ),
    "an attempt forgotten": (
        ("DELETE FROM attempts WHERE submission_id = 's2'",),
        ["attempt: submission 's2': its owner, attempt 'a2', is not among the attempts remembered of it (T5), so that "
         "id could be accepted again",
         "slot: submission 's2': the slot is held by attempt 'a2', which never owned the submission",
         "slot: submission 's2': stream key 's2:t1:a2' was minted for none of its attempts (J5)"],
        [f"submission 's2' {RECEIPT}: its owner, attempt 'a2', is not among the attempts remembered of it (T5), so "
         "that id could be accepted again"],
    ),
    "an attempt too many": (
        ("UPDATE submissions SET attempt_count = 3 WHERE submission_id = 's2'",),
        ["attempt: submission 's2': it counts 3 attempts, and 1 are remembered"],
        [f"submission 's2' {RECEIPT}: it counts 3 attempts, and 1 are remembered"],
    ),
    "an attempt of nobody": (
        ("INSERT INTO attempts VALUES ('s9', 'a9')",),
        ["attempt: submission 's9': attempts are remembered of a submission that does not exist"],
        [f"submission 's9' {RECEIPT}: attempts are remembered of a submission that does not exist"],
    ),
    "a receipt": (
        ("INSERT INTO receipts VALUES ('s1', 1)",),
        ["receipt: submission 's1': it has a receipt of a deleted session and is still there"],
        [f"submission 's1' {RECEIPT}: it has a receipt of a deleted session and is still there"],
    ),
    "a deletion under a worker": (
        ("INSERT INTO deletions VALUES ('work')",),
        ["deletion: run 'work' submission 's2': it is running in a session that is being deleted",
         "pending_deletion: run 'work': the session's deletion was begun and not finished; it stopped after the first "
         "of three phases: the transcript is still there"],
        [f"submission 's2' {RECEIPT}: it is running in a session that is being deleted"],
    ),
    "a slot of nobody": (
        ("UPDATE slots SET submission_id = 's9' WHERE submission_id = 's1'",),
        ["slot: run 'chat' submission 's9': there is a turn journal slot, but no such submission"],
        [f"submission 's9' {RECEIPT}: there is a turn journal slot, but no such submission"],
    ),
    "a slot's leaf": (
        ("UPDATE slots SET committed_leaf_id = NULL WHERE submission_id = 's1'",),
        ["integrity: ~/journal.db: SQLite's integrity check: CHECK constraint failed in slots",
         "slot: submission 's1': the slot is in committed, and its fields do not go together with that"],
        [f"submission 's1' {RECEIPT}: its row in slots is not one that a store writes (CHECK constraint failed: (phase "
         "= 'committed') = (committed_leaf_id IS NOT NULL))"],
    ),
    "a counter": (
        ("UPDATE sqlite_sequence SET seq = 1",),
        ["sequence: admission number 3 is in use, but the counter stands at 1"],
        [],
    ),
    "a marker": (
        ("INSERT INTO receipts VALUES ('s8', 1)", "INSERT INTO markers VALUES ('s8', 'a8', 1)"),
        ["marker: submission 's8': attempt 'a8' is marked of a submission that was deleted (L10)"],
        [f"submission 's8' {RECEIPT}: attempt 'a8' is marked of a submission that was deleted (L10)"],
    ),
    "an anchor that points nowhere": (
        ("UPDATE slots SET committed_leaf_id = 'e9' WHERE submission_id = 's1'",),
        ["anchor: run 'chat' entry 'e9' submission 's1': the committed leaf 'e9' is no entry of the run"],
        [f"submission 's1' {RECEIPT}: the committed leaf 'e9' is no entry of the run"],
    ),
    "an anchor above an open call": (
        ("UPDATE slots SET committed_leaf_id = 'e2' WHERE submission_id = 's1'",),
        ["anchor: run 'chat' entry 'e2' submission 's1': the committed leaf 'e2' is not at or below the checkpoint "
         "'e1', or the path between them has an open call or a stray result"],
        [f"submission 's1' {RECEIPT}: the committed leaf 'e2' is not at or below the checkpoint 'e1', or the path "
         "between them has an open call or a stray result"],
    ),
    "two at once": (
        ("UPDATE submissions SET session_key = 'work', status = 'running', attempt_id = 'a3', owner_id = 'w1', "
         "started_at = 1, attempt_count = 1, timeout_at = 9999999, lease_expires_at = 31000 WHERE submission_id = 's3'",
         "INSERT INTO attempts VALUES ('s3', 'a3')"),
        ["two_running: run 'work' submission 's3': 2 submissions run in one session at once: 's2', 's3' (L2)"],
        [f"submission 's3' {RECEIPT}: 2 submissions run in one session at once: 's2', 's3' (L2)"],
    ),
    "out of turn": (
        ("UPDATE submissions SET session_key = 'work' WHERE submission_id = 's3'",
         "UPDATE submissions SET sequence = 9 WHERE submission_id = 's2'", "UPDATE sqlite_sequence SET seq = 9"),
        ["not_head: run 'work' submission 's2': it runs although 's3', admitted before it, is still queued (L2)"],
        [f"submission 's2' {RECEIPT}: it runs although 's3', admitted before it, is still queued (L2)"],
    ),
    "an index": (
        ("PRAGMA writable_schema = 1",
         "UPDATE sqlite_schema SET sql = replace(sql, 'message', 'massage') WHERE name = 'records_entry'"),
        ["schema: ~/journal.db: schema: records_entry is not defined as this release defines it",
         "index: ~/journal.db: SQLite's integrity check: wrong # of entries in index records_entry"],
        [],
    ),
    "a table": (
        ("DROP TABLE markers",),
        ["schema: ~/journal.db: schema: markers is missing",
         "unreadable_table: ~/journal.db: table markers cannot be read to its end: no such table: markers"],
        ["table markers: what stands after 0 rows could not be read to its end: no such table: markers"],
    ),
    "a version": (
        ("PRAGMA user_version = 0",),
        ["schema_version: ~/journal.db: schema version 0, which no release ever wrote"],
        [],
    ),
    "a text": (
        ("UPDATE submissions SET owner_id = CAST(x'ff' AS TEXT) WHERE submission_id = 's2'",),
        ["not_utf8: ~/journal.db: a text is not UTF-8; a store writes nothing else"],
        [f"submission 's2' {RECEIPT}: its row in submissions is not one that a store writes (a text is not UTF-8)"],
    ),
}  # fmt: skip


def shortened(lines: Sequence[str], path: Path) -> list[str]:
    """The lines without the path and without the list of all kinds."""
    return [
        line.replace(str(path), "~").replace(line[at:].split(")")[0], "kind IN (…")
        if (at := line.find("kind IN (")) >= 0
        else line.replace(str(path), "~")
        for line in lines
    ]


@pytest.mark.parametrize("name", DAMAGE)
def test_damage_is_named_and_left_out(name: str, tmp_path: Path) -> None:
    statements, found, left_out = DAMAGE[name]
    path = make(tmp_path / "store")
    edit(path, *statements)
    answer = look(path, tmp_path)
    told = [line.removeprefix("damage: ").removeprefix("needs attention: ") for line in found_in(answer, path)]
    assert told == found
    assert (answer.exit, answer.verdict) == (1, "damaged")
    repaired = mend(path, tmp_path)
    assert shortened(repaired.changes.left_out, path) == left_out
    assert repaired.after.headline == "healthy store: nothing to do"
    assert (tmp_path / "copy" / "left-out.jsonl").exists() == any("left-out" in line for line in repaired.changes.done)


ORPHAN = f"INSERT INTO segments VALUES ('{{}}:t:a', 0, 'x', x'{sha256(b'x').hexdigest()}')"
SQL_ATTENTION: dict[str, tuple[tuple[str, ...], str, list[str]]] = {
    "a deletion, phase 1": (
        ("INSERT INTO deletions VALUES ('chat')",),
        "pending_deletion: run 'chat': the session's deletion was begun and not finished; it stopped after the first "
        "of three phases: the transcript is still there",
        ["run 'chat': its deletion is finished"],
    ),
    "a deletion, phase 2": (
        ("INSERT INTO deletions VALUES ('chat')", "DELETE FROM records WHERE run_id = 'chat'",
         "DELETE FROM runs WHERE run_id = 'chat'"),
        "pending_deletion: run 'chat': the session's deletion was begun and not finished; it stopped after the second "
        "of three phases: the transcript is removed (or never was), 1 submission is left",
        ["run 'chat': its deletion is finished"],
    ),
    "segments of a deleted submission": (
        ("INSERT INTO receipts VALUES ('s7', 1)", ORPHAN.format("s7")),
        "orphan_segments: submission 's7' stream 's7:t:a': 1 segments of a submission that was deleted with its "
        "session (L10)",
        ["stream 's7:t:a': its 1 orphan segments are removed"],
    ),
    "segments of nobody": (
        (ORPHAN.format("s9"),),
        "orphan_segments: submission 's9' stream 's9:t:a': 1 segments of a submission that does not exist",
        ["stream 's9:t:a': its 1 orphan segments are removed"],
    ),
    "a journal mode": (
        ("PRAGMA journal_mode = delete",),
        "journal_mode: ~/journal.db: the header does not say WAL: another program changed the journal mode",
        [],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", SQL_ATTENTION)
def test_what_waits_is_done_by_the_store_on_the_copy(name: str, tmp_path: Path) -> None:
    statements, found, done = SQL_ATTENTION[name]
    path = make(tmp_path / "store")
    edit(path, *statements)
    answer = look(path, tmp_path)
    assert (answer.verdict, found_in(answer, path)) == ("needs attention", [f"needs attention: {found}"])
    repaired = mend(path, tmp_path)
    assert (repaired.changes.done, repaired.changes.left_out) == (done, [])
    assert repaired.after.headline == "healthy store: nothing to do"


# --- conversations ---------------------------------------------------------------------------------------------------


def recorded(store: Store, lease: int) -> None:
    """A turn whose tools may be running."""
    claim(store, "s1", "chat", "a1", lease)
    store.append("chat", message("e1"))
    store.begin_turn_journal("s1", "a1", "chat", "dispatch", "o", "t1")
    store.update_turn_journal_phase("s1", "a1", "provider_started", stream_key="s1:t1:a1", checkpoint_leaf_id="e1")
    store.update_turn_journal_phase("s1", "a1", "tool_request_recorded", tool_request=REQUEST, checkpoint_leaf_id="e1")
    store.append("chat", asks("e2", "e1"))


def torn(store: Store) -> None:
    store.append_step("chat", [message("e1"), asks("e2", "e1")])
    store.append("chat", Draft(kind="extension_data", entry_id="x", parent_id="e2", payload="{}"))


def excluded(store: Store) -> None:
    claim(store, "s1", "chat", "a1", 1)
    store.append_step("chat", [message("e1"), asks("e2", "e1")])
    store.begin_turn_journal("s1", "a1", "chat", "dispatch", "o", "t1")
    store.update_turn_journal_phase("s1", "a1", "provider_started", stream_key="s1:t1:a1", checkpoint_leaf_id="e2")
    store.restore("chat")


def odd(store: Store) -> None:
    claim(store, "s1", "chat", "a1", 31_000)
    store.append_stream_segment("s1:t1:a1", 0, "x")
    store.append_stream_segment("s1:t1:a1", 2, "x")
    store.append_stream_segment("mine", 0, "x")
    store.insert_attempt_marker("s9", "a9")


def uncommitted(store: Store) -> None:
    recorded(store, 31_000)
    store.append("chat", answers("e3", "e2"))
    store.complete("s1", "a1")


TORN = (
    "torn_tail: run 'chat' seq 2 entry 'e2': torn tail, open calls 'c1': row 'torn' of the repair table (P2) applies; "
    "restore would take 'e2', 'x' off the path and leave the leaf at 'e1'"
)
PENDING = (
    "pending_step: run 'chat' seq 2 entry 'e2' submission 's1': open calls 'c1': row 'pending' of the repair table "
    "(P9) applies; restore would keep the step"
)
RUNNING = "running: run 'chat' submission 's1': running, owner 'w1', attempt 'a1' (1 of 10); "
CONVERSATIONS: dict[str, tuple[Callable[[Store], None], list[str], list[str]]] = {
    "a torn tail": (
        torn,
        [f"needs attention: {TORN}"],
        ["run 'chat': the torn tail 'e2', 'x' is off the path, as seq 4 records"],
    ),
    "a dead worker, its tools recorded": (
        lambda store: recorded(store, 1),
        [
            f"needs attention: {PENDING}",
            f"needs attention: {RUNNING}its lease ran out 1 s ago. Recovery would decide 'interrupt_tools' (open calls "
            "'c1'): keep the recorded step, answer the open calls 'interrupted', commit",
        ],
        [],
    ),
    "tools at work": (
        lambda store: recorded(store, 31_000),
        [
            f"note: {PENDING}",
            f"note: {RUNNING}its lease runs for another 30 s. Recovery would decide 'interrupt_tools' (open calls "
            "'c1'): keep the recorded step, answer the open calls 'interrupted', commit",
        ],
        [],
    ),
    "a checkpoint that was cut": (
        excluded,
        [
            "needs attention: anchor: run 'chat' entry 'e2' submission 's1': the checkpoint leaf 'e2' was excluded by "
            "a repair",
            f"needs attention: {RUNNING}its lease ran out 1 s ago. Recovery would decide 'redrive': run the whole turn "
            "again, under a new turn id",
        ],
        [],
    ),
    "completed and never committed": (
        uncommitted,
        [
            "note: uncommitted: run 'chat' submission 's1': it was completed with a recorded tool request that was "
            "never committed"
        ],
        [],
    ),
    "a gap, a foreign stream, a stray marker": (
        odd,
        [
            "note: gap: submission 's1' stream 's1:t1:a1': segment 1 is missing; the 1 beyond are never replayed (S3)",
            "note: unminted_segments: 1 segments stand under keys that nobody minted, so it cannot be said whose they "
            "are",
            "note: marker: submission 's9': attempt 'a9' is marked of a submission that does not exist",
            f"note: {RUNNING}its lease runs for another 30 s. Recovery would decide 'requeue': give it back to the "
            "queue",
        ],
        [],
    ),
}


@pytest.mark.parametrize("name", CONVERSATIONS)
def test_open_calls_are_named_with_the_row_that_applies(name: str, tmp_path: Path) -> None:
    fill_with, found, done = CONVERSATIONS[name]
    path = tmp_path / "store"
    with opened(path) as store:
        fill_with(store)
    answer = look(path, tmp_path)
    told = [f"{f.severity.value}: {f.code}: {f.told}" for f in answer.findings if f.code != "closed"]
    assert told == found
    assert answer.exit == int(any(line.startswith("needs") for line in found))
    repaired = mend(path, tmp_path)
    assert (repaired.changes.done, repaired.changes.left_out) == (done, [])
    assert repaired.after.exit == int(answer.exit and not done)


def test_a_corrupt_conversation_is_told_and_stays(tmp_path: Path) -> None:
    path = tmp_path / "store"
    with opened(path) as store:
        store.append_step("chat", [message("e1"), answers("e2", "e1"), message("e3", "e2")])
    answer = look(path, tmp_path)
    assert answer.headline.startswith(
        "needs attention: run 'chat' seq 2 entry 'e2': corrupt conversation: entry 'e2': stray tool call or result "
        "(row 'stray', P3: A result was stored twice"
    )
    assert [finding.code for finding in answer.findings] == ["corrupt_conversation", "closed"]
    assert mend(path, tmp_path).after.headline == answer.headline


# --- files -----------------------------------------------------------------------------------------------------------


def test_of_a_zeroed_page_is_kept_what_is_proved(tmp_path: Path) -> None:
    path = make_long(tmp_path / "store")
    with opened(path) as store:
        whole = store.replay("chat")
    file = path / "journal.db"
    zero(file, page_with(file, b"chat 39"))
    assert found_in(look(path, tmp_path), path) == [
        "damage: zeroed_page: ~/journal.db: page 22 is zeroed (4096 bytes at 0x15000)",
        "damage: integrity: ~/journal.db: SQLite's integrity check: database disk image is malformed",
        "damage: unreadable_run: run 'chat' seq 30: the log cannot be read beyond seq 29: database disk image is "
        "malformed",
        "damage: unreadable_run: run 'other' seq 1: the log cannot be read: database disk image is malformed",
    ]
    repaired = mend(path, tmp_path)
    assert [line.replace(str(path), "~") for line in repaired.changes.left_out] == [
        "~/journal.db: page 22 is zeroed (4096 bytes at 0x15000)",
        "table records: rows 30 to 60 could not be read: database disk image is malformed",
        "run 'chat': seqs 30 to 40 (0 could be read): what stood up to seq 40 was removed from the end; seq 29 is the "
        "last one",
        "run 'other': seqs 1 to 40 (20 could be read): its digest does not follow from seq 0: seqs 1 to 20 removed, or "
        "this one changed",
    ]
    with opened(tmp_path / "copy") as copy:
        assert copy.runs() == ["chat"]
        assert copy.replay("chat") == whole[:29]
    rest = [json.loads(line) for line in (tmp_path / "copy" / "left-out.jsonl").read_text().splitlines()]
    assert [(row["table"], row["run_id"], row["seq"]) for row in rest] == [
        ("records", "other", seq) for seq in range(21, 41)
    ]
    assert json.loads(rest[-1]["payload"])["parts"] == [{"type": "text", "text": "other 39"}]


def with_wrong_log(path: Path) -> Path:
    other = with_log(path.with_name("other"))
    shutil.copy(other / "journal.db-wal", with_log(path) / "journal.db-wal")
    return path


def with_half_a_log(path: Path) -> Path:
    os.truncate(with_log(path) / "journal.db-wal", 32 + 10 * (24 + PAGE))
    return path


def with_a_changed_log(path: Path) -> Path:
    overwrite(with_log(path) / "journal.db-wal", 32 + 3 * (24 + PAGE) + 500, b"damage")
    return path


def with_a_torn_log(path: Path) -> Path:
    log = with_log(path) / "journal.db-wal"
    overwrite(log, log.stat().st_size - 100, b"damage")
    (path / "journal.db-shm").unlink()
    return path


def with_a_blank_index(path: Path) -> Path:
    overwrite(without_log(path) / "journal.db-shm", 0, bytes(136))
    return path


def with_nothing_lost(path: Path) -> Path:
    """The log was moved to the database before it was taken away."""
    live = path.with_name("live")
    with opened(live) as store:
        fill(store)
        store.checkpoint_wal("PASSIVE")
        shutil.copytree(live, path)
    (path / "journal.db-wal").unlink()
    return path


def cut_under_a_log(path: Path) -> Path:
    os.truncate(with_log(path) / "journal.db", 3 * PAGE)
    return path


LOGS: dict[Callable[[Path], Path], tuple[str, str | None]] = {
    # how it came: the finding, what a copy leaves out (None: there can be no copy)
    with_log: ("", ""),
    with_wrong_log: (
        "needs attention: wal_replaced: ~/journal.db-wal: the -wal is not the one that the index (-shm) was made for, "
        "which held 50 pages",
        "wal_replaced",
    ),
    with_half_a_log: (
        "damage: wal_truncated: ~/journal.db-wal: the write-ahead log is truncated: it held 50 committed pages, 0 of "
        "them had been moved to the database, and only 10 are there",
        "wal_truncated",
    ),
    with_a_changed_log: (
        "damage: wal_damaged: ~/journal.db-wal: SQLite reads 0 pages of the log and stops at one that is not whole; 18 "
        "commits stand behind it",
        "wal_damaged",
    ),
    with_a_torn_log: (
        "note: wal_torn: ~/journal.db-wal: SQLite reads 47 pages of the log and stops at one that is not whole; 1 "
        "commit stands behind it",
        "",
    ),
    with_a_blank_index: (
        "needs attention: wal_missing: ~/journal.db-wal: the write-ahead log is missing: its index (-shm) is there, "
        "but does not say what the log held",
        "wal_missing",
    ),
    with_nothing_lost: (
        "note: wal_missing: ~/journal.db-wal: the write-ahead log is missing: it held 50 committed pages, 50 of them "
        "had been moved to the database: nothing is lost",
        "",
    ),
    cut_under_a_log: (
        "damage: truncated: ~/journal.db: the file is truncated: it ends after page 3, and the log holds no copy of "
        "pages 12, 13, 14, 18, 19",
        None,
    ),
}


@pytest.mark.parametrize("build", LOGS, ids=lambda build: build.__name__)
def test_logs(build: Callable[[Path], Path], tmp_path: Path) -> None:
    path = build(tmp_path / "store")
    expected, lost = LOGS[build]
    answer = look(path, tmp_path)
    assert found_in(answer, path)[:1] == ([expected] if expected else [])
    assert answer.exit == (0 if not expected or expected.startswith("note") else 1)
    if lost is None:
        with pytest.raises(UserError, match=r"no copy was written: not one row can be read of the store"):
            mend(path, tmp_path)
        assert not (tmp_path / "copy").exists()
        return
    repaired = mend(path, tmp_path)
    assert [line.replace(str(path), "~") for line in repaired.changes.left_out] == (
        [expected.split(f"{lost}: ", 1)[1]] if lost else []
    )
    assert repaired.after.exit == 0
    with opened(tmp_path / "copy") as copy:  # what acknowledged work was lost from is never driven again
        assert [row.submission_id for row in copy.list_running()] == ([] if lost else ["s2"])


def emptied(path: Path) -> Path:
    (make(path) / "journal.db").write_bytes(b"")
    return path


def beheaded(path: Path) -> Path:
    os.truncate(make(path) / "journal.db", 50)
    return path


def blank(path: Path) -> Path:
    zero(make(path) / "journal.db", 1)
    return path


def log_only(path: Path) -> Path:
    (with_log(path) / "journal.db").unlink()
    return path


HOPELESS: dict[Callable[[Path], Path], str] = {
    emptied: "empty_file: ~/journal.db: the database file is empty (0 bytes); a store is never empty",
    beheaded: "truncated: ~/journal.db: the file is truncated to 50 bytes; not even its header is whole",
    blank: "zeroed_page: ~/journal.db: page 1 is zeroed: the header is gone, so nothing says whose file this was",
    log_only: "database_missing: ~/journal.db: the database is missing, but its write-ahead log is there",
}


@pytest.mark.parametrize("build", HOPELESS, ids=lambda build: build.__name__)
def test_of_nothing_there_is_no_copy(
    build: Callable[[Path], Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, copy = build(tmp_path / "store"), tmp_path / "copy"
    assert found_in(look(path, tmp_path), path) == [f"damage: {HOPELESS[build]}"]
    assert main(["doctor", str(path)]) == 1
    assert main(["doctor", str(path), "--repair-to", str(copy), "--json", "-"]) == 2
    shown = capsys.readouterr()
    assert shown.err == "turnproof: no copy was written: nothing can be read of the store\n"
    assert '"error": "no copy was written: nothing can be read of the store"' in shown.out
    assert sorted(place.name for place in tmp_path.iterdir()) == ["store"]


def test_more_than_a_store_writes(tmp_path: Path) -> None:
    path = make(tmp_path / "store")
    os.truncate(path / "journal.db", 21 * PAGE)
    assert found_in(look(path, tmp_path), path) == [
        "note: longer: ~/journal.db: the file has 86,016 bytes, 4,096 more than its header promises",
        "note: zeroed_page: ~/journal.db: page 21 is zeroed (4096 bytes at 0x14000)",
    ]
    (path / "journal.db-journal").write_bytes(b"x")
    assert found_in(look(path, tmp_path), path)[1] == (
        "needs attention: rollback_journal: ~/journal.db-journal: a rollback journal is beside the file; a store has "
        "none: another program wrote here, and died"
    )
    edit(make(tmp_path / "guest"), "CREATE TABLE notes (x)")
    guest = tmp_path / "guest"
    expected = ["needs attention: schema: ~/journal.db: schema: 'notes' is none of ours"]
    assert found_in(look(guest, tmp_path), guest) == expected
    assert found_in(mend(guest, tmp_path).after, tmp_path / "copy") == expected


def test_a_sealed_row_that_its_records_do_not_make(tmp_path: Path) -> None:
    path = make(tmp_path / "store")
    with closing(sqlite3.connect(path / "journal.db", isolation_level=None)) as db:
        position, digest = db.execute("SELECT position, digest FROM runs WHERE run_id = 'chat'").fetchone()
        mark = seal("chat", "completed", position, digest)
        db.execute("UPDATE runs SET state = 'completed', seal = ? WHERE run_id = 'chat'", (mark,))
    expected = "run 'chat': its row says 'completed', its records make it 'pending'"
    assert found_in(look(path, tmp_path), path) == [f"damage: run_state: {expected}"]
    assert mend(path, tmp_path).changes.done == [
        "17 rows are carried into a new database",
        f"run 'chat': its row was written anew from its 3 records: {expected.split(': ')[1]}",
    ]


# --- the former format -----------------------------------------------------------------------------------------------


def test_files_of_the_former_format_beside_a_store(tmp_path: Path) -> None:
    path = jsonl(jsonl(make(tmp_path / "store"), name="chat.jsonl"), name="more.jsonl")
    runs = path / "runs"
    (runs / "chat.lock").touch()
    (runs / "gone.jsonl.imported").write_bytes(b'{"seq":1,"kind":"turn"}\n')
    (runs / "void.jsonl.imported").write_bytes(b'{"seq":1,"ki')
    answer = look(path, tmp_path)
    assert (answer.kind, answer.exit) == ("store and legacy", 1)
    assert found_in(answer, path) == [
        "note: present: ~/runs/chat.jsonl run 'chat': the store has this run already; the next open keeps its own and "
        "renames the file",
        "note: locks: ~/runs: 1 lock files of the former format; the next open removes them",
        "needs attention: imported_run_missing: ~/runs/gone.jsonl.imported run 'gone': the file was imported, and the "
        "store does not have the run",
    ]
    repaired = mend(path, tmp_path)
    assert [line.replace(str(path), "~") for line in repaired.changes.done] == [
        "~/runs/chat.jsonl: kept beside the store, which has its run",
        "~/runs/more.jsonl: imported",
    ]
    with opened(tmp_path / "copy") as copy, opened(tmp_path / "own") as own:
        fill(own)
        assert copy.runs() == ["chat", "more", "wait", "work"]
        assert copy.replay("chat") == own.replay("chat")


def test_lines_that_fail_the_import(tmp_path: Path) -> None:
    bad = b'nonsense\n{"seq":4,"kind":"turn"}\n{"seq":4,"kind":"turn"}\n'
    path = jsonl(jsonl(tmp_path / "store", bad), name="no run.jsonl")
    answer = look(path, tmp_path)
    assert answer.verdict == "damaged"
    assert found_in(answer, path) == [
        "damage: import_failed: ~/runs/no run.jsonl line 1: the next open of the store fails here: the file name 'no "
        "run' is no run id (1 to 200 of A-Za-z0-9._-, no leading dot)",
        "damage: import_failed: ~/runs/old.jsonl line 4: the next open of the store fails here: not JSON: Expecting "
        "value: line 1 column 1 (char 0)",
    ]
    assert [line.replace(str(path), "~") for line in mend(path, tmp_path).changes.left_out] == [
        "~/runs/no run.jsonl: it cannot be imported",
        "~/runs/old.jsonl line 4: not JSON: Expecting value: line 1 column 1 (char 0)",
        "~/runs/old.jsonl line 6: seq 4 is there twice",
    ]
    with opened(tmp_path / "copy") as copy:
        assert [record.seq for record in copy.replay("old")] == [1, 2, 3, 4]


def test_a_folder_of_any_name_and_a_single_file(tmp_path: Path) -> None:
    path = torn_jsonl(tmp_path / "store")
    folder = (path / "runs").rename(tmp_path / "transcripts")
    for place in (folder, folder / "old.jsonl"):
        assert found_in(look(place, tmp_path), folder) == [
            "needs attention: torn_line: ~/old.jsonl line 4 run 'old': the last line is torn: 12 bytes at offset 289, "
            "without an end and no JSON"
        ]
        assert mend(place, tmp_path, f"copy of {place.name}").after.counts["records"] == 3


# --- places ----------------------------------------------------------------------------------------------------------


def test_what_is_not_a_store(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "other" / "things").mkdir(parents=True)
    (tmp_path / "link").symlink_to("nowhere")
    (tmp_path / "folder" / "journal.db").mkdir(parents=True)
    (tmp_path / "text.db").write_text("not a database")
    os.mkfifo(tmp_path / "pipe")
    edit(make(tmp_path / "newer"), "PRAGMA user_version = 9")
    foreign(tmp_path / "foreign")
    expected = {
        "no": "no_such_path",
        "empty": "empty_directory",
        "other": "nothing_here",
        "link": "dangling_link",
        "folder": "not_a_file",
        "pipe": "not_a_file",
        "text.db": "not_sqlite",
        "newer": "newer_schema",
        "foreign": "foreign",
        "n" * 5_000: "unreadable",
        "nul\0": "no_path",
    }
    found = {}
    for name in expected:
        with pytest.raises(NotAStore) as refused:
            examine(f"{tmp_path}/{name}", str(tmp_path / "empty"), NOW, lambda text: None)
        found[name] = refused.value.code
        assert refused.value.reason
    assert found == expected


@pytest.mark.parametrize(
    "words",
    [["no-such-path"], ["x" * 5_000], ["a\0b"], ["."], ["", "--json", "-"], ["store", "--json", "no/such/dir.json"]],
    ids=["absent", "long", "nul", "nothing here", "empty", "no directory"],
)
def test_a_mistake_is_one_line_and_exit_2(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    if words[0] == "store":
        make(tmp_path / "store")
    assert main(["doctor", *words]) == 2
    shown = capsys.readouterr()
    assert shown.err.startswith("turnproof: ") and shown.err.count("\n") == 1


def test_a_copy_goes_only_where_nothing_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = make(tmp_path / "store")
    (tmp_path / "taken").mkdir()
    (tmp_path / "link").symlink_to("nowhere")
    before = state_of(tmp_path)
    for option, target, reason in (
        ("--repair-to", tmp_path / "taken", "exists; a copy is only written to a new name"),
        ("--repair-to", tmp_path / "link", "exists; a copy is only written to a new name"),
        ("--repair-to", tmp_path / "no" / "copy", "there is no directory to make"),
        ("--repair-to", path / "copy", "is in the store itself, of which nothing is touched"),
        ("--repair-to", path, "is in the store itself, of which nothing is touched"),
        ("--json", path / "report.json", "is in the store itself, of which nothing is touched"),
        ("--json", path / "journal.db", "is in the store itself, of which nothing is touched"),
    ):
        assert main(["doctor", str(path), option, str(target)]) == 2
        shown = capsys.readouterr()
        assert shown.err.startswith(f"turnproof: {option}: ") and reason in shown.err and shown.out == ""
    assert main(["doctor", str(path / "journal.db"), "--json", str(path / "journal.db-wal")]) == 2
    assert state_of(tmp_path) == before


def test_a_copy_that_fails_half_way_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = edited(tmp_path / "store")
    monkeypatch.setattr(os, "rename", lambda old, new: (_ for _ in ()).throw(OSError(28, "No space left on device")))
    with pytest.raises(UserError, match=r"cannot be written: .*No space left"):
        mend(path, tmp_path)
    assert not list(tmp_path.glob("copy*"))


def test_odd_names_links_and_read_only_places(tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    odd_path = Path(os.fsdecode(os.fsencode(tmp_path) + b"/a b\n%?#\xff\xc3\xa9"))
    make(tmp_path / "store").rename(odd_path)
    assert main(["doctor", str(odd_path)]) == 0
    assert capsysbinary.readouterr().out.startswith(b"healthy store: nothing to do\n")
    edit(odd_path, "DELETE FROM runs WHERE run_id = 'chat'", "PRAGMA user_version = 0")
    assert main(["doctor", str(odd_path)]) == 1
    first = capsysbinary.readouterr().out.split(b"\n")[0]
    assert first.endswith(
        rb"/a b\n%?#\udcff" + "é/journal.db: schema version 0, which no release ever wrote (1 more below)".encode()
    )
    named = make(tmp_path / "plain") / "journal.db"
    backup = tmp_path / "kept" / "backup of monday"
    backup.parent.mkdir()
    shutil.copy(named, backup)
    assert look(backup, tmp_path).exit == 0
    (tmp_path / "linked").symlink_to(named.parent)
    assert look(tmp_path / "linked", tmp_path).exit == 0
    named.chmod(0o400)
    named.parent.chmod(0o500)
    assert look(named.parent, tmp_path).exit == 0
    assert mend(named.parent, tmp_path).after.exit == 0
    named.parent.chmod(0o700)


HOLD = """
import sys
from turnproof.impl import open_store
with open_store(sys.argv[1]) as store:
    store.checkpoint("held", "running")
    print("open", flush=True)
    sys.stdin.readline()
"""


def test_a_live_store_is_read_and_not_disturbed(tmp_path: Path) -> None:
    path = make(tmp_path / "store")
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout is not None and holder.stdout.readline() == "open\n"
        before = {place.name: None if place.name.endswith("-shm") else place.read_bytes() for place in path.iterdir()}
        scratch = tmp_path / "scratch"
        scratch.mkdir()
        found = examine(str(path), str(scratch), NOW, lambda text: None)
        repaired = repair(found, str(tmp_path / "copy"), str(scratch), NOW, lambda text: None)
        after = {place.name: None if place.name.endswith("-shm") else place.read_bytes() for place in path.iterdir()}
        assert after == before and set(before) == {"journal.db", "journal.db-wal", "journal.db-shm"}
        assert found.answer.method == f"backup of the live store (process {holder.pid} has it open)"
        assert found.answer.exit == 0 and repaired.after.counts["runs"] == 4
        again = tmp_path / "again"
        again.mkdir()
        (path / "journal.db-wal").rename(tmp_path / "taken")
        headline = examine(str(path), str(again), NOW, lambda text: None).answer.headline.replace(str(path), "~")
        assert headline == (
            f"damaged: ~/journal.db-wal: the write-ahead log was removed while process {holder.pid} has the store "
            "open: what it commits now goes to a file without a name"
        )
        (tmp_path / "taken").rename(path / "journal.db-wal")
        holder.communicate("done\n")
    assert holder.returncode == 0
    shutil.rmtree(scratch)
    assert look(path, tmp_path).counts["runs"] == 4


def test_a_store_that_is_written_meanwhile_is_said_to_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, copy_private = make(tmp_path / "store"), snapshot.copy_private

    def while_writing(source: str, target: str) -> None:
        copy_private(source, target)
        os.utime(source, ns=(0, (path / "journal.db").stat().st_mtime_ns + 1_000_000))

    monkeypatch.setattr(snapshot, "copy_private", while_writing)
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    answer = examine(str(path), str(scratch), NOW, lambda text: None).answer
    assert answer.headline.startswith("needs attention: ") and answer.has("in_motion")


def test_a_store_larger_than_the_disk_is_not_copied(tmp_path: Path) -> None:
    path = make(tmp_path / "store")
    os.truncate(path / "journal.db", 1 << 43)  # sparse
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    with pytest.raises(NotAStore) as refused:
        examine(str(path), str(scratch), NOW, lambda text: None)
    assert refused.value.code == "no_room"
    assert refused.value.headline.startswith("could not be examined: a private copy needs 8,796,093,022,208 bytes")


# --- the program -----------------------------------------------------------------------------------------------------


def test_the_whole_answer(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, copy, report = edited(tmp_path / "store"), tmp_path / "copy", tmp_path / "report.json"
    assert main(["doctor", str(path), "--repair-to", str(copy), "--json", str(report)]) == 1
    lines = capsys.readouterr().out.replace(str(tmp_path), "~").splitlines()
    assert lines[:6] == [
        "damaged: run 'chat' seq 2: the record was changed: its digest is not that of its fields",
        "",
        "damage:",
        "  record_changed: run 'chat' seq 2: the record was changed: its digest is not that of its fields",
        "      restore a backup; the run is refused by the store (storage_damaged) until then",
        "",
    ]
    at = lines.index("copy: ~/copy")
    assert lines[at:] == [
        "copy: ~/copy",
        "  done: 17 rows are carried into a new database",
        "  done: what could be read of the left out is in left-out.jsonl, a row a line: 5",
        "  left out: run 'chat': seqs 2 to 3 (2 could be read): the record was changed: its digest is not that of its "
        "fields",
        "  left out: submission 's1' and all that belongs to it (a receipt stands in its place): the committed leaf "
        "'e3' is no entry of the run",
        "  the copy, examined: healthy store: nothing to do (3 runs, 2 submissions, 1 queued, 1 running, 1 slots, 2 "
        "segments, 1 receipts, 3 records)",
    ]
    told = json.loads(report.read_text())
    assert told["findings"][0]["run"] == "chat" and told["findings"][0]["seq"] == 2
    assert told["repair"]["after"]["exit"] == 0


def test_help_has_examples(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["doctor", "--help"])
    assert ended.value.code == 0
    assert "example: turnproof doctor .turnproof" in capsys.readouterr().out


def test_a_reader_who_leaves_early_gets_no_traceback(tmp_path: Path) -> None:
    path = make(tmp_path / "store")
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "wb") as output:
        ran = subprocess.run(
            [sys.executable, "-m", "turnproof.proofs", "doctor", str(path)],
            stdout=output,
            stderr=subprocess.PIPE,
            check=False,
        )
    assert (ran.returncode, ran.stderr) == (141, b"")
