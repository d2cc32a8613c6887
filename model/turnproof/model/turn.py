"""The reference driver: how an agent's turn is carried through the stores, and how a crashed one is recovered.

It does no I/O. ``next_step(driver, now)`` says what is to be done next: a call of the store, a call of the provider, a
run of tools. Whoever does it hands the answer to ``receive(driver, answer, now)`` and gets the driver that goes on from
there. A driver is an immutable, hashable value, so that one can be copied, compared and enumerated: the explorer runs
three of them against each other through every crash, and ``turnproof.proofs.runner`` runs one against a real store.

A turn, in the order of SPEC section 8. Each write announces the irreversible thing that comes after it:

    claim -> input entry -> mark -> [begin -> provider_started -> PROVIDER, segments -> consumed
          -> text only: answer -> commit                                -> complete
          -> calls: tool_request_recorded -> TOOLS -> step -> commit ]  -> the next turn

Recovery: **transfer first** (ownership before history, C2), then look, then act as ``recovery.ROWS`` says. Ids of
entries are derived from submission and turn, so that recovering twice writes nothing new (C1); a turn's id is the
number of slot resets it makes, which only rises, so that no two attempts ever share one. Every write is gated or
fenced, and the driver **stops at once** when one is refused: somebody else owns the submission now.

Whatever else the log holds, a submission ends settled (E5): an answer that no model gives, and a turn that cannot be
closed or committed, **fail** the submission with what was wrong, since the next attempt would fare no better.

``TABLE`` is the whole machine: for each stage what it asks and how it takes the answer. A wrong design is this table
with a few rules replaced (``turnproof.proofs.explore.designs``).
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from types import MappingProxyType
from typing import Final, TypeAlias, TypeVar, cast

from attrs import evolve, frozen

from turnproof.model import operations as ops
from turnproof.model.decision import Accept, Fail, Refuse
from turnproof.model.driver import (
    Answer,
    Assemble,
    Done,
    Driver,
    End,
    Job,
    Outcome,
    Piece,
    ProviderCall,
    Said,
    Stage,
    Step,
    StoreCall,
    ToolRun,
)
from turnproof.model.payload import message_text, parse_json
from turnproof.model.rebuild import (
    calls_of,
    draft_answer,
    draft_input,
    draft_step,
    is_answer,
    write_request,
)
from turnproof.model.recovery import classify
from turnproof.model.resume import act
from turnproof.model.rows import Context, Lease, Record, Restored, Segment, Slot, Submission
from turnproof.model.stream import captured
from turnproof.model.transcript import Transcript, fold
from turnproof.model.vocabulary import ErrorCode, Phase, RecordKind

__all__ = ["TABLE", "Ask", "Rule", "Table", "Take", "carry", "next_step", "receive", "start"]

T = TypeVar("T")

_NO_ANSWER: Final = "the provider's answer is not an assistant message without tool results"


def start(job: Job) -> Driver:
    """The driver that will claim, or take over, a submission."""
    return Driver(job=job, stage=Stage.CLAIM if job.predecessor is None else Stage.TRANSFER)


def _as(kind: type[T], value: object) -> T:
    if not isinstance(value, kind):
        raise TypeError(f"the driver expects {kind.__name__}, it was answered {type(value).__name__}")
    return value


# --- asking ---------------------------------------------------------------------------------------------------------

Ask: TypeAlias = Callable[[Driver, int], Step]
Take: TypeAlias = Callable[[Driver, object, int], Driver]


def _attempted(verb: Callable[..., ops.Operation], **arguments: object) -> Ask:
    """A gated verb of this attempt, with fixed arguments."""

    def ask(d: Driver, now: int) -> Step:
        return StoreCall(verb(now=now, submission_id=d.job.submission_id, attempt_id=d.job.attempt_id, **arguments))

    return ask


def _claim(d: Driver, now: int) -> Step:
    job = d.job
    return StoreCall(
        ops.Claim(
            now=now,
            submission_id=job.submission_id,
            attempt_id=job.attempt_id,
            owner_id=job.owner_id,
            lease_expires_at=now + job.lease_ms,
        )
    )


def _transfer(d: Driver, now: int) -> Step:
    job = d.job
    return StoreCall(
        ops.ReplaceTurnJournalAttempt(
            now=now,
            submission_id=job.submission_id,
            attempt_id=job.predecessor or "",
            next_attempt_id=job.attempt_id,
            lease=Lease(owner_id=job.owner_id, lease_expires_at=now + job.lease_ms),
            observed_lease_expires_at=job.observed_lease,
        )
    )


def _mark(d: Driver, now: int) -> Step:
    timeout_at = None if d.job.timeout_ms is None else now + d.job.timeout_ms
    return _attempted(ops.MarkInputApplied, max_retry=d.job.max_retry, timeout_at=timeout_at)(d, now)


def _begin(d: Driver, now: int) -> Step:
    identity = {"session_key": d.session_key, "kind": d.kind, "operation_id": d.job.submission_id}
    return _attempted(ops.BeginTurnJournal, turn_id=str(d.turns + 1), **identity)(d, now)


def _phase(d: Driver, now: int, phase: Phase, **arguments: str) -> Step:
    """Move the phase; the checkpoint is where the turn started, in both phases (A5)."""
    return _attempted(ops.UpdateTurnJournalPhase, phase=phase.value, checkpoint_leaf_id=d.leaf, **arguments)(d, now)


def _append(d: Driver, now: int) -> Step:
    """Append what is to be appended: in one step if the store has them, else the first of it (R16)."""
    if d.job.atomic_steps and len(d.entries) > 1:
        return StoreCall(ops.AppendStep(now=now, run_id=d.session_key, records=d.entries, fence=d.fence))
    return StoreCall(ops.Append(now=now, run_id=d.session_key, record=d.entries[0], fence=d.fence))


def _ask_provider(d: Driver, _: int) -> Step:
    return ProviderCall(
        submission_id=d.job.submission_id,
        session_key=d.session_key,
        turn_id=d.turn_id,
        attempt_id=d.job.attempt_id,
        summary=d.prompt[0],
        messages=d.prompt[1],
        received=d.received,
    )


def _run_tools(d: Driver, _: int) -> Step:
    ran = {outcome.call_id for outcome in d.outcomes}
    return ToolRun(
        submission_id=d.job.submission_id,
        turn_id=d.turn_id,
        attempt_id=d.job.attempt_id,
        calls=tuple(call for call in calls_of(d.message) if call.id not in ran),
    )


# --- taking: a turn -------------------------------------------------------------------------------------------------


def _owned(d: Driver, value: object, _: int) -> Driver:
    """It is ours: claimed, or taken over. Recovery keeps the row, which it has to judge."""
    row = cast(Submission[str], _as(Submission, value))
    recovering = d.stage is Stage.TRANSFER
    return evolve(
        d,
        stage=Stage.JOURNAL if recovering else Stage.COUNT,
        session_key=row.session_key,
        kind=row.kind.value,
        payload=row.payload,
        row=row if recovering else None,
    )


def _slot(value: object) -> Slot[str] | None:
    return None if value is None else cast(Slot[str], _as(Slot, value))


def _turns(slot: Slot[str] | None) -> int:
    """How many turn ids are used: one for each reset of the slot, and one more where somebody else gave its turn the id
    that ours would get next. A new turn has a new id, whoever named the one before."""
    return 0 if slot is None else slot.revision + (slot.turn_id == str(slot.revision + 1))


def _counted(d: Driver, value: object, _: int) -> Driver:
    """A requeued submission may have a slot: its turns' ids are used."""
    return evolve(d, stage=Stage.OPEN, turns=_turns(_slot(value)), then=Stage.INPUT)


