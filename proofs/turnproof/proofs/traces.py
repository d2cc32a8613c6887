"""Traces: histories of one client as JSON Lines, written by a check and read by ``turnproof replay`` (PROTOCOL).

A file holds cases; each starts on an empty store. A step says what to ask and, if it has an opinion, what to expect:
objects are matched in part, lists exactly, an error by its code.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

import attrs

from turnproof.model.choices import Choices
from turnproof.model.operations import ALPHABET
from turnproof.model.vocabulary import ErrorCode, InvalidArgument
from turnproof.proofs.wire import Err, Json, Object, Ok, Outcome, encode_line, parse_line

__all__ = ["SPECIAL", "Case", "Step", "TraceError", "fits", "needs", "read_trace", "write_trace"]

SPECIAL: Final = ("crash", "reopen")
"""Steps that are no operation: kill and reopen; close and reopen."""

_CODES: Final = {code.value for code in ErrorCode}


class TraceError(Exception):
    """A trace file that cannot be read. Names the file and the line."""


@attrs.frozen
class Step:
    """One line: an operation, or ``crash`` or ``reopen``."""

    op: str
    args: Object = attrs.Factory(dict)
    expect: Outcome | None = None
    line: int = 0

    def as_json(self) -> Object:
        step: Object = {"op": self.op}
        if self.op not in SPECIAL:
            step["args"] = self.args
        if isinstance(self.expect, Ok):
            step["expect"] = {"ok": self.expect.value}
        elif self.expect is not None:
            step["expect"] = {"error": self.expect.code}
        return step


@attrs.frozen
class Case:
    """Steps on an empty store. ``choices`` is ``None`` where the case does not say for which choices it speaks."""

    name: str
    steps: tuple[Step, ...] = ()
    about: str = ""
    choices: Choices | None = None


def fits(expect: Json, got: Json) -> bool:
    """Whether an answer is what a trace expects: objects in part, lists exactly, absent and null the same."""
    if isinstance(expect, dict):
        return isinstance(got, dict) and all(fits(value, got.get(name)) for name, value in expect.items())
    if isinstance(expect, list):
        return isinstance(got, list) and len(expect) == len(got) and all(map(fits, expect, got))
    return isinstance(expect, bool) is isinstance(got, bool) and expect == got


def needs(op: str, args: Mapping[str, Json]) -> tuple[str, ...]:
    """The capabilities that a request takes: its verb's, and those of the guards that it carries."""
    operation = ALPHABET.get(op)
    if operation is None:
        return ()
    extra = ["fencing"] if args.get("fence") is not None or args.get("expected_position") is not None else []
    if args.get("observed_lease_expires_at") is not None:
        extra.append("leases")
    return (operation.capability, *extra)


def write_trace(path: Path, cases: Iterable[Case]) -> None:
    """Write cases as a trace file."""
    with path.open("wb") as file:
        for case in cases:
            header: Object = {"case": case.name}
            if case.about:
                header["about"] = case.about
            if case.choices is not None:
                header["choices"] = dict(case.choices.deviations())
            file.write(encode_line(header))
            for step in case.steps:
                file.write(encode_line(step.as_json()))


def read_trace(path: Path) -> tuple[Case, ...]:
    """The cases of a trace file; steps before the first header make a case named after the file."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise TraceError(f"{path}: {error.strerror}") from None
    cases: list[Case] = []
    for number, line in enumerate(data.split(b"\n"), 1):
        if not line.strip():
            continue
        try:
            value = parse_line(line)
            if not isinstance(value, dict):
                raise InvalidArgument("a step is a JSON object")
            if "case" in value:
                cases.append(_header(value))
                continue
            if not cases:
                cases.append(Case(path.stem))
            cases[-1] = attrs.evolve(cases[-1], steps=(*cases[-1].steps, _step(value, number)))
        except InvalidArgument as error:
            raise TraceError(f"{path}, line {number}: {error.message}") from None
    if not cases:
        raise TraceError(f"{path}: no case in it")
    return tuple(cases)


def _header(value: Object) -> Case:
    name, about, choices = value["case"], value.get("about"), value.get("choices")
    if not isinstance(name, str) or not isinstance(about, str | None) or not isinstance(choices, dict | None):
        raise InvalidArgument("a case has its name as text, and may have 'about' as text and 'choices' as an object")
    declared = None if choices is None else Choices.declared({key: str(option) for key, option in choices.items()})
    return Case(name, about=about or "", choices=declared)


def _step(value: Object, line: int) -> Step:
    op, args, expect = value.get("op"), value.get("args"), value.get("expect")
    if not isinstance(op, str):
        raise InvalidArgument("a step needs 'op' as text")
    if not isinstance(args, dict | None):
        raise InvalidArgument("'args' must be an object")
    expected = _expect(expect)
    if op not in ALPHABET and op not in SPECIAL and expected != Err(ErrorCode.UNSUPPORTED.value):
        raise InvalidArgument(f"there is no operation {op!r}")
    return Step(op, args or {}, expected, line)


def _expect(expect: Json) -> Outcome | None:
    if expect is None:
        return None
    if not isinstance(expect, dict) or ("ok" in expect) == ("error" in expect):
        raise InvalidArgument("'expect' is an object with either 'ok' or 'error'")
    if "ok" in expect:
        return Ok(expect["ok"])
    code = expect["error"]
    if not isinstance(code, str) or code not in _CODES:
        raise InvalidArgument(f"unknown error code {code!r}; known: {', '.join(sorted(_CODES))}")
    return Err(code)
