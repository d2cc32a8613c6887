"""Breadth-first search over the composed system: every schedule of a scope, and the shortest way to each state.

A composed state is one integer of three numbers: the store, the world, and the *crew* (the crashes so far, and what
each worker is at, sorted). Sorting the crew is the symmetry reduction over workers; that attempts are named in the
order in which they come to own a submission is the one over attempt ids. ``orbits`` shows that both lose nothing.

After the search the graph is walked backwards from the settled states: a state from which no schedule settles
everything would be a dead end (E5).
"""

from __future__ import annotations

import sys
import time
from array import array
from itertools import pairwise
from typing import Final

import attrs

from turnproof.model.driver import Driver
from turnproof.model.state import State
from turnproof.proofs.explore.laws import Fault, World
from turnproof.proofs.explore.machine import IDLE, Label, Machine

__all__ = ["Found", "Search", "Step"]

# A state is store | world | crew; a pair is store | driver. The fields are wide enough for 4 million of each.
_FIELD: Final = 22
_WORLD: Final = _FIELD
_STORE: Final = 2 * _FIELD
_MASK: Final = (1 << _FIELD) - 1

Crew = tuple[int, ...]
"""The number of crashes so far, then what each worker is at; where workers are interchangeable, sorted."""


@attrs.frozen
class Step:
    """A step of a history: the driver that moved (``None``: no worker's), what it did, and what it became."""

    before: int | None
    after: int
    label: Label
    store: int
    """The store afterwards."""


@attrs.frozen
class Found:
    """A fault, and the shortest history that shows it."""

    fault: Fault
    steps: tuple[Step, ...]


@attrs.define
class _Member:
    """What the search needs to know of a crew."""

    crashes: int
    active: tuple[tuple[int, int], ...]
    """Places and drivers; of equal drivers only the first, where workers are interchangeable."""
    idle: tuple[int, ...]


