"""The record log and the stream segments, one story a test; and the edges of what a record may hold."""

from __future__ import annotations

import json

import pytest
from attrs import evolve
from model_stories import RUN, Story, answers, asks, says, user

from turnproof.model import stream
from turnproof.model.decision import Accept, Refuse
from turnproof.model.log import cleanup_due, run_view
from turnproof.model.payload import MAX_JSON_DEPTH
from turnproof.model.rows import Draft
from turnproof.model.vocabulary import ErrorCode, RunState


def test_records_are_numbered_densely_and_a_replay_answers_the_first_seq() -> None:
    story = Story()
    assert story.do("position", run_id=RUN) == 0
    assert story.do("append", run_id=RUN, record=user("e1", "")) == 1
    assert story.do("append_step", run_id=RUN, records=(asks("e2", "e1", "c1"), answers("e3", "e2", "c1"))) == (2, 3)
    before = story.state
    assert story.do("append", run_id=RUN, record=user("e1", "")) == 1
    assert story.do("append_step", run_id=RUN, records=(asks("e2", "e1", "c1"), answers("e3", "e2", "c1"))) == (2, 3)
    assert story.do("append", run_id=RUN, record=user("e1", ""), expected_position=0) == 1
    assert story.state == before
    assert [record.seq for record in story.do("replay", run_id=RUN)] == [1, 2, 3]


def test_a_timestamp_is_not_content_and_everything_else_is() -> None:
    story = Story().append(user("e1", ""))
    assert story.do("append", run_id=RUN, record=evolve(user("e1", ""), timestamp=7)) == 1
    for change in ({"text": "x"}, {"role": "tool"}, {"ext_type": "x"}, {"kind": "extension_data"}):
        story.error(ErrorCode.ENTRY_CONFLICT, "append", run_id=RUN, record=evolve(user("e1", ""), **change))


def test_a_step_is_stored_whole_or_not_at_all() -> None:
    story = Story().append(user("e1", ""))
    step = (asks("e2", "e1", "c1"), answers("e3", "e2", "c1"))
    story.do("append", run_id=RUN, record=step[0])
    story.error(ErrorCode.ENTRY_CONFLICT, "append_step", run_id=RUN, records=step)
    twice = (says("e4", "e2"), says("e4", "e2"))
    story.error(ErrorCode.ENTRY_CONFLICT, "append_step", run_id=RUN, records=twice)
    story.error(ErrorCode.ENTRY_NOT_FOUND, "append_step", run_id=RUN, records=(says("e4", "e2"), says("e5", "e9")))
    story.error(ErrorCode.INVALID_RECORD, "append_step", run_id=RUN, records=(says("e4", "e2"), Draft(kind="what")))
    assert story.do("append_step", run_id=RUN, records=()) == ()
    assert story.do("append_step", run_id=RUN, records=(step[1], says("e4", "e3"))) == (3, 4)


def test_records_without_an_entry_count_as_stored_at_the_same_offset() -> None:
    story = Story()
    step = (Draft(kind="turn", text="t1"), user("e1", ""), Draft(kind="completion"))
    assert story.do("append_step", run_id=RUN, records=step) == (1, 2, 3)
    assert story.do("append_step", run_id=RUN, records=step) == (1, 2, 3)
    story.error(ErrorCode.ENTRY_CONFLICT, "append_step", run_id=RUN, records=(Draft(kind="turn", text="t2"), *step[1:]))
    assert story.do("append", run_id=RUN, record=step[0]) == 4


def test_expected_position_guards_the_write() -> None:
    story = Story().append(user("e1", ""))
    story.refused("append", run_id=RUN, record=says("e2", "e1"), expected_position=0)
    assert story.do("append", run_id=RUN, record=says("e2", "e1"), expected_position=1) == 2


def test_the_run_state_moves_with_its_record() -> None:
    story = Story()
    story.error(ErrorCode.RUN_NOT_FOUND, "state", run_id=RUN)
    story.error(ErrorCode.RUN_NOT_FOUND, "replay", run_id=RUN)
    story.append(user("e1", ""))
    assert story.do("state", run_id=RUN) == "pending"
    assert story.do("checkpoint", run_id=RUN, state="running") == 2
    step = (Draft(kind="state", state="failed"), Draft(kind="state", state="waiting"))
    story.do("append_step", run_id=RUN, records=step)
    assert story.do("state", run_id=RUN) == "waiting"
    story.error(ErrorCode.INVALID_RECORD, "checkpoint", run_id=RUN, state="asleep")
    story.do("append", run_id="bonnie.books", record=Draft(kind="turn"))
    assert story.do("runs") == ("bonnie.books", RUN)
    assert story.do("runs", include_reserved=False) == (RUN,)
    assert story.do("runs", state="pending") == ("bonnie.books",)
    story.error(ErrorCode.INVALID_ARGUMENT, "runs", state="asleep")


