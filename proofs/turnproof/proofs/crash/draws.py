"""Random scenarios: Hypothesis draws a history, it is crashed at every write, and what fails is made short.

A history is drawn as `turnproof check` draws one (a scene, then random steps from the state that the model is in), with
closing, reopening and checkpoints among the steps. Hypothesis shrinks the bytes that it was made of; then steps are
left out one by one for as long as some crash still fails. Points are tried in order, so the crash that is reported is
the earliest of the shortest history.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from typing import Final

import attrs
import hypothesis
from hypothesis import Phase, settings
from hypothesis import strategies as st

from turnproof.model.choices import STRICT
from turnproof.model.operations import Operation
from turnproof.model.state import EMPTY
from turnproof.proofs.crash.script import Scenario, Step
from turnproof.proofs.crash.stage import ALWAYS, Nonconforming, Played, Setting, record
from turnproof.proofs.crash.sweep import Counts, Crash, Mode, sweep
from turnproof.proofs.dice import BYTES, PATIENT, Dice
from turnproof.proofs.draw import draw
from turnproof.proofs.scene import Play
from turnproof.proofs.scenes import SCENES
from turnproof.proofs.subjects import expected

__all__ = ["Drawn", "scenario_of", "shorten", "sweep_drawn"]

_LONGEST: Final = 12
_START: Final = 1_000_000
_STEP: Final = st.binary(min_size=BYTES, max_size=BYTES)


class _Found(Exception):
    """Some crash of a drawn history fails; not a violation of Hypothesis' own."""


class _TimeIsUp(BaseException):
    """Leaves Hypothesis at once."""


@attrs.define
class Drawn:
    """What came of drawing."""

    histories: int = 0
    counts: Counts = attrs.field(factory=Counts)
    found: tuple[Played, Crash] | None = None


def scenario_of(scene: int, opening: bytes, draws: Sequence[bytes]) -> Scenario:
    """The scenario that these bytes are."""
    play = Play(Dice(opening))
    SCENES[scene % len(SCENES)](play)
    state, now, steps = EMPTY, _START, [Step("open")]
    for move in play.steps:
        if isinstance(move, Operation):
            state = expected(move, state, STRICT).state
        steps += _steps(move)
    for data in draws:
        dice = Dice(data)
        now += dice.pick((10, 0, -5))
        drawn = draw(state, dice, now, STRICT)
        if isinstance(drawn, Operation):
            state = expected(drawn, state, STRICT).state
            if drawn.reads:
                drawn = "checkpoint"
        steps += _steps(drawn)
    return Scenario(name="drawn", steps=tuple(steps), wal_autocheckpoint=(1000, 3)[opening[-1] % 2])


def _steps(move: Operation | str) -> list[Step]:
    if isinstance(move, Operation):
        return [] if move.reads else [Step(move)]
    return [Step("checkpoint")] if move == "checkpoint" else [Step("close"), Step("open")]


def sweep_drawn(
    modes: Sequence[Mode], setting: Setting = ALWAYS, *, until: float, seed: int, examples: int = 1_000_000
) -> Drawn:
    """Draw and crash histories until the time ``until`` or until one fails."""
    result = Drawn()

    @hypothesis.seed(seed)
    @settings(
        max_examples=examples,
        database=None,
        deadline=None,
        phases=[Phase.generate, Phase.shrink],
        suppress_health_check=PATIENT,
        report_multiple_bugs=False,
    )
    @hypothesis.given(st.integers(0, len(SCENES) - 1), _STEP, st.lists(_STEP, max_size=_LONGEST))
    def histories(scene: int, opening: bytes, draws: list[bytes]) -> None:
        if time.monotonic() > until:
            raise _TimeIsUp
        failed = _first(scenario_of(scene, opening, draws), modes, setting, until, result.counts)
        result.histories += 1
        if failed is not None:
            result.found = failed
            raise _Found

    with contextlib.suppress(_TimeIsUp, _Found):
        histories()
    if result.found is not None:
        result.found = shorten(result.found, modes, time.monotonic() + 10)
    return result


def _first(
    scenario: Scenario, modes: Sequence[Mode], setting: Setting, until: float, counts: Counts | None = None
) -> tuple[Played, Crash] | None:
    """The first crash of a scenario that fails."""
    played = record(scenario, setting)
    for mode in modes:
        swept = sweep(played, mode, until)
        if counts is not None:
            counts.add(swept.counts)
        if swept.crashes:
            return played, swept.crashes[0]
    return None


def shorten(found: tuple[Played, Crash], modes: Sequence[Mode], until: float) -> tuple[Played, Crash]:
    """The shortest history that still fails, and its earliest crash: steps are left out for as long as one does."""
    best = found
    for parts in (_without_step, _without_prior):
        at = 0
        while time.monotonic() < until:
            scenario = best[0].scenario
            shorter = parts(scenario, at)
            if shorter is None:
                break
            try:
                failed = _first(shorter, modes, best[0].setting, until)
            except (Nonconforming, KeyError):
                failed = None  # left out what the rest needs: an open, say
            if failed is None:
                at += 1
            else:
                best = failed
    return best


def _without_step(scenario: Scenario, at: int) -> Scenario | None:
    """The scenario without the step at this place from the end."""
    place = len(scenario.steps) - 1 - at
    if place < 1:
        return None
    return attrs.evolve(scenario, steps=(*scenario.steps[:place], *scenario.steps[place + 1 :]))


def _without_prior(scenario: Scenario, at: int) -> Scenario | None:
    place = len(scenario.prior) - 1 - at
    if place < 0:
        return None
    return attrs.evolve(scenario, prior=(*scenario.prior[:place], *scenario.prior[place + 1 :]))
