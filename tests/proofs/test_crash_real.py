"""Real processes, real files, and the verb."""

from __future__ import annotations

import argparse
import json
import shutil
import threading
from pathlib import Path

import pytest

from turnproof.proofs import crash
from turnproof.proofs.crash import process
from turnproof.proofs.crash.obstacles import OBSTACLES, meet_all
from turnproof.proofs.terminal import UserError


def test_children_killed_at_random_moments() -> None:
    trials = process.forked("random", "30", "7")
    assert trials.violations == []
    assert trials.trials == 30
    assert trials.killed > 10
    assert trials.moments > 5


def test_children_killed_at_each_of_their_first_system_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    if shutil.which("strace"):
        trials = process.forked("strace", "60")
        assert trials.violations == []
        assert (trials.trials, trials.killed) == (60, 60)
        assert trials.moments > 3
    monkeypatch.setenv("PATH", "")
    with pytest.raises(RuntimeError, match="strace is not installed"):
        process.forked("strace", "3")


def test_obstacles_are_typed_errors_and_harm_nothing() -> None:
    met = list(meet_all())
    assert [one.name for one in met] == list(OBSTACLES)
    assert [one for one in met if one.verdict == "broken"] == []
    assert all(one.verdict == "held" or "root" in one.reason for one in met)


def run(*words: str) -> int:
    parser = argparse.ArgumentParser()
    crash.add_arguments(parser)
    return crash.run(parser.parse_args(words))


def test_the_verb_prints_the_matrix_and_the_proof(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--scenario", "transfer", "--mode", "kill", "--seed", "3") == 0
    said = capsys.readouterr().out
    assert "transfer" in said and "kill" in said
    assert "crashed at" in said and "writes seen" in said
    assert "read back: journal_mode wal, synchronous 2" in said
    assert said.endswith("conforms (seed 3)\n")


def test_the_verb_writes_one_object_and_nothing_else(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--scenario", "admit/1", "--mode", "kill", "--flush", "relaxed", "--json", "-", "--budget", "9") == 0
    report = json.loads(capsys.readouterr().out)
    assert report["verdict"] == "conforms"
    assert report["environment"]["synchronous"] == "NORMAL"
    assert report["promises"]["X1"]["verdict"] == "kept"
    assert report["promises"]["X6"]["verdict"] == "kept"
    assert report["counts"]["crash_points"] > 0


def test_a_violation_is_a_file_and_exit_code_1(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--wrong", "step appended record by record", "--scenario", "step", "--mode", "kill"]
    assert run(*words, "--traces", str(tmp_path)) == 1
    said = capsys.readouterr().out
    files = list(tmp_path.iterdir())
    assert files
    assert f"turnproof replay --crash {files[0]}" in said or len(files) > 1
    assert crash.replay_crash(str(files[0])) == 1


def test_lists_and_mistakes(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert run("--scenario", "list") == 0
    assert "turn with tools" in capsys.readouterr().out
    for words in (["--scenario", "nonsense"], ["--wrong", "nobody"], ["--traces", str(tmp_path / "nowhere")]):
        with pytest.raises(UserError):
            run(*words)


def test_nothing_is_left_behind() -> None:
    run("--scenario", "transfer", "--mode", "kill", "--json", "-")
    assert not [thread for thread in threading.enumerate() if isinstance(thread, threading.Timer) and thread.is_alive()]
