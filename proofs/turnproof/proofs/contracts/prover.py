"""Run CrossHair on contracts, one process a contract, and read what it says.

A prover's silence is no proof: CrossHair exits with 0 also when it ran out of time. So each contract runs by itself,
in a fork of a process that has everything loaded, under an explicit limit and a fixed hash seed, and counts as proved
only when every one of its post conditions was reported as confirmed over all paths.
"""

from __future__ import annotations

import ast
import inspect
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import ExitStack
from importlib import import_module
from pathlib import Path
from queue import SimpleQueue
from typing import Final, Literal, Self, TypeAlias

import attrs

from turnproof.proofs.contracts.registry import Contract

__all__ = ["Counterexample", "Limits", "Outcome", "Proof", "Prover", "conditions_of", "prove_all", "read"]

Outcome: TypeAlias = Literal["proved", "counterexample", "undecided", "failed"]
"""``failed``: the prover itself could not work (a syntax error, an import that failed)."""

PLUGIN: Final = Path(__file__).with_name("plugin.py")
_LINE: Final = re.compile(r"^.*?:\d+: (?P<level>info|warning|error): (?P<text>.*)$")
_CALL: Final = re.compile(r"^(?P<what>.*?) ?when calling (?P<call>.*?\))(?: \(which (?P<end>.*)\))?$", re.DOTALL)
_CONFIRMED: Final = "Confirmed over all paths."
_STARTUP: Final = 30.0
"""Seconds that a process may take beyond the limit of its contract before it is killed."""


@attrs.frozen
class Counterexample:
    """The call that breaks a contract: its arguments by name, and what the step answered."""

    arguments: dict[str, str]
    outcome: str


@attrs.frozen(kw_only=True)
class Proof:
    """What came of one contract."""

    contract: Contract
    outcome: Outcome
    counterexample: Counterexample | None = None
    reason: str = ""
    seconds: float = 0.0

    @property
    def as_expected(self) -> bool:
        """Proved, or refuted where the contract is false on purpose."""
        return self.outcome == ("counterexample" if self.contract.refuted else "proved")


@attrs.frozen
class Limits:
    """How long one contract may take, in seconds, and in which surroundings it runs."""

    per_condition: float
    hash_seed: int = 0
    first_on_path: Path | None = None
    """A directory whose model stands before the real one (seeded errors)."""


def conditions_of(contract: Contract) -> tuple[str, ...]:
    """The post conditions of a contract, as written."""
    function = getattr(import_module(contract.module), contract.name)
    lines = (line.strip() for line in (inspect.getdoc(function) or "").splitlines())
    return tuple(line.removeprefix("post:").strip() for line in lines if line.startswith("post:"))


