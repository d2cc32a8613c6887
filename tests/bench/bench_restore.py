"""Restore of long runs is linear, and appending to them is flat (issue B).

Runs of 10,000, 50,000 and 100,000 records in one store, half of the records entries of the active path; each is
restored, streamed, and then appended to. Printed: seconds a restore, microseconds a record, and the median append.

    python tests/bench/bench_restore.py [--sizes 10000 50000 100000]
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from turnproof.impl import Session, Store, open_store
from turnproof.model.rows import Draft

PAYLOAD = '{"role":"%s","parts":[%s]}'
ASK = PAYLOAD % ("assistant", '{"type":"tool_call","id":"c%d","name":"deploy","input":{"where":"here"}}')
ANSWER = PAYLOAD % ("tool", '{"type":"tool_result","call_id":"c%d","output":"ok","is_error":false}')
USER = PAYLOAD % ("user", '{"type":"text","text":"deploy the app"}')
STEP = 500


def conversation(size: int) -> Iterator[Draft]:
    """``size`` records: user, call, result on the path, and as many steps and states that are not."""
    parent = ""
    for number in range(size):
        if number % 2:
            yield Draft(kind="step", text=f"step {number}")
            continue
        entry = f"e{number}"
        payload = (USER, ASK % number, ANSWER % (number - 2))[number // 2 % 3]
        yield Draft(kind="message", entry_id=entry, parent_id=parent, payload=payload)
        parent = entry


def fill(store: Store, run: str, size: int) -> float:
    """Write the run in steps; seconds."""
    start = time.perf_counter()
    records = list(conversation(size))
    for at in range(0, size, STEP):
        assert store.append_step(run, records[at : at + STEP], expected_position=at) is not None
    return time.perf_counter() - start


def median_append(store: Store, run: str, leaf: str, count: int = 300) -> float:
    """Microseconds of one append at the end."""
    times = []
    for number in range(count):
        draft = Draft(kind="message", entry_id=f"x{number}", parent_id=leaf, payload=USER)
        start = time.perf_counter()
        assert store.append(run, draft) is not None
        times.append(time.perf_counter() - start)
        leaf = draft.entry_id
    return statistics.median(times) * 1e6


def main() -> None:
    """Print one line a size."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", type=int, nargs="+", default=[10_000, 50_000, 100_000])
    sizes: list[int] = parser.parse_args().sizes
    with tempfile.TemporaryDirectory() as folder, open_store(Path(folder) / "store", "relaxed") as store:
        store.append("run0", Draft(kind="message", entry_id="e", payload=USER))
        print(f"{1:8} records: append {median_append(store, 'run0', 'e'):6.0f} us")
        for size in sizes:
            run = f"run{size}"
            filled = fill(store, run, size)
            start = time.perf_counter()
            torn = store.restore(run)
            first = time.perf_counter() - start
            start = time.perf_counter()
            restored = store.restore(run)
            spent = time.perf_counter() - start
            assert torn is not None and restored is not None and torn.path == restored.path
            start = time.perf_counter()
            count = sum(1 for _ in store.stream(run))
            streamed = time.perf_counter() - start
            append = median_append(store, run, restored.leaf)
            session = Session(store, run)
            _ = session.leaf
            start = time.perf_counter()
            for _ in range(100):
                session.append(Draft(kind="message", payload=USER))
            handle = (time.perf_counter() - start) / 100 * 1e6
            print(
                f"{size:8} records, path {len(restored.path)}: restore {spent:6.3f} s ({spent / size * 1e6:4.1f} us a "
                f"record){f', with repair {first:6.3f} s' if torn.repair else ''}, "
                f"stream of {count} {streamed:6.3f} s, append {append:4.0f} us, by session {handle:4.0f} us, "
                f"filled in {filled:5.2f} s"
            )


if __name__ == "__main__":
    main()
