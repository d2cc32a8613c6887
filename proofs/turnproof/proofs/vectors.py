"""``turnproof vectors``: a covering set of histories as files, for stores in any language.

The small scope is explored, and histories are written that put every operation to every state of the store that the
exploration met (``explore.cover``): once as a trace file (PROTOCOL, "Traces"), with what the model answers as
``expect``; once as ITF, the JSON form of model checkers' traces, where each state shows the whole store.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from turnproof.model.choices import Choices
from turnproof.model.operations import Operation
from turnproof.model.state import EMPTY, State
from turnproof.proofs.explore.cover import cover, explored
from turnproof.proofs.explore.scope import SCOPES, Scope
from turnproof.proofs.subjects import expected
from turnproof.proofs.terminal import UserError
from turnproof.proofs.traces import Case, Step, write_trace
from turnproof.proofs.wire import Json, Object, Ok, encode, encode_args

__all__ = ["add_arguments", "case_of", "cases_of", "itf_of", "run"]

_MAX_EXACT: Final = 2**53


def case_of(name: str, walk: Sequence[Operation], choices: Choices) -> Case:
    """A history as a case: each operation with the answer of the model."""
    state, steps = EMPTY, []
    for operation in walk:
        model = expected(operation, state, choices)
        state = model.state
        steps.append(Step(operation.verb, encode_args(operation), model.outcome))
    return Case(name, tuple(steps), choices=choices)


def cases_of(scope: Scope, limit: int | None = None) -> Iterator[tuple[Case, tuple[Operation, ...]]]:
    """The covering cases of a scope with their histories, at most ``limit`` of them."""
    for number, walk in enumerate(cover(explored(scope)).walks(), 1):
        if limit is not None and number > limit:
            return
        yield case_of(f"{scope.name}-{number:04}", walk, scope.choices), walk


# --- ITF --------------------------------------------------------------------------------------------------------------


def _itf(value: Json) -> object:
    """A value in ITF: integers that JSON readers may round as ``#bigint``, and no null: absent fields are left out."""
    if isinstance(value, dict):
        return {name: _itf(item) for name, item in value.items() if item is not None}
    if isinstance(value, list):
        return [_itf(item) for item in value]
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) >= _MAX_EXACT:
        return {"#bigint": str(value)}
    return value


def _map(items: dict[str, Json]) -> object:
    return {"#map": [[key, _itf(value)] for key, value in items.items()]}


def _store(state: State) -> dict[str, object]:
    return {
        "submissions": _map({key: encode(row) for key, row in state.submissions.items()}),
        "slots": _map({key: encode(slot) for key, slot in state.slots.items()}),
        "segments": _map({key: encode(segments) for key, segments in state.segments.items()}),
        "runs": _map({key: encode(run.records) for key, run in state.runs.items()}),
    }


def itf_of(name: str, walk: Sequence[Operation], choices: Choices) -> dict[str, object]:
    """A history in the Informal Trace Format: ``operation`` and ``answer`` are those that led to the state."""
    state = EMPTY
    states: list[dict[str, object]] = []
    for index, operation in enumerate(walk):
        model = expected(operation, state, choices)
        state = model.state
        answer: Object = {"ok": model.outcome.value} if isinstance(model.outcome, Ok) else {"error": model.outcome.code}
        asked: Object = {"op": operation.verb, "args": encode_args(operation)}
        states.append({"#meta": {"index": index}, "operation": _itf(asked), "answer": _itf(answer), **_store(state)})
    return {
        "#meta": {"format": "ITF", "description": f"turnproof {name}"},
        "vars": ["operation", "answer", "submissions", "slots", "segments", "runs"],
        "states": states,
    }


# --- the verb ---------------------------------------------------------------------------------------------------------


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = "example: turnproof vectors -o vectors --scope tiny && turnproof replay vectors/tiny.jsonl"
    parser.add_argument("-o", "--output", metavar="DIR", required=True, help="where to write; made if missing")
    parser.add_argument("--scope", choices=sorted(SCOPES), default="one", help="what is covered (default: %(default)s)")
    parser.add_argument("--limit", type=int, metavar="N", help="write at most N histories")
    parser.add_argument("--itf", type=int, default=100, metavar="N", help="as ITF, the first N (default: %(default)s)")


def run(args: argparse.Namespace) -> int:
    if (args.limit is not None and args.limit < 1) or args.itf < 0:
        raise UserError("--limit must be positive, --itf not negative")
    scope, directory = SCOPES[args.scope], Path(args.output)
    cases: list[Case] = []
    try:
        (directory / "itf").mkdir(parents=True, exist_ok=True)
        for case, walk in cases_of(scope, args.limit):
            cases.append(case)
            if len(cases) <= args.itf:
                text = json.dumps(itf_of(case.name, walk, scope.choices), ensure_ascii=False, separators=(",", ":"))
                (directory / "itf" / f"{case.name}.itf.json").write_text(text + "\n", encoding="utf-8")
        write_trace(directory / f"{scope.name}.jsonl", cases)
    except OSError as error:
        raise UserError(f"{error.filename}: {error.strerror}") from None
    steps = sum(len(case.steps) for case in cases)
    print(f"{directory / f'{scope.name}.jsonl'}: {len(cases)} histories, {steps} operations")
    return 0
