"""The rows that a store keeps and the values that it answers: data, no rules.

Ids are opaque (SPEC section 0): the rules only compare them for equality, so rows are generic over the id type. What
is proved over ``int`` ids holds for the ``str`` ids of a real store. Times are integers of milliseconds.
"""

from __future__ import annotations

from typing import Generic, TypeVar

from attrs import frozen

from turnproof.model.vocabulary import Phase, RecordKind, Status, SubmissionKind

__all__ = [
    "Admission",
    "AttemptMarker",
    "Context",
    "Draft",
    "Fence",
    "Lease",
    "ModelChoice",
    "Pending",
    "Receipt",
    "Record",
    "Recovery",
    "Repair",
    "Restored",
    "RunView",
    "Segment",
    "Slot",
    "Submission",
]

Id = TypeVar("Id")


@frozen(kw_only=True)
class Submission(Generic[Id]):
    """One admitted piece of work (SPEC section 1)."""

    submission_id: Id
    session_key: Id
    kind: SubmissionKind
    payload: Id
    status: Status
    sequence: int
    accepted_at: int
    attempt_id: Id | None = None
    owner_id: Id | None = None
    lease_expires_at: int = 0
    input_applied_at: int | None = None
    recovery_requested_at: int | None = None
    started_at: int | None = None
    settled_at: int | None = None
    error: Id | None = None
    attempt_count: int = 0
    max_retry: int = 10
    timeout_at: int = 0


@frozen(kw_only=True)
class Slot(Generic[Id]):
    """The turn journal of one submission (SPEC section 2)."""

    submission_id: Id
    session_key: Id
    kind: SubmissionKind
    attempt_id: Id
    operation_id: Id
    turn_id: Id
    phase: Phase
    revision: int
    created_at: int
    updated_at: int
    stream_key: Id | None = None
    stream_consumed_at: int | None = None
    tool_request: Id | None = None
    checkpoint_leaf_id: Id | None = None
    committed_leaf_id: Id | None = None

    @property
    def committed(self) -> bool:
        return self.phase is Phase.COMMITTED


@frozen(kw_only=True)
class Lease(Generic[Id]):
    owner_id: Id
    lease_expires_at: int


@frozen(kw_only=True)
class Fence:
    """Who claims to write to a run: a submission and the attempt that should own it (R11)."""

    submission_id: str
    attempt_id: str


@frozen(kw_only=True)
class AttemptMarker:
    submission_id: str
    attempt_id: str
    created_at: int


@frozen(kw_only=True)
class Receipt:
    """What is kept of a submission whose session was deleted (L10)."""

    submission_id: str
    accepted_at: int


@frozen(kw_only=True)
class Admission:
    """The answer to ``admit`` (L1): ``kind`` is ``submission``, ``receipt`` or ``conflict``."""

    kind: str
    submission: Submission[str] | None = None
    receipt: Receipt | None = None


@frozen(kw_only=True)
class Segment:
    segment_index: int
    body: str


@frozen(kw_only=True)
class Draft:
    """A record as a caller hands it in: unchecked text, ``seq`` ignored, "" the same as absent (SPEC section 5).

    ``timestamp`` (ms) is filled with ``now`` when absent.
    """

    kind: str
    timestamp: int | None = None
    entry_id: str = ""
    parent_id: str = ""
    role: str = ""
    ext_type: str = ""
    text: str = ""
    state: str = ""
    payload: str = ""
    run_id: str = ""


@frozen(kw_only=True, cache_hash=True)
class Record:
    """A stored record: one line of a run's log, never changed and never removed (R2)."""

    seq: int
    run_id: str
    kind: RecordKind
    timestamp: int
    entry_id: str = ""
    parent_id: str = ""
    role: str = ""
    ext_type: str = ""
    text: str = ""
    state: str = ""
    payload: str = ""


@frozen(kw_only=True)
class ModelChoice:
    provider: str
    model: str


@frozen(kw_only=True)
class Repair:
    """What a torn tail loses: the ids that leave the active path, in path order (P4)."""

    dropped_entry_ids: tuple[str, ...]


@frozen(kw_only=True)
class Pending:
    """A step that the journal knows to be unfinished: it is closed, not cut (P9)."""

    submission_id: str
    open_calls: tuple[str, ...]


@frozen(kw_only=True)
class Restored:
    """The answer of ``restore`` and ``inspect``: the active path after repair (A2, P2, P7)."""

    leaf: str
    path: tuple[str, ...]
    messages: tuple[str, ...]
    model: ModelChoice | None = None
    repair: Repair | None = None
    pending: Pending | None = None


@frozen(kw_only=True)
class Context:
    """What a model is shown: the newest summary on the active path and the entries from there (A8)."""

    summary: str | None
    entries: tuple[str, ...]


@frozen(kw_only=True)
class RunView:
    """What a run's log says besides the conversation (R18)."""

    turn: str | None = None
    """The text of the last ``turn`` record: the turn's name."""
    cancel_requested: bool = False
    """A ``cancel`` names this turn, and neither a ``cancelled`` state nor a new turn came since."""
    suspension: Record | None = None
    """The last ``suspend`` without a later ``resume``."""
    trigger: Record | None = None
    sandbox: Record | None = None
    contexts: tuple[str, ...] = ()
    """The texts of the ``context`` records of this turn; never part of the conversation."""


@frozen(kw_only=True)
class Recovery:
    """The answer of ``recover``: what the next attempt may do (SPEC section 8)."""

    decision: str
    open_calls: tuple[str, ...] = ()
