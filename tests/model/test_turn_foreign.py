"""The reference driver among strangers: providers that answer oddly, logs and slots that somebody else wrote.

Whatever it meets, the submission ends settled within its attempts, and no work is done twice (E1, E5).
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import product

import pytest
from attrs import evolve
from hypothesis import given, settings
from hypothesis import strategies as st
from model_stories import RUN, S, answers, asks, call, message, result, says, text, user

from turnproof.model import operations as ops
from turnproof.model.choices import STRICT, Choices
from turnproof.model.decision import Accept, Fail
from turnproof.model.driver import Answer, Assemble, Driver, End, Job, Outcome, ProviderCall, Said, Stage, StoreCall
from turnproof.model.driver import ToolRun as Tools
from turnproof.model.rebuild import calls_of, draft_input, input_message, is_answer, rebuild_message
from turnproof.model.recovery import classify
from turnproof.model.rows import Draft, Recovery, Restored, Submission
from turnproof.model.system import EMPTY, State, apply
from turnproof.model.turn import next_step, receive, start
from turnproof.model.vocabulary import ErrorCode, InvalidRecord, Phase, Status

NOW, RETRIES, STEPS = 100, 2, 100
REPLAY = Choices(stream_recovery="replay")

NO_ANSWER = "the provider's answer is not an assistant message without tool results"
CONFLICT = "the turn cannot be closed: entry_conflict"
MISMATCH = "the turn cannot be closed: anchor_mismatch"
NOWHERE = "there is no leaf to go on from: entry_not_found"
EXHAUSTED = "attempts or time used up"


class World:
    """The model as a store, a provider that says what it is told and then that it is done, and what was done."""

    def __init__(self, state: State, said: Iterable[str] = (), choices: Choices = STRICT, submission: str = S) -> None:
        self.state = state
        self.said = iter(said)
        self.choices = choices
        self.submission = submission
        self.wrote: list[str] = []
        self.asked: list[str] = []
        self.ran: list[str] = []

    @property
    def row(self) -> Submission[str]:
        return self.state.submissions[self.submission]

    def start(self, *, atomic: bool = True) -> Driver:
        """The next attempt: it claims, or takes over."""
        number = self.row.attempt_count + 1
        job = Job(
            submission_id=self.submission,
            attempt_id=f"a{number}",
            owner_id=f"w{number}",
            predecessor=self.row.attempt_id,
            max_retry=RETRIES,
            atomic_steps=atomic,
            choices=self.choices,
        )
        return start(job)

    def step(self, d: Driver) -> Driver:
        step = next_step(d, NOW)
        reply: Answer
        match step:
            case StoreCall(operation):
                before = self.state
                self.state, reply = apply(before, operation, self.choices)
                self.wrote += [operation.verb] if self.state != before else []
            case ProviderCall() | Assemble():
                self.asked.append(d.turn_id)
                assert self.state.slots[self.submission].phase is Phase.PROVIDER_STARTED  # E2
                reply = Said(next(self.said, DONE))
            case Tools(calls=(first, *_)):
                self.ran.append(f"{step.turn_id}:{first.id}")
                reply = Outcome(first.id, "1")
            case _:
                raise AssertionError(step)
        return receive(d, reply, NOW)

    def run(self, d: Driver, steps: int = STEPS) -> Driver:
        """One attempt, for so many steps. An answer that is no message kills it."""
        for _ in range(steps):
            if d.stage is Stage.DONE:
                break
            try:
                d = self.step(d)
            except InvalidRecord:
                return d
        assert steps < STEPS or d.stage is Stage.DONE, f"it does not come to an end: {d}"
        return d

    def settle(self, *, atomic: bool = True) -> Driver:
        """Attempt after attempt, until it is settled: within the budget, and one more that only gives up (E5)."""
        d = self.run(self.start(atomic=atomic))
        while self.row.status is not Status.SETTLED:
            assert self.row.attempt_count <= RETRIES
            d = self.run(self.start(atomic=atomic))
        assert len(self.ran) == len(set(self.ran))
        return d

    def path(self) -> tuple[str, ...]:
        answer = apply(self.state, ops.Inspect(run_id=RUN))[1]
        assert isinstance(answer, Accept) and isinstance(answer.value, Restored), answer
        return answer.value.path

    def goes_on(self) -> bool:
        """Whether the session takes the next submission and answers it."""
        after = World(told(self.state, admit("s2")), choices=self.choices, submission="s2")
        return after.settle().end is End.COMPLETED


def told(state: State, *operations: ops.Operation, choices: Choices = STRICT) -> State:
    for operation in operations:
        state, answer = apply(state, operation, choices)
        assert isinstance(answer, Accept), (operation, answer)
    return state


def admit(submission: str = S, payload: str = '"hi"') -> ops.Admit:
    return ops.Admit(submission_id=submission, session_key=RUN, kind="direct", payload=payload, accepted_at=1)


# --- messages that are odd --------------------------------------------------------------------------------------------


def payload(role: str, *parts: dict[str, object]) -> str:
    return message("", "", role, *parts).payload


DONE = payload("assistant", text("done"))
CALLS = payload("assistant", call("1"), call("2"))
MESSAGES = [
    payload(role, *(part for part, said in zip((text("t"), call("1"), result("9")), which, strict=True) if said))
    for role in ("assistant", "user", "tool", "system", "")
    for which in product((False, True), repeat=3)
]
"""Each role with and without text, a call, and a result."""
ODD = [m for m in MESSAGES if "tool_result" in m or '"role": "assistant"' not in m]


@pytest.mark.parametrize("first", [(), (CALLS,)], ids=["at once", "after tools"])
@pytest.mark.parametrize("odd", ODD)
def test_what_no_model_says_fails_the_submission_before_anything_of_it_is_kept(odd: str, first: tuple[str]) -> None:
    world = World(told(EMPTY, admit()), (*first, odd))
    d = world.start()
    for _ in range(STEPS):
        d = d if d.stage is Stage.ASK and len(world.asked) == len(first) else world.step(d)
    failed = ops.FailSubmission(now=NOW, submission_id=S, attempt_id="a1", error=NO_ANSWER)
    expected = told(world.state, failed)
    assert world.run(d).end is End.FAILED
    assert world.state == expected
    assert world.goes_on()


@pytest.mark.parametrize("odd", ODD)
def test_a_captured_stream_that_no_model_says_fails_the_submission_too(odd: str) -> None:
    state = foreign(phase=Phase.PROVIDER_STARTED)
    state = told(state, ops.MarkStreamConsumed(submission_id=S, attempt_id="a1", stream_key="s1:1:a1"))
    world = World(state, [odd], REPLAY)
    assert world.settle().end is End.FAILED
    assert world.wrote == ["replace_turn_journal_attempt", "fail"]
    assert (world.row.error, world.row.attempt_count) == (NO_ANSWER, 2)


def test_an_odd_answer_after_tools_or_after_a_crash() -> None:
    """Whatever comes second, in a store with steps or without: settled, and the session goes on."""
    ends: Counter[str | None] = Counter()
    first = (CALLS, "no message", payload("assistant", text("t"), call("1")))
    for said in product(first, [*MESSAGES, "no message", CALLS]):
        for atomic in (True, False):
            world = World(told(EMPTY, admit()), said)
            world.settle(atomic=atomic)
            ends[world.row.error] += 1
            assert world.goes_on()
    assert ends == {NO_ANSWER: 216, None: 34, EXHAUSTED: 2}


@pytest.mark.parametrize("given", MESSAGES)
def test_a_payload_speaks_for_the_user_only(given: str) -> None:
    """A payload that calls or answers something, or speaks for another, is text: it cannot tear its session."""
    taken = given in (payload("user"), payload("user", text("t")))
    wrapped = {"role": "user", "parts": [{"type": "text", "text": given}]}
    assert input_message(given) == (given if taken else json.dumps(wrapped, separators=(",", ":")))
    assert draft_input(S, given, "").role == "user"
    world = World(told(EMPTY, admit(payload=given)))
    assert world.settle().end is End.COMPLETED
    assert world.path() == ("input:s1", "turn:s1:1:assistant")
    assert world.goes_on()


@pytest.mark.parametrize("kept", MESSAGES)
def test_a_kept_message_is_rebuilt_only_if_it_is_what_a_model_says(kept: str) -> None:
    request = f'{{"tool_calls":[{{"id":"1","name":"read","input":{{}}}}],"message":{kept}}}'
    assert is_answer(rebuild_message(request))
    assert [made.id for made in calls_of(rebuild_message(request))] == ["1"]


# --- slots and logs that somebody else wrote --------------------------------------------------------------------------

CP, A, R1, R2 = "input:s1", "turn:s1:1:assistant", "turn:s1:1:result:1", "turn:s1:1:result:2"
TRANSFER, SET_LEAF, COMMIT = "replace_turn_journal_attempt", "set_leaf", "commit_turn_journal"
NEXT_TURN = ["begin_turn_journal", "update_turn_journal_phase", "mark_stream_consumed", "append", COMMIT, "complete"]


def foreign(
    *entries: Draft,
    turn: str = "1",
    phase: Phase = Phase.TOOL_REQUEST_RECORDED,
    checkpoint: str = CP,
    choices: Choices = STRICT,
) -> State:
    """A turn that another driver began, and what was stored since."""
    own = {"submission_id": S, "attempt_id": "a1"}
    request = json.dumps({"tool_calls": [{"id": c, "name": "read", "input": {}} for c in ("1", "2")]})
    update = {"checkpoint_leaf_id": checkpoint, "stream_key": f"s1:{turn}:a1", "tool_request": request}
    phases = (Phase.PROVIDER_STARTED, Phase.TOOL_REQUEST_RECORDED)
    return told(
        EMPTY,
        admit(),
        ops.Claim(**own, owner_id="w1", lease_expires_at=9000),
        ops.Append(run_id=RUN, record=draft_input(S, '"hi"', "")),
        ops.MarkInputApplied(**own, max_retry=RETRIES),
        ops.BeginTurnJournal(**own, session_key=RUN, kind="direct", operation_id="o", turn_id=turn),
        *(ops.UpdateTurnJournalPhase(**own, phase=p.value, **update) for p in phases[: 1 + phases.index(phase)]),
        *(ops.Append(run_id=RUN, record=entry) for entry in entries),
        choices=choices,
    )


STEP = (asks(A, CP, "1", "2"), answers(R1, A, "1"), answers(R2, R1, "2"))
LOGS: dict[str, tuple[tuple[Draft, ...], str | None, list[str]]] = {
    # name: what is stored, the error, what recovery writes
    "nothing": ((), None, [TRANSFER, "append_step", COMMIT, *NEXT_TURN]),
    "the step, half": (STEP[:2], None, [TRANSFER, "append", COMMIT, *NEXT_TURN]),
    "the step, whole": (STEP, None, [TRANSFER, COMMIT, *NEXT_TURN]),
    "both results in one message": (
        (STEP[0], answers("x", A, "1", "2")),
        None,
        [TRANSFER, COMMIT, *NEXT_TURN],
    ),
    "the second result first": ((STEP[0], answers(R2, A, "2")), None, [TRANSFER, "append", COMMIT, *NEXT_TURN]),
    "more calls, those answered": (
        (asks(A, CP, "1", "2", "3"), answers("x", A, "3")),
        None,
        [TRANSFER, "append_step", COMMIT, *NEXT_TURN],
    ),
    "more calls": ((asks(A, CP, "1", "2", "3"),), MISMATCH, [TRANSFER, "append_step", SET_LEAF, "fail"]),
    "other calls": ((asks(A, CP, "9"),), CONFLICT, [TRANSFER, SET_LEAF, "fail"]),
    "text in place of the calls": ((says(A, CP),), CONFLICT, [TRANSFER, SET_LEAF, "fail"]),
    "the calls of a user": ((message(A, CP, "user", call("1"), call("2")),), CONFLICT, [TRANSFER, SET_LEAF, "fail"]),
    "the step elsewhere": ((asks(A, "", "1", "2"),), CONFLICT, [TRANSFER, SET_LEAF, "fail"]),
    "a result before its call": ((answers(R1, CP, "1"),), CONFLICT, [TRANSFER, SET_LEAF, "fail"]),
    "a result's id for something else": ((STEP[0], user(R1, CP)), CONFLICT, [TRANSFER, SET_LEAF, SET_LEAF, "fail"]),
    "two continuations": (
        (STEP[0], answers(R2, A, "2"), answers("x", A, "1")),
        CONFLICT,
        [TRANSFER, SET_LEAF, "fail"],
    ),
    "two continuations, the whole one wins": ((*STEP, answers("x", A, "1")), None, []),
}


@pytest.mark.parametrize("name", LOGS)
def test_a_turn_that_cannot_be_closed_is_given_up_at_once_and_leaves_the_path(name: str) -> None:
    entries, error, wrote = LOGS[name]
    state = foreign(*entries)
    world = World(state)
    d = world.settle()
    expected = wrote or [TRANSFER, SET_LEAF, COMMIT, *NEXT_TURN]
    assert (d.end, world.row.error, world.row.attempt_count) == (End.FAILED if error else End.COMPLETED, error, 2)
    assert (world.wrote, world.asked, world.ran) == (expected, [] if error else ["2"], [])
    if error:
        assert world.path() == (CP,)
        assert world.state.slots[S] == evolve(state.slots[S], attempt_id="a2", updated_at=NOW)
    assert world.goes_on()


def test_of_two_continuations_the_one_on_the_active_path_is_the_step() -> None:
    """Equally many answers: what was stored last moved the leaf. The other's answer is not looked at."""
    step, first, late = STEP[0], answers(R2, A, "2"), answers("x", A, "1")
    state = foreign(step, first, late)
    on_path = {"x": ("2",), R2: ("1",)}
    for leaf, open_calls in on_path.items():
        chosen = told(state, ops.SetLeaf(run_id=RUN, entry_id=leaf))
        found = classify(chosen.submissions[S], chosen.slots[S], chosen.transcript(RUN, STRICT), NOW)
        assert found == Recovery(decision="interrupt_tools", open_calls=open_calls)
    world = World(told(state, ops.SetLeaf(run_id=RUN, entry_id=R2)))
    assert world.settle().end is End.COMPLETED
    assert world.path() == (CP, A, R2, R1, "turn:s1:2:assistant")