def _opened(d: Driver, value: object, _: int) -> Driver:
    return _at_leaf(d, _as(Restored, value).leaf)


def _at_leaf(d: Driver, leaf: str) -> Driver:
    if d.then is not Stage.INPUT:
        return evolve(d, stage=d.then, leaf=leaf, then=Stage.DONE)
    entries = (draft_input(d.job.submission_id, d.payload, leaf),)
    return evolve(d, stage=Stage.INPUT, entries=entries, then=Stage.MARK)


def _appended(d: Driver, _: object, __: int) -> Driver:
    """What was appended is the leaf now; what is left of the entries comes next."""
    if d.job.atomic_steps or len(d.entries) == 1:
        return evolve(d, stage=d.then, leaf=d.entries[-1].entry_id, entries=(), outcomes=(), then=Stage.DONE)
    return evolve(d, stage=d.stage, leaf=d.entries[0].entry_id, entries=d.entries[1:])


def _began(d: Driver, _: object, __: int) -> Driver:
    """A fresh turn: nothing of the one before is left in hand."""
    return Driver(
        job=d.job,
        stage=Stage.START,
        session_key=d.session_key,
        kind=d.kind,
        payload=d.payload,
        turns=d.turns + 1,
        turn_id=str(d.turns + 1),
        leaf=d.leaf,
    )


