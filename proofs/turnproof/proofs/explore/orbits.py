"""Renaming: what the symmetry reduction leaves out, counted back.

Ids are only compared for equality (SPEC section 0), and one worker is like another. So a composed state stands for all
states that arise from it by renaming attempts and by swapping workers: its *orbit*. The search visits one state of each
orbit. That nothing is lost is shown on a small scope: search it once with the reduction and once without, where each
attempt takes any id of a pool and each worker has its place; the sizes of the orbits must add up to the full count.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import permutations

import attrs

from turnproof.model.driver import Driver, Job
from turnproof.model.ids import mint_stream_key, split_stream_key
from turnproof.model.rows import Slot, Submission
from turnproof.model.state import State
from turnproof.model.table import Table
from turnproof.proofs.explore.machine import Machine
from turnproof.proofs.explore.scope import Scope
from turnproof.proofs.explore.search import Search

__all__ = ["orbit_sizes", "reduced", "unreduced"]

Names = Mapping[str, str]


def reduced(scope: Scope) -> Search:
    """The exploration of a scope, one state of each orbit."""
    search = Search(Machine(scope))
    search.run()
    return search


def unreduced(scope: Scope, pool: tuple[str, ...]) -> Search:
    """The exploration of a scope where an attempt takes any id of ``pool`` that its submission does not know yet."""

    def free(state: State, submission_id: str) -> tuple[str, ...]:
        return tuple(name for name in pool if name not in state.former.get(submission_id, ()))

    search = Search(Machine(scope, names=free), symmetric=False)
    search.run()
    return search


def orbit_sizes(search: Search, pool: tuple[str, ...]) -> Iterator[int]:
    """For each state of a reduced search, how many states it stands for."""
    renamings = [dict(zip(pool, order, strict=True)) for order in permutations(pool)]
    workers = search.machine.scope.workers
    for index in range(search.states):
        state, world, crashes, drivers = search.values(index)
        images = set()
        for names in renamings:
            store = _state(state, names)
            crew = tuple(None if driver is None else _driver(driver, names) for driver in drivers)
            images |= {
                (store, world, crashes, tuple(crew[p] for p in places)) for places in permutations(range(workers))
            }
        yield len(images)


# --- renaming attempts ----------------------------------------------------------------------------------------------


def _name(name: str | None, names: Names) -> str | None:
    return name if name is None else names.get(name, name)


def _key(stream_key: str | None, names: Names) -> str | None:
    parts = None if stream_key is None else split_stream_key(stream_key)
    return stream_key if parts is None else mint_stream_key(parts[0], parts[1], names.get(parts[2], parts[2]))


def _row(row: Submission[str], names: Names) -> Submission[str]:
    return attrs.evolve(row, attempt_id=_name(row.attempt_id, names), owner_id=_name(row.owner_id, names))


def _slot(slot: Slot[str], names: Names) -> Slot[str]:
    attempt = names.get(slot.attempt_id, slot.attempt_id)
    return attrs.evolve(slot, attempt_id=attempt, stream_key=_key(slot.stream_key, names))


def _state(state: State, names: Names) -> State:
    """The store with its attempts renamed: no entry id holds one, since turns are named by their number."""
    return attrs.evolve(
        state,
        submissions=Table({k: _row(row, names) for k, row in state.submissions.items()}),
        former=Table({k: tuple(names.get(a, a) for a in former) for k, former in state.former.items()}),
        slots=Table({k: _slot(slot, names) for k, slot in state.slots.items()}),
        segments=Table({_key(k, names) or k: segments for k, segments in state.segments.items()}),
    )


def _job(job: Job, names: Names) -> Job:
    return attrs.evolve(
        job,
        attempt_id=names.get(job.attempt_id, job.attempt_id),
        owner_id=names.get(job.owner_id, job.owner_id),
        predecessor=_name(job.predecessor, names),
    )


def _driver(driver: Driver, names: Names) -> Driver:
    return attrs.evolve(
        driver,
        job=_job(driver.job, names),
        row=None if driver.row is None else _row(driver.row, names),
        slot=None if driver.slot is None else _slot(driver.slot, names),
    )
