"""Openings: short plays that bring a store, from empty, to where a promise is at stake.

Random operations alone seldom commit a turn whose step was torn, or delete a session whose worker is still writing.
Each scene plays towards one such place, with a few choices left to the dice, and random operations go on from there.
Scenes are data for the search, not tests: what they provoke is judged by the model like everything else.
"""

from __future__ import annotations

from typing import Final

from turnproof.proofs import scenes_log, scenes_turn
from turnproof.proofs.scene import Scene

__all__ = ["SCENES"]

SCENES: Final[tuple[Scene, ...]] = (
    scenes_turn.nothing,
    scenes_turn.turn_with_tools,
    scenes_turn.takeover,
    scenes_turn.frozen,
    scenes_turn.phases,
    scenes_turn.queue,
    scenes_log.torn,
    scenes_turn.text_turn,
    scenes_turn.segments,
    scenes_turn.transfer_refused,
    scenes_log.branches,
    scenes_log.retries,
    scenes_log.in_between,
    scenes_log.guards,
    scenes_turn.deletion,
    scenes_turn.pending,
    scenes_turn.anchors,
    scenes_turn.under_a_call,
    scenes_log.corrupt,
    scenes_log.reused_calls,
    scenes_log.compactions,
    scenes_log.states,
    scenes_turn.leases,
    scenes_turn.markers,
    scenes_log.raw_repairs,
    scenes_log.legacy,
    scenes_turn.oddities,
)
"""Every scene, those first whose mistakes are the most common in the field."""
