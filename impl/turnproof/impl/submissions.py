"""Submissions: admitted once, claimed by one attempt at a time, settled once (L1-L9, T1-T7).

The row is the lock and the attempt id is its token. A verb of an attempt is one ``UPDATE`` whose ``WHERE`` is the owner
gate, so the comparison and the write cannot be pulled apart; where former attempts or a slot must be looked at too, it
is one ``BEGIN IMMEDIATE`` transaction.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from typing import Final

from turnproof.impl.base import Base, Value, exists
from turnproof.impl.checks import integer, json_text, kind_of, optional_integer, run_name, text, texts
from turnproof.impl.columns import SUBMISSION, digest_of, submission_of, submissions
from turnproof.model.rows import Admission, AttemptMarker, Lease, Receipt, Submission
from turnproof.model.vocabulary import (
    DEFAULT_LEASE_MS,
    DEFAULT_MAX_RETRY,
    DEFAULT_TIMEOUT_MS,
    AttemptReused,
    InvalidArgument,
    SessionDeleting,
)

__all__ = ["Submissions"]

_OWNED: Final = "WHERE submission_id = ? AND status = 'running' AND attempt_id = ?"
_OPEN: Final = "status <> 'settled'"
_BY_OPEN: Final = f"INDEXED BY submissions_open WHERE {_OPEN}"
"""Settled submissions pile up; a list must not walk over them to find the few that are open."""
_HEAD: Final = (
    f"NOT EXISTS (SELECT 1 FROM submissions e WHERE e.session_key = s.session_key AND e.sequence < s.sequence "
    f"AND e.{_OPEN})"
)


class Submissions(Base):
    """The queue."""

    def admit(
        self, submission_id: str, session_key: str, kind: str, payload: str, accepted_at: int, *, now: int | None = None
    ) -> Admission:
        """Take a submission in, idempotently by its id (L1).

        Raises ``InvalidRunId``, ``InvalidArgument``, ``SessionDeleting``.
        """
        run_name("session_key", session_key)
        values = (
            text("submission_id", submission_id),
            session_key,
            kind_of(kind).value,
            json_text("payload", payload),
            digest_of(payload),
            integer("accepted_at", accepted_at),
            DEFAULT_MAX_RETRY,
        )
        self._time(now)
        with self._pool.write() as connection:
            receipt = _receipt(connection, submission_id)
            if receipt is not None:
                return Admission(kind="receipt", receipt=receipt)
            if exists(connection, "SELECT 1 FROM deletions WHERE session_key = ?", (session_key,)):
                raise SessionDeleting(f"session {session_key!r} is being deleted; call delete_session to finish it")
            found = submissions(connection, "WHERE submission_id = ?", (submission_id,))
            if not found:
                connection.execute(
                    "INSERT INTO submissions"
                    " (submission_id, session_key, kind, payload, payload_digest, accepted_at, max_retry, status)"
                    " VALUES (?, ?, ?, ?, ?, ?, ?, 'queued')",
                    values,
                )
                found = submissions(connection, "WHERE submission_id = ?", (submission_id,))
        row = found[0]
        if (row.session_key, row.kind.value, row.payload) != values[1:4]:
            return Admission(kind="conflict")
        return Admission(kind="submission", submission=row)

    def get_submission(self, submission_id: str, *, now: int | None = None) -> Submission[str] | None:
        """The row, or ``None``. Raises ``InvalidArgument``."""
        return self._one(text("submission_id", submission_id), now)

    def claim(
        self, submission_id: str, attempt_id: str, owner_id: str, lease_expires_at: int, *, now: int | None = None
    ) -> Submission[str] | None:
        """Take a queued submission that is the head of its session, or ``None`` (L2).

        Raises ``AttemptReused`` for an attempt that owned it before (T5); ``InvalidArgument``, also when the deadline
        that it may grant would be beyond 2**53.
        """
        _attempt(submission_id, attempt_id)
        text("owner_id", owner_id)
        integer("lease_expires_at", lease_expires_at)
        now = self._time(now)
        deadline = integer("now + the time that a claim grants", now + DEFAULT_TIMEOUT_MS)
        with self._pool.write() as connection:
            if not exists(
                connection,
                f"SELECT 1 FROM submissions s WHERE submission_id = ? AND status = 'queued' AND {_HEAD}",
                (submission_id,),
            ):
                return None
            _remember(connection, submission_id, attempt_id)
            row = connection.execute(
                "UPDATE submissions SET status = 'running', attempt_id = ?, owner_id = ?, lease_expires_at = ?,"
                " started_at = ?, attempt_count = attempt_count + 1,"
                " timeout_at = CASE timeout_at WHEN 0 THEN ? ELSE timeout_at END"
                f" WHERE submission_id = ? AND status = 'queued' RETURNING {SUBMISSION}",
                (attempt_id, owner_id, lease_expires_at, now, deadline, submission_id),
            ).fetchone()
        return submission_of(row)

    def mark_input_applied(
        self,
        submission_id: str,
        attempt_id: str,
        *,
        max_retry: int | None = None,
        timeout_at: int | None = None,
        now: int | None = None,
    ) -> bool:
        """Stamp, the first time, that the input is in the transcript; install the budget when given (L3)."""
        _attempt(submission_id, attempt_id)
        retries = optional_integer("max_retry", max_retry)
        deadline = optional_integer("timeout_at", timeout_at)
        return self._owned(
            "input_applied_at = coalesce(input_applied_at, ?),"
            " max_retry = iif(input_applied_at IS NULL, coalesce(?, max_retry), max_retry),"
            " timeout_at = iif(input_applied_at IS NULL, coalesce(?, timeout_at), timeout_at)",
            (self._time(now), retries, deadline, submission_id, attempt_id),
        )

    def request_recovery(self, submission_id: str, attempt_id: str, *, now: int | None = None) -> bool:
        """Stamp, the first time, that this attempt asks to be recovered (L4)."""
        _attempt(submission_id, attempt_id)
        return self._owned(
            "recovery_requested_at = coalesce(recovery_requested_at, ?)", (self._time(now), submission_id, attempt_id)
        )

    def requeue(self, submission_id: str, attempt_id: str, *, now: int | None = None) -> bool:
        """Give the submission back, only before its input is applied and its provider asked (L5)."""
        _attempt(submission_id, attempt_id)
        self._time(now)
        return self._owned(
            "status = 'queued', attempt_id = NULL, owner_id = NULL, lease_expires_at = 0, started_at = NULL,"
            " recovery_requested_at = NULL",
            (submission_id, attempt_id),
            "AND input_applied_at IS NULL AND NOT EXISTS (SELECT 1 FROM slots t"
            " WHERE t.submission_id = submissions.submission_id AND t.phase <> 'before_provider'"
            " AND (t.phase = 'committed' OR t.attempt_id = submissions.attempt_id))",
        )

    def complete(self, submission_id: str, attempt_id: str, *, now: int | None = None) -> bool:
        """Settle as done; the first terminal state wins (L6)."""
        _attempt(submission_id, attempt_id)
        return self._settle(submission_id, attempt_id, None, self._time(now))

    def fail(self, submission_id: str, attempt_id: str, error: str, *, now: int | None = None) -> bool:
        """Settle as failed; the first terminal state wins (L6)."""
        _attempt(submission_id, attempt_id)
        return self._settle(submission_id, attempt_id, text("error", error), self._time(now))

    def list_runnable(self, *, now: int | None = None) -> list[Submission[str]]:
        """Queued heads, at most one a session, in admission order (L8)."""
        self._time(now)
        with self._pool.read() as connection:
            return submissions(connection, f"s {_BY_OPEN} AND status = 'queued' AND {_HEAD} ORDER BY sequence")

    def list_running(self, *, now: int | None = None) -> list[Submission[str]]:
        """Running ones in admission order (L8)."""
        self._time(now)
        with self._pool.read() as connection:
            return submissions(connection, f"{_BY_OPEN} AND status = 'running' ORDER BY sequence")

    def list_expired(self, *, now: int | None = None) -> list[Submission[str]]:
        """Running under a lease that has passed; 0 is no lease (L8)."""
        rest = f"{_BY_OPEN} AND status = 'running' AND lease_expires_at BETWEEN 1 AND ? - 1 ORDER BY sequence"
        moment = self._time(now)
        with self._pool.read() as connection:
            return submissions(connection, rest, (moment,))

    def has_unsettled(self, *, now: int | None = None) -> bool:
        """Whether anything is queued or running (L8)."""
        self._time(now)
        with self._pool.read() as connection:
            return exists(connection, f"SELECT 1 FROM submissions WHERE {_OPEN}", ())

    def renew_leases(
        self, owner_id: str, submission_ids: Sequence[str], lease_ms: int | None = None, *, now: int | None = None
    ) -> list[str]:
        """Lengthen the leases of those that still run under this owner; answers which, in the order asked (L7).

        Raises ``InvalidArgument``, also when ``now + lease_ms`` is beyond 2**53.
        """
        text("owner_id", owner_id)
        wanted = texts("submission_ids", submission_ids)
        lease = integer("lease_ms", DEFAULT_LEASE_MS if lease_ms is None else lease_ms)
        until = integer("now + lease_ms", self._time(now) + lease)
        with self._pool.write() as connection:
            return [
                submission_id
                for submission_id in wanted
                if connection.execute(
                    "UPDATE submissions SET lease_expires_at = max(lease_expires_at, ?)"
                    " WHERE submission_id = ? AND status = 'running' AND owner_id = ?",
                    (until, submission_id, owner_id),
                ).rowcount
            ]

    def replace_turn_journal_attempt(
        self,
        submission_id: str,
        attempt_id: str,
        next_attempt_id: str,
        *,
        lease: Lease[str] | None = None,
        observed_lease_expires_at: int | None = None,
        now: int | None = None,
    ) -> Submission[str] | None:
        """Hand a running submission and its uncommitted slot to the next attempt, all or nothing (T1-T7).

        ``None`` when the submission is not running under ``attempt_id`` or its lease is no longer the observed one.
        Raises ``AttemptReused`` (T5), ``InvalidArgument``.
        """
        _attempt(submission_id, attempt_id)
        text("next_attempt_id", next_attempt_id)
        if lease is not None:
            if not isinstance(lease, Lease):
                raise InvalidArgument(f"lease must be a Lease, not {type(lease).__name__}")
            text("lease.owner_id", lease.owner_id)
            integer("lease.lease_expires_at", lease.lease_expires_at)
        observed = optional_integer("observed_lease_expires_at", observed_lease_expires_at)
        now = self._time(now)
        owner, until = (None, None) if lease is None else (lease.owner_id, lease.lease_expires_at)
        with self._pool.write() as connection:
            row = connection.execute(
                "UPDATE submissions SET attempt_id = ?, attempt_count = attempt_count + 1, started_at = ?,"
                " recovery_requested_at = NULL, owner_id = coalesce(?, owner_id),"
                f" lease_expires_at = coalesce(?, lease_expires_at) {_OWNED}"
                f" AND lease_expires_at = coalesce(?, lease_expires_at) RETURNING {SUBMISSION}",
                (next_attempt_id, now, owner, until, submission_id, attempt_id, observed),
            ).fetchone()
            if row is None:
                return None
            _remember(connection, submission_id, next_attempt_id)
            connection.execute(
                "UPDATE slots SET attempt_id = ?, updated_at = ?"
                " WHERE submission_id = ? AND attempt_id = ? AND phase <> 'committed'",
                (next_attempt_id, now, submission_id, attempt_id),
            )
        return submission_of(row)

    # --- attempt markers (L9) ---------------------------------------------------------------------------------------

    def insert_attempt_marker(self, submission_id: str, attempt_id: str, *, now: int | None = None) -> None:
        """Note an attempt; the first time is kept, and nothing is kept for a deleted submission (L9, L10)."""
        _attempt(submission_id, attempt_id)
        moment = self._time(now)
        with self._pool.statement() as connection:
            connection.execute(
                "INSERT INTO markers (submission_id, attempt_id, created_at) SELECT ?, ?, ?"
                " WHERE NOT EXISTS (SELECT 1 FROM receipts WHERE submission_id = ?) ON CONFLICT DO NOTHING",
                (submission_id, attempt_id, moment, submission_id),
            )

    def delete_attempt_marker(self, submission_id: str, attempt_id: str, *, now: int | None = None) -> None:
        """Remove the marker with both ids, if it is there (L9)."""
        _attempt(submission_id, attempt_id)
        self._time(now)
        with self._pool.statement() as connection:
            connection.execute(
                "DELETE FROM markers WHERE submission_id = ? AND attempt_id = ?", (submission_id, attempt_id)
            )

    def list_attempt_markers(self, *, now: int | None = None) -> list[AttemptMarker]:
        """All markers, sorted by both ids (L9)."""
        self._time(now)
        with self._pool.read() as connection:
            rows: Iterable[tuple[str, str, int]] = connection.execute(
                "SELECT submission_id, attempt_id, created_at FROM markers ORDER BY submission_id, attempt_id"
            )
            return [AttemptMarker(submission_id=one, attempt_id=two, created_at=at) for one, two, at in rows]

    # --- shared -----------------------------------------------------------------------------------------------------

    def _one(self, submission_id: str, now: int | None) -> Submission[str] | None:
        self._time(now)
        with self._pool.read() as connection:
            found = submissions(connection, "WHERE submission_id = ?", (submission_id,))
        return found[0] if found else None

    def _owned(self, change: str, values: Sequence[Value], condition: str = "") -> bool:
        """One ``UPDATE`` behind the owner gate; whether it happened."""
        with self._pool.statement() as connection:
            return connection.execute(f"UPDATE submissions SET {change} {_OWNED} {condition}", values).rowcount == 1

    def _settle(self, submission_id: str, attempt_id: str, error: str | None, now: int) -> bool:
        return self._owned(
            "status = 'settled', settled_at = ?, error = ?, error_digest = ?",
            (now, error, digest_of(error), submission_id, attempt_id),
        )


def _attempt(submission_id: str, attempt_id: str) -> None:
    text("submission_id", submission_id)
    text("attempt_id", attempt_id)


def _receipt(connection: sqlite3.Connection, submission_id: str) -> Receipt | None:
    row: tuple[int] | None = connection.execute(
        "SELECT accepted_at FROM receipts WHERE submission_id = ?", (submission_id,)
    ).fetchone()
    return None if row is None else Receipt(submission_id=submission_id, accepted_at=row[0])


def _remember(connection: sqlite3.Connection, submission_id: str, attempt_id: str) -> None:
    """Note that the attempt owns the submission, for ever: no attempt id is accepted twice (T5)."""
    added = connection.execute(
        "INSERT INTO attempts (submission_id, attempt_id) VALUES (?, ?) ON CONFLICT DO NOTHING",
        (submission_id, attempt_id),
    ).rowcount
    if not added:
        raise AttemptReused(f"attempt {attempt_id!r} owned submission {submission_id!r} before; mint a new id")
