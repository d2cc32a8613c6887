"""The store and the model side by side: the same calls, the same answers, the same whole state after each (J11)."""

from __future__ import annotations

import inspect
import random
from pathlib import Path

import pytest
from impl_helpers import NOW, REQUEST, answers, asks, fence, message, outcome, running

from turnproof.impl import MemoryStore, Store, open_store
from turnproof.model.operations import ALPHABET
from turnproof.model.rows import Draft, Lease
from turnproof.model.vocabulary import ErrorCode


def test_it_has_the_same_face() -> None:
    for verb in [*ALPHABET, "run_view", "cleanup_due", "dump", "stream", "close", "settings"]:
        if hasattr(Store, verb):
            assert inspect.signature(getattr(MemoryStore, verb)) == inspect.signature(getattr(Store, verb))


def _draft(dice: random.Random) -> Draft:
    entry, parent, call = f"e{dice.randrange(6)}", dice.choice(["", "e0", "e1", "e2", "e3"]), dice.choice(["c1", "c2"])
    return dice.choice(
        [
            message(entry, parent),
            asks(entry, parent, *dice.choice([("c1",), ("c1", "c2")])),
            answers(entry, parent, call),
            Draft(kind="state", state=dice.choice(["running", "completed", "nonsense"])),
            Draft(kind="branch", parent_id=parent),
            Draft(kind="repair", parent_id=parent, payload=f'{{"dropped_entry_ids":["{entry}"]}}'),
            Draft(kind="compaction", entry_id=entry, parent_id=parent, payload='{"summary":"s","first_kept":"e1"}'),
            Draft(kind="model_change", entry_id=entry, parent_id=parent, payload='{"provider":"p","model":"m"}'),
        ]
    )


def _call(dice: random.Random) -> tuple[str, dict[str, object]]:
    submission, session, attempt = (dice.choice(pool) for pool in (["s1", "s2"], ["r1", "r2"], ["a1", "a2", "a3"]))
    own = {"submission_id": submission, "attempt_id": attempt}
    run = {"run_id": session, "fence": dice.choice([None, None, fence(attempt, submission)])}
    leaf = dice.choice(["e0", "e1", "e2", "e3", ""])
    key = f"{submission}:t:{attempt}"
    calls: list[tuple[str, dict[str, object]]] = [
        ("admit", {"submission_id": submission, "session_key": session, "kind": "dispatch", "payload": "{}",
                   "accepted_at": 1}),
        ("claim", {**own, "owner_id": "w", "lease_expires_at": dice.randrange(5)}),
        ("mark_input_applied", {**own, "max_retry": dice.choice([None, 3])}),
        ("request_recovery", own), ("requeue", own), ("complete", own), ("fail", {**own, "error": "x"}),
        ("renew_leases", {"owner_id": "w", "submission_ids": ["s1", "s2"], "lease_ms": 1}),
        ("insert_attempt_marker", own), ("delete_attempt_marker", own),
        ("delete_session", {"session_key": session}),
        ("begin_turn_journal", {**own, "session_key": session, "kind": "dispatch", "operation_id": "o",
                                "turn_id": "t"}),
        ("update_turn_journal_phase", {**own, "phase": "provider_started", "stream_key": key,
                                       "checkpoint_leaf_id": dice.choice([None, leaf])}),
        ("update_turn_journal_phase", {**own, "phase": "tool_request_recorded", "tool_request": REQUEST,
                                       "checkpoint_leaf_id": leaf}),
        ("mark_stream_consumed", {**own, "stream_key": key}),
        ("commit_turn_journal", {**own, "committed_leaf_id": leaf}),
        ("replace_turn_journal_attempt", {**own, "next_attempt_id": dice.choice(["a1", "a2", "a3", "a4"]),
                                          "lease": dice.choice([None, Lease(owner_id="v", lease_expires_at=7)]),
                                          "observed_lease_expires_at": dice.choice([None, 3])}),
        ("append_stream_segment", {"stream_key": key, "segment_index": dice.randrange(2), "body": attempt}),
        ("delete_stream_segments", {"stream_key": key}),
        *[("append", {**run, "record": _draft(dice), "expected_position": dice.choice([None, None, 2])})] * 6,
        *[("append_step", {**run, "records": [_draft(dice) for _ in range(dice.randrange(3))]})] * 3,
        ("checkpoint", {**run, "state": "waiting"}), ("restore", run), ("clear", run),
        ("set_leaf", {**run, "entry_id": leaf}),
        ("inspect", {"run_id": session}), ("context", {"run_id": session}), ("replay", {"run_id": session, "after": 1}),
        ("state", {"run_id": session}), ("runs", {"state": "waiting"}), ("position", {"run_id": session}),
        ("list_runnable", {}), ("list_running", {}), ("list_expired", {}), ("has_unsettled", {}),
        ("run_view", {"run_id": session}), ("cleanup_due", {"run_id": session}),
    ]  # fmt: skip
    return dice.choice(calls)


