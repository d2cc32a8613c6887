"""The asyncio face: awaitable twins, and work that survives its caller (R13)."""

from __future__ import annotations

import asyncio
import inspect
import threading
from pathlib import Path

import pytest
from impl_helpers import NOW, message, running

from turnproof.impl import Store, open_store
from turnproof.impl.aio import AsyncStore, open_async_store
from turnproof.model.operations import ALPHABET
from turnproof.model.rows import Draft
from turnproof.model.vocabulary import EntryNotFound, StorageError


def test_it_has_every_verb_with_the_same_arguments() -> None:
    for verb in ALPHABET:
        if hasattr(Store, verb):
            assert inspect.signature(getattr(AsyncStore, verb)) == inspect.signature(getattr(Store, verb))
            assert inspect.iscoroutinefunction(getattr(AsyncStore, verb))


def test_a_turn(directory: Path) -> None:
    async def story() -> None:
        async with await open_async_store(directory, clock=lambda: NOW) as store:
            running(store.store)
            assert await store.append("run1", message("e1")) == 1
            with pytest.raises(EntryNotFound):
                await store.append("run1", message("e2", "nowhere"))
            assert await store.append_step("run1", [Draft(kind="step")] * 1200) == list(range(2, 1202))
            assert [record.seq async for record in store.stream("run1", after=1)] == list(range(2, 1202))
            assert (await store.inspect("run1")).leaf == "e1"
            many = await asyncio.gather(*(store.checkpoint("run1", "running") for _ in range(20)))
            assert sorted(many) == list(range(1202, 1222))
            assert store.persisted
        with pytest.raises(StorageError, match="closed"):
            await store.position("run1")

    asyncio.run(story())


def test_cancelling_the_caller_neither_stops_nor_undoes_the_write(directory: Path) -> None:
    async def story() -> list[str]:
        async with await open_async_store(directory) as store:
            # a writer holds the lock, and every thread of the executor waits for it: the last calls are only queued
            inside, leave = threading.Event(), threading.Event()

            def hold() -> None:
                with store.store._pool.write():
                    inside.set()
                    leave.wait()

            holder = threading.Thread(target=hold)
            holder.start()
            await asyncio.to_thread(inside.wait)
            tasks = [asyncio.create_task(store.append("run1", message(f"e{i}"))) for i in range(20)]
            await asyncio.sleep(0.01)
            for task in tasks:
                task.cancel()
            found = await asyncio.gather(*tasks, return_exceptions=True)
            assert all(isinstance(one, asyncio.CancelledError) for one in found)
            leave.set()
            holder.join()
            failing = asyncio.create_task(store.append("run1", message("x", "nowhere")))
            await asyncio.sleep(0)
            failing.cancel()
        with pytest.raises(StorageError):
            store.store.runs()
        async with await open_async_store(directory) as store:
            return [record.entry_id for record in await store.replay("run1")]

    assert sorted(asyncio.run(story())) == sorted(f"e{i}" for i in range(20))


def test_a_loop_that_ends_first_does_no_harm(directory: Path) -> None:
    kept: list[AsyncStore] = []
    tasks: list[asyncio.Task[int | None]] = []

    async def story() -> None:
        kept.append(await open_async_store(directory))
        tasks.append(asyncio.create_task(kept[0].append("run1", message("e1"))))
        await asyncio.sleep(0)

    asyncio.run(story())
    asyncio.run(kept[0].aclose())
    with open_store(directory) as store:
        assert store.position("run1") == 1
