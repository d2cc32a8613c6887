"""Errors to plant into a copy of the model, so that anyone can watch the prover find them.

Each is a line that a tired person would write. The copy stands before the real model on the path of the prover's
process; the real one is not touched. A pattern that is not there (any more) is an error, so that a seeded error can
never quietly turn into the model itself.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import attrs

from turnproof.model import choices
from turnproof.proofs.contracts.registry import Contract

__all__ = ["SEEDED", "SeededError", "planted"]


@attrs.frozen
class SeededError:
    """One edit of one module of the model, and where its contracts are: the layers, and the verb to begin with."""

    name: str
    about: str
    module: str
    old: str
    new: str
    layers: tuple[str, ...]
    verb: str

    def near(self, contracts: Iterable[Contract]) -> list[Contract]:
        """The contracts of these layers, those that name the verb first."""
        mine = [contract for contract in contracts if contract.layer in self.layers]
        return sorted(mine, key=lambda contract: self.verb not in contract.name)


_ALL: Final = (
    SeededError(
        "commit-without-attempt-guard",
        "commit no longer asks who holds the submission and the slot",
        "journal",
        '    refusal = _gate(row, slot, attempt_id, "J7", choices)\n',
        '    refusal = Refuse("J7") if slot is None or slot.committed else None\n',
        ("commit", "transfer"),
        "commit",
    ),
    SeededError(
        "tools-back-to-provider",
        "tool_request_recorded may go back to provider_started",
        "journal",
        "    Phase.TOOL_REQUEST_RECORDED: {\n        Event.BEGIN: Phase.BEFORE_PROVIDER,\n",
        "    Phase.TOOL_REQUEST_RECORDED: {\n        Event.BEGIN: Phase.BEFORE_PROVIDER,\n"
        "        Event.START_PROVIDER: Phase.PROVIDER_STARTED,\n",
        ("journal",),
        "update",
    ),
    SeededError(
        "transfer-keeps-recovery-request",
        "a transfer leaves the recovery request of the dead attempt standing",
        "submission",
        "        started_at=now,\n        recovery_requested_at=None,\n        owner_id=row.owner_id if lease",
        "        started_at=now,\n        owner_id=row.owner_id if lease",
        ("transfer",),
        "recovery_request",
    ),
)

SEEDED: Final = {error.name: error for error in _ALL}
"""Seeded errors by name."""


@contextmanager
def planted(error: SeededError) -> Iterator[Path]:
    """A directory to put first on ``PYTHONPATH``: a copy of the model with the error in it."""
    model = Path(choices.__file__).parent
    with TemporaryDirectory(prefix="turnproof-") as scratch:
        copy = Path(scratch) / "turnproof" / "model"
        shutil.copytree(model, copy, ignore=shutil.ignore_patterns("__pycache__"))
        file = copy / f"{error.module}.py"
        source = file.read_text(encoding="utf-8")
        if source.count(error.old) != 1:
            raise ValueError(f"{error.name}: its pattern occurs {source.count(error.old)} times in {error.module}.py")
        file.write_text(source.replace(error.old, error.new), encoding="utf-8")
        yield Path(scratch)
