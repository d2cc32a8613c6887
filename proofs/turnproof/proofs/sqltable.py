"""The refinement table: every state of a submission and its slot, every verb, through the real SQLite statements.

The rules are proved over the model's functions; in the store the same rules are spelled in SQL, where no prover looks.
So the table of all cases is gone through: (submission status x slot phase, holder, consumed, checkpoint) x (owner,
stale, unknown attempt) x (every conditional verb with every kind of argument). Each cell is one call on the store and
one on the model; the answers and the full rows afterwards are compared.

A prior state is built once, by the store's own verbs. States that no verb reaches (a queued submission with a started
slot, a slot held by a third attempt) are made of reachable ones by changing the row in the file: the statements must
hold for any row that the schema allows. After a cell that wrote, the rows of the submission are put back.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import product
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

import attrs

from turnproof.impl import Store, open_store
from turnproof.model.choices import STRICT
from turnproof.model.ids import mint_stream_key
from turnproof.model.operations import ALPHABET, Operation
from turnproof.model.rows import Draft, Lease
from turnproof.model.state import EMPTY, State
from turnproof.model.vocabulary import Phase, Status
from turnproof.proofs.mutation import Edit
from turnproof.proofs.subjects import Expected, StoreSubject, expected
from turnproof.proofs.wire import Json, Object, Outcome, encode, encode_args

__all__ = ["IN_SQL", "Cell", "Prior", "Result", "compare", "priors"]

OWNER, STALE, UNKNOWN = "a1", "a0", "ax"
REQUEST: Final = '{"tool_calls":[{"id":"c1","name":"n","input":{}}]}'
_NOW: Final = 50_000
_LEASE: Final = 9_000
_MESSAGE: Final = '{{"role":"{}","parts":[{}]}}'
_CALL: Final = '{"type":"tool_call","id":"c1","name":"n","input":{}}'
SHOWN: Final = 10
"""Differing cells that are kept; all are counted."""

_TABLES: Final = ("submissions", "attempts", "slots")
"""The tables that the verbs of this table write, all of them by submission."""

Args: TypeAlias = dict[str, object]
StatusWord: TypeAlias = Literal["absent", "queued", "running", "marked", "settled"]

IN_SQL: Final = {
    # the three errors of `prove --seed-error`, put into the store's statements
    "commit-without-attempt-guard": Edit(
        "journal",
        "slot = _gated(connection, submission_id, attempt_id, Phase.COMMITTED)",
        "slot = next((s for s in slots(connection, \"WHERE submission_id = ? AND phase <> 'committed'\","
        " (submission_id,)) if s.phase in _FROM[Phase.COMMITTED]), None)",
    ),
    "tools-back-to-provider": Edit(
        "journal",
        "Phase.PROVIDER_STARTED: (Phase.BEFORE_PROVIDER,),",
        "Phase.PROVIDER_STARTED: (Phase.BEFORE_PROVIDER, Phase.TOOL_REQUEST_RECORDED),",
    ),
    "transfer-keeps-recovery-request": Edit(
        "submissions",
        '" recovery_requested_at = NULL, owner_id = coalesce(?, owner_id),"',
        '" owner_id = coalesce(?, owner_id),"',
    ),
}
"""Wrong statements that the table must find; an edit that does not apply fails the import of the store."""


@attrs.frozen(kw_only=True)
class Prior:
    """A state before a cell: of the submission, and of its slot."""

    status: StatusWord
    phase: Phase | None = None
    held: bool = True
    """The slot is held by the submission's attempt; else by the one before it."""
    consumed: bool = False
    checkpoint: bool = False
    tools: bool = False

    def __str__(self) -> str:
        if self.phase is None:
            return f"{self.status}, no slot"
        words = [name for name in ("consumed", "checkpoint", "tools") if getattr(self, name)]
        holder = [] if self.held else ["held by a former attempt"]
        return f"{self.status}, slot {' '.join([self.phase.value, *words, *holder])}"


@attrs.frozen(kw_only=True)
class Cell:
    """A cell in which store and model differ."""

    prior: Prior
    operation: str
    args: Object
    steps: tuple[Object, ...]
    """The verbs that lead there, this one last. What no verb reaches was changed in the file after them."""
    rule: str
    """The promises that decided it in the model."""
    expected: Json
    got: Json


@attrs.frozen(kw_only=True)
class Result:
    """What came of the table."""

    priors: int
    cells: int
    accepted: int
    differences: tuple[Cell, ...]
    promises: dict[str, int]
    """By promise: the cells that it decided."""
    differing: int


