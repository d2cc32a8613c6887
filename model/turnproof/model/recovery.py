"""Recovery: what the next attempt may do, decided by durable state alone (C1, section 8).

Whoever took a submission over (``submission.transfer`` comes first: ownership before history, C2) knows nothing of what
its predecessor did but what is stored. ``classify`` looks at seven facts and answers one decision. It is total, it
depends on nothing else, and since the decision's effect changes the facts, recovering twice equals recovering once.

Finished work is recognised before any budget is counted: a turn that is done is never made a failure because the
attempt that finds it is one too many. The rows are disjoint; each says how its state arises.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import Final

from attrs import frozen

from turnproof.model.choices import STRICT, Choices
from turnproof.model.conversation import recorded_request, recorded_step
from turnproof.model.ids import assistant_entry_id, input_entry_id
from turnproof.model.rows import Recovery, Slot, Submission
from turnproof.model.submission import counted
from turnproof.model.transcript import Damage, Transcript, hangs_below, message_of
from turnproof.model.vocabulary import Phase, Status

__all__ = ["ROWS", "Facts", "Input", "Row", "classify", "decide", "facts_of"]


class Input(Enum):
    """What is durable of the submission's input."""

    ABSENT = auto()
    STORED = auto()
    """The entry is in the log, but the submission was not marked."""
    APPLIED = auto()


@frozen(kw_only=True)
class Facts:
    """The durable state, as far as recovery depends on it."""

    running: bool
    phase: Phase | None
    """The phase of the slot if it counts: committed, or held by the current attempt; else ``None``."""
    answered: bool
    """In provider_started: the turn's assistant entry is stored as an answer without calls, and is in place."""
    exhausted: bool
    """The attempts or the time of the submission are used up."""
    input: Input
    replayable: bool
    """The stream was consumed, and the choice ``stream_recovery=replay`` was made."""


_UNCOMMITTED: Final = (None, Phase.BEFORE_PROVIDER, Phase.PROVIDER_STARTED, Phase.TOOL_REQUEST_RECORDED)
_UNASKED: Final = (None, Phase.BEFORE_PROVIDER)
_MARKED: Final = (Input.ABSENT, Input.APPLIED)
_ANY: Final = tuple(Input)


@frozen(kw_only=True)
class Row:
    """One row of the decision table: the facts that it wants, and the paragraph how they arise."""

    decision: str
    arises: str
    running: bool = True
    phases: tuple[Phase | None, ...]
    answered: bool | None = False
    exhausted: bool | None = False
    inputs: tuple[Input, ...] = _ANY
    replayable: bool | None = None

    def fits(self, facts: Facts) -> bool:
        return (
            self.running == facts.running
            and facts.phase in self.phases
            and self.answered in (None, facts.answered)
            and self.exhausted in (None, facts.exhausted)
            and facts.input in self.inputs
            and self.replayable in (None, facts.replayable)
        )


