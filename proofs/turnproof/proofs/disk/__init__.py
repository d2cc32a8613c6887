"""The disk and its crashes: a recording disk in memory, images of what a crash may leave of it, faults (X1–X3, X6).

`vfs` is the disk (`library`, `node` and `files` are its parts), `events` what it records, `images` the crashes made
from a recording, `faults` the errors it can be told to answer. Nothing here knows turns or records: it is the file
system under any SQLite store.
"""

from turnproof.proofs.disk.events import Event, Kind, Mark, Recording
from turnproof.proofs.disk.faults import FaultPlan, Fired
from turnproof.proofs.disk.images import Image, NoSuchImage, Readings, kill_images, power_images, rebuild, replayed
from turnproof.proofs.disk.library import DiskUnavailable, reproducible
from turnproof.proofs.disk.vfs import Disk, DiskError

__all__ = [
    "Disk",
    "DiskError",
    "DiskUnavailable",
    "Event",
    "FaultPlan",
    "Fired",
    "Image",
    "Kind",
    "Mark",
    "NoSuchImage",
    "Readings",
    "Recording",
    "kill_images",
    "power_images",
    "rebuild",
    "replayed",
    "reproducible",
]
