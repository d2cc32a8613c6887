"""Stores that are wrong on purpose, each in one way that was seen in the field or is feared.

A check that finds nothing proves little until it is shown what it would find. Each of these is the production store
with a line or two changed (``mutation``), and names the promise that it breaks; a check that meets it must say so.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import attrs

from turnproof.proofs.mutation import Edit, load_mutated
from turnproof.proofs.subjects import Flush, StoreSubject, Subject

__all__ = ["FIRST_SIX", "MUTANTS", "Mutant", "mutated"]


@attrs.frozen
class Mutant:
    """A wrong store: the promise it breaks, what it does, and how it is made."""

    name: str
    promise: str
    about: str
    edits: tuple[Edit, ...]
    beside: tuple[str, ...] = ()
    """Promises that it breaks as well: a shortest history may show one of these instead."""


_TURN_LAYER: Final = (
    Mutant(
        "committed-not-frozen",
        "J8",
        "a committed slot can be committed again",
        (
            Edit("journal", " AND phase <> 'committed' AND EXISTS", " AND EXISTS"),
            Edit(
                "journal",
                "Phase.COMMITTED: (Phase.PROVIDER_STARTED,",
                "Phase.COMMITTED: (Phase.COMMITTED, Phase.PROVIDER_STARTED,",
            ),
        ),
    ),
    Mutant(
        "anyone-completes",
        "L6",
        "complete does not ask which attempt it is",
        (
            Edit(
                "submissions",
                "return self._settle(submission_id, attempt_id, None, self._time(now))",
                "return self._settle(submission_id, getattr(self._one(submission_id, now), 'attempt_id', None)"
                " or attempt_id, None, self._time(now))",
            ),
        ),
        beside=("T3",),
    ),
    Mutant(
        "phase-goes-back",
        "J4",
        "a recorded tool request may go back to provider_started",
        (
            Edit(
                "journal",
                "Phase.PROVIDER_STARTED: (Phase.BEFORE_PROVIDER,)",
                "Phase.PROVIDER_STARTED: (Phase.BEFORE_PROVIDER, Phase.TOOL_REQUEST_RECORDED)",
            ),
        ),
    ),
    Mutant(
        "attempt-not-counted",
        "L2",
        "a claim does not count the attempt",
        (Edit("submissions", '" started_at = ?, attempt_count = attempt_count + 1,"', '" started_at = ?,"'),),
    ),
    Mutant(
        "segment-overwritten",
        "S1",
        "a segment that is written again replaces the first",
        (Edit("journal", "ON CONFLICT DO NOTHING", "ON CONFLICT DO UPDATE SET body = excluded.body"),),
    ),
    Mutant(
        "claim-ignores-head",
        "L2",
        "any queued submission can be claimed, whatever is before it in its session",
        (
            Edit(
                "submissions",
                "f\"SELECT 1 FROM submissions s WHERE submission_id = ? AND status = 'queued' AND {_HEAD}\"",
                "\"SELECT 1 FROM submissions s WHERE submission_id = ? AND status = 'queued'\"",
            ),
        ),
    ),
    Mutant(
        "deadline-reset",
        "L2",
        "each claim grants the whole time anew, so that a crash loop never ends",
        (Edit("submissions", "CASE timeout_at WHEN 0 THEN ? ELSE timeout_at END", "?"),),
    ),
    Mutant(
        "attempt-comes-back",
        "T5",
        "an attempt id that owned the work before is accepted again",
        (Edit("submissions", "    if not added:\n", "    if added < 0:\n"),),
    ),
    Mutant(
        "begin-by-anyone",
        "J2",
        "a displaced attempt begins a turn over the answer of its successor",
        (
            Edit(
                "journal",
                "\" WHERE submission_id = ? AND status = 'running' AND attempt_id = ?\"",
                '" WHERE submission_id = ? AND ? IS NOT NULL"',
            ),
        ),
    ),
    Mutant(
        "request-survives-transfer",
        "T1",
        "a transfer keeps the recovery request of the old attempt",
        (Edit("submissions", '" recovery_requested_at = NULL, owner_id', '" owner_id'),),
    ),
    Mutant(
        "lease-not-looked-at",
        "T6",
        "a slow reconciler takes over although the lease was renewed since it looked",
        (
            Edit(
                "submissions",
                "AND lease_expires_at = coalesce(?, lease_expires_at) RETURNING",
                "AND lease_expires_at = iif(? IS NULL, lease_expires_at, lease_expires_at) RETURNING",
            ),
        ),
    ),
    Mutant(
        "lease-shortened",
        "L7",
        "a renewal may shorten a lease",
        (Edit("submissions", "max(lease_expires_at, ?)", "?"),),
    ),
    Mutant(
        "requeue-after-input",
        "L5",
        "work whose input was applied goes back to the queue",
        (Edit("submissions", '"AND input_applied_at IS NULL AND NOT EXISTS', '"AND NOT EXISTS'),),
    ),
    Mutant(
        "stream-consumed-twice",
        "J9",
        "a stream can be consumed twice",
        (Edit("journal", " AND stream_consumed_at IS NULL", ""),),
    ),
    Mutant(
        "revision-counts-writes",
        "J10",
        "each write of the slot counts as a reset",
        (
            Edit(
                "journal",
                "UPDATE slots SET phase = ?, stream_key",
                "UPDATE slots SET revision = revision + 1, phase = ?, stream_key",
            ),
        ),
    ),
    Mutant(
        "torn-leaf-committed",
        "A4",
        "a leaf that a repair would cut can be committed",
        (
            Edit(
                "pairing",
                '    return "the path to it ends in a step with an open call" if torn else None',
                "    return None",
            ),
        ),
    ),
    Mutant(
        "checkpoint-under-a-call",
        "A4",
        "the checkpoint itself can be committed while a call above it is open, and a repair cuts both",
        (Edit("pairing", "    if not any(facts):", "    if facts and not any(facts):"),),
    ),
    Mutant(
        "late-segment-kept",
        "L10",
        "a late segment brings a deleted session back",
        (
            Edit(
                "journal", "SELECT 1 FROM receipts WHERE submission_id = ?)", "SELECT 1 FROM receipts WHERE ? IS NULL)"
            ),
        ),
    ),
)

_RUN_JOURNAL: Final = (
    Mutant(
        "pairing-over-path",
        "P1",
        "an id that was answered in an earlier step counts as answered, so a reused id hides a torn step",
        (
            Edit("pairing", "    block: Step | None = None\n", "    block: Step | None = None\n    answered = set()\n"),
            Edit(
                "pairing",
                "                wrong.append(at)\n            else:\n",
                "                if result.call_id not in answered:\n"
                "                    wrong.append(at)\n"
                "            else:\n"
                "                answered.add(result.call_id)\n",
            ),
            Edit("pairing", "{call.id for call in fact.calls})\n", "{call.id for call in fact.calls} - answered)\n"),
        ),
        beside=("P3",),
    ),
    Mutant(
        "only-the-call-dropped",
        "P2",
        "a repair drops the message with the open call and leaves its answered siblings",
        (
            Edit(
                "conversation",
                "(tree.ids[node] for node in path[found.torn.start :])",
                "(tree.ids[node] for node in path[found.torn.start : found.torn.start + 1])",
            ),
        ),
    ),
    Mutant(
        "repair-at-each-restore",
        "P4",
        "a recorded repair is not applied, so each restore records it again",
        (
            Edit(
                "transcript",
                "        elif kind is RecordKind.REPAIR:\n            self._repair(record)\n",
                "        elif kind is RecordKind.REPAIR:\n            pass\n",
            ),
        ),
    ),
    Mutant(
        "late-result-revives",
        "P5",
        "a late child of a cut step moves the leaf back to it",
        (
            Edit(
                "transcript",
                "        if not self._excluded[node]:\n            self.leaf = node\n",
                "        self.leaf = node\n",
            ),
        ),
    ),
    Mutant(
        "leaf-is-the-newest",
        "A1",
        "the leaf is the entry with the highest seq, be it on a dead branch",
        (
            Edit(
                "transcript",
                '            self.leaf = self._find(record, record.parent_id, "the branch target")\n',
                '            self._find(record, record.parent_id, "the branch target")\n',
            ),
        ),
        beside=("A3",),
    ),
    Mutant(
        "model-of-a-dead-branch",
        "A2",
        "the current model is the last one chosen anywhere",
        (
            Edit(
                "conversation",
                "    for node in reversed(path):\n        if tree.kinds[node] is RecordKind.MODEL_CHANGE:\n",
                "    for node in reversed(range(len(tree.ids))):\n"
                "        if tree.kinds[node] is RecordKind.MODEL_CHANGE:\n",
            ),
        ),
    ),
    Mutant(
        "missing-parent-truncates",
        "R8",
        "an entry whose parent is missing is taken, and the path silently starts there",
        (
            Edit(
                "records",
                "            if not log.has_entry(connection, run_id, record.parent_id):\n"
                "                raise _unknown(run_id, record.parent_id)\n",
                "",
            ),
            Edit(
                "transcript",
                '            self._damaged(record, f"{role} {entry_id!r} is no earlier entry")\n',
                "            pass\n",
            ),
        ),
    ),
    Mutant(
        "stale-append-lands",
        "R11",
        "the fence of an append is not looked at",
        (
            Edit(
                "records",
                "    return fence is None or exists(",
                "    return fence is None or fence is not None or exists(",
            ),
        ),
    ),
    Mutant(
        "retry-is-a-conflict",
        "R8",
        "a write whose answer was lost cannot be repeated",
        (
            Edit(
                "records",
                "    if not ids or len(set(ids)) < len(ids) or len(entries) < len(ids):\n",
                "    if ids or not ids:\n",
            ),
        ),
    ),
    Mutant(
        "messages-from-text",
        "A7",
        "messages are rebuilt from the flattened text",
        (
            Edit(
                "conversation",
                "message_text(record.role, record.text, record.payload)",
                'message_text(record.role, record.text, "")',
            ),
        ),
    ),
    Mutant(
        "compaction-splits-a-step",
        "A8",
        "a compaction may keep a result whose call it folds away",
        (Edit("pairing", "        if step.start < at <= end:\n", "        if step.start < at < at:\n"),),
    ),
    Mutant(
        "compaction-keeps-itself",
        "A8",
        "a compaction that keeps itself first may stand between a call and its result",
        (Edit("pairing", "        at = len(path)\n", "        return None\n"),),
    ),
    Mutant(
        "state-of-the-first-record",
        "R4",
        "of several state records in a step the first wins",
        (
            Edit(
                "log",
                "        if record.kind is RecordKind.STATE:\n",
                "        if record.kind is RecordKind.STATE and state is head.state:\n",
            ),
        ),
    ),
)

MUTANTS: Final[Mapping[str, Mutant]] = {mutant.name: mutant for mutant in (*_TURN_LAYER, *_RUN_JOURNAL)}
"""Every wrong store by its name."""

FIRST_SIX: Final = tuple(mutant.name for mutant in _TURN_LAYER[:6])
"""The six that every checker must catch in twelve steps (issue A)."""


def mutated(mutant: Mutant, flush: Flush) -> Subject:
    """The wrong store, in this process. Raises ``ImportError`` when the store's source no longer has its pattern."""
    return StoreSubject(flush=flush, opener=load_mutated(mutant.name, mutant.edits), name=f"mutant {mutant.name}")
