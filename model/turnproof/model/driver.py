"""The values of the reference driver: what it asks for, what it is answered, and the driver itself.

``turn`` holds the rules. Here is only data, immutable and hashable: a driver can be copied, compared and enumerated.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import TypeAlias

from attrs import frozen

from turnproof.model.choices import STRICT, Choices
from turnproof.model.decision import Decision
from turnproof.model.ids import mint_stream_key
from turnproof.model.operations import Operation
from turnproof.model.rebuild import Outcome, ToolCall
from turnproof.model.rows import Draft, Fence, Slot, Submission
from turnproof.model.vocabulary import DEFAULT_LEASE_MS

__all__ = [
    "Answer",
    "Assemble",
    "Done",
    "Driver",
    "End",
    "Job",
    "Outcome",
    "Piece",
    "ProviderCall",
    "Said",
    "Stage",
    "Step",
    "StoreCall",
    "ToolCall",
    "ToolRun",
]


# --- what the driver asks, and what it is answered ------------------------------------------------------------------


@frozen
class StoreCall:
    operation: Operation


@frozen(kw_only=True)
class ProviderCall:
    """Ask the provider; answered by ``Piece`` for each piece of its stream and by ``Said`` at the end."""

    submission_id: str
    session_key: str
    turn_id: str
    attempt_id: str
    summary: str | None
    """What stands for the entries before the newest compaction (A8)."""
    messages: tuple[str, ...]
    """The conversation as message payloads, oldest first."""
    received: int
    """How many pieces of this stream are stored already: 0 opens the stream, more goes on reading it."""


@frozen
class Assemble:
    """Make the message of the captured pieces of a stream that was read to its end; answered by ``Said``."""

    stream_key: str
    pieces: tuple[str, ...]


@frozen(kw_only=True)
class ToolRun:
    """Run these tools, at once or one by one; answered by an ``Outcome`` each, in any order.

    It is asked again, with what is left, after each answer: start a call once.
    """

    submission_id: str
    turn_id: str
    attempt_id: str
    calls: tuple[ToolCall, ...]


@frozen
class Done:
    """The driver has nothing more to do."""

    end: End
    message: str = ""


@frozen
class Piece:
    """A piece of the provider's stream, stored before it is shown."""

    body: str


@frozen
class Said:
    """What the provider said, whole: an assistant message as a payload (A7)."""

    message: str


Step: TypeAlias = StoreCall | ProviderCall | Assemble | ToolRun | Done
Answer: TypeAlias = Decision[object] | Piece | Said | Outcome


class End(Enum):
    """How a driver's work ended."""

    COMPLETED = "completed"
    FAILED = "failed"
    REQUEUED = "requeued"
    NOT_OWNER = "not owner"
    """The claim or the transfer was refused: somebody else was first."""
    LOST = "lost"
    """A write was refused: somebody else owns the submission now."""
    ERROR = "error"
    """The store answered an error that no right driver meets."""


# --- the driver -----------------------------------------------------------------------------------------------------


class Stage(Enum):
    """Where a driver is; each has one rule in ``TABLE``."""

    CLAIM = auto()
    COUNT = auto()
    OPEN = auto()
    INPUT = auto()
    MARK = auto()
    BEGIN = auto()
    START = auto()
    CONTEXT = auto()
    TEXTS = auto()
    ASK = auto()
    SEGMENT = auto()
    CONSUMED = auto()
    RECORD = auto()
    TOOLS = auto()
    STORE = auto()
    COMMIT = auto()
    COMPLETE = auto()
    FAIL = auto()
    TRANSFER = auto()
    LOOK = auto()
    JOURNAL = auto()
    LOG = auto()
    REQUEUE = auto()
    REMARK = auto()
    ATTACH = auto()
    CAPTURED = auto()
    ASSEMBLE = auto()
    CLOSE = auto()
    DONE = auto()


@frozen(kw_only=True)
class Job:
    """What one attempt is started with. ``predecessor`` is the attempt to take over from; without it, claim."""

    submission_id: str
    attempt_id: str
    owner_id: str
    predecessor: str | None = None
    observed_lease: int | None = None
    lease_ms: int = DEFAULT_LEASE_MS
    max_retry: int | None = None
    timeout_ms: int | None = None
    atomic_steps: bool = True
    """Whether the store has ``append_step``; without it entries are appended one by one (R16)."""
    choices: Choices = STRICT


@frozen(kw_only=True, cache_hash=True)
class Driver:
    """An attempt at work. Fields that a stage does not need are empty, so that equal situations are equal values."""

    job: Job
    stage: Stage
    session_key: str = ""
    kind: str = ""
    payload: str = ""
    turns: int = 0
    """How many turn ids of this submission are used: the next turn is named after it."""
    turn_id: str = ""
    leaf: str = ""
    """The entry below which the next one is written."""
    prompt: tuple[str | None, tuple[str, ...]] = (None, ())
    received: int = 0
    body: str = ""
    message: str = ""
    """What the provider said."""
    outcomes: tuple[Outcome, ...] = ()
    entries: tuple[Draft, ...] = ()
    """What is to be appended; while it looks again, what could not be."""
    then: Stage = Stage.DONE
    """Where it goes on after attaching or appending."""
    row: Submission[str] | None = None
    slot: Slot[str] | None = None
    decision: str = ""
    """What recovery decided, until the next turn begins."""
    end: End | None = None
    error: str = ""
    """Why it fails; while it looks again, what went wrong."""

    @property
    def fence(self) -> Fence:
        return Fence(submission_id=self.job.submission_id, attempt_id=self.job.attempt_id)

    @property
    def stream_key(self) -> str:
        """The key under which this turn streams: its own, or in a replay that of the attempt that was heard."""
        if self.slot is not None and self.slot.stream_key is not None:
            return self.slot.stream_key
        return mint_stream_key(self.job.submission_id, self.turn_id, self.job.attempt_id)

    def ended(self, end: End, error: str = "") -> Driver:
        """The driver when nothing is left to do: how it ended, and what recovery had decided."""
        return Driver(job=self.job, stage=Stage.DONE, decision=self.decision, end=end, error=error)
