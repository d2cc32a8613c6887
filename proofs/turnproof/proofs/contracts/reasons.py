"""Why a promise has no contract: the table that the ledger shows and a test holds complete.

A contract speaks about one step of a pure function over opaque ids. What a promise says about text, about the whole
state, about time between steps or about a disk is checked by another method, which is named here.
"""

from __future__ import annotations

from typing import Final

__all__ = ["NO_CONTRACT"]

_DISK: Final = "is about what a disk does; every write is crashed instead"
_STORE: Final = "is about the store's files and connections, not about a rule; the store's own tests check it"

NO_CONTRACT: Final[dict[str, str]] = {
    "L9": "is a map's put and drop on the whole state, keyed by text; sampled on histories",
    "J11": "is about concurrent calls; each call is one step here, the histories of several clients are judged",
    "S6": "is a map's drop on the whole state; sampled on histories",
    "R5": "is a reading of the whole state, keyed by text; sampled on histories",
    "R6": "is a regular expression over text; its edge cases are enumerated",
    "R7": "is about JSON text, which CrossHair cannot exhaust; its edge cases are enumerated",
    "R9": _STORE,
    "R10": _DISK,
    "R12": "is about files; the store's own tests import good and damaged ones",
    "R13": "is about cancelled callers; the store's own tests cancel them",
    "R14": "is about a hash chain on disk; the store's own tests change every field",
    "R15": _STORE,
    "R16": "is about the session handle above the store; sampled without append_step",
    "R18": "is a fold over text; the model's tests tell one story for each of its fields",
    "A7": "is about JSON text, which CrossHair cannot exhaust; its edge cases are enumerated",
    "A8": "is about JSON text and text ids; sampled on histories",
    "P4": "is one transaction over log and reading; its parts have contracts (P2, P6), the whole is sampled",
    "P7": "is a function that answers no new state; sampled, restore and inspect side by side",
    "E6": "compares whole runs; the reference driver is crashed at every write",
    "X1": _DISK,
    "X2": _DISK,
    "X3": _DISK,
    "X4": _DISK,
    "X5": "is about threads and processes; histories of several clients are judged",
    "X6": "is about the crash suite itself, which counts and reads back",
}
"""Every promise without a contract, and the reason."""
