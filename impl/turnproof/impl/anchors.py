"""What the transcript says of a leaf that the journal is to name (A4), without reading a long run again each time.

A store keeps the folds of a few recent runs and feeds them what was appended since, inside the transaction that asks. A
kept fold is only used while the record that it ends with still carries the digest that it had (R14): a run that was
deleted and begun anew is folded anew.
"""

from __future__ import annotations

import sqlite3
import threading
from typing import Final

from turnproof.impl.base import Base, Clock
from turnproof.impl.connection import Pool
from turnproof.impl.log import GENESIS, Head, digest_at, head_of, walk
from turnproof.impl.pairing import soundness
from turnproof.impl.transcript import ROOT, Transcript
from turnproof.model.vocabulary import AnchorMismatch, EntryNotFound

__all__ = ["Anchors"]

KEPT_ENTRIES: Final = 65_536
"""Entries kept in all folds together; the most recent fold is kept whatever its size."""


class Anchors(Base):
    """Folds of runs, kept and brought up to date."""

    def __init__(self, pool: Pool, clock: Clock) -> None:
        super().__init__(pool, clock)
        self._folds: dict[str, Transcript] = {}
        self._folds_lock = threading.Lock()

    def _fold(self, connection: sqlite3.Connection, run_id: str, head: Head) -> Transcript:
        """The fold of the whole run. The caller gives it back with ``_keep`` once it holds only committed records."""
        with self._folds_lock:
            tree = self._folds.pop(run_id, None)
        if tree is None or digest_at(connection, run_id, tree.position) != (tree.position, tree.digest):
            tree = Transcript(digest=GENESIS)
        for record, digest in walk(connection, run_id, head, tree.position, tree.digest):
            tree.add(record)
            tree.digest = digest
        return tree

    def _keep(self, run_id: str, tree: Transcript) -> None:
        with self._folds_lock:
            self._folds[run_id] = tree
            total = sum(len(fold.ids) for fold in self._folds.values())
            while total > KEPT_ENTRIES and len(self._folds) > 1:
                oldest = next(iter(self._folds))
                total -= len(self._folds.pop(oldest).ids)

    def _demand_known_leaf(self, connection: sqlite3.Connection, run_id: str, entry_id: str) -> None:
        """Raises ``EntryNotFound`` unless the entry is stored and not excluded."""
        _, tree = self._leaf(connection, run_id, entry_id)
        self._keep(run_id, tree)

    def _demand_sound_leaf(
        self, connection: sqlite3.Connection, run_id: str, entry_id: str, checkpoint: str | None
    ) -> None:
        """Raises ``EntryNotFound``, or ``AnchorMismatch`` for a leaf that must not be committed."""
        leaf, tree = self._leaf(connection, run_id, entry_id)
        problem = soundness(tree, leaf, checkpoint)
        self._keep(run_id, tree)
        if problem is not None:
            raise AnchorMismatch(f"entry {entry_id!r} cannot be committed: {problem}")

    def _leaf(self, connection: sqlite3.Connection, run_id: str, entry_id: str) -> tuple[int, Transcript]:
        head = head_of(connection, run_id)
        if head is None:
            raise EntryNotFound(f"entry {entry_id!r}: session {run_id!r} has no transcript")
        tree = self._fold(connection, run_id, head)
        leaf = tree.index.get(entry_id, ROOT)
        if leaf == ROOT or tree.excluded(leaf):
            self._keep(run_id, tree)
            raise EntryNotFound(f"entry {entry_id!r} is not stored in run {run_id!r}, or a repair excluded it")
        return leaf, tree
