"""Throughput of one full turn, beside the cheapest thing that SQLite could do instead (issue A).

A turn is claim, input applied, begin, started, 8 segments, consumed, tool request, commit, complete: sixteen writes.
The yardstick is the same number of bare autocommit statements on minimal tables of a database with the same settings,
in the same run; absolute figures say more about the disk than about the store.

    python tests/bench/bench_store.py [--seconds 3]
"""

from __future__ import annotations

import argparse
import json
import sqlite3
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from turnproof.impl import Store, open_store
from turnproof.model.rows import Draft

SEGMENTS = 8
WRITES = 16
REQUEST = json.dumps({"tool_calls": [{"id": "c1", "name": "deploy", "input": {}}]})
TEXT = json.dumps({"role": "user", "parts": [{"type": "text", "text": "deploy the app"}]})


def prepare(store: Store, number: int) -> None:
    """What a turn finds: an admitted submission and an entry to stand on."""
    store.admit(f"s{number}", f"run{number % 10}", "dispatch", "{}", 0)
    if number < 10:
        store.append(f"run{number}", Draft(kind="message", entry_id="e", payload=TEXT))


def turn(store: Store, number: int) -> None:
    """One turn of sixteen writes; every one of them must be accepted."""
    submission, session, attempt = f"s{number}", f"run{number % 10}", f"a{number}"
    own = {"submission_id": submission, "attempt_id": attempt}
    key = f"{submission}:t:{attempt}"
    assert store.claim(**own, owner_id="w", lease_expires_at=2**50)
    assert store.mark_input_applied(**own)
    assert store.begin_turn_journal(**own, session_key=session, kind="dispatch", operation_id="o", turn_id="t")
    assert store.update_turn_journal_phase(**own, phase="provider_started", stream_key=key)
    for index in range(SEGMENTS):
        assert store.append_stream_segment(key, index, "some words of an answer")
    assert store.mark_stream_consumed(**own, stream_key=key)
    assert store.update_turn_journal_phase(
        **own, phase="tool_request_recorded", tool_request=REQUEST, checkpoint_leaf_id="e"
    )
    assert store.commit_turn_journal(**own, committed_leaf_id="e")
    assert store.complete(**own)


def bare(file: Path, synchronous: int) -> Callable[[int], None]:
    """The yardstick: sixteen autocommit statements on two small tables."""
    db = sqlite3.connect(file, isolation_level=None)
    db.execute("PRAGMA journal_mode = wal")
    db.execute(f"PRAGMA synchronous = {synchronous}")
    db.execute("CREATE TABLE rows (id INTEGER PRIMARY KEY, state TEXT)")
    db.execute("CREATE TABLE parts (id INTEGER, n INTEGER, body TEXT, PRIMARY KEY (id, n))")

    def work(number: int) -> None:
        db.execute("INSERT INTO rows VALUES (?, 'a')", (number,))
        for index in range(SEGMENTS):
            db.execute("INSERT INTO parts VALUES (?, ?, ?)", (number, index, "some words of an answer"))
        for state in range(WRITES - SEGMENTS - 1):
            db.execute("UPDATE rows SET state = ? WHERE id = ?", (str(state), number))

    return work


def rate(work: Callable[[int], None], seconds: float, first: int) -> tuple[float, int]:
    """Calls a second, and the next number."""
    number, start = first, time.perf_counter()
    while (spent := time.perf_counter() - start) < seconds:
        work(number)
        number += 1
    return (number - first) / spent, number


def main() -> None:
    """Print the figures for both flush policies. The two sides take turns, so that a busy disk hits both."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=3.0, help="for each side and policy")
    seconds: float = parser.parse_args().seconds / 6
    for flush in ("always", "relaxed"):
        with tempfile.TemporaryDirectory() as folder, open_store(Path(folder) / "store", flush) as store:
            admitted, turns, yard, number, other = 0, [], [], 0, 0
            plain = bare(Path(folder) / "bare.db", 2 if flush == "always" else 1)
            for _ in range(6):
                ahead = int(turns[-1] * seconds * 1.5) if turns else 2000
                while admitted < number + ahead + 100:
                    prepare(store, admitted)
                    admitted += 1
                found, number = rate(lambda n: turn(store, n), seconds, number)
                turns.append(found)
                found, other = rate(plain, seconds, other)
                yard.append(found)
        ours, bare_rate = sorted(turns)[3], sorted(yard)[3]
        print(
            f"flush {flush:8} {ours:8.0f} turns/s ({ours * WRITES:.0f} writes/s)   "
            f"bare {bare_rate:8.0f} turns/s   ratio {ours / bare_rate:.2f}"
        )


if __name__ == "__main__":
    main()
