"""Obstacles on a real file system: what no injected fault shows, answered by a typed error that harms nothing (X3).

Each obstacle is made over a store with acknowledged work, the store is asked, the obstacle is taken away, and the work
must be there. Directories and files that may not be written need a user who is not root, whom modes do not bind; so
where this runs as root the asking is done by a child that gives its rights up first. What cannot be made on a machine
(no child may be started as another user) is reported as not done, with the reason, never as passed.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, TypeAlias

import attrs

from turnproof.impl import open_store
from turnproof.impl.memory import dump_of
from turnproof.model.choices import STRICT
from turnproof.model.operations import Operation
from turnproof.model.state import EMPTY
from turnproof.model.vocabulary import StorageDamaged, StorageError, TurnproofError
from turnproof.proofs.crash.process import alone
from turnproof.proofs.crash.scenarios import ADMITTED, admit
from turnproof.proofs.crash.stage import call
from turnproof.proofs.subjects import expected
from turnproof.proofs.wire import Err, Ok, Outcome

__all__ = ["OBSTACLES", "Met", "meet_all"]

Work: TypeAlias = tuple[Operation, ...]
"""What was acknowledged while an obstacle lasted."""

_NOBODY: Final = 65534
_PATIENCE_MS: Final = 100


@attrs.frozen
class Met:
    """How one obstacle went: ``held``, ``broken`` or ``not done``, and why."""

    name: str
    verdict: str
    reason: str = ""


class _Broken(Exception):
    pass


class _NotDone(Exception):
    pass


def _expect(condition: bool, reason: str) -> None:
    if not condition:
        raise _Broken(reason)


def _is_storage_error(got: Outcome) -> bool:
    return isinstance(got, Err) and got.code == "storage_error"


def _fill(path: Path) -> None:
    with open_store(path, clock=lambda: 0) as store:
        for operation in ADMITTED:
            call(store, operation)


def _intact(path: Path, meanwhile: Work) -> None:
    """The acknowledged work is there, and more can be done."""
    state = EMPTY
    for operation in (*ADMITTED, *meanwhile):
        state = expected(operation, state, STRICT).state
    with open_store(path, clock=lambda: 0) as store:
        _expect(store.dump() == dump_of(state), "acknowledged work is gone, or something refused is there")
        _expect(isinstance(call(store, admit("s9")), Ok), "the store does not go on")


def _holder(path: Path) -> subprocess.Popen[bytes]:
    """Another process that takes the write lock and keeps it until its standard input closes."""
    program = (
        "import sqlite3, sys\n"
        "c = sqlite3.connect(sys.argv[1], isolation_level=None)\n"
        "c.execute('BEGIN IMMEDIATE')\n"
        "sys.stdout.write('held'); sys.stdout.flush(); sys.stdin.read(); c.execute('ROLLBACK'); c.close()\n"
    )
    command = [sys.executable, "-c", program, str(path / "journal.db")]
    child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert child.stdout is not None
    child.stdout.read(4)
    return child


def locked(path: Path) -> Work:
    """Another process holds the write lock beyond the timeout: writes err, reads go on, and afterwards so do writes."""
    _fill(path)
    with open_store(path, clock=lambda: 0, busy_timeout_ms=_PATIENCE_MS) as store:
        child = _holder(path)
        try:
            start = time.monotonic()
            got = call(store, admit("s9"))
            waited = time.monotonic() - start
            _expect(_is_storage_error(got), f"answered {got}")
            _expect(waited * 1000 >= _PATIENCE_MS * 0.9, f"gave up after {waited * 1000:.0f} ms")
            _expect(len(store.list_runnable()) == 1, "a reader is kept out")
        finally:
            child.communicate()
        _expect(isinstance(call(store, admit("s8")), Ok), "the store does not go on once the lock is free")
    return (admit("s8"),)


def no_directory(path: Path) -> Work:
    """A file stands where the directory should be."""
    path.write_bytes(b"in the way")
    _refuses_to_open(path)
    _expect(path.read_bytes() == b"in the way", "what stood in the way was changed")
    path.unlink()
    _fill(path)
    return ()


def no_parent(path: Path) -> Work:
    """The parent is a file, so the directory cannot be made."""
    parent = path.with_name("parent")
    parent.write_bytes(b"")
    _refuses_to_open(parent / "store")
    _fill(path)
    return ()


def vanished(path: Path) -> Work:
    """The directory is moved away under an open store: it says so (F2), and nothing is lost."""
    _fill(path)
    away = path.with_name("away")
    with open_store(path, clock=lambda: 0) as store:
        path.rename(away)
        try:
            store.list_runnable()
        except StorageDamaged:
            pass
        else:
            raise _Broken("it answered from files that the next opener will not find")
    _expect(not path.exists(), "a second store was made where the first one was")
    away.rename(path)
    return ()


def _refuses_to_open(path: Path) -> None:
    try:
        open_store(path, clock=lambda: 0).close()
    except StorageError:
        return
    except TurnproofError as error:
        raise _Broken(f"answered {error.code.value}: {error.message}") from None
    raise _Broken("it opened")


# --- what root may do anyway ------------------------------------------------------------------------------------------


def unwritable_directory(path: Path) -> Work:
    """The directory may be read but not written, and there is no store in it yet."""
    path.mkdir(mode=0o555)
    _as_somebody(path)
    _expect(list(path.iterdir()) == [], "something was written")
    path.chmod(0o755)
    _fill(path)
    return ()


def read_only_file(path: Path) -> Work:
    """The database may be read but not written."""
    _fill(path)
    before = (path / "journal.db").read_bytes()
    (path / "journal.db").chmod(0o444)
    path.chmod(0o555)
    _as_somebody(path)
    path.chmod(0o755)
    _expect((path / "journal.db").read_bytes() == before, "the file was changed")
    return ()


def _as_somebody(path: Path) -> None:
    """Open the store as a user whom modes bind; it must answer ``StorageError``."""
    if os.geteuid() != 0:
        _refuses_to_open(path)
        return
    alone()
    child = os.fork()
    if child == 0:
        os._exit(_tried(path))
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    if code == _UNABLE:
        raise _NotDone("this user is root and cannot give its rights up")
    _expect(code == 0, {1: "it opened", 2: "it answered another error than storage_error"}.get(code, f"exit {code}"))


_UNABLE: Final = 77


def _tried(path: Path) -> int:
    """In the child: 0 for the right error."""
    try:
        os.setgroups([])
        os.setgid(_NOBODY)
        os.setuid(_NOBODY)
        if not os.access(path, os.X_OK):
            return _UNABLE
    except OSError:
        return _UNABLE
    try:
        open_store(path, clock=lambda: 0).close()
    except StorageError:
        return 0
    except BaseException:
        return 2
    return 1


OBSTACLES: Final[dict[str, Callable[[Path], Work]]] = {
    "locked by another process": locked,
    "a file where the directory should be": no_directory,
    "a parent that is a file": no_parent,
    "a vanished directory": vanished,
    "an unwritable directory": unwritable_directory,
    "a read-only file": read_only_file,
}


def meet_all() -> Iterator[Met]:
    """Meet each obstacle on a store of its own."""
    for name, obstacle in OBSTACLES.items():
        with tempfile.TemporaryDirectory(prefix="turnproof-") as directory:
            Path(directory).chmod(0o755)
            path = Path(directory) / "store"
            try:
                _intact(path, obstacle(path))
            except _Broken as broken:
                yield Met(name, "broken", str(broken))
            except _NotDone as reason:
                yield Met(name, "not done", str(reason))
            else:
                yield Met(name, "held")
