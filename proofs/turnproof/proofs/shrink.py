"""The shortest history that still shows a divergence.

Hypothesis shrinks the bytes that a history was made of; here the operations themselves are made fewer and plainer, on a
fresh store each time. Deterministic, and it only ever keeps what still breaks a promise.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, TypeAlias

import attrs

from turnproof.model.operations import AppendStep, Operation
from turnproof.proofs.history import Divergence, Move

__all__ = ["minimise"]

Player: TypeAlias = Callable[[Sequence[Move], bool], Divergence | None]
"""Plays moves on a fresh store; thoroughly: comparing everything after each, which is slower and exact."""

_THOROUGH: Final = 12
"""Histories of at most so many moves are compared thoroughly while they are made shorter."""

_IDS: Final = ("submission_id", "run_id", "session_key", "stream_key")

_OPTIONAL: Final = (
    "fence",
    "expected_position",
    "observed_lease_expires_at",
    "lease",
    "lease_ms",
    "max_retry",
    "timeout_at",
    "checkpoint_leaf_id",
)


def minimise(divergence: Divergence, player: Player, deadline: float) -> Divergence:
    """The smallest divergence found before ``deadline`` (of ``time.monotonic``)."""
    best = player(divergence.moves, True) or divergence
    best = player(_related(best), True) or best
    while time.monotonic() < deadline:
        shorter = _plain(_short(best, player, deadline), player, deadline)
        if shorter is best:
            break
        best = shorter
    return best


def _related(divergence: Divergence) -> list[Move]:
    """The moves that name an id which the diverging one names, or which those name: all that can matter, mostly."""
    ids = _named(divergence.operation)
    for move in reversed(divergence.moves):
        if isinstance(move, Operation) and _named(move) & ids:
            ids |= _named(move)
    return [move for move in divergence.moves if isinstance(move, str) or _named(move) & ids]


def _named(operation: Operation) -> set[str]:
    return {value for name in _IDS if isinstance(value := getattr(operation, name, None), str)}


def _short(best: Divergence, player: Player, deadline: float) -> Divergence:
    """Fewer moves: ever smaller chunks are left out, down to single ones."""
    size = max(1, len(best.moves) // 2)
    while size:
        at = 0
        while at < len(best.moves) and time.monotonic() < deadline:
            left = [*best.moves[:at], *best.moves[at + size :]]
            found = player(left, len(left) <= _THOROUGH)
            if found is not None and len(found.moves) < len(best.moves):
                best = found
            else:
                at += size
        size //= 2
    return best


def _plain(best: Divergence, player: Player, deadline: float) -> Divergence:
    """Plainer moves: optional arguments and records of a step are left out."""
    at = 0
    while at < len(best.moves) and time.monotonic() < deadline:
        for plainer in _plainer(best.moves[at]):
            found = player([*best.moves[:at], plainer, *best.moves[at + 1 :]], len(best.moves) <= _THOROUGH)
            if found is not None and len(found.moves) <= len(best.moves):
                best = found
                break
        else:
            at += 1
    return best


def _plainer(move: Move) -> Iterator[Move]:
    """The same operation with less in it."""
    if not isinstance(move, Operation):
        return
    names = {field.name for field in attrs.fields(type(move))}
    for name in _OPTIONAL:
        if name in names and getattr(move, name) is not None:
            absent: dict[str, Any] = {name: None}
            yield attrs.evolve(move, **absent)
    if isinstance(move, AppendStep):
        for at in range(len(move.records)):
            yield attrs.evolve(move, records=(*move.records[:at], *move.records[at + 1 :]))
