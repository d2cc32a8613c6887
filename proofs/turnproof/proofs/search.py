"""The search for a divergence: Hypothesis draws histories, plays them on a subject, and shrinks what differs.

A history is drawn as bytes, sixteen for a step, and each step is made from its bytes and the state that the model is in
(``draw``): thousands of steps a second, and every deletion or lowering of bytes is again a history. Runs take the
scenes in turn, so that a short budget has been at every promise.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import attrs
import hypothesis
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.configuration import set_hypothesis_home_dir
from hypothesis.errors import Flaky

from turnproof.model.choices import Choices
from turnproof.proofs.adapter import AdapterFailure
from turnproof.proofs.dice import BYTES, PATIENT, Dice
from turnproof.proofs.draw import draw
from turnproof.proofs.history import Divergence, History, Move, Tally, on_empty_store, play
from turnproof.proofs.scene import Play, Scene
from turnproof.proofs.scenes import SCENES
from turnproof.proofs.shrink import minimise
from turnproof.proofs.subjects import Subject

__all__ = ["Budget", "Search"]

_LONGEST: Final = 60
"""Random steps after a scene, at most."""

_PER_SCENE: Final = 6
"""Histories of one scene before the next has its turn."""

_FIRST: Final = 2
"""The same, and a third of the steps, the first time round: a short budget shall have been everywhere."""

_SHRINK_SECONDS: Final = 2.0
"""For Hypothesis, which sees bytes."""

_MINIMISE_SECONDS: Final = 10.0
"""Then the operations themselves are made fewer; a bound that is hardly ever met."""

_STEP: Final = st.binary(min_size=BYTES, max_size=BYTES)
_START: Final = 1_000_000


class _TimeIsUp(BaseException):
    """Leaves Hypothesis at once; not an ``Exception``, which it would take for a failing test."""


class _Unjudged(BaseException):
    """Carries an adapter failure past Hypothesis, which would try to shrink it."""

    def __init__(self, failure: AdapterFailure) -> None:
        super().__init__(failure)
        self.failure = failure


@attrs.frozen
class Budget:
    """When to stop: at a time (of ``time.monotonic``), or after a number of histories.

    With ``least`` operations a slow machine may go on past ``until``, up to ``latest``.
    """

    until: float
    examples: int | None = None
    least: int = 0
    latest: float = 0.0

    def is_over(self, tally: Tally) -> bool:
        return time.monotonic() > (self.latest if tally.operations < self.least else self.until)


@attrs.define
class Search:
    """A search on one subject. ``tally`` is what was compared so far."""

    subject: Subject
    choices: Choices
    directory: Path
    seed: int
    tally: Tally = attrs.Factory(Tally)
    progress: Callable[[Tally], None] = lambda _: None
    shrink_seconds: float = _SHRINK_SECONDS
    _stores: int = 0
    _found: Divergence | None = None
    _budget: Budget = Budget(0.0)

    def run(self, budget: Budget) -> Divergence | None:
        """Search until something differs or the budget is spent; the shortest divergence found.

        Raises ``AdapterFailure`` when the subject could not be judged to the end.
        """
        self._budget = budget
        rounds = 0
        set_hypothesis_home_dir(self.directory)  # it caches on disk, and nothing shall be left where a check was run
        try:
            while not self._spent(budget):
                self._round(SCENES[rounds % len(SCENES)], rounds, budget)
                rounds += 1
        except (_TimeIsUp, Divergence, Flaky):
            pass  # what was found is kept; a subject that answers by chance (Flaky) diverged all the same
        except _Unjudged as unjudged:
            raise unjudged.failure from None
        finally:
            set_hypothesis_home_dir(None)
        if self._found is None:
            return None
        return minimise(self._found, self._play, time.monotonic() + _MINIMISE_SECONDS)

    def _spent(self, budget: Budget) -> bool:
        enough = budget.examples is not None and self.tally.sequences >= budget.examples
        return enough or budget.is_over(self.tally)

    def _round(self, scene: Scene, number: int, budget: Budget) -> None:
        """Some histories that open with one scene."""
        first = number < len(SCENES)
        count, longest = (_FIRST, _LONGEST // 3) if first else (_PER_SCENE, _LONGEST)
        if budget.examples is not None:
            count = min(count, budget.examples - self.tally.sequences)

        @hypothesis.seed(f"{self.seed}/{number}")
        @settings(
            max_examples=count,
            database=None,
            deadline=None,
            phases=[Phase.generate, Phase.shrink],
            suppress_health_check=PATIENT,
            report_multiple_bugs=False,
        )
        @hypothesis.given(_STEP, st.lists(_STEP, min_size=longest // 3, max_size=longest))
        def histories(opening: bytes, steps: list[bytes]) -> None:
            self._history(scene, opening, steps)

        histories()

    def _history(self, scene: Scene, opening: bytes, steps: list[bytes]) -> None:
        """Play one drawn history. Raises ``Divergence``."""
        if self._budget.is_over(self.tally):
            raise _TimeIsUp
        tally = self.tally if self._found is None else Tally()
        tally.sequences += 1
        path = self._fresh()
        with on_empty_store(self.subject, path):
            history = History(self.subject, path, self.choices, tally)
            try:
                self._play_scene(history, scene, opening, steps)
            except Divergence as divergence:
                self._keep(divergence)
                raise
            except AdapterFailure as failure:
                raise _Unjudged(failure) from None
        self.progress(self.tally)

    def _play_scene(self, history: History, scene: Scene, opening: bytes, steps: list[bytes]) -> None:
        prologue = Play(Dice(opening))
        scene(prologue)
        for move in prologue.steps:
            history.move(move)
        now = _START
        for step in steps:
            dice = Dice(step)
            now += dice.pick((10, 0, -5))
            history.move(draw(history.state, dice, now, self.choices))
        history.finish()

    def _keep(self, divergence: Divergence) -> None:
        """Remember the shortest; the first one starts the clock for shrinking."""
        if self._found is None:
            self._budget = Budget(time.monotonic() + self.shrink_seconds)
        if self._found is None or len(divergence.moves) < len(self._found.moves):
            self._found = divergence

    def _play(self, moves: Sequence[Move], thorough: bool) -> Divergence | None:
        return play(self.subject, self._fresh(), moves, self.choices, thorough=thorough)

    def _fresh(self) -> Path:
        self._stores += 1
        return self.directory / f"store{self._stores}"
