"""Trace files: the cases handed in and those of the field, on the store, on the model, and over the wire."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from turnproof.proofs.adapter import Adapter
from turnproof.proofs.cli import main
from turnproof.proofs.replay import play_case
from turnproof.proofs.subjects import ModelSubject, StoreSubject, Subject
from turnproof.proofs.traces import Case, Step, TraceError, fits, read_trace, write_trace
from turnproof.proofs.wire import Err, Json, Ok

CASES = Path(__file__).parent.parent / "cases"
SERVE = [sys.executable, "-m", "turnproof.proofs", "serve"]
HANDED = read_trace(CASES / "handed.jsonl")
FIELD = read_trace(CASES / "field.jsonl")


@pytest.fixture(scope="module", params=["store", "model", "serve", "serve --model"])
def subject(request: pytest.FixtureRequest) -> Iterator[Subject]:
    with ExitStack() as stack:
        match request.param:
            case "store":
                yield StoreSubject()
            case "model":
                yield ModelSubject()
            case "serve":
                yield stack.enter_context(Adapter(SERVE))
            case _:
                yield stack.enter_context(Adapter([*SERVE, "--model"]))


@pytest.mark.parametrize("case", [*HANDED, *FIELD], ids=lambda case: case.name)
def test_case(case: Case, subject: Subject, tmp_path: Path) -> None:
    played = play_case(case, subject, tmp_path / "store")
    if "recovery" in subject.identity.capabilities or not any(step.op == "recover" for step in case.steps):
        assert played.verdict == "passed", played.reason
    else:
        assert (played.verdict, played.reason) == ("not offered", "needs recovery")


def test_the_field_is_quoted() -> None:
    assert len(FIELD) > 40
    assert all("#" in case.about or case.about.startswith("stores of this design") for case in FIELD)


@pytest.mark.parametrize(
    ("expect", "got", "same"),
    [
        ({"a": 1}, {"a": 1, "b": 2}, True),
        ({"a": None}, {}, True),
        ({}, {"a": 1}, True),
        ({"a": 1}, {}, False),
        ([1], [1], True),
        ([1], [1, 2], False),
        ([{"a": 1}], [{"a": 1, "b": 2}], True),
        (True, 1, False),
        (0, False, False),
        (None, None, True),
        ("a", "a", True),
        ({"a": 1}, [1], False),
    ],
)
def test_expectations_match_objects_in_part_and_lists_exactly(expect: Json, got: Json, same: bool) -> None:
    assert fits(expect, got) is same


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    cases = (
        Case("one", (Step("position", {"run_id": "r"}, Ok(0)), Step("crash"), Step("state", {"run_id": "r"}))),
        Case("two", (Step("state", {"run_id": "r"}, Err("run_not_found")),), about="\ud800 é"),
    )
    write_trace(tmp_path / "t.jsonl", cases)
    read = read_trace(tmp_path / "t.jsonl")
    assert [(c.name, c.about, [(s.op, s.args, s.expect) for s in c.steps]) for c in read] == [
        (c.name, c.about, [(s.op, s.args, s.expect) for s in c.steps]) for c in cases
    ]


MALFORMED = {
    '{"op":"levitate"}': "line 1: there is no operation 'levitate'",
    '{"case":"a"}\n{"op":"position","expect":{}}': "line 2: 'expect'",
    '{"case":"a"}\n\n{"op":"position","expect":{"error":"oops"}}': "line 3: unknown error code 'oops'",
    '{"case":5}': "line 1: a case has its name",
    '{"case":"a","choices":{"mood":"good"}}': "line 1: unknown choice",
    "[]": "line 1: a step is a JSON object",
    '{"op":"position","args":[]}': "line 1: 'args'",
    "nonsense": "line 1: the line is not JSON",
    "": "no case",
}


@pytest.mark.parametrize("text", MALFORMED)
def test_a_malformed_trace_is_an_error_that_names_the_line(
    text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "t.jsonl"
    file.write_text(text)
    with pytest.raises(TraceError):
        read_trace(file)
    assert main(["replay", str(file)]) == 2
    shown = capsys.readouterr()
    assert MALFORMED[text] in shown.err
    assert str(file) in shown.err
    assert shown.out == ""


def test_a_trace_may_ask_for_what_no_store_has(tmp_path: Path) -> None:
    """An operation that is not known answers ``unsupported`` (PROTOCOL), and a trace may hold an adapter to that."""
    file = tmp_path / "t.jsonl"
    file.write_text('{"op":"levitate","args":{"a":1},"expect":{"error":"unsupported"}}\n')
    assert main(["replay", str(file)]) == 0
    assert main(["replay", str(file), "--", *SERVE]) == 0


def test_a_failing_step_shows_what_was_expected_and_what_came(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "t.jsonl"
    file.write_text(
        '{"case":"good"}\n{"op":"position","args":{"run_id":"r"},"expect":{"ok":0}}\n'
        '{"case":"bad"}\n{"op":"append","args":{"run_id":"r","record":{"kind":"turn"}}}\n{"op":"reopen"}\n'
        '{"op":"position","args":{"run_id":"r"},"expect":{"ok":7}}\n'
    )
    assert main(["replay", str(file)]) == 1
    shown = capsys.readouterr().out
    assert "passed       good" in shown
    assert "failed       bad: step 3 (line 6): position" in shown
    assert 'expected {"ok":7}' in shown
    assert 'got      {"ok":1}' in shown
    assert main(["replay", str(file), "--only", "good"]) == 0
    assert main(["replay", str(file), "--only", "ugly"]) == 2
    assert "there are: good, bad" in capsys.readouterr().err


def test_a_case_for_other_choices_is_not_held_against_a_store(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "t.jsonl"
    file.write_text('{"case":"loose","choices":{"anchors":"trusted"}}\n{"op":"has_unsettled","expect":{"ok":false}}\n')
    assert main(["replay", str(file)]) == 3
    assert "not offered  loose" in capsys.readouterr().out
    assert main(["replay", str(file), "--model", "--choice", "anchors=trusted"]) == 0
