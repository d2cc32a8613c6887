"""The same verbs, awaitable: each call runs in a thread, so the event loop never waits for a disk.

A call that was handed over is carried out whatever becomes of the caller (R13): cancelling the task that awaits it
neither stops nor undoes the write. It only means that nobody hears the answer. ``aclose`` waits for all of them.

The verbs are not written down again: ``_off`` turns a method of ``Store`` into its awaitable twin with the same
arguments, as far as types can see too.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial, wraps
from itertools import islice
from types import TracebackType
from typing import Concatenate, Final, ParamSpec, Self, TypeVar

from turnproof.impl.store import Store, open_store
from turnproof.model.rows import Record
from turnproof.model.vocabulary import StorageError

__all__ = ["AsyncStore", "open_async_store"]

P = ParamSpec("P")
T = TypeVar("T")

_THREADS: Final = 8
_CHUNK: Final = 500


def _off(verb: Callable[Concatenate[Store, P], T]) -> Callable[Concatenate[AsyncStore, P], Awaitable[T]]:
    """``verb`` off the event loop."""

    @wraps(verb)
    async def call(self: AsyncStore, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self._hand_over(partial(verb, self.store, *args, **kwargs))

    return call


class AsyncStore:
    """A store for asyncio; ``store`` is the one beneath, which stays usable from threads."""

    def __init__(self, store: Store) -> None:
        self.store: Final = store
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="turnproof")

    @property
    def persisted(self) -> bool:
        """Like ``Store.persisted``."""
        return self.store.persisted

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Wait for every call that was handed over, then close."""
        await asyncio.to_thread(self._threads.shutdown)
        await asyncio.to_thread(self.store.close)

    async def _hand_over(self, work: Callable[[], T]) -> T:
        """Run ``work`` in a thread. Cancelling the caller lets it finish (R13)."""
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[T] = loop.create_future()

        def deliver(done: Future[T]) -> None:
            if answer.done():
                return  # the caller was cancelled
            error = done.exception()
            if error is None:
                answer.set_result(done.result())
            else:
                answer.set_exception(error)

        def wake(done: Future[T]) -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(deliver, done)

        try:
            handed = self._threads.submit(work)
        except RuntimeError as error:
            raise StorageError(f"the call was not handed over: {error}; a store that was closed stays so") from None
        handed.add_done_callback(wake)
        return await answer

    async def stream(self, run_id: str, after: int = 0) -> AsyncIterator[Record]:
        """Like ``Store.stream``."""
        records = self.store.stream(run_id, after)
        while chunk := await self._hand_over(lambda: list(islice(records, _CHUNK))):
            for record in chunk:
                yield record

    admit = _off(Store.admit)
    get_submission = _off(Store.get_submission)
    claim = _off(Store.claim)
    mark_input_applied = _off(Store.mark_input_applied)
    request_recovery = _off(Store.request_recovery)
    requeue = _off(Store.requeue)
    complete = _off(Store.complete)
    fail = _off(Store.fail)
    list_runnable = _off(Store.list_runnable)
    list_running = _off(Store.list_running)
    list_expired = _off(Store.list_expired)
    has_unsettled = _off(Store.has_unsettled)
    renew_leases = _off(Store.renew_leases)
    insert_attempt_marker = _off(Store.insert_attempt_marker)
    delete_attempt_marker = _off(Store.delete_attempt_marker)
    list_attempt_markers = _off(Store.list_attempt_markers)
    delete_session = _off(Store.delete_session)
    list_pending_deletions = _off(Store.list_pending_deletions)
    begin_turn_journal = _off(Store.begin_turn_journal)
    update_turn_journal_phase = _off(Store.update_turn_journal_phase)
    mark_stream_consumed = _off(Store.mark_stream_consumed)
    commit_turn_journal = _off(Store.commit_turn_journal)
    replace_turn_journal_attempt = _off(Store.replace_turn_journal_attempt)
    get_turn_journal = _off(Store.get_turn_journal)
    append_stream_segment = _off(Store.append_stream_segment)
    get_stream_segments = _off(Store.get_stream_segments)
    delete_stream_segments = _off(Store.delete_stream_segments)
    append = _off(Store.append)
    append_step = _off(Store.append_step)
    checkpoint = _off(Store.checkpoint)
    replay = _off(Store.replay)
    state = _off(Store.state)
    runs = _off(Store.runs)
    position = _off(Store.position)
    restore = _off(Store.restore)
    inspect = _off(Store.inspect)
    context = _off(Store.context)
    set_leaf = _off(Store.set_leaf)
    clear = _off(Store.clear)
    recover = _off(Store.recover)
    run_view = _off(Store.run_view)
    cleanup_due = _off(Store.cleanup_due)
    dump = _off(Store.dump)
    settings = _off(Store.settings)
    backup = _off(Store.backup)
    checkpoint_wal = _off(Store.checkpoint_wal)


def _opener(opener: Callable[P, Store]) -> Callable[P, Awaitable[AsyncStore]]:
    @wraps(opener)
    async def call(*args: P.args, **kwargs: P.kwargs) -> AsyncStore:
        return AsyncStore(await asyncio.to_thread(opener, *args, **kwargs))

    return call


open_async_store = _opener(open_store)
"""``open_store`` with the same arguments, off the event loop."""
