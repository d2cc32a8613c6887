"""Descriptors of store files that SQLite does not know of, and why they stay open (F1).

POSIX takes *all* locks of a process on a file away when the process closes *any* descriptor of it. Whoever reads the
header of ``journal.db`` and closes it again unlocks every connection of the same process: SQLite goes on as if it held
its locks, and another process writes over what is acknowledged. So a file that is read beside SQLite is read through
``borrow``, and its descriptor is closed only when no connection of this process can hold a lock on that file.
"""

from __future__ import annotations

import errno
import os
import stat
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO, Final, TypeAlias

from attrs import define, field

__all__ = ["Identity", "Registry", "registry"]

Identity: TypeAlias = tuple[int, int]
"""Device and inode: which file it is, whatever it is called."""

_FLAGS: Final = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0) | getattr(os, "O_CLOEXEC", 0)


@define(eq=False)
class Registry:
    """Who uses which file: connections and readers are counted, descriptors wait until nobody does. Thread-safe."""

    _lock: threading.Lock = field(factory=threading.Lock, init=False)
    _users: Counter[Identity] = field(factory=Counter, init=False)
    _parked: dict[Identity, list[int]] = field(factory=dict, init=False)

    @property
    def parked(self) -> int:
        """Descriptors that wait to be closed."""
        with self._lock:
            return sum(map(len, self._parked.values()))

    def enter(self, path: str) -> Identity | None:
        """Count a connection that is about to be opened; ``None`` when there is no such file.

        Before, not after: between SQLite's first lock and the count a reader could close its descriptor.
        """
        with self._lock:
            try:
                found = os.stat(path)
            except OSError:
                return None
            identity = found.st_dev, found.st_ino
            self._users[identity] += 1
        return identity

    def leave(self, identity: Identity | None) -> None:
        """A connection or a reader is gone; the last one lets the descriptors go."""
        if identity is None:
            return
        with self._lock:
            self._users[identity] -= 1
            if self._users[identity] <= 0:
                del self._users[identity]
                for handle in self._parked.pop(identity, ()):
                    os.close(handle)

    @contextmanager
    def borrow(self, path: str) -> Iterator[BinaryIO]:
        """The file, to be read from its beginning. Raises ``OSError``.

        What is no regular file is an error: opening a pipe would wait for somebody to write to it.
        """
        identity, handle = self._open(path)
        try:
            with open(handle, "rb", closefd=False) as file:
                yield file
        finally:
            with self._lock:
                self._parked.setdefault(identity, []).append(handle)
            self.leave(identity)

    def _open(self, path: str) -> tuple[Identity, int]:
        """A descriptor that nobody else reads from, counted; a parked one of the same file before a new one."""
        with self._lock:
            found = os.stat(path)
            if not stat.S_ISREG(found.st_mode):
                raise OSError(errno.EINVAL, "not a regular file", path)
            identity = found.st_dev, found.st_ino
            if waiting := self._parked.get(identity):
                handle = waiting.pop()
                os.lseek(handle, 0, os.SEEK_SET)
            else:
                handle = os.open(path, _FLAGS)
                opened = os.fstat(handle)
                identity = opened.st_dev, opened.st_ino  # the name may be another file's since
            self._users[identity] += 1
        return identity, handle

    def forget(self) -> None:
        """After a fork, in the child: the locks are the parent's, and so are the counts. Nothing is closed twice."""
        self._lock = threading.Lock()
        self._users.clear()
        for handles in self._parked.values():
            for handle in handles:
                os.close(handle)
        self._parked.clear()


registry: Final = Registry()
"""The one of this process: locks belong to processes, so counting by store would not do."""
