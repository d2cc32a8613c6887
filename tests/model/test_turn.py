"""The reference driver: one story of whole turns, and what it does when it is cut off anywhere."""

from __future__ import annotations

import json
from collections.abc import Iterator

import attrs
import pytest

from turnproof.model import operations as ops
from turnproof.model.decision import Accept
from turnproof.model.driver import (
    Answer,
    Driver,
    End,
    Job,
    Outcome,
    Piece,
    ProviderCall,
    Said,
    Stage,
    StoreCall,
    ToolRun,
)
from turnproof.model.rebuild import INTERRUPTED, calls_of, input_message, rebuild_message, write_request
from turnproof.model.rows import Draft, Restored
from turnproof.model.system import EMPTY, State, apply
from turnproof.model.turn import TABLE, carry, next_step, receive, start
from turnproof.model.vocabulary import InvalidRecord, Status

CALLS = (
    '{"role":"assistant","parts":['
    + ",".join(f'{{"type":"tool_call","id":"{c}","name":"work","input":{{"n":1.0}}}}' for c in ("c1", "c2"))
    + "]}"
)
TEXT = '{"role":"assistant","parts":[{"type":"text","text":"done"}]}'


def admitted() -> State:
    admit = ops.Admit(submission_id="s", session_key="run", kind="direct", payload='"hi"', accepted_at=1, now=1)
    return apply(EMPTY, admit)[0]


def job(
    attempt: str, predecessor: str | None = None, *, atomic_steps: bool = True, max_retry: int | None = None
) -> Job:
    return Job(
        submission_id="s",
        attempt_id=attempt,
        owner_id=attempt,
        predecessor=predecessor,
        atomic_steps=atomic_steps,
        max_retry=max_retry,
    )


class Store:
    """The model, the world outside, and what was asked."""

    def __init__(self, state: State | None = None) -> None:
        self.state = admitted() if state is None else state
        self.verbs: list[str] = []
        self.asked: list[str] = []
        self.ran: list[str] = []

    def answer(self, driver: Driver) -> Driver:
        """One step of a driver."""
        step = next_step(driver, 100)
        reply: Answer
        match step:
            case StoreCall(operation):
                self.verbs += [] if operation.reads else [operation.verb]
                self.state, reply = apply(self.state, operation)
            case ProviderCall(received=0):
                self.asked.append(step.turn_id)
                reply = Piece("a piece")
            case ProviderCall(messages=messages):
                reply = Said(CALLS if len(messages) == 1 else TEXT)
            case ToolRun(calls=calls):
                self.ran.append(f"{step.turn_id}:{calls[-1].id}")
                reply = Outcome(calls[-1].id, '{"ok":1.0}')
            case _:
                raise AssertionError(step)
        return receive(driver, reply, 100)

    def run(self, driver: Driver, steps: int = 1000) -> Driver:
        for _ in range(steps):
            if driver.stage is Stage.DONE:
                break
            driver = self.answer(driver)
        return driver

    def messages(self) -> list[str]:
        answer = apply(self.state, ops.Inspect(run_id="run"))[1]
        assert isinstance(answer, Accept) and isinstance(answer.value, Restored)
        return list(answer.value.messages)

    def status(self) -> Status:
        return self.state.submissions["s"].status


def story() -> Iterator[Driver]:
    """The driver of an uncrashed run at each of its steps."""
    store, driver = Store(), start(job("a1"))
    while driver.stage is not Stage.DONE:
        yield driver
        driver = store.answer(driver)


STEPS = len(list(story()))


def whole() -> list[str]:
    store = Store()
    store.run(start(job("a1")))
    return store.messages()


