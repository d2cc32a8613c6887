"""Legacy import: every odd file of the kind (R12)."""

from __future__ import annotations

import json
import multiprocessing
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from impl_helpers import NOW, bytes_of, message, outcome

from turnproof.impl import Store, open_store
from turnproof.impl.files import Files
from turnproof.model.rows import Record
from turnproof.model.vocabulary import ErrorCode, ImportFailed, RecordKind


def line(number: object, entry: str = "", parent: str = "", **more: object) -> str:
    kind = "message" if entry else "turn"
    fields = {"seq": number, "run_id": "run1", "kind": kind, "timestamp": 5, "entry_id": entry, "parent_id": parent}
    return json.dumps(fields | more)


def lay(directory: Path, content: str | bytes, name: str = "run1.jsonl") -> Path:
    file = directory / "runs" / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(content.encode() if isinstance(content, str) else content)
    return file


def names(directory: Path) -> list[str]:
    return sorted(os.listdir(directory / "runs"))


def opened(directory: Path) -> Store:
    return open_store(directory, clock=lambda: NOW)


def test_fields_and_seqs_are_kept(directory: Path) -> None:
    payload = '{"role": "user", "parts": [ ]}'
    lay(
        directory,
        "\n".join(
            [
                line(1, "e1", text="hi", role="user", ext_type="x", payload=payload),
                line(4, run_id=None, timestamp="1970-01-01T01:00:01.2345678+01:00", state=None),
                line(9, kind="state", state="waiting", run_id=""),
                '{"seq":12,"kind":"message","entry_id":"e2","parent_id":"e1","timestamp":0,'
                '"payload": {"role":"tool" ,"parts":[1e2]} }',
                '{"seq":13,"kind":"turn"}',
            ]
        )
        + "\n",
    )
    lay(directory, "", "run1.lock")
    lay(directory, "", "run1.jsonl.lock")
    with opened(directory) as store:
        assert store.replay("run1") == [
            Record(
                seq=1, run_id="run1", kind=RecordKind.MESSAGE, timestamp=5, entry_id="e1", role="user", ext_type="x",
                text="hi", payload=payload,
            ),
            Record(seq=4, run_id="run1", kind=RecordKind.TURN, timestamp=1234),
            Record(seq=9, run_id="run1", kind=RecordKind.STATE, timestamp=5, state="waiting"),
            Record(
                seq=12, run_id="run1", kind=RecordKind.MESSAGE, timestamp=0, entry_id="e2", parent_id="e1",
                payload='{"role":"tool" ,"parts":[1e2]}',
            ),
            Record(seq=13, run_id="run1", kind=RecordKind.TURN, timestamp=NOW),
        ]  # fmt: skip
        assert store.state("run1") == "waiting"
        assert store.append("run1", message("e3", "e2")) == 14
    assert names(directory) == ["run1.jsonl.imported"]
    with opened(directory) as store:
        assert store.position("run1") == 14


GOOD = {
    "blank lines": ("\n\n" + line(1) + "\n \t\n" + line(2) + "\n\n", [1, 2]),
    "crlf": (line(1) + "\r\n" + line(2) + "\r\n", [1, 2]),
    "no newline at the end": (line(1) + "\n" + line(2), [1, 2]),
    "torn last line": (line(1) + "\n" + line(2)[:-5], [1]),
    "torn inside a letter": (line(1).encode() + b'\n{"seq":2,"text":"\xc3', [1]),
    "only a torn line": ('{"seq":1', None),
    "empty": ("", None),
    "only blank": ("\n\r\n", None),
    "disorder": (line(3) + "\n" + line(1) + "\n" + line(2) + "\n", [1, 2, 3]),
    "gaps": (line(7) + "\n" + line(9) + "\n", [7, 9]),
    "the last seq": (line(2**53 - 1) + "\n", [2**53 - 1]),
    "a long number": (f'{{"seq":1,"kind":"turn","payload":{{"n":-{"9" * 5000}}}}}\n', [1]),
}


@pytest.mark.parametrize("name", GOOD)
def test_harmless_oddities(directory: Path, name: str) -> None:
    content, seqs = GOOD[name]
    lay(directory, content)
    with opened(directory) as store:
        found = [record.seq for record in store.replay("run1")] if store.runs() else None
    assert found == seqs
    assert names(directory) == ["run1.jsonl.imported"]