def priors() -> Iterator[Prior]:
    """Every state of a submission with every shape of its slot."""
    yield Prior(status="absent")
    statuses: tuple[StatusWord, ...] = ("queued", "running", "marked", "settled")
    for status in statuses:
        yield Prior(status=status)
        for held in (True, False):
            yield Prior(status=status, held=held, phase=Phase.BEFORE_PROVIDER)
            for consumed in (False, True):
                for checkpoint in (False, True):
                    started = Prior(status=status, held=held, phase=Phase.PROVIDER_STARTED, consumed=consumed)
                    yield attrs.evolve(started, checkpoint=checkpoint)
                    yield attrs.evolve(started, checkpoint=checkpoint, phase=Phase.COMMITTED)
                recorded = Prior(status=status, held=held, phase=Phase.TOOL_REQUEST_RECORDED, consumed=consumed)
                yield attrs.evolve(recorded, checkpoint=True, tools=True)
                yield attrs.evolve(recorded, checkpoint=True, tools=True, phase=Phase.COMMITTED)


# --- the way to a prior state ---------------------------------------------------------------------------------------


def _log(run: str) -> Iterator[tuple[str, Args]]:
    """A transcript with every kind of leaf: the checkpoint e1, a sound one below, a torn one, an excluded one, one
    that is not below."""

    def entry(entry_id: str, parent: str, role: str, part: str = "") -> Draft:
        payload = _MESSAGE.format(role, part)
        return Draft(kind="message", entry_id=entry_id, parent_id=parent, role=role, payload=payload)

    records = (
        entry("beside", "", "user"),
        entry("e1", "", "user"),
        entry("sound", "e1", "assistant"),
        entry("torn", "e1", "assistant", _CALL),
        entry("excluded", "e1", "assistant"),
        Draft(kind="repair", parent_id="e1", payload='{"dropped_entry_ids":["excluded"]}'),
    )
    yield "append_step", {"run_id": run, "records": records}


def _steps(prior: Prior, submission: str, run: str) -> Iterator[tuple[str, Args]]:
    """The verbs that lead to a prior state, as far as verbs lead there."""
    yield from _log(run)
    if prior.status == "absent":
        return
    at: Args = {"submission_id": submission, "attempt_id": OWNER}
    yield "admit", {**at, "session_key": run, "kind": "dispatch", "payload": "{}", "accepted_at": 1}
    yield "claim", {**at, "attempt_id": STALE, "owner_id": "w1", "lease_expires_at": _LEASE}
    yield "replace_turn_journal_attempt", {**at, "attempt_id": STALE, "next_attempt_id": OWNER}
    if prior.status == "marked":
        yield "mark_input_applied", at
        yield "request_recovery", at
    if prior.phase is not None:
        yield from _turn(prior, at, run)
    if prior.status == "settled":
        yield "complete", at


def _turn(prior: Prior, at: Args, run: str) -> Iterator[tuple[str, Args]]:
    yield "begin_turn_journal", {**at, "session_key": run, "kind": "dispatch", "operation_id": "o1", "turn_id": "t1"}
    if prior.phase is Phase.BEFORE_PROVIDER:
        return
    key = mint_stream_key(str(at["submission_id"]), "t1", OWNER)
    start: Args = {**at, "phase": "provider_started", "stream_key": key}
    yield "update_turn_journal_phase", start | ({"checkpoint_leaf_id": "e1"} if prior.checkpoint else {})
    if prior.consumed:
        yield "mark_stream_consumed", {**at, "stream_key": key}
    if prior.tools:
        record = {"phase": "tool_request_recorded", "tool_request": REQUEST, "checkpoint_leaf_id": "e1"}
        yield "update_turn_journal_phase", {**at, **record}
    if prior.phase is Phase.COMMITTED:
        yield "commit_turn_journal", {**at, "committed_leaf_id": "sound"}


# --- the cells ------------------------------------------------------------------------------------------------------


