"""Contracts of stream segments: insert-once, order, and what counts as captured (S)."""

from __future__ import annotations

from itertools import pairwise

from turnproof.model import stream
from turnproof.model.decision import Accept, Decision, Refuse
from turnproof.proofs.contracts.registry import accepted, promises

_IN_CONDITIONS = (
    Accept,
    Refuse,
)
"""Named in conditions only, and those stand in docstrings, where no linter looks."""

Stored = tuple[tuple[int, int], ...]
BOUND = "3 stored segments"


def stored(count: int, first: int, second: int, third: int) -> Stored:
    """Up to three segments under these indices; bodies are told apart by their index."""
    return tuple((index, 100 + index) for index in (first, second, third)[:count])


def ascending(segments: Stored) -> bool:
    """The invariant: indices are not negative, and rise."""
    return all(index >= 0 for index, _ in segments) and all(a[0] < b[0] for a, b in pairwise(segments))


def indices(segments: Stored) -> tuple[int, ...]:
    return tuple(index for index, _ in segments)


@promises("S1", bounds=BOUND)
def s1_a_segment_is_written_exactly_when_its_index_is_free(
    count: int, a: int, b: int, c: int, index: int, body: int
) -> Decision[Stored]:
    r"""
    pre: 0 <= count <= 3 and ascending(stored(count, a, b, c)) and index >= 0
    post: isinstance(__return__, Accept) == (index not in indices(stored(count, a, b, c)))
    """
    return stream.insert(stored(count, a, b, c), index, body)


@promises("S1", bounds=BOUND)
def s1_a_repeat_is_refused_whatever_its_body(
    count: int, a: int, b: int, c: int, index: int, body: int, other: int
) -> Decision[Stored]:
    r"""
    pre: 0 <= count <= 3 and ascending(stored(count, a, b, c)) and index >= 0
    pre: index not in indices(stored(count, a, b, c))
    post: isinstance(__return__, Refuse)
    """
    first = accepted(stream.insert(stored(count, a, b, c), index, body))
    return stream.insert(first or (), index, other)


@promises("S1", "S2", bounds=BOUND)
def s2_an_insert_keeps_the_order_and_every_segment_there_was(
    count: int, a: int, b: int, c: int, index: int, body: int
) -> Decision[Stored]:
    r"""
    pre: 0 <= count <= 3 and ascending(stored(count, a, b, c)) and index >= 0
    post: grown(stored(count, a, b, c), index, body, __return__)
    """
    return stream.insert(stored(count, a, b, c), index, body)


def grown(before: Stored, index: int, body: int, decision: Decision[Stored]) -> bool:
    """Nothing lost, nothing changed, exactly the one segment more, in ascending order."""
    after = accepted(decision)
    if after is None:
        return True
    return (
        ascending(after)
        and len(after) == len(before) + 1
        and (index, body) in after
        and all(segment in after for segment in before)
    )


@promises("S3", bounds=BOUND)
def s3_captured_is_the_longest_run_without_a_gap(count: int, a: int, b: int, c: int) -> tuple[int, ...]:
    r"""
    pre: 0 <= count <= 3 and ascending(stored(count, a, b, c))
    post: longest_run(stored(count, a, b, c), __return__)
    """
    return stream.captured(stored(count, a, b, c))


def longest_run(segments: Stored, bodies: tuple[int, ...]) -> bool:
    """The bodies are those of 0 to k, and there is no segment k+1."""
    length = len(bodies)
    return (
        all((index, body) in segments for index, body in enumerate(bodies))
        and length <= len(segments)
        and not any(index == length for index, _ in segments)
    )


@promises("S3", "S1", bounds=BOUND)
def s3_what_was_captured_stays_captured(
    count: int, a: int, b: int, c: int, index: int, body: int
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    r"""
    pre: 0 <= count <= 3 and ascending(stored(count, a, b, c)) and index >= 0
    post: __return__[1][:len(__return__[0])] == __return__[0]
    """
    before = stored(count, a, b, c)
    after = accepted(stream.insert(before, index, body))
    return stream.captured(before), stream.captured(before if after is None else after)
