"""A program under test may do anything; we answer *could not judge*, soon, and nothing of it is left running."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from turnproof.model import operations as ops
from turnproof.proofs.adapter import Adapter, AdapterFailure
from turnproof.proofs.cli import main
from turnproof.proofs.wire import Err, Ok

MISBEHAVING = Path(__file__).with_name("misbehaving.py")
SERVE_MODEL = [sys.executable, "-m", "turnproof.proofs", "serve", "--model"]
SERVE_STORE = [sys.executable, "-m", "turnproof.proofs", "serve"]


@pytest.fixture
def pids(tmp_path: Path) -> Iterator[Path]:
    """A file in which every process of the adapter writes its id; afterwards none of them may be alive."""
    file = tmp_path / "pids"
    file.touch()
    yield file
    started = [int(line) for line in file.read_text().splitlines()]
    assert started
    assert not [pid for pid in started if alive(pid)]


def alive(pid: int) -> bool:
    """Whether a process is there and not just waiting to be reaped by someone else."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


ODD = {
    "unsupported": "is a part, and answers unsupported",
    "wrong-id": "carries the id 999999",
    "no-id": "carries the id None",
    "garbage": "not an answer",
    "not-utf8": "not UTF-8",
    "both": "either 'ok' or 'error'",
    "neither": "either 'ok' or 'error'",
    "hang": "no answer within",
    "stubborn": "no answer within",
    "half-a-line": "no answer within",
    "exit": "exited with status 7",
    "dies": "ended by signal 9",
    "closes-output": "closed its standard output",
    "flood": "an answer longer than",
    "chatter": "without being asked|carries the id",
}


@pytest.mark.parametrize("how", ODD)
def test_an_adapter_that_misbehaves_is_not_judged(
    how: str, pids: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = [sys.executable, str(MISBEHAVING), how, str(pids)]
    code = main(["check", "--budget", "60", "--timeout", "1", "--traces", str(tmp_path), "--", *command])
    assert code == 2
    shown = capsys.readouterr().out
    assert re.search(ODD[how], shown)
    assert "last request" in shown
    assert "could not judge" in shown
    assert "a line in the log" in shown


def test_a_program_that_is_not_there_is_not_judged(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "--", "no-such-program"]) == 2
    assert "cannot start no-such-program" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("hello", "why"),
    [
        ('{"id":1,"ok":{"protocol":2}}', "protocol 1"),
        ('{"id":1,"ok":{"protocol":1,"capabilities":["telepathy"]}}', "telepathy"),
        ('{"id":1,"ok":{"protocol":1,"choices":{"mood":"good"}}}', "unknown choice 'mood'"),
        ('{"id":1,"ok":{"protocol":1,"choices":{"anchors":"lost"}}}', "anchors cannot be 'lost'"),
        ('{"id":1,"ok":{"protocol":1,"clock":"cuckoo"}}', "clock"),
        ('{"id":1,"error":{"code":"unsupported","message":"no"}}', "unsupported"),
    ],
)
def test_a_hello_that_cannot_be_held_to_anything_is_refused(hello: str, why: str) -> None:
    with pytest.raises(AdapterFailure, match=why):
        Adapter([sys.executable, "-c", f"input(); print({hello!r}, flush=True); input()"])


@pytest.mark.parametrize("command", [SERVE_STORE, SERVE_MODEL], ids=["store", "model"])
def test_what_was_acknowledged_survives_a_kill(command: list[str], tmp_path: Path) -> None:
    with Adapter(command) as adapter:
        adapter.open(tmp_path / "store")
        admit = ops.Admit(submission_id="s1", session_key="run1", kind="direct", payload="{}", accepted_at=1)
        first = adapter.call(admit)
        adapter.crash()
        assert adapter.call(admit) == first
        adapter.close()
        adapter.open(tmp_path / "other")
        assert adapter.call(ops.GetSubmission(submission_id="s1")) == Ok(None)
        assert adapter.ask("no_such_verb", {}) == Err("unsupported")


def test_relative_files_of_a_command_are_found_although_it_runs_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mine.py").write_text("from turnproof.proofs.cli import main\nmain(['serve', '--model'])\n")
    monkeypatch.chdir(tmp_path)
    with Adapter([sys.executable, "mine.py"]) as adapter:
        assert adapter.identity.name == "turnproof model"


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupted_check_leaves_nothing_behind(number: int, code: int, pids: Path, tmp_path: Path) -> None:
    command = [sys.executable, str(MISBEHAVING), "stubborn", str(pids)]
    check = [sys.executable, "-m", "turnproof.proofs", "check", "--timeout", "60", "--traces", str(tmp_path), "--"]
    with subprocess.Popen(
        [*check, *command],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        preexec_fn=lambda: signal.signal(
            signal.SIGINT, signal.SIG_DFL
        ),  # ignored where this suite runs in the background
    ) as running:
        deadline = time.monotonic() + 30
        while len(pids.read_text().splitlines()) < 2 and time.monotonic() < deadline:
            time.sleep(0.05)
        time.sleep(0.5)
        running.send_signal(number)
        _, errors = running.communicate(timeout=30)
    assert running.returncode == code
    assert b"Traceback" not in errors
