"""What SQLite says of a private copy, and what it does not notice: pages of nothing but zeros, changed tables.

The copy's log is moved into it first, so that from here on it is one file.
"""

from __future__ import annotations

import os
import sqlite3
import struct
from collections.abc import Iterator
from contextlib import closing
from typing import Final

from turnproof.impl import schema
from turnproof.proofs.doctor.finding import Finding, Severity
from turnproof.proofs.doctor.header import Header
from turnproof.proofs.doctor.wal import FRAME_HEADER

__all__ = ["Lenient", "move_log", "pages_of", "read_only", "schema_findings", "stranded", "verify"]

_PROBLEMS: Final = 20
"""How many problems SQLite is asked for."""
_BLOCK: Final = 256
"""Pages read at once."""
_PENDING_BYTE: Final = 0x40000000
BACKUP: Final = "restore a backup"


class Lenient:
    """Reads text that is not UTF-8 too, and remembers that it met some: SQLite does not look."""

    def __init__(self) -> None:
        self.met = False

    def __call__(self, data: bytes) -> str:
        try:
            return data.decode()
        except UnicodeDecodeError:
            self.met = True
            return data.decode("utf-8", "replace")


def read_only(file: str) -> tuple[sqlite3.Connection, Lenient]:
    """A connection to a private copy that never writes."""
    connection = sqlite3.connect(file, isolation_level=None)
    lenient = Lenient()
    connection.text_factory = lenient
    for pragma in ("query_only = 1", "cell_size_check = 1", "trusted_schema = 0"):
        connection.execute(f"PRAGMA {pragma}")
    return connection, lenient


# --- the log ---------------------------------------------------------------------------------------------------------


def move_log(file: str) -> int | None:
    """Move the copy's log into it; answers how many of its pages SQLite accepted, ``None`` when it cannot be moved."""
    try:
        with closing(sqlite3.connect(file, isolation_level=None)) as connection:
            connection.execute("PRAGMA trusted_schema = 0")
            connection.execute("SELECT 1 FROM sqlite_schema").fetchone()
            row: tuple[int, int, int] = connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    except sqlite3.Error:
        return None  # the check that follows says why
    return max(row[1], 0)


def stranded(header: Header, accepted: int) -> Iterator[Finding]:
    """Commits in the original's log behind the place where SQLite stops reading it.

    One may be a transaction that a power cut tore before it was acknowledged. Two cannot: something before was changed.
    """
    if header.log is None or header.log.salts is None:
        return
    commits = 0
    with open(f"{header.file}-wal", "rb") as log:
        for frame in range(accepted, header.log.frames):
            log.seek(32 + frame * (FRAME_HEADER + header.page_size))
            _, size, one, two = struct.unpack(">4I", log.read(16))
            commits += size > 0 and (one, two) == header.log.salts
    lost = header.index is not None and header.index.salts == header.log.salts and header.index.committed > accepted
    if commits:
        damage = commits > 1 or lost
        yield Finding(
            code="wal_damaged" if damage else "wal_torn",
            severity=Severity.DAMAGE if damage else Severity.NOTE,
            file=f"{header.file}-wal",
            what=f"SQLite reads {accepted} pages of the log and stops at one that is not whole; "
            f"{commits} commit{'s stand' if commits > 1 else ' stands'} behind it",
            remedy=f"acknowledged work is lost; {BACKUP}" if damage else "",
        )


# --- SQLite's own check ----------------------------------------------------------------------------------------------


def verify(connection: sqlite3.Connection, file: str) -> Iterator[Finding]:
    """``PRAGMA integrity_check``, one finding a problem."""
    try:
        rows: list[tuple[str]] = connection.execute(f"PRAGMA integrity_check({_PROBLEMS})").fetchall()
    except sqlite3.Error as error:
        rows = [(str(error),)]
    problems = [line for (text,) in rows for line in text.splitlines() if line and line != "ok"]
    problems = [problem for problem in problems if not problem.startswith("*** in database")]
    for problem in problems[:_PROBLEMS]:
        index = "from index" in problem or "in index" in problem
        yield Finding(
            code="index" if index else "integrity",
            severity=Severity.DAMAGE,
            file=file,
            what=f"SQLite's integrity check: {problem}",
            remedy="an index can be built anew from its table: --repair-to COPY does" if index else BACKUP,
        )


