"""Import of the former format, one ``<run>.jsonl`` a run in ``<directory>/runs``, when a store is opened (R12).

All files are read and judged before anything is written, and before the database of a new store is made; then one
transaction stores every run that is not there yet, with the seqs that it had, and only after it is durable the files
are renamed to ``.jsonl.imported`` (to ``.jsonl.imported.1``, ``.2``, ... where that name is taken) and stale ``.lock``
files removed. A crash between the two is harmless: the next open finds the runs present, skips them and renames.
Renaming is done under the database's write lock, so that two processes which open at once do not disturb each other.

A line is a JSON object with the fields of a record. Checked are types, ``kind``, ``state``, ``seq`` and ``run_id``; not
checked are the shape of payloads and the rules of the tree: a log that was damaged long ago is imported as it is and
answers ``corrupt_conversation``. Lines may be in any order, since ``seq`` says it; a seq twice is damage. An
*unterminated* last line that is no JSON is a torn write and dropped; anything else that is wrong fails the open, naming
file and line, and changes nothing.

Of each line only seq and place are kept between the two passes (24 bytes), so memory does not grow with the content.
"""

from __future__ import annotations

import json
import os
import re
import sqlite3
from array import array
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Final, TypeAlias

from attrs import define, evolve, field

from turnproof.impl import log
from turnproof.impl.connection import Options, Pool
from turnproof.impl.files import Files
from turnproof.impl.log import Head
from turnproof.model.ids import is_run_id, is_text
from turnproof.model.rows import Record
from turnproof.model.vocabulary import MAX_INTEGER, ImportFailed, RecordKind, RunState, StorageError

__all__ = ["import_runs", "judge_runs"]

_Json: TypeAlias = "int | float | str | list[_Json] | dict[str, _Json] | None"

_SUFFIX: Final = ".jsonl"
_KINDS: Final = {kind.value: kind for kind in RecordKind}
_STATES: Final = {state.value for state in RunState}
_TEXTS: Final = ("entry_id", "parent_id", "role", "ext_type", "text", "state")
_FIELDS: Final = frozenset({"seq", "run_id", "kind", "timestamp", "payload", *_TEXTS})
_RFC3339: Final = re.compile(r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]\d\d:\d\d)", re.ASCII)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_LONGEST: Final = 24
"""Digits of a number that is worth converting exactly; what is longer is far beyond 2**53."""
_BATCH: Final = 500
_PATIENCE_MS: Final = 600_000
"""How long an open waits for another process that is importing."""


def judge_runs(files: Files, directory: str) -> None:
    """Read what would be imported into a store that does not exist yet, so that a damaged file prevents its making.

    Raises ``ImportFailed``, ``StorageError``.
    """
    folder = os.path.join(directory, "runs")
    try:
        for name in files.listdir(folder):
            if name.endswith(_SUFFIX):
                _examine(files, folder, name)
    except OSError as error:
        raise _unreadable(folder, error) from error


def import_runs(files: Files, directory: str, options: Options, now: int) -> None:
    """Import what is in ``<directory>/runs``. ``now`` (ms) stands for a timestamp that a line lacks.

    Raises ``ImportFailed`` and changes nothing.
    """
    folder = os.path.join(directory, "runs")
    names = files.listdir(folder)
    sources = [name for name in names if name.endswith(_SUFFIX)]
    locks = [name for name in names if name.endswith(".lock")]
    if not sources and not locks:
        return
    # Whatever the flush policy: the records must survive a power cut before their source changes its name.
    pool = Pool(evolve(options, synchronous=2))
    try:
        _import(pool, files, folder, sources, now)
        with pool.write(_PATIENCE_MS):
            for name in sources:
                _retire(files, os.path.join(folder, name))
            for name in locks:
                files.unlink(os.path.join(folder, name))
            files.sync_directory(folder)
    except OSError as error:
        raise _unreadable(folder, error) from error
    finally:
        pool.close()


def _unreadable(folder: str, error: OSError) -> StorageError:
    return StorageError(f"import from {folder}: {error}")


