"""Wrong stores that only a crash finds, each with its crash point, as a file that shows it again."""

from __future__ import annotations

import json
import time
from pathlib import Path

import attrs
import pytest

from turnproof.model.vocabulary import InvalidArgument
from turnproof.proofs.crash import counterexample, replay_crash
from turnproof.proofs.crash.counterexample import OURS, Counterexample
from turnproof.proofs.crash.draws import scenario_of, sweep_drawn
from turnproof.proofs.crash.faulting import Fault
from turnproof.proofs.crash.scenarios import by_name
from turnproof.proofs.crash.stage import Setting, record
from turnproof.proofs.crash.sweep import sweep
from turnproof.proofs.crash.wrong import WRONG
from turnproof.proofs.dice import BYTES
from turnproof.proofs.terminal import UserError

POINTS = {
    # store: the operation in flight at the first crash that finds it ("" for none)
    "transfer in two transactions": "replace_turn_journal_attempt",
    "state moved in a second transaction": "checkpoint",
    "step appended record by record": "append_step",
    "acknowledged before commit": "claim",
    "synchronous off": "claim",
    "deletion without a marker": "delete_session",
    "import renames before it commits": "open",
    "synced at close only": "claim",
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_store_is_found_and_its_crash_shown_again(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wrong = WRONG[name]
    (scenario,) = by_name(wrong.scenario)
    played = record(scenario, Setting(opener=wrong.opener))
    swept = sweep(played, wrong.mode, alike=0)
    crash = swept.crashes[0]
    assert crash.finding.promise == {"kill": "X1", "power": "X2"}[wrong.mode]
    assert crash.image.mark.operation.partition(" ")[2] == POINTS[name]
    path = counterexample.write(counterexample.of_crash(played, crash, name, 1), tmp_path)
    assert replay_crash(str(path)) == 1
    assert crash.finding.what in capsys.readouterr().out
    value = json.loads(path.read_text())
    path.write_text(json.dumps({**value, "store": OURS}))
    assert replay_crash(str(path)) == 0
    assert capsys.readouterr().out.endswith("conforms\n")


def test_a_random_history_is_shrunk_to_the_shortest_and_the_earliest_crash() -> None:
    setting = Setting(opener=WRONG["transfer in two transactions"].opener)
    drawn = sweep_drawn(["kill"], setting, until=time.monotonic() + 240, seed=4)
    assert drawn.found is not None
    played, crash = drawn.found
    labels = [step.label for step in played.scenario.steps]
    assert labels == ["open", "admit", "claim", "replace_turn_journal_attempt"]
    images = [other.image.point for other in sweep(played, "kill").crashes]
    assert crash.image.point == min(images)


def test_random_histories_of_our_store_are_sound() -> None:
    drawn = sweep_drawn(["kill"], until=time.monotonic() + 30, seed=1, examples=6)
    assert drawn.found is None
    assert drawn.histories == 6
    assert drawn.counts.images > 0


def test_drawn_bytes_are_one_scenario() -> None:
    data = [bytes([n]) * BYTES for n in range(5)]
    assert scenario_of(3, data[0], data) == scenario_of(3, data[0], data)


def test_a_fault_is_a_counterexample_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (scenario,) = by_name("import")
    example = Counterexample(scenario=scenario, fault=Fault("eio", "any", True, 3), promise="X3")
    path = counterexample.write(example, tmp_path)
    assert counterexample.read(path) == example
    assert replay_crash(str(path)) == 0
    assert "eio from any call 3 on" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"crash": 2}, "crash"),
        ({"store": "nobody's"}, "store"),
        ({"flush": "sometimes"}, "flush"),
        ({"promise": "Z9"}, "promise"),
        ({"at": None}, "fault"),
        ({"at": {"kind": "flood", "point": 1}}, "kind"),
        ({"at": {"kind": "power", "point": 1, "choice": "maybe"}}, "choice"),
        ({"scenario": {}}, "steps"),
    ],
)
def test_a_file_that_is_no_counterexample_is_refused(change: dict[str, object], word: str, tmp_path: Path) -> None:
    played = record(by_name("append/1")[0])
    example = Counterexample(scenario=played.scenario, crash=counterexample.Point("kill", 2))
    path = counterexample.write(example, tmp_path)
    assert counterexample.read(path) == example
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    with pytest.raises(InvalidArgument, match=word):
        counterexample.read(path)
    with pytest.raises(UserError, match="counterexample"):
        replay_crash(str(path))


def test_a_missing_file_is_the_users_mistake(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="No such file"):
        replay_crash(str(tmp_path / "nothing.json"))


def test_a_crash_that_no_longer_exists_is_answered_by_all_of_its_kind(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A store that was put right writes other things than before."""
    example = Counterexample(scenario=by_name("append/1")[0], crash=counterexample.Point("kill", 10_000))
    assert replay_crash(str(counterexample.write(example, tmp_path))) == 0
    assert "so all 15 images of the scenario were judged\nconforms" in capsys.readouterr().out
    wrong = attrs.evolve(
        example, store="step appended record by record", scenario=by_name("append_step/0")[0], promise="X1"
    )
    assert replay_crash(str(counterexample.write(wrong, tmp_path))) == 1
    assert "broken: X1" in capsys.readouterr().out
