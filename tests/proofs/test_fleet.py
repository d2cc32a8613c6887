"""The fleet: real processes, killed and frozen; small here, the whole by ``turnproof crash --workers 4``."""

from __future__ import annotations

import attrs

from turnproof.proofs.fleet import JUDGED, describe, run_fleet


def test_processes_that_are_killed_and_frozen_settle_everything_once() -> None:
    report = run_fleet(workers=3, submissions=15, seed=11, budget=60)
    assert report.faults == ()
    assert report.unsettled == 0
    assert report.verdict == "conforms"
    assert {(p.verdict, *p.evidence.items()) for p in report.report().promises.values()} == {
        ("kept", ("histories", 15))
    }
    assert report.report().promises.keys() == JUDGED
    assert report.kills + report.freezes > 0
    assert report.provider_calls >= 15
    assert "no violation" in describe(report)


def test_the_report_says_what_is_wrong() -> None:
    report = run_fleet(workers=1, submissions=3, seed=2, budget=0)
    assert report.verdict == "undecided"
    assert {(p.verdict, *p.evidence) for p in report.report().promises.values()} == {("not_checked",)}
    assert "undecided" in describe(report)
    bad = attrs.evolve(report, faults=("E1: a tool ran twice",))
    assert bad.report().exit == 1
    assert bad.report().promises["E1"].verdict == "broken"
    assert "violation of E1" in describe(bad)
