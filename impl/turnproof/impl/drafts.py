"""What a record must look like before it is stored (R7, R8): the shape check at the edge."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from turnproof.impl.checks import integer, text
from turnproof.model.payload import decode_compaction, decode_message, decode_model_change, decode_repair, parse_json
from turnproof.model.rows import Draft, Record
from turnproof.model.vocabulary import TREE_KINDS, InvalidArgument, InvalidRecord, RecordKind, RunState

__all__ = ["content_of", "is_entry", "record_from"]

_KINDS: Final = {kind.value: kind for kind in RecordKind}
_STATES: Final = {state.value for state in RunState}
_TEXTS: Final = ("kind", "entry_id", "parent_id", "role", "ext_type", "text", "state", "payload", "run_id")
_SHAPES: Final[dict[RecordKind, Callable[[str], object]]] = {
    RecordKind.COMPACTION: decode_compaction,
    RecordKind.MODEL_CHANGE: decode_model_change,
    RecordKind.REPAIR: decode_repair,
}
"""Payloads that must be there."""


def record_from(draft: Draft, run_id: str, seq: int, now: int) -> Record:
    """The record that ``draft`` becomes under ``seq``. Raises ``InvalidArgument``, ``InvalidRecord``."""
    if not isinstance(draft, Draft):
        raise InvalidArgument(f"a record must be a Draft, not {type(draft).__name__}")
    for name in _TEXTS:
        text(f"the record's {name}", getattr(draft, name))
    kind = _KINDS.get(draft.kind)
    if kind is None:
        raise InvalidRecord(f"unknown record kind {draft.kind[:80]!r}")
    if draft.run_id not in ("", run_id):
        raise InvalidRecord(f"the record names run {draft.run_id[:80]!r}, not {run_id!r}")
    if draft.state not in _STATES and (draft.state or kind is RecordKind.STATE):
        raise InvalidRecord(f"unknown run state {draft.state[:80]!r}")
    if kind in TREE_KINDS and not draft.entry_id:
        raise InvalidRecord(f"a {kind} record needs an entry_id")
    _check_payload(kind, draft.payload)
    return Record(
        seq=seq,
        run_id=run_id,
        kind=kind,
        timestamp=now if draft.timestamp is None else integer("the record's timestamp", draft.timestamp),
        entry_id=draft.entry_id,
        parent_id=draft.parent_id,
        role=draft.role,
        ext_type=draft.ext_type,
        text=draft.text,
        state=draft.state,
        payload=draft.payload,
    )


def _check_payload(kind: RecordKind, payload: str) -> None:
    if kind in _SHAPES:
        _SHAPES[kind](payload)
    elif kind is RecordKind.MESSAGE and payload:
        decode_message(payload)
    elif payload:
        try:
            parse_json(payload)
        except ValueError as error:
            raise InvalidRecord(f"the payload is not JSON: {error}") from None


def is_entry(record: Record) -> bool:
    """Whether the record enters the tree; the ids of others are plain data."""
    return record.kind in TREE_KINDS


def content_of(record: Record) -> tuple[str, ...]:
    """What makes a repeated write the same write: everything but run, seq and timestamp (R8)."""
    return (
        record.kind,
        record.entry_id,
        record.parent_id,
        record.role,
        record.ext_type,
        record.text,
        record.state,
        record.payload,
    )