@pytest.mark.parametrize("seed", range(8))
def test_store_and_model_agree(directory: Path, seed: int) -> None:
    dice, clock = random.Random(seed), [0]
    memory = MemoryStore(lambda: clock[0])
    with open_store(directory, "relaxed", clock=lambda: clock[0]) as store:
        for _ in range(400):
            clock[0] += dice.randrange(3)
            verb, arguments = _call(dice)
            ours = outcome(lambda v=verb, a=arguments: getattr(store, v)(**a))
            theirs = outcome(lambda v=verb, a=arguments: getattr(memory, v)(**a))
            assert ours == theirs, (verb, arguments)
            assert store.dump() == memory.dump(), (verb, arguments)


def _both(directory: Path) -> tuple[Store, MemoryStore]:
    return open_store(directory, clock=lambda: NOW), MemoryStore(lambda: NOW)


def test_a_state_that_is_empty_means_every_run(directory: Path) -> None:
    for store in _both(directory):
        with store:
            store.checkpoint("run1", "running")
            store.append("run2", message("e1"))
            store.checkpoint("bonnie.x", "failed")
            assert store.runs("") == store.runs() == ["bonnie.x", "run1", "run2"]
            assert store.runs("", include_reserved=False) == ["run1", "run2"]
            assert store.runs("pending") == ["run2"]


def test_a_sum_beyond_the_integers_is_an_error_and_writes_nothing(directory: Path) -> None:
    last = 2**53
    for store in _both(directory):
        with store:
            running(store)
            store.admit("s2", "run2", "dispatch", "{}", NOW)
            before = store.dump()
            for call in (
                lambda store=store: store.renew_leases("w1", ["s1"], last, now=1),
                lambda store=store: store.renew_leases("w1", ["s1"], now=last - 29_999),
                lambda store=store: store.renew_leases("w1", ["s1"], -1, now=-last),
                lambda store=store: store.renew_leases("nobody", [], last, now=1),
                lambda store=store: store.claim("s2", "a2", "w1", 9, now=last - 3_599_999),
                lambda store=store: store.claim("nothing", "a2", "w1", 9, now=last),
            ):
                assert outcome(call) == ErrorCode.INVALID_ARGUMENT
                assert store.dump() == before
            assert store.renew_leases("w1", ["s1"], last - NOW, now=NOW) == ["s1"]
            claimed = store.claim("s2", "a2", "w1", 9, now=last - 3_600_000)
            assert claimed is not None and claimed.timeout_at == last


def test_only_one_of_them_outlives_the_process(directory: Path) -> None:
    store, memory = _both(directory)
    assert (store.persisted, memory.persisted) == (True, False)
    store.close()


def test_a_closed_store_answers_nothing(directory: Path) -> None:
    dice, own = random.Random(0), {"submission_id": "s1", "attempt_id": "a1"}
    calls: list[tuple[str, dict[str, object]]] = [
        *((verb, {}) for verb in ("dump", "settings", "list_pending_deletions", "list_attempt_markers")),
        *((verb, {"run_id": "run1"}) for verb in ("run_view", "cleanup_due", "position", "inspect")),
        *(("update_turn_journal_phase", {**own, "phase": phase}) for phase in ("committed", "before_provider")),
        ("append_step", {"run_id": "run1", "records": []}),
        ("renew_leases", {"owner_id": "w1", "submission_ids": []}),
        ("recover", {"submission_id": "s1"}),
    ]
    for store in _both(directory):
        store.close()
        for verb, arguments in calls:
            found = outcome(lambda s=store, v=verb, a=arguments: getattr(s, v)(**a))
            assert found == ErrorCode.STORAGE_ERROR, verb
        for verb, arguments in (_call(dice) for _ in range(300)):
            found = outcome(lambda s=store, v=verb, a=arguments: getattr(s, v)(**a))
            assert isinstance(found, ErrorCode), verb


@pytest.mark.parametrize("answer", [2**60, True, 1.5, None, "x"])
def test_what_its_clock_answers_is_judged_too(answer: object) -> None:
    with MemoryStore(lambda: answer) as store:
        assert outcome(lambda: store.append("run1", message("e1"))) == ErrorCode.INVALID_ARGUMENT
        assert store.dump().runs == {}


def test_nothing_outlives_it() -> None:
    with MemoryStore(lambda: NOW) as store:
        assert store.append("run1", message("e1")) == 1
        assert outcome(lambda: store.append("run1", None)) == ErrorCode.INVALID_ARGUMENT
    assert outcome(lambda: store.position("run1")) == ErrorCode.STORAGE_ERROR
