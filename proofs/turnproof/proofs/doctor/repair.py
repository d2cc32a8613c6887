"""A repaired copy of a store, in a new directory that ``open_store`` can open. The original is never touched.

A store without damage is copied as it is, and the store's own verbs do what waits to be done: ``delete_session``
finishes deletions, ``restore`` records the repair of a torn tail, ``delete_stream_segments`` removes what no submission
is left of. Of a damaged one is kept what can be read and proved (``salvage``). Files of the former format are copied
and imported; a line that fails the import is left out.

The copy is made beside its place under another name, made durable, and then renamed: it is there whole, or not at all.
Last it is examined like any store.
"""

from __future__ import annotations

import os
import secrets
import shutil
import sqlite3
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Final

from attrs import define, field, frozen

from turnproof.impl import Store, open_store
from turnproof.impl.files import Files
from turnproof.impl.store import FILE_NAME
from turnproof.model.vocabulary import CorruptConversation, TurnproofError
from turnproof.proofs.doctor.examination import Examined, Say, examine
from turnproof.proofs.doctor.finding import Examination, Severity, shown
from turnproof.proofs.doctor.legacy import blank_failing_lines
from turnproof.proofs.doctor.salvage import LEFT_OUT, salvage
from turnproof.proofs.doctor.snapshot import copy_private
from turnproof.proofs.terminal import UserError

__all__ = ["Changes", "Repaired", "demand_free", "repair"]

_LOST_WORK: Final = frozenset({"wal_missing", "wal_truncated", "wal_damaged", "wal_replaced"})
"""Findings of acknowledged work that is gone, and left no trace in the database,"""
_GONE: Final = _LOST_WORK | {"truncated", "zeroed_page"}
"""and of anything that is gone."""


@define
class Changes:
    """How a copy differs from the original."""

    done: list[str] = field(factory=list)
    left_out: list[str] = field(factory=list)


@frozen
class Repaired:
    """A repaired copy."""

    target: str
    changes: Changes
    after: Examination
    """The copy, examined."""


def demand_free(target: str) -> None:
    """Refuse a name that is taken, or whose directory is not there."""
    if os.path.lexists(target):
        raise UserError(f"--repair-to: {shown(target)} exists; a copy is only written to a new name")
    if not os.path.isdir(os.path.dirname(os.path.abspath(target))):
        raise UserError(f"--repair-to: there is no directory to make {shown(target)} in")


def repair(found: Examined, target: str, scratch: str, now: int, say: Say) -> Repaired:
    """Write a repaired copy of what was examined. Raises ``UserError`` when none can be written."""
    if (found.place.database is not None or found.place.lost) and found.copy is None:
        raise UserError("no copy was written: nothing can be read of the store")
    changes = Changes()
    try:
        with _renamed(os.path.abspath(target)) as fresh:
            say("writing the copy")
            _write(found, fresh, scratch, now, changes)
        own = os.path.join(scratch, "after")
        os.mkdir(own, 0o700)
        return Repaired(target, changes, examine(target, own, now, say).answer)
    except (OSError, sqlite3.Error, TurnproofError) as error:
        raise UserError(f"the copy {shown(target)} cannot be written: {error}") from None


@contextmanager
def _renamed(target: str) -> Iterator[str]:
    """A directory under another name, which gets its own once all in it is durable."""
    files, fresh = Files(), f"{target}.new-{secrets.token_hex(8)}"
    os.mkdir(fresh, 0o700)
    try:
        yield fresh
        for folder, _, names in os.walk(fresh):
            for name in names:
                files.sync(os.path.join(folder, name))
            files.sync_directory(folder)
        demand_free(target)
        os.rename(fresh, target)
        files.sync_directory(os.path.dirname(target))
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


