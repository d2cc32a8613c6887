"""``turnproof serve`` as a process of its own: whatever a line holds, it is answered, and the store is as it was."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from turnproof.model import operations as ops
from turnproof.proofs.compare import Known
from turnproof.proofs.wire import MAX_LINE, Json, Object, encode_args, encode_line, parse_line

SERVE = [sys.executable, "-m", "turnproof.proofs", "serve"]
CODES = {"invalid_argument", "invalid_run_id", "invalid_record", "unsupported", "storage_error"}


class Client:
    """Writes lines and reads the answers; asserts that each line gets exactly one."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process = process
        self.number = 0

    def send(self, line: bytes) -> Object:
        stdin, stdout = self.process.stdin, self.process.stdout
        assert stdin is not None and stdout is not None
        stdin.write(line + b"\n")
        stdin.flush()
        answer = parse_line(stdout.readline())
        assert isinstance(answer, dict)
        assert set(answer) in ({"id", "ok"}, {"id", "error"})
        return answer

    def ask(self, op: str, **args: Json) -> Object:
        self.number += 1
        answer = self.send(encode_line({"id": self.number, "op": op, "args": args}).rstrip(b"\n"))
        assert answer["id"] == self.number
        return answer

    def state(self) -> list[Object]:
        """Everything that can be read."""
        known = Known({"s1": None}, {"run1": None}, {"s1:t1:a1": None})
        reads = known.reads(10**6)
        return [self.ask(read.verb, **encode_args(read)) | {"id": 0} for read in reads if read.verb != "recover"]


