"""The three kinds of answer (SPEC section 0): accepted, refused, error.

Every rule of the model returns a ``Decision`` and names the promise that decided it, so that a run can count
which promises it exercised and a verdict can name the one that a store breaks. A refusal is normal (the state did
not allow it); an error means that the arguments or the stored data are bad. Neither writes anything.
"""

from __future__ import annotations

from typing import Generic, TypeAlias, TypeVar

from attrs import frozen

from turnproof.model.vocabulary import ErrorCode

__all__ = ["Accept", "Decision", "Fail", "Refuse"]

T = TypeVar("T", covariant=True)


@frozen
class Accept(Generic[T]):
    """It happened; ``value`` is the new row, or what is answered."""

    value: T
    rule: str


@frozen
class Refuse:
    """The state did not allow it; nothing was written."""

    rule: str


@frozen
class Fail:
    """Arguments or stored data are bad; nothing was written. ``message`` names the thing and what to do."""

    code: ErrorCode
    rule: str
    message: str


Decision: TypeAlias = Accept[T] | Refuse | Fail
