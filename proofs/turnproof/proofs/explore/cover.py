"""Histories that cover an exploration: together they put every operation to every state of the store that it met.

What the composed system does to a store is a graph: states, and operations that lead from one to the next or, refused
and reading ones, back to the same. The graph is walked from the empty store until every edge was taken; a walk goes
back to the start when nothing new is left at hand. The walks are histories of one client, so that any store can be held
to them, in any language: what the explorer proves of the model is thereby shown of the store, edge by edge.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Iterator
from pathlib import Path

import attrs

from turnproof.model.choices import STRICT
from turnproof.model.operations import Operation
from turnproof.proofs.explore.machine import Machine
from turnproof.proofs.explore.scope import Scope
from turnproof.proofs.explore.search import Search
from turnproof.proofs.history import History, Tally, on_empty_store
from turnproof.proofs.subjects import Subject

__all__ = ["Cover", "cover", "explored", "replay_on"]


@attrs.define
class Cover:
    """The graph of a store, and what of it was walked."""

    scope: Scope
    still: dict[int, list[Operation]]
    """By state: the operations that leave it as it is, not walked yet."""
    moving: dict[int, list[tuple[Operation, int]]]
    """By state: the operations that lead on, not walked yet."""
    way: dict[int, tuple[int, Operation]]
    """By state: the state before it on the shortest way from the start, and the operation between."""

    @property
    def edges(self) -> int:
        """How many edges are left to be walked."""
        return sum(map(len, self.still.values())) + sum(map(len, self.moving.values()))

    def walks(self) -> Iterator[tuple[Operation, ...]]:
        """Histories, admissions first, until every edge was walked."""
        left = deque(sorted(self.still.keys() | self.moving.keys()))
        while left:
            state = left[0]
            if not self.still.get(state) and not self.moving.get(state):
                left.popleft()
                continue
            yield (*self.scope.admissions(), *self._walk(state))

    def _walk(self, state: int) -> Iterator[Operation]:
        """From the start to a state with something left, and on from there as long as there is."""
        for at, operation in self._way_to(state):
            yield from self.still.pop(at, ())
            yield operation
        while True:
            yield from self.still.pop(state, ())
            onward = self.moving.get(state)
            if not onward:
                return
            operation, state = onward.pop()
            yield operation

    def _way_to(self, state: int) -> list[tuple[int, Operation]]:
        way = []
        while state in self.way:
            state, operation = self.way[state]
            way.append((state, operation))
        return way[::-1]


def explored(scope: Scope, budget: float = float("inf"), limit: float = float("inf")) -> Search:
    """The exploration of a scope that keeps what it asked the stores."""
    search = Search(Machine(scope, asked={}))
    search.run(budget, limit)
    return search


def cover(search: Search) -> Cover:
    """The graph of the store states that an exploration met, nothing walked yet."""
    still: dict[int, list[Operation]] = {}
    moving: dict[int, list[tuple[Operation, int]]] = {}
    for (state, operation), after in (search.machine.asked or {}).items():
        if state == after:
            still.setdefault(state, []).append(operation)
        else:
            moving.setdefault(state, []).append((operation, after))
    way: dict[int, tuple[int, Operation]] = {}
    queue = deque([0])
    while queue:
        state = queue.popleft()
        for operation, after in moving.get(state, ()):
            if after != 0 and after not in way:
                way[after] = (state, operation)
                queue.append(after)
    return Cover(search.machine.scope, still, moving, way)


def replay_on(subject: Subject, covered: Cover, directory: Path, limit: int | None = None) -> Tally:
    """Walk the graph on a store, comparing with the model after every step. Raises ``history.Divergence``.

    The comparison is under the strict choices: what a driver may choose (to replay a stream) is not the store's.
    """
    tally = Tally()
    for number, walk in enumerate(itertools.islice(covered.walks(), limit)):
        path = directory / str(number)
        with on_empty_store(subject, path):
            history = History(subject, path, STRICT, tally)
            for operation in walk:
                history.move(operation)
            history.finish()
        tally.sequences += 1
    return tally
