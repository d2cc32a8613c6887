"""The record log: append, step, state, replay (R1-R8, R11, R14).

The order of checks is SPEC section 0's: run id, shape, then inside the transaction the fence, the exact replay, the
expected position, conflict, parents. An ordinary entry is placed with three lookups whatever the run's length; only a
compaction and a raw repair, which speak of a whole path, need the fold.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from typing import Final

from attrs import evolve

from turnproof.impl import log
from turnproof.impl.anchors import Anchors
from turnproof.impl.base import exists
from turnproof.impl.checks import fence_of, natural, optional_integer, optional_text, run_name
from turnproof.impl.drafts import content_of, is_entry, record_from
from turnproof.impl.log import Head
from turnproof.impl.pairing import compaction_problem, repair_problem
from turnproof.impl.transcript import Transcript
from turnproof.model.payload import decode_repair
from turnproof.model.rows import Draft, Fence, Record
from turnproof.model.vocabulary import (
    RESERVED_PREFIX,
    EntryConflict,
    EntryNotFound,
    InvalidArgument,
    InvalidRecord,
    RecordKind,
    RunState,
)

__all__ = ["Records"]

_NEEDS_FOLD: Final = frozenset({RecordKind.COMPACTION, RecordKind.REPAIR})
_CHUNK: Final = 500
"""Records that ``stream`` reads at once."""


class Records(Anchors):
    """Runs and their records."""

    def append(
        self,
        run_id: str,
        record: Draft,
        *,
        fence: Fence | None = None,
        expected_position: int | None = None,
        now: int | None = None,
    ) -> int | None:
        """Store one record; answers its seq, or ``None`` when a guard refused it (R1, R11).

        An exact replay of a stored entry answers the seq that it has (R8). Raises ``InvalidRunId``,
        ``InvalidArgument``, ``InvalidRecord``, ``EntryConflict``, ``EntryNotFound``.
        """
        seqs = self._append(run_id, (record,), fence, expected_position, now)
        return None if seqs is None else seqs[0]

    def append_step(
        self,
        run_id: str,
        records: Sequence[Draft],
        *,
        fence: Fence | None = None,
        expected_position: int | None = None,
        now: int | None = None,
    ) -> list[int] | None:
        """Store records of one step, all or none; answers their seqs in input order (R3). Raises like ``append``."""
        if isinstance(records, str) or not isinstance(records, Sequence):
            raise InvalidArgument("records must be a list of Drafts")
        return self._append(run_id, records, fence, expected_position, now)

    def checkpoint(self, run_id: str, state: str, *, fence: Fence | None = None, now: int | None = None) -> int | None:
        """Move the run's state by a ``state`` record (R4). Raises like ``append``."""
        return self.append(run_id, Draft(kind=RecordKind.STATE.value, state=state), fence=fence, now=now)

    def replay(self, run_id: str, after: int = 0, *, now: int | None = None) -> list[Record]:
        """The records after seq ``after``, each verified (R5, R14). Raises ``RunNotFound``, ``StorageDamaged``."""
        _check_reading(run_id, after)
        self._time(now)
        with self._pool.snapshot() as connection:
            head = log.known_head(connection, run_id)
            seq, digest = log.digest_at(connection, run_id, min(after, head.position))
            return [record for record, _ in log.walk(connection, run_id, head, seq, digest)]

    def stream(self, run_id: str, after: int = 0) -> Iterator[Record]:
        """Like ``replay``, a few hundred records at a time, up to where the run was at the first.

        No transaction is held between two records, so a slow reader hinders nobody.
        """
        _check_reading(run_id, after)
        with self._pool.snapshot() as connection:
            head = log.known_head(connection, run_id)
            seq, digest = log.digest_at(connection, run_id, min(after, head.position))
        while seq < head.position:
            with self._pool.snapshot() as connection:
                log.known_head(connection, run_id)
                chunk = list(log.walk(connection, run_id, head, seq, digest, _CHUNK))
            for record, _ in chunk:
                yield record
            seq, digest = chunk[-1][0].seq, chunk[-1][1]

    def state(self, run_id: str, *, now: int | None = None) -> RunState:
        """The run's state (R4). Raises ``RunNotFound``."""
        run_name("run_id", run_id)
        self._time(now)
        with self._pool.read() as connection:
            return log.known_head(connection, run_id).state

    def runs(self, state: str | None = None, include_reserved: bool = True, *, now: int | None = None) -> list[str]:
        """Run ids, sorted; only those in ``state`` unless it is "" or absent, without ``bonnie.`` ones on request.

        Every run's row is verified, since each counts for who is listed and who is not (R5, R6, X4). Raises
        ``InvalidArgument``, ``StorageDamaged``.
        """
        wanted = optional_text("state", state)
        if wanted is not None and wanted not in tuple(RunState):
            raise InvalidArgument(f"state {wanted[:80]!r} is none of {', '.join(RunState)}")
        if not isinstance(include_reserved, bool):
            raise InvalidArgument("include_reserved must be true or false")
        self._time(now)
        with self._pool.snapshot() as connection:
            heads = log.heads(connection)
        return [
            run_id
            for run_id, head in heads.items()
            if wanted in (None, head.state) and (include_reserved or not run_id.startswith(RESERVED_PREFIX))
        ]

    def position(self, run_id: str, *, now: int | None = None) -> int:
        """The last seq, 0 for an unknown run (R1, R5)."""
        run_name("run_id", run_id)
        self._time(now)
        with self._pool.read() as connection:
            head = log.head_of(connection, run_id)
        return 0 if head is None else head.position

    # --- one write --------------------------------------------------------------------------------------------------

    def _append(
        self,
        run_id: str,
        drafts: Sequence[Draft],
        fence: Fence | None,
        expected_position: int | None,
        now: int | None,
        *,
        must_exist: bool = False,
    ) -> list[int] | None:
        run_name("run_id", run_id)
        fence_of(fence)
        optional_integer("expected_position", expected_position)
        moment = self._time(now)
        records = [record_from(draft, run_id, 0, moment) for draft in drafts]
        tree: Transcript | None = None
        with self._pool.write() as connection:
            if not holds(connection, run_id, fence):
                return None
            head = log.known_head(connection, run_id) if must_exist else log.head_of(connection, run_id) or Head()
            if not records:
                return []
            entries = _stored_entries(connection, run_id, records)
            seqs = _replayed(connection, run_id, records, entries)
            if seqs is not None:
                return seqs
            if expected_position is not None and expected_position != head.position:
                return None
            _refuse_conflict(run_id, records, entries)
            records = [evolve(record, seq=head.position + 1 + i) for i, record in enumerate(records)]
            if any(record.kind in _NEEDS_FOLD for record in records):
                tree = self._fold(connection, run_id, head)
                _demand_place_in_fold(tree, records)
            else:
                _demand_parents(connection, run_id, records)
            head = log.add(connection, run_id, head, records)
        if tree is not None:
            tree.digest = head.digest
            self._keep(run_id, tree)
        return [record.seq for record in records]


