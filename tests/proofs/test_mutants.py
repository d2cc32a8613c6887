"""Stores that are wrong on purpose are caught, with a short history that names the promise."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import pytest

from turnproof.model.choices import STRICT
from turnproof.model.promises import PROMISES
from turnproof.proofs.cli import main
from turnproof.proofs.mutants import FIRST_SIX, MUTANTS, mutated
from turnproof.proofs.mutation import Edit, load_mutated
from turnproof.proofs.search import Budget, Search
from turnproof.proofs.wire import Object

SERVE = [sys.executable, "-m", "turnproof.proofs", "serve"]
LONGEST = 12


def judged(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> Object:
    """The one violation that a check reports."""
    assert main(["check", "--seed", "7", "--json", "-", *arguments]) == 1
    report = json.loads(capsys.readouterr().out)
    assert report["verdict"] == "violation"
    (violation,) = report["violations"]
    assert report["promises"][violation["promise"]]["verdict"] == "broken"
    found: Object = violation
    return found


@pytest.mark.parametrize("name", MUTANTS)
def test_is_caught(name: str, tmp_path: Path) -> None:
    mutant = MUTANTS[name]
    subject = mutated(mutant, "relaxed")
    search = Search(subject, STRICT, tmp_path, seed=7, shrink_seconds=0.2)
    found = search.run(Budget(time.monotonic() + 60))
    assert found is not None, f"{name} was not caught in {search.tally.operations} operations"
    assert found.promise in (mutant.promise, *mutant.beside)
    assert len(found.moves) <= LONGEST
    subject.close()


@pytest.mark.parametrize("name", FIRST_SIX)
def test_is_caught_by_the_command_and_replayed(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    violation = judged(["--mutant", name, "--traces", str(tmp_path)], capsys)
    steps, trace = violation["steps"], violation["trace"]
    assert isinstance(steps, list)
    assert isinstance(trace, str)
    assert len(steps) <= LONGEST
    assert main(["replay", trace, "--mutant", name]) == 1
    assert main(["replay", trace]) == 0
    assert main(["replay", trace, "--model"]) == 0


@pytest.mark.parametrize("name", FIRST_SIX)
def test_is_caught_through_the_wire(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    violation = judged(["--traces", str(tmp_path), "--", *SERVE, "--mutant", name], capsys)
    steps = violation["steps"]
    assert isinstance(steps, list)
    assert len(steps) <= LONGEST
    assert violation["promise"] in (MUTANTS[name].promise, *MUTANTS[name].beside)


def test_every_mutant_names_a_promise_of_the_ledger() -> None:
    assert all({mutant.promise, *mutant.beside} <= set(PROMISES) for mutant in MUTANTS.values())
    assert len(FIRST_SIX) == 6


def test_a_mutant_whose_pattern_is_gone_fails_loudly() -> None:
    with pytest.raises(ImportError, match="occurs 0 times"):
        load_mutated("gone", (Edit("journal", "no such line anywhere", ""),))
    with pytest.raises(ImportError, match="times, not once"):
        load_mutated("everywhere", (Edit("journal", "return", ""),))


def test_an_unknown_mutant_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", "--mutant", "nobody"]) == 2
    assert "--mutant list" in capsys.readouterr().err
