"""Opening a store beside another takes no lock away from it (F1), and damage of the file sticks (F2, F4)."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from turnproof.impl.identity import registry
from turnproof.impl.store import open_store
from turnproof.model.vocabulary import StorageDamaged

_WRITE = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], timeout=0.1, isolation_level=None)
try:
    connection.execute("PRAGMA locking_mode = EXCLUSIVE")
    connection.execute("PRAGMA journal_mode = DELETE")
except sqlite3.OperationalError as error:
    sys.exit(str(error))
"""


def test_a_store_opened_beside_another_leaves_its_locks(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        store.checkpoint("run1", "running")
        open_store(tmp_path).close()
        taken = subprocess.run([sys.executable, "-c", _WRITE, store.file], capture_output=True, text=True, timeout=60)
        assert taken.stderr.strip() == "database is locked"  # another process cannot have the file for itself
        store.checkpoint("run1", "completed")
    assert registry.parked == 0


@pytest.mark.parametrize("suffix", ["-wal", "-shm"])
def test_a_log_that_is_gone_from_under_an_open_store_bars_every_write(suffix: str, tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        store.checkpoint("run1", "running")
        Path(f"{store.file}{suffix}").unlink()
        for _ in range(2):
            with pytest.raises(StorageDamaged, match=suffix):
                store.checkpoint("run1", "completed")


def test_a_log_that_the_open_itself_made_is_no_damage(tmp_path: Path) -> None:
    file = tmp_path / "journal.db"
    open_store(tmp_path).close()
    other = sqlite3.connect(file)
    assert other.execute("PRAGMA journal_mode = DELETE").fetchone() == ("delete",)
    other.close()
    with open_store(tmp_path) as store:
        store.checkpoint("run1", "running")
        assert store.runs() == ["run1"]