def _import(pool: Pool, files: Files, folder: str, sources: Sequence[str], now: int) -> None:
    """Judge every file of a run that is not there, then store them all in one transaction."""
    with pool.read() as connection:
        present = {name for name in sources if _is_present(connection, name.removesuffix(_SUFFIX))}
    plans = [_examine(files, folder, name) for name in sources if name not in present]
    if plans:
        with pool.write(_PATIENCE_MS) as connection:
            for plan in plans:
                if not _is_present(connection, plan.run_id):
                    _store(connection, files, plan, now)


def _is_present(connection: sqlite3.Connection, run_id: str) -> bool:
    return log.head_of(connection, run_id) is not None


# --- judging ----------------------------------------------------------------------------------------------------------


@define
class _Plan:
    """A file that was judged: where the record with which seq stands."""

    path: str
    run_id: str
    seqs: array[int] = field(factory=lambda: array("q"))
    numbers: array[int] = field(factory=lambda: array("q"))
    """Line numbers, from 1."""
    offsets: array[int] = field(factory=lambda: array("q"))

    def ordered(self) -> list[int]:
        """The places of the records in these arrays, by seq. Raises ``ImportFailed`` for a seq twice."""
        order = list(range(len(self.seqs)))
        if any(self.seqs[i] >= self.seqs[i + 1] for i in range(len(order) - 1)):
            order.sort(key=self.seqs.__getitem__)
            for one, two in pairwise(order):
                if self.seqs[one] == self.seqs[two]:
                    raise _failed(self.path, self.numbers[two], f"seq {self.seqs[two]} is there twice")
        return order


def _failed(path: str, number: int, reason: str) -> ImportFailed:
    return ImportFailed(f"{path}, line {number}: {reason}; nothing was imported")


def _examine(files: Files, folder: str, name: str) -> _Plan:
    """Read a file to its end and judge every line of it."""
    path = os.path.join(folder, name)
    plan = _Plan(path, name.removesuffix(_SUFFIX))
    if not is_run_id(plan.run_id):
        raise _failed(path, 1, f"the file name {plan.run_id!r} is no run id (1 to 200 of A-Za-z0-9._-, no leading dot)")
    offset = 0
    try:
        with files.open(path) as file:
            for number, line in enumerate(file, 1):
                fields = _parse(path, number, line)
                if fields is not None:
                    record = _record(path, number, fields, plan.run_id, 0)
                    plan.seqs.append(record.seq)
                    plan.numbers.append(number)
                    plan.offsets.append(offset)
                offset += len(line)
    except FileNotFoundError:
        pass  # another process has imported it since the directory was listed
    plan.ordered()
    return plan


def _parse(path: str, number: int, line: bytes) -> dict[str, _Json] | None:
    """The object on a line; ``None`` for a blank line and for a torn one."""
    if not line.strip(b" \t\r\n"):
        return None
    try:
        fields = _decode(line.decode())
    except (ValueError, RecursionError) as error:
        if not line.endswith(b"\n"):
            return None  # only the last line can lack its end: a write that was torn
        raise _failed(path, number, f"not JSON: {error}") from None
    if not isinstance(fields, dict):
        raise _failed(path, number, "not a JSON object")
    return fields


def _decode(text: str) -> _Json:
    value: _Json = json.loads(text, parse_constant=_refuse_constant, parse_int=_integer)
    if isinstance(value, dict) and isinstance(value.get("payload"), dict | list):
        value["payload"] = _embedded_payload(text)
    return value


def _integer(digits: str) -> int | float:
    """A number of any length: Python's limit of 4300 digits is not JSON's, and a payload is kept as text (R7)."""
    return int(digits) if len(digits) <= _LONGEST else float(digits)


