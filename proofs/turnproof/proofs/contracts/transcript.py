"""Contracts of the transcript: the tree kernel, and the fold over small logs (A1, A2, A3, P5).

The tree is a tuple of parent indices, bounded here to four entries. The fold reads text ids, which CrossHair cannot
treat as opaque; there the ids are fixed and the *shape* of the log (who hangs where, what is excluded) is unknown, so
that every small log is gone through.
"""

from __future__ import annotations

from turnproof.model.rows import Record
from turnproof.model.transcript import ROOT, Transcript, ancestry, fold, hangs_below
from turnproof.model.vocabulary import RecordKind
from turnproof.proofs.contracts.registry import promises

BOUND = "trees of 4 entries"
IDS = ("", "e1", "e2", "e3", "e4")

Parents = tuple[int, int, int, int]


def tree(parents: Parents) -> bool:
    """The invariant: a parent is an earlier entry, or the root."""
    return all(ROOT <= parent < node for node, parent in enumerate(parents))


@promises("A2", bounds=BOUND)
def a2_a_path_goes_from_the_root_to_its_node_by_parent_links(b: int, c: int, d: int, node: int) -> tuple[int, ...]:
    r"""
    pre: tree((-1, b, c, d)) and -1 <= node <= 3
    post: linked((-1, b, c, d), node, __return__)
    """
    return ancestry((-1, b, c, d), node)


def linked(parents: Parents, node: int, path: tuple[int, ...]) -> bool:
    """Each entry is the child of the one before it, the first of the root; the last is the node."""
    before = (ROOT, *path)
    return before[-1] == node and all(parents[path[i]] == before[i] for i in range(len(path)))


@promises("A4", "P5", bounds=BOUND)
def p5_excluded_is_a_named_entry_or_one_below_it(b: int, c: int, d: int, node: int, named: int) -> bool:
    r"""
    pre: tree((-1, b, c, d)) and -1 <= node <= 3 and 0 <= named <= 3
    post: __return__ == (named in ancestry((-1, b, c, d), node))
    """
    return hangs_below((-1, b, c, d), node, frozenset({named}))


@promises("P5", bounds=BOUND)
def p5_a_child_of_an_excluded_entry_is_excluded(b: int, c: int, d: int, named: int) -> bool:
    r"""
    pre: tree((-1, b, c, d)) and 0 <= named <= 2
    post: __return__ or not hangs_below((-1, b, c, d), d, frozenset({named}))
    """
    return hangs_below((-1, b, c, d), 3, frozenset({named}))


# --- the fold over small logs ---------------------------------------------------------------------------------------


def entry(number: int, parent: int) -> Record:
    """The tree entry ``e<number>`` below ``e<parent>``, 0 for the root. It is no message: the fold does not look."""
    return Record(
        seq=number,
        run_id="r",
        kind=RecordKind.EXTENSION_DATA,
        timestamp=0,
        entry_id=IDS[number],
        parent_id=IDS[parent],
    )


def pointer(seq: int, kind: RecordKind, target: int, dropped: int = 0) -> Record:
    """A record that moves the leaf: a branch, a clear, or a repair that excludes one entry."""
    payload = f'{{"dropped_entry_ids":["{IDS[dropped]}"]}}' if kind is RecordKind.REPAIR else ""
    return Record(seq=seq, run_id="r", kind=kind, timestamp=0, parent_id=IDS[target], payload=payload)


def grown(second: int, third: int) -> tuple[Record, ...]:
    return entry(1, 0), entry(2, second), entry(3, third)


def leaf(transcript: Transcript) -> str:
    return transcript.id_of(transcript.leaf)


@promises("A1", bounds="logs of 3 entries")
def a1_a_stored_entry_becomes_the_leaf(second: int, third: int) -> Transcript:
    r"""
    pre: 0 <= second <= 1 and 0 <= third <= 2
    post: leaf(__return__) == "e3" and __return__.damage is None
    """
    return fold(grown(second, third))


@promises("A1", "A3", bounds="logs of 3 entries and a branch")
def a3_a_branch_selects_a_known_entry_or_the_root(second: int, third: int, target: int) -> Transcript:
    r"""
    pre: 0 <= second <= 1 and 0 <= third <= 2 and 0 <= target <= 3
    post: leaf(__return__) == IDS[target] and len(__return__.entries) == 3
    """
    return fold((*grown(second, third), pointer(4, RecordKind.BRANCH, target)))


@promises("A1", bounds="logs of 3 entries and a clear")
def a1_clear_selects_the_root_and_loses_nothing(second: int, third: int) -> Transcript:
    r"""
    pre: 0 <= second <= 1 and 0 <= third <= 2
    post: leaf(__return__) == "" and len(__return__.entries) == 3
    """
    return fold((*grown(second, third), pointer(4, RecordKind.CLEAR, 0)))


NEUTRAL = frozenset(RecordKind) - {
    RecordKind.MESSAGE,
    RecordKind.COMPACTION,
    RecordKind.EXTENSION_DATA,
    RecordKind.MODEL_CHANGE,
    RecordKind.BRANCH_SUMMARY,
    RecordKind.BRANCH,
    RecordKind.CLEAR,
    RecordKind.REPAIR,
}


@promises("A1", bounds="logs of 3 entries and a record")
def a1_no_other_record_moves_the_leaf_or_grows_the_tree(third: int, kind: RecordKind, target: int) -> Transcript:
    r"""
    pre: 0 <= third <= 2 and 0 <= target <= 3 and kind in NEUTRAL
    post: leaf(__return__) == "e3" and len(__return__.entries) == 3 and not __return__.named
    """
    return fold((*grown(1, third), pointer(4, kind, target)))


@promises("P5", "A1", bounds="logs of 3 entries, a repair and a late entry")
def p5_a_late_entry_below_an_excluded_one_never_moves_the_leaf(
    second: int, third: int, dropped: int, parent: int
) -> Transcript:
    r"""
    pre: 0 <= second <= 1 and 0 <= third <= 2 and 1 <= dropped <= 3 and 0 <= parent <= 3
    post: leaf(__return__) == ("" if __return__.excluded(3) else "e4")
    """
    return fold((*grown(second, third), pointer(4, RecordKind.REPAIR, 0, dropped), entry(4, parent)))


@promises("P5", "A3", bounds="logs of 3 entries, a repair and a branch")
def p5_a_branch_lifts_the_exclusion_of_its_path(second: int, third: int, dropped: int, target: int) -> Transcript:
    r"""
    pre: 0 <= second <= 1 and 0 <= third <= 2 and 1 <= dropped <= 3 and 0 <= target <= 3
    post: leaf(__return__) == IDS[target] and not __return__.excluded(__return__.leaf)
    """
    repair = pointer(4, RecordKind.REPAIR, 0, dropped)
    return fold((*grown(second, third), repair, pointer(5, RecordKind.BRANCH, target)))


@promises("A2", bounds="logs of 2 entries")
def a2_an_entry_below_an_unknown_one_or_stored_twice_is_damage(number: int, parent: int) -> Transcript:
    r"""
    pre: 1 <= number <= 3 and 0 <= parent <= 4
    post: (__return__.damage is None) == (number != 1 and parent <= 1)
    """
    return fold((entry(1, 0), entry(number, parent)))


@promises("A2", "A3", bounds="logs of 1 entry and a branch")
def a2_a_branch_to_an_unknown_entry_is_damage(target: int) -> Transcript:
    r"""
    pre: 0 <= target <= 4
    post: (__return__.damage is None) == (target <= 1)
    """
    return fold((entry(1, 0), pointer(2, RecordKind.BRANCH, target)))