def _found_context(d: Driver, value: object, _: int) -> Driver:
    context = _as(Context, value)
    return evolve(d, stage=Stage.TEXTS, prompt=(context.summary, context.entries))


def _read_texts(d: Driver, value: object, _: int) -> Driver:
    """The context's entries as message payloads."""
    stored = {r.entry_id: r for r in cast("tuple[Record, ...]", value) if r.kind is RecordKind.MESSAGE}
    records = [stored[entry_id] for entry_id in d.prompt[1] if entry_id in stored]
    return evolve(
        d, stage=Stage.ASK, prompt=(d.prompt[0], tuple(message_text(r.role, r.text, r.payload) for r in records))
    )


def _heard(d: Driver, value: object, _: int) -> Driver:
    """A piece is stored before the next is asked for; at the end, the whole is kept in hand."""
    if isinstance(value, Piece):
        return evolve(d, stage=Stage.SEGMENT, body=value.body)
    return _said(d, value)


def _said(d: Driver, value: object) -> Driver:
    """The answer, whole. One that is no message raises, one that no model gives fails the submission; both before
    anything says that it was consumed."""
    message = _as(Said, value).message
    d = evolve(d, prompt=(None, ()), received=0)
    if not is_answer(message):
        return evolve(d, stage=Stage.FAIL, error=_NO_ANSWER)
    return evolve(d, stage=Stage.CONSUMED, message=message)


def _stored_piece(d: Driver, _: object, __: int) -> Driver:
    return evolve(d, stage=Stage.ASK, body="", received=d.received + 1)


def _consumed(d: Driver, _: object = None, __: int = 0) -> Driver:
    """Text only: store the answer. Calls: record the request before any tool runs (J6)."""
    if calls_of(d.message):
        return evolve(d, stage=Stage.RECORD, slot=None)
    entries = (draft_answer(d.job.submission_id, d.turn_id, d.message, d.leaf),)
    return evolve(d, stage=Stage.STORE, slot=None, entries=entries, then=Stage.COMMIT)


def _ran(d: Driver, value: object, _: int) -> Driver:
    """Results are stored in call order, whichever tool was done first."""
    outcome = _as(Outcome, value)
    parse_json(outcome.output)
    calls = [call.id for call in calls_of(d.message)]
    outcomes = tuple(sorted((*d.outcomes, outcome), key=lambda o: calls.index(o.call_id)))
    if len(outcomes) < len(calls):
        return evolve(d, outcomes=outcomes)
    entries = draft_step(d.job.submission_id, d.turn_id, d.message, outcomes, d.leaf)
    return evolve(d, stage=Stage.STORE, outcomes=(), entries=entries, then=Stage.COMMIT)


def _committed(d: Driver, _: object, __: int) -> Driver:
    """After calls the provider is asked again, in a new turn; after text the submission is done."""
    more = bool(d.message and calls_of(d.message)) or d.decision == "interrupt_tools"
    return evolve(d, stage=Stage.BEGIN if more else Stage.COMPLETE)


# --- taking: recovery -----------------------------------------------------------------------------------------------


def _looked(d: Driver, value: object, _: int) -> Driver:
    return evolve(d, stage=Stage.JOURNAL, row=cast(Submission[str], _as(Submission, value)))


def _found_slot(d: Driver, value: object, _: int) -> Driver:
    slot = _slot(value)
    return evolve(d, stage=Stage.LOG, slot=slot, turns=_turns(slot))


def _found_log(d: Driver, value: object, now: int) -> Driver:
    tree = fold(cast("tuple[Record, ...]", value), d.job.choices)
    return act(d, classify(d.row, d.slot, tree, now, d.job.choices), tree, now)