@attrs.define
class Search:
    """One exploration. ``run`` it, then read the figures."""

    machine: Machine
    symmetric: bool = True
    """Whether workers are interchangeable; if not, each is known by its place."""
    states: int = 0
    transitions: int = 0
    depth: int = 0
    seconds: float = 0.0
    bytes_per_state: float = 0.0
    exhausted: bool = False
    dead_ends: int = 0
    found: list[Found] = attrs.Factory(list)
    order: list[int] = attrs.Factory(list)
    """The states, in the order in which they were reached."""
    _parents: array[int] = attrs.Factory(lambda: array("l"))
    _targets: array[int] = attrs.Factory(lambda: array("l"))
    _offsets: array[int] = attrs.Factory(lambda: array("l"))
    _crews: list[Crew] = attrs.Factory(list)
    _members: list[_Member] = attrs.Factory(list)
    _numbers: dict[Crew, int] = attrs.Factory(dict)
    _moves: dict[int, tuple[tuple[int, int, int], ...]] = attrs.Factory(dict)
    _mortal: dict[int, bool] = attrs.Factory(dict)
    _worlds: dict[int, int] = attrs.Factory(dict)
    _swaps: dict[int, int] = attrs.Factory(dict)
    _starts: dict[int, tuple[int, ...]] = attrs.Factory(dict)
    _stops: dict[int, int | None] = attrs.Factory(dict)
    _disturbances: dict[int, tuple[int, ...]] = attrs.Factory(dict)

    # --- the search -------------------------------------------------------------------------------------------------

    def run(self, budget: float = float("inf"), limit: float = float("inf")) -> None:
        """Search until all is seen, a law is broken, or the budget (s) or the limit (states) is used up."""
        began = time.perf_counter()
        first = self._crew((0, *(IDLE for _ in range(self.machine.scope.workers))))
        seen = {first: 0}
        self.order, self._parents = [first], array("l", [-1])
        self._targets, self._offsets = array("l"), array("l", [0])
        order, parents, targets, offsets = self.order, self._parents, self._targets, self._offsets
        faults, successors = self.machine.faults, self._successors
        at, level_end = 0, 1
        while at < len(order):
            if at == level_end:
                self.depth += 1
                level_end = len(order)
                if time.perf_counter() - began > budget or len(order) > limit:
                    break
            for state in successors(order[at]):
                index = seen.get(state)
                if index is None:
                    index = seen[state] = len(order)
                    order.append(state)
                    parents.append(at)
                targets.append(index)
            offsets.append(len(targets))
            if faults:
                self.found.append(Found(faults[0], (*self.history(at), self._culprit(order[at]))))
                break
            at += 1
        self.exhausted = at == len(order)
        self.states, self.transitions = len(order), len(targets)
        self.seconds = time.perf_counter() - began
        self.bytes_per_state = self._memory(seen) / len(order)
        if self.exhausted:
            self._walk_back()

    def _successors(self, state: int) -> list[int]:
        """Every state that is one step away. Nothing but lookups, once the machine has answered."""
        store, world, crew = state >> _STORE, state >> _WORLD & _MASK, state & _MASK
        member = self._members[crew]
        moves, swaps, mortal = self._moves, self._swaps, self._mortal
        crew_bits, here = crew << _FIELD + 4, state & ~_MASK
        may_crash = member.crashes < self.machine.scope.crashes
        found: list[int] = []
        for place, driver in member.active:
            pair = store << _FIELD | driver
            steps = moves.get(pair)
            if steps is None:
                steps = self._learn(pair, store, driver)
            for after, worker, event in steps:
                key = crew_bits | worker << 4 | place
                swapped = swaps.get(key)
                if swapped is None:
                    swapped = self._swap(key, crew, place, worker)
                world_bits = world << _WORLD if not event else self._act(world, event)
                found.append(after | world_bits | swapped)
            if may_crash and mortal[pair]:
                found.append(here | self._crash(crew_bits, crew, place))
            if self._stops[driver] is not None:
                found.append(here | self._swap_to(crew, place, self._stops[driver] or IDLE))
        if member.idle:
            starts = self._starts.get(store)
            if starts is None:
                starts = self._starts[store] = self.machine.starts(store)
            for place in member.idle:
                for worker in starts:
                    swapped = swaps.get(crew_bits | worker << 4 | place)
                    if swapped is None:
                        swapped = self._swap(crew_bits | worker << 4 | place, crew, place, worker)
                    found.append(here | swapped)
        if self.machine.disturbed:
            found += [after | state & (1 << _STORE) - 1 for after in self._disturb(store)]
        return found

    def _learn(self, pair: int, store: int, driver: int) -> tuple[tuple[int, int, int], ...]:
        """Ask the machine what a worker may do here, once."""
        machine = self.machine
        self._mortal[pair] = machine.may_die(store, driver)
        if driver not in self._stops:
            self._stops[driver] = machine.stopped(driver)
        steps = tuple((move.store << _STORE, move.driver, move.event) for move in machine.moves(store, driver))
        self._moves[pair] = steps
        return steps

    def _act(self, world: int, event: int) -> int:
        key = world << _FIELD | event
        bits = self._worlds.get(key)
        if bits is None:
            bits = self._worlds[key] = self.machine.act(world, event) << _WORLD
        return bits

    def _disturb(self, store: int) -> tuple[int, ...]:
        after = self._disturbances.get(store)
        if after is None:
            after = self._disturbances[store] = tuple(m.store << _STORE for m in self.machine.disturbances(store))
        return after

    def _memory(self, seen: dict[int, int]) -> int:
        """The bytes that the search holds for its states and steps, one by one; the interned values are few."""
        numbers = len(seen) * (sys.getsizeof(1 << _STORE) + sys.getsizeof(1))
        steps = sum(a.itemsize * len(a) for a in (self._parents, self._targets, self._offsets))
        return sys.getsizeof(seen) + sys.getsizeof(self.order) + numbers + steps

    # --- crews ------------------------------------------------------------------------------------------------------

    def _crew(self, crew: Crew) -> int:
        """The number of a crew; sorted first, where workers are interchangeable."""
        if self.symmetric:
            crew = (crew[0], *sorted(crew[1:]))
        number = self._numbers.get(crew)
        if number is None:
            number = self._numbers[crew] = len(self._crews)
            self._crews.append(crew)
            places = [p for p in range(1, len(crew)) if not self.symmetric or crew[p] not in crew[1:p]]
            self._members.append(
                _Member(
                    crew[0],
                    tuple((p, crew[p]) for p in places if crew[p] != IDLE),
                    tuple(p for p in places if crew[p] == IDLE),
                )
            )
        return number

    def _swap(self, key: int, crew: int, place: int, worker: int) -> int:
        number = self._swaps[key] = self._swap_to(crew, place, worker)
        return number

    def _swap_to(self, crew: int, place: int, worker: int, crashes: int = 0) -> int:
        members = self._crews[crew]
        return self._crew((members[0] + crashes, *members[1:place], worker, *members[place + 1 :]))

    def _crash(self, crew_bits: int, crew: int, place: int) -> int:
        key = crew_bits | place | 8
        number = self._swaps.get(key)
        if number is None:
            number = self._swaps[key] = self._swap_to(crew, place, IDLE, 1)
        return number

    def values(self, index: int) -> tuple[State, World, int, tuple[Driver | None, ...]]:
        """A composed state as values: store, world, crashes so far, and the drivers of the workers."""
        state, machine = self.order[index], self.machine
        crashes, *drivers = self._crews[state & _MASK]
        return (
            machine.stores.values[state >> _STORE],
            machine.worlds.values[state >> _WORLD & _MASK],
            crashes,
            tuple(machine.drivers.values[driver] for driver in drivers),
        )

    # --- histories --------------------------------------------------------------------------------------------------

    def history(self, index: int) -> tuple[Step, ...]:
        """The shortest way to a state."""
        chain = []
        while index >= 0:
            chain.append(self.order[index])
            index = self._parents[index]
        chain.reverse()
        return tuple(self._step(one, other) for one, other in pairwise(chain))

    def _steps(self, state: int) -> list[tuple[int, Step]]:
        """Every step from a state, with the state that it leads to."""
        store, world, crew = state >> _STORE, state >> _WORLD & _MASK, state & _MASK
        member, machine, here = self._members[crew], self.machine, state & ~_MASK
        found: list[tuple[int, Step]] = []
        for place, driver in member.active:
            for move in machine.moves(store, driver):
                bits = world << _WORLD if not move.event else self._act(world, move.event)
                child = move.store << _STORE | bits | self._swap_to(crew, place, move.driver)
                found.append((child, Step(driver, move.driver, move.label, move.store)))
            crashed = here | self._swap_to(crew, place, IDLE, 1)
            found.append((crashed, Step(driver, IDLE, Label("crash"), store)))
            stopped = self._stops.get(driver)
            if stopped is not None:
                child = here | self._swap_to(crew, place, stopped)
                found.append((child, Step(driver, stopped, Label("clean shutdown"), store)))
        for place in member.idle:
            for worker in machine.starts(store):
                label = Label(machine.describe_start(worker))
                found.append((here | self._swap_to(crew, place, worker), Step(IDLE, worker, label, store)))
        for move in machine.disturbances(store):
            child = move.store << _STORE | state & (1 << _STORE) - 1
            found.append((child, Step(None, IDLE, move.label, move.store)))
        return found

    def _step(self, state: int, child: int) -> Step:
        return next(step for after, step in self._steps(state) if after == child)

    def _culprit(self, state: int) -> Step:
        """The step from a state that breaks a law."""
        store, world, crew = state >> _STORE, state >> _WORLD & _MASK, state & _MASK
        faults = self.machine.faults
        for _, driver in self._members[crew].active:
            for move in self.machine.moves(store, driver):
                faults.clear()
                self.machine.moves(store, driver)
                if move.event:
                    self.machine.act(world, move.event)
                if faults:
                    return Step(driver, move.driver, move.label, move.store)
        raise AssertionError("a fault was seen that no step of the state explains")

    # --- no dead ends (E5) ------------------------------------------------------------------------------------------

    def _walk_back(self) -> None:
        """Count the states from which nothing leads to a settled store."""
        targets, offsets = self._targets, self._offsets
        settled: dict[int, bool] = {}
        ends = bytearray(len(self.order))
        for index, state in enumerate(self.order):
            store = state >> _STORE
            if store not in settled:
                settled[store] = self.machine.is_settled(store)
            ends[index] = settled[store]
        left = [index for index in range(len(ends) - 1, -1, -1) if not ends[index]]
        while left:
            # Most steps lead to a state found later, so one sweep from the end settles nearly all.
            still = []
            for index in left:
                for target in targets[offsets[index] : offsets[index + 1]]:
                    if ends[target]:
                        ends[index] = 1
                        break
                else:
                    still.append(index)
            if len(still) == len(left):
                break
            left = still
        self.dead_ends = len(left)
        if left:
            fault = Fault("E5", "a dead end: from here no schedule settles everything")
            self.found.append(Found(fault, self.history(left[-1])))
