"""The codec of wire protocol 1: one JSON object a line, and nothing that a line can hold makes it raise anything else
than a typed error.

The operations say by their attrs fields what an argument is (``turnproof.model.operations``); decoding is derived from
them, so that a verb is written down once. The codec judges *types* only (a bool is no integer, an integer is within
2**53, ``null`` is absent); judging values is the business of whoever is asked. Text may hold lone surrogates here,
since JSON can escape them: store and model answer ``invalid_argument``.
"""

from __future__ import annotations

import json
import types
from collections.abc import Callable, Mapping
from enum import Enum
from functools import cache
from typing import Any, Final, NoReturn, TypeAlias, TypeVar, Union, get_args, get_origin, get_type_hints

import attrs

from turnproof.model.ids import is_run_id, is_text
from turnproof.model.operations import ALPHABET, Operation
from turnproof.model.payload import Json
from turnproof.model.rows import Draft, Fence, Lease, Slot
from turnproof.model.vocabulary import (
    MAX_INTEGER,
    InvalidArgument,
    InvalidRecord,
    InvalidRunId,
    TurnproofError,
    Unsupported,
)

__all__ = [
    "MAX_LINE",
    "PROTOCOL",
    "Err",
    "Json",
    "Object",
    "Ok",
    "Outcome",
    "Request",
    "decode_operation",
    "decode_request",
    "encode",
    "encode_args",
    "encode_line",
    "parse_line",
    "refusal",
]

PROTOCOL: Final = 1
MAX_LINE: Final = 16 * 1024 * 1024
"""Bytes of a line without its line feed (PROTOCOL)."""

Object: TypeAlias = dict[str, Json]

_LONGEST_INTEGER: Final = 24
"""Digits worth turning into an integer; what is longer is out of range anyway, and quadratic to convert."""

_NULL_WHEN_REFUSED: Final = frozenset(
    ["claim", "replace_turn_journal_attempt", "append", "append_step", "checkpoint", "restore", "set_leaf", "clear"]
)


@attrs.frozen
class Ok:
    """What was answered, as JSON: accepted, or refused where ``value`` is ``refusal(verb)``."""

    value: Json


@attrs.frozen
class Err:
    """A typed error. The message is for people: two errors are the same when their codes are."""

    code: str
    message: str = attrs.field(default="", eq=False)


Outcome: TypeAlias = Ok | Err


def refusal(verb: str) -> Json:
    """The value that says *the state did not allow it* (PROTOCOL, "Operations")."""
    return None if verb in _NULL_WHEN_REFUSED else False


# --- lines -------------------------------------------------------------------------------------------------------


def _reject(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")


def _integer(digits: str) -> float:
    return int(digits) if len(digits) <= _LONGEST_INTEGER else float(digits)


def parse_line(line: bytes) -> Json:
    """The JSON value of a line. Raises ``InvalidArgument`` for anything that is not strict UTF-8 JSON."""
    if len(line) > MAX_LINE:
        raise InvalidArgument(f"a line is at most {MAX_LINE} bytes")
    try:
        value: Json = json.loads(line.decode(), parse_constant=_reject, parse_int=_integer)
    except UnicodeDecodeError as error:
        raise InvalidArgument(f"the line is not UTF-8: byte {error.start}") from None
    except RecursionError:
        raise InvalidArgument("the line is nested too deep") from None
    except ValueError as error:
        raise InvalidArgument(f"the line is not JSON: {error}") from None
    return value


def encode_line(value: Json) -> bytes:
    """One line, with its line feed: compact and UTF-8; a lone surrogate, which UTF-8 has not, stays a JSON escape."""
    try:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"
    except UnicodeEncodeError:
        return json.dumps(value, separators=(",", ":")).encode() + b"\n"


# --- requests ----------------------------------------------------------------------------------------------------


@attrs.frozen
class Request:
    """One line that asks for something. ``id`` is ``None`` when it could not be read; then ``error`` says why."""

    id: int | str | None
    op: str = ""
    args: Object = attrs.Factory(dict)
    error: TurnproofError | None = None


def decode_request(line: bytes) -> Request:
    """The request of a line. Total: what is wrong with it is in ``error``, with the id where there is one."""
    try:
        value = parse_line(line)
    except InvalidArgument as error:
        return Request(None, error=error)
    if not isinstance(value, dict):
        return Request(None, error=InvalidArgument("a request is a JSON object"))
    number = value.get("id")
    if not (_is_integer(number) or (isinstance(number, str) and is_text(number))):
        return Request(None, error=InvalidArgument("a request needs an 'id', an integer or text"))
    assert isinstance(number, int | str)
    op, args = value.get("op"), value.get("args")
    if not isinstance(op, str):
        return Request(number, error=InvalidArgument("a request needs 'op' as text"))
    if args is not None and not isinstance(args, dict):
        return Request(number, op, error=InvalidArgument("'args' must be a JSON object"))
    return Request(number, op, args or {})


def _is_integer(value: Json) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) <= MAX_INTEGER


# --- operations --------------------------------------------------------------------------------------------------

_Decoder: TypeAlias = Callable[[str, Json], object]


def _decode_text(what: str, value: Json) -> str:
    if not isinstance(value, str):
        raise InvalidArgument(f"{what} must be text")
    return value


def _decode_integer(what: str, value: Json) -> int:
    if not isinstance(value, int) or not _is_integer(value):
        raise InvalidArgument(f"{what} must be an integer within 2**53")
    return value


