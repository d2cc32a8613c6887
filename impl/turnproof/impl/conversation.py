"""The conversation that a log holds: restore, inspect, context, leaf (A1-A3, A7, A8, P1-P7, P9).

Reading folds the whole log anew and verifies every digest on the way, in one read transaction; nothing that is kept in
memory takes part. ``restore`` first reads like ``inspect``. Only when a torn tail must be recorded does it take the
write lock and read again, so a whole conversation is restored without a write and without hindering a writer.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence

from attrs import define, evolve

from turnproof.impl import log
from turnproof.impl.checks import fence_of, run_name, text
from turnproof.impl.log import GENESIS, Head
from turnproof.impl.pairing import Request, examine, open_calls, pending_step
from turnproof.impl.records import Records, holds
from turnproof.impl.transcript import Damage, Transcript
from turnproof.model.payload import decode_compaction, decode_model_change, encode_repair, message_text
from turnproof.model.rows import Context, Draft, Fence, ModelChoice, Pending, Record, Repair, Restored
from turnproof.model.vocabulary import CorruptConversation, InvalidRecord, RecordKind

__all__ = ["Conversation", "context_of", "fold_all", "read"]


class Conversation(Records):
    """What a session's log says as a conversation."""

    def restore(self, run_id: str, *, fence: Fence | None = None, now: int | None = None) -> Restored | None:
        """The repaired conversation; a torn tail is recorded once, in the unit that found it (P4).

        ``None`` when the fence refused it. Raises ``RunNotFound``, ``CorruptConversation``, ``StorageDamaged``.
        """
        run_name("run_id", run_id)
        fence_of(fence)
        moment = self._time(now)
        with self._pool.snapshot() as connection:
            if not holds(connection, run_id, fence):
                return None
            restored = _read(connection, run_id).restored
        if restored.repair is None:
            return restored
        with self._pool.write() as connection:
            if not holds(connection, run_id, fence):
                return None
            reading = _read(connection, run_id)
            if reading.restored.repair is not None:
                log.add(connection, run_id, reading.head, [_repair_record(run_id, reading, moment)])
        return reading.restored

    def inspect(self, run_id: str, *, now: int | None = None) -> Restored:
        """The same answer as ``restore``, without writing (P7)."""
        run_name("run_id", run_id)
        self._time(now)
        with self._pool.snapshot() as connection:
            return _read(connection, run_id).restored

    def context(self, run_id: str, *, now: int | None = None) -> Context:
        """The newest summary on the active path and the entries from there on (A8).

        Raises ``RunNotFound``, ``CorruptConversation``, ``StorageDamaged``.
        """
        run_name("run_id", run_id)
        self._time(now)
        with self._pool.snapshot() as connection:
            reading = _read(connection, run_id)
        return context_of(reading.tree, reading.path)

    def set_leaf(self, run_id: str, entry_id: str, *, fence: Fence | None = None, now: int | None = None) -> int | None:
        """Select an entry, or the root (""), by a ``branch`` record; ``None`` when the fence refused it (A3).

        Raises ``RunNotFound``, ``EntryNotFound``.
        """
        run_name("run_id", run_id)
        branch = Draft(kind=RecordKind.BRANCH.value, parent_id=text("entry_id", entry_id))
        return self._point(run_id, branch, fence, now)

    def clear(self, run_id: str, *, fence: Fence | None = None, now: int | None = None) -> int | None:
        """Select the root by a ``clear`` record; the log stays. ``None`` when the fence refused it. ``RunNotFound``."""
        return self._point(run_id, Draft(kind=RecordKind.CLEAR.value), fence, now)

    def _point(self, run_id: str, draft: Draft, fence: Fence | None, now: int | None) -> int | None:
        seqs = self._append(run_id, [draft], fence, None, now, must_exist=True)
        return None if seqs is None else seqs[0]


@define
class Reading:
    """A log, folded and judged."""

    head: Head
    tree: Transcript
    path: Sequence[int]
    """The active path after repair, as entries of the tree."""
    restored: Restored


def _repair_record(run_id: str, reading: Reading, now: int) -> Record:
    dropped = reading.restored.repair.dropped_entry_ids if reading.restored.repair is not None else ()
    return Record(
        seq=reading.head.position + 1,
        run_id=run_id,
        kind=RecordKind.REPAIR,
        timestamp=now,
        parent_id=reading.restored.leaf,
        payload=encode_repair(dropped),
    )


