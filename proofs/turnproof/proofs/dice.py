"""A handful of random bytes as a row of choices.

Hypothesis draws plain bytes, which it draws and shrinks fast; a ``Dice`` reads them as answers to small questions. Zero
bytes give the first answer to each, so that first answers should be the plain ones: then what shrinks gets plainer.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeVar

from hypothesis import HealthCheck

__all__ = ["BYTES", "PATIENT", "Dice"]

T = TypeVar("T")

BYTES: Final = 16
"""Bytes for one step: enough for every question that a step asks; what comes after gets first answers."""

PATIENT: Final = (HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example)
"""Health checks that are about the speed of a test suite. Here a store is judged, and a slow one is not refused."""


class Dice:
    """Choices read from bytes, one after the other."""

    def __init__(self, data: bytes) -> None:
        self._left = int.from_bytes(data, "little")

    def below(self, sides: int) -> int:
        """A number from 0 to ``sides - 1``."""
        self._left, face = divmod(self._left, sides)
        return face

    def pick(self, options: Sequence[T]) -> T:
        return options[self.below(len(options))]

    def rarely(self, sides: int = 4) -> bool:
        """True once in ``sides``; the plain answer is False."""
        return self.below(sides) == sides - 1