def _refuse_constant(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")


def _embedded_payload(text: str) -> str:
    """The payload of a line that holds it as JSON rather than as text, byte for byte (R7).

    ``json.loads`` accepted the line, so this walk over its members only has to find where they end.
    """
    decoder, space = json.JSONDecoder(parse_int=float), re.compile(r"[\s,:]*")
    at, found = text.index("{") + 1, ""
    while True:
        at = _end(space, text, at)
        if text[at] == "}":
            return found
        name, at = decoder.raw_decode(text, at)
        at = _end(space, text, at)
        start = at
        _, at = decoder.raw_decode(text, at)
        if name == "payload":
            found = text[start:at]


def _end(pattern: re.Pattern[str], text: str, at: int) -> int:
    match = pattern.match(text, at)
    return at if match is None else match.end()


def _record(path: str, number: int, fields: dict[str, _Json], run_id: str, now: int) -> Record:
    """The record that a line holds. Raises ``ImportFailed``."""
    if unknown := sorted(fields.keys() - _FIELDS):
        raise _failed(path, number, f"unknown field {unknown[0]!r}")
    seq, kind = fields.get("seq"), fields.get("kind")
    if not isinstance(seq, int) or isinstance(seq, bool) or not 0 < seq < MAX_INTEGER:
        raise _failed(path, number, "seq must be a positive whole number below 2**53, so that one can follow it")
    if not isinstance(kind, str) or kind not in _KINDS:
        raise _failed(path, number, f"unknown record kind {kind!r}")
    if fields.get("run_id") not in (None, "", run_id):
        raise _failed(path, number, f"run_id {fields.get('run_id')!r} is not the file's, {run_id!r}")
    texts = {name: _text(path, number, fields, name) for name in (*_TEXTS, "payload")}
    if texts["state"] not in _STATES and (texts["state"] or kind == RecordKind.STATE):
        raise _failed(path, number, f"unknown run state {texts['state']!r}")
    return Record(
        seq=seq, run_id=run_id, kind=_KINDS[kind], timestamp=_timestamp(path, number, fields.get("timestamp"), now),
        entry_id=texts["entry_id"], parent_id=texts["parent_id"], role=texts["role"], ext_type=texts["ext_type"],
        text=texts["text"], state=texts["state"], payload=texts["payload"],
    )  # fmt: skip


def _text(path: str, number: int, fields: dict[str, _Json], name: str) -> str:
    value = fields.get(name)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise _failed(path, number, f"{name} must be text")
    if not is_text(value):
        raise _failed(path, number, f"{name} holds a lone surrogate")
    return value


def _timestamp(path: str, number: int, value: _Json, now: int) -> int:
    """Milliseconds, given as such or as RFC 3339 text."""
    if value is None:
        return now
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) <= MAX_INTEGER:
        return value
    if isinstance(value, str) and _RFC3339.fullmatch(value):
        try:
            return (datetime.fromisoformat(value.upper()) - _EPOCH) // timedelta(milliseconds=1)
        except (ValueError, OverflowError):
            pass
    raise _failed(path, number, f"timestamp {value!r} is neither milliseconds nor RFC 3339")


# --- storing ----------------------------------------------------------------------------------------------------------


def _store(connection: sqlite3.Connection, files: Files, plan: _Plan, now: int) -> None:
    """Write the records of a file by seq, under their own seqs; the last state record gives the state."""
    head = Head()
    for batch in _batches(_records(files, plan, now)):
        head = log.add(connection, plan.run_id, head, batch)


def _records(files: Files, plan: _Plan, now: int) -> Iterator[Record]:
    with files.open(plan.path) as file:
        for place in plan.ordered():
            number = plan.numbers[place]
            file.seek(plan.offsets[place])
            fields = _parse(plan.path, number, file.readline())
            if fields is None or fields.get("seq") != plan.seqs[place]:
                raise _failed(plan.path, number, "the file was changed while it was read")
            yield _record(plan.path, number, fields, plan.run_id, now)


def _batches(records: Iterable[Record]) -> Iterator[list[Record]]:
    batch: list[Record] = []
    for record in records:
        batch.append(record)
        if len(batch) == _BATCH:
            yield batch
            batch = []
    if batch:
        yield batch


def _retire(files: Files, path: str) -> None:
    """Give an imported file the first free name; one that is gone was retired by another process."""
    target, count = f"{path}.imported", 0
    while files.exists(path):
        try:
            files.rename(path, target)
        except FileNotFoundError:
            return
        except FileExistsError:
            count += 1
            target = f"{path}.imported.{count}"
