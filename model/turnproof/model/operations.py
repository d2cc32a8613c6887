"""The alphabet: every operation that can be put to a store, as a value (PROTOCOL, "Operations").

One class an operation, one field an argument, named as on the wire. The wire codec, the state machines, the traces and
the explorer all read their vocabulary from ``ALPHABET``; nothing else lists the verbs. Fields hold arguments of the
right *type* but of any value: judging the value is the model's business (``system.apply`` is total).
"""

from __future__ import annotations

from typing import ClassVar, Final

from attrs import frozen

from turnproof.model.rows import Draft, Fence, Lease

__all__ = ["ALPHABET", "CAPABILITIES", "READS", "Operation"]


@frozen(kw_only=True)
class Operation:
    """One call of a store. ``now`` is the time at which it happens, in ms."""

    verb: ClassVar[str]
    capability: ClassVar[str]
    reads: ClassVar[bool] = False
    now: int = 0


@frozen(kw_only=True)
class Attempted(Operation):
    """What an attempt does to its submission: the owner gate decides (SPEC section 1)."""

    submission_id: str
    attempt_id: str


# --- submissions (L) ---------------------------------------------------------------------------------------------


@frozen(kw_only=True)
class Admit(Operation):
    verb = "admit"
    capability = "journal"
    submission_id: str
    session_key: str
    kind: str
    payload: str
    accepted_at: int


@frozen(kw_only=True)
class GetSubmission(Operation):
    verb = "get_submission"
    capability = "journal"
    reads = True
    submission_id: str


@frozen(kw_only=True)
class Claim(Attempted):
    verb = "claim"
    capability = "journal"
    owner_id: str
    lease_expires_at: int


@frozen(kw_only=True)
class MarkInputApplied(Attempted):
    verb = "mark_input_applied"
    capability = "queue"
    max_retry: int | None = None
    timeout_at: int | None = None


@frozen(kw_only=True)
class RequestRecovery(Attempted):
    verb = "request_recovery"
    capability = "queue"


@frozen(kw_only=True)
class Requeue(Attempted):
    verb = "requeue"
    capability = "queue"


@frozen(kw_only=True)
class Complete(Attempted):
    verb = "complete"
    capability = "journal"


@frozen(kw_only=True)
class FailSubmission(Attempted):
    verb = "fail"
    capability = "journal"
    error: str


@frozen(kw_only=True)
class ListRunnable(Operation):
    verb = "list_runnable"
    capability = "queue"
    reads = True


@frozen(kw_only=True)
class ListRunning(Operation):
    verb = "list_running"
    capability = "queue"
    reads = True


@frozen(kw_only=True)
class ListExpired(Operation):
    verb = "list_expired"
    capability = "leases"
    reads = True


@frozen(kw_only=True)
class HasUnsettled(Operation):
    verb = "has_unsettled"
    capability = "queue"
    reads = True


@frozen(kw_only=True)
class RenewLeases(Operation):
    verb = "renew_leases"
    capability = "leases"
    owner_id: str
    submission_ids: tuple[str, ...]
    lease_ms: int | None = None


@frozen(kw_only=True)
class InsertAttemptMarker(Attempted):
    verb = "insert_attempt_marker"
    capability = "markers"


@frozen(kw_only=True)
class DeleteAttemptMarker(Attempted):
    verb = "delete_attempt_marker"
    capability = "markers"


@frozen(kw_only=True)
class ListAttemptMarkers(Operation):
    verb = "list_attempt_markers"
    capability = "markers"
    reads = True


@frozen(kw_only=True)
class DeleteSession(Operation):
    verb = "delete_session"
    capability = "deletion"
    session_key: str


@frozen(kw_only=True)
class ListPendingDeletions(Operation):
    verb = "list_pending_deletions"
    capability = "deletion"
    reads = True


# --- turn journal (J), attempt transfer (T), stream segments (S) ---------------------------------------------------


@frozen(kw_only=True)
class BeginTurnJournal(Attempted):
    verb = "begin_turn_journal"
    capability = "journal"
    session_key: str
    kind: str
    operation_id: str
    turn_id: str


@frozen(kw_only=True)
class UpdateTurnJournalPhase(Attempted):
    verb = "update_turn_journal_phase"
    capability = "journal"
    phase: str
    stream_key: str | None = None
    tool_request: str | None = None
    checkpoint_leaf_id: str | None = None