@pytest.mark.parametrize("atomic", [True, False])
def test_what_comes_late_entry_by_entry_is_progress(atomic: bool) -> None:
    """Each time the dead attempt is first, past a store without fences; each time less is left to be closed."""
    world = World(foreign())
    d = world.start(atomic=atomic)
    for late in STEP:
        while d.stage is not Stage.CLOSE:
            d = world.step(d)
        world.state = told(world.state, ops.Append(run_id=RUN, record=late))
    assert world.run(d).end is End.COMPLETED
    assert world.path() == (CP, A, R1, R2, "turn:s1:2:assistant")
    assert [world.state.runs[RUN].records[1 + i].payload for i in range(3)] == [entry.payload for entry in STEP]


@pytest.mark.parametrize("stage", [Stage.CLOSE, Stage.COMMIT])
def test_a_store_that_says_no_without_a_reason_is_not_asked_again(stage: Stage) -> None:
    world = World(foreign())
    code = {Stage.CLOSE: ErrorCode.ENTRY_CONFLICT, Stage.COMMIT: ErrorCode.ANCHOR_MISMATCH}[stage]
    d = world.start()
    while d.stage is not stage:
        d = world.step(d)
    d = world.run(receive(d, Fail(code, "", "no"), NOW))
    error = f"the turn cannot be closed: {code.value}"
    assert (d.end, d.decision, world.row.error) == (End.FAILED, "give_up", error)


