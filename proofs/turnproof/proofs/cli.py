"""The program ``turnproof``: one verb a module, and what all verbs have in common.

A verb is a module with ``add_arguments(parser)`` and ``run(args) -> exit code``; adding one is a line in ``VERBS``. A
user's mistake is answered by one line on standard error and never by a traceback. Exit codes: 0 conforms, 1 violation,
3 undecided, 2 could not judge (a usage error too); 130 after Ctrl-C.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import os
import signal
import sys
import traceback
from collections.abc import Sequence
from importlib import metadata
from types import FrameType
from typing import Final, NoReturn, Protocol, cast

from turnproof.model.vocabulary import TurnproofError
from turnproof.proofs.terminal import UserError, demand_targets

__all__ = ["VERBS", "main"]

VERBS: Final = {
    # verb: (module, what it does)
    "check": ("turnproof.proofs.check", "judge a store against the model on generated histories"),
    "serve": ("turnproof.proofs.serve", "speak wire protocol 1 for our store, or for the model"),
    "replay": ("turnproof.proofs.replay", "run the cases of a trace file"),
    "crash": ("turnproof.proofs.crash", "crash the store at every write and judge what is left"),
    "explore": ("turnproof.proofs.explore", "enumerate every schedule of crashes and takeovers of a small scope"),
    "prove": ("turnproof.proofs.prove", "prove the one-step contracts of the model with CrossHair"),
    "promises": ("turnproof.proofs.ledger", "the ledger: every promise and the evidence for it"),
    "doctor": ("turnproof.proofs.doctor", "examine a store on disk without touching it"),
    "vectors": ("turnproof.proofs.vectors", "write traces that cover the explored transitions, for other languages"),
}


_ENDING: Final = tuple(getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name))


class _Verb(Protocol):
    """What the module of a verb offers."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None: ...

    def run(self, args: argparse.Namespace) -> int: ...


def main(argv: Sequence[str] | None = None) -> int:
    """Run the program; answers the exit code."""
    words = list(sys.argv[1:] if argv is None else argv)
    words, command = _split(words)
    args = _parsed(words)
    args.command = command
    previous = {number: signal.signal(number, _terminated) for number in _ENDING if _is_asked_for(number)}
    try:
        return _run(args)
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def _is_asked_for(number: int) -> bool:
    """``nohup`` ignores SIGHUP, and that is to stay so."""
    return signal.getsignal(number) is not signal.SIG_IGN


def _run(args: argparse.Namespace) -> int:
    try:
        if args.command == []:
            raise UserError("after '--' comes the COMMAND of an adapter, and there is none")
        demand_targets(args)
        verb: _Verb = args.verb
        code = verb.run(args)
        sys.stdout.flush()
        return code
    except BrokenPipeError:
        # Whoever read our output has seen enough. Nothing may be flushed into the closed pipe at exit either.
        with contextlib.suppress(OSError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + signal.SIGPIPE  # not 0: whoever asks for the exit code must not read a verdict into it
    except KeyboardInterrupt:
        print("turnproof: interrupted", file=sys.stderr)
        return 128 + signal.SIGINT
    except _Terminated as end:
        print("turnproof: terminated", file=sys.stderr)
        return 128 + end.number
    except (UserError, TurnproofError, OSError, UnicodeError, RecursionError) as error:
        print(f"turnproof: {error}".encode(errors="backslashreplace").decode(), file=sys.stderr)
        return 2
    except Exception:
        # A mistake of ours. It must not be taken for a verdict about anybody's store: 1 is "violation".
        traceback.print_exc()
        return 2


def _split(words: list[str]) -> tuple[list[str], list[str] | None]:
    """The words before ``--``, and the command after it; ``None`` without a ``--``."""
    if "--" not in words:
        return words, None
    at = words.index("--")
    return words[:at], words[at + 1 :]


class _Terminated(BaseException):
    """SIGTERM unwinds like Ctrl-C, so that no adapter is left behind; nothing on the way takes it for a failed test."""

    def __init__(self, number: int) -> None:
        self.number = number


def _terminated(number: int, frame: FrameType | None) -> NoReturn:
    for asked in _ENDING:
        signal.signal(asked, signal.SIG_IGN)  # asking twice must not cut the cleaning short
    raise _Terminated(number)


def _parsed(words: Sequence[str]) -> argparse.Namespace:
    args, unknown = _parser(words).parse_known_args(words)
    if unknown:
        hint = "" if any(word.startswith("-") for word in unknown) else "; an adapter's COMMAND comes after '--'"
        args.parser.error(f"unrecognized arguments: {' '.join(unknown)}{hint}")
    return args


def _parser(words: Sequence[str]) -> argparse.ArgumentParser:
    """The parser; only the module of the verb that is asked for is imported."""
    parser = argparse.ArgumentParser(
        prog="turnproof",
        description="Judge stores of durable agent turns against an executable specification.",
        epilog="example: turnproof check --budget 30     (each verb: turnproof VERB --help)",
    )
    parser.add_argument("--version", action="version", version=f"turnproof {metadata.version('turnproof')}")
    verbs = parser.add_subparsers(metavar="VERB", required=True)
    asked = next((word for word in words if not word.startswith("-")), None)
    for name, (module, summary) in VERBS.items():
        verb = verbs.add_parser(
            name,
            help=summary,
            description=f"{summary[0].upper()}{summary[1:]}.",
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        if name == asked:
            loaded = cast(_Verb, importlib.import_module(module))
            loaded.add_arguments(verb)
            verb.set_defaults(verb=loaded, parser=verb)
    return parser
