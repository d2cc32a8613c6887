"""Whose file it is, and whether all of it is there: the first 100 bytes, the sizes, the log and its index.

This is judged on the original, before anything is copied: a foreign file may be large, and what SQLite makes of a store
without its log is exactly what must not be believed.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from typing import Final

from attrs import evolve, frozen

from turnproof.impl import schema
from turnproof.impl.schema import newest_first_page
from turnproof.proofs.doctor.finding import Finding, NotAStore, Severity, shown
from turnproof.proofs.doctor.wal import Index, Log, read_index, read_log

__all__ = ["Header", "identify", "missing_log"]

_MAGIC: Final = b"SQLite format 3\x00"
_BACKUP: Final = "restore a backup; keep this file until you are sure that you have one"


@frozen(kw_only=True)
class Header:
    """What was read of a database without opening it."""

    file: str
    size: int
    log: Log | None
    index: Index | None
    has_index: bool
    """A ``-shm`` is there, whether or not it can be trusted."""
    page_size: int
    pages: int
    """How many the header promises; a log that waits may say otherwise."""
    wal_mode: bool
    version: int
    findings: tuple[Finding, ...]
    readable: bool
    """Whether it makes sense to go on."""

    @property
    def idle(self) -> bool:
        """No log is waiting: the file is all there is."""
        return self.log is None or self.log.frames == 0

    @property
    def promised(self) -> int:
        return self.pages * self.page_size


def identify(file: str, holder: int | None) -> Header:
    """Judge a database by its bytes; ``holder`` is the process that has it open.

    Raises ``NotAStore`` for what is none of ours or cannot be read.
    """
    try:
        with open(file, "rb") as handle:
            head = handle.read(100)
            size = handle.seek(0, 2)
        log = read_log(f"{file}-wal")
        has_index = _exists(f"{file}-shm")
        index = read_index(f"{file}-shm")
        page = head
        if log is not None and len(head) == 100:
            with open(f"{file}-wal", "rb") as waiting:
                page = newest_first_page(head, waiting)
    except OSError as error:
        raise NotAStore("unreadable", f"{shown(file)} cannot be read: {error.strerror or error}", "") from None
    hopeless = _hopeless(file, size, page)
    if hopeless is None:
        _demand_ours(file, page)
    version, width = struct.unpack_from(">I", page.ljust(100, b"\0"), 60)[0], int.from_bytes(page[16:18])
    found = Header(
        file=file,
        size=size,
        log=log,
        index=index,
        has_index=has_index,
        page_size=65536 if width == 1 else max(width, 512),
        pages=int.from_bytes(page[28:32]),
        wal_mode=page[18:20] == b"\x02\x02",
        version=version,
        findings=(hopeless,) if hopeless is not None else (),
        readable=hopeless is None,
    )
    return found if hopeless is not None else _with_findings(found, holder)


def _exists(path: str) -> bool:
    try:
        with open(path, "rb"):
            return True
    except FileNotFoundError:
        return False


def _hopeless(file: str, size: int, page: bytes) -> Finding | None:
    """Why nothing at all can be read from a file that may well have been a store."""
    if size == 0:
        code, what = "empty_file", "the database file is empty (0 bytes); a store is never empty"
    elif page.startswith(_MAGIC[:size]) and len(page) < 100:
        code, what = "truncated", f"the file is truncated to {size} bytes; not even its header is whole"
    elif not any(page):
        code, what = "zeroed_page", "page 1 is zeroed: the header is gone, so nothing says whose file this was"
    else:
        return None
    return Finding(code=code, severity=Severity.DAMAGE, file=file, what=what, remedy=_BACKUP)


def _demand_ours(file: str, page: bytes) -> None:
    if not page.startswith(_MAGIC):
        raise NotAStore(
            "not_sqlite", f"{shown(file)} is not a SQLite database", "is it the right path? nothing was read further"
        )
    version, application = struct.unpack_from(">I4xI", page, 60)
    if application != schema.APPLICATION_ID:
        raise NotAStore(
            "foreign",
            f"{shown(file)} is a SQLite database of another program (application_id {application:#x}, "
            f"a turnproof store has {schema.APPLICATION_ID:#x})",
            "is it the right path? nothing was read further",
        )
    if version > schema.VERSION:
        raise NotAStore(
            "newer_schema",
            f"{shown(file)} has schema version {version}; this release reads up to {schema.VERSION}",
            "use the turnproof release that wrote it, or a later one",
        )


def _with_findings(header: Header, holder: int | None) -> Header:
    log = missing_log(header) if holder is None else _pulled_away(header, holder)
    return evolve(header, findings=(*_sizes(header), *log))


def _sizes(header: Header) -> Iterator[Finding]:
    if header.idle and header.size < header.promised:
        yield Finding(
            code="truncated",
            severity=Severity.DAMAGE,
            file=header.file,
            what=f"the file is truncated: {header.size:,} of {header.promised:,} bytes are there",
            remedy=f"{_BACKUP}. What the findings below do not name could still be read",
        )
    elif header.idle and header.size > header.promised:
        yield Finding(
            code="longer",
            severity=Severity.NOTE,
            file=header.file,
            what=f"the file has {header.size:,} bytes, {header.size - header.promised:,} more than its header promises",
        )
    if header.version < 1:
        yield Finding(
            code="schema_version",
            severity=Severity.DAMAGE,
            file=header.file,
            what=f"schema version {header.version}, which no release ever wrote",
            remedy=_BACKUP,
        )
    if not header.wal_mode:
        yield Finding(
            code="journal_mode",
            severity=Severity.ATTENTION,
            file=header.file,
            what="the header does not say WAL: another program changed the journal mode",
            remedy="opening the store sets WAL again; find out who else writes to this file",
        )
    if _exists(f"{header.file}-journal"):
        yield Finding(
            code="rollback_journal",
            severity=Severity.ATTENTION,
            file=f"{header.file}-journal",
            what="a rollback journal is beside the file; a store has none: another program wrote here, and died",
            remedy="do not remove it: opening the store rolls the unfinished change back, as was done for this answer",
        )


# --- a log that is not there -----------------------------------------------------------------------------------------

_LOST: Final = (
    "what was acknowledged last is lost; restore a backup, or put the right -wal back before anything opens the store"
)


def missing_log(header: Header) -> Iterable[Finding]:
    """What the index says of a log that is not beside it, or not whole. For a store that nobody has open."""
    log, index, file = header.log, header.index, f"{header.file}-wal"
    there = 0 if log is None else log.frames
    if index is None or not index.committed:
        if header.has_index and (log is None or log.size == 0):
            yield _gone(file, Severity.ATTENTION, "its index (-shm) is there, but does not say what the log held")
        return
    if log is not None and log.salts is not None and log.salts != index.salts:
        yield Finding(
            code="wal_replaced",
            severity=Severity.ATTENTION,
            file=file,
            what=f"the -wal is not the one that the index (-shm) was made for, which held {index.committed} pages",
            remedy="was a file of another moment put here? compare with a backup",
        )
    elif there < index.committed:
        lost = index.committed - max(there, index.moved)
        held = f"it held {index.committed} committed pages, {index.moved} of them had been moved to the database"
        if lost <= 0:
            yield _gone(file, Severity.NOTE, f"{held}: nothing is lost")
        elif there:
            yield Finding(
                code="wal_truncated",
                severity=Severity.DAMAGE,
                file=file,
                what=f"the write-ahead log is truncated: {held}, and only {there} are there",
                remedy=_LOST,
            )
        else:
            yield _gone(file, Severity.DAMAGE, f"{held}, so {lost} are lost")


def _gone(file: str, severity: Severity, evidence: str) -> Finding:
    remedy = {Severity.NOTE: "", Severity.ATTENTION: f"if it held anything, {_LOST}"}.get(severity, _LOST)
    return Finding(
        code="wal_missing",
        severity=severity,
        file=file,
        what=f"the write-ahead log is missing: {evidence}",
        remedy=remedy,
    )


def _pulled_away(header: Header, holder: int) -> Iterable[Finding]:
    """A log that was removed under a process that has the store open. (Its size and its index change all the time.)"""
    if header.log is None:
        who = f"process {holder}" if holder else "a process"
        yield Finding(
            code="wal_missing",
            severity=Severity.DAMAGE,
            file=f"{header.file}-wal",
            what=f"the write-ahead log was removed while {who} has the store open: what it commits now goes to a file "
            "without a name",
            remedy="do not kill that process and open the store nowhere else: closing the store writes the log back",
        )
