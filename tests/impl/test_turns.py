"""The turn layer as stories: whole states after each step, and refusals that change nothing (L, J, T, S)."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from attrs import evolve
from impl_helpers import NOW, REQUEST, answers, asks, fence, message, outcome, running

from turnproof.impl import Store
from turnproof.model.rows import AttemptMarker, Lease, Receipt, Recovery, Segment, Slot, Submission
from turnproof.model.vocabulary import ErrorCode, Phase, Status, SubmissionKind

HOUR = 3_600_000


def test_a_turn_with_one_tool(store: Store) -> None:
    row = Submission(
        submission_id="s1", session_key="run1", kind=SubmissionKind.DISPATCH, payload='{"text":"go"}',
        status=Status.QUEUED, sequence=1, accepted_at=7,
    )  # fmt: skip
    admission = store.admit("s1", "run1", "dispatch", '{"text":"go"}', 7)
    assert (admission.kind, admission.submission) == ("submission", row)
    row = evolve(
        row, status=Status.RUNNING, attempt_id="a1", owner_id="w1", lease_expires_at=31_001, started_at=NOW,
        attempt_count=1, timeout_at=NOW + HOUR,
    )  # fmt: skip
    assert store.claim("s1", "a1", "w1", 31_001) == row
    assert store.append("run1", message("e1"), fence=fence()) == 1
    assert store.mark_input_applied("s1", "a1", max_retry=3, timeout_at=9)
    row = evolve(row, input_applied_at=NOW, max_retry=3, timeout_at=9)
    assert store.mark_input_applied("s1", "a1", max_retry=4, timeout_at=10, now=5)
    assert store.get_submission("s1") == row
    assert store.begin_turn_journal("s1", "a1", "run1", "dispatch", "op1", "t1")
    slot = Slot(
        submission_id="s1", session_key="run1", kind=SubmissionKind.DISPATCH, attempt_id="a1", operation_id="op1",
        turn_id="t1", phase=Phase.BEFORE_PROVIDER, revision=1, created_at=NOW, updated_at=NOW,
    )  # fmt: skip
    assert store.get_turn_journal("s1") == slot
    assert store.update_turn_journal_phase("s1", "a1", "provider_started", stream_key="s1:t1:a1", now=2000)
    slot = evolve(slot, phase=Phase.PROVIDER_STARTED, stream_key="s1:t1:a1", updated_at=2000)
    assert store.append_stream_segment("s1:t1:a1", 0, "The")
    assert store.mark_stream_consumed("s1", "a1", "s1:t1:a1", now=2001)
    slot = evolve(slot, stream_consumed_at=2001, updated_at=2001)
    assert store.update_turn_journal_phase(
        "s1", "a1", "tool_request_recorded", tool_request=REQUEST, checkpoint_leaf_id="e1", now=2002
    )
    slot = evolve(
        slot, phase=Phase.TOOL_REQUEST_RECORDED, tool_request=REQUEST, checkpoint_leaf_id="e1", updated_at=2002
    )
    assert store.get_turn_journal("s1") == slot
    assert store.append_step("run1", [asks("e2", "e1", "c1"), answers("e3", "e2", "c1")], fence=fence()) == [2, 3]
    assert store.commit_turn_journal("s1", "a1", "e3", now=2003)
    slot = evolve(slot, phase=Phase.COMMITTED, committed_leaf_id="e3", updated_at=2003)
    assert store.complete("s1", "a1", now=2004)
    row = evolve(row, status=Status.SETTLED, settled_at=2004)
    dump = store.dump()
    assert dump.submissions == {"s1": row}
    assert dump.slots == {"s1": slot}
    assert dump.attempts == {"s1": {"a1"}}
    assert dump.segments == {"s1:t1:a1": (Segment(segment_index=0, body="The"),)}
    assert (dump.markers, dump.receipts, dump.deletions, dump.last_sequence) == ((), {}, (), 1)
    assert [record.seq for record in dump.runs["run1"].records] == [1, 2, 3]


STALE: list[Callable[[Store], object]] = [
    lambda s: s.begin_turn_journal("s1", "a1", "run1", "dispatch", "op", "t9"),
    lambda s: s.update_turn_journal_phase(
        "s1", "a1", "tool_request_recorded", tool_request=REQUEST, checkpoint_leaf_id="e1"
    ),
    lambda s: s.mark_stream_consumed("s1", "a1", "s1:t1:a1"),
    lambda s: s.commit_turn_journal("s1", "a1", "e1"),
    lambda s: s.mark_input_applied("s1", "a1"),
    lambda s: s.request_recovery("s1", "a1"),
    lambda s: s.requeue("s1", "a1"),
    lambda s: s.complete("s1", "a1"),
    lambda s: s.fail("s1", "a1", "boom"),
    lambda s: s.replace_turn_journal_attempt("s1", "a1", "a3"),
    lambda s: s.append("run1", message("e9", "e1"), fence=fence()),
    lambda s: s.append_step("run1", [], fence=fence()),
    lambda s: s.append_step("run1", [message("e9", "e1")], fence=fence()),
    lambda s: s.checkpoint("run1", "failed", fence=fence()),
    lambda s: s.set_leaf("run1", "", fence=fence()),
    lambda s: s.clear("run1", fence=fence()),
    lambda s: s.restore("run1", fence=fence()),
    lambda s: s.append("run2", message("e9"), fence=fence("a2")),
]


@pytest.fixture
def taken_over(store: Store) -> Store:
    running(store)
    store.append("run1", message("e1"))
    store.begin_turn_journal("s1", "a1", "run1", "dispatch", "op1", "t1")
    store.update_turn_journal_phase("s1", "a1", "provider_started", stream_key="s1:t1:a1")
    assert store.request_recovery("s1", "a1")
    taken = store.replace_turn_journal_attempt(
        "s1", "a1", "a2", lease=Lease(owner_id="w2", lease_expires_at=99), observed_lease_expires_at=31_000, now=4000
    )
    assert taken is not None
    assert (taken.attempt_id, taken.attempt_count, taken.owner_id, taken.lease_expires_at) == ("a2", 2, "w2", 99)
    assert (taken.started_at, taken.recovery_requested_at) == (4000, None)
    return store


@pytest.mark.parametrize("verb", range(len(STALE)))
def test_a_superseded_attempt_changes_nothing(taken_over: Store, verb: int) -> None:
    before = taken_over.dump()
    assert STALE[verb](taken_over) in (False, None)
    assert taken_over.dump() == before


def test_transfer_carries_the_slot(taken_over: Store) -> None:
    slot = taken_over.get_turn_journal("s1")
    assert slot is not None
    assert (slot.attempt_id, slot.phase, slot.stream_key) == ("a2", Phase.PROVIDER_STARTED, "s1:t1:a1")
    assert (slot.revision, slot.updated_at) == (1, 4000)
    before = taken_over.dump()
    for reused in ("a1", "a2"):
        assert outcome(lambda n=reused: taken_over.replace_turn_journal_attempt("s1", "a2", n)) == "attempt_reused"
    assert taken_over.replace_turn_journal_attempt("s1", "a2", "a3", observed_lease_expires_at=98) is None
    assert taken_over.dump() == before
    assert taken_over.requeue("s1", "a2") is False  # the slot counts, and it is beyond before_provider


CALL = {"type": "tool_call", "id": "c1", "name": "f", "input": {}}
RESULT = {"type": "tool_result", "call_id": "c1", "output": 1, "is_error": False}
TEXT = {"type": "text", "text": "done"}


@pytest.mark.parametrize("parts", [(TEXT,), (TEXT, CALL), (TEXT, RESULT), (CALL,), (RESULT,)])
@pytest.mark.parametrize("role", ["assistant", "user", "tool"])
def test_only_a_text_answer_stands(store: Store, role: str, parts: tuple[dict[str, object], ...]) -> None:
    """Whatever else has the id of the turn's answer could never be committed (A4)."""
    running(store)
    store.append("run1", message("input:s1"))
    store.mark_input_applied("s1", "a1", max_retry=1)
    store.begin_turn_journal("s1", "a1", "run1", "dispatch", "op1", "t1")
    started = {"stream_key": "s1:t1:a1", "checkpoint_leaf_id": "input:s1"}
    store.update_turn_journal_phase("s1", "a1", "provider_started", **started)
    store.append("run1", message("turn:s1:t1:assistant", "input:s1", role, *parts))
    before = store.dump()
    stands = (role, parts) == ("assistant", (TEXT,))
    assert store.recover("s1") == Recovery(decision="commit_stored" if stands else "redrive")
    assert store.recover("s1", now=NOW + HOUR) == Recovery(decision="commit_stored" if stands else "give_up")
    assert store.dump() == before


