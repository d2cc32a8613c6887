"""Stream segments: what the provider said, written once and never over (S1-S6).

A segment is keyed by its stream and its index. The first body wins: a replay of the same write, or a second writer, is
refused and changes nothing, so that what was shown to a person stays what is stored. Segments may arrive out of order;
only the run 0, 1, ..., k without a gap was *captured* and may be replayed (S3).
"""

from __future__ import annotations

from typing import TypeVar

from turnproof.model.decision import Accept, Decision, Refuse

__all__ = ["captured", "insert"]

Body = TypeVar("Body")


def insert(segments: tuple[tuple[int, Body], ...], index: int, body: Body) -> Decision[tuple[tuple[int, Body], ...]]:
    """``segments`` (in ascending index) with one more, or a refusal when the index is taken (S1, S2)."""
    before = tuple(s for s in segments if s[0] < index)
    rest = segments[len(before) :]
    if rest and rest[0][0] == index:
        return Refuse("S1")
    return Accept((*before, (index, body), *rest), "S1 S2")


def captured(segments: tuple[tuple[int, Body], ...]) -> tuple[Body, ...]:
    """The bodies of the longest run 0, 1, ..., k without a gap (S3)."""
    bodies: list[Body] = []
    for index, body in segments:
        if index != len(bodies):
            break
        bodies.append(body)
    return tuple(bodies)
