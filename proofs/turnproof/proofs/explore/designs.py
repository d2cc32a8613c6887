"""The wrong designs that the field shipped, each as a small variation: a few rows of the driver's table, or one choice.

Each is refuted by a shortest history. What is wrong is never stated as a law; the laws are the same as for the
reference, and the design runs into one of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, cast

import attrs

from turnproof.model import operations as ops
from turnproof.model.choices import STRICT, Choices
from turnproof.model.driver import Driver, End, Stage, Step, StoreCall
from turnproof.model.ids import result_entry_id
from turnproof.model.rebuild import INTERRUPTED, Outcome, calls_of, draft_step, rebuild_message
from turnproof.model.recovery import facts_of
from turnproof.model.rows import Draft, Record
from turnproof.model.transcript import fold
from turnproof.model.turn import TABLE, Ask, Rule, Table, Take
from turnproof.proofs.explore.scope import SCOPES, Scope

__all__ = ["DESIGNS", "Design"]


@attrs.frozen(kw_only=True)
class Design:
    """A way to do it: the reference, with what is replaced."""

    name: str
    about: str
    refuted_by: str
    """The promise that it runs into."""
    rules: Mapping[Stage, Rule] = attrs.Factory(dict)
    choices: Choices = STRICT
    stop: Callable[[Driver], Driver | None] | None = None
    scope: Scope = SCOPES["one"]

    @property
    def table(self) -> Table:
        return {**TABLE, **self.rules}

    @property
    def bounds(self) -> Scope:
        return attrs.evolve(self.scope, choices=self.choices)


def _rule(stage: Stage, *, ask: Ask | None = None, take: Take | None = None) -> Rule:
    """The reference rule of a stage with another way to ask or to take."""
    return attrs.evolve(TABLE[stage], ask=ask or TABLE[stage].ask, take=take or TABLE[stage].take)


# --- no fence -------------------------------------------------------------------------------------------------------


def _unfenced(stage: Stage) -> Rule:
    def ask(d: Driver, now: int) -> Step:
        step = TABLE[stage].ask(d, now)
        if isinstance(step, StoreCall) and isinstance(step.operation, ops.Append | ops.AppendStep):
            return StoreCall(attrs.evolve(step.operation, fence=None))
        return step

    return _rule(stage, ask=ask)


# --- the transcript is repaired before the transfer -----------------------------------------------------------------

_LOOKED: Final = "looked"


def _look_first(d: Driver, now: int) -> Step:
    """Before the transfer, look; after the look, transfer."""
    if d.decision == _LOOKED:
        return TABLE[Stage.TRANSFER].ask(d, now)
    return StoreCall(ops.GetSubmission(now=now, submission_id=d.job.submission_id))


def _found_first(d: Driver, value: object, now: int) -> Driver:
    """The row before the transfer, or the answer to the transfer."""
    return TABLE[Stage.TRANSFER].take(d, value, now)


def _repair_first(d: Driver, value: object, now: int) -> Driver:
    if d.decision == _LOOKED:
        return TABLE[Stage.LOG].take(d, value, now)
    after = TABLE[Stage.LOG].take(d, value, now)
    if after.stage is Stage.CLOSE:
        return attrs.evolve(after, decision=_LOOKED, then=Stage.TRANSFER)
    return attrs.evolve(d, stage=Stage.TRANSFER, decision=_LOOKED, row=None, slot=None)


# --- the phase is written after the tools ran -----------------------------------------------------------------------


def _tools_next(d: Driver, value: object, now: int) -> Driver:
    if calls_of(d.message):
        return attrs.evolve(d, stage=Stage.TOOLS)
    return TABLE[Stage.CONSUMED].take(d, value, now)


def _record_next(d: Driver, value: object, now: int) -> Driver:
    after = TABLE[Stage.TOOLS].take(d, value, now)
    return attrs.evolve(after, stage=Stage.RECORD) if after.stage is Stage.STORE else after


def _store_next(d: Driver, _: object, __: int) -> Driver:
    return attrs.evolve(d, stage=Stage.STORE)


# --- recovery looks at less than it should --------------------------------------------------------------------------


def _message_is_stored(d: Driver, value: object, now: int) -> Driver:
    """The request names a message; recovery takes it for stored and writes the results only."""
    after = TABLE[Stage.LOG].take(d, value, now)
    if len(after.entries) < 2 or after.entries[0].role != "assistant":
        return after
    first, *rest = after.entries[1:]
    return attrs.evolve(after, entries=(attrs.evolve(first, parent_id=after.leaf), *rest))


def _budget_first(d: Driver, value: object, now: int) -> Driver:
    tree = fold(cast("tuple[Record, ...]", value), d.job.choices)
    if facts_of(d.row, d.slot, tree, now, d.job.choices).exhausted:
        return attrs.evolve(d, stage=Stage.FAIL, error="attempts used up", row=None, slot=None)
    return TABLE[Stage.LOG].take(d, value, now)


def _own_ids(d: Driver, value: object, now: int) -> Driver:
    """Recovery names its entries after its attempt, and knows only those: it writes them at the leaf."""
    after = TABLE[Stage.LOG].take(d, value, now)
    slot = d.slot
    if after.decision != "interrupt_tools" or slot is None or slot.tool_request is None:
        return after
    tree = fold(cast("tuple[Record, ...]", value), d.job.choices)
    message = rebuild_message(slot.tool_request)
    turn = f"{slot.turn_id} of {d.job.attempt_id}"
    if result_entry_id(d.job.submission_id, turn, calls_of(message)[-1].id) in tree.index:
        return after
    entries: tuple[Draft, ...] = draft_step(
        d.job.submission_id, turn, message, _interrupted(message), tree.id_of(tree.leaf)
    )
    return attrs.evolve(after, stage=Stage.CLOSE, entries=entries, then=Stage.COMMIT)


def _interrupted(message: str) -> tuple[Outcome, ...]:
    return tuple(Outcome(call.id, INTERRUPTED, True) for call in calls_of(message))


# --- a shutdown that commits ----------------------------------------------------------------------------------------

_STOPPING: Final = "stopping"


def _commit_and_stop(d: Driver) -> Driver | None:
    """A clean shutdown in the middle of a stream: close the turn where it stands."""
    if d.stage not in (Stage.ASK, Stage.SEGMENT):
        return None
    return Driver(job=d.job, stage=Stage.COMMIT, session_key=d.session_key, leaf=d.leaf, decision=_STOPPING)


def _stop_after(d: Driver, value: object, now: int) -> Driver:
    if d.decision == _STOPPING:
        return Driver(job=d.job, stage=Stage.DONE, end=End.LOST)
    return TABLE[Stage.COMMIT].take(d, value, now)


DESIGNS: Final[Mapping[str, Design]] = {
    design.name: design
    for design in (
        Design(
            name="begin-without-ownership",
            about="the slot may be begun by anyone",
            refuted_by="E7",
            choices=Choices(begin_gate="open"),
        ),
        Design(
            name="append-without-fence",
            about="entries are appended without naming the attempt that should own the session",
            refuted_by="E7",
            rules={stage: _unfenced(stage) for stage in (Stage.INPUT, Stage.STORE, Stage.CLOSE)},
        ),
        Design(
            name="repair-before-transfer",
            about="recovery closes the open calls first and takes the submission over afterwards",
            refuted_by="C2",
            rules={
                Stage.TRANSFER: _rule(Stage.TRANSFER, ask=_look_first, take=_found_first),
                Stage.LOG: _rule(Stage.LOG, take=_repair_first),
                Stage.CLOSE: _unfenced(Stage.CLOSE),
            },
        ),
        Design(
            name="phase-after-tools",
            about="the tool request is recorded when the tools have run",
            refuted_by="E1",
            rules={
                Stage.CONSUMED: _rule(Stage.CONSUMED, take=_tools_next),
                Stage.TOOLS: _rule(Stage.TOOLS, take=_record_next),
                Stage.RECORD: _rule(Stage.RECORD, take=_store_next),
            },
        ),
        Design(
            name="request-before-message",
            about="the tool request is recorded before the message it names is stored, and recovery takes the message "
            "for stored instead of rebuilding it",
            refuted_by="P3",
            rules={Stage.LOG: _rule(Stage.LOG, take=_message_is_stored)},
        ),
        Design(
            name="budget-before-finished-work",
            about="recovery counts the attempts before it looks whether the work is done",
            refuted_by="C1",
            rules={Stage.LOG: _rule(Stage.LOG, take=_budget_first)},
            scope=attrs.evolve(SCOPES["one"], retries=(1,)),
        ),
        Design(
            name="ids-not-from-the-turn",
            about="recovery names its entries after its own attempt and finds only those again",
            refuted_by="E3",
            rules={Stage.LOG: _rule(Stage.LOG, take=_own_ids)},
        ),
        Design(
            name="shutdown-commits",
            about="a clean shutdown commits the turn that it aborts",
            refuted_by="E6",
            rules={Stage.COMMIT: _rule(Stage.COMMIT, take=_stop_after)},
            stop=_commit_and_stop,
        ),
        Design(
            name="count-reset-on-claim",
            about="a claim starts the count of attempts and the deadline anew",
            refuted_by="E5",
            choices=Choices(claim_budget="reset_each_claim"),
        ),
    )
}
"""The wrong designs by name."""
