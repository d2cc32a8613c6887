"""The turn journal: one slot for each submission, moved forward one durable write at a time (J1-J12, A4).

Every verb reads the submission and its slot, judges, and writes in one ``BEGIN IMMEDIATE`` transaction; the slot gate
is one query. What the transcript says of a leaf is asked in the same transaction, so that a leaf cannot be cut between
the question and the write.
"""

from __future__ import annotations

import sqlite3
from typing import Final

from turnproof.impl.anchors import Anchors
from turnproof.impl.checks import kind_of, natural, optional_text, run_name, text
from turnproof.impl.columns import digest_of, segment_of, slots
from turnproof.model.ids import mint_stream_key, split_stream_key
from turnproof.model.payload import decode_tool_request
from turnproof.model.rows import Segment, Slot
from turnproof.model.vocabulary import InvalidArgument, Phase

__all__ = ["TurnJournal"]

_FROM: Final = {
    Phase.PROVIDER_STARTED: (Phase.BEFORE_PROVIDER,),
    Phase.TOOL_REQUEST_RECORDED: (Phase.PROVIDER_STARTED,),
    Phase.COMMITTED: (Phase.PROVIDER_STARTED, Phase.TOOL_REQUEST_RECORDED),
}
"""The arrows, by where they lead (J4, J7)."""

_GATED: Final = (
    "t WHERE submission_id = ? AND attempt_id = ? AND phase <> 'committed' AND EXISTS (SELECT 1 FROM submissions s"
    " WHERE s.submission_id = t.submission_id AND s.attempt_id = t.attempt_id AND s.status = 'running')"
)


