"""Ids as text: which texts are run ids, and the ids that are derived from others.

Derived ids make a repeated write recognisable: the input of a submission, the assistant message of a turn and the
result of a call have the same id whoever stores them, so that the first outcome wins (P8). Parts are escaped so that
the derivation is injective (S4): ``("a:b", "c")`` and ``("a", "b:c")`` differ.
"""

from __future__ import annotations

import re
from typing import Final

from turnproof.model.vocabulary import RESERVED_PREFIX

__all__ = [
    "assistant_entry_id",
    "escape",
    "input_entry_id",
    "is_reserved_run",
    "is_run_id",
    "is_text",
    "mint_stream_key",
    "result_entry_id",
    "split_stream_key",
]

_RUN_ID: Final = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,199}", re.ASCII)


def is_text(value: str) -> bool:
    """Whether ``value`` is Unicode without lone surrogates, the only text there is (SPEC section 0)."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def is_run_id(value: str) -> bool:
    """1 to 200 of ``A-Za-z0-9._-``, not starting with a dot (R6)."""
    return _RUN_ID.fullmatch(value) is not None


def is_reserved_run(run_id: str) -> bool:
    """Whether the run holds bookkeeping rather than a conversation (R6)."""
    return run_id.startswith(RESERVED_PREFIX)


def escape(part: str) -> str:
    """``part`` with ``%`` and ``:`` percent-encoded, so that joining with ``:`` is injective (S4)."""
    return part.replace("%", "%25").replace(":", "%3A")


def mint_stream_key(submission_id: str, turn_id: str, attempt_id: str) -> str:
    """The one key under which an attempt streams a turn (S4, J5)."""
    return ":".join(map(escape, (submission_id, turn_id, attempt_id)))


def split_stream_key(stream_key: str) -> tuple[str, str, str] | None:
    """The submission, turn and attempt that a minted key names; ``None`` for a key that nobody minted."""
    parts = [part.replace("%3A", ":").replace("%25", "%") for part in stream_key.split(":")]
    if len(parts) != 3 or mint_stream_key(*parts) != stream_key:
        return None
    return parts[0], parts[1], parts[2]


def input_entry_id(submission_id: str) -> str:
    """The entry that holds a submission's input (P8, section 8)."""
    return f"input:{escape(submission_id)}"


def assistant_entry_id(submission_id: str, turn_id: str) -> str:
    """The entry that holds what the model said in a turn (P8)."""
    return f"turn:{escape(submission_id)}:{escape(turn_id)}:assistant"


def result_entry_id(submission_id: str, turn_id: str, call_id: str) -> str:
    """The entry that holds a call's result, real or synthesised: the first outcome wins (P8)."""
    return f"turn:{escape(submission_id)}:{escape(turn_id)}:result:{escape(call_id)}"