def test_a_turn_with_tools_and_an_answer_in_the_order_of_the_specification() -> None:
    store = Store()
    driver = store.run(start(job("a1")))
    assert driver.end is End.COMPLETED
    assert store.verbs == [
        "claim",
        "restore",
        "append",
        "mark_input_applied",
        "begin_turn_journal",
        "update_turn_journal_phase",
        "append_stream_segment",
        "mark_stream_consumed",
        "update_turn_journal_phase",
        "append_step",
        "commit_turn_journal",
        "begin_turn_journal",
        "update_turn_journal_phase",
        "append_stream_segment",
        "mark_stream_consumed",
        "append",
        "commit_turn_journal",
        "complete",
    ]
    assert (store.asked, store.ran) == (["1", "2"], ["1:c2", "1:c1"])
    roles = [json.loads(message)["role"] for message in store.messages()]
    assert roles == ["user", "assistant", "tool", "tool", "assistant"]
    assert [json.loads(m)["parts"][0]["call_id"] for m in store.messages()[2:4]] == ["c1", "c2"]  # in call order
    slot = store.state.slots["s"]
    assert (slot.turn_id, slot.committed_leaf_id, slot.checkpoint_leaf_id) == (
        "2",
        "turn:s:2:assistant",
        "turn:s:1:result:c2",
    )


def test_every_stage_has_one_rule() -> None:
    assert set(TABLE) == set(Stage)


@pytest.mark.parametrize("steps", range(1, STEPS))
def test_it_stops_at_once_when_it_lost_ownership(steps: int) -> None:
    """Frozen after any step, it wakes when another attempt owns the submission: nothing stored changes (E7)."""
    store = Store()
    driver = store.run(start(job("a1")), steps)
    transfer = ops.ReplaceTurnJournalAttempt(submission_id="s", attempt_id="a1", next_attempt_id="a2")
    store.state = apply(store.state, transfer)[0]
    before = attrs.evolve(store.state, segments=EMPTY.segments)
    store.verbs.clear()
    driver = store.run(driver)
    assert driver.end is End.LOST
    assert attrs.evolve(store.state, segments=EMPTY.segments) == before
    assert len([verb for verb in store.verbs if verb != "append_stream_segment"]) == 1


@pytest.mark.parametrize("atomic", [True, False])
@pytest.mark.parametrize("first", range(1, STEPS))
def test_a_crash_anywhere_and_a_second_one_anywhere_in_the_recovery(first: int, atomic: bool) -> None:
    """E1-E6, C1: the end is that of an uncrashed run, up to interrupted results."""
    crashed = Store()
    if crashed.run(start(job("a1", atomic_steps=atomic)), first).stage is Stage.DONE:
        return
    for second in range(1, STEPS):
        store = Store(crashed.state)
        store.asked, store.ran = list(crashed.asked), list(crashed.ran)
        driver = store.run(start(job("a2", predecessor="a1", atomic_steps=atomic)), second)
        last = "a1"
        while store.status() is not Status.SETTLED:
            owner = store.state.submissions["s"].attempt_id
            last = f"{last}+"
            driver = store.run(start(job(last, predecessor=owner, atomic_steps=atomic)))
        assert driver.end in (End.COMPLETED, End.LOST, None)
        got = [m.replace(INTERRUPTED, '{"ok":1.0}').replace("true", "false") for m in store.messages()]
        assert got == whole()
        assert len(store.ran) == len(set(store.ran))
        assert len(store.ran) <= 2


def test_recovering_twice_writes_nothing_new() -> None:
    """C1, P8: the second recovery finds the first one's results, commits, and goes on."""
    store = Store()
    driver = store.run(start(job("a1")), next(i for i, d in enumerate(story()) if d.stage is Stage.TOOLS))
    assert driver.stage is Stage.TOOLS
    recovery = store.run(start(job("a2", predecessor="a1")), 4)
    assert recovery.stage is Stage.COMMIT
    log = store.state.runs["run"].records
    assert len(log) == 4
    second = store.run(start(job("a3", predecessor="a2")), 3)
    assert second.stage is Stage.COMMIT
    assert second.leaf == recovery.leaf
    assert store.state.runs["run"].records == log


