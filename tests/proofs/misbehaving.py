"""An adapter that speaks the protocol until its tenth request and then does what its argument says.

Started by ``test_adapter``; no test of its own.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time

from turnproof.proofs.serve import Server
from turnproof.proofs.subjects import ModelSubject

HONEST_REQUESTS = 10


def say(value: object) -> None:
    sys.stdout.write(json.dumps(value) + "\n")
    sys.stdout.flush()


def misbehave(how: str, request: dict[str, object]) -> None:
    number = request["id"]
    match how:
        case "wrong-id":
            say({"id": 999_999, "ok": None})
        case "no-id":
            say({"ok": None})
        case "garbage":
            print("Listening on port 8080", flush=True)
        case "not-utf8":
            sys.stdout.buffer.write(b"\xff\xfe\n")
            sys.stdout.buffer.flush()
        case "both":
            say({"id": number, "ok": None, "error": {"code": "storage_error"}})
        case "neither":
            say({"id": number})
        case "hang" | "stubborn":
            time.sleep(3600)
        case "exit":
            sys.exit(7)
        case "dies":
            os.kill(os.getpid(), signal.SIGKILL)
        case "closes-output":
            os.close(sys.stdout.fileno())
            time.sleep(3600)
        case "flood":
            while True:
                sys.stdout.write("x" * 65536)
        case "chatter":
            say({"id": number, "ok": None})
            while True:
                say({"id": number, "ok": None})
        case "half-a-line":
            sys.stdout.write('{"id": ')
            sys.stdout.flush()
            time.sleep(3600)
        case "unsupported":
            say({"id": number, "error": {"code": "unsupported", "message": "\x1b[31mnot here"}})
        case "deep":
            print('{"id":' + str(number) + ',"ok":' + "[" * 900 + "]" * 900 + "}", flush=True)
        case _:
            raise AssertionError(how)


def main(how: str, pids: str) -> None:
    with open(pids, "a", encoding="utf-8") as file:
        file.write(f"{os.getpid()}\n")
        if how == "stubborn":
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
                signal.signal(number, signal.SIG_IGN)
            child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(3600)"])
            file.write(f"{child.pid}\n")
    print("a line in the log", file=sys.stderr, flush=True)
    server = Server(ModelSubject())
    for count, line in enumerate(sys.stdin.buffer):
        if count >= HONEST_REQUESTS:
            misbehave(how, json.loads(line))
        sys.stdout.buffer.write(server.answer(line.rstrip(b"\n")))
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
