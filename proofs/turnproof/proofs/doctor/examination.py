"""The examination of a place, from the outside in: names, bytes, pages, tables, chains, conversations.

What an outer layer finds decides how far the next can be trusted, so findings are kept in that order; a reader who
starts at the top reads causes before consequences.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Final

from attrs import define

from turnproof.impl import schema
from turnproof.model.rows import Slot, Submission
from turnproof.model.transcript import Transcript
from turnproof.model.vocabulary import InvalidArgument, Status
from turnproof.proofs.doctor import conversations, integrity, legacy, snapshot, turns
from turnproof.proofs.doctor.chain import Chain, run_ids, walk
from turnproof.proofs.doctor.finding import Examination, Finding, Severity
from turnproof.proofs.doctor.header import Header, identify
from turnproof.proofs.doctor.place import Place, look
from turnproof.proofs.doctor.tables import Tables, load

__all__ = ["Examined", "Say", "examine"]

Say = Callable[[str], None]
"""Tells a person what is being done."""

UNKNOWABLE: Final = (
    "neither a log nor its index is beside the file: the store was closed in order; or it was copied or put back "
    "without its -wal, which looks the same: then it is an older state of itself, and no examination can tell"
)
FLUSH: Final = (
    "not stored in the file: synchronous is a setting of each connection (open_store: flush='always' is FULL, "
    "'relaxed' is NORMAL)"
)


@define
class Examined:
    """An examination, and the private copies that it was made on."""

    answer: Examination
    place: Place
    copy: str | None = None
    """The database, its log moved in; ``None`` when there is nothing to be read."""


@define
class _Bedside:
    """What the layers share."""

    answer: Examination
    now: int
    say: Say
    live: bool = False


def examine(path: str, scratch: str, now: int, say: Say) -> Examined:
    """Examine what is at ``path``; ``scratch`` is a private directory. Raises ``NotAStore``."""
    place = look(path)
    found = Examined(Examination(path=path, kind=place.kind), place)
    bedside = _Bedside(found.answer, now, say)
    runs = frozenset[str]()
    if place.lost:
        found.answer.add([_lost(place)])
    if place.database is not None:
        try:
            runs = _store(found, bedside, place.database, scratch)
        except UnicodeDecodeError:  # in the text of the schema, which SQLite hands out as it is
            found.answer.add([_undecodable(place.database)])
    if place.legacy:
        _legacy(bedside, place, scratch, runs)
    found.answer.add(legacy.leftovers(place, runs))
    return found


def _lost(place: Place) -> Finding:
    return Finding(
        code="database_missing",
        severity=Severity.DAMAGE,
        file=os.path.join(place.path, "journal.db"),
        what="the database is missing, but its write-ahead log is there",
        remedy="restore a backup of the database; keep the log, it may hold what was acknowledged since",
    )


def _store(found: Examined, bedside: _Bedside, database: str, scratch: str) -> frozenset[str]:
    """Examine a database; answers the runs that it has."""
    answer = found.answer
    holder = snapshot.holder_of(database)
    bedside.live = holder is not None
    header = identify(database, holder)
    answer.add(header.findings)
    _header_facts(answer, header)
    if not header.readable:
        return frozenset()
    bedside.say("copying")
    taken = snapshot.take(database, scratch, holder)
    answer.method = taken.method
    found.copy = taken.file
    if taken.torn:
        answer.add([_in_motion(database)])
    if header.idle and header.size < header.promised:
        os.truncate(taken.file, header.promised)  # with zeros, so that SQLite reads what is there
    moved = integrity.move_log(taken.file)
    if not bedside.live and moved is not None:
        answer.add(integrity.stranded(header, moved))
    at = len(answer.findings)
    connection, lenient = integrity.read_only(taken.file)
    with closing(connection):
        runs = _contents(bedside, connection, database)
    if lenient.met:
        answer.add([_undecodable(database)])
    damaged = bool(answer.of(Severity.DAMAGE))
    answer.findings[at:at] = integrity.pages_of(taken.file, header, damaged=damaged)
    if not header.has_index and header.log is None and not damaged:
        answer.add([Finding(code="closed", severity=Severity.NOTE, file=f"{database}-wal", what=UNKNOWABLE)])
    return runs


def _header_facts(answer: Examination, header: Header) -> None:
    facts: dict[str, str | int] = {"database bytes": header.size}
    if header.readable:
        facts |= {
            "page size": header.page_size,
            "schema version": f"{header.version} (this release: {schema.VERSION})",
            "application id": f"{schema.APPLICATION_ID:#x}",
            "journal mode": "wal" if header.wal_mode else "not wal",
            "flush mode": FLUSH,
        }
    if header.log is not None:
        facts["-wal bytes"] = header.log.size
        facts["-wal pages"] = header.log.frames
    if header.index is not None:
        facts["-wal pages not yet in the database"] = header.index.unmoved
    facts["read with SQLite"] = sqlite3.sqlite_version
    answer.facts.update(facts)


def _in_motion(database: str) -> Finding:
    return Finding(
        code="in_motion",
        severity=Severity.ATTENTION,
        file=database,
        what="the store was being written while its files were copied, so what follows may be of no one moment",
        remedy="run it again, if possible when nobody has the store open",
    )


def _undecodable(database: str) -> Finding:
    return Finding(
        code="not_utf8",
        severity=Severity.DAMAGE,
        file=database,
        what="a text is not UTF-8; a store writes nothing else",
        remedy="restore a backup",
    )


# --- what is in it ---------------------------------------------------------------------------------------------------


def _contents(bedside: _Bedside, connection: sqlite3.Connection, database: str) -> frozenset[str]:
    answer = bedside.answer
    answer.add(integrity.schema_findings(connection, database))
    bedside.say("integrity check")
    answer.add(integrity.verify(connection, database))
    bedside.say("tables")
    tables = load(connection, database)
    try:
        runs = run_ids(connection)
    except sqlite3.Error as error:
        answer.add([_no_runs(database, error)])
        runs = []
    _counts(answer, tables, len(runs))
    answer.add(tables.findings)
    answer.add(turns.judge(tables, frozenset(runs)))
    _runs(bedside, connection, tables, runs)
    return frozenset(runs)


def _no_runs(database: str, error: sqlite3.Error) -> Finding:
    return Finding(
        code="unreadable_table",
        severity=Severity.DAMAGE,
        file=database,
        what=f"the runs cannot be listed: {error}",
        remedy="restore a backup",
    )


def _counts(answer: Examination, tables: Tables, runs: int) -> None:
    rows = tables.submissions.values()
    answer.counts.update(
        runs=runs,
        submissions=len(rows),
        queued=sum(row.status is Status.QUEUED for row in rows),
        running=sum(row.status is Status.RUNNING for row in rows),
        slots=len(tables.slots),
        segments=tables.segments,
        receipts=len(tables.receipts),
    )


def _runs(bedside: _Bedside, connection: sqlite3.Connection, tables: Tables, runs: list[str]) -> None:
    """Every run and every session, one at a time: its chain, its conversation, its anchors, its recoveries."""
    by_session = tables.by_session()
    for session in sorted(by_session.keys() | set(runs)):
        bedside.say(f"run {session}")
        chain = walk(connection, session) if session in runs else None
        if chain is not None:
            _count(bedside.answer, chain)
        bedside.answer.add(_session(bedside, tables, session, by_session.get(session, []), chain))


def _count(answer: Examination, chain: Chain) -> None:
    answer.counts["records"] = answer.counts.get("records", 0) + chain.records
    answer.add(chain.findings)


def _session(
    bedside: _Bedside, tables: Tables, session: str, rows: list[Submission[str]], chain: Chain | None
) -> Iterator[Finding]:
    if chain is not None and not chain.sound:
        return  # a changed log says nothing about the conversation, and restore refuses it
    tree = Transcript() if chain is None else conversations.fold_of(chain.folded)
    running = next((row for row in rows if row.status is Status.RUNNING), None)
    slot = None if running is None else tables.slots.get(running.submission_id)
    at_work = running is not None and running.lease_expires_at >= bedside.now
    if chain is not None:
        recorded = conversations.request_of(running, slot)
        yield from conversations.conversation(session, tree, recorded, at_work=at_work)
    for row in rows:
        slot = tables.slots.get(row.submission_id)
        if slot is not None and session not in tables.deletions:
            yield from conversations.anchors(slot, tree, known=chain is not None)
        if row.status is Status.RUNNING:
            yield from _recovery(bedside, row, slot, tree)


def _recovery(bedside: _Bedside, row: Submission[str], slot: Slot[str] | None, tree: Transcript) -> Iterator[Finding]:
    try:
        yield from conversations.recovery(row, slot, tree, bedside.now, live=bedside.live)
    except InvalidArgument:
        return  # its tool request cannot be read, which was said


def _legacy(bedside: _Bedside, place: Place, scratch: str, present: frozenset[str]) -> None:
    bedside.say("legacy files")
    bedside.answer.counts["legacy files"] = len(place.legacy)
    file, findings = legacy.rehearse(place, scratch, present, bedside.now)
    bedside.answer.add(findings)
    connection, _ = integrity.read_only(file)
    with closing(connection):
        runs = run_ids(connection)
        bedside.answer.counts["legacy runs"] = len(runs)
        _runs(bedside, connection, Tables(), runs)
    if not bedside.answer.method:
        bedside.answer.method = "legacy files read in place"
