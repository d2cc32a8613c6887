"""The very SQLite that `sqlite3` uses, reached through ctypes, and the two C tables that this room builds.

A SQLite *VFS* is a C table of functions over names (open, delete, …); each open file points at a second table, the
*io methods* (read, write, sync, …). `sqlite3.h` promises that both only ever grow at the end and that `iVersion` says
how far a table reaches, so a table built here declares the version whose fields it fills and SQLite looks no further.

All that could differ between machines is decided in `library()`: where SQLite is linked into the interpreter with its
symbols hidden, or was built without the in-memory VFS, it raises `DiskUnavailable` with the reason. A caller then
falls back to crashes between statements (and must say so in its report): those need no disk.
"""

from __future__ import annotations

import ctypes
import functools
import importlib
import sqlite3
from collections.abc import Callable

import attrs

__all__ = ["DiskUnavailable", "IoMethods", "Library", "Vfs", "address", "library", "reproducible"]

# Result codes (sqlite3.h). Extended codes are `primary | n << 8`.
OK, BUSY, IOERR, FULL, CANTOPEN = 0, 5, 10, 13, 14
IOERR_WRITE, IOERR_FSYNC, IOERR_TRUNCATE = IOERR | 3 << 8, IOERR | 4 << 8, IOERR | 6 << 8
IOERR_DELETE, IOERR_DELETE_NOENT = IOERR | 10 << 8, IOERR | 23 << 8
# Flags of xOpen.
OPEN_READONLY, OPEN_READWRITE, OPEN_CREATE, OPEN_EXCLUSIVE = 0x1, 0x2, 0x4, 0x10
OPEN_TEMPORARY = 0x8 | 0x200 | OPEN_READWRITE | OPEN_CREATE | OPEN_EXCLUSIVE  # deleted on close
OPEN_DURABLE_NAME = 0x100 | 0x800 | 0x4000 | 0x80000  # main database, its journal, super-journal, WAL
OPEN_JOURNALS = 0x800 | 0x4000 | 0x80000  # the files whose directory entry SQLite syncs with their first sync
# Levels of xLock, flags of xShmLock, the one device characteristic that the Unix VFS claims.
UNLOCKED, SHARED, RESERVED, PENDING, EXCLUSIVE = range(5)
SHM_UNLOCK, SHM_SHARED = 1, 4
POWERSAFE_OVERWRITE = 0x1000

_INT, _I64, _PTR = ctypes.c_int, ctypes.c_longlong, ctypes.c_void_p


