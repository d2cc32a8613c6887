"""What a session's transcript answers: the repaired path, its messages, its context, and which leaf may anchor a turn.

Here the tree (``transcript``) and the rules of pairing (``repair``) meet. Every function is a pure reading of a
transcript; what ``restore`` writes is one record that says what this module found.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from attrs import evolve, frozen

from turnproof.model.choices import STRICT, Choices
from turnproof.model.ids import assistant_entry_id
from turnproof.model.journal import Anchor
from turnproof.model.payload import (
    Call,
    Message,
    decode_compaction,
    decode_model_change,
    decode_tool_request,
    message_text,
)
from turnproof.model.repair import Verdict, examine, item_of, split_into_steps
from turnproof.model.rows import Context, ModelChoice, Pending, Record, Repair, Restored, Slot, Submission
from turnproof.model.submission import counted
from turnproof.model.transcript import ROOT, Damage, Transcript, hangs_below, message_of
from turnproof.model.vocabulary import InvalidRecord, Phase, RecordKind, Status

__all__ = [
    "Recorded",
    "RecordedStep",
    "anchor_of",
    "compaction_problem",
    "context_of",
    "read",
    "recorded_request",
    "recorded_step",
    "repair_problem",
]


@frozen
class Recorded:
    """A tool request that the journal holds for a running submission (P9)."""

    submission_id: str
    calls: tuple[Call, ...]
    checkpoint: str
    assistant: str
    """The entry id that the assistant message has when it was derived (P8)."""

    @property
    def call_ids(self) -> tuple[str, ...]:
        return tuple(call.id for call in self.calls)


@frozen
class RecordedStep:
    """Where a recorded request's step is stored, and how far its answers came."""

    assistant: int
    deepest: int
    """The last stored entry of the step: where recovery re-attaches (A5)."""
    answered: frozenset[str]
    below_checkpoint: bool
    calls: frozenset[str]


def recorded_request(row: Submission[str] | None, slot: Slot[str] | None) -> Recorded | None:
    """The request that a running submission's counted slot holds in tool_request_recorded (P9, section 8)."""
    slot = counted(row, slot)
    if row is None or row.status is not Status.RUNNING or slot is None:
        return None
    if slot.phase is not Phase.TOOL_REQUEST_RECORDED or slot.tool_request is None:
        return None
    return Recorded(
        row.submission_id,
        decode_tool_request(slot.tool_request),
        slot.checkpoint_leaf_id or "",
        assistant_entry_id(row.submission_id, slot.turn_id),
    )


# --- where the recorded step is (A5, P8, P9) --------------------------------------------------------------------------


def _calls_at(tree: Transcript, node: int) -> frozenset[str]:
    """The call ids of an assistant message; empty for any other entry."""
    message = message_of(tree.entries[node])
    if message is None or isinstance(message, Damage) or message.role != "assistant":
        return frozenset()
    return frozenset(call.id for call in message.calls)


def _is_below(tree: Transcript, node: int, checkpoint: str) -> bool:
    """Strictly below the checkpoint; everything is below the root."""
    if not checkpoint:
        return True
    at = tree.index.get(checkpoint)
    return at is not None and node != at and hangs_below(tree.parents, node, frozenset({at}))


def _block(tree: Transcript, assistant: int, calls: frozenset[str]) -> tuple[int, frozenset[str]]:
    """The deepest stored entry of a step, and the calls answered down to it.

    Off the active path a step may have several continuations: the one with the most answers is the step, the one on
    the active path among equals, then the latest. A continuation ends where a message does not belong to the step.
    """
    on_path = frozenset(tree.path())
    children: dict[int, list[int]] = {}
    for node in range(assistant + 1, len(tree.entries)):
        children.setdefault(tree.parents[node], []).append(node)
    best = (0, 0, assistant in on_path, assistant)
    answered_best: frozenset[str] = frozenset()
    open_ends: list[tuple[int, int, frozenset[str]]] = [(assistant, 0, frozenset())]
    while open_ends:
        node, depth, answered = open_ends.pop()
        for child in children.get(node, ()):
            message = message_of(tree.entries[child])
            if message is None:
                open_ends.append((child, depth, answered))
                continue
            if isinstance(message, Damage) or message.role != "tool" or message.calls:
                continue
            results = [result.call_id for result in message.results]
            if len(set(results)) != len(results) or not calls - answered >= set(results):
                continue
            more = answered | set(results)
            open_ends.append((child, depth + 1, more))
            rank = (len(more), depth + 1, child in on_path, child)
            if rank > best:
                best, answered_best = rank, more
    return best[3], answered_best


