"""The composed system, one step at a time: stores x workers x the outside world, as small integers.

Every store state, driver, world and crew is interned: it is built once and is a number from then on. A worker's step
depends on the store and on its own driver and on nothing else, so the step of a (store, driver) pair is computed once,
by the real ``system.apply`` and the real ``turn.receive``, and looked up ever after. The search (``search``) handles
numbers only.

**What is one step.** An accepted or refused write, a segment, a call of the provider, or one tool. Three things are
merged, and why nothing is lost:

* *Reads* are made in one go with the write before them. What a driver reads (its submission, its slot, the session's
  log) is changed by gated and fenced writes alone, so while it owns the submission nobody else changes it, and the
  reads would answer the same at any later moment. If ownership is lost in between, its next write is refused whatever
  it has read, because a refusal looks at the attempt id and at nothing that was read; that this is so is no assumption
  but law E7, checked on every step of every superseded attempt.
* *Expiry* is merged with the look of the worker who takes over: that a lease has passed changes nothing that anybody
  else reads. Time may always pass, so a running submission may be taken over at any moment. A **frozen** worker is one
  that does not move; it may wake at every later state, since every worker may move in every state.
* *A crash after an operation whose answer is lost* is the operation followed by a crash: the answer would only have
  changed the memory that the crash takes. So one crash action, in every state, is a crash before and after each
  operation. A write that arrives late, after its sender is dead, is a frozen worker that wakes for one step and dies.

Tools of one request run in request order: they touch different counters, and the driver sorts their results.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from typing import Final, Generic, TypeVar

import attrs

from turnproof.model import operations as ops
from turnproof.model.decision import Accept, Decision, Fail, Refuse
from turnproof.model.driver import (
    Answer,
    Assemble,
    Done,
    Driver,
    Job,
    Piece,
    ProviderCall,
    Said,
    Stage,
    StoreCall,
    ToolRun,
)
from turnproof.model.rows import Draft
from turnproof.model.state import State
from turnproof.model.submission import owns
from turnproof.model.system import apply
from turnproof.model.turn import TABLE, Table, next_step, receive, start
from turnproof.model.vocabulary import Phase, RecordKind, Status
from turnproof.proofs.explore.laws import Event, Fault, World, act_on, state_fault, step_fault
from turnproof.proofs.explore.scope import LEASE_MS, NOW, SESSION, Scope, Script

__all__ = ["IDLE", "NO_EVENT", "Label", "Machine", "Move"]

T = TypeVar("T", bound=Hashable)

IDLE: Final = 0
"""The number of no driver: a worker without work."""
NO_EVENT: Final = 0
UNNAMED: Final = ""
"""The attempt id of a driver that did not yet try to own anything; it gets one when it tries."""


class Interned(Generic[T]):
    """Values by number, numbers by value."""

    def __init__(self, *first: T) -> None:
        self.values: list[T] = list(first)
        self._numbers: dict[T, int] = {value: number for number, value in enumerate(first)}

    def number(self, value: T) -> int:
        number = self._numbers.get(value)
        if number is None:
            number = self._numbers[value] = len(self.values)
            self.values.append(value)
        return number

    def __len__(self) -> int:
        return len(self.values)


@attrs.frozen
class Label:
    """What a step did, to be told: the request, and how it was answered."""

    request: ops.Operation | str
    answer: Answer | None = None


@attrs.frozen
class Move:
    """One step of a worker: the store, driver and event that follow."""

    store: int
    driver: int
    event: int
    label: Label


@attrs.define
class Machine:
    """The steps of a scope under a table and the store's choices. ``reached`` counts behaviour, by its name."""

    scope: Scope
    table: Table = TABLE
    stop: Callable[[Driver], Driver | None] | None = None
    """What a clean shutdown makes of a driver, if workers may be shut down."""
    names: Callable[[State, str], tuple[str, ...]] | None = None
    """The attempt ids that a driver may get; the next in order of ownership when not given."""
    script: Script = attrs.field(init=False)
    stores: Interned[State] = attrs.field(init=False)
    drivers: Interned[Driver | None] = attrs.Factory(lambda: Interned(None))
    worlds: Interned[World] = attrs.Factory(lambda: Interned(World()))
    events: Interned[Event] = attrs.Factory(lambda: Interned(()))
    reached: dict[str, int] = attrs.Factory(dict)
    faults: list[Fault] = attrs.Factory(list)
    asked: dict[tuple[int, ops.Operation], int] | None = None
    """If it is kept: every operation that is put to a store state, reads included, and the state that follows."""
    _state_faults: dict[int, Fault] = attrs.Factory(dict)

    def __attrs_post_init__(self) -> None:
        self.script = Script(self.scope)
        self.stores = Interned(self.scope.first())

    # --- a worker's own steps ---

    def moves(self, store: int, driver: int) -> tuple[Move, ...]:
        """What a worker's next step may be; more than one only when attempt ids are chosen freely."""
        found = self.drivers.values[driver]
        if found is None:
            return ()
        state = self.stores.values[store]
        if found.job.attempt_id != UNNAMED:
            return (self._step(state, found),)
        return tuple(self._step(state, _named(found, name)) for name in self._names(state, found.job.submission_id))

    def _names(self, state: State, submission_id: str) -> tuple[str, ...]:
        if self.names is not None:
            return self.names(state, submission_id)
        return (f"a{len(state.former.get(submission_id, ())) + 1}",)

    def _step(self, state: State, driver: Driver) -> Move:
        event, label, after = NO_EVENT, Label("nothing"), state
        step = next_step(driver, NOW, self.table)
        match step:
            case StoreCall(operation):
                after, answer = self.ask(state, operation)
                if after is not state:
                    self._judge(driver, operation, state, after)
                event = self._event_of(state, operation, answer)
                label = Label(operation, answer)
                self._count(operation, answer)
                driver = receive(driver, answer, NOW, self.table)
            case ProviderCall():
                event = self.events.number(("asks", step.submission_id, step.turn_id))
                label = Label(f"ask the provider for turn {step.turn_id}")
                driver = receive(driver, self._heard(step), NOW, self.table)
            case ToolRun(calls=(call, *_)):
                event = self.events.number(("runs", step.submission_id, step.turn_id, call.id, call.input))
                label = Label(f"run tool {call.id} of turn {step.turn_id}")
                driver = receive(driver, self.script.outcome(call.id), NOW, self.table)
            case _:
                pass
        driver = self._settled(after, driver)
        return Move(self.stores.number(after), self._rest(driver), event, label)

    def ask(self, state: State, operation: ops.Operation) -> tuple[State, Decision[object]]:
        """The store after an operation, and its answer."""
        after, answer = apply(state, operation, self.scope.choices)
        if self.asked is not None:
            self.asked[self.stores.number(state), operation] = self.stores.number(after)
        return after, answer

    def _heard(self, call: ProviderCall) -> Piece | Said:
        pieces = self.script.pieces(call)
        if call.received < len(pieces) and self.scope.pieces:
            return Piece(pieces[call.received])
        return Said("".join(pieces))

    def _settled(self, state: State, driver: Driver) -> Driver:
        """The driver after everything that only it can see: reads, and the rest of a stream that is open."""
        while True:
            step = next_step(driver, NOW, self.table)
            match step:
                case StoreCall(operation) if operation.reads:
                    _, answer = self.ask(state, operation)
                    driver = receive(driver, answer, NOW, self.table)
                case ProviderCall(received=received) if received:
                    driver = receive(driver, self._heard(step), NOW, self.table)
                case Assemble(pieces=pieces):
                    driver = receive(driver, Said("".join(pieces)), NOW, self.table)
                case _:
                    return driver
            if driver.stage not in (Stage.LOG, Stage.DONE) and driver.decision:
                self._reach(f"decision {driver.decision}")

    def _rest(self, driver: Driver) -> int:
        """The number of a driver at rest; one that is done leaves its worker idle."""
        if driver.stage is not Stage.DONE:
            return self.drivers.number(driver)
        step = next_step(driver, NOW, self.table)
        if isinstance(step, Done):
            self._reach(f"end {step.end.value}")
            if step.end.name == "ERROR":
                self.faults.append(Fault("E5", f"the driver cannot go on: {step.message}"))
        return IDLE

    # --- what else may happen ---

    def starts(self, store: int) -> tuple[int, ...]:
        """The drivers that an idle worker may take up: one for each claim and each takeover that is possible."""
        state = self.stores.values[store]
        jobs = []
        for row in state.submissions.values():
            job = Job(
                submission_id=row.submission_id,
                attempt_id=UNNAMED,
                owner_id=UNNAMED,
                lease_ms=LEASE_MS,
                max_retry=self.scope.retries_of(row.submission_id),
                atomic_steps=self.scope.atomic_steps,
                choices=self.scope.choices,
            )
            if row.status is Status.QUEUED and state.is_head(row):
                jobs.append(job)
            elif row.status is Status.RUNNING and self._may_change_hands(state, row.submission_id):
                observed = row.lease_expires_at if self.scope.renewals else None
                jobs.append(attrs.evolve(job, predecessor=row.attempt_id, observed_lease=observed))
        return tuple(self._rest(self._settled(state, start(job))) for job in jobs)

    def may_die(self, store: int, driver: int) -> bool:
        """Whether a worker may be killed here: the last attempt of a submission may not, or it would never settle."""
        state, found = self.stores.values[store], self.drivers.values[driver]
        if found is None:
            return False
        owner = owns(state.submissions.get(found.job.submission_id), found.job.attempt_id)
        return not owner or self._may_change_hands(state, found.job.submission_id)

    def _may_change_hands(self, state: State, submission_id: str) -> bool:
        return len(state.former.get(submission_id, ())) < self.scope.attempts

    def stopped(self, driver: int) -> int | None:
        """The driver that a clean shutdown leaves to its last writes, if there is such a thing in this design."""
        found = self.drivers.values[driver]
        after = None if self.stop is None or found is None else self.stop(found)
        return None if after is None else self._rest(after)

    def disturbances(self, store: int) -> Iterator[Move]:
        """What neither a worker nor a crash does: somebody's notice in the session, a renewed lease."""
        state = self.stores.values[store]
        told = sum(r.kind is RecordKind.EXTENSION_DATA for run in state.runs.values() for r in run.records)
        if SESSION in state.runs and told < self.scope.notices:
            tree = state.transcript(SESSION, self.scope.choices)
            notice = Draft(
                kind=RecordKind.EXTENSION_DATA.value,
                entry_id=f"notice:{told + 1}",
                parent_id=tree.id_of(tree.leaf),
                ext_type="notice",
            )
            yield self._disturbed(state, ops.Append(now=NOW, run_id=SESSION, record=notice))
        for row in state.submissions.values():
            renewed = (row.lease_expires_at - NOW) - LEASE_MS
            if row.status is Status.RUNNING and 0 <= renewed < self.scope.renewals and row.owner_id is not None:
                renewal = ops.RenewLeases(
                    now=NOW, owner_id=row.owner_id, submission_ids=(row.submission_id,), lease_ms=LEASE_MS + renewed + 1
                )
                yield self._disturbed(state, renewal)

    @property
    def disturbed(self) -> bool:
        """Whether anything happens besides what workers do."""
        return bool(self.scope.notices or self.scope.renewals)

    def describe_start(self, driver: int) -> str:
        found = self.drivers.values[driver]
        if found is None:
            return "nothing"
        what = "claim" if found.job.predecessor is None else "lease expired: take over"
        return f"{what} {found.job.submission_id}"

    def _disturbed(self, state: State, operation: ops.Operation) -> Move:
        after, answer = self.ask(state, operation)
        return Move(self.stores.number(after), IDLE, NO_EVENT, Label(operation, answer))

    # --- laws and what was reached ---

    def _judge(self, driver: Driver, operation: ops.Operation, before: State, after: State) -> None:
        number = self.stores.number(after)
        if self.stores.values[number] == before:
            return
        fault = step_fault(driver, operation, before, after) or self.fault_of(number)
        if fault is not None:
            self.faults.append(fault)

    def fault_of(self, store: int) -> Fault | None:
        """The law that a store state breaks, judged once."""
        if store not in self._state_faults:
            fault = state_fault(self.stores.values[store], self.script)
            self._state_faults[store] = fault or Fault("", "")
        found = self._state_faults[store]
        return found if found.promise else None

    def act(self, world: int, event: int) -> int:
        """The world after an event."""
        after, fault = act_on(self.worlds.values[world], self.events.values[event])
        if fault is not None:
            self.faults.append(fault)
        return self.worlds.number(after)

    def is_settled(self, store: int) -> bool:
        return all(row.status is Status.SETTLED for row in self.stores.values[store].submissions.values())

    def _event_of(self, before: State, operation: ops.Operation, answer: Decision[object]) -> int:
        slot = before.slots.get(operation.submission_id) if isinstance(operation, ops.Attempted) else None
        if slot is None or not isinstance(answer, Accept):
            return NO_EVENT
        turn = (slot.submission_id, slot.turn_id)
        match operation:
            case ops.UpdateTurnJournalPhase(phase=Phase.TOOL_REQUEST_RECORDED):
                return self.events.number(("records", *turn))
            case ops.CommitTurnJournal():
                return self.events.number(("commits", *turn))
            case _:
                return NO_EVENT

    def _count(self, operation: ops.Operation, answer: Decision[object]) -> None:
        if isinstance(answer, Accept):
            self._reach(f"accepted {operation.verb}")
        elif isinstance(answer, Refuse):
            self._reach(f"refused {operation.verb} ({answer.rule})")
        elif isinstance(answer, Fail):
            self._reach(f"error {operation.verb} {answer.code.value}")

    def _reach(self, name: str) -> None:
        self.reached[name] = self.reached.get(name, 0) + 1


def _named(driver: Driver, name: str) -> Driver:
    """The driver under the attempt id, and the owner id, with which it tries to own its submission."""
    return attrs.evolve(driver, job=attrs.evolve(driver.job, attempt_id=name, owner_id=name))
