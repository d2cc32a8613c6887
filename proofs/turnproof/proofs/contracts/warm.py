"""A prover that is started once: to load CrossHair and the contracts takes longer than most proofs.

One line a request, a JSON list of CrossHair's arguments and of the seconds after which it is killed; one line an
answer. Each contract is proved in a fork of this process, so none can disturb the next, and all begin alike.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import sys
import tempfile
import time
import traceback
from typing import Final, NoReturn

import crosshair.main

import turnproof.proofs.contracts

__all__ = ["main"]

LOADED: Final = turnproof.proofs.contracts.CONTRACTS
"""What each fork finds ready."""


def main() -> None:
    with contextlib.suppress(BrokenPipeError):
        for line in sys.stdin:
            arguments, patience = json.loads(line)
            print(json.dumps(_forked(arguments, patience)), flush=True)


def _forked(arguments: list[str], patience: float) -> dict[str, str | bool]:
    """What CrossHair says, and whether it had to be killed."""
    with tempfile.TemporaryFile() as errors:
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(reading)
            os.dup2(writing, 1)
            os.dup2(errors.fileno(), 2)
            _prove(arguments)
        os.close(writing)
        output, late = _read(reading, time.monotonic() + patience)
        os.close(reading)
        if late:
            os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        errors.seek(0)
        said = errors.read()
    return {"output": output.decode(errors="replace"), "errors": said.decode(errors="replace"), "late": late}


def _prove(arguments: list[str]) -> NoReturn:
    """In the fork; it ends here, without what the parent registered for its own exit."""
    code = 0
    try:
        crosshair.main.main(arguments)
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
    except BaseException:
        traceback.print_exc()
        code = 2
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _read(file: int, until: float) -> tuple[bytes, bool]:
    """Everything until the other end is closed; and whether the time ``until``, or the end of our input, came first."""
    found = b""
    while True:
        ready = select.select([file, sys.stdin], [], [], max(until - time.monotonic(), 0))[0]
        if file not in ready:
            return found, True  # late, or nobody waits for the answer any more
        data = os.read(file, 65536)
        if not data:
            return found, False
        found += data


if __name__ == "__main__":
    main()