def _probes(submission: str, run: str) -> Iterator[tuple[str, Args]]:
    """Every conditional verb of a submission with every kind of argument, for an attempt of each relation."""
    for owner in ("w1", "w2"):
        yield "renew_leases", {"owner_id": owner, "submission_ids": (submission,), "lease_ms": 1}
        yield "renew_leases", {"owner_id": owner, "submission_ids": (submission, submission), "lease_ms": -60_000}
    for attempt in (OWNER, STALE, UNKNOWN):
        at: Args = {"submission_id": submission, "attempt_id": attempt}
        yield "claim", {**at, "owner_id": "w2", "lease_expires_at": 7}
        yield "mark_input_applied", at
        yield "mark_input_applied", {**at, "max_retry": 2, "timeout_at": 77}
        for verb in ("request_recovery", "requeue", "complete"):
            yield verb, at
        yield "fail", {**at, "error": "no"}
        turn = {"operation_id": "o2", "turn_id": "t2"}
        for session, kind in ((run, "dispatch"), (run, "direct"), ("other", "dispatch")):
            yield "begin_turn_journal", {**at, **turn, "session_key": session, "kind": kind}
        yield from _updates(submission, at)
        for leaf in (None, "", "e1", "sound", "torn", "excluded", "beside", "unknown"):
            yield "commit_turn_journal", {**at, "committed_leaf_id": leaf}
        leases = (None, Lease(owner_id="w2", lease_expires_at=20_000))
        for following, lease, observed in product((OWNER, STALE, "a2"), leases, (None, _LEASE, 1)):
            moved = {"next_attempt_id": following, "lease": lease, "observed_lease_expires_at": observed}
            yield "replace_turn_journal_attempt", {**at, **moved}


def _updates(submission: str, at: Args) -> Iterator[tuple[str, Args]]:
    keys = [mint_stream_key(submission, "t1", attempt) for attempt in (OWNER, STALE, UNKNOWN)]
    for stream_key in (*keys, "opaque"):
        yield "mark_stream_consumed", {**at, "stream_key": stream_key}
    for key, leaf in product((None, "", *keys, "opaque"), (None, "", "e1", "excluded", "unknown")):
        start = {"phase": "provider_started", "stream_key": key, "checkpoint_leaf_id": leaf}
        yield "update_turn_journal_phase", {**at, **start, "tool_request": REQUEST}
    for request, leaf in product((None, "", "{}", REQUEST), (None, "", "e1", "sound", "excluded", "unknown")):
        record = {"phase": "tool_request_recorded", "tool_request": request, "checkpoint_leaf_id": leaf}
        yield "update_turn_journal_phase", {**at, **record}
    for phase in ("before_provider", "committed", "unknown"):
        yield "update_turn_journal_phase", {**at, "phase": phase}


