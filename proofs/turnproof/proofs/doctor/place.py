"""What is at a path: which files make up the store there, looked at by name and size and not yet opened.

A path may be the directory of a store, the database file itself (or a backup under any name), a directory with a
``runs`` folder of the former format, that folder, or one of its files. Symbolic links are followed, as SQLite does: the
log of a database stands beside the file, not beside the link.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from typing import Final

from attrs import frozen

from turnproof.impl.store import FILE_NAME
from turnproof.proofs.doctor.finding import NotAStore, shown

__all__ = ["LEGACY", "Place", "look"]

LEGACY: Final = ".jsonl"


@frozen(kw_only=True)
class Place:
    """The files of a store."""

    path: str
    """As it was given."""
    database: str | None
    """The database file, links resolved."""
    folder: str | None
    """Where files of the former format are."""
    legacy: tuple[str, ...] = ()
    """Their names."""
    locks: tuple[str, ...] = ()
    imported: tuple[str, ...] = ()
    lost: bool = False
    """The database is gone, but its log is there."""
    linked: bool = False

    @property
    def kind(self) -> str:
        parts = (["store"] if self.database is not None or self.lost else []) + (["legacy"] if self.legacy else [])
        return " and ".join(parts)


def look(path: str) -> Place:
    """The place at a path. Raises ``NotAStore``."""
    try:
        mode = os.stat(path).st_mode
        if stat.S_ISDIR(mode):
            return _directory(path)
        if stat.S_ISREG(mode):
            return _file(path)
    except FileNotFoundError:
        raise _absent(path) from None
    except OSError as error:
        raise NotAStore("unreadable", f"{shown(path)} cannot be read: {error.strerror or error}", "") from None
    except ValueError as error:
        raise NotAStore("no_path", f"{path!r} is no path: {error}", "") from None
    raise NotAStore("not_a_file", f"{shown(path)} is neither a directory nor a regular file", "")


def _absent(path: str) -> NotAStore:
    if os.path.islink(path):
        target = shown(os.path.realpath(path))
        return NotAStore("dangling_link", f"{shown(path)} is a link to {target}, which does not exist", "")
    return NotAStore(
        "no_such_path", f"{shown(path)} does not exist", "give the directory that was given to open_store()"
    )


def _directory(path: str) -> Place:
    names = sorted(os.listdir(path))
    database, lost, linked = None, False, False
    if FILE_NAME in names:
        file = os.path.join(path, FILE_NAME)
        linked, database = os.path.islink(file), os.path.realpath(file)
        if not os.path.exists(file):
            raise _absent(file)
        if not os.path.isfile(file):
            raise NotAStore("not_a_file", f"{shown(file)} is not a regular file", "")
    else:
        log = os.path.join(path, f"{FILE_NAME}-wal")
        lost = os.path.isfile(log) and os.path.getsize(log) > 0
    folder = os.path.join(path, "runs")
    inner = sorted(os.listdir(folder)) if os.path.isdir(folder) else []
    if not _legacy(inner) and database is None and _legacy(names):
        folder, inner = path, names
    if database is None and not lost and not _legacy(inner):
        raise NotAStore(
            "empty_directory" if not names else "nothing_here",
            f"{shown(path)} is empty" if not names else f"{shown(path)} holds neither {FILE_NAME} nor runs/*{LEGACY}",
            "a store is the directory that was given to open_store() ('.turnproof' by default)",
        )
    return _with_legacy(path, database, folder, inner, lost=lost, linked=linked)


def _legacy(names: Sequence[str]) -> list[str]:
    return [name for name in names if name.endswith(LEGACY)]


def _with_legacy(
    path: str, database: str | None, folder: str, names: Sequence[str], *, lost: bool, linked: bool
) -> Place:
    return Place(
        path=path,
        database=database,
        folder=folder if names else None,
        legacy=tuple(_legacy(names)),
        locks=tuple(name for name in names if name.endswith(".lock")),
        imported=tuple(name for name in names if f"{LEGACY}.imported" in name),
        lost=lost,
        linked=linked,
    )


def _file(path: str) -> Place:
    if path.endswith(LEGACY):
        folder, name = os.path.split(os.path.abspath(path))
        return Place(path=path, database=None, folder=folder, legacy=(name,))
    return Place(path=path, database=os.path.realpath(path), folder=None, linked=os.path.islink(path))