@frozen(kw_only=True)
class MarkStreamConsumed(Attempted):
    verb = "mark_stream_consumed"
    capability = "journal"
    stream_key: str


@frozen(kw_only=True)
class CommitTurnJournal(Attempted):
    verb = "commit_turn_journal"
    capability = "journal"
    committed_leaf_id: str | None = None


@frozen(kw_only=True)
class ReplaceTurnJournalAttempt(Attempted):
    verb = "replace_turn_journal_attempt"
    capability = "journal"
    next_attempt_id: str
    lease: Lease[str] | None = None
    observed_lease_expires_at: int | None = None


@frozen(kw_only=True)
class GetTurnJournal(Operation):
    verb = "get_turn_journal"
    capability = "journal"
    reads = True
    submission_id: str


@frozen(kw_only=True)
class AppendStreamSegment(Operation):
    verb = "append_stream_segment"
    capability = "streams"
    stream_key: str
    segment_index: int
    body: str


@frozen(kw_only=True)
class GetStreamSegments(Operation):
    verb = "get_stream_segments"
    capability = "streams"
    reads = True
    stream_key: str


@frozen(kw_only=True)
class DeleteStreamSegments(Operation):
    verb = "delete_stream_segments"
    capability = "streams"
    stream_key: str


# --- record log (R) and transcript (A, P) --------------------------------------------------------------------------


@frozen(kw_only=True)
class Append(Operation):
    verb = "append"
    capability = "records"
    run_id: str
    record: Draft
    fence: Fence | None = None
    expected_position: int | None = None


@frozen(kw_only=True)
class AppendStep(Operation):
    verb = "append_step"
    capability = "steps"
    run_id: str
    records: tuple[Draft, ...]
    fence: Fence | None = None
    expected_position: int | None = None


@frozen(kw_only=True)
class Checkpoint(Operation):
    verb = "checkpoint"
    capability = "records"
    run_id: str
    state: str
    fence: Fence | None = None


@frozen(kw_only=True)
class Replay(Operation):
    verb = "replay"
    capability = "records"
    reads = True
    run_id: str


@frozen(kw_only=True)
class State(Operation):
    verb = "state"
    capability = "records"
    reads = True
    run_id: str


@frozen(kw_only=True)
class Runs(Operation):
    verb = "runs"
    capability = "records"
    reads = True
    state: str | None = None
    """"" like ``None``: runs in every state (seed 003)."""
    include_reserved: bool = True


@frozen(kw_only=True)
class Position(Operation):
    verb = "position"
    capability = "position"
    reads = True
    run_id: str


@frozen(kw_only=True)
class Restore(Operation):
    verb = "restore"
    capability = "conversation"
    run_id: str
    fence: Fence | None = None


@frozen(kw_only=True)
class Inspect(Operation):
    verb = "inspect"
    capability = "conversation"
    reads = True
    run_id: str


@frozen(kw_only=True)
class ContextOf(Operation):
    verb = "context"
    capability = "conversation"
    reads = True
    run_id: str


@frozen(kw_only=True)
class SetLeaf(Operation):
    verb = "set_leaf"
    capability = "conversation"
    run_id: str
    entry_id: str
    fence: Fence | None = None


@frozen(kw_only=True)
class Clear(Operation):
    verb = "clear"
    capability = "conversation"
    run_id: str
    fence: Fence | None = None


@frozen(kw_only=True)
class Recover(Operation):
    verb = "recover"
    capability = "recovery"
    reads = True
    submission_id: str


ALPHABET: Final[dict[str, type[Operation]]] = {
    cls.verb: cls
    for cls in list(globals().values())
    if isinstance(cls, type) and issubclass(cls, Operation) and cls not in (Operation, Attempted)
}
"""Every operation by its verb."""

READS: Final = frozenset(verb for verb, cls in ALPHABET.items() if cls.reads)
"""Verbs that never write."""

CAPABILITIES: Final = (
    "journal",
    "streams",
    "queue",
    "leases",
    "markers",
    "deletion",
    "records",
    "steps",
    "position",
    "conversation",
    "fencing",
    "recovery",
    "import",
)
"""What an adapter may offer (PROTOCOL). ``fencing`` and ``import`` have no verb of their own."""
