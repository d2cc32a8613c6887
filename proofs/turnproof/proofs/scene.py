"""A play: a short history written down step by step, with the defaults of the plain story.

One submission ``s1`` of the session ``run1``, owned by the attempt ``a1`` in turn ``t1``; what a scene does not say is
as in this story.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

from turnproof.model import operations as ops
from turnproof.model.ids import mint_stream_key
from turnproof.model.operations import Operation
from turnproof.model.rows import Draft, Fence, Lease
from turnproof.proofs import talk
from turnproof.proofs.dice import Dice

__all__ = ["A1", "A2", "KEY", "RECORDED", "RUN", "S1", "STARTED", "Play", "Scene"]

S1: Final = "s1"
RUN: Final = "run1"
A1: Final = "a1"
A2: Final = "a2"
STARTED: Final = "provider_started"
RECORDED: Final = "tool_request_recorded"
KEY: Final = mint_stream_key(S1, "t1", A1)


class Play:
    """What a scene does, step by step, on a clock of its own. Arguments have the defaults of the plain story."""

    def __init__(self, dice: Dice) -> None:
        self.dice = dice
        self.steps: list[Operation | str] = []
        self.now = 1000

    def do(self, operation: Callable[..., Operation], **arguments: object) -> None:
        self.now += 10
        self.steps.append(operation(now=self.now, **arguments))

    def by(
        self, operation: Callable[..., Operation], attempt: str = A1, submission: str = S1, /, **more: object
    ) -> None:
        """What an attempt does to its submission."""
        self.do(operation, submission_id=submission, attempt_id=attempt, **more)

    def crash(self) -> None:
        self.steps.append(self.dice.pick(["reopen", "crash"]))

    def admit(self, submission: str = S1, run: str = RUN, kind: str = "dispatch", payload: str = "{}") -> None:
        self.do(
            ops.Admit, submission_id=submission, session_key=run, kind=kind, payload=payload, accepted_at=self.now + 1
        )

    def claim(self, attempt: str = A1, submission: str = S1, owner: str = "w1", lease: int = 100_000) -> None:
        self.by(ops.Claim, attempt, submission, owner_id=owner, lease_expires_at=lease)

    def own(self) -> None:
        self.admit()
        self.claim()

    def begin(self, attempt: str = A1, turn: str = "t1", submission: str = S1, run: str = RUN) -> None:
        self.by(
            ops.BeginTurnJournal,
            attempt,
            submission,
            session_key=run,
            kind="dispatch",
            operation_id="op1",
            turn_id=turn,
        )

    def start(self, attempt: str = A1, turn: str = "t1", leaf: str | None = None) -> None:
        key = mint_stream_key(S1, turn, attempt)
        self.by(ops.UpdateTurnJournalPhase, attempt, phase=STARTED, stream_key=key, checkpoint_leaf_id=leaf)

    def record(self, *calls: str, leaf: str = "e1", attempt: str = A1) -> None:
        request = talk.request(*(calls or ("c1",)))
        self.by(ops.UpdateTurnJournalPhase, attempt, phase=RECORDED, tool_request=request, checkpoint_leaf_id=leaf)

    def commit(self, leaf: str, attempt: str = A1) -> None:
        self.by(ops.CommitTurnJournal, attempt, committed_leaf_id=leaf)

    def transfer(self, attempt: str = A1, successor: str = A2, lease: Lease[str] | None = None, **more: object) -> None:
        self.by(ops.ReplaceTurnJournalAttempt, attempt, next_attempt_id=successor, lease=lease, **more)

    def append(self, record: Draft, run: str = RUN, attempt: str | None = None, **more: object) -> None:
        fence = None if attempt is None else Fence(submission_id=S1, attempt_id=attempt)
        self.do(ops.Append, run_id=run, record=record, fence=fence, **more)

    def step(self, *records: Draft, attempt: str | None = None, **more: object) -> None:
        fence = None if attempt is None else Fence(submission_id=S1, attempt_id=attempt)
        self.do(ops.AppendStep, run_id=RUN, records=records, fence=fence, **more)

    def ask(self, entry: str = "e1", parent: str = "", text: str = "go") -> None:
        self.append(talk.message(entry, parent, talk.says(text)))

    def call(self, entry: str, parent: str, *calls: str) -> None:
        self.append(talk.message(entry, parent, talk.assistant(*calls)))

    def answer(self, entry: str, parent: str, *calls: str) -> None:
        self.append(talk.message(entry, parent, talk.results(*calls)))

    def on(self, operation: Callable[..., Operation], **more: object) -> None:
        self.do(operation, run_id=RUN, **more)

    def restore(self) -> None:
        self.on(self.dice.pick([ops.Restore, ops.Inspect]))
        self.on(ops.Restore)


Scene: TypeAlias = Callable[[Play], None]