BAD = {
    "bad line in the middle": (line(1) + "\n{\n" + line(2) + "\n", 2),
    "bad last line with a newline": (line(1) + "\n" + line(2)[:-5] + "\n", 2),
    "bad json constant": (line(1) + '\n{"seq":2,"kind":"turn","text":NaN}\n', 2),
    "no object": ("[]\n", 1),
    "unterminated but whole, and wrong": (line(1) + "\n{}", 2),
    "duplicate seq": (line(1) + "\n" + line(2) + "\n" + line(1) + "\n", 3),
    "duplicate line": (line(1) + "\n" + line(1) + "\n", 2),
    "seq 0": (line(0) + "\n", 1),
    "seq without a next one": (line(2**53) + "\n", 1),
    "seq of many digits": ('{"seq":' + "1" * 5000 + ',"kind":"turn"}\n', 1),
    "seq text": (line("1") + "\n", 1),
    "seq real": ('{"seq":1.0,"kind":"turn"}\n', 1),
    "seq true": (line(True) + "\n", 1),
    "unknown kind": (line(1, kind="nonsense") + "\n", 1),
    "unknown state": (line(1, state="sleeping") + "\n", 1),
    "state without one": (line(1, kind="state") + "\n", 1),
    "another run": (line(1, run_id="run2") + "\n", 1),
    "wrong type": (line(1, text=5) + "\n", 1),
    "payload number": (line(1, payload=5) + "\n", 1),
    "timestamp": (line(1, timestamp="yesterday") + "\n", 1),
    "timestamp without zone": (line(1, timestamp="2020-01-01T00:00:00") + "\n", 1),
    "unknown field": (line(1, extra=1) + "\n", 1),
    "surrogate": (line(1, text="\ud800") + "\n", 1),
    "not utf-8": (b'{"seq":1,"kind":"turn","text":"\xff"}\n', 1),
    "deep": ("[" * 100_000 + "\n", 1),
}


@pytest.mark.parametrize("name", BAD)
def test_damage_fails_the_open_and_changes_nothing(directory: Path, name: str) -> None:
    with opened(directory) as store:
        store.append("run0", message("e1"))
    content, number = BAD[name]
    lay(directory, line(1) + "\n", "aaa.jsonl")
    (directory / "runs" / "aaa.jsonl").write_text('{"seq":1,"kind":"turn"}\n')
    bad = lay(directory, content)
    lay(directory, "", "run1.lock")
    before = bytes_of(directory)
    for _ in range(2):
        with pytest.raises(ImportFailed) as error:
            opened(directory)
        assert f"{bad}, line {number}:" in str(error.value)
        assert bytes_of(directory) == before


@pytest.mark.parametrize("name", BAD)
def test_damage_in_a_fresh_directory_makes_no_store(directory: Path, name: str) -> None:
    content, number = BAD[name]
    lay(directory, '{"seq":1,"kind":"turn"}\n', "aaa.jsonl")
    bad = lay(directory, content)
    lay(directory, "", "run1.lock")
    before = bytes_of(directory)
    with pytest.raises(ImportFailed) as error:
        opened(directory)
    assert f"{bad}, line {number}:" in str(error.value)
    assert bytes_of(directory) == before


@pytest.mark.parametrize("name", [".hidden", "a b", "", "x" * 201])
def test_a_bad_run_id_fails_the_open(directory: Path, name: str) -> None:
    lay(directory, '{"seq":1,"kind":"turn"}\n', f"{name}.jsonl")
    before = bytes_of(directory)
    with pytest.raises(ImportFailed, match=r"\.jsonl, line 1: .*run id"):
        opened(directory)
    assert bytes_of(directory) == before


def test_a_long_number_is_kept_digit_for_digit(directory: Path) -> None:
    payload = f'{{"n": -{"9" * 5000}, "m":1e2}}'
    lay(directory, f'{{"seq":1,"kind":"turn","payload": {payload} }}\n')
    with opened(directory) as store:
        assert store.replay("run1") == [
            Record(seq=1, run_id="run1", kind=RecordKind.TURN, timestamp=NOW, payload=payload)
        ]


def test_a_run_that_an_import_filled_takes_no_seq_beyond_the_last(directory: Path) -> None:
    lay(directory, line(2**53 - 1, "e1") + "\n")
    with opened(directory) as store:
        before = store.dump()
        assert outcome(lambda: store.append_step("run1", [message("e2"), message("e3")])) == ErrorCode.STORAGE_ERROR
        assert store.dump() == before
        assert store.append("run1", message("e2", "e1")) == 2**53
        before = store.dump()
        assert outcome(lambda: store.append("run1", message("e3"))) == ErrorCode.STORAGE_ERROR
        assert store.dump() == before


