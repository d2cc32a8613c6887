"""Many threads on one store, many processes on one file: of rivals exactly one wins (L2, T7, J11, P4, R11, X5)."""

from __future__ import annotations

import multiprocessing
import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pytest
from impl_helpers import NOW, answers, asks, message, running
from impl_workers import one_winner, rounds, takeovers

from turnproof.impl import Store, open_store
from turnproof.model.rows import Draft


def in_processes(count: int, work: Callable[..., object], directory: Path, total: int) -> list[object]:
    spawn = multiprocessing.get_context("spawn")
    with spawn.Manager() as manager, ProcessPoolExecutor(count, mp_context=spawn) as pool:
        ready = manager.Barrier(count, timeout=60)
        jobs = [pool.submit(work, str(directory), f"p{number}", ready, total) for number in range(count)]
        return [job.result(timeout=120) for job in jobs]


def in_threads(count: int, work: Callable[[int], None]) -> None:
    failures: list[BaseException] = []

    def guarded(number: int) -> None:
        try:
            work(number)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=guarded, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


def test_eight_threads_on_one_store(directory: Path) -> None:
    total = 25
    counts = [Counter[str]() for _ in range(8)]
    barrier = threading.Barrier(8, timeout=60)
    with open_store(directory, "relaxed", clock=lambda: NOW) as store:

        def work(me: int) -> None:
            for number in range(total):
                submission, session = f"s{number}", f"run{number}"
                store.admit(submission, session, "dispatch", "{}", NOW)
                barrier.wait()
                counts[me]["claim"] += store.claim(submission, f"c{me}", "w", 9) is not None
                barrier.wait()
                row = store.get_submission(submission)
                assert row is not None and row.attempt_id is not None
                barrier.wait()
                if store.replace_turn_journal_attempt(submission, row.attempt_id, f"t{me}") is not None:
                    counts[me]["transfer"] += 1
                    store.append(session, message("e1"))
                    store.begin_turn_journal(submission, f"t{me}", session, "dispatch", "o", "t")
                    key = f"{submission}:t:t{me}"
                    assert store.update_turn_journal_phase(submission, f"t{me}", "provider_started", stream_key=key)
                barrier.wait()
                row = store.get_submission(submission)
                assert row is not None and row.attempt_id is not None
                barrier.wait()
                counts[me]["commit"] += store.commit_turn_journal(submission, row.attempt_id, "e1")
                counts[me]["segment"] += store.append_stream_segment("k", number, str(me))
                counts[me]["append"] += store.append(session, message(f"x{me}", "e1"), expected_position=1) is not None

        in_threads(8, work)
        assert sum(counts, Counter()) == Counter(claim=total, transfer=total, commit=total, segment=total, append=total)
        assert len(store.dump().submissions) == total
        assert store._pool.open_count <= 16


def test_threads_append_densely(store: Store) -> None:
    in_threads(8, lambda me: [store.append("run1", Draft(kind="step", text=str(me))) for _ in range(25)] and None)
    records = store.replay("run1")
    assert [record.seq for record in records] == list(range(1, 201))
    assert Counter(record.text for record in records) == Counter({str(me): 25 for me in range(8)})


def test_four_processes_on_one_file(directory: Path) -> None:
    total = 20
    with open_store(directory, clock=lambda: NOW) as store:
        for number in range(total):
            store.admit(f"s{number}", f"run{number}", "dispatch", "{}", NOW)
    done = in_processes(4, one_winner, directory, total)
    summed = sum((Counter(one) for one in done), Counter[str]())
    assert summed == Counter(claim=total, transfer=total, commit=total, segment=total, append=total)


def test_no_stale_entry_lands_after_a_takeover(directory: Path) -> None:
    total = 1000
    with open_store(directory, clock=lambda: NOW) as store:
        running(store, attempt="p-0")
        store.append("run1", Draft(kind="turn", text="p-0"))
    results = in_processes(4, takeovers, directory, total)
    with open_store(directory) as store:
        records = store.replay("run1")
        row = store.get_submission("s1")
        assert row is not None and row.attempt_count > total
        owned = store.dump().attempts["s1"]
    assert sorted(owned) == sorted(["p-0", *(mine for won, _ in results for mine in won)])
    assert len(owned) == row.attempt_count
    # Every fenced record stands in a block of its attempt: once another attempt wrote, none of the old one follows.
    blocks = [records[0].text]
    for record in records[1:]:
        if record.text != blocks[-1]:
            blocks.append(record.text)
    assert len(blocks) == len(set(blocks))
    for _, wrote in results:
        for attempt, seq in wrote:
            assert records[seq - 1].text == attempt


def test_two_processes_restore_two_hundred_times(directory: Path) -> None:
    total = 200
    with open_store(directory, "relaxed") as store:
        for number in range(total):
            store.append_step(f"run{number}", [message("e1"), asks("e2", "e1", "a", "b"), answers("e3", "e2", "b")])
    results = in_processes(2, rounds, directory, total)
    assert all(any(repaired) for repaired in zip(*results, strict=True))
    with open_store(directory) as store:
        for number in range(total):
            kinds = [record.kind for record in store.replay(f"run{number}")]
            assert kinds == ["message"] * 3 + ["repair"]


@pytest.mark.parametrize("flush", ["always", "relaxed"])
def test_readers_see_whole_steps(directory: Path, flush: str) -> None:
    with open_store(directory, flush) as store:
        store.append("run1", Draft(kind="step"))
        stop = threading.Event()

        def work(me: int) -> None:
            if me == 0:
                for _ in range(100):
                    store.append_step("run1", [Draft(kind="step"), Draft(kind="step")])
                stop.set()
            while not stop.is_set():
                assert store.position("run1") % 2 == 1
                assert len(store.replay("run1")) % 2 == 1

        in_threads(3, work)