def test_a_leaf_that_is_not_there_fails_the_submission() -> None:
    """In a store that trusts anchors, the journal may name what was never stored."""
    trusted = Choices(anchors="trusted")
    state = foreign(checkpoint="gone", choices=trusted)
    open_turn = World(state, choices=trusted)
    assert open_turn.settle().end is End.FAILED
    commit = ops.CommitTurnJournal(submission_id=S, attempt_id="a1", committed_leaf_id="gone")
    done = World(told(state, commit, choices=trusted), choices=trusted)
    assert done.settle().end is End.FAILED
    assert (open_turn.row.error, done.row.error) == (NOWHERE, NOWHERE)
    assert open_turn.wrote == done.wrote == [TRANSFER, "fail"]


@pytest.mark.parametrize("stored", MESSAGES)
def test_only_a_text_answer_is_committed_as_it_is_stored(stored: str) -> None:
    """Anything else under its id could never be committed: the turn runs again, as if nothing were stored."""
    entry = Draft(kind="message", entry_id=A, parent_id=CP, role="assistant", payload=stored)
    world = World(foreign(entry, phase=Phase.PROVIDER_STARTED))
    found = classify(world.row, world.state.slots[S], world.state.transcript(RUN, STRICT), NOW)
    stands = stored in (payload("assistant"), payload("assistant", text("t")))
    assert found == Recovery(decision="commit_stored" if stands else "redrive")
    assert world.settle().end is End.COMPLETED
    assert (world.path(), world.row.attempt_count) == ((CP, A if stands else "turn:s1:2:assistant"), 2)