class TurnJournal(Anchors):
    """Slots and stream segments."""

    def begin_turn_journal(
        self,
        submission_id: str,
        attempt_id: str,
        session_key: str,
        kind: str,
        operation_id: str,
        turn_id: str,
        *,
        now: int | None = None,
    ) -> bool:
        """Start a turn: make the slot, or reset it in place (J1-J3, J10).

        Raises ``InvalidRunId``; ``InvalidArgument``, also when session or kind are not the submission's.
        """
        run_name("session_key", session_key)
        word = kind_of(kind).value
        text("submission_id", submission_id)
        text("attempt_id", attempt_id)
        text("operation_id", operation_id)
        text("turn_id", turn_id)
        moment = self._time(now)
        with self._pool.write() as connection:
            row: tuple[str, str] | None = connection.execute(
                "SELECT session_key, kind FROM submissions"
                " WHERE submission_id = ? AND status = 'running' AND attempt_id = ?",
                (submission_id, attempt_id),
            ).fetchone()
            if row is None:
                return False
            if row != (session_key, word):
                raise InvalidArgument(f"submission {submission_id!r} is {row[1]} work of session {row[0]!r}")
            connection.execute(
                "INSERT INTO slots (submission_id, session_key, kind, attempt_id, operation_id, turn_id, phase,"
                " revision, created_at, updated_at) VALUES (?, ?, ?, ?, ?, ?, 'before_provider', 1, ?, ?)"
                " ON CONFLICT (submission_id) DO UPDATE SET attempt_id = excluded.attempt_id,"
                " operation_id = excluded.operation_id, turn_id = excluded.turn_id, phase = 'before_provider',"
                " revision = revision + 1, updated_at = excluded.updated_at, stream_key = NULL,"
                " stream_consumed_at = NULL, tool_request = NULL, tool_request_digest = NULL,"
                " checkpoint_leaf_id = NULL, committed_leaf_id = NULL",
                (submission_id, session_key, word, attempt_id, operation_id, turn_id, moment, moment),
            )
        return True

    def update_turn_journal_phase(
        self,
        submission_id: str,
        attempt_id: str,
        phase: str,
        *,
        stream_key: str | None = None,
        tool_request: str | None = None,
        checkpoint_leaf_id: str | None = None,
        now: int | None = None,
    ) -> bool:
        """Move the phase along one arrow with what the next phase needs (J4-J6, A4).

        Raises ``InvalidArgument`` for missing or wrong phase data, ``EntryNotFound`` for an unknown checkpoint.
        """
        text("submission_id", submission_id)
        text("attempt_id", attempt_id)
        target = _phase_of(phase)
        key = optional_text("stream_key", stream_key)
        request = optional_text("tool_request", tool_request)
        checkpoint = optional_text("checkpoint_leaf_id", checkpoint_leaf_id)
        moment = self._time(now)
        if target is Phase.PROVIDER_STARTED:
            if key is None:
                raise InvalidArgument("provider_started needs a stream_key")
            request = None
        elif target is Phase.TOOL_REQUEST_RECORDED:
            if request is None or checkpoint is None:
                raise InvalidArgument("tool_request_recorded needs a tool_request and a checkpoint_leaf_id")
            decode_tool_request(request)
            key = None
        else:
            self._pool.check()
            return False  # no arrow leads to before_provider, and only commit leads to committed
        with self._pool.write() as connection:
            slot = _gated(connection, submission_id, attempt_id, target)
            if slot is None:
                return False
            if key is not None and key != mint_stream_key(submission_id, slot.turn_id, attempt_id):
                raise InvalidArgument(f"stream_key {key!r} is not the key of turn {slot.turn_id!r} of this attempt")
            if checkpoint is not None:
                self._demand_known_leaf(connection, slot.session_key, checkpoint)
            connection.execute(
                "UPDATE slots SET phase = ?, stream_key = coalesce(?, stream_key), tool_request = ?,"
                " tool_request_digest = ?,"
                " checkpoint_leaf_id = coalesce(?, checkpoint_leaf_id), updated_at = ? WHERE submission_id = ?",
                (target.value, key, request, digest_of(request), checkpoint, moment, submission_id),
            )
        return True

    def mark_stream_consumed(
        self, submission_id: str, attempt_id: str, stream_key: str, *, now: int | None = None
    ) -> bool:
        """Stamp, once in a turn, that the stream was read to its end (J9)."""
        text("submission_id", submission_id)
        text("attempt_id", attempt_id)
        text("stream_key", stream_key)
        moment = self._time(now)
        with self._pool.statement() as connection:
            return (
                connection.execute(
                    "UPDATE slots AS t SET stream_consumed_at = ?, updated_at = ? "
                    + _GATED.removeprefix("t ")
                    + " AND phase = 'provider_started' AND stream_key = ? AND stream_consumed_at IS NULL",
                    (moment, moment, submission_id, attempt_id, stream_key),
                ).rowcount
                == 1
            )

    def commit_turn_journal(
        self, submission_id: str, attempt_id: str, committed_leaf_id: str | None = None, *, now: int | None = None
    ) -> bool:
        """Close the turn at the leaf where its output ends (J7); from then on the slot is frozen (J8).

        Raises ``InvalidArgument`` without a leaf, ``EntryNotFound`` and ``AnchorMismatch`` for a wrong one (A4).
        """
        text("submission_id", submission_id)
        text("attempt_id", attempt_id)
        leaf = optional_text("committed_leaf_id", committed_leaf_id)
        moment = self._time(now)
        if leaf is None:
            raise InvalidArgument("commit needs the committed_leaf_id")
        with self._pool.write() as connection:
            slot = _gated(connection, submission_id, attempt_id, Phase.COMMITTED)
            if slot is None:
                return False
            self._demand_sound_leaf(connection, slot.session_key, leaf, slot.checkpoint_leaf_id)
            connection.execute(
                "UPDATE slots SET phase = 'committed', committed_leaf_id = ?, updated_at = ? WHERE submission_id = ?",
                (leaf, moment, submission_id),
            )
        return True

    def get_turn_journal(self, submission_id: str, *, now: int | None = None) -> Slot[str] | None:
        """The slot, or ``None`` (J12)."""
        text("submission_id", submission_id)
        self._time(now)
        with self._pool.read() as connection:
            found = slots(connection, "WHERE submission_id = ?", (submission_id,))
        return found[0] if found else None

    # --- stream segments (S) ----------------------------------------------------------------------------------------

    def append_stream_segment(self, stream_key: str, segment_index: int, body: str, *, now: int | None = None) -> bool:
        """Insert a segment once; the first body wins, and nothing is kept for a deleted submission (S1, L10)."""
        text("stream_key", stream_key)
        natural("segment_index", segment_index)
        text("body", body)
        self._time(now)
        minted = split_stream_key(stream_key)
        with self._pool.statement() as connection:
            return (
                connection.execute(
                    "INSERT INTO segments (stream_key, segment_index, body, body_digest) SELECT ?, ?, ?, ?"
                    " WHERE NOT EXISTS (SELECT 1 FROM receipts WHERE submission_id = ?) ON CONFLICT DO NOTHING",
                    (stream_key, segment_index, body, digest_of(body), None if minted is None else minted[0]),
                ).rowcount
                == 1
            )

    def get_stream_segments(self, stream_key: str, *, now: int | None = None) -> list[Segment]:
        """The segments of a key in ascending index (S2)."""
        text("stream_key", stream_key)
        self._time(now)
        with self._pool.read() as connection:
            rows = connection.execute(
                "SELECT segment_index, body, body_digest FROM segments WHERE stream_key = ? ORDER BY segment_index",
                (stream_key,),
            ).fetchall()
            return [segment_of(stream_key, row) for row in rows]

    def delete_stream_segments(self, stream_key: str, *, now: int | None = None) -> None:
        """Remove all segments of a key (S6)."""
        text("stream_key", stream_key)
        self._time(now)
        with self._pool.statement() as connection:
            connection.execute("DELETE FROM segments WHERE stream_key = ?", (stream_key,))


def _phase_of(phase: str) -> Phase:
    try:
        return Phase(text("phase", phase))
    except ValueError:
        raise InvalidArgument(f"phase {phase[:80]!r} is none of {', '.join(Phase)}") from None


def _gated(connection: sqlite3.Connection, submission_id: str, attempt_id: str, target: Phase) -> Slot[str] | None:
    """The slot, if the slot gate lets this attempt move it to ``target``."""
    found = slots(connection, _GATED, (submission_id, attempt_id))
    return found[0] if found and found[0].phase in _FROM[target] else None
