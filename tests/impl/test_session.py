"""The handle that minds ids and parents (R16), over our store, over the model, and over a store that offers little."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import pytest
from impl_helpers import NOW, REQUEST, answers, asks, fence, message, outcome, running

from turnproof.impl import MemoryStore, Session, Store, open_store
from turnproof.impl.session import Appended, StepJournal
from turnproof.model.rows import Draft, Fence, Record, Repair
from turnproof.model.vocabulary import ErrorCode

USER = message("")
ASKS = asks("", "", "c1")
ANSWERS = answers("", "", "c1")


class Bare:
    """A journal with single appends and replay, and nothing else; it can die between two appends."""

    def __init__(self, store: Store | MemoryStore) -> None:
        self._store = store
        self.left = 1_000_000

    def append(
        self, run_id: str, record: Draft, *, fence: Fence | None = None, expected_position: int | None = None
    ) -> int | None:
        self.left -= 1
        if self.left < 0:
            raise ConnectionError("died")
        return self._store.append(run_id, record, fence=fence, expected_position=expected_position)

    def replay(self, run_id: str, after: int = 0) -> list[Record]:
        return self._store.replay(run_id, after)


@pytest.fixture(params=["store", "memory", "bare"])
def journal(request: pytest.FixtureRequest, directory: Path) -> Iterator[Store | MemoryStore | Bare]:
    if request.param == "memory":
        yield MemoryStore(lambda: NOW)
        return
    with open_store(directory, clock=lambda: NOW) as store:
        yield store if request.param == "store" else Bare(store)


def minter(prefix: str = "m") -> Callable[[], str]:
    numbers = count(1)
    return lambda: f"{prefix}{next(numbers)}"


def test_a_conversation(journal: Store | MemoryStore | Bare) -> None:
    session = Session(journal, "run1", mint=minter())
    assert session.leaf == ""
    assert outcome(session.context) == outcome(session.restore) == outcome(session.clear) == ErrorCode.RUN_NOT_FOUND
    assert session.append(USER) == Appended(1, "m1")
    assert session.append_step([ASKS, Draft(kind="step"), ANSWERS]) == [
        Appended(2, "m2"), Appended(3, ""), Appended(4, "m3"),
    ]  # fmt: skip
    assert session.append_step([]) == []
    assert (session.leaf, session.context().entries) == ("m3", ("m1", "m2", "m3"))
    assert session.branch("m1") == 5
    assert session.append(USER) == Appended(6, "m4")
    assert session.context().entries == ("m1", "m4")
    assert outcome(lambda: session.branch("nowhere")) == ErrorCode.ENTRY_NOT_FOUND
    assert session.clear() == 7
    assert session.append(message("own")) == Appended(8, "own")
    restored = session.restore()
    assert restored is not None and (restored.path, restored.repair) == (("own",), None)
    assert restored.messages == (message("own").payload,)
    assert session.position == 8


def test_a_step_is_folded_as_it_goes(journal: Store | MemoryStore | Bare) -> None:
    session = Session(journal, "run1", mint=minter())
    session.append_step([USER, USER])
    assert session.append_step([USER, Draft(kind="clear", parent_id="m1"), USER, USER]) is not None
    assert session.context().entries == ("m4", "m5")
    assert session.append_step([Draft(kind="branch", parent_id="m1"), USER, Draft(kind="step"), USER]) is not None
    assert session.context().entries == ("m1", "m6", "m7")
    cut = Draft(kind="repair", parent_id="m1", payload='{"dropped_entry_ids":["m6","m7"]}')
    assert session.append_step([cut, USER]) is not None
    assert session.context().entries == ("m1", "m8")
    parents = {record.entry_id: record.parent_id for record in journal.replay("run1") if record.entry_id}
    assert parents == {
        "m1": "", "m2": "m1", "m3": "m2", "m4": "", "m5": "m4", "m6": "m1", "m7": "m6", "m8": "m1",
    }  # fmt: skip


def test_the_fence_answers_before_an_unknown_run_does(directory: Path) -> None:
    for store in (open_store(directory, clock=lambda: NOW), MemoryStore(lambda: NOW)):
        with store:
            running(store)
            before = store.dump()
            stale, holder = (Session(store, "run1", fence=fence(attempt)) for attempt in ("a0", "a1"))
            assert stale.clear() is stale.branch("") is stale.branch("nowhere") is stale.restore() is None
            for call in (holder.clear, lambda holder=holder: holder.branch(""), holder.restore):
                assert outcome(call) == ErrorCode.RUN_NOT_FOUND
            assert store.dump() == before


def test_two_sessions_share_a_run(journal: Store | MemoryStore | Bare) -> None:
    one, two = Session(journal, "run1", mint=minter("a")), Session(journal, "run1", mint=minter("b"))
    for _ in range(3):
        one.append(USER)
        two.append(USER)
    assert one.context().entries == ("a1", "b1", "a2", "b2", "a3", "b3") == two.context().entries


def test_a_retry_after_a_lost_answer_is_a_replay(journal: Store | MemoryStore | Bare) -> None:
    session = Session(journal, "run1", mint=minter())
    step = [message("e1"), asks("e2", "", "c1"), answers("e3", "", "c1")]
    first = session.append_step(step)
    if isinstance(journal, StepJournal):
        assert session.append_step(step) == Session(journal, "run1").append_step(step) == first
        assert session.position == 3


def test_a_superseded_attempt_gets_none(store: Store) -> None:
    running(store)
    for journal in (store, Bare(store)):
        session = Session(journal, "run1", fence=fence(), mint=minter(f"{type(journal).__name__}-"))
        assert session.append(USER) is not None
    store.replace_turn_journal_attempt("s1", "a1", "a2")
    before = store.dump()
    for journal in (store, Bare(store)):
        session = Session(journal, "run1", fence=fence(), mint=minter())
        assert session.append(USER) is None
        assert session.append_step([ASKS, ANSWERS]) is None
        assert session.branch("") is None and session.clear() is None
    assert store.dump() == before


def test_without_steps_a_crash_leaves_a_tail_that_is_repaired(store: Store) -> None:
    bare = Bare(store)
    session = Session(bare, "run1", mint=minter())
    session.append(USER)
    bare.left = 1
    with pytest.raises(ConnectionError):
        session.append_step([ASKS, ANSWERS])
    bare.left = 10
    assert session.context().entries == ("m1",)
    restored = Session(bare, "run1").restore()
    assert restored is not None and restored.repair == Repair(dropped_entry_ids=("m2",))
    assert store.inspect("run1").repair is None
    assert session.append(USER) is not None
    assert session.context().entries == ("m1", "m4")


def test_a_session_notices_that_its_run_began_anew(store: Store) -> None:
    session = Session(store, "run1", mint=minter())
    session.append(USER)
    session.append(USER)
    store.delete_session("run1")
    assert session.leaf == ""
    store.append_step("run1", [message("x"), message("y", "x"), message("z", "y")])
    assert session.leaf == "z"


def test_a_step_that_the_journal_holds_stays_in_the_context(store: Store) -> None:
    running(store)
    session = Session(store, "run1", fence=fence(), mint=minter())
    session.append(USER)
    store.begin_turn_journal("s1", "a1", "run1", "dispatch", "o", "t")
    store.update_turn_journal_phase("s1", "a1", "provider_started", stream_key="s1:t:a1")
    assert store.update_turn_journal_phase(
        "s1", "a1", "tool_request_recorded", tool_request=REQUEST, checkpoint_leaf_id="m1"
    )
    session.append(ASKS)
    assert session.context().entries == ("m1", "m2")


def test_default_ids_are_unique(store: Store) -> None:
    session = Session(store, "run1")
    ids = {done.entry_id for _ in range(20) if (done := session.append(USER)) is not None}
    assert len(ids) == 20 and all(len(entry_id) == 32 for entry_id in ids)
