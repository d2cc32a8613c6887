"""Promises that no single rule decides: seen from outside, by what a history did.

The model names the promise that decided an answer. A few promises are about what does *not* count (a call id answered
in an earlier step, a late child of an excluded entry): they are exercised when the situation arises, and that is looked
for here, so that a run cannot claim them without having been there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from turnproof.model import operations as ops
from turnproof.model.choices import Choices
from turnproof.model.ids import split_stream_key
from turnproof.model.operations import Operation
from turnproof.model.rows import Draft
from turnproof.model.state import State
from turnproof.model.transcript import Damage, Transcript, message_of
from turnproof.model.vocabulary import Status
from turnproof.proofs.subjects import Expected
from turnproof.proofs.wire import Err

__all__ = ["witnessed"]


def witnessed(before: State, operation: Operation, model: Expected, choices: Choices) -> Iterator[str]:
    """The promises that this operation exercised by the situation that it met."""
    match operation:
        case ops.AppendStreamSegment(stream_key=key):
            if _is_stale(before, key):
                yield "S5"
        case ops.Append(run_id=run, record=record):
            if model.state is not before and _below_excluded(before.transcript(run, choices), [record]):
                yield "P5"
        case ops.AppendStep(run_id=run, records=records):
            if model.state is not before and _below_excluded(before.transcript(run, choices), records):
                yield "P5"
        case ops.SetLeaf(run_id=run, entry_id=entry):
            tree = before.transcript(run, choices)
            if model.state is not before and entry in tree.index and tree.excluded(tree.index[entry]):
                yield "P5"
        case ops.Inspect(run_id=run) | ops.Restore(run_id=run):
            yield from _conversation(before.transcript(run, choices), model)
        case _:
            pass


def _is_stale(state: State, key: str) -> bool:
    """Whether a segment goes under the minted key of an attempt that does not own its submission (any more)."""
    minted = split_stream_key(key)
    row = None if minted is None else state.submissions.get(minted[0])
    return minted is not None and row is not None and row.status is Status.RUNNING and row.attempt_id != minted[2]


def _below_excluded(tree: Transcript, records: Iterable[Draft]) -> bool:
    """Whether a record hangs below an entry that a repair excluded, or a branch selects one."""
    return any(
        record.parent_id in tree.index and tree.excluded(tree.index[record.parent_id])
        for record in records
        if record.entry_id or record.kind == "branch"
    )


def _conversation(tree: Transcript, model: Expected) -> Iterator[str]:
    """What reading a conversation shows: messages rebuilt (A7), and calls that carry the same id twice (P1)."""
    if isinstance(model.outcome, Err) or model.sort != "accepted":
        return
    messages = [message_of(tree.entries[node]) for node in tree.path()]
    calls = Counter(
        call.id
        for message in messages
        if message is not None and not isinstance(message, Damage)
        for call in message.calls
    )
    if any(message is not None for message in messages):
        yield "A7"
    if any(times > 1 for times in calls.values()):
        yield "P1"
