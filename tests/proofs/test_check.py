"""The check itself: it passes what is right, for every choice and capability, and says what it did not see."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import attrs
import pytest

from turnproof.model.choices import OPTIONS, Choices
from turnproof.model.operations import CAPABILITIES, GetSubmission, Operation
from turnproof.model.promises import PROMISES
from turnproof.proofs.check import check, with_crashes
from turnproof.proofs.cli import main
from turnproof.proofs.compare import Comparison
from turnproof.proofs.dice import Dice
from turnproof.proofs.history import Divergence, play
from turnproof.proofs.judging import JUDGED_BY_CHECK, NOT_JUDGED_BY_CHECK
from turnproof.proofs.replay import play_case
from turnproof.proofs.scene import Play
from turnproof.proofs.scenes import SCENES
from turnproof.proofs.search import Budget
from turnproof.proofs.shrink import minimise
from turnproof.proofs.subjects import Identity, ModelSubject, StoreSubject, Subject
from turnproof.proofs.traces import read_trace
from turnproof.proofs.wire import Err, Ok, Outcome

SERVE = [sys.executable, "-m", "turnproof.proofs", "serve"]
ONCE = 2 * len(SCENES)
"""Histories in which every scene has been played."""


def budget(examples: int) -> Budget:
    return Budget(time.monotonic() + 300, examples)


@pytest.mark.parametrize("subject", [StoreSubject(), ModelSubject()], ids=["store", "model"])
def test_what_is_right_conforms_and_every_promise_was_exercised(subject: Subject, tmp_path: Path) -> None:
    report = check(subject, 17, budget(3 * ONCE), tmp_path)
    assert report.verdict == "conforms", [report.notes, report.violations]
    assert report.counts["operations"] > 2000
    offered = [
        promise for promise in JUDGED_BY_CHECK if set(PROMISES[promise].needs) <= set(subject.identity.capabilities)
    ]
    assert len(offered) > 45
    for promise in offered:
        assert report.promises[promise].verdict == "kept"
        assert report.promises[promise].evidence["sampled"] > 0
    assert not list(tmp_path.iterdir())


def test_our_store_is_crashed_too_and_the_report_says_so(tmp_path: Path) -> None:
    before = check(StoreSubject(), 17, budget(ONCE), tmp_path)
    report = with_crashes(before, "always", None, tmp_path)
    assert report.verdict == before.verdict
    assert report.counts["crash_points"] > 100
    assert report.counts["faults"] > 10
    crashed = [promise for promise, row in report.promises.items() if row.evidence.keys() & {"crash_points", "faults"}]
    assert {"X1", "X2", "X3", "X6"} <= set(crashed) <= {"X1", "X2", "X3", "X6", "J11", "L10", "R3", "R10", "R12"}
    assert all(report.promises[promise].verdict == "kept" for promise in crashed)
    assert report.promises["R3"].evidence["sampled"] == before.promises["R3"].evidence["sampled"]
    assert report.notes[-1].startswith(f"standard crashes: {report.counts['crash_points']:,} points")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("name", "value"), [(name, options[1]) for name, options in OPTIONS.items()])
def test_a_declared_choice_is_what_the_subject_is_held_to(name: str, value: str, tmp_path: Path) -> None:
    chosen = Choices.declared({name: value})
    report = check(ModelSubject(choices=chosen), 17, budget(ONCE), tmp_path)
    assert report.verdict in ("conforms", "undecided"), report.violations
    undeclared = check(_Undeclared(choices=chosen), 17, budget(4 * ONCE), tmp_path)
    if name != "stream_recovery":  # seen by recover only, and rarely
        assert undeclared.verdict == "violation"


@attrs.define
class _Undeclared(ModelSubject):
    """Makes a choice and does not say so."""

    @property
    def identity(self) -> Identity:
        return Identity(name="undeclared", version="0")


@attrs.define
class _Partial(ModelSubject):
    """Offers a part, and answers nothing else."""

    offered: tuple[str, ...] = CAPABILITIES

    @property
    def identity(self) -> Identity:
        return Identity(name="partial", version="0", capabilities=self.offered, choices=self.choices)

    def call(self, operation: Operation) -> Outcome:
        assert operation.capability in self.offered
        assert "fencing" in self.offered or getattr(operation, "fence", None) is None
        return super().call(operation)


@pytest.mark.parametrize(
    "offered",
    [("journal",), ("records", "steps", "position"), ("journal", "records"), ("streams",), ("records", "conversation")],
    ids=" ".join,
)
def test_what_is_not_offered_is_neither_asked_nor_passed(offered: tuple[str, ...], tmp_path: Path) -> None:
    choices = Choices() if "records" in offered else Choices(anchors="trusted")
    report = check(_Partial(offered=offered, choices=choices), 17, budget(2 * ONCE), tmp_path)
    assert report.verdict in ("conforms", "undecided"), report.violations
    for promise in JUDGED_BY_CHECK:
        if not set(PROMISES[promise].needs) <= set(offered):
            assert report.promises[promise].verdict == "not_offered"


def test_a_sequence_need_only_rise() -> None:
    comparison = Comparison()
    assert comparison.same(Ok({"sequence": 1}), Ok({"sequence": 10}))
    assert comparison.same(Ok({"sequence": 2}), Ok({"sequence": 30}))
    assert comparison.same(Ok({"sequence": 1}), Ok({"sequence": 10}))
    assert not comparison.same(Ok({"sequence": 1}), Ok({"sequence": 11}))
    assert not comparison.same(Ok({"sequence": 3}), Ok({"sequence": 20}))


def test_times_of_a_clock_of_its_own_are_not_compared() -> None:
    own = Comparison(own_clock=True)
    assert own.same(Ok({"started_at": 5, "settled_at": None}), Ok({"started_at": 77}))
    assert not own.same(Ok({"started_at": 5}), Ok({"started_at": None}))
    assert not Comparison().same(Ok({"started_at": 5}), Ok({"started_at": 77}))


@pytest.mark.parametrize(
    ("expected", "got", "same"),
    [
        (Ok(True), Ok(1), False),
        (Ok(None), Ok(False), False),
        (Ok({"text": ""}), Ok({}), True),
        (Ok({"a": None}), Ok({}), True),
        (Ok({"a": 1}), Ok({"a": 1, "extra": 2}), True),
        (Ok([1]), Ok([1, 1]), False),
        (Err("invalid_record", "x"), Err("invalid_record", "y"), True),
        (Err("invalid_record"), Err("invalid_argument"), False),
        (Err("invalid_record"), Ok(None), False),
        (Ok(None), Err("invalid_record"), False),
    ],
)
def test_answers_are_compared_strictly(expected: Outcome, got: Outcome, same: bool) -> None:
    assert Comparison().same(expected, got) is same


def test_a_run_that_saw_too_little_is_undecided(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "--model", "--examples", "1", "--seed", "1", "--traces", str(tmp_path)]) == 3
    assert "never exercised" in capsys.readouterr().out


def test_the_same_seed_is_the_same_run(tmp_path: Path) -> None:
    first, second = (check(ModelSubject(), 99, budget(40), tmp_path) for _ in range(2))
    assert first == second
    assert check(ModelSubject(), 98, budget(40), tmp_path).promises != first.promises


@pytest.mark.parametrize("options", [(), ("--model",)], ids=["store", "model"])
def test_over_the_wire(options: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["check", "--examples", str(ONCE), "--seed", "3", "--json", "-", "--traces", str(tmp_path)]
    assert main([*arguments, "--", *SERVE, *options]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["verdict"] == "conforms"
    assert report["counts"]["operations"] > 1000


def test_every_promise_is_judged_or_there_is_a_reason() -> None:
    assert set(JUDGED_BY_CHECK) | set(NOT_JUDGED_BY_CHECK) == set(PROMISES)
    assert all(NOT_JUDGED_BY_CHECK.values())


class _Flawed(ModelSubject):
    """Answers one question wrong: a submission that was claimed is said to be unknown."""

    def call(self, operation: Operation) -> Outcome:
        outcome = super().call(operation)
        if isinstance(operation, GetSubmission) and isinstance(outcome, Ok) and isinstance(outcome.value, dict):
            return outcome if outcome.value["attempt_id"] is None else Ok(None)
        return outcome


def test_a_counterexample_is_short_saved_and_fails_again(tmp_path: Path) -> None:
    report = check(_Flawed(), 5, budget(50), tmp_path)
    assert report.verdict == "violation"
    (violation,) = report.violations
    assert [step["op"] for step in violation.steps] == ["admit", "claim", "get_submission"]
    assert violation.got == {"ok": None}
    assert report.promises[violation.promise].verdict == "broken"
    assert violation.trace is not None
    (case,) = read_trace(Path(violation.trace))
    assert all(step.expect is not None for step in case.steps)
    assert play_case(case, _Flawed(), tmp_path / "again").verdict == "failed"
    assert play_case(case, ModelSubject(), tmp_path / "right").verdict == "passed"
    assert play_case(case, StoreSubject(), tmp_path / "store").verdict == "passed"


def test_minimising_drops_what_does_not_matter(tmp_path: Path) -> None:
    stage = Play(Dice(bytes(16)))
    SCENES[1](stage)
    subject, stores = _Flawed(), iter(range(10_000))

    def player(moves: Sequence[Operation | str], thorough: bool) -> Divergence | None:
        return play(subject, tmp_path / f"store{next(stores)}", moves, Choices(), thorough=thorough)

    found = player(stage.steps, False)
    assert found is not None
    assert len(minimise(found, player, time.monotonic() + 60).moves) == 3
