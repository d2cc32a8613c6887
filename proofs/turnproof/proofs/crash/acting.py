"""Turns as lists of operations, read off the reference driver (``turnproof.model.turn``) by running it on the model.

The driver decides what a worker, or a recovery, does next; provider and tools are stand-ins that always say the same.
So a crash in "a whole turn with tools" is one in the very order of writes that SPEC section 8 demands, and "recovery is
run" means the reference recovery.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from turnproof.model.choices import STRICT
from turnproof.model.driver import Answer, Assemble, Job, Piece, ProviderCall, Said, Step, StoreCall, ToolRun
from turnproof.model.operations import Operation
from turnproof.model.rebuild import Outcome
from turnproof.model.state import State
from turnproof.model.system import apply
from turnproof.model.turn import carry
from turnproof.proofs import talk

__all__ = ["ANSWER", "CALLS", "perform"]

ANSWER: Final = talk.says("done", "assistant")
CALLS: Final = talk.assistant("c1", "c2", text="let me see")
_PIECES: Final = 2
_LIMIT: Final = 200
"""Steps after which a driver that does not end is a mistake of ours."""


def perform(
    state: State, job: Job, says: Sequence[str] = (ANSWER,), now: int = 0, tick: int = 10
) -> tuple[Operation, ...]:
    """The store operations of one attempt from ``state``; the provider says ``says`` in turn, the last for ever."""
    clock = iter(range(now + tick, now + tick * _LIMIT * 4, tick))
    driver = carry(job, lambda: next(clock))
    said, done = list(says), []
    step = next(driver)
    for _ in range(_LIMIT):
        if isinstance(step, StoreCall):
            done.append(step.operation)
            state, answer = apply(state, step.operation, STRICT)
            reply: Answer = answer
        else:
            reply = _stand_in(step, said)
        try:
            step = driver.send(reply)
        except StopIteration:
            return tuple(done)
    raise RuntimeError(f"the driver of {job} does not end")


def _stand_in(step: Step, said: list[str]) -> Answer:
    """What provider and tools answer."""
    match step:
        case ProviderCall(received=received) if received < _PIECES:
            return Piece(f"piece {received}")
        case ProviderCall() | Assemble():
            return Said(said.pop(0) if len(said) > 1 else said[0])
        case ToolRun(calls=calls):
            return Outcome(calls[0].id, '"ok"')
        case _:
            raise RuntimeError(f"no answer to {step}")
