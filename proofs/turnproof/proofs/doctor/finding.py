"""What an examination answers: findings, each with its place and what to do, and the facts that were read on the way.

Three severities. *Damage* is what no release ever writes: bytes or rows were changed, or are gone. *Needs attention* is
a lawful state that waits for somebody: a torn tail, a dead worker, a deletion that was not finished. A *note* is worth
knowing, and a store with nothing but notes is healthy.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import Final

from attrs import define, field, fields, frozen

from turnproof.proofs.wire import Json, Object

__all__ = ["CLEAN", "FOUND", "NOT_A_STORE", "Examination", "Finding", "NotAStore", "Severity", "shown"]

CLEAN: Final = 0
FOUND: Final = 1
NOT_A_STORE: Final = 2
"""Exit codes."""


class Severity(StrEnum):
    DAMAGE = "damage"
    ATTENTION = "needs attention"
    NOTE = "note"


class NotAStore(Exception):
    """There is nothing here that could be examined, or it could not: ``code`` says of which kind, the text says why."""

    def __init__(self, code: str, reason: str, remedy: str) -> None:
        super().__init__(reason)
        self.code = code
        self.reason = reason
        self.remedy = remedy

    @property
    def headline(self) -> str:
        unknown = self.code in ("unreadable", "no_room")
        return f"{'could not be examined' if unknown else 'not a store'}: {self.reason}"


def shown(path: str) -> str:
    """A path as it can be printed anywhere: a name that is no UTF-8 is escaped."""
    return path.encode("utf-8", "backslashreplace").decode()


@frozen(kw_only=True)
class Finding:
    """One thing that was found. Fields that do not apply are ``None``."""

    code: str
    severity: Severity
    what: str
    remedy: str = ""
    file: str | None = None
    line: int | None = None
    run: str | None = None
    seq: int | None = None
    entry: str | None = None
    submission: str | None = None
    stream: str | None = None

    @property
    def where(self) -> str:
        """The place, in words."""
        parts = [] if self.file is None else [shown(self.file)]
        names: tuple[tuple[str, str | int | None], ...] = (
            ("line", self.line),
            ("run", self.run),
            ("seq", self.seq),
            ("entry", self.entry),
            ("submission", self.submission),
            ("stream", self.stream),
        )
        return " ".join([*parts, *(f"{name} {value!r}" for name, value in names if value is not None)])

    @property
    def told(self) -> str:
        """Where, and what."""
        return f"{self.where}: {self.what}" if self.where else self.what

    def as_json(self) -> Object:
        found: dict[str, Json] = {}
        for name in fields(Finding):
            value: Json = getattr(self, name.name)
            if value is not None:
                found[name.name] = shown(value) if isinstance(value, str) else value
        return found


@define(kw_only=True)
class Examination:
    """Everything that is known of a place once it was examined."""

    path: str
    kind: str
    """``store``, ``legacy``, ``store and legacy``."""
    method: str = ""
    """How the bytes were obtained."""
    facts: dict[str, str | int] = field(factory=dict)
    counts: dict[str, int] = field(factory=dict)
    findings: list[Finding] = field(factory=list)

    def add(self, findings: Iterable[Finding]) -> None:
        self.findings.extend(findings)

    def of(self, severity: Severity) -> list[Finding]:
        return [finding for finding in self.findings if finding.severity is severity]

    def has(self, *codes: str) -> bool:
        return any(finding.code in codes for finding in self.findings)

    @property
    def exit(self) -> int:
        return CLEAN if all(finding.severity is Severity.NOTE for finding in self.findings) else FOUND

    @property
    def verdict(self) -> str:
        if self.of(Severity.DAMAGE):
            return "damaged"
        return "needs attention" if self.of(Severity.ATTENTION) else "healthy"

    @property
    def headline(self) -> str:
        """The answer in one line: the first and worst thing that was found, or that nothing was."""
        found = [*self.of(Severity.DAMAGE), *self.of(Severity.ATTENTION)]
        if not found:
            return f"{self.verdict} {self.kind}: nothing to do"
        more = f" ({len(found) - 1} more below)" if found[1:] else ""
        return f"{self.verdict}: {found[0].told}{more}"