def test_the_first_outcome_wins_when_a_result_comes_late_past_a_store_without_fences() -> None:
    store = Store()
    store.run(start(job("a1")), next(i for i, d in enumerate(story()) if d.stage is Stage.STORE))
    driver = store.run(start(job("a2", predecessor="a1")), 3)
    assert driver.stage is Stage.CLOSE
    late = next(d for d in story() if d.stage is Stage.STORE)
    store.state = apply(store.state, ops.AppendStep(run_id="run", records=late.entries))[0]
    assert store.run(driver).end is End.COMPLETED
    assert store.messages() == whole()


def test_recovery_attaches_where_the_turn_started_whatever_was_appended_since() -> None:
    """A5: somebody's message hangs below the checkpoint; it leaves the active path and stays in the log."""
    store = Store()
    store.run(start(job("a1")), next(i for i, d in enumerate(story()) if d.stage is Stage.TOOLS))
    notice = Draft(kind="message", entry_id="notice", parent_id="input:s", role="user", text="hello?")
    store.state = apply(store.state, ops.Append(run_id="run", record=notice))[0]
    assert store.run(start(job("a2", predecessor="a1"))).end is End.COMPLETED
    assert "set_leaf" in store.verbs
    assert len(store.messages()) == 5
    assert not any("hello?" in message for message in store.messages())


def test_finished_work_is_completed_by_an_attempt_too_many_but_nothing_new_begins() -> None:
    commits = [i for i, d in enumerate(story()) if d.stage is Stage.COMMIT]
    for at, end in ((commits[0] + 1, End.FAILED), (commits[1] + 1, End.COMPLETED)):
        store = Store()
        store.run(start(job("a1", max_retry=1)), at)
        assert store.run(start(job("a2", predecessor="a1"))).end is end


def test_an_error_that_no_right_driver_meets_ends_it() -> None:
    store = Store()
    driver = start(job("a1", predecessor="a1"))
    store.run(start(job("a1")), 1)
    driver = store.run(driver)
    assert driver.end is End.ERROR
    assert driver.error.startswith("attempt_reused")


def test_an_answer_that_is_no_message_is_not_consumed() -> None:
    driver = next(d for d in story() if d.stage is Stage.ASK)
    with pytest.raises(InvalidRecord):
        receive(driver, Said("no message"), 100)
    with pytest.raises(TypeError, match="Said"):
        receive(driver, Outcome("c1", "1"), 100)


def test_the_generator_face() -> None:
    face = carry(job("a1"), lambda: 100)
    step = next(face)
    assert isinstance(step, StoreCall)
    _, answer = apply(EMPTY, step.operation)
    with pytest.raises(StopIteration) as ended:
        face.send(answer)
    assert ended.value.value.end is End.NOT_OWNER


LOSSLESS = (
    '{"role":"assistant","parts":[{"type":"tool_call","id":"c","name":"n","input":'
    '{"a":1.0,"b":1e400,"c":123456789012345678901234567890,"a":-0.0,"d":"\\ud800","e":[null,true,"é"]}}]}'
)


@pytest.mark.parametrize(
    "message",
    [
        CALLS,
        LOSSLESS,
        LOSSLESS.replace('"parts":[', '"parts":[{"type":"text","text":"let me see"},'),
        LOSSLESS.replace('"role"', '"model":"m","role"'),
    ],
)
def test_a_message_is_rebuilt_from_its_request_as_it_was_said(message: str) -> None:
    assert rebuild_message(write_request(message)) == message
    assert calls_of(rebuild_message(write_request(message))) == calls_of(message)


def test_a_request_that_was_recorded_by_others_is_rebuilt_from_its_calls() -> None:
    request = '{"tool_calls":[{"id":"c","name":"n","input":1e2,"more":0}],"message":{"role":"assistant","parts":[]}}'
    rebuilt = '{"role":"assistant","parts":[{"type":"tool_call","id":"c","name":"n","input":1e2}]}'
    assert rebuild_message(request) == rebuilt


def test_a_payload_that_is_a_message_is_kept_byte_for_byte() -> None:
    message = '{ "role" : "user", "parts": [] }'
    assert input_message(message) == message
    assert json.loads(input_message('"hi"'))["parts"][0]["text"] == '"hi"'
