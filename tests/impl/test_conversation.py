"""Tree, leaf, repair and anchors (A1-A4, P1-P7, P9)."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
from impl_helpers import REQUEST, answers, asks, bytes_of, message, outcome, running

from turnproof.impl import Store
from turnproof.model.rows import Draft, Pending, Repair
from turnproof.model.vocabulary import ErrorCode


def test_a_torn_tail_is_cut_once(store: Store) -> None:
    store.append_step("run1", [message("e1"), asks("e2", "e1", "c1", "c2"), answers("e3", "e2", "c1")])
    store.append("run1", Draft(kind="extension_data", entry_id="x", parent_id="e3"))
    store.checkpoint_wal()
    before, position = bytes_of(store_directory(store)), store.position("run1")
    expected = store.inspect("run1")
    assert (expected.leaf, expected.path) == ("e1", ("e1",))
    assert expected.repair == Repair(dropped_entry_ids=("e2", "e3", "x"))
    assert bytes_of(store_directory(store)) == before and store.position("run1") == position
    assert store.restore("run1") == expected
    repair = store.replay("run1")[-1]
    assert (repair.seq, repair.kind, repair.parent_id) == (5, "repair", "e1")
    assert repair.payload == '{"dropped_entry_ids":["e2","e3","x"]}'
    after = store.dump()
    again = store.restore("run1")
    assert again is not None and again.path == ("e1",) and again.repair is None
    assert store.dump() == after


def store_directory(store: Store) -> Path:
    return Path(store.file).parent


def test_excluded_is_excluded_until_a_branch(store: Store) -> None:
    store.append_step("run1", [message("e1"), asks("e2", "e1", "c1")])
    store.restore("run1")
    store.append("run1", answers("e3", "e2", "c1"))
    assert store.inspect("run1").path == ("e1",)
    running(store)
    store.begin_turn_journal("s1", "a1", "run1", "dispatch", "o", "t")
    for leaf in ("e2", "e3", "nowhere"):
        update = partial(store.update_turn_journal_phase, "s1", "a1", "provider_started", stream_key="s1:t:a1")
        assert outcome(partial(update, checkpoint_leaf_id=leaf)) == ErrorCode.ENTRY_NOT_FOUND
    store.set_leaf("run1", "e3")
    assert store.inspect("run1").path == ("e1", "e2", "e3")
    assert store.update_turn_journal_phase(
        "s1", "a1", "provider_started", stream_key="s1:t:a1", checkpoint_leaf_id="e3"
    )


@pytest.mark.parametrize(
    "records",
    [
        [message("e1"), asks("e2", "e1", "c1"), message("e3", "e2")],
        [message("e1"), answers("e2", "e1", "c1")],
        [asks("e1", "", "c1"), answers("e2", "e1", "c1"), answers("e3", "e2", "c1")],
        [asks("e1", "", "c1"), asks("e2", "e1", "c1")],
        [message("e1", "", "user", {"type": "tool_call", "id": "c", "name": "f", "input": 1})],
    ],
)
def test_corruption_is_an_error_and_nothing_is_written(store: Store, records: list[Draft]) -> None:
    store.append_step("run1", records)
    before = store.dump()
    calls = (store.restore, store.inspect, store.context)
    assert {outcome(lambda c=call: c("run1")) for call in calls} == {ErrorCode.CORRUPT_CONVERSATION}
    assert store.dump() == before


def test_reused_call_ids_pair_inside_the_step(store: Store) -> None:
    store.append_step("run1", [asks("e1", "", "c"), answers("e2", "e1", "c"), asks("e3", "e2", "c")])
    assert store.inspect("run1").repair == Repair(dropped_entry_ids=("e3",))


def test_model_and_context_come_from_the_active_path(store: Store) -> None:
    model = '{"provider":"p","model":"m%d"}'
    store.append("run1", Draft(kind="model_change", entry_id="m1", payload=model % 1))
    store.append("run1", Draft(kind="model_change", entry_id="m2", parent_id="m1", payload=model % 2))
    store.set_leaf("run1", "m1")
    found = store.inspect("run1").model
    assert found is not None and found.model == "m1"
    store.clear("run1")
    assert store.inspect("run1").model is None and store.context("run1").entries == ()


def test_empty_payload_is_the_legacy_form(store: Store) -> None:
    store.append("run1", Draft(kind="message", entry_id="e1", role="user", text='a"\u2028\0'))
    assert store.inspect("run1").messages == ('{"role":"user","parts":[{"type":"text","text":"a\\"\u2028\\u0000"}]}',)


def _recorded(store: Store) -> None:
    running(store)
    store.append("run1", message("e1"))
    store.begin_turn_journal("s1", "a1", "run1", "dispatch", "o", "t")
    store.update_turn_journal_phase("s1", "a1", "provider_started", stream_key="s1:t:a1")
    assert store.update_turn_journal_phase(
        "s1", "a1", "tool_request_recorded", tool_request=REQUEST, checkpoint_leaf_id="e1"
    )


def test_a_step_that_the_journal_holds_is_pending(store: Store) -> None:
    _recorded(store)
    store.append("run1", asks("e2", "e1", "c1"))
    before = store.dump()
    restored = store.restore("run1")
    assert restored is not None and restored.path == ("e1", "e2") and restored.repair is None
    assert restored.pending == Pending(submission_id="s1", open_calls=("c1",))
    assert store.dump() == before
    store.append("run1", answers("e3", "e2", "c1"))
    assert store.inspect("run1").pending is None


def test_anchors(store: Store) -> None:
    _recorded(store)
    store.append_step("run1", [asks("e2", "e1", "c1"), answers("e3", "e2", "c1"), message("x", "")])
    store.append("run1", asks("e5", "e3", "c1"))
    before = store.dump()

    def commit(leaf: str) -> object:
        return outcome(lambda: store.commit_turn_journal("s1", "a1", leaf))

    assert commit("nowhere") == ErrorCode.ENTRY_NOT_FOUND
    assert {commit("e2"), commit("e5"), commit("x")} == {ErrorCode.ANCHOR_MISMATCH}
    assert store.dump() == before
    assert commit("e3") is True
    assert commit("e3") is False


def test_kept_folds_notice_a_run_that_began_anew(store: Store) -> None:
    running(store)
    store.append("run1", message("e1"))
    store.begin_turn_journal("s1", "a1", "run1", "dispatch", "o", "t")
    key = {"stream_key": "s1:t:a1"}
    assert store.update_turn_journal_phase("s1", "a1", "provider_started", **key, checkpoint_leaf_id="e1")
    store.complete("s1", "a1")
    store.delete_session("run1")
    running(store, "s2")
    store.append("run1", message("f1"))
    store.begin_turn_journal("s2", "a1", "run1", "dispatch", "o", "t")
    key = {"stream_key": "s2:t:a1"}
    wrong = outcome(
        lambda: store.update_turn_journal_phase("s2", "a1", "provider_started", **key, checkpoint_leaf_id="e1")
    )
    assert wrong == ErrorCode.ENTRY_NOT_FOUND
    assert store.update_turn_journal_phase("s2", "a1", "provider_started", **key, checkpoint_leaf_id="f1")


def test_a_long_path_needs_no_recursion(store: Store) -> None:
    store.append_step("run1", [message(f"e{i}", f"e{i - 1}" if i else "") for i in range(5000)])
    restored = store.restore("run1")
    assert restored is not None and len(restored.path) == 5000 == len(restored.messages)
