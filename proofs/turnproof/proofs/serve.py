"""``turnproof serve``: our store, or the model, as an adapter that speaks wire protocol 1.

Whatever a line holds, it gets an answer: the server ends when its input ends and for no other reason. It never holds
more of a line than the protocol allows; the rest of a longer one is read and thrown away.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import attrs

from turnproof.model.choices import Choices
from turnproof.model.ids import is_text
from turnproof.model.vocabulary import ErrorCode, InvalidArgument, TurnproofError
from turnproof.proofs.mutants import MUTANTS, mutated
from turnproof.proofs.subjects import ModelSubject, StoreSubject, Subject
from turnproof.proofs.terminal import UserError
from turnproof.proofs.wire import (
    MAX_LINE,
    PROTOCOL,
    Err,
    Object,
    Ok,
    Outcome,
    Request,
    decode_request,
    encode_line,
)

__all__ = ["Server", "add_arguments", "lines", "run", "subject_of"]

_CHUNK: Final = 1 << 16
_CODES: Final = {code.value for code in ErrorCode}
_QUOTED: Final = 10_000
"""Characters of an error message that are sent. It may quote an argument, and an answer must fit in a line."""


def lines(file: int) -> Iterator[bytes | None]:
    """The lines of a file descriptor, without their line feeds; ``None`` for one that is longer than allowed."""
    held = bytearray()
    too_long = False
    while chunk := os.read(file, _CHUNK):
        *ends, rest = chunk.split(b"\n")
        for end in ends:
            held += end
            yield None if too_long or len(held) > MAX_LINE else bytes(held)
            held.clear()
            too_long = False
        held += rest
        if len(held) > MAX_LINE:
            held.clear()
            too_long = True
    if held or too_long:
        yield None if too_long else bytes(held)


@attrs.define
class Server:
    """Answers requests about one subject."""

    subject: Subject

    def answer(self, line: bytes | None) -> bytes:
        """The answer to a line. Total."""
        if line is None:
            request = Request(None, error=InvalidArgument(f"a line is at most {MAX_LINE} bytes"))
        else:
            request = decode_request(line)
        answer = encode_line(_answer(request, self._outcome(request)))
        if len(answer) > MAX_LINE + 1:
            answer = encode_line(_answer(request, Err("storage_error", f"the answer is longer than {MAX_LINE} bytes")))
        return answer

    def _outcome(self, request: Request) -> Outcome:
        try:
            if request.error is not None:
                raise request.error
            return self._life(request) or self.subject.ask(request.op, request.args)
        except TurnproofError as error:
            return Err(error.code.value, error.message)
        except Exception as error:
            return Err("storage_error", f"{type(error).__name__}: {error}")

    def _life(self, request: Request) -> Outcome | None:
        """The answer to ``hello``, ``open`` and ``close``; ``None`` for any other request."""
        match request.op:
            case "hello":
                asked = request.args.get("protocol")
                if asked is not None and (type(asked) is not int or asked != PROTOCOL):
                    return Err("unsupported", f"this server speaks protocol {PROTOCOL}")
                return Ok(self.subject.identity.hello())
            case "open":
                path = request.args.get("path")
                if not isinstance(path, str) or not path or "\0" in path or not is_text(path):
                    raise InvalidArgument("open needs the path of a directory")
                self.subject.open(Path(path))
                return Ok(None)
            case "close":
                self.subject.close()
                return Ok(None)
            case _:
                return None


def _answer(request: Request, outcome: Outcome) -> Object:
    if isinstance(outcome, Ok):
        return {"id": request.id, "ok": outcome.value}
    code = outcome.code if outcome.code in _CODES else "storage_error"
    message = outcome.message[:_QUOTED].encode("utf-8", "replace").decode()  # it may quote what the request held
    return {"id": request.id, "error": {"code": code, "message": message}}


# --- the verb ----------------------------------------------------------------------------------------------------


def add_subject_options(parser: argparse.ArgumentParser) -> None:
    """Which of the subjects at hand: our store (the default), the model, or a store that is wrong on purpose."""
    parser.add_argument("--model", action="store_true", help="the model itself instead of our store")
    parser.add_argument(
        "--choice",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="with --model: a choice of SPEC section 9 (may be repeated)",
    )
    parser.add_argument("--flush", choices=["always", "relaxed"], default="always", help="flush policy of our store")
    parser.add_argument(
        "--mutant", metavar="NAME", action=_Mutant, help="a store that is wrong on purpose ('list' lists them)"
    )


class _Mutant(argparse.Action):
    """A mutant's name; for ``list`` all names, and that is all."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: str | Sequence[object] | None,
        option_string: str | None = None,
    ) -> None:
        if values == "list":
            print("\n".join(f"{name:30} {mutant.promise:4} {mutant.about}" for name, mutant in MUTANTS.items()))
            parser.exit()
        setattr(namespace, self.dest, values)


def subject_of(args: argparse.Namespace) -> Subject:
    """The subject that the options ask for."""
    if args.mutant is not None:
        if args.mutant not in MUTANTS:
            raise UserError(f"no mutant {args.mutant!r}; '--mutant list' lists them")
        try:
            return mutated(MUTANTS[args.mutant], args.flush)
        except ImportError as error:
            raise UserError(str(error)) from None
    if not args.model:
        if args.choice:
            raise UserError("--choice needs --model: our store makes the strict choices")
        return StoreSubject(flush=args.flush)
    pairs = [choice.partition("=") for choice in args.choice]
    return ModelSubject(choices=Choices.declared({name: value for name, _, value in pairs}))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = "example: turnproof check -- turnproof serve --model"
    parser.add_argument("path", nargs="?", metavar="PATH", help="open this directory at once, without being told to")
    add_subject_options(parser)


def run(args: argparse.Namespace) -> int:
    """Serve standard input until it ends."""
    subject = subject_of(args)
    server = Server(subject)
    try:
        if args.path is not None:
            subject.open(Path(args.path))
        for line in lines(sys.stdin.fileno()):
            _write(sys.stdout.fileno(), server.answer(line))
    except BrokenPipeError:
        return 0  # nobody listens any more
    finally:
        subject.close()
    return 0


def _write(file: int, data: bytes) -> None:
    left = memoryview(data)
    while left:
        left = left[os.write(file, left) :]