def recorded_step(tree: Transcript, recorded: Recorded) -> RecordedStep | None:
    """The recorded step: that of the derived assistant entry, wherever it is stored; else the first step below the
    checkpoint on the active path that makes the recorded calls (section 8)."""
    wanted = frozenset(recorded.call_ids)
    derived = tree.index.get(recorded.assistant)
    nodes = [derived] if derived is not None and _calls_at(tree, derived) else []
    nodes += [n for n in tree.path() if _is_below(tree, n, recorded.checkpoint) and _calls_at(tree, n) == wanted]
    if not nodes:
        return None
    node = nodes[0]
    calls = _calls_at(tree, node)
    deepest, answered = _block(tree, node, calls)
    return RecordedStep(node, deepest, answered, _is_below(tree, node, recorded.checkpoint), calls)


def _pending_step(tree: Transcript, recorded: Recorded | None) -> RecordedStep | None:
    """The recorded step, when it is below its checkpoint and makes exactly the recorded calls (P9)."""
    step = None if recorded is None else recorded_step(tree, recorded)
    if recorded is None or step is None or not step.below_checkpoint or step.calls != set(recorded.call_ids):
        return None
    return step


# --- restore and inspect (A2, P2-P7, P9) ------------------------------------------------------------------------------

Reading: TypeAlias = Restored | Damage


def _messages(tree: Transcript, path: Sequence[int]) -> tuple[str, ...]:
    records = (tree.entries[node] for node in path)
    return tuple(message_text(r.role, r.text, r.payload) for r in records if r.kind is RecordKind.MESSAGE)


def _model(tree: Transcript, path: Sequence[int]) -> ModelChoice | Damage | None:
    """The last model change on the path (A2)."""
    change = next((tree.entries[n] for n in reversed(path) if tree.entries[n].kind is RecordKind.MODEL_CHANGE), None)
    if change is None:
        return None
    try:
        return decode_model_change(change.payload)
    except InvalidRecord as error:
        return Damage(error.message, change.seq)


def read(tree: Transcript, recorded: Recorded | None, choices: Choices = STRICT) -> Reading:
    """The conversation that a log holds, after the repair that its end needs; or why there is none (A2, P1-P7, P9).

    A ``repair`` in the answer is what ``restore`` must record before it answers; ``inspect`` answers the same.
    """
    if tree.damage is not None:
        return tree.damage
    path = tree.path()
    items = []
    for node in path:
        message = message_of(tree.entries[node])
        if isinstance(message, Damage):
            return message
        items.append(item_of(message))
    step = _pending_step(tree, recorded)
    kept = path.index(step.assistant) if step is not None and step.assistant in path else None
    finding = examine(items, kept, choices)
    if finding.row.verdict is Verdict.CORRUPT:
        record = tree.entries[path[finding.at]]
        return Damage(f"entry {record.entry_id!r}: {finding.row.name} tool call or result", record.seq)
    repair = None
    if finding.row.verdict is Verdict.CUT:
        repair = Repair(dropped_entry_ids=tuple(tree.id_of(node) for node in path[finding.at :]))
        path = path[: finding.at]
    model = _model(tree, path)
    if isinstance(model, Damage):
        return model
    return Restored(
        leaf=tree.id_of(path[-1] if path else ROOT),
        path=tuple(tree.id_of(node) for node in path),
        messages=_messages(tree, path),
        model=model,
        repair=repair,
        pending=_pending(recorded, step),
    )


def _pending(recorded: Recorded | None, step: RecordedStep | None) -> Pending | None:
    """The open calls of a pending step in request order; null when there are none (P9)."""
    if recorded is None or step is None:
        return None
    open_calls = tuple(call for call in recorded.call_ids if call not in step.answered)
    return Pending(submission_id=recorded.submission_id, open_calls=open_calls) if open_calls else None