@pytest.mark.parametrize("state", RunState)
def test_cleanup_is_due_once_per_terminal_state(state: RunState) -> None:
    """R17: pending, running, waiting and interrupted runs keep their files."""
    terminal = state.value in ("completed", "failed", "cancelled", "retired")
    story = Story()
    story.do("checkpoint", run_id=RUN, state=state.value)
    assert cleanup_due(story.state.runs[RUN]) is terminal
    story.append(Draft(kind="workspace_deleted"))
    assert not cleanup_due(story.state.runs[RUN])
    story.do("checkpoint", run_id=RUN, state="completed")
    assert cleanup_due(story.state.runs[RUN])


def test_the_view_of_a_run_is_of_this_turn() -> None:
    """R18: a cancellation counts for the turn that it names, and until the run is cancelled or goes on."""
    story = Story().append(Draft(kind="turn", text="t1"), Draft(kind="context", text="be kind"))
    story.append(Draft(kind="cancel", text="t0"))
    view = run_view(story.state.runs[RUN])
    assert (view.turn, view.cancel_requested, view.contexts) == ("t1", False, ("be kind",))
    story.append(Draft(kind="cancel", text="t1"), Draft(kind="suspend", text="ask"), Draft(kind="sandbox", text="box"))
    view = run_view(story.state.runs[RUN])
    assert view.cancel_requested
    assert view.suspension is not None and view.suspension.text == "ask"
    assert view.sandbox is not None and view.sandbox.text == "box"
    story.append(Draft(kind="resume"), Draft(kind="trigger", text="go"), Draft(kind="state", state="cancelled"))
    view = run_view(story.state.runs[RUN])
    assert (view.cancel_requested, view.suspension) == (False, None)
    assert view.trigger is not None and view.trigger.text == "go"
    story.append(Draft(kind="cancel", text="t1"), Draft(kind="turn", text="t2"))
    view = run_view(story.state.runs[RUN])
    assert (view.turn, view.cancel_requested, view.contexts) == ("t2", False, ())


# --- segments (S1, S2, S3, S6) --------------------------------------------------------------------------------------


def test_segments_are_written_once_and_read_in_order() -> None:
    story = Story()
    for index in (2, 0, 5):
        assert story.do("append_stream_segment", stream_key="k", segment_index=index, body=f"b{index}") is True
    story.refused("append_stream_segment", stream_key="k", segment_index=2, body="b2")
    story.refused("append_stream_segment", stream_key="k", segment_index=2, body="other")
    story.error(ErrorCode.INVALID_ARGUMENT, "append_stream_segment", stream_key="k", segment_index=-1, body="")
    found = story.do("get_stream_segments", stream_key="k")
    assert [(s.segment_index, s.body) for s in found] == [(0, "b0"), (2, "b2"), (5, "b5")]
    assert stream.captured(story.state.segments["k"]) == ("b0",)
    story.do("append_stream_segment", stream_key="k", segment_index=1, body="b1")
    assert stream.captured(story.state.segments["k"]) == ("b0", "b1", "b2")
    assert story.do("get_stream_segments", stream_key="other") == ()
    story.do("delete_stream_segments", stream_key="k")
    story.do("delete_stream_segments", stream_key="k")
    assert story.do("get_stream_segments", stream_key="k") == ()


def test_the_kernel_of_segments_keeps_its_order() -> None:
    assert stream.insert((), 0, "a") == Accept(((0, "a"),), "S1 S2")
    assert stream.insert(((0, "a"), (2, "c")), 1, "b") == Accept(((0, "a"), (1, "b"), (2, "c")), "S1 S2")
    assert stream.insert(((1, "b"),), 1, "x") == Refuse("S1")
    assert stream.captured(()) == stream.captured(((1, "b"),)) == ()


# --- what a payload may hold (R7) -----------------------------------------------------------------------------------

