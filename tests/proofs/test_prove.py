"""``turnproof prove``: what counts as proved, that a false contract is refuted, and that seeded errors are found."""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import signal
import time
from pathlib import Path

import attrs
import pytest

from turnproof.proofs import prove
from turnproof.proofs.contracts import CONTRACTS, Contract
from turnproof.proofs.contracts import prover as prover_module
from turnproof.proofs.contracts.prover import Limits, Proof, Prover, prove_all, read
from turnproof.proofs.contracts.seeded import SEEDED, planted
from turnproof.proofs.terminal import UserError

TRUE = CONTRACTS["s1_a_repeat_is_refused_whatever_its_body"]
FALSE = CONTRACTS["false_a_repeat_with_the_same_body_is_accepted"]
CONFIRMED = "stream.py:1: info: Confirmed over all paths.\n"


def run(*words: str) -> int:
    parser = argparse.ArgumentParser()
    prove.add_arguments(parser)
    return prove.run(parser.parse_args(words))


# --- what the prover says -------------------------------------------------------------------------------------------


def test_only_as_many_confirmations_as_conditions_are_a_proof() -> None:
    assert read(TRUE, CONFIRMED).outcome == "proved"
    assert read(TRUE, CONFIRMED * 2).outcome == "undecided"
    two = CONTRACTS["p2_a_step_with_one_answer_missing_goes_whole"]
    half = read(two, CONFIRMED)
    assert (half.outcome, half.reason) == ("undecided", "1 of 2 conditions confirmed")
    assert read(two, CONFIRMED * 2).outcome == "proved"


@pytest.mark.parametrize("text", ["Not confirmed.", "Unable to meet precondition."])
def test_what_is_not_confirmed_is_undecided(text: str) -> None:
    proof = read(TRUE, f"stream.py:1: info: {text}\n")
    assert (proof.outcome, proof.reason) == ("undecided", text)


def test_a_counterexample_is_read_as_a_call_with_its_arguments() -> None:
    line = (
        "x.py:1: error: false when calling f(1, 2, 3, 4, Slot(phase=Phase.COMMITTED, stream_key=None), 6, 7) "
        "(which returns Accept(value=(3,), rule='S1'))"
    )
    proof = read(TRUE, line)
    assert proof.outcome == "counterexample"
    assert proof.counterexample is not None
    assert proof.counterexample.arguments["index"] == "Slot(phase=Phase.COMMITTED)"
    assert list(proof.counterexample.arguments) == ["count", "a", "b", "c", "index", "body", "other"]
    assert proof.counterexample.outcome == "Accept(value=(3,), rule='S1')"


def test_an_exception_is_a_counterexample_and_a_broken_contract_is_not() -> None:
    raised = read(TRUE, "x.py:1: error: ValueError: no when calling f(1, 2)")
    assert (raised.outcome, raised.reason) == ("counterexample", "ValueError: no")
    assert read(TRUE, "x.py:1: error: SyntaxError in condition").outcome == "failed"
    assert read(TRUE, "", "Traceback\nImportError: no such module").reason == "ImportError: no such module"
    assert read(TRUE, "").outcome == "failed"


# --- the report -----------------------------------------------------------------------------------------------------


def verdict(*proofs: Proof) -> str:
    return prove.report_of(proofs, 0).verdict


def test_the_verdict_has_four_values() -> None:
    proved, refuted = Proof(contract=TRUE, outcome="proved"), Proof(contract=FALSE, outcome="counterexample")
    assert verdict(proved, refuted) == "conforms"
    assert verdict(attrs.evolve(proved, outcome="counterexample"), refuted) == "violation"
    assert verdict(proved, attrs.evolve(refuted, outcome="proved")) == "violation"
    assert verdict(attrs.evolve(proved, outcome="undecided"), refuted) == "undecided"
    assert verdict(proved, attrs.evolve(refuted, outcome="undecided")) == "undecided"
    assert verdict(attrs.evolve(proved, outcome="failed"), refuted) == "could_not_judge"
    assert verdict() == "undecided"


