"""What a verb costs does not grow with what is stored: counted in steps of SQLite's virtual machine, not in time."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest
from impl_helpers import REQUEST, answers, asks, fence, message

from turnproof.impl import Store, open_store
from turnproof.model.rows import Draft


class Counter:
    """Counts the steps of every connection that it makes."""

    def __init__(self) -> None:
        self.steps = 0

    def __call__(self, uri: str) -> sqlite3.Connection:
        connection = sqlite3.connect(uri, uri=True, isolation_level=None, check_same_thread=False)

        def count() -> int:
            self.steps += 1
            return 0

        connection.set_progress_handler(count, 1)
        return connection


def _fill(store: Store, number: int) -> None:
    """As many submissions, slots, segments, markers and records as ``number``, of this session and of others."""
    for i in range(number):
        for session in ("run1", f"other{i}"):
            submission = f"{session}-{i}"
            store.admit(submission, session, "dispatch", "{}", 0)
            store.claim(submission, "a", "w", 9)
            store.begin_turn_journal(submission, "a", session, "dispatch", "o", "t")
            store.append_stream_segment(f"{submission}:t:a", 0, "x")
            store.insert_attempt_marker(submission, "a")
            store.complete(submission, "a")
    store.append_step("run1", [message(f"f{i}", f"f{i - 1}" if i else "") for i in range(number * 5)])
    store.append_step("run1", [Draft(kind="step", entry_id="n1") for i in range(number * 5)])


def _turn(store: Store, counter: Counter) -> dict[str, int]:
    """A whole turn; the steps of each verb."""
    spent: dict[str, int] = {}

    def call(verb: str, *args: object, **kwargs: object) -> None:
        before = counter.steps
        answer = getattr(store, verb)(*args, **kwargs)
        assert answer not in (False, None) or verb in ("insert_attempt_marker", "delete_attempt_marker"), verb
        spent[f"{verb} {len(spent)}"] = counter.steps - before

    call("admit", "s1", "run1", "dispatch", "{}", 0)
    call("list_runnable")
    call("claim", "s1", "a1", "w", 9)
    call("append", "run1", message("e1", "f0"), fence=fence())
    call("append", "run1", message("e1", "f0"), fence=fence())
    call("mark_input_applied", "s1", "a1")
    call("begin_turn_journal", "s1", "a1", "run1", "dispatch", "o", "t")
    call("insert_attempt_marker", "s1", "a1")
    call("update_turn_journal_phase", "s1", "a1", "provider_started", stream_key="s1:t:a1")
    call("append_stream_segment", "s1:t:a1", 0, "x")
    call("mark_stream_consumed", "s1", "a1", "s1:t:a1")
    call("get_stream_segments", "s1:t:a1")
    call("list_running")
    call("list_expired")
    call("renew_leases", "w", ["s1"])
    call("has_unsettled")
    call("replace_turn_journal_attempt", "s1", "a1", "a2")
    store.restore("run1")
    store.update_turn_journal_phase("s1", "a2", "tool_request_recorded", tool_request=REQUEST, checkpoint_leaf_id="e1")
    call("append_step", "run1", [asks("e2", "e1", "c1"), answers("e3", "e2", "c1")], fence=fence("a2"))
    call("checkpoint", "run1", "running")
    call("set_leaf", "run1", "e3")
    call("position", "run1")
    call("commit_turn_journal", "s1", "a2", "e3")
    call("get_turn_journal", "s1")
    call("complete", "s1", "a2")
    call("delete_attempt_marker", "s1", "a1")
    return spent


def test_a_turn_costs_the_same_in_a_large_store(tmp_path: Path) -> None:
    found = []
    for number in (2, 60):
        counter = Counter()
        with open_store(tmp_path / str(number), "relaxed", connect=counter) as store:
            _fill(store, number)
            found.append(_turn(store, counter))
    small, large = found
    grown = {verb: (small[verb], large[verb]) for verb in small if large[verb] > small[verb] * 1.2 + 20}
    assert grown == {}


def test_listing_runs_does_not_look_at_their_records(tmp_path: Path) -> None:
    counter = Counter()
    with open_store(tmp_path / "store", "relaxed", connect=counter) as store:
        store.append("run1", message("e0"))
        store.append("run2", message("e0"))
        store.runs()
        before = counter.steps
        store.runs()
        small = counter.steps - before
        store.append_step("run1", [message(f"f{i}") for i in range(500)])
        before = counter.steps
        assert store.runs() == ["run1", "run2"]
        assert counter.steps - before <= small + 20


@pytest.mark.parametrize("verb", ["replay", "inspect"])
def test_reading_a_run_does_not_look_at_others(tmp_path: Path, verb: str) -> None:
    counter = Counter()
    with open_store(tmp_path / "store", "relaxed", connect=counter) as store:
        store.append("run1", message("e1"))
        getattr(store, verb)("run1")
        before = counter.steps
        getattr(store, verb)("run1")
        small = counter.steps - before
        store.append_step("run2", [message(f"e{i}") for i in range(500)])
        before = counter.steps
        getattr(store, verb)("run1")
        assert counter.steps - before <= small + 20
