"""What a random history knows when it draws: the state, and ids from small pools that mostly fit it."""

from __future__ import annotations

from typing import Final

import attrs

from turnproof.model.choices import Choices
from turnproof.model.ids import mint_stream_key
from turnproof.model.rows import Fence
from turnproof.model.state import State
from turnproof.model.transcript import Transcript
from turnproof.model.vocabulary import Status
from turnproof.proofs.dice import Dice

__all__ = ["ATTEMPTS", "OWNERS", "RUNS", "SUBMISSIONS", "TURNS", "Situation"]

SUBMISSIONS: Final = ("s1", "s2", "s3", "a:b")
RUNS: Final = ("run1", "run2", "bonnie.x")
ATTEMPTS: Final = ("a1", "a2", "a3", "a4", "a5", "a6")
OWNERS: Final = ("w1", "w2")
TURNS: Final = ("t1", "t2", "t3")


@attrs.frozen
class Situation:
    """The state, as far as arguments are read off it, and the dice that decide."""

    state: State
    dice: Dice
    now: int
    choices: Choices

    def submission(self) -> str:
        """A submission: rather one that is running."""
        running = [row.submission_id for row in self.state.submissions.values() if row.status is Status.RUNNING]
        return self.dice.pick(SUBMISSIONS if not running or self.dice.rarely(3) else running)

    def attempt(self, submission_id: str) -> str:
        """The submission's attempt; else any, so that the superseded ones try too."""
        row = self.state.submissions.get(submission_id)
        current = None if row is None else row.attempt_id
        return self.dice.pick(ATTEMPTS) if current is None or self.dice.rarely() else current

    def fresh_attempt(self, submission_id: str) -> str:
        former = self.state.former.get(submission_id, ())
        fresh = [attempt for attempt in ATTEMPTS if attempt not in former]
        return self.dice.pick(ATTEMPTS) if not fresh or self.dice.rarely(6) else fresh[0]

    def run(self) -> str:
        known = [run for run in RUNS if run in self.state.runs]
        return self.dice.pick(RUNS if not known or self.dice.rarely() else known)

    def tree(self, run_id: str) -> Transcript:
        return self.state.transcript(run_id, self.choices)

    def leaf(self, run_id: str) -> str:
        tree = self.tree(run_id)
        return tree.id_of(tree.leaf)

    def entry(self, run_id: str) -> str:
        """The leaf; else any entry, the root, or one that is not there."""
        if not self.dice.rarely(3):
            return self.leaf(run_id)
        return self.dice.pick([*(entry.entry_id for entry in self.tree(run_id).entries), "", "e99"])

    def new_entry(self, run_id: str) -> str:
        """An id not used yet; at times one that is."""
        number = len(self.tree(run_id).entries) + 1
        return f"e{self.dice.below(number) + 1}" if self.dice.rarely(10) else f"e{number}"

    def fence(self, run_id: str) -> Fence | None:
        """None; or of the session's running submission, its attempt right or wrong."""
        if not self.dice.rarely(3):
            return None
        row = self.state.running_in(run_id)
        submission_id = self.submission() if row is None else row.submission_id
        return Fence(submission_id=submission_id, attempt_id=self.attempt(submission_id))

    def expected(self, run_id: str) -> int | None:
        run = self.state.runs.get(run_id)
        position = 0 if run is None else run.position
        return None if not self.dice.rarely(8) else self.dice.pick([position, position - 1, 0])

    def lease(self) -> int:
        return self.dice.pick([self.now + 10_000_000, 0, self.now - 1, self.now])

    def stream_key(self) -> str:
        if self.dice.rarely(5):
            return self.dice.pick(["k", *self.state.segments])
        submission_id = self.submission()
        slot = self.state.slots.get(submission_id)
        turn = self.dice.pick(TURNS) if slot is None else slot.turn_id
        return mint_stream_key(submission_id, turn, self.attempt(submission_id))
