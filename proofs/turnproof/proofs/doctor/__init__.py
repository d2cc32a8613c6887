"""``turnproof doctor``: what state a store on disk is in, without touching it; and a repaired copy on request.

It answers for a store of ours, live or not, and for a directory of the former format. What it reads is a private copy,
so the original keeps every byte and every name. Each finding says where (file and line, run, seq, entry, submission),
what, and what to do.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from turnproof.impl.base import wall_clock
from turnproof.impl.store import FILE_NAME
from turnproof.proofs.doctor.examination import Say, examine
from turnproof.proofs.doctor.finding import NotAStore, shown
from turnproof.proofs.doctor.repair import demand_free, repair
from turnproof.proofs.doctor.telling import examination_json, not_a_store_json, repaired_json, tell, tell_repaired
from turnproof.proofs.terminal import Progress, UserError
from turnproof.proofs.wire import Object

__all__ = ["add_arguments", "run"]

_EXAMPLE: Final = """\
example: turnproof doctor .turnproof
         turnproof doctor .turnproof --repair-to ./repaired
         turnproof doctor backup.db --json -

PATH may also be a database under another name, or a directory of runs/*.jsonl. The original is only read.

exit code: 0 clean (notes at most), 1 findings, 2 not a store, or the copy that was asked for was not written"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = _EXAMPLE
    parser.add_argument(
        "path", metavar="PATH", help="the directory of a store, a database, or files of the former format"
    )
    parser.add_argument(
        "--repair-to", metavar="COPY", help="write a repaired copy to this new directory, and say what was left out"
    )
    parser.add_argument(
        "--json", metavar="FILE", help="write the answer as JSON ('-': to standard output, nothing else)"
    )


def run(args: argparse.Namespace) -> int:
    path: str = args.path
    copy: str | None = args.repair_to
    report: str | None = args.json
    if copy is not None:
        _demand_outside(path, "--repair-to", copy)
        demand_free(copy)
    if report is not None and report != "-":
        _demand_outside(path, "--json", report)
    progress = Progress()
    try:
        with tempfile.TemporaryDirectory(prefix="turnproof-") as scratch:
            return _doctor(path, copy, report, scratch, progress.show)
    except OSError as error:
        if isinstance(error, BrokenPipeError):
            raise
        raise UserError(f"{error.strerror or error}: {error.filename}") from None
    finally:
        progress.clear()


def _doctor(path: str, copy: str | None, report: str | None, scratch: str, say: Say) -> int:
    now = wall_clock()
    try:
        found = examine(path, scratch, now, say)
    except NotAStore as problem:
        _write(not_a_store_json(path, problem), report)
        remedy = f"; {problem.remedy}" if problem.remedy else ""
        raise UserError(f"{problem.headline}{remedy}") from None
    answer, failed = examination_json(found.answer), None
    lines = [*tell(found.answer)]
    if copy is not None:
        try:
            repaired = repair(found, copy, scratch, now, say)
            lines += tell_repaired(repaired)
            answer["repair"] = repaired_json(repaired)
        except UserError as error:
            failed, answer["repair"] = error, {"error": str(error)}
    if report != "-":
        _print(lines)
    _write(answer, report)
    if failed is not None:
        raise failed
    return found.answer.exit


def _print(lines: Iterable[str]) -> None:
    """Print what standard output can show; the rest as escapes."""
    encoding = sys.stdout.encoding or "utf-8"
    print("\n".join(lines).encode(encoding, "backslashreplace").decode(encoding))


def _write(answer: Object, report: str | None) -> None:
    if report is None:
        return
    text = json.dumps(answer, ensure_ascii=True, indent=2) + "\n"
    if report == "-":
        sys.stdout.write(text)
    else:
        Path(report).write_text(text, encoding="utf-8")


def _demand_outside(path: str, option: str, target: str) -> None:
    """Nothing is written where the original is."""
    here, there = os.path.realpath(path), os.path.realpath(target)
    database = os.path.realpath(os.path.join(path, FILE_NAME)) if os.path.isdir(path) else here
    files = {f"{database}{side}" for side in ("", "-wal", "-shm", "-journal")}
    if there in files or os.path.join(there, "").startswith(os.path.join(here, "")):
        raise UserError(f"{option}: {shown(target)} is in the store itself, of which nothing is touched")