def schema_findings(connection: sqlite3.Connection, file: str) -> Iterator[Finding]:
    """Tables and indexes that are missing, changed, or not ours."""
    try:
        found = _objects(connection)
    except sqlite3.Error as error:
        yield Finding(
            code="integrity", severity=Severity.DAMAGE, file=file, what=f"no table can be read: {error}", remedy=BACKUP
        )
        return
    with closing(sqlite3.connect(":memory:")) as fresh:
        for statement in schema.DDL:
            fresh.execute(statement)
        wanted = _objects(fresh)
    for name in sorted(wanted.keys() - found.keys()):
        yield _schema(file, Severity.DAMAGE, f"{name} is missing", BACKUP)
    for name in sorted(found.keys() - wanted.keys()):
        yield _schema(file, Severity.ATTENTION, f"{name!r} is none of ours", "find out who made it, and what it does")
    for name in sorted(name for name in wanted.keys() & found.keys() if wanted[name] != found[name]):
        yield _schema(file, Severity.DAMAGE, f"{name} is not defined as this release defines it", BACKUP)


def _objects(connection: sqlite3.Connection) -> dict[str, str]:
    rows: list[tuple[str, str]] = connection.execute(
        "SELECT name, sql FROM sqlite_schema WHERE sql IS NOT NULL AND name NOT LIKE 'sqlite!_%' ESCAPE '!'"
    ).fetchall()
    return dict(rows)


def _schema(file: str, severity: Severity, what: str, remedy: str) -> Finding:
    return Finding(code="schema", severity=severity, file=file, what=f"schema: {what}", remedy=remedy)


# --- pages -----------------------------------------------------------------------------------------------------------


def pages_of(copy: str, header: Header, *, damaged: bool) -> Iterator[Finding]:
    """Pages of nothing but zeros that are in use. A free page may be zeroed, and so is the one that holds locks."""
    zeroed = _zeroed(copy, header.page_size)
    free = _free(copy, header.page_size) if zeroed else frozenset()
    beyond = header.size // header.page_size
    here = [page for page in zeroed if page not in free and page <= beyond]
    missing = [page for page in zeroed if page not in free and page > beyond]
    if missing and damaged and not header.idle:
        yield Finding(
            code="truncated",
            severity=Severity.DAMAGE,
            file=header.file,
            what=f"the file is truncated: it ends after page {beyond}, and the log holds no copy of {_list(missing)}",
            remedy=BACKUP,
        )
    if here:
        verb = "are" if here[1:] else "is"
        yield Finding(
            code="zeroed_page",
            severity=Severity.DAMAGE if damaged else Severity.NOTE,
            file=header.file,
            what=f"{_list(here)} {verb} zeroed ({header.page_size} bytes at {(here[0] - 1) * header.page_size:#x})",
            remedy=f"{BACKUP}; the disk or the file system lost what it was given" if damaged else "",
        )


def _list(pages: list[int]) -> str:
    if len(pages) == 1:
        return f"page {pages[0]}"
    more = f" and {len(pages) - 8} more" if len(pages) > 8 else ""
    return f"pages {', '.join(map(str, pages[:8]))}{more}"


def _zeroed(file: str, width: int) -> list[int]:
    """The numbers of the pages that hold nothing but zeros."""
    nothing, found, number = bytes(width), [], 0
    with open(file, "rb") as handle:
        while block := handle.read(width * _BLOCK):
            for at in range(0, len(block), width):
                number += 1
                if block[at] == 0 and block[at : at + width] == nothing and number != _PENDING_BYTE // width + 1:
                    found.append(number)
    return found


def _free(file: str, width: int) -> frozenset[int]:
    """The free pages, as far as their list can be followed."""
    found: set[int] = set()
    with open(file, "rb") as handle:
        total = os.fstat(handle.fileno()).st_size // width
        handle.seek(32)
        trunk = int.from_bytes(handle.read(4))
        seen: set[int] = set()
        while 0 < trunk <= total and trunk not in seen:
            seen.add(trunk)
            found.add(trunk)  # an empty one at the end of the list is nothing but zeros
            handle.seek((trunk - 1) * width)
            data = handle.read(width)
            trunk, count = struct.unpack_from(">II", data)
            found.update(leaf for (leaf,) in struct.iter_unpack(">I", data[8 : 8 + 4 * min(count, width // 4 - 2)]))
    return frozenset(found)
