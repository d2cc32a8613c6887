"""Deleting a session, in three units and a marker (L10).

The only write that is more than one unit, because it spans both stores: a durable marker that blocks admissions, the
transcript, then everything of the turn layer together with the marker. A crash between two units leaves the marker,
which ``list_pending_deletions`` shows and a repeated call finishes; each unit is harmless when repeated.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable

from turnproof.impl.base import Base, exists
from turnproof.impl.checks import run_name
from turnproof.model.ids import escape, split_stream_key
from turnproof.model.vocabulary import SessionBusy

__all__ = ["Deletion"]


class Deletion(Base):
    """Session deletion."""

    def delete_session(self, session_key: str, *, now: int | None = None) -> None:
        """Remove a session whose submissions are all settled; receipts stay.

        Raises ``InvalidRunId``; ``SessionBusy`` while anything of the session is unsettled.
        """
        run_name("session_key", session_key)
        self._time(now)
        with self._pool.write() as connection:
            self._mark(connection, session_key)
        with self._pool.write() as connection:
            _remove_transcript(connection, session_key)
        with self._pool.write() as connection:
            _finish(connection, session_key)

    def list_pending_deletions(self, *, now: int | None = None) -> list[str]:
        """Sessions whose deletion was begun and not finished, sorted; call ``delete_session`` again for each."""
        self._time(now)
        with self._pool.read() as connection:
            rows: Iterable[tuple[str]] = connection.execute("SELECT session_key FROM deletions ORDER BY session_key")
            return [session_key for (session_key,) in rows]

    def _mark(self, connection: sqlite3.Connection, session_key: str) -> None:
        if exists(
            connection, "SELECT 1 FROM submissions WHERE session_key = ? AND status <> 'settled'", (session_key,)
        ):
            raise SessionBusy(f"session {session_key!r} has unsettled submissions; settle them first")
        connection.execute("INSERT INTO deletions (session_key) VALUES (?) ON CONFLICT DO NOTHING", (session_key,))


def _remove_transcript(connection: sqlite3.Connection, session_key: str) -> None:
    connection.execute("DELETE FROM records WHERE run_id = ?", (session_key,))
    connection.execute("DELETE FROM runs WHERE run_id = ?", (session_key,))


def _finish(connection: sqlite3.Connection, session_key: str) -> None:
    """Receipts first, then everything that names one of the submissions, then the marker: one unit."""
    connection.execute(
        "INSERT INTO receipts (submission_id, accepted_at) SELECT submission_id, accepted_at FROM submissions"
        " WHERE session_key = ?",
        (session_key,),
    )
    rows: list[tuple[str, str | None]] = connection.execute(
        "SELECT s.submission_id, t.stream_key FROM submissions s LEFT JOIN slots t USING (submission_id)"
        " WHERE s.session_key = ?",
        (session_key,),
    ).fetchall()
    for submission_id, stream_key in rows:
        for key in {stream_key, *_minted_keys(connection, submission_id)} - {None}:
            connection.execute("DELETE FROM segments WHERE stream_key = ?", (key,))
        for table in ("slots", "attempts", "markers"):
            connection.execute(f"DELETE FROM {table} WHERE submission_id = ?", (submission_id,))
    connection.execute("DELETE FROM submissions WHERE session_key = ?", (session_key,))
    connection.execute("DELETE FROM deletions WHERE session_key = ?", (session_key,))


def _minted_keys(connection: sqlite3.Connection, submission_id: str) -> list[str]:
    """The stored stream keys that were minted for a submission: a range of the index, since its id comes first (S4)."""
    prefix = escape(submission_id)
    rows: Iterable[tuple[str]] = connection.execute(
        "SELECT DISTINCT stream_key FROM segments WHERE stream_key >= ? AND stream_key < ?",
        (f"{prefix}:", f"{prefix};"),
    )
    minted = ((key, split_stream_key(key)) for (key,) in rows)
    return [key for key, parts in minted if parts is not None and parts[0] == submission_id]
