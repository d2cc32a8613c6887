"""The write-ahead log and its index, read as bytes: what was committed there and has not reached the database yet.

A store that is closed removes both files. So a ``-shm`` without a ``-wal``, or one that counts more pages than the log
holds, says that a log was taken away, and its header even says how much was in it: ``mxFrame`` pages were committed,
``nBackfill`` of them had been moved to the database. The rest is lost (https://sqlite.org/walformat.html).
"""

from __future__ import annotations

import os
import struct
import sys
from typing import Final

from attrs import frozen

__all__ = ["Index", "Log", "read_index", "read_log"]

_HEADER: Final = struct.Struct("=IIIBBHII2I2I2I")
_INFO: Final = struct.Struct("=I")
_INDEX_VERSION: Final = 3007000
_LOG: Final = struct.Struct(">8I")
_LOG_MAGIC: Final = (0x377F0682, 0x377F0683)
FRAME_HEADER: Final = 24


@frozen
class Index:
    """What a ``-shm`` says of the log that it belongs to."""

    committed: int
    """Pages (frames) that were committed in the log."""
    moved: int
    """How many of them had been moved to the database."""
    pages: int
    """The size of the database, in pages."""
    page_size: int
    salts: tuple[int, int]

    @property
    def unmoved(self) -> int:
        return max(self.committed - self.moved, 0)


@frozen
class Log:
    """What the size and the header of a ``-wal`` say."""

    size: int
    frames: int
    """How many pages fit in it; the last of them may be older, or torn."""
    salts: tuple[int, int] | None
    """``None`` when the header is no header of a log."""


def read_index(path: str) -> Index | None:
    """The index of a log; ``None`` when there is none or it cannot be trusted."""
    try:
        with open(path, "rb") as file:
            data = file.read(136)
    except OSError:
        return None
    if len(data) < 136 or data[:48] != data[48:96]:
        return None
    version, _, _, ready, _, width, frames, pages, _, _, salt1, salt2, sum1, sum2 = _HEADER.unpack_from(data)
    if version != _INDEX_VERSION or not ready or _checksum(data[:40]) != (sum1, sum2):
        return None
    (moved,) = _INFO.unpack_from(data, 96)
    # The salts are copied from the log as bytes, so they compare in the log's own order.
    one, two = (int.from_bytes(salt.to_bytes(4, sys.byteorder)) for salt in (salt1, salt2))
    return Index(frames, moved, pages, 65536 if width == 1 else width, (one, two))


def _checksum(data: bytes) -> tuple[int, int]:
    one = two = 0
    for first, second in struct.iter_unpack("=2I", data):
        one = (one + first + two) & 0xFFFFFFFF
        two = (two + second + one) & 0xFFFFFFFF
    return one, two


def read_log(path: str) -> Log | None:
    """The log; ``None`` when there is none. Raises ``OSError``."""
    try:
        with open(path, "rb") as file:
            header = file.read(_LOG.size)
            size = os.fstat(file.fileno()).st_size
    except FileNotFoundError:
        return None
    if len(header) < _LOG.size:
        return Log(size, 0, None)
    magic, _, width, _, salt1, salt2, _, _ = _LOG.unpack(header)
    if magic not in _LOG_MAGIC or not 512 <= width <= 65536:
        return Log(size, 0, None)
    return Log(size, (size - _LOG.size) // (FRAME_HEADER + width), (salt1, salt2))
