"""The few things that are done to files without SQLite: making, renaming, removing, listing.

They are gathered in one object because a crash between any two of them must be survivable, and a test that wants to
crash there (X1) needs one place to stand. ``open_store(files=...)`` takes any object with the eight ``os``-like methods
of ``FileSystem``; ``Files`` is the real one.
"""

from __future__ import annotations

import io
import os
from contextlib import AbstractContextManager
from typing import BinaryIO, Protocol

from turnproof.impl.identity import Identity, registry

__all__ = ["FileSystem", "Files", "Hooked"]


class FileSystem(Protocol):
    """What a stand-in for the file system must offer. Paths are absolute; errors are those of ``os``."""

    def exists(self, path: str, /) -> bool: ...
    def listdir(self, path: str, /) -> list[str]: ...
    def read(self, path: str, /) -> bytes: ...
    def create(self, path: str, data: bytes, /) -> None: ...
    def sync(self, path: str, /) -> None: ...
    def rename(self, old: str, new: str, /) -> None: ...
    def unlink(self, path: str, /) -> None: ...
    def makedirs(self, name: str, mode: int, exist_ok: bool, /) -> None: ...


class Files:
    """The operating system's files. Every method raises ``OSError`` like the call that it wraps."""

    def exists(self, path: str) -> bool:
        return os.path.exists(path)

    def listdir(self, path: str) -> list[str]:
        """The names in a directory, sorted; none when there is no directory."""
        try:
            return sorted(os.listdir(path))
        except (FileNotFoundError, NotADirectoryError):
            return []

    def size(self, path: str) -> int:
        """Bytes in the file; 0 when there is none."""
        try:
            return os.stat(path).st_size
        except FileNotFoundError:
            return 0

    def identity(self, path: str) -> tuple[int, int] | None:
        """Which file it is; ``None`` when there is none."""
        try:
            found = os.stat(path)
        except OSError:
            return None
        return found.st_dev, found.st_ino

    def open(self, path: str) -> AbstractContextManager[BinaryIO]:
        """The file, to be read; what is no file is an error. Its locks are left alone (F1)."""
        return registry.borrow(path)

    def enter(self, path: str) -> Identity | None:
        """A connection to this file is about to be opened (F1)."""
        return registry.enter(path)

    def leave(self, identity: Identity | None) -> None:
        """A connection that ``enter`` announced was closed (F1)."""
        registry.leave(identity)

    def create(self, path: str, data: bytes) -> None:
        """Make a new file with this content, durable, that only its owner may read.

        SQLite gives the ``-wal`` and the ``-shm`` of a database the mode of the database itself.
        """
        handle = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
        with open(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(handle)

    def rename(self, old: str, new: str) -> None:
        """Rename, never over an existing file (``FileExistsError``).

        A hard link is the one rename that refuses to replace. A crash between its two halves leaves both names on one
        file, which the next call recognises. Where the file system has no hard links, a plain rename must do.
        """
        try:
            os.link(old, new)
        except FileExistsError:
            if not os.path.samefile(old, new):
                raise
        except FileNotFoundError:
            raise
        except OSError:
            if os.path.exists(new):
                raise FileExistsError(f"{new} exists") from None
            os.rename(old, new)
            return
        os.unlink(old)

    def unlink(self, path: str) -> None:
        """Remove a file; one that is gone already is as good."""
        try:
            os.unlink(path)
        except FileNotFoundError:
            return

    def make_directory(self, path: str) -> None:
        """Make a directory that only its owner may enter; one that is there keeps its mode."""
        os.makedirs(path, mode=0o700, exist_ok=True)

    def sync(self, path: str) -> None:
        """Make what was written to a file durable, by whomever."""
        handle = os.open(path, os.O_RDWR if os.name == "nt" else os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)

    def sync_directory(self, path: str) -> None:
        """Make the names in a directory durable, where the system can."""
        if os.name == "posix":
            handle = os.open(path, os.O_RDONLY)
            try:
                os.fsync(handle)
            finally:
                os.close(handle)


class Hooked(Files):
    """The same over a stand-in, which keeps its files elsewhere (in memory, say)."""

    def __init__(self, system: FileSystem) -> None:
        self._system = system

    def exists(self, path: str) -> bool:
        return self._system.exists(path)

    def listdir(self, path: str) -> list[str]:
        try:
            return sorted(self._system.listdir(path))
        except (FileNotFoundError, NotADirectoryError):
            return []

    def size(self, path: str) -> int:
        try:
            return len(self._system.read(path))
        except FileNotFoundError:
            return 0

    def identity(self, path: str) -> tuple[int, int] | None:
        return (0, 0) if self._system.exists(path) else None

    def open(self, path: str) -> AbstractContextManager[BinaryIO]:
        return io.BytesIO(self._system.read(path))

    def enter(self, path: str) -> Identity | None:
        """Nobody counts: a stand-in's files have no locks that a descriptor could drop."""
        return None

    def create(self, path: str, data: bytes) -> None:
        self._system.create(path, data)
        self._system.sync(path)

    def rename(self, old: str, new: str) -> None:
        if self._system.exists(new):
            raise FileExistsError(f"{new} exists")
        self._system.rename(old, new)

    def unlink(self, path: str) -> None:
        try:
            self._system.unlink(path)
        except FileNotFoundError:
            return

    def make_directory(self, path: str) -> None:
        self._system.makedirs(path, 0o700, True)

    def sync(self, path: str) -> None:
        self._system.sync(path)

    def sync_directory(self, path: str) -> None:
        self._system.sync(path)
