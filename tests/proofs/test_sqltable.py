"""The table of the store's statements: complete, without a difference, and able to show one."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import pytest

from turnproof.model.operations import ALPHABET, READS
from turnproof.model.vocabulary import Phase
from turnproof.proofs import prove, sqltable
from turnproof.proofs.contracts.seeded import SEEDED
from turnproof.proofs.mutation import Edit, load_mutated


def test_every_cell_of_the_table_is_as_in_the_model(tmp_path: Path) -> None:
    result = sqltable.compare(tmp_path / "store")
    assert result.differences == ()
    assert (result.priors, result.cells, result.differing) == (109, 32_155, 0)
    # A table that is refused everywhere would show nothing.
    assert result.accepted > 500
    assert {"J2", "J3", "J4", "J5", "J6", "J7", "J8", "J9", "J10", "J12"} <= set(result.promises)
    assert {"T1", "T2", "T3", "T5", "T6", "T7", "L2", "L3", "L4", "L5", "L6", "L7", "A4"} <= set(result.promises)


def test_the_states_are_all_phases_holders_and_stamps() -> None:
    priors = list(sqltable.priors())
    assert len(set(priors)) == len(priors)
    for status in ("queued", "running", "marked", "settled"):
        mine = [prior for prior in priors if prior.status == status]
        assert {prior.phase for prior in mine} == {None, *Phase}
        for phase in Phase:
            there = [prior for prior in mine if prior.phase is phase]
            assert {prior.held for prior in there} == {True, False}
            started = phase is not Phase.BEFORE_PROVIDER
            assert {prior.consumed for prior in there} == ({True, False} if started else {False})
    assert [prior for prior in priors if prior.status == "absent"] == [sqltable.Prior(status="absent")]


def test_every_conditional_verb_of_a_submission_is_in_the_table() -> None:
    verbs = {verb for verb, _ in sqltable._probes("s", "r")}
    by_attempt = {
        verb
        for verb, operation in ALPHABET.items()
        if verb not in READS and hasattr(operation, "attempt_id") and not verb.endswith("marker")
    }
    assert verbs == by_attempt | {"renew_leases"}


@pytest.mark.parametrize("name", sqltable.IN_SQL)
def test_the_same_error_in_the_sql_is_found(name: str, tmp_path: Path) -> None:
    running = [prior for prior in sqltable.priors() if prior.status in ("running", "marked")]
    result = sqltable.compare(tmp_path / "store", load_mutated(f"table-{name}", (sqltable.IN_SQL[name],)), running)
    assert result.differing > 0
    cell = result.differences[0]
    assert cell.steps[-1] == {"op": cell.operation, "args": cell.args}
    assert set(cell.rule.split()) & {"J7", "J4", "T1"}


def test_the_errors_are_those_of_the_model_and_must_apply() -> None:
    assert set(sqltable.IN_SQL) == set(SEEDED)
    with pytest.raises(ImportError, match="occurs 0 times"):
        load_mutated("table-no-pattern", (Edit("journal", "no such statement", ""),))


def test_prove_goes_through_the_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    parser = argparse.ArgumentParser()
    prove.add_arguments(parser)
    file = tmp_path / "report.json"
    words = ["--only", "table", "--seed-error", "tools-back-to-provider", "--json", str(file)]
    assert prove.run(parser.parse_args(words)) == 1
    assert "broken: J4  update_turn_journal_phase on running, slot tool_request_recorded" in capsys.readouterr().out
    report = json.loads(file.read_text())
    assert report["violations"][0]["promise"] == "J4"
    assert (report["counts"]["cells"], report["promises"]["J9"]["evidence"]) == (32_155, {"cells": 1308})