def test_requeue_then_claim_by_a_former_attempt(store: Store) -> None:
    running(store)
    assert store.requeue("s1", "a1")
    row = store.get_submission("s1")
    assert row is not None
    assert (row.status, row.attempt_id, row.owner_id, row.lease_expires_at) == (Status.QUEUED, None, None, 0)
    assert (row.attempt_count, row.timeout_at, row.started_at) == (1, NOW + HOUR, None)
    before = store.dump()
    assert outcome(lambda: store.claim("s1", "a1", "w", 9)) == ErrorCode.ATTEMPT_REUSED
    assert store.dump() == before
    assert store.claim("s1", "a2", "w", 9) is not None


def test_queue_order_and_leases(store: Store) -> None:
    for submission, session in (("s1", "run1"), ("s2", "run1"), ("s3", "run2")):
        store.admit(submission, session, "direct", "{}", NOW)
    assert [row.submission_id for row in store.list_runnable()] == ["s1", "s3"]
    assert store.claim("s2", "x", "w", 9) is None
    store.claim("s1", "a1", "w", 2000)
    store.claim("s3", "b1", "w", 0)
    assert [row.submission_id for row in store.list_running()] == ["s1", "s3"]
    assert store.list_expired(now=2000) == []
    assert [row.submission_id for row in store.list_expired(now=2001)] == ["s1"]
    assert store.renew_leases("w", ["s3", "s2", "s1", "s1"], now=2001) == ["s3", "s1", "s1"]
    assert store.renew_leases("v", ["s1"]) == []
    assert store.renew_leases("w", ["s1"], 1, now=0) == ["s1"]  # a lease is never shortened
    assert {row.lease_expires_at for row in store.list_running()} == {32_001}
    store.complete("s1", "a1")
    store.fail("s3", "b1", "boom")
    assert store.has_unsettled() and [row.submission_id for row in store.list_runnable()] == ["s2"]
    assert store.complete("s3", "b1") is False


