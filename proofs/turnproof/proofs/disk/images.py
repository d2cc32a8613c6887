"""Crash images: what a disk may hold after a crash at any point of one recorded run (X1, X2).

A **kill** takes the process and nothing else: the page cache lives on, so every earlier event is on the disk. One
image a point.

A **power cut** takes the page cache too. A file's content is durable up to its last `sync`, a directory's entries up
to its last `syncdir`; every later event may have arrived or not, whatever the others did, so the *fate* of each is
chosen on its own and written as a string, one code an event in log order:

    +     it arrived                        -     it did not
    t3    a write of which the first three sectors arrived (512 bytes each, aligned in the file)
    g3    the same, and what follows in its range holds garbage

Dropping is enough for *re-ordering*: on a disk an order shows only in what is missing, and of two writes to one place
in the wrong order the earlier one wins, which is the later one dropped. Rename is atomic; a dropped `create` leaves
the name absent though the content was synced, a dropped `delete` brings the old file back.

How many: where the unsynced events at a point have no more than `bound` subsets, all of them; else nothing and
everything, each prefix, each one missing, each one alone, then seeded draws, up to `bound`. On top come `torn` seeded
draws with torn and garbled writes. The one in which all arrived is the kill image again; it is not left out, so that
the counts of this module are those of the power model alone.

What this model does not do: damage bytes outside of the range of a write (SQLite assumes "powersafe overwrite", and
the disk claims it, as the Unix VFS does); let a failed sync lose data that a later sync of the same file succeeds in
covering; lose what was synced.

`-shm` is in no image. It is an index over the WAL, memory shared among running processes; with none left, the first to
open the database takes a lock that tells it so, empties the file and rebuilds it. Whatever a crash left in it is not
read, so images with and without it are the same image.
"""

from __future__ import annotations

import hashlib
import random
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Generic, Literal, TypeAlias, TypeVar

import attrs

from turnproof.proofs.disk.events import Event, Mark, Recording

__all__ = ["SECTOR", "CrashKind", "Image", "Readings", "kill_images", "power_images", "rebuild", "replayed"]

SECTOR = 512
"""Bytes that a disk writes whole or not at all."""
_BLOCK = 4096
"""Bytes hashed together; a digest after a change costs the blocks touched, not the file."""

CrashKind: TypeAlias = Literal["kill", "power"]
T = TypeVar("T")


@attrs.frozen
class Image:
    """One disk after one crash. `(recording, point, kind, choice, seed)` rebuilds it; see `rebuild`."""

    files: Mapping[str, bytes]
    point: int
    """The crash came before the event of this index; the number of events means after the last."""
    kind: CrashKind
    choice: str
    """The fates of the unsynced events, "" for a kill."""
    seed: int
    """Of the garbage in `g` fates."""
    mark: Mark
    """What the caller had been told, and what was in flight."""
    digest: bytes
    """Equal for equal files (SHA-256 over blocks), so that equal images are judged once."""

    def __str__(self) -> str:
        where = f"before event {self.point}" + (f" in {self.mark.operation}" if self.mark.operation else "")
        fates = f", unsynced {self.choice}" if self.choice else ""
        return f"{self.kind} {where}, {self.mark.acknowledged} acknowledged{fates}"


class NoSuchImage(ValueError):
    """A recording has no such image: it is another run than the one that was meant."""


@attrs.define
class Readings(Generic[T]):
    """Reads each distinct disk once and counts honestly (X6).

    What a store reads from a disk depends on its bytes alone, so it is remembered by digest. What is *allowed* depends
    on the image's mark as well: judge every image, read only the distinct ones.
    """

    read: Callable[[Image], T]
    points: int = attrs.field(default=0, init=False)
    """Runs of images of one kind at one crash point (images come point by point)."""
    images: int = attrs.field(default=0, init=False)
    _known: dict[bytes, T] = attrs.field(factory=dict, init=False)
    _last: tuple[CrashKind, int] | None = attrs.field(default=None, init=False)

    @property
    def distinct(self) -> int:
        return len(self._known)

    def __call__(self, image: Image) -> T:
        self.images += 1
        if self._last != (here := (image.kind, image.point)):
            self.points += 1
            self._last = here
        if image.digest not in self._known:
            self._known[image.digest] = self.read(image)
        return self._known[image.digest]


def kill_images(recording: Recording) -> Iterator[Image]:
    """The disk at every point, first to last, as a killed process leaves it: `recording.points` images."""
    disk = _Disk(recording.base)
    for point in range(recording.points):
        yield _image(disk.now, recording, point, "kill", "", 0)
        if point < len(recording.events):
            disk.happen(recording.events[point])


