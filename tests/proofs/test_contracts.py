"""The contracts themselves: complete, well-formed, and fed with every shape that the invariants allow."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from enum import Enum
from importlib import import_module
from itertools import product
from typing import TypeVar

import attrs
import pytest

from turnproof.model import journal, submission
from turnproof.model.journal import Anchor
from turnproof.model.promises import PROMISES
from turnproof.model.rows import Slot, Submission
from turnproof.model.vocabulary import Phase, Status, SubmissionKind
from turnproof.proofs.contracts import CONTRACTS, Contract
from turnproof.proofs.contracts.prover import conditions_of
from turnproof.proofs.contracts.reasons import NO_CONTRACT
from turnproof.proofs.contracts.registry import promises
from turnproof.proofs.contracts.shapes import Gate, make_gate, make_running, make_slot, make_submission

T = TypeVar("T")
R = TypeVar("R", bound=attrs.AttrsInstance)


def test_every_promise_has_a_contract_or_a_reason_why_it_has_none() -> None:
    proved = {promise for contract in CONTRACTS.values() if not contract.refuted for promise in contract.promises}
    assert proved | set(NO_CONTRACT) == set(PROMISES)
    assert proved & set(NO_CONTRACT) == set()
    assert all(len(reason) > 20 for reason in NO_CONTRACT.values())


def test_the_number_of_contracts_is_pinned() -> None:
    assert (sum(not c.refuted for c in CONTRACTS.values()), sum(c.refuted for c in CONTRACTS.values())) == (139, 12)


@pytest.mark.parametrize("contract", CONTRACTS.values(), ids=lambda contract: contract.name)
def test_a_contract_is_well_formed(contract: Contract) -> None:
    assert contract.name.startswith("false_" if contract.refuted else contract.name.split("_")[0])
    assert contract.refuted or contract.name.split("_")[0].upper() in contract.promises
    module = import_module(contract.module)
    function = getattr(module, contract.name)
    words = {*vars(module), "__return__", *inspect.signature(function).parameters}
    lines = [line.strip() for line in (inspect.getdoc(function) or "").splitlines()]
    conditions = [line for line in lines if line.startswith(("pre:", "post:"))]
    assert conditions_of(contract)
    for line in conditions:
        code = compile(line.partition(":")[2].strip(), contract.name, "eval")
        builtins = set(dir(__import__("builtins")))
        unknown = {name for name in code.co_names if name not in words | builtins and f".{name}" not in line}
        assert unknown == set(), line


def test_two_contracts_of_one_name_are_an_error() -> None:
    def s1_a_repeat_is_refused_whatever_its_body() -> None:
        """Another module's name."""

    with pytest.raises(ValueError, match="two contracts"):
        promises("S1")(s1_a_repeat_is_refused_whatever_its_body)


# --- the factories make exactly what the invariants allow -----------------------------------------------------------


class Scripted:
    """Answers a factory's questions from a script, and remembers how many answers each question has."""

    def __init__(self, script: list[int]) -> None:
        self.script = script
        self.widths: list[int] = []

    def __call__(self, typ: type[T], suffix: str = "", /) -> T:
        options = [False, True] if typ is bool else list(typ) if issubclass(typ, Enum) else [1]
        at = len(self.widths)
        self.widths.append(len(options))
        return options[self.script[at] if at < len(self.script) else 0]


def made(factory: Callable[[Scripted], R]) -> Iterator[R]:
    """Everything that a factory can make, over all answers to its questions."""
    scripts: list[list[int]] = [[]]
    while scripts:
        script = scripts.pop()
        maker = Scripted(script)
        yield factory(maker)
        for at in range(len(script), len(maker.widths)):
            head = [*script, *[0] * (at - len(script))]
            scripts.extend([*head, answer] for answer in range(1, maker.widths[at]))


def shape(row: attrs.AttrsInstance) -> tuple[object, ...]:
    """Which fields are absent, and the phase or status."""
    return tuple(
        value if isinstance(value, Enum) else value is None
        for value in (getattr(row, field.name) for field in attrs.fields(type(row)))
    )


SLOT = {"submission_id": 1, "session_key": 1, "kind": SubmissionKind.DISPATCH, "attempt_id": 1, "operation_id": 1}
SLOT |= {"turn_id": 1, "revision": 1, "created_at": 1, "updated_at": 1}
SLOT_OPTIONS = ("stream_key", "stream_consumed_at", "tool_request", "checkpoint_leaf_id", "committed_leaf_id")
ROW = {"submission_id": 1, "session_key": 1, "kind": SubmissionKind.DISPATCH, "payload": 1, "sequence": 1}
ROW |= {"accepted_at": 1, "attempt_count": 1}
ROW_OPTIONS = (
    *("attempt_id", "owner_id", "input_applied_at", "recovery_requested_at", "started_at", "settled_at", "error"),
)


def test_the_slots_that_are_made_have_exactly_the_shapes_that_the_invariant_allows() -> None:
    allowed = set()
    for phase, *given in product(Phase, *[(None, 1)] * len(SLOT_OPTIONS)):
        slot = Slot(**SLOT, phase=phase, **dict(zip(SLOT_OPTIONS, given, strict=True)))
        if journal.invariant(slot):
            allowed.add(shape(slot))
    found = list(made(make_slot))
    assert {shape(slot) for slot in found} == allowed
    assert len(found) == len(allowed) == 13


def every_submission() -> Iterator[Submission[int]]:
    for status, lease, *given in product(Status, (0, 1), *[(None, 1)] * len(ROW_OPTIONS)):
        options = dict(zip(ROW_OPTIONS, given, strict=True))
        yield Submission(**ROW, status=status, lease_expires_at=lease, **options)


def test_the_submissions_that_are_made_have_exactly_the_shapes_that_the_invariant_allows() -> None:
    allowed = {shape(row) for row in every_submission() if submission.invariant(row)}
    found = list(made(make_submission))
    assert {shape(row) for row in found} == allowed
    assert len(found) == len(allowed) == 13
    running = {one for one in allowed if Status.RUNNING in one}
    assert {shape(row) for row in made(make_running)} == running
    assert {row.status for row in made(make_gate)} == set(Status)


READ: set[str] = set()


class Spy(Gate):
    """A submission that remembers which of its fields were read."""

    def __getattribute__(self, name: str) -> object:
        READ.add(name)
        return super().__getattribute__(name)


def test_the_journal_reads_nothing_of_a_submission_but_what_the_gate_row_leaves_unknown() -> None:
    READ.clear()
    for gate, slot in product(made(make_gate), made(make_slot)):
        row = Spy(**attrs.asdict(gate, recurse=False))
        for phase, anchor in product(Phase, Anchor):
            journal.advance(row, slot, 1, phase, 1, 1, 1, 1, anchor, 1)
            journal.commit(row, slot, 1, 1, anchor, 1)
        journal.mark_consumed(row, slot, 1, 1, 1)
        journal.begin(row, slot, 1, 1, 1, SubmissionKind.DIRECT, 1, 1, 1)
    assert READ & {field.name for field in attrs.fields(Submission)} == {"status", "attempt_id", "session_key", "kind"}