def test_deletion_leaves_receipts_only(taken_over: Store) -> None:
    store = taken_over
    store.insert_attempt_marker("s1", "a1", now=3)
    store.insert_attempt_marker("s1", "a1", now=9)
    assert store.list_attempt_markers() == [AttemptMarker(submission_id="s1", attempt_id="a1", created_at=3)]
    for key in ("s1:t1:a1", "s1:t0:a1", "s1", "s1:x", "s10:t1:a1"):
        store.append_stream_segment(key, 0, "x")
    before = store.dump()
    assert outcome(lambda: store.delete_session("run1")) == ErrorCode.SESSION_BUSY
    assert store.dump() == before
    store.complete("s1", "a2")
    store.delete_session("run1")
    left = store.dump()
    assert (left.submissions, left.slots, left.attempts, left.runs, left.markers, left.deletions) == (
        {}, {}, {}, {}, (), (),
    )  # fmt: skip
    assert left.receipts == {"s1": NOW}
    assert sorted(left.segments) == ["s1", "s10:t1:a1", "s1:x"]
    # nothing written late brings it back
    assert store.append_stream_segment("s1:t1:a1", 0, "late") is False
    store.insert_attempt_marker("s1", "a2")
    assert store.append("run1", message("e9"), fence=fence("a2")) is None
    assert store.begin_turn_journal("s1", "a2", "run1", "dispatch", "o", "t") is False
    assert store.admit("s1", "run1", "dispatch", "{}", 5).receipt == Receipt(submission_id="s1", accepted_at=NOW)
    assert store.dump() == left
    again = store.admit("s2", "run1", "dispatch", "{}", 5).submission
    assert again is not None and again.sequence == 2