def power_images(recording: Recording, *, bound: int = 64, torn: int = 8, seed: int = 0) -> Iterator[Image]:
    """Disks that a power cut may leave at every point: at most `bound + torn` each, the same for the same seed."""
    disk = _Disk(recording.base)
    for point in range(recording.points):
        rng = random.Random(f"{seed}/{point}")
        for choice in _choices(disk.pending, bound, torn, rng):
            yield _image(disk.surviving(choice, seed), recording, point, "power", _written(choice), seed)
        if point < len(recording.events):
            disk.happen(recording.events[point])


def rebuild(recording: Recording, kind: CrashKind, point: int, choice: str = "", seed: int = 0) -> Image:
    """The one image that these values name; what a counterexample file replays. Raises ``NoSuchImage``."""
    if not 0 <= point < recording.points:
        raise NoSuchImage(f"point {point} is not within 0 … {recording.points - 1}")
    disk = _Disk(recording.base)
    for event in recording.events[:point]:
        disk.happen(event)
    if kind == "kill":
        return _image(disk.now, recording, point, kind, "", 0)
    fates = re.findall(r"[+-]|[tg]\d+", choice)
    if "".join(fates) != choice or len(fates) != len(disk.pending):
        raise NoSuchImage(f"choice {choice!r} does not fit the {len(disk.pending)} unsynced events at point {point}")
    return _image(disk.surviving(fates, seed), recording, point, kind, choice, seed)


def replayed(recording: Recording) -> dict[str, bytes]:
    """All events on top of the base: byte for byte what the recorded disk holds, or the log is not complete."""
    disk = _Disk(recording.base)
    for event in recording.events:
        disk.happen(event)
    return {name: content.value() for name, content in disk.now.items()}


