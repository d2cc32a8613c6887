"""The second built-in store: the model behind a lock, with the face of the first (seed 003).

It *is* the specification, so it cannot drift from it. This is the one module here that may import the model's rules:
``Store`` must reach the same answers without them, or comparing the two would prove nothing. Nothing survives the
process; for tests and for work that is temporary on purpose.
"""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable, Iterator
from functools import wraps
from types import TracebackType
from typing import Concatenate, Final, ParamSpec, Self, TypeVar, cast

from turnproof.impl.base import Clock, time_of, wall_clock
from turnproof.impl.checks import run_name
from turnproof.impl.store import Store
from turnproof.impl.views import Dump, DumpedRun
from turnproof.model import log
from turnproof.model.choices import STRICT, Choices
from turnproof.model.decision import Accept, Refuse
from turnproof.model.operations import ALPHABET
from turnproof.model.rows import AttemptMarker, Record, RunView, Segment
from turnproof.model.system import EMPTY, State, apply
from turnproof.model.vocabulary import InvalidArgument, RunNotFound, RunState, StorageError, error_of

__all__ = ["MemoryStore"]

P = ParamSpec("P")
T = TypeVar("T")

_REFUSED_AS_NONE: Final = frozenset(
    {
        "claim",
        "replace_turn_journal_attempt",
        "append",
        "append_step",
        "checkpoint",
        "restore",
        "set_leaf",
        "clear",
    }
)
"""Verbs that refuse with ``None``; the others refuse with ``False``."""


def _verb(verb: Callable[Concatenate[Store, P], T]) -> Callable[Concatenate[MemoryStore, P], T]:
    """The verb of that name, answered by the model."""
    signature = inspect.signature(verb)
    operation = ALPHABET[verb.__name__]

    @wraps(verb)
    def call(self: MemoryStore, /, *args: P.args, **kwargs: P.kwargs) -> T:
        bound = signature.bind(self, *args, **kwargs).arguments
        del bound["self"]
        after = bound.pop("after", 0)
        now = bound.pop("now", None)
        given = {name: tuple(value) if isinstance(value, list) else value for name, value in bound.items()}
        with self._lock:
            state = self._held()
            moment = time_of(self._clock, now)
            try:
                self._state, answer = apply(state, operation(now=moment, **given), self._choices)
            except (TypeError, AttributeError) as error:  # the model is total for arguments of the right types only
                raise InvalidArgument(f"{verb.__name__}: {error}") from None
        if isinstance(answer, Refuse):
            return cast(T, None if verb.__name__ in _REFUSED_AS_NONE else False)
        if not isinstance(answer, Accept):
            raise error_of(answer.code, answer.message)
        value = RunState(str(answer.value)) if verb.__name__ == "state" else answer.value
        if isinstance(value, tuple):
            value = [item for item in value if not isinstance(item, Record) or item.seq > after]
        return cast(T, value)

    return call


class MemoryStore:
    """The model as a store. ``choices`` may be laxer than the strict ones that ``Store`` keeps."""

    persisted: Final = False
    """Like ``Store.persisted``: nothing outlives the process."""

    def __init__(self, clock: Clock = wall_clock, choices: Choices = STRICT) -> None:
        self._clock = clock
        self._choices = choices
        self._state = EMPTY
        self._lock = threading.Lock()
        self._closed = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let everything go."""
        self._closed, self._state = True, EMPTY

    def settings(self) -> dict[str, str | int | bool]:
        """Nothing is durable here."""
        self._held()
        return {"journal_mode": "memory", "synchronous": 0}

    def stream(self, run_id: str, after: int = 0) -> Iterator[Record]:
        """Like ``Store.stream``."""
        yield from self.replay(run_id, after)

    def run_view(self, run_id: str) -> RunView:
        """Like ``Store.run_view``."""
        return log.run_view(self._run(run_id))

    def cleanup_due(self, run_id: str) -> bool:
        """Like ``Store.cleanup_due``."""
        return log.cleanup_due(self._run(run_id))

    def dump(self) -> Dump:
        """Like ``Store.dump``."""
        return dump_of(self._held())

    def _held(self) -> State:
        """Everything that is stored. Raises ``StorageError`` once it was closed."""
        if self._closed:
            raise StorageError("this store was closed, and what it held is gone")
        return self._state

    def _run(self, run_id: str) -> log.Run:
        run = self._held().runs.get(run_name("run_id", run_id))
        if run is None:
            raise RunNotFound(f"no run {run_id!r}")
        return run

    admit = _verb(Store.admit)
    get_submission = _verb(Store.get_submission)
    claim = _verb(Store.claim)
    mark_input_applied = _verb(Store.mark_input_applied)
    request_recovery = _verb(Store.request_recovery)
    requeue = _verb(Store.requeue)
    complete = _verb(Store.complete)
    fail = _verb(Store.fail)
    list_runnable = _verb(Store.list_runnable)
    list_running = _verb(Store.list_running)
    list_expired = _verb(Store.list_expired)
    has_unsettled = _verb(Store.has_unsettled)
    renew_leases = _verb(Store.renew_leases)
    insert_attempt_marker = _verb(Store.insert_attempt_marker)
    delete_attempt_marker = _verb(Store.delete_attempt_marker)
    list_attempt_markers = _verb(Store.list_attempt_markers)
    delete_session = _verb(Store.delete_session)
    list_pending_deletions = _verb(Store.list_pending_deletions)
    begin_turn_journal = _verb(Store.begin_turn_journal)
    update_turn_journal_phase = _verb(Store.update_turn_journal_phase)
    mark_stream_consumed = _verb(Store.mark_stream_consumed)
    commit_turn_journal = _verb(Store.commit_turn_journal)
    replace_turn_journal_attempt = _verb(Store.replace_turn_journal_attempt)
    get_turn_journal = _verb(Store.get_turn_journal)
    append_stream_segment = _verb(Store.append_stream_segment)
    get_stream_segments = _verb(Store.get_stream_segments)
    delete_stream_segments = _verb(Store.delete_stream_segments)
    append = _verb(Store.append)
    append_step = _verb(Store.append_step)
    checkpoint = _verb(Store.checkpoint)
    replay = _verb(Store.replay)
    state = _verb(Store.state)
    runs = _verb(Store.runs)
    position = _verb(Store.position)
    restore = _verb(Store.restore)
    inspect = _verb(Store.inspect)
    context = _verb(Store.context)
    set_leaf = _verb(Store.set_leaf)
    clear = _verb(Store.clear)
    recover = _verb(Store.recover)


def dump_of(state: State) -> Dump:
    """A state of the model as ``Store.dump`` would answer it."""
    return Dump(
        submissions=dict(state.submissions),
        attempts={submission_id: frozenset(owned) for submission_id, owned in state.former.items()},
        slots=dict(state.slots),
        segments={
            key: tuple(Segment(segment_index=index, body=body) for index, body in segments)
            for key, segments in state.segments.items()
        },
        markers=tuple(
            AttemptMarker(submission_id=one, attempt_id=two, created_at=at)
            for (one, two), at in sorted(state.markers.items())
        ),
        receipts=dict(state.receipts),
        deletions=tuple(sorted(state.deletions)),
        runs={run_id: DumpedRun(run.state, run.records) for run_id, run in state.runs.items()},
        last_sequence=state.last_sequence,
    )
