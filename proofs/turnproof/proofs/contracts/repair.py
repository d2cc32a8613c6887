"""Contracts of tail repair: what ``model.repair.examine`` does about a path (P).

An entry is a sort, at most one call and one result with unknown ids; a step with two calls is built where the
promise is about siblings. What a sound path is, is written out a second time here (``sound``), as one pass with one
list of open calls, so that the contracts compare two formulations.
"""

from __future__ import annotations

from collections.abc import Sequence

from turnproof.model.repair import Finding, Item, Sort, Step, Verdict, examine, split_into_steps
from turnproof.proofs.contracts.registry import promises

THREE = "paths of 3 entries, 1 call and 1 result each"
TWO = "paths of 2 entries, 1 call and 1 result each"
SIBLINGS = "one step of 2 calls, 2 results"

Path = Sequence[Item[int]]


def sound(path: Path) -> bool:
    """Every call is answered exactly once in the block right after it, and there is no other call or result."""
    awaited: tuple[int, ...] = ()
    in_block = False
    for item in path:
        if item.sort is Sort.OTHER:
            continue
        if item.sort is Sort.TOOL and in_block:
            for result in item.results:
                if result not in awaited:
                    return False
                awaited = tuple(call for call in awaited if call != result)
            if item.calls:
                return False
            continue
        if awaited or item.results or (item.calls and item.sort is not Sort.ASSISTANT):
            return False
        in_block = item.sort is Sort.ASSISTANT and bool(item.calls)
        awaited = item.calls
    return not awaited


def verdict(finding: Finding) -> Verdict:
    return finding.row.verdict


def assistant(*calls: int) -> Item[int]:
    return Item(Sort.ASSISTANT, calls)


def tool(*results: int) -> Item[int]:
    return Item(Sort.TOOL, (), results)


# --- any path -------------------------------------------------------------------------------------------------------


@promises("P1", "P6", "P2", "P3", bounds=THREE)
def p6_exactly_the_sound_path_is_left_alone(a: Item[int], b: Item[int], c: Item[int]) -> Finding:
    r"""
    post: (verdict(__return__) is Verdict.KEEP) == sound((a, b, c))
    """
    return examine((a, b, c))


@promises("P6", "P2", bounds=THREE)
def p6_a_cut_leaves_a_sound_prefix(a: Item[int], b: Item[int], c: Item[int]) -> Finding:
    r"""
    post: verdict(__return__) is not Verdict.CUT or sound((a, b, c)[:__return__.at])
    """
    return examine((a, b, c))


@promises("P6", "C1", bounds=TWO)
def p6_repairing_again_changes_nothing(a: Item[int], b: Item[int]) -> Finding:
    r"""
    post: verdict(__return__) is Verdict.KEEP
    """
    first = examine((a, b))
    return examine((a, b)[: first.at]) if verdict(first) is Verdict.CUT else examine(())


@promises("P2", bounds=TWO)
def p2_only_a_last_step_with_an_open_call_is_cut(a: Item[int], b: Item[int]) -> Finding:
    r"""
    post: verdict(__return__) is not Verdict.CUT or torn((a, b), __return__.at)
    """
    return examine((a, b))


def torn(path: Path, at: int) -> bool:
    """An assistant message with calls, then its block and no message of another sort."""
    tail = path[at + 1 :]
    return (
        path[at].sort is Sort.ASSISTANT
        and bool(path[at].calls)
        and all(item.sort in (Sort.TOOL, Sort.OTHER) for item in tail)
        and not sound(path[at:])
    )


@promises("P9", "P2", bounds=TWO)
def p9_a_recorded_step_is_kept_where_it_would_be_cut_and_nothing_else_changes(
    a: Item[int], b: Item[int], recorded: int
) -> tuple[Finding, Finding]:
    r"""
    pre: 0 <= recorded <= 1
    post: kept_open(__return__, recorded)
    """
    return examine((a, b)), examine((a, b), recorded)


def kept_open(findings: tuple[Finding, Finding], recorded: int) -> bool:
    without, with_journal = findings
    if verdict(without) is Verdict.CUT and without.at == recorded:
        return verdict(with_journal) is Verdict.CLOSE and with_journal.at == recorded
    return with_journal == without


# --- steps ----------------------------------------------------------------------------------------------------------


