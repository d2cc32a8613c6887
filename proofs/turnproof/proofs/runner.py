"""Running the reference driver for real: your provider and your tools, on any store.

    with open_store(".turnproof") as store:
        store.admit(submission_id="s1", session_key="chat", kind="direct", payload='"hello"', accepted_at=now)
        Runner(on_store(store), provider, tools).work(owner="worker-1")

``provider(call)`` yields the pieces of its answer; each is stored before the next is asked for, and together they are
the assistant message as a payload (or what ``assemble`` makes one of). ``tools(call)`` answers anything that is JSON;
what it raises becomes a result with ``is_error``. ``work`` takes over what has expired, claims what is next, and
carries it to its end; call it from as many processes as you like.

The store is one function from an operation to the model's kinds of answer. Three are here: our stores (SQLite or in
memory) by their verbs, the model as a value, and anything behind the wire.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, wait
from enum import Enum
from typing import Final, TypeAlias, TypeVar, cast, get_origin

import attrs

from turnproof.model import operations as ops
from turnproof.model.choices import STRICT, Choices
from turnproof.model.decision import Accept, Decision, Fail, Refuse
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
    Step,
    StoreCall,
    ToolCall,
    ToolRun,
)
from turnproof.model.rows import Context, Record, Restored, Segment, Slot, Submission
from turnproof.model.system import EMPTY, State, apply
from turnproof.model.turn import TABLE, Table, next_step, receive, start
from turnproof.model.vocabulary import (
    DEFAULT_LEASE_MS,
    ErrorCode,
    InvalidArgument,
    Phase,
    RecordKind,
    Status,
    SubmissionKind,
    TurnproofError,
    error_of,
)
from turnproof.proofs.subjects import Subject, now_ms
from turnproof.proofs.wire import Err, Json, Object, refusal

__all__ = ["Ask", "Held", "Provider", "Runner", "Tools", "on_store", "on_subject"]

Ask: TypeAlias = Callable[[ops.Operation], Decision[object]]
"""A store: answers an operation."""
Provider: TypeAlias = Callable[[ProviderCall], Iterable[str]]
Tools: TypeAlias = Callable[[ToolCall], object]
T = TypeVar("T")


# --- stores -----------------------------------------------------------------------------------------------------------


def on_store(store: object) -> Ask:
    """One of our stores, or anything with its verbs as methods."""

    def ask(operation: ops.Operation) -> Decision[object]:
        arguments = {
            field.name: value
            for field in attrs.fields(type(operation))
            if (value := getattr(operation, field.name)) is not None
        }
        try:
            value = getattr(store, operation.verb)(**arguments)
        except TurnproofError as error:
            return Fail(error.code, "", error.message)
        return _decision(operation, tuple(value) if isinstance(value, list) else value)

    return ask


def _decision(operation: ops.Operation, value: object) -> Decision[object]:
    """The answer of a store that says ``False`` or ``None`` where its state did not allow it."""
    if not operation.reads and value is refusal(operation.verb):
        return Refuse("")
    return Accept(value, "")


@attrs.define
class Held:
    """The model as a store: call it like one."""

    state: State = EMPTY
    choices: Choices = STRICT

    def __call__(self, operation: ops.Operation) -> Decision[object]:
        self.state, answer = apply(self.state, operation, self.choices)
        return answer


def on_subject(subject: Subject) -> Ask:
    """A store behind the wire."""

    def ask(operation: ops.Operation) -> Decision[object]:
        outcome = subject.call(operation)
        if isinstance(outcome, Err):
            return Fail(ErrorCode(outcome.code), "", outcome.message)
        decode = _ROWS.get(operation.verb)
        value = outcome.value
        if decode is None or value is None:
            return _decision(operation, value)
        if isinstance(value, list):
            return Accept(tuple(decode(_row(item)) for item in value), "")
        return Accept(decode(_row(value)), "")

    return ask


def _row(value: Json) -> Object:
    if not isinstance(value, dict):
        raise InvalidArgument(f"a row is a JSON object, this is none: {value!r}")
    return value


def _as(cls: Callable[..., T], **enums: type[Enum]) -> Callable[[Object], T]:
    """How a row of this class is read from the wire; absent and null are the field's default, if it has one."""

    def decode(row: Object) -> T:
        given = {}
        for field in attrs.fields(cast("type[attrs.AttrsInstance]", get_origin(cls) or cls)):
            value = row.get(field.name)
            if value is not None:
                given[field.name] = enums[field.name](value) if field.name in enums else _value(value)
            elif field.default is attrs.NOTHING:
                given[field.name] = None
        return cls(**given)

    return decode


def _value(value: Json) -> object:
    return tuple(value) if isinstance(value, list) else value


_SUBMISSION: Final = _as(Submission[str], kind=SubmissionKind, status=Status)
_ROWS: Final[dict[str, Callable[[Object], object]]] = {
    # The answers that the driver reads more of than whether they are there.
    "claim": _SUBMISSION,
    "replace_turn_journal_attempt": _SUBMISSION,
    "get_submission": _SUBMISSION,
    "list_runnable": _SUBMISSION,
    "list_expired": _SUBMISSION,
    "get_turn_journal": _as(Slot[str], kind=SubmissionKind, phase=Phase),
    "replay": _as(Record, kind=RecordKind),
    "get_stream_segments": _as(Segment),
    "context": _as(Context),
    "restore": _as(Restored),
    "inspect": _as(Restored),
}