def _check_reading(run_id: str, after: int) -> None:
    run_name("run_id", run_id)
    natural("after", after)


def holds(connection: sqlite3.Connection, run_id: str, fence: Fence | None) -> bool:
    """Whether there is no fence, or its attempt owns its submission and the submission's session is this run (R11)."""
    return fence is None or exists(
        connection,
        "SELECT 1 FROM submissions WHERE submission_id = ? AND status = 'running' AND attempt_id = ?"
        " AND session_key = ?",
        (fence.submission_id, fence.attempt_id, run_id),
    )


def _stored_entries(connection: sqlite3.Connection, run_id: str, records: Sequence[Record]) -> dict[str, Record]:
    """The stored entries that carry an id of these records."""
    ids = {record.entry_id for record in records if is_entry(record)}
    found = ((entry_id, log.stored_entry(connection, run_id, entry_id)) for entry_id in ids)
    return {entry_id: record for entry_id, record in found if record is not None}


def _replayed(
    connection: sqlite3.Connection, run_id: str, records: Sequence[Record], entries: dict[str, Record]
) -> list[int] | None:
    """The seqs of a step that is stored whole already, else ``None`` (R8).

    An entry is recognised by its id; a record without one must be equal and stand where it stood in the step.
    """
    ids = [record.entry_id for record in records if is_entry(record)]
    if not ids or len(set(ids)) < len(ids) or len(entries) < len(ids):
        return None
    first = next(i for i, record in enumerate(records) if is_entry(record))
    start = entries[records[first].entry_id].seq - first
    seqs: list[int] = []
    for i, record in enumerate(records):
        found = entries[record.entry_id] if is_entry(record) else log.stored_at(connection, run_id, start + i)
        if found is None or content_of(found) != content_of(record):
            return None
        seqs.append(found.seq)
    return seqs


def _refuse_conflict(run_id: str, records: Sequence[Record], entries: dict[str, Record]) -> None:
    seen = set(entries)
    for record in records:
        if is_entry(record):
            if record.entry_id in seen:
                raise EntryConflict(
                    f"entry {record.entry_id!r} of run {run_id!r} is stored already, with other content or as a part of"
                    " another step, or it is named twice"
                )
            seen.add(record.entry_id)


def _demand_parents(connection: sqlite3.Connection, run_id: str, records: Sequence[Record]) -> None:
    """Parents and branch targets are stored, or earlier in this step (R8, A3)."""
    known = {""}
    for record in records:
        if (is_entry(record) or record.kind is RecordKind.BRANCH) and record.parent_id not in known:
            if not log.has_entry(connection, run_id, record.parent_id):
                raise _unknown(run_id, record.parent_id)
            known.add(record.parent_id)
        if is_entry(record):
            known.add(record.entry_id)


def _demand_place_in_fold(tree: Transcript, records: Sequence[Record]) -> None:
    """The same by the fold, which is fed the records as it goes (A1, A8)."""
    for record in records:
        if record.kind is RecordKind.REPAIR:
            problem = repair_problem(tree, record.parent_id, decode_repair(record.payload))
            if problem is not None:
                raise EntryNotFound(problem)
        elif is_entry(record) or record.kind is RecordKind.BRANCH:
            if record.parent_id and record.parent_id not in tree.index:
                raise _unknown(record.run_id, record.parent_id)
            problem = compaction_problem(tree, record) if record.kind is RecordKind.COMPACTION else None
            if problem is not None:
                raise InvalidRecord(problem)
        tree.add(record)


def _unknown(run_id: str, entry_id: str) -> EntryNotFound:
    return EntryNotFound(f"entry {entry_id!r} is not stored in run {run_id!r}")
