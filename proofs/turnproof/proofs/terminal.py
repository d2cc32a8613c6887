"""What all verbs share at the terminal: common options, a user's mistakes, progress that does not spoil a pipe."""

from __future__ import annotations

import argparse
import sys
import time
from typing import Final

import attrs

__all__ = ["Progress", "UserError", "add_report_options", "add_seed_option"]

_INTERVAL: Final = 0.2


class UserError(Exception):
    """Something the user can put right; the program says what and exits with 2."""


def add_report_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--json", metavar="FILE", help="write the report as JSON ('-': to standard output, nothing else)"
    )
    parser.add_argument("--junit", metavar="FILE", help="write the report as JUnit XML")


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