@attrs.define
class _Bench:
    """The store, a second connection to its file, and the count of what was compared."""

    subject: StoreSubject
    file: sqlite3.Connection
    rules: Counter[str] = attrs.Factory(Counter)
    cells: int = 0
    accepted: int = 0
    differing: int = 0
    differences: list[Cell] = attrs.Factory(list)

    def build(self, prior: Prior, submission: str, run: str) -> State:
        """Bring the store to a prior state; answers the model's."""
        top = self.file.execute("SELECT coalesce(max(seq), 0) FROM sqlite_sequence WHERE name = 'submissions'")
        state = attrs.evolve(EMPTY, last_sequence=top.fetchone()[0])
        for now, (verb, args) in enumerate(_steps(prior, submission, run), 1000):
            operation = _operation(verb, args, now)
            wanted = expected(operation, state, STRICT)
            got = self.subject.call(operation)
            if got != wanted.outcome:
                raise AssertionError(f"on the way to {prior}: {verb} answered {got}, not {wanted.outcome}")
            state = wanted.state
        return self._unreached(prior, submission, state)

    def _unreached(self, prior: Prior, submission: str, state: State) -> State:
        """Make what no verb reaches, in the file and in the model alike."""
        row, slot = state.submissions.get(submission), state.slots.get(submission)
        if row is not None and prior.status == "queued":
            row = attrs.evolve(
                row,
                status=Status.QUEUED,
                attempt_id=None,
                owner_id=None,
                lease_expires_at=0,
                started_at=None,
                recovery_requested_at=None,
            )
            self.file.execute(
                "UPDATE submissions SET status = 'queued', lease_expires_at = 0, attempt_id = NULL, owner_id = NULL,"
                " started_at = NULL, recovery_requested_at = NULL WHERE submission_id = ?",
                (submission,),
            )
            state = state.put(row)
        if slot is not None and not prior.held:
            self.file.execute("UPDATE slots SET attempt_id = ? WHERE submission_id = ?", (STALE, submission))
            state = state.put_slot(attrs.evolve(slot, attempt_id=STALE))
        return state

    def compare(self, prior: Prior, submission: str, run: str) -> None:
        """All cells of one prior state."""
        state = self.build(prior, submission, run)
        image = self._image(submission)
        for verb, args in _probes(submission, run):
            operation = _operation(verb, args, _NOW)
            wanted = expected(operation, state, STRICT)
            outcome = self.subject.call(operation)
            rows, right = self._rows(submission), _rows_of(wanted.state, submission)
            same = outcome == wanted.outcome and rows == right
            self.cells += 1
            self.rules.update(wanted.rule.split())
            self.accepted += wanted.state is not state
            if not same:
                self._differs(prior, operation, wanted, outcome, (right, rows))
            if not same or wanted.state is not state:
                self._restore(submission, image)

    def _differs(
        self, prior: Prior, operation: Operation, wanted: Expected, outcome: Outcome, rows: tuple[Json, Json]
    ) -> None:
        self.differing += 1
        if len(self.differences) >= SHOWN:
            return
        self.differences.append(
            Cell(
                prior=prior,
                operation=operation.verb,
                args=encode_args(operation),
                steps=(*_way(prior), {"op": operation.verb, "args": encode_args(operation)}),
                rule=wanted.rule,
                expected=[encode(wanted.outcome), rows[0]],
                got=[encode(outcome), rows[1]],
            )
        )

    def _rows(self, submission: str) -> Json:
        """The full rows in the store: submission, slot, and the attempts that ever owned it."""
        store = self.subject
        attempts = self.file.execute(
            "SELECT attempt_id FROM attempts WHERE submission_id = ? ORDER BY attempt_id", (submission,)
        ).fetchall()
        read = [
            encode(store.call(_operation(verb, {"submission_id": submission}, _NOW)))
            for verb in ("get_submission", "get_turn_journal")
        ]
        return [*read, [attempt for (attempt,) in attempts]]

    def _image(self, submission: str) -> dict[str, list[tuple[object, ...]]]:
        return {
            table: self.file.execute(f"SELECT * FROM {table} WHERE submission_id = ?", (submission,)).fetchall()
            for table in _TABLES
        }

    def _restore(self, submission: str, image: dict[str, list[tuple[object, ...]]]) -> None:
        self.file.execute("BEGIN IMMEDIATE")
        for table, rows in image.items():
            self.file.execute(f"DELETE FROM {table} WHERE submission_id = ?", (submission,))
            for row in rows:
                self.file.execute(f"INSERT INTO {table} VALUES ({', '.join('?' * len(row))})", row)
        self.file.execute("COMMIT")


def _operation(verb: str, args: Args, now: int) -> Operation:
    names = {field.name for field in attrs.fields(ALPHABET[verb])}
    arguments: dict[str, Any] = {name: value for name, value in args.items() if name in names}
    return ALPHABET[verb](**arguments, now=now)


def _way(prior: Prior) -> Iterator[Object]:
    """The verbs that lead to a prior state, as in a trace."""
    for now, (verb, args) in enumerate(_steps(prior, *_names(prior)), 1000):
        yield {"op": verb, "args": encode_args(_operation(verb, args, now))}


def _names(prior: Prior) -> tuple[str, str]:
    """The submission and the run of a prior state: each has its own, all in one file."""
    number = list(priors()).index(prior)
    return f"s{number}", f"run{number}"


def _rows_of(state: State, submission: str) -> Json:
    reads = [
        encode(expected(_operation(verb, {"submission_id": submission}, _NOW), state, STRICT).outcome)
        for verb in ("get_submission", "get_turn_journal")
    ]
    return [*reads, [*sorted(state.former.get(submission, ()))]]


def compare(
    directory: Path, opener: Callable[..., Store] = open_store, states: Sequence[Prior] | None = None
) -> Result:
    """Go through the table on a new store in ``directory``: from all prior states, or from some."""
    subject = StoreSubject(flush="relaxed", opener=opener)
    subject.open(directory)
    file = sqlite3.connect(directory / "journal.db", isolation_level=None)
    try:
        file.execute("PRAGMA synchronous = OFF")
        bench = _Bench(subject, file)
        states = list(priors()) if states is None else states
        for prior in states:
            bench.compare(prior, *_names(prior))
    finally:
        file.close()
        subject.close()
    return Result(
        priors=len(states),
        cells=bench.cells,
        accepted=bench.accepted,
        differences=tuple(bench.differences),
        promises=dict(sorted(bench.rules.items())),
        differing=bench.differing,
    )
