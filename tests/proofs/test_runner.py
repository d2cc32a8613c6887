"""The runner: an agent loop on every kind of store, its crashes, and the recovery by another worker."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from turnproof.impl import MemoryStore, open_store
from turnproof.model import operations as ops
from turnproof.model.choices import Choices
from turnproof.model.decision import Accept
from turnproof.model.driver import End, Job, ProviderCall, Step, StoreCall, ToolCall
from turnproof.model.rows import Restored, Submission
from turnproof.model.vocabulary import AttemptReused, ErrorCode, Status
from turnproof.proofs.runner import Ask, Held, Runner, on_store, on_subject
from turnproof.proofs.subjects import ModelSubject, StoreSubject


def provider(call: ProviderCall) -> Iterator[str]:
    """Asks for two tools, then says what they answered."""
    if json.loads(call.messages[-1])["role"] == "user":
        yield '{"role":"assistant","parts":['
        yield ",".join(f'{{"type":"tool_call","id":"{c}","name":"add","input":[1,{c}]}}' for c in (1, 2)) + "]}"
    else:
        results = [json.loads(m)["parts"][0]["output"] for m in call.messages if json.loads(m)["role"] == "tool"]
        yield json.dumps({"role": "assistant", "parts": [{"type": "text", "text": f"sums: {results}"}]})


def tools(call: ToolCall) -> object:
    return sum(json.loads(call.input))


@pytest.fixture(params=["model", "sqlite", "memory", "wire", "wire model"])
def ask(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Ask]:
    if request.param == "model":
        yield Held()
    elif request.param in ("sqlite", "memory"):
        with open_store(tmp_path) if request.param == "sqlite" else MemoryStore() as store:
            yield on_store(store)
    else:
        subject = StoreSubject() if request.param == "wire" else ModelSubject()
        subject.open(tmp_path)
        yield on_subject(subject)
        subject.close()


class Clock:
    def __init__(self) -> None:
        self.now = 1000

    def __call__(self) -> int:
        self.now += 1
        return self.now


def admit(ask: Ask, submission_id: str = "s") -> None:
    ask(
        ops.Admit(submission_id=submission_id, session_key="chat", kind="direct", payload='"add"', accepted_at=1, now=1)
    )


def texts(ask: Ask) -> list[object]:
    answer = ask(ops.Inspect(run_id="chat"))
    assert isinstance(answer, Accept)
    assert isinstance(answer.value, Restored)
    messages = answer.value.messages
    parts = [json.loads(message)["parts"] for message in messages]
    return [part.get("text", part.get("output", part.get("id"))) for some in parts for part in some]


def row(ask: Ask) -> Submission[str]:
    answer = ask(ops.GetSubmission(submission_id="s"))
    assert isinstance(answer, Accept) and isinstance(answer.value, Submission)
    return answer.value


WHOLE = ['"add"', "1", "2", 2, 3, "sums: [2, 3]"]


def test_an_agent_runs_on_any_store(ask: Ask) -> None:
    admit(ask)
    ended = Runner(ask, provider, tools, clock=Clock()).work("w")
    assert [driver.end for driver in ended] == [End.COMPLETED]
    assert row(ask).status is Status.SETTLED
    assert texts(ask) == WHOLE


class Crash(Exception):
    """The worker dies here."""


def dying(tool: int) -> Callable[[ToolCall], object]:
    def run(call: ToolCall) -> object:
        if call.id == str(tool):
            raise KeyboardInterrupt
        return tools(call)

    return run


def test_another_worker_recovers_what_expired(ask: Ask) -> None:
    clock = Clock()
    admit(ask)
    with pytest.raises(KeyboardInterrupt):
        Runner(ask, provider, dying(2), clock=clock).work("w1")
    assert Runner(ask, provider, tools, clock=clock).work("w2") == []  # the lease holds
    clock.now += 60_000
    (driver,) = Runner(ask, provider, tools, clock=clock).work("w2")
    assert driver.end is End.COMPLETED
    interrupted = {"type": "interrupted"}
    assert texts(ask)[3:5] == [interrupted, interrupted]
    assert row(ask).attempt_count == 2


def test_a_stream_that_was_heard_is_replayed_where_that_is_chosen(tmp_path: Path) -> None:
    def dies(step: Step) -> None:
        operation = step.operation if isinstance(step, StoreCall) else None
        if isinstance(operation, ops.UpdateTurnJournalPhase) and operation.tool_request is not None:
            raise Crash

    asked: list[str] = []

    def counting(call: ProviderCall) -> Iterator[str]:
        asked.append(call.turn_id)
        return provider(call)

    clock, ask = Clock(), Held()
    admit(ask)
    with pytest.raises(Crash):
        Runner(ask, counting, tools, clock=clock, between=dies).work("w1")
    clock.now += 60_000
    (driver,) = Runner(ask, counting, tools, clock=clock, choices=Choices(stream_recovery="replay")).work("w2")
    assert driver.end is End.COMPLETED
    assert asked == ["1", "2"]
    assert texts(ask) == WHOLE


def test_tools_of_one_request_run_at_once() -> None:
    ask = Held()
    admit(ask)
    with ThreadPoolExecutor(2) as executor:
        Runner(ask, provider, tools, clock=Clock(), executor=executor).work("w")
    assert texts(ask) == WHOLE


def test_what_a_tool_raises_or_cannot_say_is_a_result_with_is_error() -> None:
    ask = Held()
    admit(ask)
    Runner(ask, provider, lambda call: float("nan") if call.id == "1" else 1 // 0, clock=Clock()).work("w")
    first, second = texts(ask)[3:5]
    assert isinstance(first, dict) and isinstance(second, dict)
    assert (first["type"], second["type"]) == ("error", "error")
    assert "ZeroDivisionError" in second["message"]


def test_a_long_turn_keeps_its_lease() -> None:
    clock, ask = Clock(), Held()
    admit(ask)

    def slow(call: ToolCall) -> object:
        clock.now += 20_000
        return tools(call)

    (driver,) = Runner(ask, provider, slow, clock=clock, lease_ms=30_000).work("w")
    assert driver.end is End.COMPLETED
    assert row(ask).lease_expires_at > 60_000


def test_an_error_of_the_store_is_raised() -> None:
    ask = Held()
    admit(ask)
    ask(ops.Claim(submission_id="s", attempt_id="a", owner_id="w", lease_expires_at=1))
    runner = Runner(ask, provider, tools, clock=Clock())
    with pytest.raises(AttemptReused) as raised:
        runner.carry(Job(submission_id="s", attempt_id="a", owner_id="w", predecessor="a"))
    assert raised.value.code is ErrorCode.ATTEMPT_REUSED