@attrs.define(eq=False)
class Prover:
    """A process with CrossHair loaded, which proves one contract after the other (``warm``). Close it when done."""

    limits: Limits
    _process: subprocess.Popen[str] = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        environment = {**os.environ, "PYTHONHASHSEED": str(self.limits.hash_seed)}
        if self.limits.first_on_path is not None:
            paths = [str(self.limits.first_on_path), environment.get("PYTHONPATH")]
            environment["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
        self._process = subprocess.Popen(
            [sys.executable, "-m", "turnproof.proofs.contracts.warm"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            encoding="utf-8",
            env=environment,
            start_new_session=True,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.killpg(self._process.pid, signal.SIGKILL)  # a proof that is under way too
        self._process.communicate()

    def prove(self, contract: Contract) -> Proof:
        """Have CrossHair go through every path of one contract."""
        limit = str(self.limits.per_condition)
        arguments = ["check", contract.target, "--report_all", "--analysis_kind", "PEP316"]
        arguments += ["--extra_plugin", str(PLUGIN), "--per_condition_timeout", limit, "--per_path_timeout", limit]
        patience = self.limits.per_condition * len(conditions_of(contract)) * 3 + _STARTUP
        started = time.monotonic()
        said = self._ask(json.dumps([arguments, patience]))
        seconds = time.monotonic() - started
        if said is None:
            return Proof(contract=contract, outcome="failed", reason="the prover's process died", seconds=seconds)
        if said["late"]:
            reason = "the prover did not end in time"
            return Proof(contract=contract, outcome="undecided", reason=reason, seconds=seconds)
        return attrs.evolve(read(contract, said["output"], said["errors"]), seconds=seconds)

    def _ask(self, line: str) -> dict[str, str] | None:
        assert self._process.stdin is not None and self._process.stdout is not None
        try:
            self._process.stdin.write(f"{line}\n")
            self._process.stdin.flush()
            answer = self._process.stdout.readline()
        except (OSError, ValueError):  # it was killed, or closed
            return None
        said: dict[str, str] | None = json.loads(answer) if answer else None
        return said


def read(contract: Contract, output: str, errors: str = "") -> Proof:
    """What the prover's output says about a contract."""
    found = [match for match in map(_LINE.match, output.splitlines()) if match is not None]
    texts = [match["text"] for match in found]
    for match in found:
        call = _CALL.match(match["text"]) if match["level"] == "error" else None
        if call is not None:
            outcome = call["end"] or call["what"]
            example = Counterexample(_arguments(contract, call["call"]), outcome.removeprefix("returns "))
            return Proof(contract=contract, outcome="counterexample", counterexample=example, reason=call["what"])
        if match["level"] == "error":
            return Proof(contract=contract, outcome="failed", reason=match["text"])
    if not found:
        last = (errors or output).strip().splitlines()[-1:] or ["it said nothing"]
        return Proof(contract=contract, outcome="failed", reason=last[0])
    confirmed, expected = texts.count(_CONFIRMED), len(conditions_of(contract))
    if confirmed == len(texts) == expected:
        return Proof(contract=contract, outcome="proved")
    reason = next((text for text in texts if text != _CONFIRMED), f"{confirmed} of {expected} conditions confirmed")
    return Proof(contract=contract, outcome="undecided", reason=reason)


def _arguments(contract: Contract, call: str) -> dict[str, str]:
    """The arguments of the call that CrossHair prints, by parameter; what is absent (``None``) is left out."""
    names = list(inspect.signature(getattr(import_module(contract.module), contract.name)).parameters)
    try:
        tree = ast.parse(call, mode="eval").body
    except SyntaxError:
        return {"call": call}
    if not isinstance(tree, ast.Call):
        return {"call": call}
    given = dict(zip(names, tree.args, strict=False)) | {word.arg or "": word.value for word in tree.keywords}
    return {name: ast.unparse(_Brief().visit(value)) for name, value in given.items()}


class _Brief(ast.NodeTransformer):
    """Drop the keywords that say ``None``: a row reads better by what it has."""

    def visit_Call(self, node: ast.Call) -> ast.Call:
        node.keywords = [
            word for word in node.keywords if not (isinstance(word.value, ast.Constant) and word.value.value is None)
        ]
        self.generic_visit(node)
        return node


def prove_all(
    contracts: Iterable[Contract],
    limits: Limits,
    *,
    jobs: int,
    deadline: float | None,
    stop_at_first: bool = False,
    seen: Callable[[Proof], None] = lambda proof: None,
) -> list[Proof]:
    """The proofs of all contracts, in their order; what the deadline cuts off is undecided.

    ``stop_at_first`` leaves out what has not begun once a true contract is refuted.
    """
    chosen = list(contracts)
    proofs: dict[str, Proof] = {}
    free: SimpleQueue[Prover] = SimpleQueue()

    def one(contract: Contract) -> Proof | None:
        if deadline is not None and time.monotonic() >= deadline:
            return Proof(contract=contract, outcome="undecided", reason="the budget ran out")
        if stop_at_first and any(p.outcome == "counterexample" and not p.contract.refuted for p in proofs.values()):
            return None
        prover = free.get()
        try:
            return prover.prove(contract)
        finally:
            free.put(prover)

    with ThreadPoolExecutor(jobs) as pool, ExitStack() as open_ones:  # provers end first, also when interrupted
        for _ in range(min(jobs, len(chosen))):
            free.put(open_ones.enter_context(Prover(limits)))
        open_ones.callback(pool.shutdown, wait=False, cancel_futures=True)
        for future in as_completed([pool.submit(one, contract) for contract in chosen]):
            proof = future.result()
            if proof is not None:
                proofs[proof.contract.name] = proof
                seen(proof)
    return [proofs[contract.name] for contract in chosen if contract.name in proofs]
