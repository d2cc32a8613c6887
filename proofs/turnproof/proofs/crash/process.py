"""Real processes: a child that does turns on a real file system, killed by SIGKILL, reopened and judged.

Two ways. *At random moments*: the classic way, and the one beside which the memory disk is measured. *At each of the
first N write-like system calls*, by strace, which kills a process as it enters its n-th such call.

Children are forked from a process that has everything loaded and has no threads, so a trial costs milliseconds rather
than a start of Python; that is why this runs as a program of its own (``python -m turnproof.proofs.crash``).
What a child was told so far stands in memory that it shares with its parent: noting it is no system call, so the calls
that are counted are the store's.

Strace counts the calls of each kind by themselves and of each process from one, and always kills at the same number N.
So the calls of one unharmed child are written down first. If its n-th call is the k-th of its kind, the child that is
to die there makes N - k idle ones of that kind first, on nothing.
"""

from __future__ import annotations

import contextlib
import json
import mmap
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Final, TypeAlias

import attrs

from turnproof.impl import Store, open_store
from turnproof.model.choices import STRICT
from turnproof.model.driver import Job
from turnproof.model.operations import Operation
from turnproof.model.state import EMPTY
from turnproof.proofs import talk
from turnproof.proofs.crash.acting import ANSWER, CALLS, perform
from turnproof.proofs.crash.judge import ALL, Judge
from turnproof.proofs.crash.scenarios import admit
from turnproof.proofs.crash.script import Step, timeline
from turnproof.proofs.crash.stage import Stage, call
from turnproof.proofs.disk import Disk, Mark
from turnproof.proofs.subjects import expected

__all__ = ["CALLS_TRACED", "Trials", "alone", "forked", "main", "random_kills", "traced_kills"]

CALLS_TRACED: Final = (
    "write,pwrite64,fsync,fdatasync,ftruncate,?rename,?renameat,?renameat2,?link,linkat,?unlink,unlinkat,?mkdir,mkdirat"
)
"""The system calls that change what is on a disk; those with a question mark do not exist on every machine."""
PROGRAM: Final = "turnproof.proofs.crash"
MEMORY: Final = Path("/dev/shm")
"""Where there is a file system in memory, trials run there: a kill takes no page cache, so a slow disk proves nothing
more, and the classic way is shown at its best."""
_SUBMISSIONS: Final = 8


Idle: TypeAlias = tuple[str, int]
"""A kind of system call, and how many idle ones a child makes before its work."""
NO_IDLE: Final[Idle] = ("write", 0)


@attrs.define
class Trials:
    """``killed``: those that died before they were done. ``moments``: at how many different operations."""

    trials: int = 0
    killed: int = 0
    moments: int = 0
    violations: list[str] = attrs.Factory(list)
    seconds: float = 0.0

    def as_json(self) -> dict[str, int | float | list[str]]:
        return attrs.asdict(self)


@cache
def day() -> tuple[Step, ...]:
    """What a child does: opens the store, then whole submissions with tools and without."""
    state, steps = EMPTY, [Step("open")]
    for number in range(_SUBMISSIONS):
        now = 1 + number * 10_000
        admitted = admit(f"s{number}", f"run{number % 3}", now)
        job = Job(submission_id=f"s{number}", attempt_id=f"a{number}", owner_id="w1")
        state = expected(admitted, state, STRICT).state
        says = (CALLS, ANSWER) if number % 2 == 0 else (talk.says(f"answer {number}", "assistant"),)
        work = (admitted, *perform(state, job, says, now))
        for operation in work:
            state = expected(operation, state, STRICT).state
        steps += map(Step, work)
    return tuple(steps)


class _Board:
    """How many steps a child was answered: a number in shared memory."""

    def __init__(self) -> None:
        self._memory = mmap.mmap(-1, 8)

    @property
    def acknowledged(self) -> int:
        return int.from_bytes(self._memory[:8], "little")

    @acknowledged.setter
    def acknowledged(self, count: int) -> None:
        self._memory[:8] = count.to_bytes(8, "little")


