"""How many crashes a second: the memory disk beside the classic way, measured in the same run, on one core.

    .venv/bin/python tests/bench/bench_crash.py [SECONDS]

The classic way: a process that was forked warm does turns and is killed by SIGKILL at a random moment; then the store
is reopened and checked. It runs on a file system in memory where there is one, which is its best case. The check is the
same in both (`Judge`): open, `PRAGMA integrity_check`, the complete state against the model, every digest. Then, in the
second half, work goes on as well: retry, recovery, new work.

A *kill* here is a crash point of a recorded run, a *power image* one disk that a power cut may leave there. Images with
the same bytes at the same moment are judged once; both figures are shown.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable

from turnproof.proofs.crash.judge import ALL
from turnproof.proofs.crash.process import forked
from turnproof.proofs.crash.scenarios import STANDARD
from turnproof.proofs.crash.stage import Played, record
from turnproof.proofs.crash.sweep import Counts, Sweep, sweep

AIM = 40
"""Trials of the memory disk for each one of the classic way."""


def measure(name: str, runs: list[Played], seconds: float, work: Callable[[Played], Sweep]) -> float:
    """Sweep until the time is up; prints the figures, answers images a second."""
    total, rounds = Counts(), 0
    start = time.perf_counter()
    while (spent := time.perf_counter() - start) < seconds:
        total.add(work(runs[rounds % len(runs)]).counts)
        rounds += 1
    assert total.violations == 0
    rate = total.images / spent
    print(
        f"{name:26} {rate:8,.0f} images a second   {total.images:,} images, {total.distinct:,} distinct,"
        f" {total.judged:,} judged, work went on after {total.continued:,}"
    )
    return rate


def compare(runs: list[Played], seconds: float, alike: float) -> None:
    """The classic way and ours, with work going on after so many images that are alike."""
    classic = forked("random", "150", "1", str(alike))
    rate = classic.trials / classic.seconds
    killed = f"{classic.trials} trials, {classic.killed} killed"
    print(f"{'classic (fork, SIGKILL)':26} {rate:8,.1f} trials a second   {killed}")
    kill = measure("kill points", runs, seconds, lambda played: sweep(played, "kill", alike=alike))
    power = measure("power images", runs, seconds, lambda played: sweep(played, "power", alike=alike))
    print(f"times the classic way: kill {kill / rate:.0f}, power {power / rate:.0f} (aim {AIM})\n")


def main() -> int:
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 5.0
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    runs = [record(scenario) for scenario in STANDARD if scenario.name in ("turn with tools", "text turn")]
    print("reopened and checked")
    compare(runs, seconds, 0.0)
    print("and work goes on")
    compare(runs, seconds, ALL)
    return 0


if __name__ == "__main__":
    sys.exit(main())
