"""Four real processes on one SQLite file, killed and frozen at random, until everything is settled.

Each worker is a process of its own that runs ``Runner.work``: it takes over what has expired, claims what is next, and
renews its lease while at work. The parent kills one with SIGKILL and starts another in its place, or freezes one with
SIGSTOP until its lease has long passed and somebody else has taken over, and lets it wake. What the provider and the
tools do is written, before it is done, to a file that only grows: the outside world, which no crash rolls back.

Afterwards the laws of the explorer are checked on what is stored: each submission is settled once, each turn committed
once, no tool ran twice for one request and no work was done twice, the transcripts are those of an uncrashed run up to
interrupted results and hold no open call, and what was settled or logged while the run went on is unchanged (E4, E7).
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import attrs

from turnproof.impl import Store, open_store
from turnproof.impl.store import Flush
from turnproof.model.decision import Accept, Decision
from turnproof.model.driver import ProviderCall, Step, ToolCall, ToolRun
from turnproof.model.operations import CommitTurnJournal, Operation
from turnproof.model.promises import PROMISES
from turnproof.model.rows import Record, Submission
from turnproof.model.vocabulary import CorruptConversation, RunNotFound, Status
from turnproof.proofs.explore.laws import Fault, World, act_on, conversation_faults
from turnproof.proofs.explore.scope import Scope, Script
from turnproof.proofs.report import Judgement, Report, Violation, environment, wal_warning, write_json, write_junit
from turnproof.proofs.runner import Runner, on_store
from turnproof.proofs.subjects import StoreSubject

__all__ = ["FleetReport", "add_arguments", "describe", "run", "run_fleet"]

LEASE_MS: Final = 400
_PLANS: Final = ((0,), (1, 0), (2, 0), (1, 2, 0))
_PER_SESSION: Final = 5
JUDGED: Final = frozenset({"C1", "E1", "E2", "E3", "E4", "E5", "E6", "E7", "L6", "P3", "P8", "T7", "X5"})
"""Promises that a fleet would break if the store or the driver did not keep them."""

_MAX_RETRY: Final = 1000
"""Nothing is given up here: every submission must be answered, however often its workers die."""


@attrs.frozen(kw_only=True)
class FleetReport:
    """What was seen. No ``faults`` and no ``unsettled``: everything held."""

    workers: int
    submissions: int
    seed: int
    seconds: float
    kills: int
    freezes: int
    takeovers: int
    """Transfers and repeated claims: attempts beyond the first of each submission."""
    refusals: int
    """Drivers that were stopped by a refused write or a lost claim."""
    provider_calls: int
    tool_runs: int
    interrupted: int
    """Results that recovery had to synthesise."""
    unsettled: int
    faults: tuple[str, ...]
    settings: Mapping[str, str] = attrs.Factory(dict)
    """Read back from the store (X6)."""

    @property
    def verdict(self) -> str:
        return "violation" if self.faults else "undecided" if self.unsettled else "conforms"

    def report(self) -> Report:
        """The report of PROTOCOL: what the fleet can break is kept as often as there were submissions."""
        broken = {promise: fault for fault in self.faults if (promise := fault.partition(":")[0]) in PROMISES}
        figures = {name: value for name, value in attrs.asdict(self).items() if isinstance(value, int)}
        return Report(
            verb="crash",
            subject=StoreSubject().identity,
            verdict=self.verdict,
            seed=self.seed,
            environment=environment(self.settings),
            counts={name: value for name, value in figures.items() if name != "seed"},
            promises={
                promise: Judgement(
                    verdict="broken" if promise in broken else "not_checked" if self.unsettled else "kept",
                    evidence={} if self.unsettled else {"histories": self.submissions},
                )
                for promise in PROMISES
                if promise in JUDGED or promise in broken
            },
            violations=tuple(
                Violation(
                    promise=promise,
                    statement=PROMISES[promise].statement,
                    operation="crash",
                    expected=None,
                    got=fault,
                    steps=(),
                )
                for promise, fault in broken.items()
            ),
            notes=(*self.faults, *filter(None, [wal_warning(self.settings.get("sqlite_version"))])),
        )


# --- the work ---------------------------------------------------------------------------------------------------------


def _scopes(submissions: int, seed: int) -> tuple[Scope, ...]:
    """The sessions: the plan of each submission follows from the seed, so that every process knows it."""
    dice = random.Random(seed)
    plans = [dice.choice(_PLANS) for _ in range(submissions)]
    return tuple(
        Scope(
            name="fleet",
            plan=tuple(plans[first : first + _PER_SESSION]),
            session=f"session-{number}",
            prefix=f"k{number}s",
            pieces=2,
        )
        for number, first in enumerate(range(0, submissions, _PER_SESSION))
    )


@attrs.define
class _World:
    """The outside world as a worker sees it: what it does is written down first, in one piece."""

    scripts: Mapping[str, Script]
    """By session."""
    file: int
    dice: random.Random
    _turn: tuple[str, str] = ("", "")

    def note(self, *event: str) -> None:
        os.write(self.file, json.dumps(event).encode() + b"\n")

    def provider(self, call: ProviderCall) -> Iterator[str]:
        self.note("asks", call.submission_id, call.turn_id)
        for piece in self.scripts[call.session_key].pieces(call):
            time.sleep(self.dice.random() * 0.004)
            yield piece

    def tools(self, call: ToolCall) -> str:
        self.note("runs", *self._turn, call.id, call.input)
        time.sleep(self.dice.random() * 0.04)  # the longest part of a turn, so that many a worker dies in it
        return "done"

    def before(self, step: Step) -> None:
        """Remember whose tools are about to run."""
        if isinstance(step, ToolRun):
            self._turn = (step.submission_id, step.turn_id)


def _work(directory: Path, worker: int, submissions: int, seed: int) -> None:
    """A worker process: until nothing is unsettled. Ctrl-C is for the parent, which ends its workers."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    scripts = {scope.session: Script(scope) for scope in _scopes(submissions, seed)}
    file = os.open(directory / "world.jsonl", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    world = _World(scripts, file, random.Random(f"{seed} {worker}"))
    with open_store(directory / "store") as store:
        ask = on_store(store)

        def noted(operation: Operation) -> Decision[object]:
            answer = ask(operation)
            if isinstance(answer, Accept) and isinstance(operation, CommitTurnJournal):
                world.note("commits", operation.submission_id, operation.committed_leaf_id or "")
            return answer

        runner = Runner(
            noted, world.provider, world.tools, lease_ms=LEASE_MS, max_retry=_MAX_RETRY, between=world.before
        )
        while store.has_unsettled():
            for driver in runner.work(f"worker-{worker}", rounds=1):
                world.note("ends", driver.job.submission_id, "" if driver.end is None else driver.end.value)
            time.sleep(world.dice.random() * 0.01)


# --- the parent -------------------------------------------------------------------------------------------------------


@attrs.define
class _Fleet:
    """The worker processes, and what is done to them."""

    directory: Path
    submissions: int
    seed: int
    dice: random.Random
    processes: list[subprocess.Popen[bytes]] = attrs.Factory(list)
    frozen: dict[int, float] = attrs.Factory(dict)
    """By place: when it is to wake."""
    kills: int = 0
    freezes: int = 0
    started: int = 0

    def launch(self) -> subprocess.Popen[bytes]:
        self.started += 1
        words = [sys.executable, "-m", "turnproof.proofs.fleet", str(self.directory), str(self.started)]
        return subprocess.Popen([*words, str(self.submissions), str(self.seed)], stdout=subprocess.DEVNULL)

    def disturb(self) -> None:
        """Kill one worker, freeze one, or do nothing."""
        place = self.dice.randrange(len(self.processes))
        process = self.processes[place]
        what = self.dice.random()
        if process.poll() is not None:
            self.processes[place] = self.launch()
        elif what < 0.4:
            process.kill()
            process.wait()
            self.frozen.pop(place, None)
            self.kills += 1
            self.processes[place] = self.launch()
        elif what < 0.8 and place not in self.frozen:
            process.send_signal(signal.SIGSTOP)
            self.frozen[place] = time.monotonic() + LEASE_MS / 1000 * (1 + self.dice.random())
            self.freezes += 1

    def wake(self, *, all_of_them: bool = False) -> None:
        for place, until in list(self.frozen.items()):
            if all_of_them or time.monotonic() >= until:
                self.processes[place].send_signal(signal.SIGCONT)
                del self.frozen[place]

    def end(self) -> list[str]:
        """Let every worker wake and end by itself; what does not is killed and reported."""
        self.wake(all_of_them=True)
        late = []
        for process in self.processes:
            try:
                if process.wait(timeout=20) not in (0, -signal.SIGKILL):
                    late.append(f"a worker ended with code {process.returncode}")
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
                late.append("a worker did not end")
        return late


@attrs.define
class _Witness:
    """What was seen of the store while the run went on: it may be added to, never changed (E4, L6)."""

    settled: dict[str, Submission[str]] = attrs.Factory(dict)
    logs: dict[str, tuple[Record, ...]] = attrs.Factory(dict)

    def look(self, store: Store, scopes: tuple[Scope, ...]) -> Iterator[str]:
        for scope in scopes:
            with contextlib.suppress(RunNotFound):
                log = tuple(store.replay(run_id=scope.session))
                seen = self.logs.get(scope.session, ())
                if log[: len(seen)] != seen:
                    yield f"E4: stored records of {scope.session} changed"
                self.logs[scope.session] = log
            for submission_id in scope.submissions:
                row = store.get_submission(submission_id=submission_id)
                before = self.settled.get(submission_id)
                if before is not None and row != before:
                    yield f"L6: the settled submission {submission_id} changed"
                if row is not None and row.status is Status.SETTLED:
                    self.settled[submission_id] = row


def run_fleet(
    workers: int = 4, submissions: int = 200, seed: int | None = None, budget: float = 120.0, flush: Flush = "always"
) -> FleetReport:
    """Run it in a directory of its own, and judge what is left. ``budget`` is in seconds."""
    seed = random.SystemRandom().randrange(2**32) if seed is None else seed
    began = time.monotonic()
    scopes, witness = _scopes(submissions, seed), _Witness()
    faults: list[str] = []
    with tempfile.TemporaryDirectory(prefix="turnproof-fleet-") as name:
        directory = Path(name)
        (directory / "world.jsonl").touch()
        with open_store(directory / "store", flush=flush) as store:
            for scope in scopes:
                for admission in scope.admissions():
                    on_store(store)(admission)
            fleet = _Fleet(directory, submissions, seed, random.Random(seed))
            fleet.processes = [fleet.launch() for _ in range(workers)]
            try:
                while store.has_unsettled() and time.monotonic() - began < budget:
                    time.sleep(fleet.dice.random() * 0.3)
                    fleet.wake()
                    fleet.disturb()
                    faults += witness.look(store, scopes)
            finally:
                unfinished = store.has_unsettled()
                if unfinished:
                    for process in fleet.processes:
                        process.kill()
                ended = fleet.end()
            faults += [] if unfinished else ended
            faults += witness.look(store, scopes)
            return _report(store, scopes, fleet, workers, faults, time.monotonic() - began)


# --- the judgement ----------------------------------------------------------------------------------------------------


def _report(
    store: Store, scopes: tuple[Scope, ...], fleet: _Fleet, workers: int, faults: list[str], seconds: float
) -> FleetReport:
    events = [tuple(json.loads(line)) for line in (fleet.directory / "world.jsonl").read_bytes().splitlines()]
    world = World()
    for event in events:
        if event[0] in ("runs", "commits"):
            world, fault = act_on(world, event)
            faults += [] if fault is None else [str(fault)]
    rows = [row for scope in scopes for s in scope.submissions if (row := store.get_submission(submission_id=s))]
    interrupted = 0
    for scope in scopes:
        found, synthesised = _conversation(store, scope)
        faults += map(str, found)
        interrupted += synthesised
    kinds = Counter(event[0] for event in events)
    return FleetReport(
        workers=workers,
        submissions=fleet.submissions,
        seed=fleet.seed,
        seconds=seconds,
        kills=fleet.kills,
        freezes=fleet.freezes,
        takeovers=sum(max(row.attempt_count - 1, 0) for row in rows),
        refusals=sum(event[0] == "ends" and event[2] in ("lost", "not owner") for event in events),
        provider_calls=kinds["asks"],
        tool_runs=kinds["runs"],
        interrupted=interrupted,
        unsettled=sum(row.status is not Status.SETTLED for row in rows),
        faults=tuple(dict.fromkeys(faults)),
        settings={name: str(value) for name, value in store.settings().items()},
    )


def _conversation(store: Store, scope: Scope) -> tuple[list[Fault], int]:
    """What is wrong with a session's conversation, and how many of its results are synthesised."""
    script = Script(scope)
    rows = [row for s in scope.submissions if (row := store.get_submission(submission_id=s)) is not None]
    failed = [Fault("E5", f"{row.submission_id} failed: {row.error}") for row in rows if row.error is not None]
    try:
        messages = store.inspect(run_id=scope.session).messages
    except RunNotFound:
        return failed, 0
    except CorruptConversation as error:
        return [*failed, Fault("P3", f"{scope.session}: {error}")], 0
    faults = list(conversation_faults(script, rows, messages))
    return [*failed, *faults], sum(script.tokens.get(m, ("",))[0] == "interrupted" for m in messages)


# --- the verb's part --------------------------------------------------------------------------------------------------


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--workers", type=int, default=4, metavar="N", help="worker processes (default: %(default)s)")
    parser.add_argument(
        "--submissions", type=int, default=200, metavar="N", help="how much work (default: %(default)s)"
    )


def run(args: argparse.Namespace) -> int:
    """Run with ``args.workers``, ``args.submissions``, and ``seed`` and ``budget`` if the verb has them."""
    seen = run_fleet(
        args.workers, args.submissions, getattr(args, "seed", None), getattr(args, "budget", None) or 120.0
    )
    report, target = seen.report(), getattr(args, "json", None)
    if target is not None:
        write_json(report, target)
    if getattr(args, "junit", None) is not None:
        write_junit(report, args.junit)
    if target != "-":
        print(describe(seen))
    return report.exit


def describe(report: FleetReport) -> str:
    """The report in a few lines."""
    lines = [
        f"{report.workers} workers, {report.submissions} submissions, {report.seconds:.0f} s (seed {report.seed})",
        f"{report.kills} kills, {report.freezes} freezes, {report.takeovers} takeovers, {report.refusals} refusals, "
        f"{report.provider_calls} provider calls, {report.tool_runs} tool runs, {report.interrupted} interrupted",
    ]
    lines += [f"violation of {fault}" for fault in report.faults]
    if report.unsettled:
        lines.append(f"undecided: {report.unsettled} submissions were not settled in time")
    elif not report.faults:
        lines.append("every submission settled once, every turn committed once, no work done twice: no violation")
    return "\n".join(lines)


if __name__ == "__main__":
    _work(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))