def _child(directory: Path, board: _Board, idle: Idle) -> None:
    """Do the day's work; never returns."""
    try:
        _idle(*idle)
        store: Store | None = None
        for step in day():
            if isinstance(step.what, Operation):
                assert store is not None
                call(store, step.what)
            else:
                store = open_store(directory, clock=lambda: 0)
            board.acknowledged += 1
        if store is not None:
            store.close()
        os._exit(0)
    except BaseException as error:
        os.write(2, f"the child failed: {error!r}\n".encode())
        os._exit(1)


def _fork(directory: Path, board: _Board, idle: Idle = NO_IDLE) -> int:
    day()
    board.acknowledged = 0
    child = os.fork()
    if child == 0:
        _child(directory, board, idle)
    return child


def alone() -> None:
    """Wait until the threads of closed stores are gone: a process forks safely only when it has one."""
    while threading.active_count() > 1:
        time.sleep(0.0005)


class _OnDisk(Stage):
    """A stage on the real file system."""

    path: Path = Path()

    def open(self, number: int = 0) -> Store:
        self.stores[number] = store = open_store(self.path, clock=lambda: 0, connect=self._connect)
        return store


@attrs.define
class _Bench:
    """Judges real directories."""

    judge: Judge
    places: set[int] = attrs.Factory(set)

    def examine(self, directory: Path, acknowledged: int, done: bool) -> str | None:
        """What is wrong with what a child left."""
        self.places.add(acknowledged)
        told = self.judge.told
        with Disk(record=False) as unused:
            stage = _OnDisk(unused)
            stage.path = directory
            label = "" if done else "in flight"
            finding = self.judge.judge_at(stage, Mark(acknowledged, label), told.allowed(acknowledged, not done), "X1")
        return None if finding is None else f"after {acknowledged} answers: {finding.what}: {finding.got}"


def _bench(alike: float = ALL) -> _Bench:
    return _Bench(Judge(timeline(EMPTY, day(), {}), day(), {}, alike=alike))


def random_kills(trials: int, seed: int, directory: Path, alike: float = ALL) -> Trials:
    """Fork, kill at a random moment, reopen, judge."""
    rng, board, bench, result = random.Random(seed), _Board(), _bench(alike), Trials()
    length = _unharmed(directory / "unharmed", board)
    start = time.monotonic()
    with bench.judge:
        for number in range(trials):
            store = directory / f"store{number}"
            alone()
            child = _fork(store, board)
            time.sleep(rng.random() * length)
            os.kill(child, signal.SIGKILL)
            _, status = os.waitpid(child, 0)
            result.killed += os.WIFSIGNALED(status)
            acknowledged = board.acknowledged
            done = acknowledged == len(day())
            if (wrong := bench.examine(store, acknowledged, done)) is not None:
                result.violations.append(wrong)
            shutil.rmtree(store, ignore_errors=True)
            result.trials += 1
    result.moments = len(bench.places)
    result.seconds = time.monotonic() - start
    return result


def _unharmed(store: Path, board: _Board) -> float:
    """How long a child takes that nobody kills."""
    start = time.monotonic()
    _, status = os.waitpid(_fork(store, board), 0)
    if status != 0:
        raise RuntimeError(f"a child that nobody killed ended with {status}")
    shutil.rmtree(store)
    return time.monotonic() - start


# --- system calls ----------------------------------------------------------------------------------------------------

_IDLE: Final[Mapping[str, Callable[[int, str], object]]] = {
    # kind of call: one that does nothing, on a descriptor of /dev/null or on a name that is not there
    "write": lambda null, _: os.write(null, b"-"),
    "pwrite64": lambda null, _: os.pwrite(null, b"-", 0),
    "fsync": lambda null, _: os.fsync(null),
    "fdatasync": lambda null, _: os.fdatasync(null),
    "ftruncate": lambda null, _: os.ftruncate(null, 0),
    "rename": lambda _, name: os.rename(name, name),
    "link": lambda _, name: os.link(name, name),
    "unlink": lambda _, name: os.unlink(name),
    "mkdir": lambda _, name: os.mkdir(name),
}
_ALIASES: Final = {
    "renameat": "rename", "renameat2": "rename", "linkat": "link", "unlinkat": "unlink", "mkdirat": "mkdir"
}  # fmt: skip