def _decode_bool(what: str, value: Json) -> bool:
    if not isinstance(value, bool):
        raise InvalidArgument(f"{what} must be true or false")
    return value


def _decode_draft(what: str, value: Json) -> Draft:
    """A record. Its own errors are ``invalid_record``; ``seq`` is ignored (R1), any other unknown field is content that
    would be lost."""
    holder = _object(what, value)
    unknown = holder.keys() - _fields(Draft).keys() - {"seq"}
    if unknown:
        raise InvalidRecord(f"{what} has fields that no record has: {', '.join(sorted(unknown))}")
    try:
        return Draft(**_values(Draft, what, holder))
    except InvalidArgument as error:
        raise InvalidRecord(error.message) from None


def _object(what: str, value: Json) -> Object:
    if not isinstance(value, dict):
        raise InvalidArgument(f"{what} must be a JSON object")
    return value


def _decoder(hint: object) -> _Decoder:
    """How a value of the annotated type is read. A type without a decoder is a mistake in the alphabet."""
    if isinstance(hint, TypeVar):
        return _decode_text  # ids are opaque to the model and text on the wire
    origin, parameters = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        return _decoder(next(parameter for parameter in parameters if parameter is not type(None)))
    if origin is tuple:
        item = _decoder(parameters[0])

        def decode_tuple(what: str, value: Json) -> tuple[object, ...]:
            if not isinstance(value, list):
                raise InvalidArgument(f"{what} must be a list")
            return tuple(item(f"{what}[{index}]", entry) for index, entry in enumerate(value))

        return decode_tuple
    plain = _PLAIN.get(origin or hint)
    if plain is None:
        raise TypeError(f"no decoder for {hint}")
    return plain


def _decode_lease(what: str, value: Json) -> Lease[str]:
    return Lease(**_values(Lease, what, _object(what, value)))


def _decode_fence(what: str, value: Json) -> Fence:
    return Fence(**_values(Fence, what, _object(what, value)))


_PLAIN: Final[Mapping[object, _Decoder]] = {
    str: _decode_text,
    int: _decode_integer,
    bool: _decode_bool,
    Draft: _decode_draft,
    Lease: _decode_lease,
    Fence: _decode_fence,
}


@cache
def _fields(cls: type[attrs.AttrsInstance]) -> dict[str, tuple[_Decoder, bool]]:
    """Each field of a class: how it is read, and whether it must be there."""
    hints = get_type_hints(cls)
    return {field.name: (_decoder(hints[field.name]), field.default is attrs.NOTHING) for field in attrs.fields(cls)}


def _values(cls: type[attrs.AttrsInstance], what: str, holder: Object) -> dict[str, Any]:
    """The keyword arguments for ``cls``; what it does not know is ignored, ``null`` is absent."""
    values: dict[str, Any] = {}
    for name, (decode, required) in _fields(cls).items():
        value = holder.get(name)
        if value is not None:
            values[name] = decode(f"{what}: {name}", value)
        elif required:
            raise InvalidArgument(f"{what} needs {name}")
    return values


def decode_operation(op: str, args: Object, now: int) -> Operation:
    """The operation that ``op`` and ``args`` ask for; ``now`` counts when they bring no time of their own.

    Raises ``Unsupported``, ``InvalidArgument``, or of an append ``InvalidRunId`` and ``InvalidRecord``, in this order
    (SPEC section 0): the shape of a record is not judged for a run that cannot be.
    """
    cls = ALPHABET.get(op)
    if cls is None:
        raise Unsupported(f"there is no operation {op!r}")
    try:
        values = _values(cls, op, args)
    except InvalidRecord:
        run_id = args.get("run_id")
        if isinstance(run_id, str) and not is_run_id(run_id):
            raise InvalidRunId(f"run_id {run_id!r} is no run id") from None
        raise
    values.setdefault("now", now)
    return cls(**values)


# --- answers and arguments ---------------------------------------------------------------------------------------


def encode(value: object) -> Json:
    """A value of the model or of a store as JSON: rows as objects with every field, enums as their text."""
    if value is None or isinstance(value, bool | float):
        return value
    if isinstance(value, Enum):
        return str(value.value)
    if isinstance(value, int | str):
        return value
    if isinstance(value, tuple | list):
        return [encode(item) for item in value]
    if isinstance(value, Mapping):
        return {str(key): encode(item) for key, item in value.items()}
    row: Object = {name: encode(getattr(value, name)) for name in _names(type(value))}
    if isinstance(value, Slot):
        row["committed"] = value.committed
    return row


_NAMES: Final[dict[type, tuple[str, ...]]] = {}


def _names(cls: type) -> tuple[str, ...]:
    """The fields of a class, looked up once: answers are encoded by the ten thousand."""
    names = _NAMES.get(cls)
    if names is None:
        if not attrs.has(cls):
            raise TypeError(f"{cls.__name__} has no form on the wire")
        names = _NAMES[cls] = tuple(field.name for field in attrs.fields(cls))
    return names


def encode_args(operation: Operation) -> Object:
    """The ``args`` of an operation: absent what is ``None`` or, in a record, left at its default."""
    args: Object = {}
    for name in _names(type(operation)):
        value = getattr(operation, name)
        if value is None:
            continue
        args[name] = _encode_argument(value)
    return args


def _encode_argument(value: object) -> Json:
    if isinstance(value, tuple):
        return [_encode_argument(item) for item in value]
    if isinstance(value, Draft):
        return {f.name: encode(item) for f in attrs.fields(Draft) if (item := getattr(value, f.name)) != f.default}
    return encode(value)
