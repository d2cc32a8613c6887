"""The former format, one ``<run>.jsonl`` a run: would it be imported, and what would the conversations be (R12)?

The store's own import answers: each file is imported into a scratch store through a view that can read this one file
and change nothing. What comes out is examined like any run.
"""

from __future__ import annotations

import json
import os
import re
import secrets
from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import BinaryIO, Final, NoReturn

from attrs import frozen

from turnproof.impl import schema
from turnproof.impl.connection import Options
from turnproof.impl.files import Files
from turnproof.impl.legacy import import_runs
from turnproof.model.vocabulary import TurnproofError
from turnproof.proofs.doctor.finding import Finding, Severity
from turnproof.proofs.doctor.place import LEGACY, Place

__all__ = ["Torn", "blank_failing_lines", "leftovers", "rehearse", "torn_line"]

_PLACE: Final = re.compile(r"(?P<path>.*), line (?P<line>\d+): (?P<reason>.*); nothing was imported", re.DOTALL)
_CHUNK: Final = 65_536
_MOST_BLANKED: Final = 100
"""With more lines that fail, a file is something else."""


class _OneFile(Files):
    """The folder as if it held one file, which stays as it is."""

    def __init__(self, path: str) -> None:
        self._path = path

    def listdir(self, path: str) -> list[str]:
        return [os.path.basename(self._path)]

    def open(self, path: str) -> AbstractContextManager[BinaryIO]:
        return super().open(self._path)  # the folder may have any name

    def exists(self, path: str) -> bool:
        return False  # so that nothing is there to be renamed

    def rename(self, old: str, new: str) -> None: ...

    def unlink(self, path: str) -> None: ...

    def sync_directory(self, path: str) -> None: ...


def rehearse(place: Place, scratch: str, present: frozenset[str], now: int) -> tuple[str, list[Finding]]:
    """Import every file of a run that is not ``present`` into a scratch store: its file, and what was found."""
    options = _empty_store(scratch)
    findings: list[Finding] = []
    for name in place.legacy:
        folder = place.folder or ""
        path, run_id = os.path.join(folder, name), name.removesuffix(LEGACY)
        if run_id in present:
            findings.append(
                Finding(
                    code="present",
                    severity=Severity.NOTE,
                    file=path,
                    run=run_id,
                    what="the store has this run already; the next open keeps its own and renames the file",
                )
            )
            continue
        try:
            import_runs(_OneFile(path), scratch, options, now)
        except TurnproofError as error:
            findings.append(_failed(path, error.message))
            continue
        torn = torn_line(path)
        if torn is not None:
            findings.append(_torn(path, run_id, torn))
    return options.file, findings


def _empty_store(scratch: str) -> Options:
    file = os.path.join(scratch, f"legacy-{secrets.token_hex(4)}.db")
    Files().create(file, schema.image())
    return Options(file=file, synchronous=1, busy_timeout_ms=10_000, wal_autocheckpoint=1000)


def blank_failing_lines(path: str, scratch: str, now: int) -> list[tuple[int, str]] | None:
    """Make a copy of a file importable: lines that fail the import become blank, and are answered with the reason.

    ``None`` when that does not help.
    """
    options, failed = _empty_store(scratch), dict[int, str]()
    while True:
        try:
            import_runs(_OneFile(path), scratch, options, now)
            return sorted(failed.items())
        except TurnproofError as error:
            match = _PLACE.fullmatch(error.message)
        line = 0 if match is None else int(match["line"])
        if match is None or line in failed or len(failed) == _MOST_BLANKED:
            return None
        failed[line] = match["reason"]
        with open(path, "r+b") as file:
            lines = file.read().split(b"\n")
            lines[line - 1] = b""  # blank, so that the numbers of the others stay
            file.seek(0)
            file.truncate()
            file.write(b"\n".join(lines))


def _failed(path: str, message: str) -> Finding:
    match = _PLACE.fullmatch(message)
    reason = message if match is None else match["reason"]
    waits = os.path.basename(os.path.dirname(os.path.abspath(path))) == "runs"
    return Finding(
        code="import_failed",
        severity=Severity.DAMAGE,
        file=path,
        line=None if match is None else int(match["line"]),
        what=f"the next open of the store fails here: {reason}" if waits else f"this is no log of a run: {reason}",
        remedy="mend or move the file by hand; until then the store in this directory does not open"
        if waits
        else "no store imports it where it is: that is done from 'runs' in a store's directory",
    )


# --- torn lines ------------------------------------------------------------------------------------------------------


@frozen
class Torn:
    """A last line that was not written to its end."""

    line: int
    offset: int
    size: int


def _torn(path: str, run_id: str, torn: Torn) -> Finding:
    return Finding(
        code="torn_line",
        severity=Severity.ATTENTION,
        file=path,
        line=torn.line,
        run=run_id,
        what=f"the last line is torn: {torn.size} bytes at offset {torn.offset}, without an end and no JSON",
        remedy="the write was cut off; the import drops this one line and keeps all before it",
    )


def torn_line(path: str) -> Torn | None:
    """The torn last line of a file. Raises ``OSError``."""
    number, offset = 1, 0
    with open(path, "rb") as file:
        at = 0
        while data := file.read(_CHUNK):
            ends = data.count(b"\n")
            if ends:
                number, offset = number + ends, at + data.rindex(b"\n") + 1
            at += len(data)
        file.seek(offset)
        line = file.read()
    return None if not line.strip() or _is_json(line) else Torn(number, offset, len(line))


def _is_json(line: bytes) -> bool:
    try:
        json.loads(line.decode(), parse_constant=_refuse)
    except (ValueError, RecursionError):
        return False
    return True


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")


# --- what an import left behind --------------------------------------------------------------------------------------


def leftovers(place: Place, runs: frozenset[str]) -> Iterator[Finding]:
    """Locks of the former format, and files that were imported into a store that does not have their run."""
    folder = place.folder or ""
    if place.locks:
        yield Finding(
            code="locks",
            severity=Severity.NOTE,
            file=folder,
            what=f"{len(place.locks)} lock files of the former format; the next open removes them",
        )
    for name in place.imported:
        run_id = name.partition(f"{LEGACY}.imported")[0]
        if run_id not in runs and place.database is not None and not holds_nothing(os.path.join(folder, name)):
            yield Finding(
                code="imported_run_missing",
                severity=Severity.ATTENTION,
                file=os.path.join(folder, name),
                run=run_id,
                what="the file was imported, and the store does not have the run",
                remedy="either the session was deleted since (then move the file away), or the store is older than the "
                "import: its -wal was lost, or a backup was put back; to import it again, rename it to .jsonl",
            )


def holds_nothing(path: str) -> bool:
    """Whether a file holds no record at all: nothing, blank lines, or a torn one."""
    with open(path, "rb") as file:
        return all(not line.strip() or (not line.endswith(b"\n") and not _is_json(line)) for line in file)