def test_deletion_is_finished_by_a_repeated_call(taken_over: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    from turnproof.impl import deletion

    store = taken_over
    store.complete("s1", "a2")
    for unit in ("_remove_transcript", "_finish"):
        with monkeypatch.context() as patch:
            patch.setattr(deletion, unit, lambda *_: 1 / 0)
            with pytest.raises(ZeroDivisionError):
                store.delete_session("run1")
        assert store.list_pending_deletions() == ["run1"]
        assert outcome(lambda: store.admit("s2", "run1", "dispatch", "{}", 5)) == ErrorCode.SESSION_DELETING
        assert outcome(lambda: store.admit("s2", "run2", "dispatch", "{}", 5)) != ErrorCode.SESSION_DELETING
        assert store.get_submission("s1") is not None
        assert (store.runs() == []) == (unit == "_finish")
    store.delete_session("run1")
    assert store.list_pending_deletions() == [] and store.get_submission("s1") is None


MALFORMED: list[tuple[Callable[[Store], object], str]] = [
    (lambda s: s.admit("\ud800", "run1", "dispatch", "{}", 1), "invalid_argument"),
    (lambda s: s.admit("s9", ".run", "dispatch", "{}", 1), "invalid_run_id"),
    (lambda s: s.admit("s9", "run1", "other", "{}", 1), "invalid_argument"),
    (lambda s: s.admit("s9", "run1", "dispatch", "{", 1), "invalid_argument"),
    (lambda s: s.admit("s9", "run1", "dispatch", "NaN", 1), "invalid_argument"),
    (lambda s: s.admit("s9", "run1", "dispatch", "{}", True), "invalid_argument"),
    (lambda s: s.admit("s9", "run1", "dispatch", "{}", 2**53 + 1), "invalid_argument"),
    (lambda s: s.claim("s1", "a9", "\ud800", 1), "invalid_argument"),
    (lambda s: s.begin_turn_journal("s1", "a1", "run2", "dispatch", "o", "t"), "invalid_argument"),
    (lambda s: s.begin_turn_journal("s1", "a1", "run1", "direct", "o", "t"), "invalid_argument"),
    (lambda s: s.begin_turn_journal("s1", "a1", "", "direct", "o", "t"), "invalid_run_id"),
    (lambda s: s.update_turn_journal_phase("s1", "a1", "provider_started", stream_key=""), "invalid_argument"),
    (lambda s: s.update_turn_journal_phase("s1", "a1", "provider_started", stream_key="x"), "invalid_argument"),
    (lambda s: s.update_turn_journal_phase("s1", "a1", "nonsense"), "invalid_argument"),
    (lambda s: s.commit_turn_journal("s1", "a1", ""), "invalid_argument"),
    (lambda s: s.append_stream_segment("k", -1, "x"), "invalid_argument"),
    (lambda s: s.append_stream_segment("k", False, "x"), "invalid_argument"),
    (lambda s: s.append_stream_segment("k", 0, "\udfff"), "invalid_argument"),
    (lambda s: s.renew_leases("w", "s1"), "invalid_argument"),
    (lambda s: s.delete_session("a/b"), "invalid_run_id"),
    (lambda s: s.has_unsettled(now=2**60), "invalid_argument"),
]


@pytest.mark.parametrize("case", range(len(MALFORMED)))
def test_malformed_is_an_error_and_changes_nothing(store: Store, case: int) -> None:
    running(store)
    store.begin_turn_journal("s1", "a1", "run1", "dispatch", "o", "t")
    before = store.dump()
    call, code = MALFORMED[case]
    assert outcome(lambda: call(store)) == code
    assert store.dump() == before


ODD = [
    "",
    " ",
    ":",
    "%",
    "%3A:%25",
    "a:b",
    "\0",
    "x\0y",
    "🜁",
    "\u00e9",
    "e\u0301",
    "\uffff",
    "\U0010ffff",
    "n" * (1 << 20),
]


def test_odd_texts_are_kept(store: Store) -> None:
    for number, odd in enumerate(ODD):
        run = f"run{number}"
        store.admit(odd, run, "dispatch", "{}", NOW)
        assert store.claim(odd, odd, odd, 1) is not None
        assert store.begin_turn_journal(odd, odd, run, "dispatch", odd, odd)
        assert store.fail(odd, odd, odd)
        store.insert_attempt_marker(odd, odd)
        assert store.append_stream_segment(odd, number, odd)
        assert store.append(run, message(odd or "-", text=odd)) == 1
        assert store.append(run, evolve(message("z" + odd), text=odd, role=odd, ext_type=odd)) == 2
    dump = store.dump()
    assert sorted(dump.submissions) == sorted(ODD) == sorted(dump.slots) == sorted(dump.segments)
    assert [marker.submission_id for marker in dump.markers] == sorted(ODD)  # by code point
    for number, odd in enumerate(ODD):
        assert dump.submissions[odd].error == odd
        assert dump.slots[odd].turn_id == odd
        assert dump.segments[odd] == (Segment(segment_index=number, body=odd),)
        assert dump.runs[f"run{number}"].records[1].text == odd
        assert store.inspect(f"run{number}").leaf == "z" + odd
