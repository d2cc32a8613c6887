"""What a contract is, and the words in which contracts are written.

A contract is a function that calls one of the model's own step functions (never a copy) on arguments about which only
its ``pre:`` lines are known, and whose ``post:`` line is the promise. CrossHair runs it on symbolic arguments and
follows every path. The words here keep the ``post:`` lines short: a promise should read as one sentence.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, TypeVar

import attrs

from turnproof.model.decision import Accept, Decision, Fail
from turnproof.model.vocabulary import ErrorCode

__all__ = ["CONTRACTS", "Contract", "accepted", "error", "keeps", "kept", "promises", "same"]

F = TypeVar("F", bound=Callable[..., object])
T = TypeVar("T")


@attrs.frozen(kw_only=True)
class Contract:
    """One contract: where it is, which promises it proves, and within which bounds."""

    name: str
    module: str
    layer: str
    promises: tuple[str, ...]
    bounds: str
    """How long sequences may be; empty when the arguments are not bounded at all."""
    refuted: bool
    """A contract that is false on purpose: the prover must find out."""

    @property
    def target(self) -> str:
        return f"{self.module}.{self.name}"


CONTRACTS: Final[dict[str, Contract]] = {}
"""Every contract by name, in the order of the modules."""


def promises(*ids: str, bounds: str = "", refuted: bool = False) -> Callable[[F], F]:
    """Enter a function into the registry as a contract for ``ids``. The function itself stays as it is."""

    def enter(function: F) -> F:
        name = function.__name__
        if name in CONTRACTS and CONTRACTS[name].module != function.__module__:
            raise ValueError(f"two contracts are named {name}")
        CONTRACTS[name] = Contract(
            name=name,
            module=function.__module__,
            layer=function.__module__.rpartition(".")[2],
            promises=ids,
            bounds=bounds,
            refuted=refuted,
        )
        return function

    return enter


# --- the words of the post conditions -------------------------------------------------------------------------------


def accepted(decision: Decision[T]) -> T | None:
    """The new row, or ``None`` when the decision was a refusal or an error."""
    return decision.value if isinstance(decision, Accept) else None


def error(decision: Decision[object]) -> ErrorCode | None:
    """The error code, or ``None`` when the decision was no error."""
    return decision.code if isinstance(decision, Fail) else None


def keeps(invariant: Callable[[T], bool], decision: Decision[T]) -> bool:
    """The inductive step: whatever is accepted satisfies the invariant again."""
    return not isinstance(decision, Accept) or invariant(decision.value)


def same(one: attrs.AttrsInstance | None, other: attrs.AttrsInstance | None) -> bool:
    """Equality of two rows, field by field. An untouched field is the same object, which costs the prover nothing."""
    if one is None or other is None:
        return one is other
    return kept(one, other, ())


def kept(before: attrs.AttrsInstance, after: attrs.AttrsInstance, but: Iterable[str]) -> bool:
    """The frame: every field other than ``but`` has the value that it had."""
    changed = tuple(but)
    return all(
        getattr(before, field.name) is getattr(after, field.name)
        or getattr(before, field.name) == getattr(after, field.name)
        for field in attrs.fields(type(before))
        if field.name not in changed
    )