def test_a_prover_that_confirms_everything_is_caught() -> None:
    report = prove.report_of([Proof(contract=c, outcome="proved") for c in CONTRACTS.values()], 0)
    assert (report.exit, report.counts["refuted"]) == (1, 0)
    assert len(report.violations) == report.counts["known_false"] == 12


def test_the_deadline_leaves_contracts_undecided() -> None:
    [proof] = prove_all([TRUE], Limits(1.0), jobs=1, deadline=time.monotonic() - 1)
    assert (proof.outcome, proof.reason) == ("undecided", "the budget ran out")


# --- the command line -----------------------------------------------------------------------------------------------


def test_a_small_run_writes_its_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "prove.json"
    assert run("--only", TRUE.name, "--only", FALSE.name, "--json", str(file)) == 0
    report = json.loads(file.read_text())
    assert (report["verb"], report["verdict"], report["seed"]) == ("prove", "conforms", 0)
    assert report["counts"] == {"contracts": 1, "confirmed": 1, "undecided": 0, "known_false": 1, "refuted": 1}
    assert report["promises"]["S1"]["verdict"] == "kept"
    assert report["promises"]["S1"]["evidence"] == {"proved": 1, "contracts": 1}
    assert report["promises"]["X1"]["verdict"] == "not_checked"
    assert "1 of 1 contracts proved, 0 undecided, 1 of 1 known-false ones refuted" in capsys.readouterr().out


def test_json_on_standard_output_stands_alone(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--only", FALSE.name, "--json", "-") == 0
    assert json.loads(capsys.readouterr().out)["counts"]["refuted"] == 1


def test_too_little_time_is_undecided_and_no_pass() -> None:
    assert run("--only", "l5_requeue_gets_through", "--timeout", "0.01") == 3


def test_the_contracts_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--list") == 0
    assert len(capsys.readouterr().out.splitlines()) == len(CONTRACTS)


def test_a_users_mistake_is_said() -> None:
    for words in (["--only", "Z9"], ["--jobs", "0"], ["--seed", "-1"]):
        with pytest.raises(UserError):
            run(*words)


def test_without_crosshair_nothing_is_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"pip install 'turnproof\[prove\]'"):
        run("--only", "S1")


def test_a_contract_whose_precondition_cannot_be_met_is_not_proved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "vacuous.py").write_text(
        'def nothing(n: int) -> int:\n    r"""\n    pre: n > 1 and n < 1\n    post: False\n    """\n    return n\n'
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    contract = Contract(name="nothing", module="vacuous", layer="x", promises=("S1",), bounds="", refuted=False)
    with Prover(Limits(5.0)) as prover:
        assert prover.prove(contract).outcome == "undecided"


def test_a_proof_that_does_not_end_is_killed_and_the_next_one_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sleepy.py").write_text("import time\n\ntime.sleep(600)\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(prover_module, "conditions_of", lambda contract: ())
    monkeypatch.setattr(prover_module, "_STARTUP", 3.0)
    sleepy = Contract(name="nothing", module="sleepy", layer="x", promises=("S1",), bounds="", refuted=False)
    with Prover(Limits(5.0)) as prover:
        proof = prover.prove(sleepy)
        assert (proof.outcome, proof.reason) == ("undecided", "the prover did not end in time")
        monkeypatch.undo()
        assert prover.prove(TRUE).outcome == "proved"


def test_a_prover_whose_process_died_could_not_judge() -> None:
    with Prover(Limits(5.0)) as prover:
        os.killpg(prover._process.pid, signal.SIGKILL)
        proof = prover.prove(TRUE)
    assert (proof.outcome, proof.reason) == ("failed", "the prover's process died")


# --- seeded errors --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SEEDED)
def test_a_seeded_error_is_refuted_with_a_concrete_call(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--seed-error", name) == 1
    said = capsys.readouterr().out
    assert "broken: " in said
    assert "    attempt = " in said
    assert "  got      Accept(" in said


def test_a_pattern_that_is_not_there_fails_loudly() -> None:
    error = attrs.evolve(SEEDED["tools-back-to-provider"], old="no such line")
    with pytest.raises(ValueError, match="occurs 0 times"), planted(error):
        pass
