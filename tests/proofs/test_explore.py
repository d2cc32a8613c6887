"""The explorer: pinned counts, no violation by the reference, every wrong design refuted, symmetry sound."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from turnproof.impl import open_store
from turnproof.model.choices import STRICT, Choices
from turnproof.model.driver import Driver, End, Stage
from turnproof.model.turn import TABLE
from turnproof.proofs import explore
from turnproof.proofs.explore.designs import DESIGNS
from turnproof.proofs.explore.laws import LAWS
from turnproof.proofs.explore.machine import Machine
from turnproof.proofs.explore.orbits import orbit_sizes, reduced, unreduced
from turnproof.proofs.explore.schedule import Schedule
from turnproof.proofs.explore.scope import SCOPES, Scope
from turnproof.proofs.explore.search import Search
from turnproof.proofs.explore.sometimes import missing
from turnproof.proofs.explore.timeline import draw
from turnproof.proofs.runner import Held, on_store
from turnproof.proofs.terminal import UserError

# A changed count is an alarm: the rules, the driver, or the meaning of a step changed.
# The default scope takes half a minute and is run by the gate: 2,353,252 states, 8,118,421 transitions, depth 70.
PINNED = {
    # scope: states, transitions, depth, states of the store
    "tiny": (578, 1_139, 22, 54),
    "one": (69_387, 236_159, 41, 507),
    "single-appends": (82_402, 281_605, 43, 616),
    "notices": (83_801, 201_097, 41, 2_410),
    "renewals": (81_317, 227_232, 40, 1_011),
    "replay": (25_460, 56_073, 42, 866),
}


@pytest.mark.parametrize("name", PINNED)
def test_the_reference_holds_in_every_schedule_of_a_scope(name: str) -> None:
    found = explore.explore(SCOPES[name])
    search = found.search
    assert search.exhausted
    assert search.found == []
    assert search.dead_ends == 0
    assert found.missing == ()
    assert found.verdict == "conforms"
    assert (search.states, search.transitions, search.depth, len(search.machine.stores)) == PINNED[name]


def test_two_submissions_and_a_budget() -> None:
    scope = attrs.evolve(SCOPES["default"], plan=((1, 0), (0,)), workers=2)
    found = explore.explore(scope)
    assert (found.verdict, found.missing) == ("conforms", ())
    assert (found.search.states, found.search.transitions) == (169_760, 372_598)


@pytest.mark.parametrize(
    "scope", [SCOPES["tiny"], attrs.evolve(SCOPES["tiny"], plan=((1, 0),), retries=(1,))], ids=["text", "tool"]
)
def test_the_orbits_of_the_reduced_states_add_up_to_the_full_count(scope: Scope) -> None:
    pool = ("a1", "a2", "a3")
    small, full = reduced(scope), unreduced(scope, pool)
    assert small.exhausted and full.exhausted
    assert (small.found, full.found) == ([], [])
    assert full.states > 5 * small.states
    assert sum(orbit_sizes(small, pool)) == full.states


STEPS = {
    "begin-without-ownership": 8,
    "append-without-fence": 6,
    "repair-before-transfer": 13,
    "phase-after-tools": 19,
    "request-before-message": 14,
    "budget-before-finished-work": 24,
    "ids-not-from-the-turn": 17,
    "shutdown-commits": 12,
    "count-reset-on-claim": 7,
}


@pytest.mark.parametrize("name", DESIGNS)
def test_a_wrong_design_is_refuted_by_a_shortest_history(name: str) -> None:
    design = DESIGNS[name]
    found = explore.explore(design.bounds, design)
    assert found.verdict == "violation"
    (violation,) = found.search.found
    assert violation.fault.promise == design.refuted_by
    assert len(violation.steps) == STEPS[name]
    timeline = draw(violation.steps, design.scope.workers).splitlines()
    assert len(timeline) == len(violation.steps) + 1
    assert "worker 1" in timeline[0] and "worker 2" in timeline[0]
    assert timeline[1].split() == ["1", "claim", "s1", *["|"] * (timeline[0].count("worker") - 1)]


@pytest.mark.parametrize("name", DESIGNS)
def test_the_reference_survives_where_a_wrong_design_does_not(name: str) -> None:
    """The same bounds, the same laws, the reference rules: what refutes the design is the design."""
    bounds = attrs.evolve(DESIGNS[name].scope, choices=STRICT, workers=2, crashes=1)
    assert explore.explore(bounds).search.found == []


def test_a_dead_end_is_found() -> None:
    """A recovery that gives its work up without a word leaves a submission that nothing can settle."""

    def gives_up(d: Driver, _: object, __: int) -> Driver:
        return Driver(job=d.job, stage=Stage.DONE, end=End.LOST)

    lazy = {**TABLE, Stage.REQUEUE: attrs.evolve(TABLE[Stage.REQUEUE], take=gives_up, ask=TABLE[Stage.LOOK].ask)}
    search = Search(Machine(SCOPES["tiny"], lazy))
    search.run()
    assert search.exhausted
    assert search.dead_ends > 0
    assert search.found[0].fault.promise == "E5"


def test_what_is_never_reached_fails_the_run() -> None:
    alone = attrs.evolve(SCOPES["tiny"], workers=1, crashes=0)
    found = explore.explore(alone)
    assert found.search.exhausted
    assert {"decision redrive", "refused complete"} <= set(found.missing)
    assert found.verdict == "violation"
    assert missing(found.search.machine) == found.missing


def test_the_budget_leaves_it_undecided() -> None:
    assert explore.explore(SCOPES["one"], budget=0).verdict == "undecided"


# --- the verb ---------------------------------------------------------------------------------------------------------


def verb(*words: str) -> int:
    parser = argparse.ArgumentParser()
    explore.add_arguments(parser)
    return explore.run(parser.parse_args(words))


def test_the_verb_tells_its_figures(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert verb("--scope", "tiny", "--json", str(tmp_path / "figures.json")) == 0
    told = capsys.readouterr().out
    assert "578 states, 1,139 transitions, depth 22" in told
    assert "no violation" in told
    report = json.loads((tmp_path / "figures.json").read_text())
    (figures,) = report["explorations"]
    assert (report["report"], report["verb"], report["verdict"], report["violations"]) == (1, "explore", "conforms", [])
    assert report["counts"] == {"states": 578, "transitions": 1139, "depth": 22}
    assert {promise: row["evidence"] for promise, row in report["promises"].items()} == {
        promise: {"states": 578} for promise in LAWS
    }
    assert (figures["states"], figures["dead_ends"]) == (578, 0)
    assert figures["bytes_per_state"] > 0


def test_an_exploration_that_ran_out_of_time_is_no_evidence(capsys: pytest.CaptureFixture[str]) -> None:
    assert verb("--budget", "0.01", "--json", "-") == 3
    report = json.loads(capsys.readouterr().out)
    assert report["verdict"] == "undecided"
    assert {(row["verdict"], *row["evidence"]) for row in report["promises"].values()} == {("not_checked",)}


def test_the_verb_draws_a_refutation(capsys: pytest.CaptureFixture[str]) -> None:
    assert verb("--design", "append-without-fence") == 1
    told = capsys.readouterr().out
    assert "violation of E7" in told
    assert "transfer a1 -> a2" in told
    assert verb("--design", "append-without-fence", "--json", "-") == 1
    report = json.loads(capsys.readouterr().out)
    assert [step["worker"] for step in report["violations"][0]["steps"]] == [1, 1, 1, 2, 2, 1]
    assert {promise: (row["verdict"], row["evidence"]) for promise, row in report["promises"].items()} == {
        "E7": ("broken", {})
    }


def test_the_verb_puts_what_it_explored_to_the_store(capsys: pytest.CaptureFixture[str]) -> None:
    assert verb("--scope", "tiny", "--workers", "1", "--attempts", "1", "--on-store") == 1  # never taken over
    assert "no difference" in capsys.readouterr().err


@pytest.mark.parametrize("words", [("--plan", "x"), ("--workers", "9"), ("--retries", "")])
def test_bad_bounds_are_a_users_mistake(words: tuple[str, str]) -> None:
    with pytest.raises(UserError):
        verb(*words)


# --- long runs ----------------------------------------------------------------------------------------------------

PLANS = st.lists(st.sampled_from([(0,), (1, 0), (2, 0), (1, 2, 0)]), min_size=2, max_size=6).map(tuple)
CHOICES = st.lists(st.integers(0, 2**20), min_size=20, max_size=150)


def long_scope(plan: tuple[tuple[int, ...], ...], atomic: bool, replay: bool) -> Scope:
    choices = Choices(stream_recovery="replay") if replay else STRICT
    return Scope(name="long", plan=plan, retries=(10, 2, 3), workers=4, pieces=2, atomic_steps=atomic, choices=choices)


@settings(max_examples=40, deadline=None, derandomize=True, database=None)
@given(PLANS, CHOICES, st.booleans(), st.booleans())
def test_long_runs_on_the_model(
    plan: tuple[tuple[int, ...], ...], choices: list[int], atomic: bool, replay: bool
) -> None:
    schedule = Schedule(Held(), long_scope(plan, atomic, replay))
    schedule.run(choices)
    assert schedule.faults == []


@settings(max_examples=12, deadline=None, derandomize=True, database=None)
@given(PLANS, CHOICES, st.booleans(), st.booleans())
def test_long_runs_on_the_sqlite_store(
    tmp_path_factory: pytest.TempPathFactory,
    plan: tuple[tuple[int, ...], ...],
    choices: list[int],
    atomic: bool,
    replay: bool,
) -> None:
    with open_store(tmp_path_factory.mktemp("store"), flush="relaxed") as store:
        schedule = Schedule(on_store(store), long_scope(plan, atomic, replay))
        schedule.run(choices)
    assert schedule.faults == []
