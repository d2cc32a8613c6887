"""What an argument must look like before SQLite sees it (SPEC section 0: malformed arguments are errors).

A lone surrogate cannot be bound, a bool is not a number, and a number beyond 2**53 is not the same number in every JSON
reader. Each function answers the argument itself, so that a verb reads as one list of its checks. All raise
``InvalidArgument`` unless they say otherwise, and touch nothing.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from turnproof.model.ids import is_run_id, is_text
from turnproof.model.payload import parse_json
from turnproof.model.rows import Fence
from turnproof.model.vocabulary import MAX_INTEGER, InvalidArgument, InvalidRunId, SubmissionKind

__all__ = [
    "fence_of",
    "integer",
    "json_text",
    "kind_of",
    "natural",
    "optional_integer",
    "optional_text",
    "path_name",
    "run_name",
    "text",
    "texts",
]


def text(name: str, value: str) -> str:
    """Any Unicode text without lone surrogates."""
    if not isinstance(value, str):
        raise InvalidArgument(f"{name} must be text, not {type(value).__name__}")
    if not value.isascii() and not is_text(value):
        raise InvalidArgument(f"{name} holds a lone surrogate, which is not Unicode text")
    return value


def optional_text(name: str, value: str | None) -> str | None:
    """Like ``text``; "" is the same as absent."""
    return text(name, value) or None if value is not None else None


def texts(name: str, values: Sequence[str]) -> tuple[str, ...]:
    """A list of texts; one text alone is a mistake, not a list of letters."""
    if isinstance(values, str) or not isinstance(values, Sequence):
        raise InvalidArgument(f"{name} must be a list of texts")
    return tuple(text(name, value) for value in values)


def integer(name: str, value: int) -> int:
    """A whole number within plus or minus 2**53."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise InvalidArgument(f"{name} must be a whole number, not {type(value).__name__}")
    if abs(value) > MAX_INTEGER:
        raise InvalidArgument(f"{name} is beyond 2**53")
    return value


def natural(name: str, value: int, most: int = MAX_INTEGER) -> int:
    """A whole number from 0 to ``most``."""
    if not 0 <= integer(name, value) <= most:
        raise InvalidArgument(f"{name} {value} is not from 0 to {most}")
    return value


def optional_integer(name: str, value: int | None) -> int | None:
    return integer(name, value) if value is not None else None


def path_name(name: str, value: str | os.PathLike[str]) -> str:
    """A path as text; bytes of it that are not UTF-8 stand as ``os.fsdecode`` puts them, and name the same file."""
    try:
        path = os.fspath(value)
    except TypeError:
        path = None
    if not isinstance(path, str):
        raise InvalidArgument(f"{name} must be text or a path, not {type(value).__name__}")
    try:
        encoded = os.fsencode(path)
    except UnicodeEncodeError:
        raise InvalidArgument(f"{name} {path[:80]!r} holds a lone surrogate, which no file name can hold") from None
    if b"\0" in encoded:
        raise InvalidArgument(f"{name} {path[:80]!r} holds a NUL, which no file name can hold")
    return path


def run_name(name: str, value: str) -> str:
    """A run id (R6). Raises ``InvalidRunId``; a value that is no text at all is ``InvalidArgument``."""
    if not isinstance(value, str):
        raise InvalidArgument(f"{name} must be text, not {type(value).__name__}")
    if not is_run_id(value):
        raise InvalidRunId(f"{name} {value[:80]!r}: a run id is 1 to 200 of A-Za-z0-9._- and starts with no dot")
    return value


def kind_of(value: str) -> SubmissionKind:
    """``dispatch`` or ``direct``."""
    try:
        return SubmissionKind(text("kind", value))
    except ValueError:
        raise InvalidArgument(f"kind {value[:80]!r} is neither 'dispatch' nor 'direct'") from None


def json_text(name: str, value: str) -> str:
    """Text that is JSON; kept byte for byte, only looked at here."""
    try:
        parse_json(text(name, value))
    except ValueError as error:
        raise InvalidArgument(f"{name} is not JSON: {error}") from None
    return value


def fence_of(value: Fence | None) -> Fence | None:
    """A fence whose two ids are texts (R11)."""
    if value is not None:
        if not isinstance(value, Fence):
            raise InvalidArgument(f"fence must be a Fence, not {type(value).__name__}")
        text("fence.submission_id", value.submission_id)
        text("fence.attempt_id", value.attempt_id)
    return value
