"""What reached the disk, in order: the vocabulary that the recorder writes and the crash images read.

An `Event` is one thing a file system was asked to do. It carries the `Mark` of the moment: which operation of the
store was in flight and how many had been acknowledged, since a crash is judged by exactly that: acknowledged work must
be there, the one in flight may be (X1). A `Recording` is the disk before the run, the events, and the mark at the end;
everything about crashes is a pure function of it, so that one run serves every crash.
"""

from __future__ import annotations

import posixpath
from collections.abc import Mapping
from typing import Literal, TypeAlias

import attrs

__all__ = ["Event", "Kind", "Mark", "Recording"]

Kind: TypeAlias = Literal["create", "write", "truncate", "sync", "delete", "rename", "syncdir"]
"""`create`: a directory entry for a new empty file. `sync`: the content of one file is durable. `syncdir`: the entries
of one directory are. Content and entries are separate on every POSIX file system, so they are separate here."""


@attrs.frozen
class Mark:
    """Where the caller was. `operation` is the label in flight, "" for none; `acknowledged` counts finished ones."""

    acknowledged: int = 0
    operation: str = ""


@attrs.frozen
class Event:
    """One write-like request, as it succeeded (a failed request leaves no event; a short write leaves what landed)."""

    index: int
    kind: Kind
    file: str
    """The path; for `syncdir` the directory, for `rename` the old name."""
    offset: int = 0
    """`write`: where, in bytes. `truncate`: the new size."""
    data: bytes = attrs.field(default=b"", repr=lambda data: f"<{len(data)} bytes>")
    target: str = ""
    """`rename`: the new name."""
    mark: Mark = Mark()

    @property
    def directory(self) -> str:
        """The directory whose entries this event changes or syncs (of a rename, where the new name is)."""
        return self.file if self.kind == "syncdir" else posixpath.dirname(self.target or self.file)

    def __str__(self) -> str:
        detail = {
            "write": f" {self.offset}+{len(self.data)}",
            "truncate": f" to {self.offset}",
            "rename": f" to {self.target}",
        }.get(self.kind, "")
        return f"#{self.index} {self.kind} {self.file}{detail}"


@attrs.frozen
class Recording:
    """One run: `base` was durable before it, `end` is the mark after its last event."""

    events: tuple[Event, ...]
    base: Mapping[str, bytes] = attrs.field(factory=dict)
    end: Mark = Mark()

    @property
    def points(self) -> int:
        """Crash points: before each event, and after the last."""
        return len(self.events) + 1

    def mark(self, point: int) -> Mark:
        """The mark at a crash before event `point`: the latest the caller can have been told by then."""
        return self.events[point].mark if point < len(self.events) else self.end

    def until(self, point: int) -> Recording:
        """The same run, stopped by a kill before event `point`."""
        return Recording(self.events[:point], self.base, self.mark(point))

    def then(self, after: Recording) -> Recording:
        """This run followed by one that started from the disk it left (a recovery recorded on a kill image).

        Unlike a fresh recording over that image, nothing becomes durable by the kill alone: a power cut during the
        recovery can still take what the killed run never synced.
        """
        shift = len(self.events)
        moved = (attrs.evolve(event, index=event.index + shift) for event in after.events)
        return Recording((*self.events, *moved), self.base, after.end)