def _read(connection: sqlite3.Connection, run_id: str) -> Reading:
    """Fold the log, verified, and judge its active path. Raises ``RunNotFound``, ``CorruptConversation``."""
    head = log.known_head(connection, run_id)
    records = (record for record, _ in log.walk(connection, run_id, head, 0, GENESIS))
    tree, texts = _fold(records)
    restored, path = read(tree, _request(connection, run_id))
    return Reading(head, tree, path, _with_messages(restored, tree, path, texts))


def _fold(records: Iterable[Record]) -> tuple[Transcript, dict[str, str]]:
    """The transcript of a whole log, and the payload text of each message by entry id (A7)."""
    tree = Transcript()
    texts: dict[str, str] = {}
    for record in records:
        tree.add(record)
        if record.kind is RecordKind.MESSAGE:
            texts.setdefault(record.entry_id, message_text(record.role, record.text, record.payload))
    return tree, texts


def _with_messages(restored: Restored, tree: Transcript, path: Sequence[int], texts: dict[str, str]) -> Restored:
    return evolve(
        restored, messages=tuple(texts[tree.ids[node]] for node in path if tree.kinds[node] is RecordKind.MESSAGE)
    )


def fold_all(records: Iterable[Record]) -> Restored:
    """What a log answers when no journal stands beside it. Raises ``CorruptConversation``."""
    tree, texts = _fold(records)
    restored, path = read(tree)
    return _with_messages(restored, tree, path, texts)


def _request(connection: sqlite3.Connection, run_id: str) -> Request | None:
    """The tool request that a counted slot holds for the session's running submission (P9)."""
    row: tuple[str, str, str, str] | None = connection.execute(
        "SELECT s.submission_id, t.turn_id, t.tool_request, t.checkpoint_leaf_id FROM submissions s JOIN slots t"
        " USING (submission_id) WHERE s.session_key = ? AND s.status <> 'settled' AND s.status = 'running'"
        " AND t.attempt_id = s.attempt_id AND t.phase = 'tool_request_recorded'",
        (run_id,),
    ).fetchone()
    return None if row is None else Request(*row)


def read(tree: Transcript, request: Request | None = None) -> tuple[Restored, list[int]]:
    """What a fold answers (without the message texts), and the path that it answers. Raises ``CorruptConversation``."""
    if tree.damage is not None:
        raise CorruptConversation(str(tree.damage))
    path = tree.path(tree.leaf)
    facts = [tree.facts[node] for node in path]
    for fact in facts:
        if isinstance(fact, Damage):
            raise CorruptConversation(str(fact))
    found = examine(facts)
    if found.corrupt is not None:
        node = path[found.corrupt]
        raise CorruptConversation(
            f"record {tree.seqs[node]}: entry {tree.ids[node]!r} holds a call without a result, or a result without its"
            " call, in the middle of history"
        )
    kept = pending_step(tree, request)
    repair = None
    if found.torn is not None and (kept is None or kept.assistant != path[found.torn.start]):
        repair = Repair(dropped_entry_ids=tuple(tree.ids[node] for node in path[found.torn.start :]))
        path = path[: found.torn.start]
    still_open = open_calls(request, kept) if request is not None and kept is not None else ()
    return (
        Restored(
            leaf=tree.ids[path[-1]] if path else "",
            path=tuple(tree.ids[node] for node in path),
            messages=(),
            model=_model(tree, path),
            repair=repair,
            pending=Pending(submission_id=request.submission_id, open_calls=still_open)
            if request is not None and still_open
            else None,
        ),
        path,
    )


def _model(tree: Transcript, path: Sequence[int]) -> ModelChoice | None:
    """The last model change on the path (A2)."""
    for node in reversed(path):
        if tree.kinds[node] is RecordKind.MODEL_CHANGE:
            try:
                return decode_model_change(tree.notes[node])
            except InvalidRecord as error:
                raise CorruptConversation(f"record {tree.seqs[node]}: {error.message}") from None
    return None


def context_of(tree: Transcript, path: Sequence[int]) -> Context:
    """The newest compaction's summary and the path from its first kept entry; the whole path without one (A8)."""
    ids = tuple(tree.ids[node] for node in path)
    for node in reversed(path):
        if tree.kinds[node] is RecordKind.COMPACTION:
            try:
                compaction = decode_compaction(tree.notes[node])
                return Context(summary=compaction.summary, entries=ids[ids.index(compaction.first_kept) :])
            except InvalidRecord as error:
                raise CorruptConversation(f"record {tree.seqs[node]}: {error.message}") from None
            except ValueError:
                raise CorruptConversation(
                    f"record {tree.seqs[node]}: the first kept entry is not on the active path"
                ) from None
    return Context(summary=None, entries=ids)
