"""Crashes and faults at every write of our store: nothing acknowledged is lost, nothing is half there (X1, X2, X3, X6).

What takes longer than seconds is run by ``turnproof crash``: every scenario, power cuts and depth 2 without bound.
"""

from __future__ import annotations

import pytest

from turnproof.impl import Store, open_store
from turnproof.model import operations as ops
from turnproof.model.operations import ALPHABET, READS, Operation
from turnproof.proofs.crash.faulting import PLANS, sweep_faults
from turnproof.proofs.crash.judge import FIRST
from turnproof.proofs.crash.scenarios import SCENARIOS, STANDARD, admit, by_name, opened
from turnproof.proofs.crash.script import Scenario, timeline
from turnproof.proofs.crash.stage import Nonconforming, Opener, Setting, record
from turnproof.proofs.crash.standard import standard_set
from turnproof.proofs.crash.sweep import Sweep, sweep, sweep_deeper

RELAXED = Setting(flush="relaxed")


def named(name: str) -> Scenario:
    (scenario,) = by_name(name)
    return scenario


def sound(swept: Sweep) -> None:
    """Every point was crashed, every image judged, and nothing is wrong."""
    assert swept.complete
    assert [str(crash.image) + crash.finding.what for crash in swept.crashes] == []
    assert swept.counts.points > 0
    assert 0 < swept.counts.distinct <= swept.counts.judged <= swept.counts.images


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
def test_a_kill_at_every_write(scenario: Scenario) -> None:
    played = record(scenario)
    swept = sweep(played, "kill")
    sound(swept)
    assert swept.counts.points == played.writes + 1
    assert swept.counts.lost == 0


@pytest.mark.parametrize("name", ["creation", "text turn", "deletion", "import", "import beside work", "transfer"])
def test_a_power_cut_at_every_write(name: str) -> None:
    swept = sweep(record(named(name)), "power", alike=FIRST)
    sound(swept)
    assert swept.counts.lost == 0


def test_a_power_cut_while_the_log_is_moved() -> None:
    """The first page may be torn or garbage then; the log still holds it."""
    sound(sweep(record(named("checkpoint and close")), "power", alike=FIRST))


@pytest.mark.parametrize("name", ["text turn", "import", "checkpoint and close"])
def test_relaxed_loses_a_suffix_to_a_power_cut_and_leaves_no_hole(name: str) -> None:
    """The images are allowed any prefix and nothing else; that some are shorter shows that the cuts are real (R10)."""
    swept = sweep(record(named(name), RELAXED), "power", alike=FIRST)
    sound(swept)
    assert swept.counts.lost > 0


def test_relaxed_loses_nothing_to_a_kill() -> None:
    swept = sweep(record(named("text turn"), RELAXED), "kill")
    sound(swept)
    assert swept.counts.lost == 0


@pytest.mark.parametrize("name", ["transfer", "import beside work"])
def test_a_kill_in_what_follows_a_kill(name: str) -> None:
    swept = sweep_deeper(record(named(name)), "kill")
    sound(swept)
    assert swept.counts.points == swept.counts.writes


@pytest.mark.parametrize("name", ["transfer", "admit/1"])
def test_a_power_cut_in_what_follows_a_kill(name: str) -> None:
    """What a killed process wrote and never synced was read, and answered, after the reopening: it stays (E4)."""
    sound(sweep_deeper(record(named(name)), "power"))


@pytest.mark.parametrize(
    "name", ["creation", "transfer", "import beside work", "delete_session/1", "delete_session/2", "append_step/0"]
)
def test_a_fault_at_every_call(name: str) -> None:
    swept = sweep_faults(named(name))
    assert swept.complete
    assert [f"{fault}: {finding.what}" for fault, finding in swept.found] == []
    assert swept.calls > 0
    assert swept.counts.points >= len(PLANS)
    assert swept.counts.answered > 0


def test_every_write_of_the_protocol_is_crashed_alone_and_from_several_states() -> None:
    alone = [scenario for scenario in SCENARIOS if scenario not in STANDARD]
    crashed: dict[str, int] = {}
    for scenario in alone:
        (operation,) = [step.what for step in scenario.steps if isinstance(step.what, Operation)]
        crashed[operation.verb] = crashed.get(operation.verb, 0) + 1
    assert crashed.keys() == ALPHABET.keys() - READS
    assert min(crashed.values()) >= 2


def test_a_deletion_in_flight_allows_what_each_of_its_units_leaves() -> None:
    scenario = named("deletion")
    told = timeline(scenario.start(), scenario.steps, {})
    place = next(n for n, step in enumerate(scenario.steps) if isinstance(step.what, ops.DeleteSession))
    assert len(told.flying[place]) == 4
    assert len({moment.state for moment in told.flying[place]}) == 4
    found: set[int] = set()
    from turnproof.proofs.crash.judge import Judge
    from turnproof.proofs.disk import kill_images

    played = record(scenario)
    with Judge(played.timeline, scenario.steps, {}) as judge:
        for image in kill_images(played.recording):
            if image.mark.operation.endswith("delete_session"):
                moment = judge.moment(image)
                assert moment is not None
                found.add(played.timeline.flying[place].index(moment))
    assert found == {0, 1, 2, 3}


def test_the_crashes_are_proved() -> None:
    """Settings are read back from the store, points are one more than writes (X6)."""
    played = record(named("creation"))
    assert played.facts["journal_mode"] == "wal"
    assert played.facts["synchronous"] == "2"
    assert record(named("creation"), RELAXED).facts["synchronous"] == "1"
    assert sweep(played, "kill").counts.points == played.writes + 1


def test_the_same_seed_is_the_same_recording() -> None:
    first, again, other = (record(named("transfer"), seed=seed).recording for seed in (1, 1, 2))
    assert first == again
    assert first != other


def test_a_store_that_answers_wrongly_is_not_crashed() -> None:
    class Forgetful(Store):
        def has_unsettled(self, *, now: int | None = None) -> bool:
            return False

    def opener(path: str, **options: object) -> Store:
        inner: Opener = open_store
        store = inner(path, **options)
        store.__class__ = Forgetful
        return store

    scenario = Scenario(name="reads", steps=opened([admit(), ops.HasUnsettled()]))
    with pytest.raises(Nonconforming, match="has_unsettled"):
        record(scenario, Setting(opener=opener))


def test_the_standard_set_keeps_to_its_budget_and_says_what_it_did() -> None:
    summary = standard_set(1.0)
    assert summary.violations == 0
    assert {cell.mode for cell in summary.cells} == {"kill", "power", "fault"}
    assert all(cell.counts.points > 0 for cell in summary.cells)
    assert summary.facts["journal_mode"] == "wal"