# --- running ----------------------------------------------------------------------------------------------------------


@attrs.define
class Runner:
    """Carries submissions through their turns."""

    ask: Ask
    provider: Provider
    tools: Tools
    clock: Callable[[], int] = now_ms
    assemble: Callable[[Sequence[str]], str] = "".join
    executor: Executor | None = None
    """Runs the tools of one request at once; without it, one after the other."""
    lease_ms: int = DEFAULT_LEASE_MS
    max_retry: int | None = None
    timeout_ms: int | None = None
    choices: Choices = STRICT
    atomic_steps: bool = True
    table: Table = TABLE
    between: Callable[[Step], None] | None = None
    """Called before each step: for tests that kill or freeze there, and for logs."""
    _stream: tuple[str, Iterator[str], list[str]] | None = None
    _running: dict[str, Future[Outcome]] = attrs.Factory(dict)
    _renewed: int = 0

    def claim(self, submission_id: str, owner: str) -> Driver:
        """Claim a queued submission and carry it to its end."""
        return self.carry(self._job(submission_id, owner))

    def take_over(self, row: Submission[str], owner: str) -> Driver:
        """Take a running submission over from its attempt, whose lease has passed, and carry it to its end."""
        job = self._job(row.submission_id, owner)
        return self.carry(attrs.evolve(job, predecessor=row.attempt_id, observed_lease=row.lease_expires_at))

    def work(self, owner: str, rounds: int | None = None) -> list[Driver]:
        """Recover what has expired and claim what is runnable, until nothing is; answers how each ended."""
        ended: list[Driver] = []
        while rounds is None or len(ended) < rounds:
            for row in self._rows(ops.ListExpired(now=self.clock())):
                ended.append(self.take_over(row, owner))
            queued = self._rows(ops.ListRunnable(now=self.clock()))
            if not queued:
                break
            ended.append(self.claim(queued[0].submission_id, owner))
        return ended

    def carry(self, job: Job) -> Driver:
        """Drive one attempt to its end. What the provider or the store raises is raised: a crash, to be recovered."""
        driver = start(job)
        self._stream, self._running, self._renewed = None, {}, self.clock()
        while True:
            step = next_step(driver, self.clock(), self.table)
            if self.between is not None:
                self.between(step)
            if isinstance(step, Done):
                return driver
            self._renew(job)
            answer = self._do(step)
            driver = receive(driver, answer, self.clock(), self.table)
            if driver.end is End.ERROR and isinstance(answer, Fail):
                raise error_of(answer.code, answer.message)

    # --- one step ---

    def _do(self, step: Step) -> Answer:
        match step:
            case StoreCall(operation):
                return self.ask(operation)
            case ProviderCall():
                return self._listen(step)
            case Assemble(pieces=pieces):
                return Said(self.assemble(pieces))
            case ToolRun(calls=calls):
                return self._run(calls)
            case _:
                raise TypeError(f"no step: {step!r}")

    def _listen(self, call: ProviderCall) -> Answer:
        """The next piece of the stream, opened at the first."""
        name = f"{call.submission_id} {call.turn_id}"
        if self._stream is None or self._stream[0] != name or call.received == 0:
            self._stream = (name, iter(self.provider(call)), [])
        _, pieces, heard = self._stream
        piece = next(pieces, None)
        if piece is None:
            self._stream = None
            return Said(self.assemble(heard))
        heard.append(piece)
        return Piece(piece)

    def _run(self, calls: Sequence[ToolCall]) -> Outcome:
        if self.executor is None:
            return self._call(calls[0])
        for call in calls:
            if call.id not in self._running:
                self._running[call.id] = self.executor.submit(self._call, call)
        done, _ = wait([self._running[call.id] for call in calls], return_when=FIRST_COMPLETED)
        outcome = next(iter(done)).result()
        if len(calls) == 1:
            self._running.clear()  # the next turn may use the same call ids
        return outcome

    def _call(self, call: ToolCall) -> Outcome:
        try:
            output, failed = json.dumps(self.tools(call), ensure_ascii=False, allow_nan=False), False
        except Exception as error:
            output, failed = json.dumps({"type": "error", "message": f"{type(error).__name__}: {error}"}), True
        return Outcome(call.id, output, failed)

    def _renew(self, job: Job) -> None:
        """Keep the lease while at work. Whether it is still ours, the next write tells."""
        now = self.clock()
        if now - self._renewed > self.lease_ms // 3:
            self._renewed = now
            ids = (job.submission_id,)
            self.ask(ops.RenewLeases(now=now, owner_id=job.owner_id, submission_ids=ids, lease_ms=self.lease_ms))

    def _rows(self, operation: ops.Operation) -> tuple[Submission[str], ...]:
        answer = self.ask(operation)
        found = answer.value if isinstance(answer, Accept) else ()
        return tuple(row for row in found if isinstance(row, Submission)) if isinstance(found, tuple) else ()

    def _job(self, submission_id: str, owner: str) -> Job:
        return Job(
            submission_id=submission_id,
            attempt_id=f"{owner}-{uuid.uuid4().hex[:12]}",
            owner_id=owner,
            lease_ms=self.lease_ms,
            max_retry=self.max_retry,
            timeout_ms=self.timeout_ms,
            atomic_steps=self.atomic_steps,
            choices=self.choices,
        )
