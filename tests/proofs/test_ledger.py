"""The evidence ledger: no promise without a row, a contract or a reason, and a check; figures only from reports."""

from __future__ import annotations

import argparse
import json
import re
from pathlib import Path

import pytest

from turnproof.model.promises import PROMISES
from turnproof.proofs import ledger
from turnproof.proofs.contracts import CONTRACTS
from turnproof.proofs.contracts.reasons import NO_CONTRACT
from turnproof.proofs.explore.laws import LAWS
from turnproof.proofs.judging import JUDGED_BY_CHECK, NOT_JUDGED_BY_CHECK
from turnproof.proofs.terminal import UserError

ROOT = Path(__file__).resolve().parents[2]


def run(*words: str) -> int:
    parser = argparse.ArgumentParser()
    ledger.add_arguments(parser)
    return ledger.run(parser.parse_args(words))


def report(verb: str, **promises: dict[str, object]) -> str:
    return json.dumps({"report": 1, "verb": verb, "promises": promises})


@pytest.fixture
def reports(tmp_path: Path) -> Path:
    directory = tmp_path / "reports"
    directory.mkdir()
    kept = {"verdict": "kept"}
    (directory / "prove.json").write_text(
        report("prove", J8={**kept, "evidence": {"proved": 5, "contracts": 5, "cells": 864}})
    )
    (directory / "check.json").write_text(report("check", J8={**kept, "evidence": {"sampled": 1200, "refused": 900}}))
    (directory / "wire.json").write_text(report("check", J8={**kept, "evidence": {"sampled": 34}}))
    (directory / "mutants.json").write_text(report("mutants", J8={**kept, "evidence": {"killed": 2, "mutants": 2}}))
    (directory / "crash.json").write_text(report("crash", X1={"verdict": "broken", "evidence": {"crash_points": 633}}))
    (directory / "explore.json").write_text(report("explore", J8={**kept, "evidence": {"states": 70_000}}))
    return directory


# --- completeness ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("promise", PROMISES)
def test_a_promise_has_a_contract_or_a_reason_and_is_sampled_or_enumerated(promise: str) -> None:
    contracts = [c for c in CONTRACTS.values() if promise in c.promises and not c.refuted]
    assert bool(contracts) != (promise in NO_CONTRACT)
    assert (promise in JUDGED_BY_CHECK) != (promise in ledger.ELSEWHERE)
    if promise in ledger.ELSEWHERE:
        text = (ROOT / ledger.ELSEWHERE[promise]).read_text()
        assert re.search(rf"\b{promise}\b", text), f"{ledger.ELSEWHERE[promise]} does not speak of {promise}"


def test_every_table_speaks_of_promises_of_the_model_only() -> None:
    rows = {row.promise.id for row in ledger.rows_of(Path("no such directory"))}
    assert rows == set(PROMISES)
    for table in (NO_CONTRACT, ledger.ELSEWHERE, LAWS, NOT_JUDGED_BY_CHECK):
        assert set(table) <= rows


def test_what_the_explorer_says_it_checks_is_what_it_can_find() -> None:
    laws = (ROOT / "proofs/turnproof/proofs/explore/laws.py").read_text()
    named = set(re.findall(r'Fault\("(\w+)"', laws)) | set(re.findall(r'"(\w+)" if answered else "(\w+)"', laws)[0])
    assert named == LAWS


# --- the figures ------------------------------------------------------------------------------------------------------


def test_reports_are_joined_by_promise(reports: Path) -> None:
    rows = {row.promise.id: row for row in ledger.rows_of(reports)}
    assert {column: rows["J8"].cell(column) for column in ledger.COLUMNS} == {
        "proved": "5 of 5 contracts",
        "exhaustive": "864 cells, 70,000 states",
        "sampled": "1,234 times",
        "crashed": "not checked",
        "mutants": "2 of 2 caught",
    }
    assert (rows["X1"].broken, rows["X1"].cell("crashed")) == (True, "633 points")
    assert [rows["S1"].cell(column) for column in ledger.COLUMNS] == ["not checked"] * 5


def test_the_table_is_printed_as_text_markdown_and_json(reports: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("J", "--reports", str(reports)) == 0
    said = capsys.readouterr().out
    assert "  J8   a committed slot is frozen for everyone" in said
    assert "proved: 5 of 5 contracts; exhaustive: 864 cells, 70,000 states; sampled: 1,234 times" in said
    assert run("R9", "--reports", str(reports)) == 0
    assert "has no contract: it is about the store's files" in capsys.readouterr().out
    assert run("--markdown", "--reports", str(reports)) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2 + len(PROMISES)
    assert len({line.count("|") for line in lines}) == 1
    assert any(line.startswith("| X1 **broken** |") for line in lines)
    assert run("J8", "--json", "-", "--reports", str(reports)) == 0
    [row] = json.loads(capsys.readouterr().out)
    assert (row["id"], row["methods"]["mutants"], row["broken"]) == ("J8", {"killed": 2, "mutants": 2}, False)


def test_the_table_of_a_file_is_renewed_and_its_staleness_found(
    reports: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    readme = tmp_path / "README.md"
    readme.write_text(f"# x\n\n{ledger.BEGIN}\nold\n{ledger.END}\n\nend\n")
    where = ("--reports", str(reports))
    assert run("--check", str(readme), *where) == 1
    assert "stale" in capsys.readouterr().out
    assert run("--write", str(readme), *where) == 0
    text = readme.read_text()
    assert text.startswith(f"# x\n\n{ledger.BEGIN}\n| promise |") and text.endswith(f"|\n{ledger.END}\n\nend\n")
    assert run("--check", str(readme), *where) == 0
    # More samples change nothing, another number of contracts does.
    kept = {"verdict": "kept"}
    (reports / "wire.json").write_text(report("check", J8={**kept, "evidence": {"sampled": 99}}))
    assert run("--check", str(readme), *where) == 0
    (reports / "prove.json").write_text(report("prove", J8={**kept, "evidence": {"proved": 6, "contracts": 6}}))
    assert run("--check", str(readme), *where) == 1
    assert "6 of 6 contracts" in capsys.readouterr().out


def test_a_users_mistake_is_said(reports: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no promise"):
        run("Z9")
    with pytest.raises(UserError, match="no directory"):
        run("--reports", str(tmp_path / "none"))
    with pytest.raises(UserError, match="needs a line"):
        run("--check", str(reports / "prove.json"), "--reports", str(reports))
    for text in ("not json", "[]", "{}", report("check", Z9={"verdict": "kept"})):
        (reports / "bad.json").write_text(text)
        with pytest.raises(UserError, match=r"bad\.json"):
            run("--reports", str(reports))
