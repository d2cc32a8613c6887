"""What a run's log says as a conversation, judged by the model: corrupt, torn, waiting for a recovery, or whole.

The model's fold and reading decide (``fold``, ``read``, ``anchor_of``, ``classify``). On a long log the model's fold
takes a time that grows with the square of its depth; there the store's own fold, which is linear, makes the same value,
and the model reads that.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from turnproof.impl.transcript import Transcript as StoredTranscript
from turnproof.model.conversation import Recorded, anchor_of, read, recorded_request, recorded_step
from turnproof.model.decision import Accept
from turnproof.model.journal import Anchor
from turnproof.model.recovery import ROWS as RECOVERY_ROWS
from turnproof.model.recovery import classify
from turnproof.model.repair import ROWS, Row, item_of, split_into_steps
from turnproof.model.rows import Record, Restored, Slot, Submission
from turnproof.model.submission import is_expired, transfer
from turnproof.model.transcript import Damage, Transcript, fold, message_of
from turnproof.model.vocabulary import InvalidArgument
from turnproof.proofs.doctor.finding import Finding, Severity

__all__ = ["LONG", "anchors", "conversation", "fold_of", "recovery", "request_of"]

LONG: Final = 2_000
"""Records from which on the store's fold is used."""
_ROW: Final = {row.name: row for row in ROWS}
_DECISION: Final = {row.decision: row for row in RECOVERY_ROWS}
_DOES: Final = {
    "finish": "the turn is committed: go on to the next turn, or settle",
    "commit_stored": "commit the stored answer; the provider is not asked again",
    "give_up": "close the open calls and settle it as failed",
    "requeue": "give it back to the queue",
    "mark_input": "mark the stored input, then look again",
    "run_turn": "run the whole turn, under a new turn id",
    "redrive": "run the whole turn again, under a new turn id",
    "interrupt_tools": "keep the recorded step, answer the open calls 'interrupted', commit",
}


def fold_of(records: Sequence[Record]) -> Transcript:
    """The transcript of a log."""
    if len(records) <= LONG:
        return fold.__wrapped__(tuple(records))  # its cache would keep every log alive
    stored = StoredTranscript()
    for record in records:
        stored.add(record)
    by_seq = {record.seq: record for record in records}
    damage = stored.damage
    return Transcript(
        entries=tuple(by_seq[seq] for seq in stored.seqs),
        parents=tuple(stored.parents),
        leaf=stored.leaf,
        named=frozenset(stored.named),
        damage=None if damage is None else Damage(damage.reason, damage.seq),
        index=stored.index,
    )


# --- what restore would say ------------------------------------------------------------------------------------------


def conversation(run_id: str, tree: Transcript, recorded: Recorded | None, *, at_work: bool) -> Iterator[Finding]:
    """What ``restore`` would do, and by which row of the repair table. ``at_work``: a worker holds a lease."""
    reading = read(tree, recorded)
    if isinstance(reading, Damage):
        yield _corrupt(run_id, tree, reading)
        return
    if reading.repair is not None:
        yield _torn(run_id, tree, reading, at_work=at_work)
    if reading.pending is not None:
        yield _pending(run_id, tree, reading, recorded, at_work=at_work)


def _corrupt(run_id: str, tree: Transcript, damage: Damage) -> Finding:
    """``corrupt_conversation``: the reason, the record that shows it, and the row when a row says it."""
    record = next((entry for entry in tree.entries if entry.seq == damage.seq), None)
    row = next((row for row in ROWS if f": {row.name} tool call or result" in damage.reason), None)
    named = f" (row {row.name!r}, {row.promise}: {row.arises})" if row is not None else " (A2)"
    return Finding(
        code="corrupt_conversation",
        severity=Severity.ATTENTION,
        run=run_id,
        seq=damage.seq,
        entry=record.entry_id if record is not None and record.entry_id else None,
        what=f"corrupt conversation: {damage.reason}{named}",
        remedy="restore refuses it and writes nothing; select an earlier entry with set_leaf, or start over with clear",
    )


def _described(row: Row) -> str:
    return f"row {row.name!r} of the repair table ({row.promise}) applies"


def _torn(run_id: str, tree: Transcript, reading: Restored, *, at_work: bool) -> Finding:
    dropped = reading.repair.dropped_entry_ids if reading.repair is not None else ()
    first = tree.entries[tree.index[dropped[0]]]
    return Finding(
        code="torn_tail",
        severity=Severity.NOTE if at_work else Severity.ATTENTION,
        run=run_id,
        seq=first.seq,
        entry=first.entry_id,
        what=f"torn tail, open calls {_list(_open(tree, dropped))}: {_described(_ROW['torn'])}; restore would take "
        f"{_list(dropped)} off the path and leave the leaf at {_named(reading.leaf)}",
        remedy="a worker holds a lease and may be writing it: look again later"
        if at_work
        else "restore() records that once; --repair-to COPY shows it on a copy",
    )


