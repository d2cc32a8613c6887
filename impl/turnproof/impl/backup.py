"""A consistent copy of a store that stays in use."""

from __future__ import annotations

import os
import secrets
import sqlite3

from turnproof.impl.base import Base
from turnproof.impl.checks import path_name
from turnproof.impl.connection import storage_error
from turnproof.impl.files import Files
from turnproof.model.vocabulary import StorageError

__all__ = ["Backups"]


class Backups(Base):
    """Copies through SQLite's backup API: a plain copy of the file would miss what its log still holds."""

    def backup(self, path: str | os.PathLike[str]) -> None:
        """Write the store as it is now to the new file ``path``, which only its owner may read.

        Writers go on meanwhile. To open the copy, put it as ``journal.db`` into a directory of its own. The name
        appears when the copy is whole and durable; an existing file is never replaced. Raises ``StorageError``,
        ``InvalidArgument``.
        """
        files, target = Files(), os.path.abspath(path_name("path", path))
        fresh = f"{target}.new-{secrets.token_hex(8)}"
        try:
            if files.exists(target):
                raise FileExistsError(f"{target} exists")
            files.create(fresh, b"")
            self._copy(fresh)
            files.rename(fresh, target)
            files.sync_directory(os.path.dirname(target))
        except OSError as error:
            raise StorageError(f"backup to {target}: {error}") from error
        finally:
            files.unlink(fresh)

    def _copy(self, fresh: str) -> None:
        try:
            copy = sqlite3.connect(fresh, isolation_level=None)
            try:
                copy.execute("PRAGMA synchronous = FULL")
                copy.execute("PRAGMA fullfsync = 1")
                with self._pool.read() as connection:
                    connection.backup(copy)
            finally:
                copy.close()
        except sqlite3.Error as error:
            raise storage_error(fresh, error) from error
