"""A program that speaks the wire protocol, as a subject.

The program is never trusted: it may answer late or never, say too much, die, or ignore every signal but SIGKILL. All of
this is an *adapter failure*, a reason why nothing could be judged, and never a verdict about the store. It runs without
a shell, in a session and a temporary directory of its own, and its whole process group is killed when we are done with
it, whatever the reason.
"""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Final

import attrs

from turnproof.impl.views import Dump
from turnproof.model.choices import Choices
from turnproof.model.operations import CAPABILITIES, Operation
from turnproof.model.vocabulary import ErrorCode, InvalidArgument
from turnproof.proofs.subjects import Identity
from turnproof.proofs.wire import (
    MAX_LINE,
    PROTOCOL,
    Err,
    Json,
    Object,
    Ok,
    Outcome,
    encode_args,
    encode_line,
    parse_line,
)

__all__ = ["Adapter", "AdapterFailure"]

START_TIMEOUT: Final = 30.0
"""Seconds until a program must have said hello: interpreters and virtual machines take their time to start."""

_CHUNK: Final = 1 << 16
_SHOWN: Final = 600


class AdapterFailure(Exception):
    """The adapter cannot be judged. Says what it did, the last exchange, and the end of what it logged."""

    def __init__(self, what: str, sent: bytes = b"", received: bytes = b"", log: str = "") -> None:
        lines = [what]
        if sent:
            lines.append(f"  last request  → {_shown(sent)}")
        if received:
            lines.append(f"  last output   ← {_shown(received)}")
        if log:
            lines.append("  standard error:")
            lines.extend(f"    {line}" for line in log.splitlines())
        super().__init__("\n".join(lines))


def _shown(line: bytes) -> str:
    text = line.decode("utf-8", "backslashreplace").rstrip("\n")
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}… ({len(text)} characters)"


