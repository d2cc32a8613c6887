"""The report: the object of PROTOCOL, JUnit, and what a terminal shows."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest

from turnproof.model.promises import PROMISES
from turnproof.proofs.cli import main
from turnproof.proofs.report import EXIT, Judgement, Report, Violation, render, wal_warning, write_junit
from turnproof.proofs.subjects import Identity

VERDICTS = {"kept", "broken", "not_offered", "not_checked"}


def run(tmp_path: Path, capsys: pytest.CaptureFixture[str], *options: str) -> dict[str, object]:
    main(["check", "--examples", "30", "--seed", "5", "--json", "-", "--traces", str(tmp_path), *options])
    report: dict[str, object] = json.loads(capsys.readouterr().out)
    return report


def test_a_report_has_every_field_of_the_protocol(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report = run(tmp_path, capsys)
    assert report["report"] == 1
    assert report["verb"] == "check"
    assert report["seed"] == 5
    assert report["verdict"] in EXIT
    assert set(report) >= {"subject", "environment", "counts", "promises", "violations"}
    subject, environment, promises = report["subject"], report["environment"], report["promises"]
    assert isinstance(subject, dict) and set(subject) == {"name", "version", "capabilities", "choices"}
    assert isinstance(environment, dict)
    assert set(environment) == {"python", "sqlite", "journal_mode", "synchronous", "platform"}
    assert environment["journal_mode"] == "wal"
    assert environment["synchronous"] == "FULL"
    assert isinstance(promises, dict) and list(promises) == list(PROMISES)
    for row in promises.values():
        assert row["verdict"] in VERDICTS
        assert row["statement"]
        assert isinstance(row["evidence"], dict)


def test_settings_are_read_back_not_assumed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    environment = run(tmp_path, capsys, "--flush", "relaxed")["environment"]
    assert isinstance(environment, dict) and environment["synchronous"] == "NORMAL"
    environment = run(tmp_path, capsys, "--model")["environment"]
    assert isinstance(environment, dict) and environment["synchronous"] is None


def test_a_violation_is_told_whole(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    violations = run(tmp_path, capsys, "--mutant", "attempt-not-counted")["violations"]
    assert isinstance(violations, list)
    (violation,) = violations
    assert set(violation) == {"promise", "statement", "operation", "expected", "got", "steps", "trace"}
    assert violation["promise"] == "L2"
    assert violation["expected"] != violation["got"]
    assert all(set(step) >= {"op"} for step in violation["steps"])
    assert Path(violation["trace"]).is_file()


def broken() -> Report:
    return Report(
        verb="check",
        subject=Identity(name="mine", version="1"),
        verdict="violation",
        seed=3,
        environment={"python": "3"},
        counts={"operations": 12345},
        promises={
            "J8": Judgement(verdict="broken", evidence={"sampled": 4, "refused": 4}),
            "J9": Judgement(verdict="kept", evidence={"sampled": 2, "accepted": 2}),
            "S1": Judgement(verdict="not_offered", reason="needs streams"),
            "X1": Judgement(verdict="not_checked", reason="needs a crash"),
            "T5": Judgement(verdict="not_checked"),
        },
        violations=(
            Violation(
                promise="J8",
                statement="frozen",
                operation="commit_turn_journal",
                expected={"ok": False},
                got={"ok": True},
                steps=({"op": "commit_turn_journal", "args": {"submission_id": "s1"}}, {"op": "crash"}),
                trace="t.jsonl",
            ),
        ),
    )


def test_what_a_terminal_shows() -> None:
    shown = render(broken())
    assert "J8   broken             ·        4        ·" in shown
    assert "S1   not offered" in shown
    assert "T5   not checked" in shown
    assert "not checked by this verb: X1" in shown
    assert 'commit_turn_journal(submission_id="s1")' in shown
    assert "operations 12,345" in shown
    assert shown.endswith("violation (seed 3)")


def test_junit_has_a_case_a_promise(tmp_path: Path) -> None:
    write_junit(broken(), str(tmp_path / "junit.xml"))
    suite = ElementTree.parse(tmp_path / "junit.xml").getroot()
    assert (suite.get("tests"), suite.get("failures"), suite.get("skipped")) == ("5", "1", "3")
    failure = suite.find("testcase/failure")
    assert failure is not None and failure.text is not None and "commit_turn_journal" in failure.text


@pytest.mark.parametrize(
    ("version", "affected"), [("3.40.1", True), ("3.51.2", True), ("3.51.3", False), ("3.6.23", False), (None, False)]
)
def test_versions_with_the_wal_reset_bug_are_named(version: str | None, affected: bool) -> None:
    assert (wal_warning(version) is not None) is affected


def test_json_to_standard_output_is_alone_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target, junit = tmp_path / "report.json", tmp_path / "junit.xml"
    arguments = ["check", "--model", "--examples", "5", "--traces", str(tmp_path), "--junit", str(junit)]
    main([*arguments, "--json", str(target)])
    assert "undecided" in capsys.readouterr().out
    assert json.loads(target.read_text())["verdict"] == "undecided"
    assert junit.is_file()
    main([*arguments, "--json", "-"])
    assert json.loads(capsys.readouterr().out)["verdict"] == "undecided"