class DiskUnavailable(RuntimeError):
    """This interpreter does not let its SQLite be given a disk; `reason` says why. Fall back and report it."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"no virtual disk on this interpreter: {reason}")
        self.reason = reason


class Vfs(ctypes.Structure):
    """`sqlite3_vfs` up to version 2 (version 3 adds system-call overrides, which no file of ours makes)."""

    iVersion: int
    szOsFile: int
    mxPathname: int
    zName: bytes
    xOpen: int | None
    xDelete: int | None
    xAccess: int | None
    xFullPathname: int | None
    _fields_ = (
        ("iVersion", _INT), ("szOsFile", _INT), ("mxPathname", _INT),
        ("pNext", _PTR), ("zName", ctypes.c_char_p), ("pAppData", _PTR),
        ("xOpen", _PTR), ("xDelete", _PTR), ("xAccess", _PTR), ("xFullPathname", _PTR),
        ("xDlOpen", _PTR), ("xDlError", _PTR), ("xDlSym", _PTR), ("xDlClose", _PTR),
        ("xRandomness", _PTR), ("xSleep", _PTR), ("xCurrentTime", _PTR), ("xGetLastError", _PTR),
        ("xCurrentTimeInt64", _PTR),
    )  # fmt: skip


class IoMethods(ctypes.Structure):
    """`sqlite3_io_methods` up to version 2 (version 3 adds memory-mapped reads, which are then never asked for)."""

    iVersion: int
    xShmBarrier: int | None
    xSectorSize: int | None
    _fields_ = (
        ("iVersion", _INT), ("xClose", _PTR), ("xRead", _PTR), ("xWrite", _PTR), ("xTruncate", _PTR),
        ("xSync", _PTR), ("xFileSize", _PTR), ("xLock", _PTR), ("xUnlock", _PTR), ("xCheckReservedLock", _PTR),
        ("xFileControl", _PTR), ("xSectorSize", _PTR), ("xDeviceCharacteristics", _PTR),
        ("xShmMap", _PTR), ("xShmLock", _PTR), ("xShmBarrier", _PTR), ("xShmUnmap", _PTR),
    )  # fmt: skip


# C signatures of the callbacks, by field name; every handle (`sqlite3_vfs*`, `sqlite3_file*`) is a plain address.
SIGNATURES = {
    "xOpen": ctypes.CFUNCTYPE(_INT, _PTR, ctypes.c_char_p, _PTR, _INT, _PTR),
    "xDelete": ctypes.CFUNCTYPE(_INT, _PTR, ctypes.c_char_p, _INT),
    "xAccess": ctypes.CFUNCTYPE(_INT, _PTR, ctypes.c_char_p, _INT, _PTR),
    "xClose": ctypes.CFUNCTYPE(_INT, _PTR),
    "xRead": ctypes.CFUNCTYPE(_INT, _PTR, _PTR, _INT, _I64),
    "xWrite": ctypes.CFUNCTYPE(_INT, _PTR, _PTR, _INT, _I64),
    "xTruncate": ctypes.CFUNCTYPE(_INT, _PTR, _I64),
    "xSync": ctypes.CFUNCTYPE(_INT, _PTR, _INT),
    "xFileSize": ctypes.CFUNCTYPE(_INT, _PTR, _PTR),
    "xLock": ctypes.CFUNCTYPE(_INT, _PTR, _INT),
    "xUnlock": ctypes.CFUNCTYPE(_INT, _PTR, _INT),
    "xCheckReservedLock": ctypes.CFUNCTYPE(_INT, _PTR, _PTR),
    "xDeviceCharacteristics": ctypes.CFUNCTYPE(_INT, _PTR),
    "xShmMap": ctypes.CFUNCTYPE(_INT, _PTR, _INT, _INT, _INT, _PTR),
    "xShmLock": ctypes.CFUNCTYPE(_INT, _PTR, _INT, _INT, _INT),
    "xShmBarrier": ctypes.CFUNCTYPE(None, _PTR),
    "xShmUnmap": ctypes.CFUNCTYPE(_INT, _PTR, _INT),
}


def address(function: ctypes._FuncPointer) -> int:
    """The C address of a callback; the caller keeps the callback itself alive for as long as C may call it."""
    return ctypes.cast(function, _PTR).value or 0


@attrs.frozen
class Library:
    """What the disk needs of SQLite: the default VFS, and the in-memory VFS `memdb` as C functions over C memory."""

    dll: ctypes.CDLL
    default: Vfs
    memory: Vfs
    methods: IoMethods
    """The method table of a memdb file. Reading one never enters Python: that is what makes an image quick."""
    open: Callable[..., int]
    close: Callable[..., int]
    read: Callable[..., int]
    write: Callable[..., int]
    truncate: Callable[..., int]
    size: Callable[..., int]
    barrier: int
    """The address of xShmBarrier. It is called some 25 times an image, so it should be C, and a real barrier."""

    def register(self, vfs: Vfs) -> None:
        if self.dll.sqlite3_vfs_register(ctypes.byref(vfs), 0) != OK:
            raise DiskUnavailable("sqlite3_vfs_register failed")

    def unregister(self, vfs: Vfs) -> None:
        self.dll.sqlite3_vfs_unregister(ctypes.byref(vfs))

    def bury(self, vfs: Vfs, methods: IoMethods, regions: list[ctypes.Array[ctypes.c_char]]) -> None:
        """Take Python out of tables that SQLite still holds, so that connections may outlive the interpreter's end.

        A connection forgotten until exit is closed by the last garbage collection, when callbacks are no longer
        there to be called. Reading and closing are C already; every question that was ours is from now on answered by
        `sqlite3_threadsafe`, a C function that is 1 in every build a Python may use, which here means SQLITE_ERROR:
        no lock is given, so close writes nothing. (C lets a function be called with more arguments than it takes.)
        """
        refuse = ctypes.cast(self.dll.sqlite3_threadsafe, _PTR).value
        for field in ("xOpen", "xDelete", "xAccess"):
            setattr(vfs, field, refuse)
        for field in ("xLock", "xUnlock", "xShmMap", "xShmLock", "xShmUnmap"):
            setattr(methods, field, refuse)
        for field in ("xClose", "xWrite", "xTruncate", "xSync", "xCheckReservedLock", "xDeviceCharacteristics"):
            setattr(methods, field, getattr(self.methods, field))
        methods.xShmBarrier = self.barrier
        for memory in (vfs, methods, *regions):
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(memory))


def _dll() -> ctypes.CDLL:
    """The shared object that holds SQLite: the extension module, a library it depends on, or the interpreter."""
    path = getattr(importlib.import_module("_sqlite3"), "__file__", None)
    for candidate in (path, None):
        try:
            dll = ctypes.CDLL(candidate)
            dll.sqlite3_libversion.restype = ctypes.c_char_p
            if dll.sqlite3_libversion().decode() == sqlite3.sqlite_version:
                return dll
        except (OSError, AttributeError, TypeError):
            continue
    raise DiskUnavailable(f"the symbols of SQLite {sqlite3.sqlite_version} are hidden (looked in {path or 'python'})")


def _prove_same(dll: ctypes.CDLL, vfs: Vfs) -> None:
    """Two copies of SQLite in one process look alike: only a name registered here and found there tells."""
    probe = Vfs.from_buffer_copy(vfs)
    probe.zName = b"turnproof-probe"
    dll.sqlite3_vfs_register(ctypes.byref(probe), 0)
    try:
        sqlite3.connect("file:?vfs=turnproof-probe", uri=True).close()
    except sqlite3.OperationalError as error:
        raise DiskUnavailable(f"ctypes reaches another SQLite than sqlite3 does ({error})") from error
    finally:
        dll.sqlite3_vfs_unregister(ctypes.byref(probe))


@functools.cache
def library() -> Library:
    """Find SQLite and its in-memory VFS, once per process. Raises `DiskUnavailable`."""
    if sqlite3.sqlite_version_info < (3, 36, 0):
        raise DiskUnavailable(f"SQLite {sqlite3.sqlite_version} has no named in-memory files (3.36 and later do)")
    dll = _dll()
    dll.sqlite3_vfs_find.restype = ctypes.POINTER(Vfs)
    dll.sqlite3_initialize()
    default, memory = dll.sqlite3_vfs_find(None), dll.sqlite3_vfs_find(b"memdb")
    if not default or not memory:
        raise DiskUnavailable("this SQLite was built without its in-memory VFS (memdb)")
    vfs: Vfs = memory.contents
    if vfs.iVersion < 2 or default.contents.iVersion < 2:
        raise DiskUnavailable(f"sqlite3_vfs is version {vfs.iVersion}, 2 is needed")
    _prove_same(dll, default.contents)
    opener = SIGNATURES["xOpen"](vfs.xOpen or 0)
    handle = ctypes.create_string_buffer(vfs.szOsFile)
    if opener(ctypes.addressof(vfs), None, ctypes.addressof(handle), OPEN_READWRITE | OPEN_CREATE, None) != OK:
        raise DiskUnavailable("memdb opens no file")
    methods = IoMethods.from_buffer_copy(IoMethods.from_address(_PTR.from_buffer(handle).value or 0))
    if methods.iVersion < 1:
        raise DiskUnavailable(f"sqlite3_io_methods is version {methods.iVersion}")

    def method(field: str) -> Callable[..., int]:
        return SIGNATURES[field](getattr(methods, field))

    close = method("xClose")
    close(ctypes.addressof(handle))
    return Library(
        dll=dll,
        default=default.contents,
        memory=vfs,
        methods=methods,
        open=opener,
        close=close,
        read=method("xRead"),
        write=method("xWrite"),
        truncate=method("xTruncate"),
        size=method("xFileSize"),
        barrier=_barrier(default.contents),
    )


def _barrier(vfs: Vfs) -> int:
    """The default VFS' own barrier where that is the Unix one, which looks at no file; else entering Python is one.

    Its address stands in the method table of any file it opens, so a temporary one (unlinked at once) is opened.
    """
    if not (vfs.zName or b"").startswith(b"unix"):
        return address(_PYTHON_BARRIER)
    handle = ctypes.create_string_buffer(vfs.szOsFile)
    file = ctypes.addressof(handle)
    if SIGNATURES["xOpen"](vfs.xOpen or 0)(ctypes.addressof(vfs), None, file, OPEN_TEMPORARY, None) != OK:
        return address(_PYTHON_BARRIER)
    methods = IoMethods.from_address(_PTR.from_buffer(handle).value or 0)
    barrier = methods.xShmBarrier if methods.iVersion >= 2 else None
    SIGNATURES["xClose"](methods.xClose)(file)
    return barrier or address(_PYTHON_BARRIER)


_PYTHON_BARRIER = SIGNATURES["xShmBarrier"](lambda file: None)
_PRNG_SEED = 28  # sqlite3_test_control(SQLITE_TESTCTRL_PRNG_SEED, int, sqlite3*)


def reproducible(seed: int) -> None:
    """Seed SQLite's generator (WAL salts, row-id choices), so that one history gives one log, byte for byte.

    It is one generator for the whole process; `reproducible(0)` gives it back to the operating system's randomness.
    """
    library().dll.sqlite3_test_control(_PRNG_SEED, ctypes.c_int(seed & 0x7FFFFFFF), _PTR(None))
