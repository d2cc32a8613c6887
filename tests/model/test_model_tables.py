"""The decision tables: for every combination of their predicates exactly one row fits, and every row is reached."""

from __future__ import annotations

from collections import Counter
from itertools import product

import pytest

from turnproof.model import journal, recovery, repair
from turnproof.model.journal import Event
from turnproof.model.recovery import Facts, Input
from turnproof.model.repair import Finding, Item, Sort, Verdict, examine
from turnproof.model.vocabulary import Phase

BOTH = (False, True)


def test_exactly_one_row_of_the_repair_table_fits() -> None:
    reached: Counter[str] = Counter()
    for stray, is_open, followed, recorded in product(BOTH, repeat=4):
        fitting = [
            row for row in repair.ROWS if row.fits(stray=stray, open=is_open, followed=followed, recorded=recorded)
        ]
        assert len(fitting) == 1, (stray, is_open, followed, recorded)
        reached[fitting[0].name] += 1
    assert reached == {"stray": 8, "whole": 4, "hole": 2, "torn": 1, "pending": 1}
    assert set(reached) == {row.name for row in repair.ROWS}


@pytest.mark.parametrize("row", repair.ROWS, ids=lambda row: row.name)
def test_every_row_of_the_repair_table_says_how_its_state_arises(row: repair.Row) -> None:
    assert len(row.arises) > 40
    assert row.promise.startswith("P")


PATHS = {
    # row: a path that it decides, whether the journal holds its first step, and where
    "stray": ((Item(Sort.TOOL, (), (1,)),), None, 0),
    "whole": ((Item(Sort.ASSISTANT, (1,)), Item(Sort.TOOL, (), (1,))), 0, -1),
    "hole": ((Item(Sort.ASSISTANT, (1,)), Item(Sort.MESSAGE)), None, 0),
    "torn": ((Item(Sort.MESSAGE), Item(Sort.ASSISTANT, (1,)), Item(Sort.OTHER)), None, 1),
    "pending": ((Item(Sort.MESSAGE), Item(Sort.ASSISTANT, (1,))), 1, 1),
}


@pytest.mark.parametrize("name", PATHS)
def test_every_row_of_the_repair_table_is_reached_by_a_path(name: str) -> None:
    path, recorded, at = PATHS[name]
    finding = examine(path, recorded)
    assert (finding.row.name, finding.at) == (name, at)


def every_fact() -> list[Facts]:
    """All combinations that can arise: an assistant entry is looked for in provider_started only."""
    return [
        Facts(running=running, phase=phase, answered=answered, exhausted=exhausted, input=found, replayable=replayable)
        for running, phase, answered, exhausted, found, replayable in product(
            BOTH, (None, *Phase), BOTH, BOTH, Input, BOTH
        )
        if not answered or phase is Phase.PROVIDER_STARTED
    ]


def test_exactly_one_row_of_the_recovery_table_fits() -> None:
    reached: Counter[str] = Counter()
    for facts in every_fact():
        fitting = [row for row in recovery.ROWS if row.fits(facts)]
        assert len(fitting) == 1, facts
        assert recovery.decide(facts) is fitting[0]
        reached[fitting[0].decision] += 1
    assert sum(reached.values()) == len(every_fact()) == 144
    assert list(dict.fromkeys(row.decision for row in recovery.ROWS)) == [
        *("none", "finish", "commit_stored", "give_up", "requeue"),
        *("mark_input", "run_turn", "redrive", "replay_stream", "interrupt_tools"),
    ]
    assert set(reached) == {row.decision for row in recovery.ROWS}


@pytest.mark.parametrize("row", recovery.ROWS, ids=lambda row: row.decision)
def test_every_row_of_the_recovery_table_says_how_its_state_arises(row: recovery.Row) -> None:
    assert len(row.arises) > 40


def test_the_transition_table_lists_every_phase_and_is_the_picture_of_the_specification() -> None:
    assert set(journal.TABLE) == {None, *Phase}
    arrows = {
        (phase, event, journal.TABLE[phase][event])
        for phase, event in product((None, *Phase), Event)
        if event in journal.TABLE[phase]
    }
    before, started, recorded, committed = Phase
    assert arrows == {
        *((phase, Event.BEGIN, before) for phase in (None, *Phase)),
        (before, Event.START_PROVIDER, started),
        (started, Event.CONSUME_STREAM, started),
        (started, Event.RECORD_TOOL_REQUEST, recorded),
        (started, Event.COMMIT, committed),
        (recorded, Event.COMMIT, committed),
    }


# --- all short paths (P1, P2, P3, P6, P9) ---------------------------------------------------------------------------

IDS = ((), (1,), (2,), (1, 2))
ITEMS = [
    Item(Sort.OTHER),
    *(Item(Sort.ASSISTANT, calls, results) for calls in IDS for results in ((), (1,))),
    *(Item(Sort.TOOL, calls, results) for calls in ((), (1,)) for results in (*IDS, (1, 1))),
    *(Item(Sort.MESSAGE, calls, results) for calls in ((), (1,)) for results in ((), (1,))),
]
"""Entries over two call ids: all sorts, up to two calls and two results, well-formed ones and strays."""


WELL_FORMED = [item for item in ITEMS if len(item.calls) + len(item.results) <= 1 or item.calls == (1, 2)]


def test_every_short_path_is_repaired_to_a_sound_prefix() -> None:
    verdicts: Counter[Verdict] = Counter()
    paths = [path for length in range(4) for path in product(ITEMS, repeat=length)]
    for path in (*paths, *product(WELL_FORMED, repeat=4)):
        finding = examine(path)
        verdicts[finding.row.verdict] += 1
        _check(path, finding)
    # A changed count is an alarm: either the alphabet changed or the rules did.
    assert verdicts == {Verdict.KEEP: 540, Verdict.CUT: 662, Verdict.CORRUPT: 49_934}


def _check(path: tuple[Item[int], ...], finding: Finding) -> None:
    if finding.row.verdict is not Verdict.CUT:
        return
    kept, cut = path[: finding.at], path[finding.at :]
    assert examine(kept).row.verdict is Verdict.KEEP  # a fixpoint, and no complete step was dropped
    assert cut[0].sort is Sort.ASSISTANT and cut[0].calls
    assert all(item.sort in (Sort.TOOL, Sort.OTHER) for item in cut[1:])
    assert examine(path, finding.at).row.verdict is Verdict.CLOSE  # P9: the journal keeps the same step
