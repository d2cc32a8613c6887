"""File operations that a store makes beside SQLite, on the memory disk and in the same log.

A store imports legacy logs: it lists a directory, reads, renames `x.jsonl` to `x.jsonl.imported`, removes a `.lock`.
Where it takes an object for these instead of calling `os`, `Disk.files` is that object for the memory disk. The names
and errors are those of `os` (a missing file is FileNotFoundError, a fault is OSError with EIO or ENOSPC).
Creating, writing, renaming and deleting are recorded; directories and modes are kept but no crash takes them.
"""

from __future__ import annotations

import errno
import os
import posixpath
from typing import TYPE_CHECKING

import attrs

if TYPE_CHECKING:
    from turnproof.proofs.disk.faults import Call
    from turnproof.proofs.disk.node import Node
    from turnproof.proofs.disk.vfs import Disk

__all__ = ["Files"]


@attrs.frozen(eq=False)
class Files:
    """`os` for one memory disk. Paths are absolute and in POSIX form; `os.PathLike` is accepted."""

    _disk: Disk

    def exists(self, path: str | os.PathLike[str]) -> bool:
        name = os.fspath(path)
        return self._disk.node(name) is not None or name in self._disk.directories

    def listdir(self, path: str | os.PathLike[str]) -> list[str]:
        """Names in a directory, sorted."""
        directory = self._directory(os.fspath(path))
        inside = [*self._disk.names(), *(self._disk.directories - {"/"})]
        return sorted(posixpath.basename(name) for name in inside if posixpath.dirname(name) == directory)

    def read(self, path: str | os.PathLike[str]) -> bytes:
        return self._node(os.fspath(path)).read()

    def create(self, path: str | os.PathLike[str], data: bytes = b"") -> None:
        """A new file with `data`, as `os.open(O_CREAT | O_EXCL)` and one write: two events (one where empty)."""
        name = os.fspath(path)
        self._directory(posixpath.dirname(name))
        self._pass("open", name)
        if self._disk.node(name):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), name)
        node = self._disk.create(name)
        if data:
            self._pass("write", name)
            self._disk.write(node, 0, data)

    def sync(self, path: str | os.PathLike[str]) -> None:
        """As `os.fsync`: of a file its content, of a directory its entries."""
        name = os.fspath(path)
        self._pass("sync", name)
        if name in self._disk.directories:
            self._disk.log("syncdir", name)
        else:
            self._node(name)
            self._disk.log("sync", name)

    def rename(self, old: str | os.PathLike[str], new: str | os.PathLike[str]) -> None:
        """As `os.rename` on POSIX: atomic, over an existing file too."""
        source, target = os.fspath(old), os.fspath(new)
        self._pass("rename", source)
        self._node(source)
        self._directory(posixpath.dirname(target))
        self._disk.rename(source, target)

    replace = rename

    def unlink(self, path: str | os.PathLike[str]) -> None:
        name = os.fspath(path)
        self._pass("delete", name)
        self._node(name)
        self._disk.unlink(name)

    remove = unlink

    def makedirs(self, path: str | os.PathLike[str], mode: int = 0o777, exist_ok: bool = False) -> None:
        name = os.fspath(path)
        if name in self._disk.directories and not exist_ok:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), name)
        self._disk.add_directory(name)

    def chmod(self, path: str | os.PathLike[str], mode: int) -> None:
        """Accepted for any file that exists: the memory disk has one user."""
        if not self.exists(path):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), os.fspath(path))

    def _node(self, name: str) -> Node:
        node = self._disk.node(name)
        if node is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), name)
        return node

    def _directory(self, name: str) -> str:
        if name not in self._disk.directories:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), name)
        return name

    def _pass(self, call: Call, name: str) -> None:
        if fired := self._disk.fault(call, name):
            raise OSError(fired.errno, os.strerror(fired.errno), name)
