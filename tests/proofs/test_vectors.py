"""The covering histories: they cover, the model and the SQLite store keep them, and the files can be read again."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import pytest

from turnproof.model.system import EMPTY, apply
from turnproof.proofs import vectors
from turnproof.proofs.explore.cover import cover, explored, replay_on
from turnproof.proofs.explore.scope import SCOPES
from turnproof.proofs.history import Divergence
from turnproof.proofs.subjects import StoreSubject, expected
from turnproof.proofs.traces import read_trace
from turnproof.proofs.wire import Ok, decode_operation


def test_the_walks_take_every_edge_and_start_from_an_empty_store() -> None:
    covered = cover(explored(SCOPES["one"]))
    edges = covered.edges
    walks = list(covered.walks())
    assert (edges, covered.edges) == (3970, 0)
    taken = set()
    for walk in walks:
        state = EMPTY
        for operation in walk:
            taken.add((state, operation))
            state, _ = apply(state, operation)
    assert len(taken) == edges + 1  # and the admission


@pytest.mark.parametrize(("name", "limit"), [("tiny", None), ("one", 40), ("single-appends", 25), ("notices", 25)])
def test_the_sqlite_store_goes_the_same_ways(name: str, limit: int | None, tmp_path: Path) -> None:
    covered = cover(explored(SCOPES[name]))
    edges = covered.edges
    tally = replay_on(StoreSubject(flush="relaxed"), covered, tmp_path, limit)
    assert tally.reads >= tally.operations  # the store is read whole after every one
    assert (covered.edges == 0) is (limit is None)
    assert edges - covered.edges > 200


def test_a_store_that_differs_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    subject = StoreSubject(flush="relaxed")
    real = subject.call
    monkeypatch.setattr(
        StoreSubject, "call", lambda self, op: Ok(True) if op.verb == "commit_turn_journal" else real(op)
    )
    with pytest.raises(Divergence):
        replay_on(subject, cover(explored(SCOPES["tiny"])), tmp_path)


def test_the_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    parser = argparse.ArgumentParser()
    vectors.add_arguments(parser)
    assert vectors.run(parser.parse_args(["-o", str(tmp_path), "--scope", "tiny", "--itf", "3"])) == 0
    assert "16 histories" in capsys.readouterr().out
    cases = read_trace(tmp_path / "tiny.jsonl")
    assert len(cases) == 16
    for case in cases:
        state = EMPTY
        for step in case.steps:
            operation = decode_operation(step.op, step.args, 0)
            model = expected(operation, state, SCOPES["tiny"].choices)
            assert step.expect == model.outcome
            state = model.state
    files = sorted((tmp_path / "itf").iterdir())
    assert [file.name for file in files] == [f"tiny-000{n}.itf.json" for n in (1, 2, 3)]
    trace = json.loads(files[0].read_text())
    assert trace["#meta"]["format"] == "ITF"
    assert all(set(trace["vars"]) == set(state) - {"#meta"} for state in trace["states"])
    assert [state["#meta"]["index"] for state in trace["states"]] == list(range(len(trace["states"])))
    assert "null" not in files[0].read_text()