def _idle(kind: str, count: int) -> None:
    """Make calls of this kind that change nothing; that they fail does not matter, they are counted."""
    null = os.open(os.devnull, os.O_WRONLY)
    nowhere = "/turnproof-is-not-here/either"
    for _ in range(count):
        with contextlib.suppress(OSError):
            _IDLE[kind](null, nowhere)
    os.close(null)


def _strace(options: Sequence[str], arguments: Sequence[str]) -> None:
    strace = shutil.which("strace")
    if strace is None:
        raise FileNotFoundError("strace is not installed; it kills a process at its n-th system call (apt: strace)")
    own = [sys.executable, "-m", PROGRAM, *arguments]
    command = [strace, "-f", "-qq", "-e", f"trace={CALLS_TRACED}", *options, *own]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"strace could not do it (exit {done.returncode}): {done.stderr.strip()[-500:]}")


def _calls(directory: Path) -> list[str]:
    """The kinds of the write-like calls that an unharmed child makes, in order."""
    log = directory / "calls.txt"
    _strace(["-o", str(log)], ["unharmed", str(directory)])
    child = (directory / "child.txt").read_text()
    kinds = re.findall(rf"^{child}\s+(\w+)\(", log.read_text(errors="replace"), re.MULTILINE)
    return [_ALIASES.get(kind, kind) for kind in kinds]


def _one_unharmed(directory: Path) -> None:
    """Under strace: one child; notes its number."""
    child = _fork(directory / "unharmed", _Board())
    os.waitpid(child, 0)
    (directory / "child.txt").write_text(str(child))


def _each_killed(calls: int, directory: Path) -> None:
    """Under strace: a child for each call; writes what each was answered to a file, in one call."""
    board, answers = _Board(), []
    for number, (kind, count) in enumerate(json.loads((directory / "plan.json").read_text()), 1):
        _, status = os.waitpid(_fork(directory / f"store{number}", board, (kind, calls - count)), 0)
        answers.append([number, board.acknowledged, int(os.WIFSIGNALED(status))])
    (directory / "answers.json").write_text(json.dumps(answers))


def traced_kills(calls: int, directory: Path) -> Trials:
    """Kill a child as it enters each of its first write-like system calls, then judge each. Needs strace."""
    start = time.monotonic()
    seen, plan = Counter[str](), []
    for kind in _calls(directory)[:calls]:
        seen[kind] += 1
        plan.append((kind, seen[kind]))
    (directory / "plan.json").write_text(json.dumps(plan))
    inject = f"inject={CALLS_TRACED}:signal=KILL:when={calls}"
    _strace(["-o", os.devnull, "-e", inject], ["each", str(calls), str(directory)])
    result, bench = Trials(), _bench()
    with bench.judge:
        for number, acknowledged, killed in json.loads((directory / "answers.json").read_text()):
            wrong = bench.examine(directory / f"store{number}", acknowledged, acknowledged == len(day()))
            if wrong is not None:
                result.violations.append(f"call {number}: {wrong}")
            result.trials += 1
            result.killed += killed
    result.moments = len(bench.places)
    result.seconds = time.monotonic() - start
    return result


def forked(*arguments: str) -> Trials:
    """Run this module as a program of its own and read what it found. Raises ``RuntimeError`` with what it said."""
    command = [sys.executable, "-m", PROGRAM, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(done.stderr.strip().splitlines()[-1] if done.stderr.strip() else f"exit {done.returncode}")
    return Trials(**json.loads(done.stdout))


def main(arguments: Sequence[str]) -> int:
    match arguments:
        case ["random", trials, seed, *alike]:
            with tempfile.TemporaryDirectory(prefix="turnproof-", dir=MEMORY if MEMORY.is_dir() else None) as directory:
                print(json.dumps(random_kills(int(trials), int(seed), Path(directory), *map(float, alike)).as_json()))
        case ["strace", calls]:
            with tempfile.TemporaryDirectory(prefix="turnproof-", dir=MEMORY if MEMORY.is_dir() else None) as directory:
                print(json.dumps(traced_kills(int(calls), Path(directory)).as_json()))
        case ["unharmed", directory]:
            _one_unharmed(Path(directory))
        case ["each", calls, directory]:
            _each_killed(int(calls), Path(directory))
        case _:
            print(f"usage: python -m {PROGRAM} random TRIALS SEED [ALIKE] | strace CALLS", file=sys.stderr)
            return 2
    return 0
