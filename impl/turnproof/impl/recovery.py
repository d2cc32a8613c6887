"""What the next attempt of a submission may do, read from durable state alone (C1, section 8).

The rules are written here a second time, on purpose: in the order of the decision table, top to bottom, over the rows
and the folded log of this store. Comparing it with the model's table is worth something only because it is not that
table.
"""

from __future__ import annotations

import sqlite3
from typing import Final

from turnproof.impl import log
from turnproof.impl.checks import text
from turnproof.impl.columns import slots, submissions
from turnproof.impl.conversation import Conversation
from turnproof.impl.log import GENESIS
from turnproof.impl.pairing import Request, open_calls, recorded_step
from turnproof.impl.transcript import ROOT, Damage, Transcript
from turnproof.model.ids import assistant_entry_id, input_entry_id
from turnproof.model.rows import Recovery, Slot, Submission
from turnproof.model.vocabulary import Phase, Status

__all__ = ["Recoverable"]

_UNASKED: Final = (None, Phase.BEFORE_PROVIDER)


class Recoverable(Conversation):
    """The read that recovery starts from."""

    def recover(self, submission_id: str, *, now: int | None = None) -> Recovery:
        """What may be done about a submission at ``now`` (ms), and the calls that are open, in request order (C1).

        Nothing is written, and nothing but the stored state is looked at: asking twice answers the same. Transfer
        first (``replace_turn_journal_attempt``), then ask (C2). Raises ``InvalidArgument``, ``StorageDamaged``.
        """
        text("submission_id", submission_id)
        moment = self._time(now)
        with self._pool.snapshot() as connection:
            rows = submissions(connection, "WHERE submission_id = ?", (submission_id,))
            if not rows or rows[0].status is not Status.RUNNING:
                return Recovery(decision="none")
            held = slots(
                connection,
                "WHERE submission_id = ? AND (phase = 'committed' OR attempt_id = ?)",
                (submission_id, rows[0].attempt_id),
            )
            return _decide(connection, rows[0], held[0] if held else None, moment)


def _decide(connection: sqlite3.Connection, row: Submission[str], slot: Slot[str] | None, now: int) -> Recovery:
    """The first line that fits decides: finished work is recognised before any budget is counted."""
    phase = None if slot is None else slot.phase
    calls: tuple[str, ...] = ()
    if phase is Phase.COMMITTED:
        return Recovery(decision="finish")
    tree = _fold(connection, row.session_key)
    if slot is not None and phase is Phase.PROVIDER_STARTED and _answer_stands(tree, slot):
        return Recovery(decision="commit_stored")
    if slot is not None and phase is Phase.TOOL_REQUEST_RECORDED:
        calls = _open_calls(tree, slot)
    if row.attempt_count > row.max_retry or 0 < row.timeout_at <= now:
        return Recovery(decision="give_up", open_calls=calls)
    if row.input_applied_at is None:
        if input_entry_id(row.submission_id) in tree.index:
            return Recovery(decision="mark_input")
        if phase in _UNASKED:
            return Recovery(decision="requeue")
    if phase in _UNASKED:
        return Recovery(decision="run_turn")
    if phase is Phase.PROVIDER_STARTED:
        return Recovery(decision="redrive")
    return Recovery(decision="interrupt_tools", open_calls=calls)


def _fold(connection: sqlite3.Connection, run_id: str) -> Transcript:
    """The session's log, verified from end to end and folded; empty when there is none (R14)."""
    tree = Transcript()
    head = log.head_of(connection, run_id)
    if head is not None:
        for record, _ in log.walk(connection, run_id, head, 0, GENESIS):
            tree.add(record)
    return tree


def _answer_stands(tree: Transcript, slot: Slot[str]) -> bool:
    """Whether the turn's text answer is stored in place: an assistant message and nothing but that, not excluded, at or
    below the checkpoint."""
    node = tree.index.get(assistant_entry_id(slot.submission_id, slot.turn_id), ROOT)
    if node == ROOT or tree.excluded(node):
        return False
    message = tree.facts[node]
    if message is None or isinstance(message, Damage):
        return False
    if message.role != "assistant" or message.calls or message.results:
        return False
    checkpoint = tree.index.get(slot.checkpoint_leaf_id, ROOT) if slot.checkpoint_leaf_id else ROOT
    return not slot.checkpoint_leaf_id or (checkpoint != ROOT and tree.is_below(node, (checkpoint,)))


def _open_calls(tree: Transcript, slot: Slot[str]) -> tuple[str, ...]:
    """The recorded calls that the recorded step does not answer; all of them when it is not stored."""
    request = Request(slot.submission_id, slot.turn_id, slot.tool_request or "", slot.checkpoint_leaf_id or "")
    step = recorded_step(tree, request)
    return request.calls if step is None else open_calls(request, step)