def test_a_run_that_is_present_is_skipped_and_a_taken_name_is_kept(directory: Path) -> None:
    with opened(directory) as store:
        store.append("run1", message("e1"))
        before = store.dump()
    lay(directory, "old", "run1.jsonl.imported")
    lay(directory, "older", "run1.jsonl.imported.1")
    lay(directory, line(1) + "\n" + line(2) + "\n")
    with opened(directory) as store:
        assert store.dump() == before
    assert names(directory) == ["run1.jsonl.imported", "run1.jsonl.imported.1", "run1.jsonl.imported.2"]
    assert (directory / "runs" / "run1.jsonl.imported").read_text() == "old"


def test_a_crash_between_import_and_rename_is_finished(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lay(directory, line(1) + "\n")
    lay(directory, '{"seq":1,"kind":"turn"}\n', "run2.jsonl")

    def fails(self: Files, old: str, new: str) -> None:
        raise OSError(5, "disk on fire")

    with monkeypatch.context() as patch:
        opened(directory.with_name("other")).close()
        patch.setattr(Files, "rename", fails)
        open_store_at = directory / "journal.db"
        open_store_at.write_bytes((directory.with_name("other") / "journal.db").read_bytes())
        with pytest.raises(Exception, match="disk on fire"):
            opened(directory)
    assert names(directory) == ["run1.jsonl", "run2.jsonl"]
    with opened(directory) as store:
        assert store.runs() == ["run1", "run2"] and store.position("run1") == 1
    assert names(directory) == ["run1.jsonl.imported", "run2.jsonl.imported"]


def test_damaged_conversations_are_imported_and_say_so(directory: Path) -> None:
    stories: dict[str, str] = {
        "missing": line(1, "e1", "nowhere"),
        "twice": line(1, "e1") + "\n" + line(2, "e1"),
        "payload": line(1, "e1", payload="{"),
        "branch": line(1, kind="branch", parent_id="nowhere"),
        "repair": line(1, kind="repair", payload="[]"),
        "nameless": line(1, kind="message"),
    }
    for name, content in stories.items():
        lay(directory, content.replace('"run1"', f'"{name}"') + "\n", f"{name}.jsonl")
    with opened(directory) as store:
        for name in stories:
            calls: list[Callable[[str], object]] = [store.inspect, store.restore, store.context]
            assert {outcome(lambda c=call, n=name: c(n)) for call in calls} == {ErrorCode.CORRUPT_CONVERSATION}
            assert store.replay(name)[0].seq == 1
        store.append("payload", message("e2"))
        assert store.inspect("payload").path == ("e2",)  # the undecodable one is not on the active path


def _open_at(directory: str, ready: object) -> None:
    ready.wait()
    open_store(directory).close()


def test_two_processes_open_at_once(directory: Path) -> None:
    for number in range(20):
        lines = [line(seq, run_id=f"run{number}", text="x" * 200) for seq in range(1, 300)]
        lay(directory, "\n".join(lines) + "\n", f"run{number}.jsonl")
    spawn = multiprocessing.get_context("spawn")
    ready = spawn.Barrier(3)
    workers = [spawn.Process(target=_open_at, args=(str(directory), ready)) for _ in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
    assert [worker.exitcode for worker in workers] == [0, 0, 0]
    assert names(directory) == sorted(f"run{number}.jsonl.imported" for number in range(20))
    with open_store(directory) as store:
        assert {store.position(run) for run in store.runs()} == {299} and len(store.runs()) == 20


def test_a_large_file_needs_little_memory(directory: Path) -> None:
    """64 MiB, out of order, in a process of its own whose peak is compared to that of a small import."""
    body = "x" * 4000
    size = 64 << 20
    count = size // len(line(1, text=body))
    with (lay(directory, "")).open("w") as file:
        for seq in range(count, 0, -1):
            file.write(line(seq, text=body) + "\n")
    assert (directory / "runs" / "run1.jsonl").stat().st_size >= size
    code = (
        "import resource; from turnproof.impl import open_store\n"
        f"s = open_store({str(directory)!r}, 'relaxed'); print(s.position('run1'), "
        "resource.getrusage(resource.RUSAGE_SELF).ru_maxrss); s.close()"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, timeout=120)
    position, peak = map(int, done.stdout.split())
    assert position == count
    unit = 1 if sys.platform == "darwin" else 1024
    assert peak * unit < 100 << 20