@attrs.define
class _Process:
    """A running program and its three streams. Reading and writing never wait longer than they were told."""

    popen: subprocess.Popen[bytes]
    received: bytearray = attrs.Factory(bytearray)

    @classmethod
    def start(cls, command: Sequence[str], directory: Path, log: IO[bytes]) -> _Process:
        popen = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            cwd=directory,
            env={**os.environ, "TMPDIR": str(directory), "PATH": _search_path()},
            start_new_session=True,
        )
        assert popen.stdin is not None and popen.stdout is not None
        os.set_blocking(popen.stdin.fileno(), False)
        os.set_blocking(popen.stdout.fileno(), False)
        return cls(popen)

    def exchange(self, line: bytes, deadline: float) -> bytes:
        """Send a line and read the one that answers it, reading while writing so that no pipe can fill up."""
        stdin, stdout = self._pipes()
        unsent = memoryview(line)
        while True:
            if unsent:
                with contextlib.suppress(BlockingIOError):
                    unsent = unsent[os.write(stdin, unsent[:_CHUNK]) :]
            ready, _, _ = select.select([stdout], [stdin] if unsent else [], [], max(0.0, deadline - time.monotonic()))
            if ready and not self._read():
                raise EOFError
            end = self.received.find(b"\n")
            if end >= 0:
                answer = bytes(self.received[:end])
                del self.received[: end + 1]
                return answer
            if len(self.received) > MAX_LINE:
                raise OverflowError
            if time.monotonic() > deadline:
                raise TimeoutError

    def _pipes(self) -> tuple[int, int]:
        stdin, stdout = self.popen.stdin, self.popen.stdout
        assert stdin is not None and stdout is not None
        return stdin.fileno(), stdout.fileno()

    def _read(self) -> bool:
        """Take what is there; ``False`` when the program closed its output."""
        _, stdout = self._pipes()
        with contextlib.suppress(BlockingIOError):
            chunk = os.read(stdout, _CHUNK)
            self.received += chunk
            return bool(chunk)
        return True

    def unasked(self) -> bytes:
        """What was said without having been asked."""
        self._read()
        return bytes(self.received)

    def kill(self) -> None:
        """End the program and everything it started that is still in its group."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.popen.pid, signal.SIGKILL)
        self.popen.wait()
        for stream in (self.popen.stdin, self.popen.stdout):
            if stream is not None:
                with contextlib.suppress(BrokenPipeError):
                    stream.close()


class Adapter:
    """An adapter program as a subject. Use as a context manager: leaving it leaves no process and no file."""

    def __init__(self, command: Sequence[str], *, timeout: float = 10.0, directory: Path | None = None) -> None:
        self._command = _absolute(command)
        self._timeout = timeout
        self._home = Path(tempfile.mkdtemp(prefix="turnproof-adapter-"))
        self._directory = directory or self._home
        self._log = (self._home / "stderr").open("w+b")
        self._process: _Process | None = None
        self._path: Path | None = None
        self._number = 0
        self._sent = b""
        try:
            self._identity = self._start()
        except BaseException:
            self.stop()
            raise

    def __enter__(self) -> Adapter:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def identity(self) -> Identity:
        return self._identity

    def open(self, path: Path) -> None:
        path.mkdir(parents=True, exist_ok=True)
        if self._process is None:
            self._start()
        self._control("open", {"path": str(path)})
        self._path = path

    def close(self) -> None:
        if self._process is not None and self._path is not None:
            self._control("close", {})
            self._path = None

    def crash(self) -> None:
        path = self._path
        assert path is not None, "crash needs an open store"
        self._kill()
        self.open(path)

    def call(self, operation: Operation) -> Outcome:
        """Put an operation that the adapter offers. Raises ``AdapterFailure`` also when it then has none after all."""
        outcome = self.ask(operation.verb, encode_args(operation))
        if outcome == Err(ErrorCode.UNSUPPORTED.value):
            offered = f"the adapter declares the capability {operation.capability!r}"
            raise self._failure(f"{offered}, of which {operation.verb!r} is a part, and answers unsupported")
        return outcome

    def ask(self, op: str, args: Object, timeout: float | None = None) -> Outcome:
        """One exchange. Raises ``AdapterFailure`` for everything that is not the answer to this very request."""
        process = self._process
        if process is None:
            raise self._failure("the adapter is not running")
        self._number += 1
        self._sent = encode_line({"id": self._number, "op": op, "args": args})
        stray = process.unasked()
        if stray:
            raise self._failure("the adapter wrote to standard output without being asked", stray)
        try:
            line = process.exchange(self._sent, time.monotonic() + (timeout or self._timeout))
        except TimeoutError:
            raise self._failure(f"no answer within {timeout or self._timeout:g} s", bytes(process.received)) from None
        except OverflowError:
            raise self._failure(f"an answer longer than {MAX_LINE} bytes", bytes(process.received[:_SHOWN])) from None
        except (EOFError, BrokenPipeError):
            raise self._failure(f"the adapter {self._ending()}", bytes(process.received)) from None
        return self._outcome(line)

    def whole(self) -> Dump | None:
        return None

    def environment(self) -> dict[str, str]:
        return {}

    def stop(self) -> None:
        """Kill the program and remove its directory."""
        self._kill()
        self._log.close()
        shutil.rmtree(self._home, ignore_errors=True)

    def _start(self) -> Identity:
        self._kill()
        try:
            self._process = _Process.start(self._command, self._directory, self._log)
        except OSError as error:
            raise AdapterFailure(f"cannot start {self._command[0]}: {error.strerror or error}") from None
        outcome = self.ask("hello", {"protocol": PROTOCOL}, max(START_TIMEOUT, self._timeout))
        if isinstance(outcome, Err):
            raise self._failure(f"hello was answered by the error {outcome.code}: {outcome.message}")
        return self._identified(outcome.value)

    def _identified(self, hello: Json) -> Identity:
        """The identity in an answer to ``hello``; what it declares must be known, or it could not be held to it."""
        if not isinstance(hello, dict) or hello.get("protocol") != PROTOCOL:
            raise self._failure(f"hello must answer an object with protocol {PROTOCOL}")
        name, version = hello.get("name"), hello.get("version")
        capabilities, choices = hello.get("capabilities") or [], hello.get("choices") or {}
        if not isinstance(capabilities, list) or not isinstance(choices, dict):
            raise self._failure("hello must answer capabilities as a list and choices as an object")
        unknown = [name for name in capabilities if name not in CAPABILITIES]
        if unknown:
            raise self._failure(f"hello declares unknown capabilities: {unknown}; known: {', '.join(CAPABILITIES)}")
        try:
            declared = Choices.declared({name: str(value) for name, value in choices.items()})
        except InvalidArgument as error:
            raise self._failure(f"hello: {error.message}") from None
        clock, flush = hello.get("clock") or "given", hello.get("flush") or "none"
        if clock not in ("given", "own") or flush not in ("always", "relaxed", "none"):
            raise self._failure("hello: clock is 'given' or 'own', flush 'always', 'relaxed' or 'none'")
        return Identity(
            name=str(name or Path(self._command[0]).name),
            version=str(version or "?"),
            capabilities=tuple(name for name in CAPABILITIES if name in capabilities),
            choices=declared,
            clock=str(clock),
            flush=str(flush),
        )

    def _control(self, op: str, args: Object) -> None:
        outcome = self.ask(op, args, max(START_TIMEOUT, self._timeout))
        if isinstance(outcome, Err):
            raise self._failure(f"{op} was answered by the error {outcome.code}: {outcome.message}")

    def _outcome(self, line: bytes) -> Outcome:
        """The outcome in an answer line."""
        try:
            answer = parse_line(line)
        except InvalidArgument as error:
            raise self._failure(f"not an answer: {error.message}", line) from None
        if not isinstance(answer, dict) or ("ok" in answer) == ("error" in answer):
            raise self._failure("an answer is an object with either 'ok' or 'error'", line)
        if answer.get("id") != self._number:
            raise self._failure(f"the answer carries the id {answer.get('id')!r}, asked was {self._number}", line)
        if "ok" in answer:
            return Ok(answer["ok"])
        fault = answer["error"]
        code = fault.get("code") if isinstance(fault, dict) else None
        if not isinstance(fault, dict) or not isinstance(code, str):
            raise self._failure("an error is an object with a 'code'", line)
        return Err(code, str(fault.get("message") or ""))

    def _ending(self) -> str:
        """How the program ended, if it did."""
        assert self._process is not None
        try:
            status = self._process.popen.wait(0.5)
        except subprocess.TimeoutExpired:
            return "closed its standard output"
        return f"was ended by signal {-status}" if status < 0 else f"exited with status {status}"

    def _failure(self, what: str, received: bytes = b"") -> AdapterFailure:
        """The failure to raise. Nothing more is asked of a program that failed once: it is killed."""
        self._kill()
        log = (self._home / "stderr").read_bytes()[-2000:].decode("utf-8", "replace")
        return AdapterFailure(what, self._sent, received, log)

    def _kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process = None
        self._path = None


def _search_path() -> str:
    """Where programs are looked for: as usual, and last beside our own, so that ``-- turnproof serve`` works from a
    virtual environment that was not activated."""
    return os.pathsep.join((os.environ.get("PATH", os.defpath), os.path.dirname(sys.executable)))


def _absolute(command: Sequence[str]) -> list[str]:
    """The command with the files it names made absolute, since it runs elsewhere: ``node my-adapter.mjs`` must work.

    Not resolved: a Python of a virtual environment is a link, and must stay one.
    """

    def place(index: int, word: str) -> str:
        found_on_path = index == 0 and os.sep not in word
        return word if found_on_path or not Path(word).is_file() else str(Path(word).absolute())

    return [place(index, word) for index, word in enumerate(command)]