ROWS: Final = (
    Row(
        decision="none",
        running=False,
        phases=(None, *Phase),
        answered=None,
        exhausted=None,
        arises="The submission waits in the queue or is settled, or there is none: nobody owns it, so there is nothing "
        "to recover.",
    ),
    Row(
        decision="finish",
        phases=(Phase.COMMITTED,),
        answered=None,
        exhausted=None,
        arises="The attempt died after it committed a turn and before it began the next or settled. The output is in "
        "the transcript; nothing is redone.",
    ),
    Row(
        decision="commit_stored",
        phases=(Phase.PROVIDER_STARTED,),
        answered=True,
        exhausted=None,
        arises="A text-only turn died between storing its assistant message and the commit. The provider answered and "
        "the answer is durable: re-attach there and commit; asking again would say everything twice.",
    ),
    Row(
        decision="give_up",
        phases=_UNCOMMITTED,
        exhausted=True,
        arises="This submission has killed too many attempts, or ran out of time. Its open calls are closed and it is "
        "settled as failed, so that it cannot take the next worker down too (E5).",
    ),
    Row(
        decision="requeue",
        phases=_UNASKED,
        inputs=(Input.ABSENT,),
        arises="The attempt claimed and died before it wrote anything. Nothing happened: the queue may have it back.",
    ),
    Row(
        decision="mark_input",
        phases=_UNCOMMITTED,
        inputs=(Input.STORED,),
        arises="The attempt stored the input entry and died before it marked the submission. Mark it and look again; "
        "to append the input a second time would ask the question twice.",
    ),
    Row(
        decision="run_turn",
        phases=_UNASKED,
        inputs=(Input.APPLIED,),
        arises="The attempt died before the turn began or before the provider was asked. The whole turn runs, under a "
        "new turn id.",
    ),
    Row(
        decision="redrive",
        phases=(Phase.PROVIDER_STARTED,),
        inputs=_MARKED,
        replayable=False,
        arises="The provider may have been asked, and nothing it said is in the transcript. Tools were not requested, "
        "so nothing outside was done: the whole turn runs again, under a new turn id.",
    ),
    Row(
        decision="replay_stream",
        phases=(Phase.PROVIDER_STARTED,),
        inputs=_MARKED,
        replayable=True,
        arises="As above, but the stream was read to its end and its segments are stored: the captured answer is used "
        "instead of asking again.",
    ),
    Row(
        decision="interrupt_tools",
        phases=(Phase.TOOL_REQUEST_RECORDED,),
        inputs=_MARKED,
        arises="The calls are recorded and the tools may have run. Neither provider nor tool is asked again (E1, E2): "
        "stored results stay, what is open is answered 'interrupted', and the turn is committed.",
    ),
)
"""The decision table, in the order of SPEC section 8."""


def decide(facts: Facts) -> Row:
    """The one row that fits (C1)."""
    return next(row for row in ROWS if row.fits(facts))


def _answered(row: Submission[str], slot: Slot[str], tree: Transcript) -> bool:
    """Whether the turn's answer is stored in place: an assistant message that calls and answers nothing, not excluded,
    at or below the checkpoint. Anything else under its id could never be committed (A4)."""
    node = tree.index.get(assistant_entry_id(row.submission_id, slot.turn_id))
    if node is None or tree.excluded(node):
        return False
    message = message_of(tree.entries[node])
    if message is None or isinstance(message, Damage) or message.role != "assistant":
        return False
    if message.calls or message.results:
        return False
    if not slot.checkpoint_leaf_id:
        return True
    checkpoint = tree.index.get(slot.checkpoint_leaf_id)
    return checkpoint is not None and hangs_below(tree.parents, node, frozenset({checkpoint}))


def facts_of(
    row: Submission[str] | None, slot: Slot[str] | None, tree: Transcript, now: int, choices: Choices = STRICT
) -> Facts:
    """The facts of a submission, its slot and its session's transcript at ``now`` (ms)."""
    held = counted(row, slot)
    if row is None:
        return Facts(running=False, phase=None, answered=False, exhausted=False, input=Input.ABSENT, replayable=False)
    started = held is not None and held.phase is Phase.PROVIDER_STARTED
    if row.input_applied_at is not None:
        stored = Input.APPLIED
    else:
        stored = Input.STORED if input_entry_id(row.submission_id) in tree.index else Input.ABSENT
    return Facts(
        running=row.status is Status.RUNNING,
        phase=None if held is None else held.phase,
        answered=held is not None and started and _answered(row, held, tree),
        exhausted=row.attempt_count > row.max_retry or 0 < row.timeout_at <= now,
        input=stored,
        replayable=choices.stream_recovery == "replay" and held is not None and held.stream_consumed_at is not None,
    )


def classify(
    row: Submission[str] | None, slot: Slot[str] | None, tree: Transcript, now: int, choices: Choices = STRICT
) -> Recovery:
    """What recovery is to do, and the open calls it has to close, in request order (C1)."""
    decision = decide(facts_of(row, slot, tree, now, choices)).decision
    recorded = recorded_request(row, slot)
    if recorded is None or decision not in ("interrupt_tools", "give_up"):
        return Recovery(decision=decision)
    step = recorded_step(tree, recorded)
    answered = frozenset[str]() if step is None else step.answered
    return Recovery(decision=decision, open_calls=tuple(c for c in recorded.call_ids if c not in answered))
