"""Rows as SQLite answers them, and the values that they stand for.

STRICT tables keep every column in its type, so a row that does not fit is damage; the enums notice a word that no
release ever wrote. A long text continues on pages of its own, which SQLite does not check when it reads them: so every
free text (payload, error, tool request, segment) has a digest beside it, as every record has (X4).
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from hashlib import sha256
from typing import Final, TypeAlias

from turnproof.impl.base import Value
from turnproof.impl.connection import RunDamaged
from turnproof.model.rows import Record, Segment, Slot, Submission
from turnproof.model.vocabulary import Phase, RecordKind, Status, StorageDamaged, SubmissionKind

__all__ = [
    "RECORD",
    "SLOT",
    "SUBMISSION",
    "RecordRow",
    "digest_of",
    "record_of",
    "segment_of",
    "slot_of",
    "slots",
    "submission_of",
    "submissions",
]

SUBMISSION: Final = (
    "submission_id, session_key, kind, payload, status, sequence, accepted_at, attempt_id, owner_id, lease_expires_at, "
    "input_applied_at, recovery_requested_at, started_at, settled_at, error, attempt_count, max_retry, timeout_at, "
    "payload_digest, error_digest"
)
SLOT: Final = (
    "submission_id, session_key, kind, attempt_id, operation_id, turn_id, phase, revision, created_at, updated_at, "
    "stream_key, stream_consumed_at, tool_request, checkpoint_leaf_id, committed_leaf_id, tool_request_digest"
)
RECORD: Final = "seq, kind, timestamp, entry_id, parent_id, role, ext_type, text, state, payload, digest"

_SubmissionRow: TypeAlias = tuple[
    str, str, str, str, str, int, int, str | None, str | None, int,
    int | None, int | None, int | None, int | None, str | None, int, int, int, bytes, bytes | None,
]  # fmt: skip
_SlotRow: TypeAlias = tuple[
    str, str, str, str, str, str, str, int, int, int, str | None, int | None, str | None, str | None, str | None,
    bytes | None,
]  # fmt: skip
_SegmentRow: TypeAlias = tuple[int, str, bytes]
RecordRow: TypeAlias = tuple[int, str, int, str, str, str, str, str, str, str, bytes]

_STATUS: Final = {status.value: status for status in Status}
_PHASE: Final = {phase.value: phase for phase in Phase}
_SUBMISSION_KIND: Final = {kind.value: kind for kind in SubmissionKind}
_RECORD_KIND: Final = {kind.value: kind for kind in RecordKind}


def digest_of(value: str | None) -> bytes | None:
    """The digest that stands beside a free text."""
    return None if value is None else sha256(value.encode()).digest()


def _demand_digest(what: str, value: str | None, digest: bytes | None) -> None:
    if digest_of(value) != digest:
        raise StorageDamaged(f"{what} was changed on disk; restore a backup")


def submission_of(row: _SubmissionRow) -> Submission[str]:
    """One row of ``SUBMISSION`` columns. Raises ``StorageDamaged``."""
    kind, status = _SUBMISSION_KIND.get(row[2]), _STATUS.get(row[4])
    if kind is None or status is None:
        raise StorageDamaged(f"submission {row[0]!r}: kind {row[2]!r} or status {row[4]!r} is no word of this schema")
    _demand_digest(f"the payload of submission {row[0]!r}", row[3], row[18])
    _demand_digest(f"the error of submission {row[0]!r}", row[14], row[19])
    return Submission(
        submission_id=row[0],
        session_key=row[1],
        kind=kind,
        payload=row[3],
        status=status,
        sequence=row[5],
        accepted_at=row[6],
        attempt_id=row[7],
        owner_id=row[8],
        lease_expires_at=row[9],
        input_applied_at=row[10],
        recovery_requested_at=row[11],
        started_at=row[12],
        settled_at=row[13],
        error=row[14],
        attempt_count=row[15],
        max_retry=row[16],
        timeout_at=row[17],
    )


def slot_of(row: _SlotRow) -> Slot[str]:
    """One row of ``SLOT`` columns. Raises ``StorageDamaged``."""
    kind, phase = _SUBMISSION_KIND.get(row[2]), _PHASE.get(row[6])
    if kind is None or phase is None:
        raise StorageDamaged(f"slot of {row[0]!r}: kind {row[2]!r} or phase {row[6]!r} is no word of this schema")
    _demand_digest(f"the tool request of submission {row[0]!r}", row[12], row[15])
    return Slot(
        submission_id=row[0],
        session_key=row[1],
        kind=kind,
        attempt_id=row[3],
        operation_id=row[4],
        turn_id=row[5],
        phase=phase,
        revision=row[7],
        created_at=row[8],
        updated_at=row[9],
        stream_key=row[10],
        stream_consumed_at=row[11],
        tool_request=row[12],
        checkpoint_leaf_id=row[13],
        committed_leaf_id=row[14],
    )


def segment_of(stream_key: str, row: _SegmentRow) -> Segment:
    """Index, body and digest of a segment. Raises ``StorageDamaged``."""
    _demand_digest(f"segment {row[0]} of stream {stream_key!r}", row[1], row[2])
    return Segment(segment_index=row[0], body=row[1])


def record_of(run_id: str, row: RecordRow) -> Record:
    """One row of ``RECORD`` columns, the digest left behind. Raises ``StorageDamaged``."""
    kind = _RECORD_KIND.get(row[1])
    if kind is None:
        raise RunDamaged(f"run {run_id!r} seq {row[0]}: kind {row[1]!r} is no word of this schema")
    return Record(
        seq=row[0],
        run_id=run_id,
        kind=kind,
        timestamp=row[2],
        entry_id=row[3],
        parent_id=row[4],
        role=row[5],
        ext_type=row[6],
        text=row[7],
        state=row[8],
        payload=row[9],
    )


def submissions(connection: sqlite3.Connection, rest: str, values: Sequence[Value] = ()) -> list[Submission[str]]:
    """The submissions that ``rest`` (all that follows the table's name) selects."""
    rows: list[_SubmissionRow] = connection.execute(f"SELECT {SUBMISSION} FROM submissions {rest}", values).fetchall()
    return [submission_of(row) for row in rows]


def slots(connection: sqlite3.Connection, rest: str, values: Sequence[Value] = ()) -> list[Slot[str]]:
    """The slots that ``rest`` selects."""
    rows: list[_SlotRow] = connection.execute(f"SELECT {SLOT} FROM slots {rest}", values).fetchall()
    return [slot_of(row) for row in rows]