def _write(found: Examined, fresh: str, scratch: str, now: int, changes: Changes) -> None:
    file, salvaged = os.path.join(fresh, FILE_NAME), None
    gone = [finding for finding in found.answer.findings if finding.code in _GONE]
    gone = [finding for finding in gone if finding.severity is not Severity.NOTE]
    changes.left_out += [finding.told for finding in gone]
    if found.copy is not None and _is_damaged(found.answer):
        salvaged = salvage(found.copy, file, now)
        if salvaged.holes and not salvaged.rows:
            raise UserError("no copy was written: not one row can be read of the store")
        changes.left_out += salvaged.left_out
        changes.done += [f"{salvaged.rows} rows are carried into a new database", *salvaged.mended]
        if salvaged.remainder.rows:
            changes.done.append(
                f"what could be read of the left out is in {LEFT_OUT}, a row a line: {salvaged.remainder.rows}"
            )
    elif found.copy is not None:
        copy_private(found.copy, file)
    _carry_legacy(found, fresh, scratch, now, changes)
    with open_store(fresh, clock=lambda: now) as store:
        lost = any(finding.code in _LOST_WORK for finding in gone) or (salvaged is not None and salvaged.holes)
        _stop(store, None if lost else frozenset() if salvaged is None else salvaged.cut, changes)
        _finish(store, found.answer, changes)


def _is_damaged(answer: Examination) -> bool:
    """Whether the database is; a file of the former format is another matter."""
    return any(finding.code != "import_failed" for finding in answer.of(Severity.DAMAGE))


def _carry_legacy(found: Examined, fresh: str, scratch: str, now: int, changes: Changes) -> None:
    """Copy the files that the next open of the store would import."""
    place, runs = found.place, os.path.join(fresh, "runs")
    for name in place.legacy:
        source, copy = os.path.join(place.folder or "", name), os.path.join(runs, name)
        os.makedirs(runs, 0o700, exist_ok=True)
        copy_private(source, copy)
        failing = blank_failing_lines(copy, scratch, now)
        if failing is None:
            os.unlink(copy)
            changes.left_out.append(f"{shown(source)}: it cannot be imported")
            continue
        changes.left_out += [f"{shown(source)} line {line}: {reason}" for line, reason in failing]
        known = any(finding.code == "present" and finding.file == source for finding in found.answer.findings)
        changes.done.append(f"{shown(source)}: {'kept beside the store, which has its run' if known else 'imported'}")
    changes.left_out += [finding.told for finding in found.answer.findings if finding.code == "torn_line"]


# --- what the store's own verbs do -----------------------------------------------------------------------------------


def _stop(store: Store, cut: Collection[str] | None, changes: Changes) -> None:
    """Settle what was running in a session that lost something: to drive it again could run a tool a second time.

    ``None`` stands for every session.
    """
    for row in store.list_running():
        if (cut is None or row.session_key in cut) and row.attempt_id is not None:
            store.fail(row.submission_id, row.attempt_id, "settled by turnproof doctor: the store lost records")
            changes.done.append(
                f"submission {row.submission_id!r} was running and is settled as failed: what it had done is not all "
                "known any more"
            )


def _finish(store: Store, answer: Examination, changes: Changes) -> None:
    for session in store.list_pending_deletions():
        store.delete_session(session)
        changes.done.append(f"run {session!r}: its deletion is finished")
    for finding in answer.findings:
        if finding.code == "orphan_segments" and finding.stream is not None:
            segments = len(store.get_stream_segments(finding.stream))
            store.delete_stream_segments(finding.stream)
            if segments:
                changes.done.append(f"stream {finding.stream!r}: its {segments} orphan segments are removed")
    for run_id in store.runs():
        try:
            torn = store.inspect(run_id).repair
        except CorruptConversation:
            continue  # the examination of the copy says it
        if torn is not None:
            store.restore(run_id)
            dropped = ", ".join(map(repr, torn.dropped_entry_ids))
            changes.done.append(
                f"run {run_id!r}: the torn tail {dropped} is off the path, as seq {store.position(run_id)} records"
            )
