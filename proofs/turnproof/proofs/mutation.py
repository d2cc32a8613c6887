"""Our store with a few lines of its source changed, loaded beside the real one.

The package ``turnproof.impl`` is imported a second time under another name, its source edited on the way. A mutant is
thus the production store in everything but the edit; and since an edit whose pattern is not there fails the import, a
mutant cannot quietly turn into the store that it should differ from.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.util
import sys
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Final, cast

import attrs

import turnproof.impl
from turnproof.impl import Store

__all__ = ["Edit", "load_mutated"]

_PACKAGE: Final = "turnproof.impl"
_HOME: Final = Path(turnproof.impl.__file__).parent


@attrs.frozen
class Edit:
    """In one module, a piece of source that occurs exactly once, and what stands there instead."""

    module: str
    old: str
    new: str


@attrs.frozen
class _Loader(importlib.abc.SourceLoader):
    """Loads one module of the package under its other name."""

    name: str
    file: Path
    edits: tuple[Edit, ...]

    def get_filename(self, fullname: str) -> str:
        return str(self.file)

    def get_data(self, path: bytes | str) -> bytes:
        source = self.file.read_text(encoding="utf-8")
        for edit in self.edits:
            found = source.count(edit.old)
            if found != 1:
                raise ImportError(f"{self.file}: the pattern of a mutant occurs {found} times, not once: {edit.old!r}")
            source = source.replace(edit.old, edit.new)
        return source.replace(_PACKAGE, self.name).encode()


@attrs.frozen
class _Finder(importlib.abc.MetaPathFinder):
    """Finds the package under its other name, and no other module."""

    name: str
    edits: tuple[Edit, ...]

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != self.name and not fullname.startswith(f"{self.name}."):
            return None
        module = fullname[len(self.name) :].lstrip(".")
        file = _HOME / (f"{module}.py" if module else "__init__.py")
        edits = tuple(edit for edit in self.edits if edit.module == module)
        return importlib.util.spec_from_loader(fullname, _Loader(self.name, file, edits), is_package=not module)


def load_mutated(name: str, edits: tuple[Edit, ...]) -> Callable[..., Store]:
    """``open_store`` of the package with ``edits``. Raises ``ImportError`` for an edit that does not apply."""
    package = f"turnproof_mutant_{name.replace('-', '_')}"
    finder = _Finder(package, edits)
    sys.meta_path.insert(0, finder)
    try:
        module = importlib.import_module(package)
        for edit in edits:
            importlib.import_module(f"{package}.{edit.module}")
    finally:
        sys.meta_path.remove(finder)
    return cast("Callable[..., Store]", module.open_store)
