"""Whole turns, told one story a test: after each step the whole row and the whole slot are what they must be."""

from __future__ import annotations

import pytest
from attrs import evolve
from model_stories import KEY, REQUEST, RUN, S, Story, answers, asks, fence, lease, says, user

from turnproof.model.choices import Choices
from turnproof.model.rows import Receipt, Slot, Submission
from turnproof.model.system import EMPTY
from turnproof.model.table import Table
from turnproof.model.vocabulary import ErrorCode, Phase, Status, SubmissionKind


def test_a_turn_with_tools() -> None:
    story = Story().admitted()
    row = Submission(
        submission_id=S,
        session_key=RUN,
        kind=SubmissionKind.DISPATCH,
        payload="{}",
        status=Status.QUEUED,
        sequence=1,
        accepted_at=1000,
    )
    assert story.row == row
    story.claimed()
    row = evolve(
        row,
        status=Status.RUNNING,
        attempt_id="a1",
        owner_id="w1",
        lease_expires_at=9000,
        started_at=1002,
        attempt_count=1,
        timeout_at=3_601_002,
    )
    assert story.row == row
    story.append(user("e1", ""), fence=fence("a1"))
    assert story.row == row
    story.do("mark_input_applied", submission_id=S, attempt_id="a1", max_retry=3)
    row = evolve(row, input_applied_at=1004, max_retry=3)
    assert story.row == row
    assert S not in story.state.slots
    story.begun()
    slot = Slot(
        submission_id=S,
        session_key=RUN,
        kind=SubmissionKind.DISPATCH,
        attempt_id="a1",
        operation_id="o1",
        turn_id="t1",
        phase=Phase.BEFORE_PROVIDER,
        revision=1,
        created_at=1005,
        updated_at=1005,
    )
    assert (story.row, story.slot) == (row, slot)
    story.started()
    slot = evolve(slot, phase=Phase.PROVIDER_STARTED, stream_key=KEY, updated_at=1006)
    assert (story.row, story.slot) == (row, slot)
    story.do("mark_stream_consumed", submission_id=S, attempt_id="a1", stream_key=KEY)
    slot = evolve(slot, stream_consumed_at=1007, updated_at=1007)
    assert (story.row, story.slot) == (row, slot)
    story.recorded()
    slot = evolve(
        slot,
        phase=Phase.TOOL_REQUEST_RECORDED,
        tool_request=REQUEST,
        checkpoint_leaf_id="e1",
        updated_at=1008,
    )
    assert (story.row, story.slot) == (row, slot)
    story.append(asks("e2", "e1", "c1", "c2"), answers("e3", "e2", "c1"), answers("e4", "e3", "c2"))
    assert (story.row, story.slot) == (row, slot)
    story.do("commit_turn_journal", submission_id=S, attempt_id="a1", committed_leaf_id="e4")
    slot = evolve(slot, phase=Phase.COMMITTED, committed_leaf_id="e4", updated_at=1010)
    assert (story.row, story.slot, story.slot.committed) == (row, slot, True)
    story.begun(turn="t2")
    slot = Slot(
        submission_id=S,
        session_key=RUN,
        kind=SubmissionKind.DISPATCH,
        attempt_id="a1",
        operation_id="o1",
        turn_id="t2",
        phase=Phase.BEFORE_PROVIDER,
        revision=2,
        created_at=1005,
        updated_at=1011,
    )
    assert (story.row, story.slot) == (row, slot)
    story.do("complete", submission_id=S, attempt_id="a1")
    assert story.row == evolve(row, status=Status.SETTLED, settled_at=1012)
    assert story.slot == slot


def test_a_text_only_turn_commits_from_provider_started() -> None:
    story = Story().running().begun().started()
    story.append(says("e2", "e1"), fence=fence("a1"))
    before = story.slot
    story.do("commit_turn_journal", submission_id=S, attempt_id="a1", committed_leaf_id="e2")
    assert story.slot == evolve(before, phase=Phase.COMMITTED, committed_leaf_id="e2", updated_at=story.now)
    assert story.do("recover", submission_id=S).decision == "finish"