class _Content:
    """The bytes of one file and, brought up to date when asked for, their digest: the sum of its blocks' hashes."""

    __slots__ = ("_bytes", "_dirty", "_frozen", "_hashes")

    def __init__(self, data: bytes = b"") -> None:
        self._bytes = bytearray(data)
        self._frozen: bytes | None = data
        self._hashes: dict[int, bytes] = {}
        self._dirty = set(range(-(-len(data) // _BLOCK)))

    def copy(self) -> _Content:
        self.digest()
        twin = _Content()
        twin._bytes, twin._frozen, twin._hashes = self._bytes[:], self._frozen, self._hashes.copy()
        return twin

    def apply(self, event: Event, data: bytes) -> None:
        if event.kind == "truncate":
            self._truncate(event.offset)
        elif data:
            self._write(event.offset, data)

    def _write(self, offset: int, data: bytes) -> None:
        start, end = min(offset, len(self._bytes)), offset + len(data)
        if start < offset:
            self._bytes.extend(bytes(offset - start))
        self._bytes[offset:end] = data
        self._frozen = None
        self._dirty.update(range(start // _BLOCK, (end - 1) // _BLOCK + 1))

    def _truncate(self, size: int) -> None:
        if size > len(self._bytes):
            self._write(size - 1, b"\0")
            return
        for block in range(size // _BLOCK, -(-len(self._bytes) // _BLOCK)):
            self._hashes.pop(block, None)
            self._dirty.discard(block)
        del self._bytes[size:]
        self._frozen = None
        if size % _BLOCK:
            self._dirty.add(size // _BLOCK)

    def value(self) -> bytes:
        if self._frozen is None:
            self._frozen = bytes(self._bytes)
        return self._frozen

    def digest(self) -> bytes:
        for block in self._dirty:
            self._hashes[block] = hashlib.sha256(self._bytes[block * _BLOCK : (block + 1) * _BLOCK]).digest()
        self._dirty.clear()
        return hashlib.sha256(b"".join(self._hashes[block] for block in range(len(self._hashes)))).digest()


class _Disk:
    """The state of a file system between events: what is durable, and what waits for a sync.

    Files are objects, not names: content belongs to the file, entries to the directory, and each waits for its own
    kind of sync.
    """

    def __init__(self, base: Mapping[str, bytes]) -> None:
        self.now: dict[str, _Content] = {name: _Content(data) for name, data in base.items()}
        """Names and content as programs see them."""
        self.entries = {name: number for number, name in enumerate(base)}
        """Names as programs see them, to numbers of files."""
        self.durable = [_Content(data) for data in base.values()]
        """By number: the content as of the last sync of the file."""
        self.durable_entries = dict(self.entries)
        self.pending: list[tuple[Event, int]] = []
        """Unsynced events in log order, each with the number of its file."""

    def happen(self, event: Event) -> None:
        if event.kind == "syncdir":
            for waiting, number in self._settle(lambda e, n: _is_entry(e) and e.directory == event.file):
                _enter(self.durable_entries, waiting, number)
            return
        number = len(self.durable) if event.kind == "create" else self.entries[event.file]
        if event.kind == "sync":
            for waiting, _ in self._settle(lambda e, n: n == number and not _is_entry(e)):
                self.durable[number].apply(waiting, waiting.data)
            return
        self.pending.append((event, number))
        if event.kind == "create":
            self.durable.append(_Content())
            self.now[event.file] = _Content()
        elif event.kind == "delete":
            del self.now[event.file]
        elif event.kind == "rename":
            self.now[event.target] = self.now.pop(event.file)
        else:
            self.now[event.file].apply(event, event.data)
        if _is_entry(event):
            _enter(self.entries, event, number)

    def _settle(self, covered: Callable[[Event, int], bool]) -> list[tuple[Event, int]]:
        """Take out of `pending` what a sync covers."""
        settled = [item for item in self.pending if covered(*item)]
        self.pending = [item for item in self.pending if not covered(*item)]
        return settled

    def surviving(self, fates: Sequence[str], seed: int) -> dict[str, _Content]:
        """What is durable, plus each pending event as its fate says."""
        entries = dict(self.durable_entries)
        changed: dict[int, _Content] = {}
        for (event, number), fate in zip(self.pending, fates, strict=True):
            if fate == "-":
                continue
            if _is_entry(event):
                _enter(entries, event, number)
                continue
            content = changed.get(number)
            if content is None:
                content = changed[number] = self.durable[number].copy()
            content.apply(event, _arrived(event, fate, seed))
        return {name: changed.get(number, self.durable[number]) for name, number in entries.items()}


def _is_entry(event: Event) -> bool:
    return event.kind in ("create", "delete", "rename")


def _enter(entries: dict[str, int], event: Event, number: int) -> None:
    """Do one change of a directory; of those before it any may be missing."""
    if entries.get(event.file) == number and event.kind != "create":
        del entries[event.file]
    if event.kind != "delete":
        entries[event.target or event.file] = number


def _arrived(event: Event, fate: str, seed: int) -> bytes:
    """The bytes of a write that reached the disk."""
    if fate == "+":
        return event.data
    cut = max(0, (event.offset // SECTOR + int(fate[1:])) * SECTOR - event.offset)
    if fate[0] == "t":
        return event.data[:cut]
    rest = len(event.data) - min(cut, len(event.data))
    return event.data[:cut] + random.Random(f"{seed}/{event.index}").randbytes(rest)


def _choices(
    pending: Sequence[tuple[Event, int]], bound: int, torn: int, rng: random.Random
) -> Iterator[Sequence[str]]:
    """Fates to try for these unsynced events, no choice twice."""
    size = len(pending)
    given: set[str] = set()
    for subset in _subsets(size, bound, rng):
        if subset not in given:
            given.add(subset)
            yield subset
    if not any(event.kind == "write" for event, _ in pending):
        return
    for _ in range(torn):
        fates = [_drawn(event, rng) for event, _ in pending]
        if (written := _written(fates)) not in given:
            given.add(written)
            yield fates


def _subsets(size: int, bound: int, rng: random.Random) -> Iterator[str]:
    """All subsets where `bound` allows, else the telling ones first; as strings of + and -, at most `bound`."""
    if 1 << size <= bound:
        for bits in range(1 << size):
            yield "".join("+" if bits >> place & 1 else "-" for place in range(size))
        return
    yield "-" * size
    yield "+" * size
    room = bound - 2
    telling = ["+" * n + "-" * (size - n) for n in range(1, size)]
    telling += ["+" * n + "-" + "+" * (size - n - 1) for n in range(size - 1)]
    telling += ["-" * n + "+" + "-" * (size - n - 1) for n in range(1, size)]
    chosen = telling if len(telling) <= room // 2 else rng.sample(telling, room // 2)
    yield from chosen
    for _ in range(room - len(chosen)):
        yield "".join(rng.choice("+-") for _ in range(size))


def _drawn(event: Event, rng: random.Random) -> str:
    """One fate at random; only a write can be torn, and one within a sector only be garbled."""
    if event.kind != "write":
        return rng.choice("+-")
    sectors = (event.offset + len(event.data) - 1) // SECTOR - event.offset // SECTOR + 1
    code = rng.choice("++-tg")
    if code == "g":
        return f"g{rng.randrange(sectors)}"
    if code == "t" and sectors > 1:
        return f"t{rng.randrange(1, sectors)}"
    return "-" if code == "t" else code


def _written(fates: Sequence[str]) -> str:
    return fates if isinstance(fates, str) else "".join(fates)


def _image(
    contents: Mapping[str, _Content], recording: Recording, point: int, kind: CrashKind, choice: str, seed: int
) -> Image:
    whole = hashlib.sha256()
    for name, content in sorted(contents.items()):
        whole.update(name.encode() + b"\0" + content.digest())
    files = {name: content.value() for name, content in contents.items()}
    return Image(files, point, kind, choice, seed, recording.mark(point), whole.digest())
