"""A handle on one run for people who do not want to carry parents around.

    session = Session(store, "run1", fence=Fence(submission_id="s1", attempt_id="a1"))
    session.append(Draft(kind="message", payload=...))
    session.append_step([assistant, result, result])

A session mints entry ids, appends at the leaf, and keeps the transcript folded as far as it has seen it: before each
write it reads what was appended since, and it writes under ``expected_position``, so that whoever else writes to the
run can never slip between. When the store refuses because the run moved on, the session reads on and tries again with
the same ids. When it refuses because of the fence, the session answers ``None``: the attempt has been superseded.

It needs little of a store: ``append`` and ``replay``. With ``append_step`` a step is atomic; without it the records go
one by one in order, and the repair of a torn tail covers a crash between them (R16).
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from typing import Final, Protocol, runtime_checkable

from attrs import evolve, frozen

from turnproof.impl.conversation import context_of, fold_all, read
from turnproof.impl.transcript import ROOT, Transcript
from turnproof.model.payload import encode_repair
from turnproof.model.rows import Context, Draft, Fence, Record, Restored
from turnproof.model.vocabulary import TREE_KINDS, RecordKind, RunNotFound, StorageError

__all__ = ["Appended", "Journal", "Session", "StepJournal"]

_TREE_KINDS: Final = frozenset(kind.value for kind in TREE_KINDS)
_TRIES: Final = 1000


class Journal(Protocol):
    """The least that a store must offer."""

    def append(
        self, run_id: str, record: Draft, *, fence: Fence | None = None, expected_position: int | None = None
    ) -> int | None: ...

    def replay(self, run_id: str, after: int = 0) -> list[Record]: ...


@runtime_checkable
class StepJournal(Protocol):
    """A store with atomic steps (R3)."""

    def append_step(
        self, run_id: str, records: Sequence[Draft], *, fence: Fence | None = None, expected_position: int | None = None
    ) -> list[int] | None: ...


@runtime_checkable
class _Conversations(Protocol):
    """A store that reads conversations itself, and so knows what its journal says of an open step (P9)."""

    def restore(self, run_id: str, *, fence: Fence | None = None) -> Restored | None: ...

    def context(self, run_id: str) -> Context: ...


def _mint() -> str:
    return uuid.uuid4().hex


@frozen
class Appended:
    """Where a record went; ``entry_id`` is "" for one that is no entry."""

    seq: int
    entry_id: str


class _Superseded(Exception):
    """The fence fell between two records of a step that is not atomic."""


class Session:
    """One run. Not safe from several threads at once; several sessions on one run are."""

    def __init__(
        self, store: Journal, run_id: str, *, fence: Fence | None = None, mint: Callable[[], str] = _mint
    ) -> None:
        self.run_id: Final = run_id
        self._store = store
        self._fence = fence
        self._mint = mint
        self._tree = Transcript()
        self._last: Record | None = None

    @property
    def leaf(self) -> str:
        """The entry at which the next one is appended, "" for the root; reads what was appended since."""
        tree = self._advance()
        return tree.id_of(tree.leaf)

    @property
    def position(self) -> int:
        """The last seq of the run, 0 before its first record; reads what was appended since."""
        return self._advance().position

    def append(self, record: Draft) -> Appended | None:
        """Append one record, an entry at the leaf and under a new id unless it brings one.

        ``None`` when the fence refused it. Raises like ``Store.append``.
        """
        done = self.append_step([record])
        return None if done is None else done[0]

    def append_step(self, records: Sequence[Draft]) -> list[Appended] | None:
        """Append the records of a step in order, each entry below the one before it, or where a branch, clear or repair
        between the two points.

        ``None`` when the fence refused it. Raises like ``Store.append_step``.
        """
        named = [evolve(r, entry_id=self._mint()) if r.kind in _TREE_KINDS and not r.entry_id else r for r in records]
        for _ in range(_TRIES):
            tree = self._advance()
            position = tree.position
            placed = _below(tree, named)
            try:
                seqs = self._write(placed, position)
            except _Superseded:
                return None
            if seqs is not None:
                ids = (record.entry_id if record.kind in _TREE_KINDS else "" for record in placed)
                return [Appended(seq, entry_id) for seq, entry_id in zip(seqs, ids, strict=True)]
            if self._advance().position == position:
                return None  # nobody moved the run, so it was the fence
        raise StorageError(f"run {self.run_id!r}: others kept appending before this session could, {_TRIES} times")

    def branch(self, entry_id: str) -> int | None:
        """Select a stored entry, or the root (""), as the leaf; ``None`` when the fence refused it.

        The fence answers first (SPEC section 0), if the store has steps; without them it cannot be asked alone.
        Raises ``EntryNotFound``; ``RunNotFound`` for a run without records.
        """
        return self._point(Draft(kind=RecordKind.BRANCH.value, parent_id=entry_id))

    def clear(self) -> int | None:
        """Select the root: what was said leaves the context, the log stays. ``None`` when the fence refused it."""
        return self._point(Draft(kind=RecordKind.CLEAR.value))

    def context(self) -> Context:
        """The newest summary on the active path and the entries from there on (A8).

        Raises ``RunNotFound``, ``CorruptConversation``.
        """
        tree = self._known()
        restored, path = read(tree)
        if restored.repair is not None and isinstance(self._store, _Conversations):
            return self._store.context(self.run_id)  # the journal may hold this step (P9)
        return context_of(tree, path)

    def restore(self) -> Restored | None:
        """The conversation; a torn tail is repaired and recorded, once (P4). ``None`` when the fence refused it.

        Raises ``RunNotFound``, ``CorruptConversation``.
        """
        if isinstance(self._store, _Conversations):
            return self._store.restore(self.run_id, fence=self._fence)
        if self._fenced_out():
            return None
        for _ in range(_TRIES):
            records = self._store.replay(self.run_id)
            restored = fold_all(records)
            if restored.repair is None:
                return restored
            repair = Draft(
                kind=RecordKind.REPAIR.value,
                parent_id=restored.leaf,
                payload=encode_repair(restored.repair.dropped_entry_ids),
            )
            position = records[-1].seq
            if self._store.append(self.run_id, repair, fence=self._fence, expected_position=position) is not None:
                return restored
            if self._advance().position == position:
                return None
        raise StorageError(f"run {self.run_id!r}: others kept appending before the repair could be, {_TRIES} times")

    # --- shared -----------------------------------------------------------------------------------------------------

    def _point(self, draft: Draft) -> int | None:
        if not self.position and self._fenced_out():
            return None
        self._known()
        return self._store.append(self.run_id, draft, fence=self._fence)

    def _fenced_out(self) -> bool:
        """Whether the fence refuses, asked with a step of nothing (R3)."""
        return (
            isinstance(self._store, StepJournal) and self._store.append_step(self.run_id, [], fence=self._fence) is None
        )

    def _write(self, records: Sequence[Draft], position: int) -> list[int] | None:
        """One step at the position that this session knows, else nothing."""
        if isinstance(self._store, StepJournal):
            return self._store.append_step(self.run_id, records, fence=self._fence, expected_position=position)
        seqs: list[int] = []
        for record in records:
            expected = position if not seqs else None
            seq = self._store.append(self.run_id, record, fence=self._fence, expected_position=expected)
            if seq is None and seqs:
                raise _Superseded
            if seq is None:
                return None
            seqs.append(seq)
        return seqs

    def _known(self) -> Transcript:
        tree = self._advance()
        if not tree.position:
            raise RunNotFound(f"no run {self.run_id!r}")
        return tree

    def _advance(self) -> Transcript:
        """Feed what was appended since; begin anew when the run is no longer the one that was folded."""
        last = self._last
        try:
            news = self._store.replay(self.run_id, after=0 if last is None else last.seq - 1)
        except RunNotFound:
            self._tree, self._last = Transcript(), None
            return self._tree
        if last is not None:
            if not news or news[0] != last:
                self._tree, self._last = Transcript(), None
                return self._advance()
            del news[0]
        for record in news:
            self._tree.add(record)
            self._last = record
        return self._tree


def _below(tree: Transcript, records: Sequence[Draft]) -> list[Draft]:
    """The records of a step, each entry that names no parent at the leaf as the record before it leaves it (A1).

    An entry that is stored already keeps its parent: a retry after a lost answer is then an exact replay (R8).
    """
    placed = []
    leaf = tree.id_of(tree.leaf)
    for record in records:
        if record.kind in _TREE_KINDS:
            stored = tree.index.get(record.entry_id, ROOT)
            above = leaf if stored == ROOT else tree.id_of(tree.parents[stored])
            record = evolve(record, parent_id=record.parent_id or above)
            leaf = record.entry_id
        elif record.kind == RecordKind.CLEAR:
            leaf = ""
        elif record.kind in (RecordKind.BRANCH, RecordKind.REPAIR):
            leaf = record.parent_id
        placed.append(record)
    return placed
