"""One file of the memory disk: its bytes in C memory, its locks and shared memory among the connections of a process.

The bytes are a named file of SQLite's own in-memory VFS. SQLite's C code reads (and, where nothing is recorded,
writes) them without entering Python; the name gives the store a mutex, so that threads may share it.

Locks and shared memory follow the contract in `sqlite3.h` for one process. A handle is the address of a
`sqlite3_file`, one per open; the caller serialises the calls.
"""

from __future__ import annotations

import ctypes
import itertools

import attrs

from turnproof.proofs.disk import library as sqlite

__all__ = ["Handle", "Node"]

_numbers = itertools.count(1)


@attrs.define(eq=False)
class Handle:
    """One open of a file by SQLite: what it holds."""

    node: Node
    sync_directory: bool
    """Its first sync syncs the directory too, as the Unix VFS does for journals and WALs."""
    level: int = sqlite.UNLOCKED
    shared: int = 0
    """Shared-memory slots held shared, one bit each."""
    exclusive: int = 0
    mapped: bool = False

    def lock(self, level: int) -> int:
        """Climb to `level`: SHARED → RESERVED → (PENDING) → EXCLUSIVE, or SQLITE_BUSY."""
        if level <= self.level:
            return sqlite.OK
        others = max((h.level for h in self.node.handles if h is not self), default=sqlite.UNLOCKED)
        if level == sqlite.SHARED:
            if others >= sqlite.PENDING:
                return sqlite.BUSY
        elif others >= sqlite.RESERVED:
            return sqlite.BUSY
        elif level == sqlite.EXCLUSIVE and others >= sqlite.SHARED:
            self.level = sqlite.PENDING  # no new reader comes in while the old ones leave
            return sqlite.BUSY
        self.level = level
        return sqlite.OK

    def unlock(self, level: int) -> None:
        self.level = min(self.level, level)

    def lock_shared_memory(self, first: int, count: int, flags: int) -> int:
        mask = (1 << first + count) - (1 << first)
        if flags & sqlite.SHM_UNLOCK:
            self.shared &= ~mask
            self.exclusive &= ~mask
            return sqlite.OK
        shared = flags & sqlite.SHM_SHARED
        if len(self.node.handles) > 1:  # one in a hundred; asked first because this is called twenty times an image
            for other in self.node.handles:
                if other is not self and mask & (other.exclusive if shared else other.exclusive | other.shared):
                    return sqlite.BUSY
        if shared:
            self.shared |= mask
        else:
            self.exclusive |= mask
        return sqlite.OK

    def unmap(self) -> None:
        """Leave the shared memory; the last to leave takes it away, so the next connection rebuilds it from the WAL."""
        self.mapped, self.shared, self.exclusive = False, 0, 0
        if not any(handle.mapped for handle in self.node.handles):
            self.node.regions.clear()


class Node:
    """The content of one file. It lives until `free`, whatever directory entries come and go."""

    def __init__(self, name: str, data: bytes = b"") -> None:
        self.name: str | None = name
        """The path that leads here; None once deleted."""
        self.handles: list[Handle] = []
        self.regions: list[ctypes.Array[ctypes.c_char]] = []
        self._library = sqlite.library()
        self._memory = ctypes.addressof(self._library.memory)
        self._store = b"/turnproof/%d" % next(_numbers)
        # Our own open keeps the store alive between SQLite's opens.
        self._file = ctypes.create_string_buffer(self._library.memory.szOsFile)
        self.address = ctypes.addressof(self._file)
        self.open(self.address)
        self.write(0, data)

    def open(self, file: int) -> None:
        """Make the `sqlite3_file` at address `file` an open of this content, with memdb's own methods."""
        flags = sqlite.OPEN_READWRITE | sqlite.OPEN_CREATE
        if self._library.open(self._memory, self._store, file, flags, None) != sqlite.OK:
            raise MemoryError("memdb could not open a file")

    def free(self) -> None:
        self._library.close(self.address)

    def size(self) -> int:
        size = ctypes.c_longlong()
        self._library.size(self.address, ctypes.addressof(size))
        return size.value

    def read(self) -> bytes:
        size = self.size()
        buffer = ctypes.create_string_buffer(size or 1)
        if size and self._library.read(self.address, ctypes.addressof(buffer), size, 0) != sqlite.OK:
            raise OSError(f"memdb could not read {self.name}")
        return buffer.raw[:size]

    def write(self, offset: int, data: bytes) -> None:
        """Bytes between the old end and `offset` become zero, as on a file system."""
        if data and self._library.write(self.address, data, len(data), offset) != sqlite.OK:
            raise MemoryError(f"memdb could not write {len(data)} bytes at {offset}")

    def truncate(self, size: int) -> None:
        if (now := self.size()) < size:
            self.write(size - 1, b"\0")  # memdb only shrinks
        elif now > size:
            self._library.truncate(self.address, size)

    def fill(self, data: bytes) -> None:
        """Replace the whole content."""
        self._library.truncate(self.address, 0)
        self.write(0, data)

    def region(self, number: int, size: int, extend: bool) -> int | None:
        """The address of one region of shared memory (zeroed when new), None where there is none yet."""
        while len(self.regions) <= number:
            if not extend:
                return None
            self.regions.append(ctypes.create_string_buffer(size))
        return ctypes.addressof(self.regions[number])
