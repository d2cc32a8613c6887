"""What every layer of the store stands on: the pool, the clock, and a promise about transactions.

A verb is one unit: one conditional statement (``statement``), one write transaction (``write``) or a read. Its answer
is given only after the commit; an exception undoes the whole of it.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Sequence
from typing import TypeAlias

from turnproof.impl.checks import integer
from turnproof.impl.connection import Pool
from turnproof.model.vocabulary import InvalidArgument

__all__ = ["Base", "Clock", "Value", "exists", "time_of", "wall_clock"]

Clock: TypeAlias = Callable[[], int]
"""Answers the time in ms."""

Value: TypeAlias = str | int | bytes | None


def wall_clock() -> int:
    """Milliseconds since 1970."""
    return time.time_ns() // 1_000_000


def time_of(clock: Clock, now: int | None) -> int:
    """``now`` as given, else what ``clock`` answers (ms). The caller gave both, so both raise ``InvalidArgument``."""
    if now is not None:
        return integer("now", now)
    if not callable(clock):
        raise InvalidArgument(f"clock must be a function that answers ms, not {type(clock).__name__}")
    return integer("the answer of the clock", clock())


def exists(connection: sqlite3.Connection, query: str, values: Sequence[Value]) -> bool:
    """Whether ``query`` finds a row."""
    return connection.execute(query, values).fetchone() is not None


class Base:
    """The pool and the clock."""

    def __init__(self, pool: Pool, clock: Clock) -> None:
        self._pool = pool
        self._clock = clock

    def _time(self, now: int | None) -> int:
        """``now`` as given, else the store's own clock (ms)."""
        return time_of(self._clock, now)
