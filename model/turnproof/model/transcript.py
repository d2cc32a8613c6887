"""The transcript: a tree of entries and a leaf, folded from the log in ``seq`` order (A1-A3, A8).

The log is never rewritten; what changes is where the leaf is. A tree entry becomes the leaf when it is stored; a
``branch`` selects another; ``clear`` selects the root; a ``repair`` takes a torn step off the path and *excludes* its
entries. Excluded is excluded (P5): a result that comes late hangs below an excluded entry and is stored, but it never
moves the leaf. Only an explicit branch selects such an entry again, and thereby lifts the exclusion on its path.

The tree is a tuple of parent indices: entry ``i`` has its parent at ``parents[i] < i``, or ``ROOT``. Parents always
come first, so every walk to the root is bounded and no tree can hold a cycle.

A log that was appended through the rules folds without damage. An imported one may not: what cannot be folded is kept
as ``damage``, with its reason and seq, and every question about the conversation then answers
``corrupt_conversation``. Nothing is cut off in silence (A2).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Final

from attrs import field, frozen

from turnproof.model.choices import STRICT, Choices
from turnproof.model.payload import Message, decode_message, decode_repair, message_text
from turnproof.model.rows import Record
from turnproof.model.vocabulary import TREE_KINDS, InvalidRecord, RecordKind

__all__ = ["ROOT", "Damage", "Transcript", "ancestry", "fold", "hangs_below", "message_of"]

ROOT: Final = -1
"""The index of the root: no entry."""


@frozen
class Damage:
    """Why a log cannot be read as a conversation, and the record that shows it."""

    reason: str
    seq: int

    def __str__(self) -> str:
        return f"record {self.seq}: {self.reason}"


def ancestry(parents: Sequence[int], node: int) -> tuple[int, ...]:
    """The path from the root down to ``node``, both ends included; empty for the root (A2)."""
    path: list[int] = []
    while node >= 0:
        path.append(node)
        node = parents[node]
    return tuple(reversed(path))


def hangs_below(parents: Sequence[int], node: int, named: frozenset[int]) -> bool:
    """Whether ``node`` is one of ``named`` or below one of them."""
    while node >= 0:
        if node in named:
            return True
        node = parents[node]
    return False


@frozen
class Transcript:
    """The tree, the leaf, and what is excluded."""

    entries: tuple[Record, ...] = ()
    parents: tuple[int, ...] = ()
    leaf: int = ROOT
    named: frozenset[int] = frozenset()
    """Entries that a repair excluded and no branch lifted."""
    damage: Damage | None = None
    index: Mapping[str, int] = field(factory=dict, eq=False)
    """The position of each entry id in ``entries``."""

    def path(self) -> tuple[int, ...]:
        """The active path, root to leaf."""
        return ancestry(self.parents, self.leaf)

    def path_to(self, entry_id: str) -> tuple[int, ...]:
        """The path down to a known entry, or to the root ("")."""
        return ancestry(self.parents, self.index[entry_id]) if entry_id else ()

    def excluded(self, node: int) -> bool:
        """Named by a repair and not lifted, or below such an entry (A4)."""
        return hangs_below(self.parents, node, self.named)

    def id_of(self, node: int) -> str:
        return "" if node == ROOT else self.entries[node].entry_id


class _Fold:
    """The fold in progress. It goes on past damage, so that a damaged log can still be examined."""

    def __init__(self, choices: Choices) -> None:
        self.entries: list[Record] = []
        self.parents: list[int] = []
        self.index: dict[str, int] = {}
        self.leaf = ROOT
        self.named: frozenset[int] = frozenset()
        self.damage: Damage | None = None
        self.replaces = choices.entry_replay == "last_wins"
        self.repairs = choices.repair_record == "applied"

    def add(self, record: Record) -> None:
        if record.kind in TREE_KINDS:
            self._grow(record)
        elif record.kind is RecordKind.BRANCH:
            self._branch(record)
        elif record.kind is RecordKind.CLEAR:
            self.leaf = ROOT
        elif record.kind is RecordKind.REPAIR and self.repairs:
            self._repair(record)

    def _damaged(self, record: Record, reason: str) -> None:
        self.damage = self.damage or Damage(reason, record.seq)

    def _find(self, record: Record, entry_id: str, role: str) -> int:
        """The index of a named entry; an unknown one is damage, and the root stands in for it."""
        if entry_id and entry_id not in self.index:
            self._damaged(record, f"{role} {entry_id!r} is no earlier entry")
        return self.index.get(entry_id, ROOT)

    def _grow(self, record: Record) -> None:
        if not record.entry_id:
            self._damaged(record, f"a {record.kind.value} without an entry id")
            return
        if record.entry_id in self.index and not self.replaces:
            self._damaged(record, f"entry {record.entry_id!r} is stored twice")
            return
        parent = self._find(record, record.parent_id, "the parent")
        self.entries.append(record)
        self.parents.append(parent)
        self.index[record.entry_id] = len(self.entries) - 1
        if not hangs_below(self.parents, parent, self.named):
            self.leaf = len(self.entries) - 1

    def _branch(self, record: Record) -> None:
        self.leaf = self._find(record, record.parent_id, "the branch target")
        node = self.leaf
        while node >= 0 and self.named:
            self.named -= {node}
            node = self.parents[node]

    def _repair(self, record: Record) -> None:
        try:
            dropped = decode_repair(record.payload)
        except InvalidRecord as error:
            self._damaged(record, error.message)
            return
        self.leaf = self._find(record, record.parent_id, "the repair's leaf")
        nodes = {self._find(record, entry_id, "the repaired entry") for entry_id in dropped}
        self.named |= nodes - {ROOT}


@lru_cache(256)
def fold(records: tuple[Record, ...], choices: Choices = STRICT) -> Transcript:
    """The transcript that a log holds (A1)."""
    state = _Fold(choices)
    for record in records:
        state.add(record)
    return Transcript(
        entries=tuple(state.entries),
        parents=tuple(state.parents),
        leaf=state.leaf,
        named=state.named,
        damage=state.damage,
        index=state.index,
    )


def message_of(record: Record) -> Message | Damage | None:
    """What the rules need of a message entry; ``None`` for an entry that is no message (A7)."""
    if record.kind is not RecordKind.MESSAGE:
        return None
    try:
        return decode_message(message_text(record.role, record.text, record.payload))
    except InvalidRecord as error:
        return Damage(error.message, record.seq)
