"""The scenarios: every write of the protocol alone from several prior states, and the histories that matter together.

Data. A prior state is a list of operations, durable before the recording starts; `hot` leaves the last of them in the
write-ahead log, as a kill does. What an operation may do depends on the state, so most stand after several.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

import attrs

from turnproof.model import operations as ops
from turnproof.model.choices import STRICT
from turnproof.model.driver import Job
from turnproof.model.ids import assistant_entry_id, input_entry_id, mint_stream_key
from turnproof.model.operations import Operation
from turnproof.model.rows import Draft, Fence, Lease, Record
from turnproof.model.state import EMPTY, State
from turnproof.model.vocabulary import RecordKind
from turnproof.proofs import talk
from turnproof.proofs.crash.acting import ANSWER, CALLS, perform
from turnproof.proofs.crash.script import Act, Scenario, Step
from turnproof.proofs.subjects import expected

__all__ = ["SCENARIOS", "STANDARD", "by_name", "opened"]

Moves: TypeAlias = Sequence[Operation]

S1, A1, A2, RUN = "s1", "a1", "a2", "run1"
KEY: Final = mint_stream_key(S1, "1", A1)
INPUT: Final = input_entry_id(S1)
SAID: Final = assistant_entry_id(S1, "1")
FENCE: Final = Fence(submission_id=S1, attempt_id=A1)
JOB: Final = Job(submission_id=S1, attempt_id=A1, owner_id="w1")
RESCUE: Final = Job(submission_id=S1, attempt_id=A2, owner_id="w2", predecessor=A1)


def opened(operations: Moves, *acts: Act) -> tuple[Step, ...]:
    """Steps that open, do this, and then these acts."""
    return (Step("open"), *map(Step, operations), *map(Step, acts))


def _after(operations: Moves) -> State:
    state = EMPTY
    for operation in operations:
        state = expected(operation, state, STRICT).state
    return state


def _upto(verb: str, operations: Moves, times: int = 1) -> tuple[Operation, ...]:
    """The operations up to and with the n-th of a verb."""
    places = [place for place, operation in enumerate(operations) if operation.verb == verb]
    return tuple(operations[: places[times - 1] + 1])


def admit(submission: str = S1, run: str = RUN, now: int = 1) -> Operation:
    payload = talk.says(f"work {submission}")
    return ops.Admit(
        now=now, submission_id=submission, session_key=run, kind="dispatch", payload=payload, accepted_at=now
    )


# --- prior states ----------------------------------------------------------------------------------------------------

ADMITTED: Final[Moves] = (admit(),)
TURN: Final[Moves] = (*ADMITTED, *perform(_after(ADMITTED), JOB, (CALLS, ANSWER)))
"""A whole submission: a turn with two tool calls, then one of text."""
TEXT: Final[Moves] = (*ADMITTED, *perform(_after(ADMITTED), JOB))
CLAIMED: Final = _upto("claim", TURN)
MARKED: Final = _upto("mark_input_applied", TURN)
BEGUN: Final = _upto("begin_turn_journal", TURN)
STARTED: Final = _upto("update_turn_journal_phase", TURN)
STREAMED: Final = _upto("append_stream_segment", TURN, 2)
RECORDED: Final = _upto("update_turn_journal_phase", TURN, 2)
STORED: Final = _upto("append_step", TURN)
COMMITTED: Final = _upto("commit_turn_journal", TURN)
TORN: Final[Moves] = (
    *RECORDED,
    ops.Append(now=900, run_id=RUN, record=talk.message(SAID, INPUT, CALLS), fence=FENCE),
    ops.ReplaceTurnJournalAttempt(now=910, submission_id=S1, attempt_id=A1, next_attempt_id="a9"),
    ops.BeginTurnJournal(
        now=920, submission_id=S1, attempt_id="a9", session_key=RUN, kind="dispatch", operation_id=S1, turn_id="2"
    ),
)
"""A step without its results that the journal no longer holds: restore cuts it."""
SETTLED: Final[Moves] = (
    *TURN,
    admit("s2", "run2", 950),
    ops.InsertAttemptMarker(now=960, submission_id=S1, attempt_id=A1),
    ops.AppendStreamSegment(now=970, stream_key="unminted", segment_index=0, body="stays"),
)

# --- every write operation alone -------------------------------------------------------------------------------------


def _by(verb: Callable[..., Operation], **more: object) -> Operation:
    return verb(now=1000, submission_id=S1, attempt_id=A1, **more)


_BEGIN: Final = _by(ops.BeginTurnJournal, session_key=RUN, kind="dispatch", operation_id=S1, turn_id="2")
_START: Final = _by(ops.UpdateTurnJournalPhase, phase="provider_started", stream_key=KEY, checkpoint_leaf_id=INPUT)
_RECORD: Final = _by(
    ops.UpdateTurnJournalPhase,
    phase="tool_request_recorded",
    tool_request=talk.request("c1", "c2"),
    checkpoint_leaf_id=INPUT,
)
_TRANSFER: Final = _by(
    ops.ReplaceTurnJournalAttempt, next_attempt_id=A2, lease=Lease(owner_id="w2", lease_expires_at=9)
)
_SEGMENT: Final = ops.AppendStreamSegment(stream_key=KEY, segment_index=7, body="x" * 5000)
_SAY: Final = talk.message("e9", "", talk.says("hello"))
_STEP: Final = (
    talk.message("e10", "", talk.assistant("c7", "c8")),
    talk.message("e11", "e10", talk.results("c7")),
    Draft(kind="state", state="waiting"),
    talk.message("e12", "e11", talk.results("c8")),
)

_ALONE: Final[dict[str, tuple[Operation, tuple[Moves, ...]]]] = {
    # verb: (the operation, the states that it is tried from)
    "admit": (admit("s3"), ((), SETTLED)),
    "claim": (_by(ops.Claim, owner_id="w1", lease_expires_at=9), (ADMITTED, (*ADMITTED, admit("s3")))),
    "mark_input_applied": (_by(ops.MarkInputApplied, max_retry=3, timeout_at=99), (CLAIMED, MARKED)),
    "request_recovery": (_by(ops.RequestRecovery), (CLAIMED, RECORDED)),
    "requeue": (_by(ops.Requeue), (CLAIMED, BEGUN)),
    "complete": (_by(ops.Complete), (COMMITTED, CLAIMED)),
    "fail": (_by(ops.FailSubmission, error="boom"), (RECORDED,)),
    "renew_leases": (ops.RenewLeases(now=10**9, owner_id="w1", submission_ids=(S1, "s2")), (RECORDED, SETTLED)),
    "insert_attempt_marker": (_by(ops.InsertAttemptMarker), (CLAIMED, SETTLED)),
    "delete_attempt_marker": (_by(ops.DeleteAttemptMarker), (SETTLED,)),
    "delete_session": (ops.DeleteSession(now=1000, session_key=RUN), (SETTLED, TEXT, ())),
    "begin_turn_journal": (_BEGIN, (MARKED, STREAMED, COMMITTED)),
    "update to provider_started": (_START, (BEGUN,)),
    "update to tool_request_recorded": (_RECORD, (STREAMED,)),
    "mark_stream_consumed": (_by(ops.MarkStreamConsumed, stream_key=KEY), (STREAMED,)),
    "commit_turn_journal": (_by(ops.CommitTurnJournal, committed_leaf_id=INPUT), (STARTED, STREAMED)),
    "replace_turn_journal_attempt": (_TRANSFER, (CLAIMED, RECORDED, COMMITTED)),
    "append_stream_segment": (_SEGMENT, ((), STREAMED)),
    "delete_stream_segments": (ops.DeleteStreamSegments(stream_key=KEY), (STREAMED,)),
    "append": (ops.Append(now=1000, run_id=RUN, record=_SAY), ((), STORED)),
    "append_step": (ops.AppendStep(now=1000, run_id=RUN, records=_STEP), ((), STORED)),
    "checkpoint": (ops.Checkpoint(now=1000, run_id=RUN, state="running"), ((), STORED)),
    "restore": (ops.Restore(now=1000, run_id=RUN), (TORN,)),
    "set_leaf": (ops.SetLeaf(now=1000, run_id=RUN, entry_id=INPUT), (STORED,)),
    "clear": (ops.Clear(now=1000, run_id=RUN), (STORED,)),
}


def _alone() -> list[Scenario]:
    return [
        Scenario(name=f"{name}/{number}", prior=tuple(prior), steps=opened([operation]), hot=hot)
        for name, (operation, priors) in _ALONE.items()
        for number, (prior, hot) in enumerate([*((prior, False) for prior in priors), (priors[0], True)])
        if prior or not hot
    ]


# --- histories -------------------------------------------------------------------------------------------------------

_LEGACY_RUN: Final = tuple(
    Record(
        seq=seq,
        run_id="legacy",
        kind=RecordKind(draft.kind),
        timestamp=seq,
        entry_id=draft.entry_id,
        parent_id=draft.parent_id,
        role=draft.role,
        state=draft.state,
        payload=draft.payload,
    )
    for seq, draft in (
        (1, talk.message("m1", "", talk.says("long ago"))),
        (2, talk.message("m2", "m1", talk.says("answered", "assistant"))),
        (5, Draft(kind="state", state="completed")),
    )
)
_LEGACY: Final = {
    "legacy": _LEGACY_RUN,
    "older": tuple(attrs.evolve(record, run_id="older") for record in _LEGACY_RUN),
}
_GROWTH: Final = tuple(
    ops.Append(now=n, run_id=f"run{n % 3}", record=talk.message(f"g{n}", "", talk.says("x" * 1500))) for n in range(12)
)
_TORN_RECOVERY: Final = tuple(
    operation for prior in (TORN,) for operation in perform(_after(prior), attrs.evolve(RESCUE, predecessor="a9"))
)


def _recovery(prior: Moves) -> tuple[Operation, ...]:
    return perform(_after(prior), RESCUE, now=5000)


def _two_connections() -> tuple[Step, ...]:
    """Two stores on one file write in turn; then the first closes while the other goes on."""
    steps = [Step("open"), Step("open", 1)]
    steps += [Step(operation, place % 2) for place, operation in enumerate(TEXT)]
    steps += [Step("close"), Step(admit("s4", "run4", 990), 1), Step("checkpoint", 1), Step("close", 1)]
    return tuple(steps)


STANDARD: Final[tuple[Scenario, ...]] = (
    Scenario(name="creation", steps=opened([admit()], "close")),
    Scenario(name="turn with tools", steps=opened(TURN, "close"), prior=(admit("s0", "run0"),)),
    Scenario(name="text turn", steps=opened(TEXT), prior=(admit("s0", "run0"),)),
    Scenario(name="transfer", prior=RECORDED, steps=opened([_TRANSFER, _TRANSFER, _by(ops.Complete)])),
    Scenario(name="step", prior=tuple(RECORDED), steps=opened(TURN[len(RECORDED) : len(COMMITTED)])),
    Scenario(
        name="deletion",
        prior=tuple(SETTLED),
        steps=opened([ops.DeleteSession(now=1000, session_key=RUN), admit(S1, RUN, 1010)], "close"),
    ),
    Scenario(name="import", legacy=_LEGACY, steps=(*opened([admit()], "close"), Step("open"))),
    Scenario(name="import beside work", legacy=_LEGACY, prior=CLAIMED, hot=True, steps=opened([])),
    Scenario(name="checkpoints", steps=opened(_GROWTH, "checkpoint"), wal_autocheckpoint=4),
    Scenario(
        name="checkpoint and close",
        steps=(*opened(_GROWTH[:4], "checkpoint"), *map(Step, _GROWTH[4:7]), Step("close"), *opened(_GROWTH[7:9])),
    ),
    Scenario(name="two connections", steps=_two_connections(), wal_autocheckpoint=6),
    Scenario(name="recovery: tools recorded", prior=RECORDED, steps=opened(_recovery(RECORDED)), hot=True),
    Scenario(name="recovery: provider started", prior=STREAMED, steps=opened(_recovery(STREAMED))),
    Scenario(name="recovery: step stored", prior=STORED, steps=opened(_recovery(STORED)), hot=True),
    Scenario(name="recovery: committed", prior=COMMITTED, steps=opened(_recovery(COMMITTED))),
    Scenario(name="recovery: torn step", prior=tuple(TORN), steps=opened(_TORN_RECOVERY)),
)
"""The histories that are crashed at every write, and at every write of what follows a crash."""

SCENARIOS: Final[tuple[Scenario, ...]] = (*STANDARD, *_alone())


def by_name(name: str) -> tuple[Scenario, ...]:
    """The scenarios of this name, or those whose names start with it."""
    exact = tuple(scenario for scenario in SCENARIOS if scenario.name == name)
    return exact or tuple(scenario for scenario in SCENARIOS if scenario.name.startswith(name))