STALE = {
    "begin_turn_journal": {"session_key": RUN, "kind": "dispatch", "operation_id": "o2", "turn_id": "t2"},
    "update_turn_journal_phase": {
        "phase": "tool_request_recorded",
        "tool_request": REQUEST,
        "checkpoint_leaf_id": "e1",
    },
    "mark_stream_consumed": {"stream_key": KEY},
    "commit_turn_journal": {"committed_leaf_id": "e1"},
    "complete": {},
    "fail": {"error": "late"},
    "requeue": {},
    "mark_input_applied": {},
    "request_recovery": {},
    "replace_turn_journal_attempt": {"next_attempt_id": "a3"},
}
"""Every verb of an attempt, with arguments that would be accepted of the owner."""

FENCED = {
    "append": {"run_id": RUN, "record": user("late", "e1")},
    "append_step": {"run_id": RUN, "records": (user("late", "e1"),)},
    "checkpoint": {"run_id": RUN, "state": "running"},
    "set_leaf": {"run_id": RUN, "entry_id": "e1"},
    "clear": {"run_id": RUN},
    "restore": {"run_id": RUN},
}


def transferred() -> Story:
    story = Story().running().begun().started()
    row, slot = story.row, story.slot
    story.do("request_recovery", submission_id=S, attempt_id="a1")
    taken = {"next_attempt_id": "a2", "lease": lease("w2", 20_000), "observed_lease_expires_at": 9000}
    answer = story.do("replace_turn_journal_attempt", submission_id=S, attempt_id="a1", **taken)
    moved = evolve(row, attempt_id="a2", owner_id="w2", lease_expires_at=20_000, started_at=story.now, attempt_count=2)
    assert (answer, story.row) == (moved, moved)
    assert story.slot == evolve(slot, attempt_id="a2", updated_at=story.now)
    return story


@pytest.mark.parametrize("verb", STALE)
def test_after_a_transfer_the_old_attempt_is_refused(verb: str) -> None:
    story = transferred()
    story.refused(verb, submission_id=S, attempt_id="a1", **STALE[verb])
    if verb != "requeue":  # the provider was asked, so not even the owner gives it back
        story.do(verb, submission_id=S, attempt_id="a2", **STALE[verb])


@pytest.mark.parametrize("verb", FENCED)
def test_after_a_transfer_the_old_fence_does_not_hold(verb: str) -> None:
    story = transferred()
    story.refused(verb, fence=fence("a1"), **FENCED[verb])
    story.do(verb, fence=fence("a2"), **FENCED[verb])


def test_a_transfer_that_saw_another_lease_or_brings_a_former_attempt_changes_nothing() -> None:
    story = transferred()
    asked = {"submission_id": S, "attempt_id": "a2"}
    story.refused("replace_turn_journal_attempt", **asked, next_attempt_id="a3", observed_lease_expires_at=9000)
    for former in ("a1", "a2"):
        story.error(ErrorCode.ATTEMPT_REUSED, "replace_turn_journal_attempt", **asked, next_attempt_id=former)
    story.do("replace_turn_journal_attempt", **asked, next_attempt_id="a3", observed_lease_expires_at=20_000)
    assert story.row.attempt_count == 3


def test_a_transfer_does_not_touch_a_committed_slot() -> None:
    story = Story().running().begun().started().append(says("e2", "e1"))
    story.do("commit_turn_journal", submission_id=S, attempt_id="a1", committed_leaf_id="e2")
    slot = story.slot
    story.do("replace_turn_journal_attempt", submission_id=S, attempt_id="a1", next_attempt_id="a2")
    assert story.slot == slot
    for attempt in ("a1", "a2"):
        story.refused("commit_turn_journal", submission_id=S, attempt_id=attempt, committed_leaf_id="e2")
        story.refused("mark_stream_consumed", submission_id=S, attempt_id=attempt, stream_key=KEY)
        update = {"phase": "tool_request_recorded", "tool_request": REQUEST, "checkpoint_leaf_id": "e1"}
        story.refused("update_turn_journal_phase", submission_id=S, attempt_id=attempt, **update)


