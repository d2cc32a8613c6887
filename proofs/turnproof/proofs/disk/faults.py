"""Faults: the k-th write-like call answers an error, once or from then on (X3).

The loop that uses them is SQLite's own: fail at 1, 2, 3 … until a run completes with nothing fired.

    for nth in itertools.count(1):
        with disk.failing(FaultPlan(kind="eio", call="write", nth=nth)) as plan:
            ...                     # one operation of the store: it answers an error, or it is not harmed
        if not plan.fired:
            break

A failed call changes nothing on the disk but for a `short` write, of which a part lands and is logged. A failed sync
leaves no sync in the log, so a later power cut may take what it was to cover. That is no contradiction to what SQLite
lets be seen: a commit whose sync failed is refused and invisible, yet its frames stand in the WAL, and a recovery that
finds them whole takes them for committed. Judge a refused operation after a reopening as one in flight.
"""

from __future__ import annotations

import errno
from collections.abc import Mapping
from typing import Final, Literal, TypeAlias

import attrs

from turnproof.proofs.disk import library as sqlite

__all__ = ["Call", "FaultKind", "FaultPlan", "Fired"]

Call: TypeAlias = Literal["write", "sync", "truncate", "open", "delete", "rename", "any"]
"""Which calls are counted; `any` counts them all together. An `open` is counted whether or not it creates."""

FaultKind: TypeAlias = Literal["eio", "enospc", "short", "fsync"]
"""`eio`: an I/O error. `enospc`: the disk is full (for a sync, truncate or delete, where SQLite knows no such answer,
the I/O error of that call). `short`: half of a write lands, then an I/O error; other calls are let pass and not
counted. `fsync`: an I/O error from sync alone; other calls are let pass and not counted."""

_EIO = {
    "write": sqlite.IOERR_WRITE, "sync": sqlite.IOERR_FSYNC, "truncate": sqlite.IOERR_TRUNCATE,
    "open": sqlite.CANTOPEN, "delete": sqlite.IOERR_DELETE, "rename": sqlite.IOERR,
}  # fmt: skip


@attrs.frozen
class Fired:
    """One call that was made to fail. `at` is the number of events logged before it."""

    call: Call
    file: str
    at: int
    code: int
    """The extended SQLite result code that was answered."""
    errno: int
    landed: int = 0
    """Bytes of a short write that reached the file."""


_ONLY: Final[Mapping[FaultKind, Call]] = {"short": "write", "fsync": "sync"}
"""Faults that one kind of call alone can answer."""


@attrs.define
class FaultPlan:
    """Fail the `nth` counted call (from 1); `sticky` fails every counted one after it too."""

    kind: FaultKind
    call: Call = "any"
    nth: int = 1
    sticky: bool = False
    seen: int = attrs.field(default=0, init=False)
    """Counted calls so far, failed ones included."""
    fired: list[Fired] = attrs.field(factory=list, init=False)

    def __attrs_post_init__(self) -> None:
        only = _ONLY.get(self.kind)
        if only and self.call not in (only, "any"):
            raise ValueError(f"a fault of kind {self.kind!r} can only come from {only!r}, not from {self.call!r}")
        if self.nth < 1:
            raise ValueError(f"nth counts from 1, not {self.nth}")
        if only:
            self.call = only

    def consult(self, call: Call, file: str, at: int, size: int = 0) -> Fired | None:
        """Count one call about to be made; the fault to answer, or None to let it pass."""
        if self.call not in (call, "any"):
            return None
        self.seen += 1
        if self.seen < self.nth or (self.seen > self.nth and not self.sticky):
            return None
        full = self.kind == "enospc"
        code = sqlite.FULL if full and call in ("write", "open", "rename") else _EIO[call]
        landed = size // 2 if self.kind == "short" else 0
        fired = Fired(call, file, at, code, errno.ENOSPC if full else errno.EIO, landed)
        self.fired.append(fired)
        return fired
