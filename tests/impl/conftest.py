from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from impl_helpers import NOW

from turnproof.impl import Store, open_store


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "store"


@pytest.fixture
def store(directory: Path) -> Iterator[Store]:
    with open_store(directory, clock=lambda: NOW) as opened:
        yield opened