@promises("P1", "P2", "P6", bounds=SIBLINGS)
def p2_a_step_with_one_answer_missing_goes_whole(x: int, y: int, answer: int) -> Finding:
    r"""
    pre: x != y
    post: verdict(__return__) is (Verdict.CUT if answer in (x, y) else Verdict.CORRUPT)
    post: verdict(__return__) is not Verdict.CUT or __return__.at == 1
    """
    return examine((Item(Sort.MESSAGE), assistant(x, y), tool(answer)))


@promises("P1", "P3", bounds=SIBLINGS)
def p1_a_step_is_complete_when_each_call_is_answered_exactly_once(x: int, y: int, one: int, other: int) -> Finding:
    r"""
    pre: x != y
    post: (verdict(__return__) is Verdict.KEEP) == ((one, other) in ((x, y), (y, x)))
    """
    return examine((assistant(x, y), tool(one), tool(other)))


@promises("P1", bounds="two steps of 1 call")
def p1_a_reused_call_id_does_not_answer_for_another_step(x: int, y: int, answer: int) -> Finding:
    r"""
    post: (verdict(__return__) is Verdict.KEEP) == (answer == y)
    """
    return examine((assistant(x), tool(x), assistant(y), tool(answer)))


@promises("P2", "P6", bounds="two steps of 1 call")
def p6_a_complete_step_is_never_dropped(x: int, y: int) -> Finding:
    r"""
    post: verdict(__return__) is Verdict.CUT and __return__.at == 2
    """
    return examine((assistant(x), tool(x), assistant(y)))


@promises("P3", bounds="one step of 1 call and a message")
def p3_a_hole_in_the_middle_is_corruption(x: int, sort: Sort, y: int | None) -> Finding:
    r"""
    pre: sort in (Sort.ASSISTANT, Sort.MESSAGE)
    pre: sort is Sort.ASSISTANT or y is None
    post: verdict(__return__) is Verdict.CORRUPT and __return__.at == 0
    """
    return examine((assistant(x), Item(sort, () if y is None else (y,))))


@promises("P3", bounds="one step of 1 call")
def p3_a_second_result_for_one_call_is_corruption(x: int, between: bool) -> Finding:
    r"""
    post: verdict(__return__) is Verdict.CORRUPT
    """
    twice = (tool(x), tool(x)) if between else (tool(x, x),)
    return examine((assistant(x), *twice))


@promises("P3", bounds="paths of 2 entries")
def p3_a_result_without_its_call_is_corruption(a: Item[int], answer: int) -> Finding:
    r"""
    pre: answer not in a.calls
    post: verdict(__return__) is Verdict.CORRUPT
    """
    return examine((a, tool(answer)))


@promises("P1", "P6", bounds="one step of 1 call and an entry that is no message")
def p1_an_entry_that_is_no_message_does_not_break_a_block(x: int, where: int) -> Finding:
    r"""
    pre: 0 <= where <= 2
    post: verdict(__return__) is Verdict.KEEP
    """
    path = (assistant(x), tool(x))
    return examine((*path[:where], Item(Sort.OTHER), *path[where:]))


@promises("P9", "P8", bounds=SIBLINGS)
def p9_the_recorded_step_stays_with_its_answered_siblings(x: int, y: int, first: bool) -> Finding:
    r"""
    pre: x != y
    post: verdict(__return__) is Verdict.CLOSE and __return__.at == 0
    """
    return examine((assistant(x, y), tool(x if first else y)), 0)


@promises("P8", "P1", bounds=SIBLINGS)
def p8_open_calls_are_those_without_an_answer_in_request_order(
    x: int, y: int, answer: int
) -> tuple[tuple[Step[int], ...], tuple[int, ...]]:
    r"""
    pre: x != y and answer in (x, y)
    post: __return__[0][0].open == ((y,) if answer == x else (x,)) and __return__[1] == ()
    """
    return split_into_steps((assistant(x, y), tool(answer)))


@promises("P8", "P6", bounds=SIBLINGS)
def p8_closing_what_is_open_makes_the_path_sound(x: int, y: int, answered: int) -> Finding:
    r"""
    pre: x != y and 0 <= answered <= 2
    post: verdict(__return__) is Verdict.KEEP
    """
    path = (assistant(x, y), *(tool(call) for call in (x, y)[:answered]))
    closing = split_into_steps(path)[0][0].open
    return examine((*path, *(tool(call) for call in closing)))
