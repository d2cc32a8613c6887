"""The whole durable state of both stores, as one value."""

from __future__ import annotations

from attrs import evolve, field, frozen

from turnproof.model.choices import STRICT, Choices
from turnproof.model.log import Run
from turnproof.model.rows import Slot, Submission
from turnproof.model.table import Table
from turnproof.model.transcript import Transcript, fold
from turnproof.model.vocabulary import Status

__all__ = ["EMPTY", "Segments", "State"]

Segments = tuple[tuple[int, str], ...]


@frozen(kw_only=True)
class State:
    """Everything that survives a crash. Maps are keyed as the store's tables are; order of entry is kept."""

    submissions: Table[str, Submission[str]] = field(factory=Table)
    former: Table[str, tuple[str, ...]] = field(factory=Table)
    """By submission: every attempt id that ever owned it (T5)."""
    slots: Table[str, Slot[str]] = field(factory=Table)
    segments: Table[str, Segments] = field(factory=Table)
    """By stream key, in ascending index."""
    opaque_keys: Table[str, frozenset[str]] = field(factory=Table)
    """By submission: every stream key its turns were given, where keys are opaque; a minted key says whose it is."""
    markers: Table[tuple[str, str], int] = field(factory=Table)
    """By submission and attempt: when it was first marked, in ms."""
    receipts: Table[str, int] = field(factory=Table)
    """By submission: when it was accepted, in ms."""
    deletions: frozenset[str] = field(factory=frozenset)
    runs: Table[str, Run] = field(factory=Table)
    last_sequence: int = 0
    """The last admission number, never used again."""

    def admitted(self, session_key: str) -> tuple[Submission[str], ...]:
        """The submissions of a session in admission order."""
        return tuple(row for row in self.submissions.values() if row.session_key == session_key)

    def is_head(self, row: Submission[str]) -> bool:
        """Whether no earlier submission of the session is unsettled (L2)."""
        return not any(
            other.sequence < row.sequence and other.status is not Status.SETTLED
            for other in self.admitted(row.session_key)
        )

    def put(self, row: Submission[str]) -> State:
        return evolve(self, submissions=self.submissions.put(row.submission_id, row))

    def put_slot(self, slot: Slot[str]) -> State:
        return evolve(self, slots=self.slots.put(slot.submission_id, slot))

    def given(self, submission_id: str, stream_key: str) -> State:
        """An opaque stream key remembered as one of a submission's (L10)."""
        keys = self.opaque_keys.get(submission_id, frozenset()) | {stream_key}
        return evolve(self, opaque_keys=self.opaque_keys.put(submission_id, keys))

    def owned(self, row: Submission[str], attempt_id: str) -> State:
        """``row`` stored, and the attempt remembered as one that owned it (T5)."""
        former = self.former.get(row.submission_id, ())
        if attempt_id not in former:
            former = (*former, attempt_id)
        return evolve(self.put(row), former=self.former.put(row.submission_id, former))

    def running_in(self, session_key: str) -> Submission[str] | None:
        """The running submission of a session: at most one, since only the head is claimed (L2)."""
        return next((row for row in self.admitted(session_key) if row.status is Status.RUNNING), None)

    def transcript(self, run_id: str, choices: Choices = STRICT) -> Transcript:
        """The transcript of a run; empty for an unknown one."""
        run = self.runs.get(run_id)
        return fold(run.records, choices) if run is not None else Transcript()


EMPTY = State()