DEEP = "[" * MAX_JSON_DEPTH + "]" * MAX_JSON_DEPTH

KEPT = {
    "a key twice": '{"a":1,"a":2}',
    "a NUL as an escape": '{"a":"\\u0000"}',
    "an emoji": '{"a":"\U0001f600"}',
    "a lone surrogate as an escape": '{"a":"\\ud800"}',
    "a megabyte": json.dumps("x" * 2**20),
    "a number beyond any float": '{"a":1e999999}',
    "brackets inside a text": json.dumps("[" * 10_000),
    "as deep as may be": DEEP,
    "white space": ' {"a" : 1 }\n',
}
REFUSED = {
    "NaN": '{"a":NaN}',
    "Infinity": "[-Infinity]",
    "a byte order mark": '\ufeff{"a":1}',
    "too deep": f"[{DEEP}]",
    "a raw NUL in a text": '{"a":"\x00"}',
    "single quotes": "{'a':1}",
    "a trailing comma": "[1,]",
    "two values": "1 2",
}


@pytest.mark.parametrize("case", KEPT)
def test_a_json_payload_is_kept_byte_for_byte(case: str) -> None:
    story = Story().append(Draft(kind="completion", payload=KEPT[case]))
    assert story.do("replay", run_id=RUN)[0].payload == KEPT[case]


@pytest.mark.parametrize("case", REFUSED)
def test_a_payload_that_is_no_json_is_refused(case: str) -> None:
    Story().error(
        ErrorCode.INVALID_RECORD, "append", run_id=RUN, record=Draft(kind="completion", payload=REFUSED[case])
    )


BAD_SHAPES = {
    "no parts": ("message", '{"role":"user"}'),
    "parts no list": ("message", '{"role":"user","parts":{}}'),
    "a part without a type": ("message", '{"role":"user","parts":[{"text":"x"}]}'),
    "a call without input": ("message", '{"role":"assistant","parts":[{"type":"tool_call","id":"c","name":"n"}]}'),
    "a call id twice": (
        "message",
        '{"role":"assistant","parts":[{"type":"tool_call","id":"c","name":"n","input":1},'
        '{"type":"tool_call","id":"c","name":"n","input":1}]}',
    ),
    "is_error no boolean": (
        "message",
        '{"role":"tool","parts":[{"type":"tool_result","call_id":"c","output":1,"is_error":0}]}',
    ),
    "a surrogate in a call id": (
        "message",
        '{"role":"assistant","parts":[{"type":"tool_call","id":"\\ud800","name":"n","input":1}]}',
    ),
    "a compaction without first_kept": ("compaction", '{"summary":"x"}'),
    "an empty compaction": ("compaction", ""),
    "a model change without model": ("model_change", '{"provider":"p"}'),
    "a repair without ids": ("repair", "{}"),
}


@pytest.mark.parametrize("case", BAD_SHAPES)
def test_a_payload_that_has_not_the_shape_of_its_kind_is_refused(case: str) -> None:
    kind, payload = BAD_SHAPES[case]
    record = Draft(kind=kind, entry_id="e1", payload=payload)
    Story().error(ErrorCode.INVALID_RECORD, "append", run_id=RUN, record=record)


BAD_RECORDS = {
    "an unknown kind": (Draft(kind="note"), ErrorCode.INVALID_RECORD),
    "an entry without id": (Draft(kind="message"), ErrorCode.INVALID_RECORD),
    "another run": (Draft(kind="turn", run_id="other"), ErrorCode.INVALID_RECORD),
    "an unknown state": (Draft(kind="turn", state="asleep"), ErrorCode.INVALID_RECORD),
    "a state without a state": (Draft(kind="state"), ErrorCode.INVALID_RECORD),
    "a lone surrogate": (Draft(kind="turn", text="\ud800"), ErrorCode.INVALID_ARGUMENT),
    "a time beyond 2**53": (Draft(kind="turn", timestamp=2**53 + 1), ErrorCode.INVALID_ARGUMENT),
    "an unknown parent": (user("e1", "e0"), ErrorCode.ENTRY_NOT_FOUND),
}


@pytest.mark.parametrize("case", BAD_RECORDS)
def test_a_bad_record_is_an_error_and_creates_no_run(case: str) -> None:
    record, code = BAD_RECORDS[case]
    story = Story()
    story.error(code, "append", run_id=RUN, record=record)
    assert story.do("runs") == ()