def _list(ids: Sequence[str]) -> str:
    more = f" and {len(ids) - 20} more" if len(ids) > 20 else ""
    return ", ".join(map(repr, ids[:20])) + more


def _named(leaf: str) -> str:
    return repr(leaf) if leaf else "the root"


def _open(tree: Transcript, dropped: Sequence[str]) -> tuple[str, ...]:
    """The unanswered calls of a step that is cut."""
    messages = [message_of(tree.entries[tree.index[entry]]) for entry in dropped]
    items = [item_of(message) for message in messages if not isinstance(message, Damage)]
    return tuple(call for step in split_into_steps(items)[0] for call in step.open)


def _pending(run_id: str, tree: Transcript, reading: Restored, recorded: Recorded | None, *, at_work: bool) -> Finding:
    calls = reading.pending.open_calls if reading.pending is not None else ()
    step = recorded_step(tree, recorded) if recorded is not None else None
    entry = None if step is None else tree.entries[step.assistant]
    return Finding(
        code="pending_step",
        severity=Severity.NOTE if at_work else Severity.ATTENTION,
        run=run_id,
        seq=None if entry is None else entry.seq,
        entry=None if entry is None else entry.entry_id,
        submission=None if recorded is None else recorded.submission_id,
        what=f"open calls {_list(calls)}: {_described(_ROW['pending'])}; restore would keep the step",
        remedy="tools are at work" if at_work else "recovery answers them 'interrupted'; do not run the tools again",
    )


# --- what recovery would decide --------------------------------------------------------------------------------------


def recovery(
    row: Submission[str], slot: Slot[str] | None, tree: Transcript, now: int, *, live: bool
) -> Iterator[Finding]:
    """What the next attempt of a running submission would do."""
    after = classify(row, slot, tree, now)
    if row.attempt_id is not None:  # a takeover counts before it classifies
        moved = transfer(row, slot, row.attempt_id, f"{row.attempt_id} (next)", None, None, now)
        after = classify(*moved.value, tree, now) if isinstance(moved, Accept) else after
    leased = row.lease_expires_at >= now
    held = f"owner {row.owner_id!r}, attempt {row.attempt_id!r} ({row.attempt_count} of {row.max_retry})"
    if leased:
        lease = f"its lease runs for another {(row.lease_expires_at - now) / 1000:.0f} s"
    elif is_expired(row, now):
        lease = f"its lease ran out {(now - row.lease_expires_at) / 1000:.0f} s ago"
    else:
        lease = "it has no lease"
    calls = f" (open calls {_list(after.open_calls)})" if after.open_calls else ""
    yield Finding(
        code="running",
        severity=Severity.NOTE if leased or (live and not is_expired(row, now)) else Severity.ATTENTION,
        run=row.session_key,
        submission=row.submission_id,
        what=f"running, {held}; {lease}. Recovery would decide {after.decision!r}{calls}: {_DOES[after.decision]}",
        remedy="nothing while its owner lives"
        if leased
        else f"take it over (replace_turn_journal_attempt), then recover. {_DECISION[after.decision].arises}",
    )


# --- anchors ---------------------------------------------------------------------------------------------------------


def anchors(slot: Slot[str], tree: Transcript, *, known: bool) -> Iterator[Finding]:
    """Leaves of a slot that point nowhere, to an excluded entry, or past the checkpoint (A4)."""
    leaves = (("checkpoint leaf", slot.checkpoint_leaf_id), ("committed leaf", slot.committed_leaf_id))
    for name, leaf in leaves:
        if not leaf:
            continue
        node = tree.index.get(leaf)
        if node is None:
            why = "is no entry of the run" if known else "points into a run that does not exist"
            yield _anchor(slot, leaf, Severity.DAMAGE, f"the {name} {leaf!r} {why}")
        elif tree.excluded(node):
            yield _anchor(slot, leaf, Severity.ATTENTION, f"the {name} {leaf!r} was excluded by a repair")
        elif leaf == slot.committed_leaf_id:
            anchor = anchor_of(tree, leaf, slot.checkpoint_leaf_id, committed=True)
            if anchor is Anchor.MISMATCH:
                yield _anchor(
                    slot,
                    leaf,
                    Severity.DAMAGE,
                    f"the {name} {leaf!r} is not at or below the checkpoint {slot.checkpoint_leaf_id!r}, or the path "
                    "between them has an open call or a stray result",
                )


def _anchor(slot: Slot[str], leaf: str, severity: Severity, what: str) -> Finding:
    remedy = (
        "set_leaf selects it again and lifts the exclusion"
        if severity is Severity.ATTENTION
        else "transcript and journal do not belong to the same moment; restore a backup"
    )
    return Finding(
        code="anchor",
        severity=severity,
        run=slot.session_key,
        entry=leaf,
        submission=slot.submission_id,
        what=what,
        remedy=remedy,
    )


def request_of(row: Submission[str] | None, slot: Slot[str] | None) -> Recorded | None:
    """The recorded tool request of a session's running submission; one that cannot be read counts for none."""
    try:
        return recorded_request(row, slot)
    except InvalidArgument:
        return None
