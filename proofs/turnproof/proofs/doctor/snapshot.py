"""A private copy of a store, made without leaving a trace on the original.

Opening a database in WAL mode writes: it makes a ``-wal`` and a ``-shm``, recovers one from the other, and the last to
close moves the log and removes both. So nothing here opens the original, with one exception. When *another process has
it open*, only SQLite can say which pages belong together: then a read-only connection copies it in one step through
the backup API, which takes the read lock that any reader takes and makes no file (the log and its index are there).
Whether somebody has it open is asked of the kernel (``F_GETLK``), which takes no lock either.

Of a store that nobody has open the files are copied, and looked at before and after: if one changed meanwhile, again.

Never call this in a process that has the store open itself. POSIX locks belong to a process, and closing a file gives
all of its locks up.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import struct
import sys
from contextlib import closing
from typing import Final
from urllib.parse import quote

from attrs import frozen

from turnproof.proofs.doctor.finding import NotAStore, shown

if sys.platform != "win32":
    import fcntl

__all__ = ["SIDES", "Snapshot", "copy_private", "holder_of", "take"]

SIDES: Final = ("-wal", "-journal")
"""What belongs to a database besides the file. Not the ``-shm``: it is made anew from the log."""

_TRIES: Final = 5
_BACKUP_WAIT_MS: Final = 10_000


@frozen(kw_only=True)
class Snapshot:
    """A private copy."""

    file: str
    method: str
    """How it was made, in words."""
    holder: int | None
    """The process that has the original open."""
    torn: bool
    """The original was being written while it was copied."""


def take(database: str, scratch: str, holder: int | None) -> Snapshot:
    """Copy a database and its log into ``scratch``. Raises ``NotAStore``."""
    _demand_room(database, scratch)
    target = os.path.join(scratch, "journal.db")
    try:
        if holder is not None and all(os.path.exists(f"{database}{side}") for side in ("-wal", "-shm")):
            try:
                _backup(database, target)
                return Snapshot(file=target, method=f"backup of the live store{_by(holder)}", holder=holder, torn=False)
            except sqlite3.Error:
                _remove(target)
        torn = not _copy_until_quiet(database, target)
    except OSError as error:
        raise NotAStore("unreadable", f"{shown(database)} cannot be read: {error.strerror or error}", "") from None
    method = "copy of the files" if holder is None else f"copy of the files of a live store{_by(holder)}"
    return Snapshot(file=target, method=method, holder=holder, torn=torn)


def _by(holder: int) -> str:
    return f" (process {holder} has it open)" if holder > 0 else " (another process has it open)"


def _demand_room(database: str, scratch: str) -> None:
    sizes = [_size(f"{database}{side}") for side in ("", *SIDES)]
    needed, free = sum(sizes) + sizes[1], shutil.disk_usage(scratch).free  # moving the log lets the copy grow
    if needed > free:
        raise NotAStore(
            "no_room",
            f"a private copy needs {needed:,} bytes, and {shown(os.path.dirname(scratch))} has {free:,} left",
            "set TMPDIR to a directory on a larger disk",
        )


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size
    except OSError:
        return 0


# --- is somebody at work? --------------------------------------------------------------------------------------------

_PENDING_BYTE: Final = 0x40000000
_RANGES: Final = (("", _PENDING_BYTE, 512), ("-shm", 120, 9))
"""The bytes on which SQLite's unix VFS keeps locks: any connection holds one of them."""


def holder_of(database: str) -> int | None:
    """The process that has the database open, 0 when it cannot be named; ``None`` when there is none."""
    if sys.platform not in ("linux", "darwin"):
        return 0 if os.path.exists(f"{database}-shm") else None  # it cannot be asked: a log index must do as a sign
    for side, start, length in _RANGES:
        try:
            with open(f"{database}{side}", "rb") as file:
                found = _lock_on(file.fileno(), start, length)
        except OSError:
            continue
        if found is not None:
            return found
    return None


def _lock_on(handle: int, start: int, length: int) -> int | None:
    """Who holds any lock on these bytes of an open file."""
    if sys.platform == "linux":
        form = struct.Struct("@hhqqi4x")
        asked = form.pack(fcntl.F_WRLCK, os.SEEK_SET, start, length, 0)
        kind, _, _, _, process = form.unpack(fcntl.fcntl(handle, fcntl.F_GETLK, asked))
    elif sys.platform == "darwin":
        form = struct.Struct("@qqihh")
        asked = form.pack(start, length, 0, fcntl.F_WRLCK, os.SEEK_SET)
        _, _, process, kind, _ = form.unpack(fcntl.fcntl(handle, fcntl.F_GETLK, asked))
    else:
        return None
    return None if kind == fcntl.F_UNLCK else max(int(process), 0)


# --- copying ---------------------------------------------------------------------------------------------------------


def _backup(database: str, target: str) -> None:
    os.close(os.open(target, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    uri = f"file:{quote(os.fsencode(database))}?mode=ro"
    with (
        closing(sqlite3.connect(uri, uri=True, isolation_level=None)) as source,
        closing(sqlite3.connect(target, isolation_level=None)) as copy,
    ):
        source.execute(f"PRAGMA busy_timeout = {_BACKUP_WAIT_MS}")
        source.backup(copy)


def _copy_until_quiet(database: str, target: str) -> bool:
    """Copy the files; whether nothing was written to them meanwhile."""
    for _ in range(_TRIES):
        before = _stamps(database)
        _remove(target)
        for side in ("", *SIDES):
            if os.path.exists(f"{database}{side}"):
                copy_private(f"{database}{side}", f"{target}{side}")
        if _stamps(database) == before:
            return True
    return False


def copy_private(source: str, target: str) -> None:
    """Copy a file to a new one that only its owner may read."""
    os.close(os.open(target, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    shutil.copyfile(source, target)


def _stamps(database: str) -> list[tuple[int, int, int] | None]:
    found: list[tuple[int, int, int] | None] = []
    for side in ("", *SIDES):
        try:
            status = os.stat(f"{database}{side}")
            found.append((status.st_ino, status.st_size, status.st_mtime_ns))
        except FileNotFoundError:
            found.append(None)
    return found


def _remove(target: str) -> None:
    for side in ("", "-shm", *SIDES):
        if os.path.exists(f"{target}{side}"):
            os.unlink(f"{target}{side}")