@contextmanager
def serving(*options: str) -> Iterator[Client]:
    with subprocess.Popen([*SERVE, *options], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        yield Client(process)
        assert process.stdin is not None
        process.stdin.close()
        assert process.wait(30) == 0


def fill(client: Client, path: Path) -> None:
    assert client.ask("open", path=str(path))["ok"] is None
    client.ask("admit", submission_id="s1", session_key="run1", kind="direct", payload="{}", accepted_at=1, now=1)
    client.ask("claim", submission_id="s1", attempt_id="a1", owner_id="w", lease_expires_at=9, now=2)
    client.ask("append", run_id="run1", record={"kind": "message", "entry_id": "e1", "role": "user"}, now=3)
    client.ask("append_stream_segment", stream_key="s1:t1:a1", segment_index=0, body="x", now=4)


def code_of(answer: Object) -> Json:
    error = answer["error"]
    assert isinstance(error, dict)
    assert isinstance(error["message"], str)
    return error["code"]


@pytest.mark.parametrize("model", [(), ("--model",)], ids=["store", "model"])
def test_malformed_lines_are_answered_and_change_nothing(model: tuple[str, ...], tmp_path: Path) -> None:
    with serving(*model) as client:
        fill(client, tmp_path / "store")
        before = client.state()
        odd = [
            b"",
            b"\x00\xff\xfe",
            b"null",
            b"[1,2",
            b'{"id":1,"op":',
            b"[" * 100_000,
            b'{"id":1,"op":"claim","args":' + b'{"a":' * 30_000,
            b'{"id":"\\ud800","op":"close"}',
            b'{"id":' + b"1" * 9_999 + b',"op":"close"}',
        ]
        for line in odd:
            answer = client.send(line)
            assert answer["id"] is None
            assert code_of(answer) == "invalid_argument"
        assert code_of(client.send(b'{"id":7,"op":"\\ud800levitate"}')) == "unsupported"
        assert client.state() == before


@pytest.mark.parametrize("model", [(), ("--model",)], ids=["store", "model"])
def test_an_append_is_refused_for_its_run_before_its_record(model: tuple[str, ...], tmp_path: Path) -> None:
    """SPEC section 0: run id, then record shape."""
    with serving(*model) as client:
        fill(client, tmp_path / "store")
        before = client.state()
        for record in ({}, {"kind": 5}, {"kind": "turn", "colour": "red"}, {"kind": "turn", "timestamp": True}):
            for run_id, code in ((".x", "invalid_run_id"), ("run1", "invalid_record")):
                assert code_of(client.ask("append", run_id=run_id, record=record)) == code
                assert code_of(client.ask("append_step", run_id=run_id, records=[record])) == code
        assert client.state() == before


def test_a_message_that_quotes_megabytes_is_cut(tmp_path: Path) -> None:
    with serving() as client:
        fill(client, tmp_path / "store")
        long = "\u0080" * 7_000_000
        assert code_of(client.ask(long)) == "unsupported"
        assert code_of(client.ask("position", run_id=long)) == "invalid_run_id"


def test_random_bytes_are_answered_line_by_line(tmp_path: Path) -> None:
    dice = random.Random(17)
    with serving() as client:
        fill(client, tmp_path / "store")
        before = client.state()
        request = encode_line({"id": 5, "op": "complete", "args": {"submission_id": "s1", "attempt_id": "zz"}})
        for _ in range(500):
            line = bytearray(request.rstrip(b"\n"))
            for _ in range(dice.randrange(1, 6)):
                line[dice.randrange(len(line))] = dice.randrange(256)
            if dice.random() < 0.3:
                del line[dice.randrange(len(line)) :]
            line = line.replace(b"\n", b" ")
            if b'"a1"' not in line:
                client.send(bytes(line))
        assert client.state() == before


def test_every_argument_of_the_wrong_type_is_an_error(tmp_path: Path) -> None:
    with serving() as client:
        fill(client, tmp_path / "store")
        before = client.state()
        for verb, operation in ops.ALPHABET.items():
            if verb == "recover":
                continue
            for name in operation.__annotations__:
                for value in (True, 1.5, [[]], {"a": None}, 2**60, "\ud800"):
                    args: Object = dict.fromkeys(operation.__annotations__, "x") | {name: value}
                    answer = client.ask(verb, **args)
                    if "error" in answer:
                        assert code_of(answer) in CODES, (verb, name, value, answer)
        assert client.state() == before


@pytest.mark.parametrize("size", [MAX_LINE + 1, 3 * MAX_LINE])
def test_a_giant_line_is_thrown_away_and_answered(size: int, tmp_path: Path) -> None:
    with serving("--model") as client:
        fill(client, tmp_path / "store")
        answer = client.send(b'{"id":1,"op":"close","x":"' + b"x" * size + b'"}')
        assert answer["id"] is None
        assert code_of(answer) == "invalid_argument"
        assert client.ask("position", run_id="run1")["ok"] == 1


def test_a_megabyte_of_text_comes_back_as_it_was(tmp_path: Path) -> None:
    body = "😀\0é\n" * 200_000
    with serving() as client:
        fill(client, tmp_path / "store")
        assert client.ask("append_stream_segment", stream_key="k", segment_index=0, body=body)["ok"] is True
        assert client.ask("get_stream_segments", stream_key="k")["ok"] == [{"segment_index": 0, "body": body}]


def test_an_answer_that_would_be_too_long_is_an_error_not_an_exit(tmp_path: Path) -> None:
    with serving() as client:
        fill(client, tmp_path / "store")
        for index in range(3):
            client.ask("append_stream_segment", stream_key="k", segment_index=index, body="x" * (MAX_LINE // 2))
        assert code_of(client.ask("get_stream_segments", stream_key="k")) == "storage_error"
        assert client.ask("position", run_id="run1")["ok"] == 1


def test_nothing_is_answered_before_open_but_hello() -> None:
    with serving() as client:
        hello = client.ask("hello", protocol=1)["ok"]
        assert isinstance(hello, dict)
        assert (hello["protocol"], hello["clock"], hello["flush"], hello["choices"]) == (1, "given", "always", {})
        for other in (2, 0, True, 1.0, "1"):
            assert code_of(client.ask("hello", protocol=other)) == "unsupported"
        assert code_of(client.ask("position", run_id="run1")) == "storage_error"
        assert code_of(client.ask("open")) == "invalid_argument"
        assert code_of(client.ask("open", path="/dev/null/x")) == "storage_error"
        assert client.ask("close")["ok"] is None


@pytest.mark.parametrize("model", [(), ("--model",)], ids=["store", "model"])
def test_a_path_that_no_file_can_have_is_an_error_and_nothing_is_opened(model: tuple[str, ...], tmp_path: Path) -> None:
    with serving(*model) as client:
        for name in ("\ud800", "\udcff", "a\0b"):
            assert code_of(client.ask("open", path=str(tmp_path / name))) == "invalid_argument"
        for path in ("", None, 5, ["x"]):
            assert code_of(client.ask("open", path=path)) == "invalid_argument"
        assert list(tmp_path.iterdir()) == []
        assert code_of(client.ask("position", run_id="run1")) == "storage_error"


def test_a_path_is_opened_at_once_and_found_again(tmp_path: Path) -> None:
    path = str(tmp_path / "store")
    with serving(path) as client:
        client.ask("append", run_id="run1", record={"kind": "turn"})
    with serving(path, "--flush", "relaxed") as client:
        assert client.ask("position", run_id="run1")["ok"] == 1
        assert client.ask("close")["ok"] is None
        assert code_of(client.ask("position", run_id="run1")) == "storage_error"


def test_the_last_line_needs_no_line_feed() -> None:
    done = subprocess.run([*SERVE, "--model"], input=b'{"id":"a","op":"hello"}', capture_output=True, check=True)
    assert json.loads(done.stdout)["id"] == "a"


def test_nobody_listening_is_no_error() -> None:
    with subprocess.Popen(
        [*SERVE, "--model"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdin is not None and process.stdout is not None and process.stderr is not None
        process.stdout.close()
        process.stdin.write(b'{"id":1,"op":"hello"}\n')
        process.stdin.close()
        assert process.stderr.read() == b""
        assert process.wait(30) == 0


def test_the_model_survives_a_kill_and_drops_a_torn_line(tmp_path: Path) -> None:
    path = tmp_path / "store"
    with serving("--model", str(path)) as client:
        client.ask("append", run_id="run1", record={"kind": "turn"})
        client.process.kill()
        client.process.wait()
        client.process.returncode = 0
    log = path / "model.jsonl"
    whole = log.read_bytes()
    log.write_bytes(whole + b'{"op":"append","args":{"run_')
    with serving("--model", str(path)) as client:
        assert client.ask("position", run_id="run1")["ok"] == 1
        client.ask("append", run_id="run1", record={"kind": "turn"})
        assert client.ask("position", run_id="run1")["ok"] == 2
    assert log.read_bytes().startswith(whole)