def _no_log(d: Driver, _: object, now: int) -> Driver:
    return act(d, classify(d.row, d.slot, Transcript(), now, d.job.choices), Transcript(), now)


def _attached(d: Driver, _: object, __: int) -> Driver:
    return evolve(d, stage=Stage.CLOSE) if d.entries else evolve(d, stage=d.then, then=Stage.DONE)


def _found_segments(d: Driver, value: object, _: int) -> Driver:
    """What lies beyond a gap was never captured (S3)."""
    segments = cast("tuple[Segment, ...]", value)
    return evolve(d, stage=Stage.ASSEMBLE, prompt=(None, captured(tuple((s.segment_index, s.body) for s in segments))))


def _assembled(d: Driver, value: object, _: int) -> Driver:
    """The stream was marked consumed by the attempt that heard it."""
    d = _said(d, value)
    return _consumed(d) if d.stage is Stage.CONSUMED else d


def _look_again(d: Driver, code: object, _: int) -> Driver:
    """The turn could not be closed or committed. What the dead attempt wrote late, past a store without fences, stays
    (P8): look at it. ``resume.act`` goes on only if less is missing than before, so this ends."""
    return evolve(d, stage=Stage.LOOK, error=f"the turn cannot be closed: {_as(ErrorCode, code).value}")


def _nowhere(d: Driver, code: object, _: int) -> Driver:
    """There is no such leaf, in a store that does not check what the journal names (choice ``anchors=trusted``)."""
    problem = f"there is no leaf to go on from: {_as(ErrorCode, code).value}"
    return evolve(d, stage=Stage.FAIL, error=problem, entries=(), then=Stage.DONE)


# --- the machine ----------------------------------------------------------------------------------------------------


def _to(stage: Stage) -> Take:
    return lambda d, _, __: evolve(d, stage=stage)


def _ends(end: End) -> Take:
    return lambda d, _, __: d.ended(end, d.error)


def _lost(d: Driver, _: object, __: int) -> Driver:
    return d.ended(End.LOST)


def _not_owner(d: Driver, _: object, __: int) -> Driver:
    return d.ended(End.NOT_OWNER)


@frozen
class Rule:
    """One row of the machine: what a stage asks, and how it takes the answer."""

    ask: Ask
    take: Take
    refused: Take = _lost
    """How it takes a refusal: as a rule somebody else owns the submission now, and it stops at once."""
    errors: Mapping[ErrorCode, Take] = MappingProxyType({})
    """The errors that it expects, and how it takes them; the answer is the error's code."""


