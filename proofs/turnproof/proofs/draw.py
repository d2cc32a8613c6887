"""The next operation of a random history: mostly what a worker would do next, often what it should not.

Ids come from small pools so that they collide. About half of the time a step of the reference driver's order is taken
for some submission (SPEC section 8), otherwise any verb; arguments are read off the model's state and right about two
times in three, stale or unknown otherwise. Everything follows from the dice and the state: the same bytes on the same
state are the same operation.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import attrs

from turnproof.model import operations as ops
from turnproof.model.choices import Choices
from turnproof.model.ids import assistant_entry_id, input_entry_id, mint_stream_key, result_entry_id
from turnproof.model.operations import Operation
from turnproof.model.rows import Draft, Fence, Lease, Slot, Submission
from turnproof.model.state import State
from turnproof.model.vocabulary import Phase, Status
from turnproof.proofs import talk
from turnproof.proofs.dice import Dice
from turnproof.proofs.situation import OWNERS, RUNS, SUBMISSIONS, TURNS, Situation

__all__ = ["draw"]

CALLS: Final = (("c1",), ("c1", "c2"), ("c2",), ("c2", "c1", "c3"))
STATES: Final = ("running", "waiting", "completed", "failed", "cancelled", "interrupted", "retired", "pending")
_RETURNS: Final = 100
"""One step in so many is a crash or a reopening: starting a program costs as much as hundreds of operations."""
STRAY_KINDS: Final = ("turn", "cancel", "step", "suspend", "resume", "trigger", "context", "completion", "sandbox")


@attrs.frozen
class _Drawing(Situation):
    """The next step, in a situation."""

    # --- one step of a worker ---------------------------------------------------------------------------------------

    def work(self) -> Operation:
        """What the driver would do next for some submission."""
        submission_id = self.submission()
        row = self.state.submissions.get(submission_id)
        if row is None:
            return self.admit(submission_id)
        if row.status is Status.QUEUED:
            return self.claim(submission_id)
        if row.status is Status.SETTLED or row.attempt_id is None:
            return self.dice.pick([self.admit, self.claim])(self.dice.pick(SUBMISSIONS))
        slot = self.state.slots.get(submission_id)
        if row.input_applied_at is None and not self.dice.rarely(3):
            return self.apply_input(row, row.attempt_id)
        if slot is None or slot.committed or slot.attempt_id != row.attempt_id:
            return self.dice.pick([self.begin, self.begin, self.settle])(submission_id)
        return self.advance(row, slot)

    def apply_input(self, row: Submission[str], attempt_id: str) -> Operation:
        entry = input_entry_id(row.submission_id)
        if entry in self.tree(row.session_key).index or self.dice.rarely(5):
            return self.mark_input(row.submission_id)
        return ops.Append(
            now=self.now,
            run_id=row.session_key,
            record=talk.message(entry, self.entry(row.session_key), talk.says("go")),
            fence=Fence(submission_id=row.submission_id, attempt_id=attempt_id),
        )

    def advance(self, row: Submission[str], slot: Slot[str]) -> Operation:
        """The next write of a turn that is under way."""
        submission_id, run_id = row.submission_id, row.session_key
        if slot.phase is Phase.BEFORE_PROVIDER:
            return self.update(submission_id, Phase.PROVIDER_STARTED)
        moves: list[Callable[[], Operation]] = [lambda: self.commit(submission_id), lambda: self.say(run_id)]
        if slot.phase is Phase.PROVIDER_STARTED:
            moves += [self.segment, lambda: self.consume(submission_id)]
            moves += [lambda: self.update(submission_id, Phase.TOOL_REQUEST_RECORDED)] * 2
        else:
            moves += [lambda: self.tool_step(run_id, slot)] * 2
        return self.dice.pick(moves)()

    def tool_step(self, run_id: str, slot: Slot[str]) -> Operation:
        """The recorded step, whole or torn, under derived ids."""
        said = assistant_entry_id(slot.submission_id, slot.turn_id)
        calls = self.dice.pick(CALLS[:2])
        records = [talk.message(said, self.entry(run_id), talk.assistant(*calls))]
        parent = said
        for call in calls[: len(calls) - self.dice.below(2)]:
            result = result_entry_id(slot.submission_id, slot.turn_id, call)
            records.append(talk.message(result, parent, talk.results(call)))
            parent = result
        return ops.AppendStep(now=self.now, run_id=run_id, records=tuple(records), fence=self.fence(run_id))

    # --- single verbs -----------------------------------------------------------------------------------------------

    def admit(self, submission_id: str) -> Operation:
        run = RUNS[SUBMISSIONS.index(submission_id) % 2] if not self.dice.rarely(8) else self.dice.pick(RUNS)
        return ops.Admit(
            now=self.now,
            submission_id=submission_id,
            session_key=run,
            kind="direct" if self.dice.rarely() else "dispatch",
            payload='{"n": 2}' if self.dice.rarely(8) else "{}",
            accepted_at=self.now,
        )

    def claim(self, submission_id: str) -> Operation:
        return ops.Claim(
            now=self.now,
            submission_id=submission_id,
            attempt_id=self.fresh_attempt(submission_id),
            owner_id=self.dice.pick(OWNERS),
            lease_expires_at=self.lease(),
        )

    def attempted(self, operation: Callable[..., Operation], **more: object) -> Operation:
        submission_id = self.submission()
        return operation(now=self.now, submission_id=submission_id, attempt_id=self.attempt(submission_id), **more)

    def mark_input(self, submission_id: str) -> Operation:
        return ops.MarkInputApplied(
            now=self.now,
            submission_id=submission_id,
            attempt_id=self.attempt(submission_id),
            max_retry=self.dice.pick([None, 1, 0]),
            timeout_at=self.dice.pick([None, self.now + 10_000_000, 0]),
        )

    def settle(self, submission_id: str) -> Operation:
        attempt = self.attempt(submission_id)
        if self.dice.rarely(3):
            return ops.FailSubmission(now=self.now, submission_id=submission_id, attempt_id=attempt, error="boom")
        return ops.Complete(now=self.now, submission_id=submission_id, attempt_id=attempt)

    def begin(self, submission_id: str) -> Operation:
        row = self.state.submissions.get(submission_id)
        wrong = row is None or self.dice.rarely(10)
        return ops.BeginTurnJournal(
            now=self.now,
            submission_id=submission_id,
            attempt_id=self.attempt(submission_id),
            session_key=self.dice.pick(RUNS) if wrong or row is None else row.session_key,
            kind="dispatch" if wrong or row is None else row.kind.value,
            operation_id="op1",
            turn_id=self.dice.pick(TURNS),
        )

    def update(self, submission_id: str, phase: Phase) -> Operation:
        """An update with what its phase needs; at times of something else."""
        row, slot = self.state.submissions.get(submission_id), self.state.slots.get(submission_id)
        attempt = self.attempt(submission_id)
        turn = "t1" if slot is None else slot.turn_id
        leaf = self.entry("run1" if row is None else row.session_key)
        request = talk.request(*self.dice.pick(CALLS))
        recording = phase is Phase.TOOL_REQUEST_RECORDED or self.dice.rarely(6)
        return ops.UpdateTurnJournalPhase(
            now=self.now,
            submission_id=submission_id,
            attempt_id=attempt,
            phase=self.dice.pick([phase, *Phase]) if self.dice.rarely(8) else phase,
            stream_key=None if self.dice.rarely(10) else mint_stream_key(submission_id, turn, attempt),
            tool_request=None if not recording or self.dice.rarely(8) else request,
            checkpoint_leaf_id=leaf if recording or self.dice.rarely(2) else None,
        )

    def commit(self, submission_id: str) -> Operation:
        row = self.state.submissions.get(submission_id)
        return ops.CommitTurnJournal(
            now=self.now,
            submission_id=submission_id,
            attempt_id=self.attempt(submission_id),
            committed_leaf_id=self.entry("run1" if row is None else row.session_key) or None,
        )

    def consume(self, submission_id: str) -> Operation:
        slot = self.state.slots.get(submission_id)
        key = None if slot is None else slot.stream_key
        return ops.MarkStreamConsumed(
            now=self.now,
            submission_id=submission_id,
            attempt_id=self.attempt(submission_id),
            stream_key="k" if key is None or self.dice.rarely(6) else key,
        )

    def transfer(self) -> Operation:
        submission_id = self.submission()
        row = self.state.submissions.get(submission_id)
        stored = 0 if row is None else row.lease_expires_at
        lease = Lease(owner_id=self.dice.pick(OWNERS), lease_expires_at=self.lease())
        return ops.ReplaceTurnJournalAttempt(
            now=self.now,
            submission_id=submission_id,
            attempt_id=self.attempt(submission_id),
            next_attempt_id=self.fresh_attempt(submission_id),
            lease=lease if self.dice.rarely(2) else None,
            observed_lease_expires_at=self.dice.pick([None, None, stored, stored + 1]),
        )

    def segment(self) -> Operation:
        key = self.stream_key()
        index = len(self.state.segments.get(key, ()))
        index = index if not self.dice.rarely() else self.dice.pick([0, index + 1, index - 1])
        return ops.AppendStreamSegment(now=self.now, stream_key=key, segment_index=index, body=f"b{self.now}")

    def renew(self) -> Operation:
        ids = tuple(self.dice.pick(SUBMISSIONS) for _ in range(1 + self.dice.below(2)))
        length = self.dice.pick([None, 10_000_000, -10_000_000])
        return ops.RenewLeases(now=self.now, owner_id=self.dice.pick(OWNERS), submission_ids=ids, lease_ms=length)

    # --- conversations ----------------------------------------------------------------------------------------------

    def say(self, run_id: str | None = None) -> Operation:
        """One record at the leaf, or somewhere else."""
        run = run_id or self.run()
        record = self.dice.pick(
            [self.text, self.call, self.result, self.result, self.aside, self.model_change, self.compact, self.stray]
        )(run)
        return ops.Append(
            now=self.now, run_id=run, record=record, fence=self.fence(run), expected_position=self.expected(run)
        )

    def text(self, run: str) -> Draft:
        role = self.dice.pick(["user", "assistant", "system"])
        return talk.message(self.new_entry(run), self.entry(run), talk.says(f"m{self.dice.below(3)}", role))

    def call(self, run: str) -> Draft:
        return talk.message(self.new_entry(run), self.entry(run), talk.assistant(*self.dice.pick(CALLS)))

    def result(self, run: str) -> Draft:
        calls = self.dice.pick([("c1",), ("c2",), ("c1", "c2"), ("c3",)])
        return talk.message(self.new_entry(run), self.entry(run), talk.results(*calls, error=self.dice.rarely()))

    def aside(self, run: str) -> Draft:
        kind = self.dice.pick(["extension_data", "branch_summary"])
        return talk.entry(kind, self.new_entry(run), self.entry(run), self.dice.pick(["", '{"k": 1}', "{"]))

    def model_change(self, run: str) -> Draft:
        payload = self.dice.pick([talk.change("one"), talk.change("two"), "{}"])
        return talk.entry("model_change", self.new_entry(run), self.entry(run), payload)

    def compact(self, run: str) -> Draft:
        tree = self.tree(run)
        kept = self.dice.pick([*(tree.id_of(node) for node in tree.path()), self.entry(run)])
        return talk.entry("compaction", self.new_entry(run), self.entry(run), talk.compaction("so far", kept))

    def stray(self, run: str) -> Draft:
        """A record that is no entry: bookkeeping, or one that moves the leaf."""
        match self.dice.below(4):
            case 0:
                return Draft(kind=self.dice.pick(STRAY_KINDS), text=f"x{self.dice.below(2)}")
            case 1:
                return Draft(kind="branch", parent_id=self.entry(run))
            case 2:
                dropped = [self.entry(run) for _ in range(self.dice.below(3))]
                return Draft(kind="repair", parent_id=self.entry(run), payload=talk.repair(dropped))
            case _:
                return Draft(kind="state", state=self.dice.pick(STATES))

    def step(self) -> Operation:
        """An assistant message and its results, whole or not; at times the records of an older step again."""
        run = self.run()
        calls = self.dice.pick(CALLS)
        said, answered = self.new_entry(run), f"r{len(self.tree(run).entries) + 1}"
        records = [talk.message(said, self.entry(run), talk.assistant(*calls))]
        if self.dice.rarely(3):
            records.append(self.dice.pick([Draft(kind="step"), Draft(kind="state", state="running")]))
        records.append(talk.message(answered, said, talk.results(*calls[: len(calls) - self.dice.below(2)])))
        return ops.AppendStep(
            now=self.now,
            run_id=run,
            records=tuple(records[self.dice.below(2) :] if self.dice.rarely(8) else records),
            fence=self.fence(run),
            expected_position=self.expected(run),
        )

    def again(self) -> Operation:
        """A stored record once more, as a retry sends it; at times changed."""
        run = self.run()
        stored = self.state.runs.get(run)
        if stored is None:
            return self.say(run)
        record = self.dice.pick(stored.records)
        fields = {f.name: getattr(record, f.name) for f in attrs.fields(Draft)}
        draft = Draft(**{**fields, "kind": record.kind.value})
        return ops.Append(
            now=self.now, run_id=run, record=attrs.evolve(draft, text="x") if self.dice.rarely() else draft
        )

    def on_run(self, operation: Callable[..., Operation], **more: object) -> Operation:
        run = self.run()
        return operation(now=self.now, run_id=run, fence=self.fence(run), **more)

    def set_leaf(self) -> Operation:
        run = self.run()
        entries = [*(entry.entry_id for entry in self.tree(run).entries), "", "e99"]
        return ops.SetLeaf(now=self.now, run_id=run, entry_id=self.dice.pick(entries), fence=self.fence(run))

    def read(self) -> Operation:
        """A read at this moment: of a list, or of something that nothing else looks at."""
        run, submission = self.run(), self.submission()
        reads: list[Operation] = [
            ops.ListExpired(now=self.now),
            ops.Inspect(now=self.now, run_id=run),
            ops.ContextOf(now=self.now, run_id=run),
            ops.Runs(now=self.now, state=self.dice.pick(STATES), include_reserved=self.dice.rarely(2)),
            ops.Recover(now=self.now, submission_id=submission),
            ops.ListRunnable(now=self.now),
            ops.Replay(now=self.now, run_id=run),
        ]
        return self.dice.pick(reads)

    def anything(self) -> Operation:
        submission = self.submission()
        verbs: list[Callable[[], Operation]] = [
            self.transfer,
            self.say,
            self.step,
            lambda: self.on_run(ops.Restore),
            lambda: self.attempted(ops.Complete),
            lambda: self.begin(submission),
            lambda: self.update(submission, self.dice.pick(list(Phase))),
            lambda: self.commit(submission),
            lambda: self.claim(self.dice.pick(SUBMISSIONS)),
            self.segment,
            self.set_leaf,
            self.again,
            lambda: self.consume(submission),
            self.read,
            lambda: self.admit(self.dice.pick(SUBMISSIONS)),
            lambda: self.on_run(ops.Checkpoint, state=self.dice.pick(STATES)),
            lambda: self.attempted(ops.Requeue),
            lambda: self.attempted(ops.RequestRecovery),
            self.renew,
            lambda: ops.DeleteSession(now=self.now, session_key=self.run()),
            lambda: self.attempted(ops.InsertAttemptMarker),
            lambda: self.on_run(ops.Clear),
            lambda: self.attempted(ops.DeleteAttemptMarker),
            lambda: self.mark_input(submission),
            lambda: ops.DeleteStreamSegments(now=self.now, stream_key=self.stream_key()),
        ]
        return self.dice.pick(verbs)()


def draw(state: State, dice: Dice, now: int, choices: Choices) -> Operation | str:
    """The next step: an operation, ``crash`` or ``reopen``."""
    if dice.rarely(_RETURNS):
        return dice.pick(["reopen", "crash"])
    drawing = _Drawing(state, dice, now, choices)
    return drawing.work() if dice.below(2) else drawing.anything()
