"""The transcript, folded from the log one record at a time (A1, A2, P5).

A ``Transcript`` is fed records in ``seq`` order and knows the tree, the leaf and what is excluded. It keeps parents as
indices and, of a message, only roles and call ids, so that a long run stays small; it can be kept and fed what was
appended since. It goes on past damage (which only imports can bring): the first is noted, and whoever wants the
conversation gets ``corrupt_conversation``, while anchors and appends still find their entries.

Whether an entry is excluded is one byte an entry, inherited from the parent when it is stored, and worked out anew only
when a repair names entries or a branch lifts them. So storing an entry costs the same however long the run is.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, TypeAlias

from attrs import define, field, frozen

from turnproof.model.payload import Message, decode_message, decode_repair, message_text
from turnproof.model.rows import Record
from turnproof.model.vocabulary import TREE_KINDS, InvalidRecord, RecordKind

__all__ = ["ROOT", "Damage", "Fact", "Transcript"]

ROOT: Final = -1
"""Stands where an index is expected and there is no entry."""


@frozen
class Damage:
    """Why a log is no conversation, and the record that shows it."""

    reason: str
    seq: int

    def __str__(self) -> str:
        return f"record {self.seq}: {self.reason}"


Fact: TypeAlias = Message | Damage | None
"""What pairing needs of an entry: ``None`` for one that is no message, ``Damage`` for one that cannot be read."""


def _fact_of(record: Record) -> Fact:
    if record.kind is not RecordKind.MESSAGE:
        return None
    try:
        return decode_message(message_text(record.role, record.text, record.payload))
    except InvalidRecord as error:
        return Damage(error.message, record.seq)


@define
class Transcript:
    """The fold so far. Entries are numbered from 0 in the order in which they were stored."""

    ids: list[str] = field(factory=list)
    parents: list[int] = field(factory=list)
    kinds: list[RecordKind] = field(factory=list)
    seqs: list[int] = field(factory=list)
    facts: list[Fact] = field(factory=list)
    notes: dict[int, str] = field(factory=dict)
    """The payloads of compactions and model changes, by entry."""
    index: dict[str, int] = field(factory=dict)
    leaf: int = ROOT
    named: set[int] = field(factory=set)
    """Entries that a repair excluded and no branch lifted."""
    damage: Damage | None = None
    position: int = 0
    """The seq of the last record fed in."""
    digest: bytes = b""
    """The digest of that record: whether the log still is the one that was folded."""
    _excluded: bytearray = field(factory=bytearray)

    def add(self, record: Record) -> None:
        """Feed the next record."""
        kind = record.kind
        self.position = record.seq
        if kind in TREE_KINDS:
            self._grow(record)
        elif kind is RecordKind.BRANCH:
            self.leaf = self._find(record, record.parent_id, "the branch target")
            self._lift(self.leaf)
        elif kind is RecordKind.CLEAR:
            self.leaf = ROOT
        elif kind is RecordKind.REPAIR:
            self._repair(record)

    def _grow(self, record: Record) -> None:
        if not record.entry_id or record.entry_id in self.index:
            self._damaged(record, f"entry {record.entry_id!r} is stored twice" if record.entry_id else "no entry id")
            return
        node = len(self.ids)
        parent = self._find(record, record.parent_id, "the parent")
        self.index[record.entry_id] = node
        self.ids.append(record.entry_id)
        self.parents.append(parent)
        self.kinds.append(record.kind)
        self.seqs.append(record.seq)
        self.facts.append(_fact_of(record))
        self._excluded.append(self.excluded(parent))
        if record.kind in (RecordKind.COMPACTION, RecordKind.MODEL_CHANGE):
            self.notes[node] = record.payload
        if not self._excluded[node]:
            self.leaf = node

    def _repair(self, record: Record) -> None:
        try:
            dropped = decode_repair(record.payload)
        except InvalidRecord as error:
            self._damaged(record, error.message)
            return
        self.leaf = self._find(record, record.parent_id, "the repair's leaf")
        named = {self._find(record, entry_id, "the repaired entry") for entry_id in dropped} - {ROOT}
        self.named |= named
        if named:
            self._mark(min(named))

    def _lift(self, node: int) -> None:
        """A branch selects ``node``: nothing on its path stays excluded (P5)."""
        if self.excluded(node):
            lifted = self.named.intersection(self.path(node))
            self.named -= lifted
            self._mark(min(lifted))

    def _mark(self, start: int) -> None:
        """Work out anew what is excluded from entry ``start`` on; parents always come first."""
        for node in range(start, len(self.ids)):
            self._excluded[node] = node in self.named or self.excluded(self.parents[node])

    def _find(self, record: Record, entry_id: str, role: str) -> int:
        """The entry of that name; an unknown one is damage, and the root stands in for it."""
        node = self.index.get(entry_id, ROOT)
        if entry_id and node == ROOT:
            self._damaged(record, f"{role} {entry_id!r} is no earlier entry")
        return node

    def _damaged(self, record: Record, reason: str) -> None:
        if self.damage is None:
            self.damage = Damage(f"{record.kind.value}: {reason}", record.seq)

    # --- questions --------------------------------------------------------------------------------------------------

    def excluded(self, node: int) -> bool:
        """Named by a repair and not lifted, or below such an entry (A4)."""
        return node != ROOT and bool(self._excluded[node])

    def path(self, node: int) -> list[int]:
        """From the root down to ``node``, both ends included; empty for the root (A2)."""
        nodes: list[int] = []
        while node != ROOT:
            nodes.append(node)
            node = self.parents[node]
        nodes.reverse()
        return nodes

    def is_below(self, node: int, named: Iterable[int]) -> bool:
        """Whether ``node`` is one of ``named`` or below one."""
        wanted = frozenset(named)
        lowest = min(wanted, default=len(self.ids))
        while node >= lowest:  # parents come first: above the lowest there is none of them
            if node in wanted:
                return True
            node = self.parents[node]
        return False

    def id_of(self, node: int) -> str:
        """The entry id, "" for the root."""
        return "" if node == ROOT else self.ids[node]
