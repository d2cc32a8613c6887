"""The words of the project: phases, statuses, record kinds, error codes and the exceptions that carry them.

Every room speaks these words and no others: the model answers with an ``ErrorCode``, the store raises the
exception of that code, the wire spells it. Nothing here decides anything.
"""

from __future__ import annotations

from enum import StrEnum
from typing import ClassVar, Final

__all__ = [
    "DEFAULT_LEASE_MS",
    "DEFAULT_MAX_RETRY",
    "DEFAULT_TIMEOUT_MS",
    "MAX_INTEGER",
    "RESERVED_PREFIX",
    "TREE_KINDS",
    "AnchorMismatch",
    "AttemptReused",
    "CorruptConversation",
    "EntryConflict",
    "EntryNotFound",
    "ErrorCode",
    "ImportFailed",
    "InvalidArgument",
    "InvalidRecord",
    "InvalidRunId",
    "Phase",
    "RecordKind",
    "RunNotFound",
    "RunOwnedElsewhere",
    "RunState",
    "SessionBusy",
    "SessionDeleting",
    "Status",
    "StorageDamaged",
    "StorageError",
    "SubmissionKind",
    "TurnproofError",
    "Unsupported",
    "UnsupportedSchema",
    "error_of",
]

MAX_INTEGER: Final = 2**53
"""Integers on the wire are within plus or minus this (PROTOCOL): every JSON reader keeps them exact."""

DEFAULT_MAX_RETRY: Final = 10
"""Attempts a submission may use before recovery gives up (SPEC section 1)."""

DEFAULT_TIMEOUT_MS: Final = 3_600_000
"""What the first claim grants a submission, in ms (L2)."""

DEFAULT_LEASE_MS: Final = 30_000
"""What one renewal grants a lease, in ms (L7)."""

RESERVED_PREFIX: Final = "bonnie."
"""Run ids with this prefix hold bookkeeping, not conversations (R6)."""


class Status(StrEnum):
    """Where a submission is in its life (SPEC section 1)."""

    QUEUED = "queued"
    RUNNING = "running"
    SETTLED = "settled"


class SubmissionKind(StrEnum):
    DISPATCH = "dispatch"
    DIRECT = "direct"


class Phase(StrEnum):
    """How far a turn came (SPEC section 2)."""

    BEFORE_PROVIDER = "before_provider"
    PROVIDER_STARTED = "provider_started"
    TOOL_REQUEST_RECORDED = "tool_request_recorded"
    COMMITTED = "committed"


class RunState(StrEnum):
    """The state of a run, moved only by a ``state`` record (R4)."""

    PENDING = "pending"
    RUNNING = "running"
    WAITING = "waiting"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    INTERRUPTED = "interrupted"
    RETIRED = "retired"


class RecordKind(StrEnum):
    """What a record of the run journal says (SPEC section 5)."""

    TURN = "turn"
    CANCEL = "cancel"
    MESSAGE = "message"
    STEP = "step"
    SUSPEND = "suspend"
    RESUME = "resume"
    COMPACTION = "compaction"
    EXTENSION_DATA = "extension_data"
    MODEL_CHANGE = "model_change"
    BRANCH = "branch"
    BRANCH_SUMMARY = "branch_summary"
    STATE = "state"
    REPAIR = "repair"
    SANDBOX = "sandbox"
    WORKSPACE_DELETED = "workspace_deleted"
    TRIGGER = "trigger"
    CONTEXT = "context"
    CLEAR = "clear"
    COMPLETION = "completion"


TREE_KINDS: Final = frozenset(
    {
        RecordKind.MESSAGE,
        RecordKind.COMPACTION,
        RecordKind.EXTENSION_DATA,
        RecordKind.MODEL_CHANGE,
        RecordKind.BRANCH_SUMMARY,
    }
)
"""Kinds whose records are entries of the transcript tree and carry an entry id (R8)."""


class ErrorCode(StrEnum):
    """The error codes of PROTOCOL; each has one exception class below."""

    INVALID_ARGUMENT = "invalid_argument"
    INVALID_RUN_ID = "invalid_run_id"
    INVALID_RECORD = "invalid_record"
    RUN_NOT_FOUND = "run_not_found"
    ENTRY_NOT_FOUND = "entry_not_found"
    ENTRY_CONFLICT = "entry_conflict"
    ANCHOR_MISMATCH = "anchor_mismatch"
    CORRUPT_CONVERSATION = "corrupt_conversation"
    ATTEMPT_REUSED = "attempt_reused"
    SESSION_BUSY = "session_busy"
    SESSION_DELETING = "session_deleting"
    RUN_OWNED_ELSEWHERE = "run_owned_elsewhere"
    UNSUPPORTED_SCHEMA = "unsupported_schema"
    IMPORT_FAILED = "import_failed"
    STORAGE_DAMAGED = "storage_damaged"
    STORAGE_ERROR = "storage_error"
    UNSUPPORTED = "unsupported"


class TurnproofError(Exception):
    """A typed error: the arguments or the stored data are bad, and nothing was written (SPEC section 0).

    ``code`` is the protocol's word for it; ``str(error)`` names the thing and says what to do.
    """

    code: ClassVar[ErrorCode]

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class InvalidArgument(TurnproofError):
    code = ErrorCode.INVALID_ARGUMENT


class InvalidRunId(TurnproofError):
    code = ErrorCode.INVALID_RUN_ID


class InvalidRecord(TurnproofError):
    code = ErrorCode.INVALID_RECORD


class RunNotFound(TurnproofError):
    code = ErrorCode.RUN_NOT_FOUND


class EntryNotFound(TurnproofError):
    code = ErrorCode.ENTRY_NOT_FOUND


class EntryConflict(TurnproofError):
    code = ErrorCode.ENTRY_CONFLICT


class AnchorMismatch(TurnproofError):
    code = ErrorCode.ANCHOR_MISMATCH


class CorruptConversation(TurnproofError):
    code = ErrorCode.CORRUPT_CONVERSATION


class AttemptReused(TurnproofError):
    code = ErrorCode.ATTEMPT_REUSED


class SessionBusy(TurnproofError):
    code = ErrorCode.SESSION_BUSY


class SessionDeleting(TurnproofError):
    code = ErrorCode.SESSION_DELETING


class RunOwnedElsewhere(TurnproofError):
    """For stores with a single-writer owner; the SQLite store never raises it (seed 003)."""

    code = ErrorCode.RUN_OWNED_ELSEWHERE


class UnsupportedSchema(TurnproofError):
    code = ErrorCode.UNSUPPORTED_SCHEMA


class ImportFailed(TurnproofError):
    code = ErrorCode.IMPORT_FAILED


class StorageDamaged(TurnproofError):
    code = ErrorCode.STORAGE_DAMAGED


class StorageError(TurnproofError):
    code = ErrorCode.STORAGE_ERROR


class Unsupported(TurnproofError):
    code = ErrorCode.UNSUPPORTED


_CLASSES: Final[dict[ErrorCode, type[TurnproofError]]] = {c.code: c for c in TurnproofError.__subclasses__()}


def error_of(code: ErrorCode, message: str) -> TurnproofError:
    """The exception that carries ``code``."""
    return _CLASSES[code](message)