@pytest.mark.parametrize(("turn", "fresh"), [("1", "2"), ("2", "3"), ("x", "2"), ("3", "2")])
def test_a_turn_runs_again_under_an_id_that_the_slot_has_not(turn: str, fresh: str) -> None:
    state = foreign(asks(f"turn:s1:{turn}:assistant", CP, "1"), turn=turn, phase=Phase.PROVIDER_STARTED)
    world = World(state)
    d = world.start()
    while d.stage is not Stage.ASK:
        d = world.step(d)
    again = World(state)
    assert again.run(again.start(), len(world.wrote)).turn_id in ("", fresh)
    assert world.state.slots[S] == evolve(
        state.slots[S],
        attempt_id="a2",
        operation_id=S,
        turn_id=fresh,
        phase=Phase.PROVIDER_STARTED,
        stream_key=f"s1:{fresh}:a2",
        revision=2,
        updated_at=NOW,
    )
    assert world.run(d).end is End.COMPLETED
    assert world.path() == (CP, f"turn:s1:{fresh}:assistant")


# --- everything, and anything -----------------------------------------------------------------------------------------

POOL = (
    *STEP,
    says(A, CP),
    asks(A, CP, "9"),
    asks(A, CP, "1", "2", "3"),
    asks(A, "", "1", "2"),
    message(A, CP, "user", call("1"), result("2")),
    answers(R1, CP, "1"),
    user(R1, A),
    answers(R2, A, "2"),
    answers("x", A, "1"),
    answers("y", A, "1", "2"),
    answers("z", CP, "1"),
    asks("b", CP, "1", "2"),
    says("turn:s1:2:assistant", CP),
    user("u", A),
    Draft(kind="repair", parent_id=CP, payload=json.dumps({"dropped_entry_ids": [A]})),
    Draft(kind="branch", parent_id=""),
)
"""What another driver, or a dead attempt past a store without fences, may have stored."""


