"""What all verbs share at the terminal: common options, a user's mistakes, progress that does not spoil a pipe."""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path
from typing import Final

import attrs

__all__ = ["Progress", "UserError", "add_report_options", "add_seed_option", "demand_targets", "plain", "seconds"]

_INTERVAL: Final = 0.2


class UserError(Exception):
    """Something the user can put right; the program says what and exits with 2."""


def add_report_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--json", metavar="FILE", help="write the report as JSON ('-': to standard output, nothing else)"
    )
    parser.add_argument("--junit", metavar="FILE", help="write the report as JUnit XML")


def seconds(text: str) -> float:
    """A time that an option gives: positive, and not the endless or nameless ones that ``float`` takes."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is no positive number of seconds")
    return value


def plain(text: str) -> str:
    """Text of somebody else's as a terminal may show it: what would move its cursor or colour it is escaped."""
    return "".join(c if c.isprintable() or c in "\n\t" else c.encode("unicode_escape").decode() for c in text)


def demand_targets(args: argparse.Namespace) -> None:
    """Whether the reports that were asked for can be written: said at once and not after a long run.

    Raises ``UserError``.
    """
    for name in ("json", "junit"):
        target = getattr(args, name, None)
        if target is None or (target == "-" and name == "json"):
            continue
        path = Path(target)
        if target == "-":
            raise UserError(f"--{name} takes a file; only --json is written to standard output")
        if path.is_dir() or not os.access(path if path.exists() else path.parent, os.W_OK):
            raise UserError(f"--{name}: {target} cannot be written")


def add_seed_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--seed", type=int, metavar="N", help="repeat a run (default: a new seed, which is printed)")


@attrs.define
class Progress:
    """One line on a terminal, rewritten; nothing in a pipe. Goes to standard error, so that output stays clean."""

    _last: float = 0.0
    _width: int = 0

    def show(self, text: str) -> None:
        if not sys.stderr.isatty() or time.monotonic() - self._last < _INTERVAL:
            return
        self._last = time.monotonic()
        sys.stderr.write(f"\r{text:<{self._width}}")
        sys.stderr.flush()
        self._width = len(text)

    def clear(self) -> None:
        if self._width:
            sys.stderr.write(f"\r{'':<{self._width}}\r")
            sys.stderr.flush()
            self._width = 0