def test_requeue_gives_back_and_a_claim_takes_again() -> None:
    story = Story().admitted().claimed().begun()
    before = story.row
    story.do("requeue", submission_id=S, attempt_id="a1")
    given_back = evolve(
        before, status=Status.QUEUED, attempt_id=None, owner_id=None, lease_expires_at=0, started_at=None
    )
    assert story.row == given_back
    story.refused("complete", submission_id=S, attempt_id="a1")
    claim = {"submission_id": S, "owner_id": "w1", "lease_expires_at": 0}
    story.error(ErrorCode.ATTEMPT_REUSED, "claim", attempt_id="a1", **claim)
    story.do("claim", attempt_id="a2", **claim)
    assert (story.row.attempt_count, story.row.timeout_at) == (2, before.timeout_at)
    # The slot of a1 does not count for a2 (section 8), whatever its phase is.
    story.do("requeue", submission_id=S, attempt_id="a2")


def test_requeue_is_refused_once_something_happened() -> None:
    story = Story().running()
    story.do("mark_input_applied", submission_id=S, attempt_id="a1")
    story.refused("requeue", submission_id=S, attempt_id="a1")
    story = Story().running().begun().started()
    story.refused("requeue", submission_id=S, attempt_id="a1")


def test_of_a_session_only_the_head_is_claimed() -> None:
    story = Story().admitted()
    story.do("admit", submission_id="s2", session_key=RUN, kind="direct", payload="1", accepted_at=1)
    claim = {"owner_id": "w1", "lease_expires_at": 0}
    story.refused("claim", submission_id="s2", attempt_id="b1", **claim)
    assert [row.submission_id for row in story.do("list_runnable")] == [S]
    story.claimed()
    story.refused("claim", submission_id=S, attempt_id="a2", **claim)
    story.do("fail", submission_id=S, attempt_id="a1", error="no")
    story.refused("complete", submission_id=S, attempt_id="a1")
    assert (story.row.status, story.row.error) == (Status.SETTLED, "no")
    story.do("claim", submission_id="s2", attempt_id="b1", **claim)


def test_a_deleted_session_leaves_receipts_and_nothing_written_late_brings_it_back() -> None:
    story = Story().running().begun().started()
    story.do("append_stream_segment", stream_key=KEY, segment_index=0, body="x")
    story.do("insert_attempt_marker", submission_id=S, attempt_id="a1")
    story.error(ErrorCode.SESSION_BUSY, "delete_session", session_key=RUN)
    story.do("complete", submission_id=S, attempt_id="a1")
    story.do("delete_session", session_key=RUN)
    assert story.state == evolve(EMPTY, receipts=EMPTY.receipts.put(S, 1000), last_sequence=1)
    late = story.do("admit", submission_id=S, session_key=RUN, kind="dispatch", payload="{}", accepted_at=5)
    assert late.receipt == Receipt(submission_id=S, accepted_at=1000)
    before = story.state
    story.refused("append_stream_segment", stream_key=KEY, segment_index=1, body="late")
    story.refused("begin_turn_journal", submission_id=S, attempt_id="a1", **STALE["begin_turn_journal"])
    story.refused("append", run_id=RUN, record=user("late", ""), fence=fence("a1"))
    assert story.do("insert_attempt_marker", submission_id=S, attempt_id="a1") is None
    story.do("delete_session", session_key=RUN)
    assert story.state == before
    story.do("admit", submission_id="s2", session_key=RUN, kind="dispatch", payload="{}", accepted_at=5)
    assert story.state.submissions["s2"].sequence == 2


def test_a_deletion_takes_along_every_opaque_stream_key() -> None:
    """L10: all its stream keys, not only the one that the slot holds last; and nobody else's."""
    story = Story(choices=Choices(stream_key="opaque")).running()
    for turn, key in (("t1", "K1"), ("t2", "K2")):
        story.begun(turn=turn)
        started = {"phase": "provider_started", "stream_key": key}
        story.do("update_turn_journal_phase", submission_id=S, attempt_id="a1", **started)
    for key in ("K1", "K2", "K3", f"{S}:t1:a1"):
        story.do("append_stream_segment", stream_key=key, segment_index=0, body="x")
    story.do("complete", submission_id=S, attempt_id="a1")
    story.do("delete_session", session_key=RUN)
    assert story.state == evolve(
        EMPTY,
        segments=Table(dict.fromkeys(("K3", f"{S}:t1:a1"), ((0, "x"),))),
        receipts=Table({S: 1000}),
        last_sequence=1,
    )
