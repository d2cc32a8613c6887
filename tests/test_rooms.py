"""Imports run downhill: the model knows nothing of ours, the store the model's words, the proofs both (DESIGN)."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
WORDS = {
    "turnproof.model.choices",
    "turnproof.model.ids",
    "turnproof.model.payload",
    "turnproof.model.rows",
    "turnproof.model.vocabulary",
}
"""The model's vocabulary: data without rules."""

ALLOWED = {
    # room: what it may import besides the standard library
    "model": {"attrs", "turnproof.model"},
    "impl": {"attrs", "turnproof.impl", *WORDS},
    "proofs": {"attrs", "hypothesis", "pytest", "crosshair", "turnproof.model", "turnproof.impl", "turnproof.proofs"},
}
EXTRA = {
    # the memory store *is* the model behind a lock
    "memory": {"turnproof.model"},
}
FORBIDDEN_IN_MODEL = {"asyncio", "os", "random", "socket", "sqlite3", "subprocess", "threading", "time"}
"""No clock, no input or output, no randomness (DESIGN)."""


def modules(room: str) -> list[Path]:
    return sorted((ROOT / room / "turnproof").rglob("*.py"))


def imports(file: Path) -> Iterator[str]:
    """Every module that a file names in an import, wherever in the file."""
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file}: imports are absolute, so that they say the room"
            module = node.module or ""
            yield from (f"{module}.{alias.name}" for alias in node.names) if module == "turnproof.model" else (module,)


def within(name: str, allowed: set[str]) -> bool:
    return any(name == module or name.startswith(f"{module}.") for module in allowed)


@pytest.mark.parametrize("room", ALLOWED)
def test_imports_run_downhill(room: str) -> None:
    wrong = [
        f"{file.relative_to(ROOT)} imports {name}"
        for file in modules(room)
        for name in imports(file)
        if name.partition(".")[0] not in sys.stdlib_module_names
        and not within(name, ALLOWED[room] | (EXTRA.get(file.stem, set()) if room == "impl" else set()))
    ]
    assert not wrong


def test_the_model_has_no_clock_no_input_and_no_randomness() -> None:
    wrong = [
        f"{file.relative_to(ROOT)} imports {name}"
        for file in modules("model")
        for name in imports(file)
        if name.partition(".")[0] in FORBIDDEN_IN_MODEL
    ]
    assert not wrong


def test_the_rooms_are_there() -> None:
    assert all(modules(room) for room in ALLOWED)
