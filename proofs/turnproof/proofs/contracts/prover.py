"""Run CrossHair on contracts, one process a contract, and read what it says.

A prover's silence is no proof: CrossHair exits with 0 also when it ran out of time. So each contract runs by itself,
under an explicit limit and a fixed hash seed, and counts as proved only when every one of its post conditions was
reported as confirmed over all paths.
"""

from __future__ import annotations

import ast
import inspect
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor, as_completed
from importlib import import_module
from pathlib import Path
from typing import Final, Literal, TypeAlias

import attrs

from turnproof.proofs.contracts.registry import Contract

__all__ = ["Counterexample", "Limits", "Outcome", "Proof", "conditions_of", "prove", "prove_all", "read"]

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


def prove(contract: Contract, limits: Limits) -> Proof:
    """Have CrossHair go through every path of one contract."""
    command = [sys.executable, "-m", "crosshair", "check", contract.target, "--report_all"]
    command += ["--analysis_kind", "PEP316", "--extra_plugin", str(PLUGIN)]
    command += ["--per_condition_timeout", str(limits.per_condition), "--per_path_timeout", str(limits.per_condition)]
    environment = {**os.environ, "PYTHONHASHSEED": str(limits.hash_seed)}
    if limits.first_on_path is not None:
        environment["PYTHONPATH"] = os.pathsep.join(
            filter(None, [str(limits.first_on_path), environment.get("PYTHONPATH")])
        )
    patience = limits.per_condition * len(conditions_of(contract)) * 3 + _STARTUP
    started = time.monotonic()
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=patience, env=environment, check=False, encoding="utf-8"
        )
    except subprocess.TimeoutExpired:
        seconds = time.monotonic() - started
        return Proof(contract=contract, outcome="undecided", reason="the prover did not end in time", seconds=seconds)
    return attrs.evolve(read(contract, done.stdout, done.stderr), seconds=time.monotonic() - started)


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

    def one(contract: Contract) -> Proof | None:
        if deadline is not None and time.monotonic() >= deadline:
            return Proof(contract=contract, outcome="undecided", reason="the budget ran out")
        if stop_at_first and any(p.outcome == "counterexample" and not p.contract.refuted for p in proofs.values()):
            return None
        return prove(contract, limits)

    with ThreadPoolExecutor(jobs) as pool:
        for future in as_completed([pool.submit(one, contract) for contract in chosen]):
            proof = future.result()
            if proof is not None:
                proofs[proof.contract.name] = proof
                seen(proof)
    return [proofs[contract.name] for contract in chosen if contract.name in proofs]