def logs(state: State, left: int) -> Iterator[State]:
    """The state, and every one that up to ``left`` of them lead to."""
    yield state
    for entry in POOL if left else ():
        after, _ = apply(state, ops.Append(run_id=RUN, record=entry))
        if after != state:
            yield from logs(after, left - 1)


ENDS: dict[Phase, tuple[int, dict[str | None, int]]] = {
    # A changed count is an alarm. What fails in provider_started finds the id of its own turn taken by somebody else.
    Phase.PROVIDER_STARTED: (2, {None: 117, CONFLICT: 19}),
    Phase.TOOL_REQUEST_RECORDED: (3, {None: 169, MISMATCH: 165, CONFLICT: 1135}),
}


@pytest.mark.parametrize("phase", ENDS)
def test_after_every_short_foreign_log_it_ends_settled(phase: Phase) -> None:
    """The provider asks for tools, then is done. The session can be read afterwards, whatever was in it."""
    ends: Counter[str | None] = Counter()
    length, expected = ENDS[phase]
    for number, state in enumerate(logs(foreign(phase=phase), length)):
        world = World(state, [CALLS])
        world.settle(atomic=number % 2 == 0)
        ends[world.row.error] += 1
        assert world.path()[0] == CP
    assert ends == expected


STARTS = st.sampled_from([(turn, phase) for turn in ("1", "2") for phase in ENDS])
SAID = st.lists(st.sampled_from([CALLS, *MESSAGES, "no message"]), max_size=4)
SCHEDULE = st.lists(st.one_of(st.integers(0, 12), st.sampled_from(POOL)), max_size=16)
"""An entry is stored past the fences; 0 kills the attempt; any other number is how many steps it takes."""


@settings(max_examples=500, deadline=None, derandomize=True, database=None)
@given(STARTS, SAID, SCHEDULE, st.booleans(), st.sampled_from([STRICT, REPLAY]))
def test_whatever_is_answered_stored_and_killed_in_between_it_ends_settled(
    begun: tuple[str, Phase], said: list[str], schedule: list[int | Draft], atomic: bool, choices: Choices
) -> None:
    world = World(foreign(turn=begun[0], phase=begun[1]), said, choices)
    d = world.start(atomic=atomic)
    for act in schedule:
        if isinstance(act, Draft):
            world.state, _ = apply(world.state, ops.Append(run_id=RUN, record=act))
        elif act:
            d = world.run(d, act)
        elif world.row.status is Status.RUNNING and world.row.attempt_count <= RETRIES:
            d = world.start(atomic=atomic)
    world.run(d)
    if world.row.status is Status.RUNNING:
        world.settle(atomic=atomic)
    assert world.row.attempt_count <= RETRIES + 1
    assert len(world.ran) == len(set(world.ran))
