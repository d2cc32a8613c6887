"""The program: help with an example for each verb, one line for a mistake, quiet when nobody reads."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from turnproof.model.promises import PROMISES, PROPERTIES
from turnproof.proofs import ledger
from turnproof.proofs.cli import VERBS, main

PROGRAM = [sys.executable, "-m", "turnproof.proofs"]


def test_help_lists_every_verb(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--help"])
    assert ended.value.code == 0
    shown = capsys.readouterr().out
    assert all(verb in shown for verb in VERBS)


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_has_help_with_an_example(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main([verb, "--help"])
    assert ended.value.code == 0
    assert re.search(r"examples?:\s+turnproof", capsys.readouterr().out)


@pytest.mark.parametrize(
    "arguments",
    [
        ["replay", "no-such-file.jsonl"],
        ["check", "--examples", "0"],
        ["check", "--"],
        ["check", "--json", "/no/such/directory/report.json"],
        ["explore", "--junit", "-"],
        ["crash", "--wrong", "nobody"],
        ["vectors", "-o", "nowhere", "--limit", "0"],
        ["check", "--traces", "/no/such/directory"],
        ["check", "--choice", "anchors=trusted"],
        ["check", "--model", "--choice", "anchors=lost"],
        ["check", "--model", "--choice", "mood=good"],
        ["promises", "Z99"],
        ["serve", "--mutant", "nobody"],
    ],
    ids=" ".join,
)
def test_a_mistake_is_one_message_and_no_traceback(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 2
    shown = capsys.readouterr()
    assert shown.err.startswith("turnproof: ")
    assert "Traceback" not in shown.err
    assert shown.out == ""


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["levitate"],
        ["replay"],
        ["check", "node", "adapter.mjs"],
        *(["check", "--budget", value] for value in ("soon", "0", "-1", "nan", "inf")),
    ],
)
def test_a_usage_error_exits_with_two(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    assert "usage: turnproof" in capsys.readouterr().err


def test_an_option_that_no_verb_has_is_answered_by_the_verb(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["check", "--bugdet", "3"])
    shown = capsys.readouterr().err
    assert shown.startswith("usage: turnproof check ")
    assert "unrecognized arguments: --bugdet 3" in shown
    with pytest.raises(SystemExit):
        main(["replay", "x.jsonl", "node", "adapter.mjs"])
    assert "COMMAND comes after '--'" in capsys.readouterr().err


@pytest.mark.parametrize("words", [["serve", "--mutant", "list"], ["crash", "--wrong", "list"], ["--version"]])
def test_what_there_is_can_be_listed(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    try:
        assert main(words) == 0
    except SystemExit as ended:
        assert ended.code in (0, None)
    assert capsys.readouterr().out


def test_a_mistake_of_ours_is_no_verdict(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(ledger, "rows_of", lambda directory: 1 // 0)
    assert main(["promises"]) == 2
    assert "ZeroDivisionError" in capsys.readouterr().err


def test_promises_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["promises"]) == 0
    shown = capsys.readouterr().out
    assert all(f"  {promise:4} " in shown for promise in PROMISES)
    assert main(["promises", "J8", "T"]) == 0
    shown = capsys.readouterr().out
    assert "J8" in shown and "T7" in shown and "J9" not in shown
    assert main(["promises", "J8", "--json", "-"]) == 0
    assert [row["id"] for row in json.loads(capsys.readouterr().out)] == ["J8"]


def test_the_ledger_is_whole() -> None:
    counts = {"L": 10, "J": 12, "T": 7, "S": 6, "R": 18, "A": 8, "P": 9, "C": 2, "E": 7, "X": 6}
    assert list(PROMISES) == [f"{letter}{number}" for letter, last in counts.items() for number in range(1, last + 1)]
    assert all(promise.statement and promise.source and promise.layer for promise in PROMISES.values())
    mapped = {promise.id for promise in PROMISES.values() if promise.property is not None}
    assert mapped == {promise for promises in PROPERTIES.values() for promise in promises}


def test_a_closed_pipe_is_quiet() -> None:
    with subprocess.Popen([*PROGRAM, "promises"], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""


def test_a_pipe_gets_plain_lines(tmp_path: Path) -> None:
    command = [*PROGRAM, "check", "--model", "--examples", "5", "--traces", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, check=False)
    assert done.returncode == 3
    assert done.stderr == b""
    assert b"\r" not in done.stdout and b"\x1b" not in done.stdout