# --- context (A8) -----------------------------------------------------------------------------------------------------


def context_of(tree: Transcript, restored: Restored) -> Context | Damage:
    """The newest compaction's summary and the path from its first kept entry; the whole path without one (A8)."""
    records = [tree.entries[tree.index[entry_id]] for entry_id in restored.path]
    newest = next((record for record in reversed(records) if record.kind is RecordKind.COMPACTION), None)
    if newest is None:
        return Context(summary=None, entries=restored.path)
    try:
        compaction = decode_compaction(newest.payload)
    except InvalidRecord as error:
        return Damage(error.message, newest.seq)
    if compaction.first_kept not in restored.path:
        return Damage(f"the first kept entry {compaction.first_kept!r} is not on the path", newest.seq)
    return Context(summary=compaction.summary, entries=restored.path[restored.path.index(compaction.first_kept) :])


def compaction_problem(tree: Transcript, record: Record) -> str | None:
    """Why a compaction may not be appended: its first kept entry must be on its path and split no step (A8).

    It may keep itself first, so it counts as the last entry of that path. What hangs below a step with an open call is
    part of that step until the call is answered.
    """
    first_kept = decode_compaction(record.payload).first_kept
    path = tree.path_to(record.parent_id)
    ids = [*map(tree.id_of, path), record.entry_id]
    at = ids.index(first_kept) if first_kept in ids else None
    if at is None:
        return f"first_kept {first_kept!r} is not on the path to this compaction"
    items = [item_of(None if isinstance(m, Damage) else m) for m in (message_of(tree.entries[n]) for n in path)]
    for step in split_into_steps(items)[0]:
        end = len(path) if step.open and not step.followed else step.end
        if step.start < at <= end:
            return f"first_kept {first_kept!r} splits the step of {tree.id_of(path[step.start])!r}"
        if step.start == at and step.open:
            return f"first_kept {first_kept!r} starts a step with an open call"
    return None


# --- anchors and raw repairs (A1, A4) ---------------------------------------------------------------------------------


def anchor_of(tree: Transcript | None, leaf: str, checkpoint: str | None, *, committed: bool) -> Anchor:
    """What the transcript says of a leaf that the journal is to name (A4).

    A committed leaf must be at or below the checkpoint, and the entries between them must be a conversation of their
    own: no corruption, no open call at the end. Where they hold no message, a step with an open call above them would
    still take them along when it is cut. So nothing committed is ever cut.
    """
    node = None if tree is None else tree.index.get(leaf)
    if tree is None or node is None or tree.excluded(node):
        return Anchor.UNKNOWN
    if not committed:
        return Anchor.SOUND
    path = tree.path_to(leaf)
    above = 0
    if checkpoint:
        start = tree.index.get(checkpoint)
        if start is None or start not in path:
            return Anchor.MISMATCH
        above = path.index(start) + 1
    messages = [message_of(tree.entries[node]) for node in path]
    below = messages[above:]
    if any(isinstance(message, Damage) for message in below) or _verdict(below) is not Verdict.KEEP:
        return Anchor.MISMATCH
    if all(message is None for message in below) and _verdict(messages) is Verdict.CUT:
        return Anchor.MISMATCH
    return Anchor.SOUND


def _verdict(messages: Sequence[Message | Damage | None]) -> Verdict:
    """What the repair table says of a path; a message that cannot be read neither calls nor answers."""
    return examine([item_of(None if isinstance(message, Damage) else message) for message in messages]).row.verdict


def repair_problem(tree: Transcript, parent_id: str, dropped: Sequence[str]) -> str | None:
    """Why a raw repair may not be appended: its leaf and ids must be known, the leaf not excluded by it (A1)."""
    unknown = next((entry for entry in dropped if entry not in tree.index), None)
    if unknown is not None:
        return f"the repaired entry {unknown!r} is not stored"
    if not parent_id:
        return None
    node = tree.index.get(parent_id)
    if node is None:
        return f"the repair's leaf {parent_id!r} is not stored"
    after = evolve(tree, named=tree.named | {tree.index[entry] for entry in dropped})
    return f"the repair's leaf {parent_id!r} is excluded" if after.excluded(node) else None