TABLE: Final[Mapping[Stage, Rule]] = {
    # A turn.
    Stage.CLAIM: Rule(_claim, _owned, refused=_not_owner),
    Stage.COUNT: Rule(lambda d, now: StoreCall(_journal_of(d, now)), _counted),
    Stage.OPEN: Rule(
        lambda d, now: StoreCall(ops.Restore(now=now, run_id=d.session_key, fence=d.fence)),
        _opened,
        errors={ErrorCode.RUN_NOT_FOUND: lambda d, _, __: _at_leaf(d, "")},
    ),
    Stage.INPUT: Rule(_append, _appended),
    Stage.MARK: Rule(_mark, _to(Stage.BEGIN)),
    Stage.BEGIN: Rule(_begin, _began),
    Stage.START: Rule(
        lambda d, now: _phase(d, now, Phase.PROVIDER_STARTED, stream_key=d.stream_key), _to(Stage.CONTEXT)
    ),
    Stage.CONTEXT: Rule(lambda d, now: StoreCall(ops.ContextOf(now=now, run_id=d.session_key)), _found_context),
    Stage.TEXTS: Rule(lambda d, now: StoreCall(ops.Replay(now=now, run_id=d.session_key)), _read_texts),
    Stage.ASK: Rule(_ask_provider, _heard),
    # A segment that is stored already is no loss of ownership: the first body wins (S1).
    Stage.SEGMENT: Rule(
        lambda d, now: StoreCall(
            ops.AppendStreamSegment(now=now, stream_key=d.stream_key, segment_index=d.received, body=d.body)
        ),
        _stored_piece,
        refused=_stored_piece,
    ),
    Stage.CONSUMED: Rule(
        lambda d, now: _attempted(ops.MarkStreamConsumed, stream_key=d.stream_key)(d, now),
        _consumed,
    ),
    Stage.RECORD: Rule(
        lambda d, now: _phase(d, now, Phase.TOOL_REQUEST_RECORDED, tool_request=write_request(d.message)),
        _to(Stage.TOOLS),
    ),
    Stage.TOOLS: Rule(_run_tools, _ran),
    Stage.STORE: Rule(_append, _appended),
    Stage.COMMIT: Rule(
        lambda d, now: _attempted(ops.CommitTurnJournal, committed_leaf_id=d.leaf)(d, now),
        _committed,
        errors={ErrorCode.ANCHOR_MISMATCH: _look_again, ErrorCode.ENTRY_NOT_FOUND: _look_again},
    ),
    Stage.COMPLETE: Rule(_attempted(ops.Complete), _ends(End.COMPLETED)),
    Stage.FAIL: Rule(lambda d, now: _attempted(ops.FailSubmission, error=d.error)(d, now), _ends(End.FAILED)),
    # Recovery.
    Stage.TRANSFER: Rule(_transfer, _owned, refused=_not_owner),
    Stage.LOOK: Rule(lambda d, now: StoreCall(ops.GetSubmission(now=now, submission_id=d.job.submission_id)), _looked),
    Stage.JOURNAL: Rule(lambda d, now: StoreCall(_journal_of(d, now)), _found_slot),
    Stage.LOG: Rule(
        lambda d, now: StoreCall(ops.Replay(now=now, run_id=d.session_key)),
        _found_log,
        errors={ErrorCode.RUN_NOT_FOUND: _no_log},
    ),
    Stage.REQUEUE: Rule(_attempted(ops.Requeue), _ends(End.REQUEUED)),
    Stage.REMARK: Rule(_mark, _to(Stage.LOOK)),
    Stage.ATTACH: Rule(
        lambda d, now: StoreCall(ops.SetLeaf(now=now, run_id=d.session_key, entry_id=d.leaf, fence=d.fence)),
        _attached,
        errors={ErrorCode.ENTRY_NOT_FOUND: _nowhere, ErrorCode.RUN_NOT_FOUND: _nowhere},
    ),
    Stage.CAPTURED: Rule(
        lambda d, now: StoreCall(ops.GetStreamSegments(now=now, stream_key=d.stream_key)), _found_segments
    ),
    Stage.ASSEMBLE: Rule(lambda d, _: Assemble(d.stream_key, d.prompt[1]), _assembled),
    Stage.CLOSE: Rule(_append, _appended, errors={ErrorCode.ENTRY_CONFLICT: _look_again}),
    Stage.DONE: Rule(lambda d, _: Done(d.end or End.ERROR, d.error), lambda d, _, __: d),
}
"""The whole machine."""


def _journal_of(d: Driver, now: int) -> ops.Operation:
    return ops.GetTurnJournal(now=now, submission_id=d.job.submission_id)


Table: TypeAlias = Mapping[Stage, Rule]


def next_step(driver: Driver, now: int, table: Table = TABLE) -> Step:
    """What is to be done next, at ``now`` (ms)."""
    return table[driver.stage].ask(driver, now)


def receive(driver: Driver, answer: Answer, now: int, table: Table = TABLE) -> Driver:
    """The driver that goes on from the answer to its step."""
    rule = table[driver.stage]
    match answer:
        case Accept(value):
            return rule.take(driver, value, now)
        case Refuse():
            return rule.refused(driver, None, now)
        case Fail(code, _, message):
            known = rule.errors.get(code)
            return driver.ended(End.ERROR, f"{code.value}: {message}") if known is None else known(driver, code, now)
        case _:
            return rule.take(driver, answer, now)


def carry(job: Job, clock: Callable[[], int], table: Table = TABLE) -> Generator[Step, Answer, Done]:
    """The driver as a generator: yields steps, is sent answers, returns how it ended."""
    driver = start(job)
    while True:
        step = next_step(driver, clock(), table)
        if isinstance(step, Done):
            return step
        driver = receive(driver, (yield step), clock(), table)
