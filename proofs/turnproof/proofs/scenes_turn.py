"""Scenes of the turn layer: ownership, phases, anchors, streams, deletion."""

from __future__ import annotations

from collections.abc import Callable

from turnproof.model import operations as ops
from turnproof.model.ids import assistant_entry_id, input_entry_id, mint_stream_key, result_entry_id
from turnproof.model.rows import Draft, Fence, Lease
from turnproof.proofs import talk
from turnproof.proofs.scene import A1, A2, KEY, RECORDED, RUN, S1, STARTED, Play

__all__ = [
    "anchors",
    "deletion",
    "frozen",
    "leases",
    "markers",
    "nothing",
    "oddities",
    "pending",
    "phases",
    "queue",
    "segments",
    "takeover",
    "text_turn",
    "transfer_refused",
    "turn_with_tools",
    "under_a_call",
]


def nothing(_: Play) -> None:
    """Random operations from an empty store."""


def turn_with_tools(play: Play) -> None:
    play.own()
    play.ask(input_entry_id(S1))
    play.by(ops.MarkInputApplied)
    play.begin()
    play.start(leaf=play.dice.pick([None, input_entry_id(S1)]))
    for index in range(2):
        play.do(ops.AppendStreamSegment, stream_key=KEY, segment_index=index, body="x")
    play.by(ops.MarkStreamConsumed, stream_key=KEY)
    play.record("c1", "c2", leaf=input_entry_id(S1))
    play.by(ops.MarkStreamConsumed, stream_key=KEY)
    play.step(
        talk.message("e2", input_entry_id(S1), talk.assistant("c1", "c2")),
        talk.message("e3", "e2", talk.results("c1", "c2")),
        attempt=A1,
    )
    play.commit("e3")
    play.begin(turn="t2")
    play.by(ops.Complete)


def text_turn(play: Play) -> None:
    play.own()
    play.ask()
    play.begin()
    play.start(leaf="e1")
    play.append(talk.message(assistant_entry_id(S1, "t1"), "e1", talk.says("done", "assistant")), attempt=A1)
    play.do(ops.Recover, submission_id=S1)
    play.commit(assistant_entry_id(S1, "t1"))
    play.dice.pick([play.begin, play.crash])()
    play.by(ops.FailSubmission, error="boom")
    play.by(ops.Complete)


def _stale_verbs(play: Play, attempt: str) -> list[Callable[[], None]]:
    """Every write of an attempt (T3)."""
    return [
        lambda: play.by(ops.Complete, attempt),
        lambda: play.by(ops.FailSubmission, attempt, error="late"),
        lambda: play.by(ops.Requeue, attempt),
        lambda: play.by(ops.MarkInputApplied, attempt),
        lambda: play.by(ops.RequestRecovery, attempt),
        lambda: play.begin(attempt, "t9"),
        lambda: play.start(attempt),
        lambda: play.record(attempt=attempt),
        lambda: play.commit("e1", attempt),
        lambda: play.by(ops.MarkStreamConsumed, attempt, stream_key=KEY),
        lambda: play.transfer(attempt, "a3"),
        lambda: play.append(talk.message("e9", "e1", talk.says("late", "assistant")), attempt=attempt),
        lambda: play.step(talk.message("e9", "e1", talk.says("late", "assistant")), attempt=attempt),
        lambda: play.on(ops.Checkpoint, state="failed", fence=Fence(submission_id=S1, attempt_id=attempt)),
        lambda: play.on(ops.Restore, fence=Fence(submission_id=S1, attempt_id=attempt)),
        lambda: play.on(ops.SetLeaf, entry_id="", fence=Fence(submission_id=S1, attempt_id=attempt)),
        lambda: play.on(ops.Clear, fence=Fence(submission_id=S1, attempt_id=attempt)),
    ]


def takeover(play: Play) -> None:
    """The old attempt wakes up after the transfer and tries everything."""
    play.own()
    play.ask()
    play.begin()
    if play.dice.below(4):
        play.start(leaf="e1")
    play.by(ops.RequestRecovery)
    play.transfer(lease=play.dice.pick([None, Lease(owner_id="w2", lease_expires_at=200_000)]))
    verbs = _stale_verbs(play, A1)
    at = play.dice.below(len(verbs))
    for verb in verbs[at:] + verbs[:at]:
        verb()
    play.do(ops.AppendStreamSegment, stream_key=KEY, segment_index=0, body="late")


def transfer_refused(play: Play) -> None:
    play.admit()
    play.transfer()
    play.claim()
    play.transfer("a9")
    play.transfer(observed_lease_expires_at=play.dice.pick([99_999, 100_000]))
    play.transfer(A2, A1)
    play.transfer(A2, A2)
    play.transfer(A1, "a3")
    play.by(ops.Requeue, play.dice.pick([A1, A2]))
    play.claim(play.dice.pick([A1, A2, "a3"]))


def queue(play: Play) -> None:
    play.admit()
    play.admit("s2", payload='{"n":2}')
    play.admit("s3", "run2")
    play.claim("a5", "s2")
    play.claim()
    play.do(ops.ListRunnable)
    play.by(ops.Requeue)
    play.claim(A1)
    play.claim(A2)
    play.by(ops.MarkInputApplied, A2, max_retry=play.dice.pick([None, 3]), timeout_at=play.dice.pick([None, 5000]))
    play.by(ops.MarkInputApplied, A2, max_retry=7)
    play.by(ops.Requeue, A2)
    play.by(ops.Complete, A2)
    play.claim("a5", "s2")
    play.admit("s2", payload='{"n":2}')
    play.admit("s2", payload='{"n":3}')


def frozen(play: Play) -> None:
    """After the commit nobody moves the slot, until a turn begins."""
    play.own()
    play.ask()
    play.begin()
    play.start(leaf="e1")
    if play.dice.below(2):
        play.record()
        play.step(talk.message("e2", "e1", talk.assistant("c1")), talk.message("e3", "e2", talk.results("c1")))
        leaf = "e3"
    else:
        play.append(talk.message("e2", "e1", talk.says("done", "assistant")))
        leaf = "e2"
    play.commit(leaf)
    play.commit(leaf)
    play.record(leaf=leaf)
    play.by(ops.MarkStreamConsumed, stream_key=KEY)
    play.transfer()
    play.commit(leaf, A2)
    play.begin(A2, "t2")


def phases(play: Play) -> None:
    play.own()
    play.ask()
    play.commit("e1")
    play.begin()
    play.begin()
    play.commit("e1")
    play.record()
    for phase in ("before_provider", "committed", "nonsense"):
        play.by(ops.UpdateTurnJournalPhase, phase=phase)
    play.by(ops.UpdateTurnJournalPhase, phase=STARTED, stream_key=play.dice.pick([None, ""]))
    play.by(ops.UpdateTurnJournalPhase, phase=STARTED, stream_key=play.dice.pick(["k", "s1:t1:a2"]))
    play.start()
    play.start()
    bad = ["", "{}", '{"tool_calls":[]}', "no json", talk.request("c1", "c1"), '{"tool_calls":[{"id":"c1"}]}']
    request = play.dice.pick(bad)
    play.by(ops.UpdateTurnJournalPhase, phase=RECORDED, tool_request=request, checkpoint_leaf_id="e1")
    play.by(ops.UpdateTurnJournalPhase, phase=RECORDED, tool_request=talk.request("c1"))
    play.record()
    play.record()
    play.start()
    play.by(ops.UpdateTurnJournalPhase, phase="before_provider")
    play.by(ops.CommitTurnJournal)


def anchors(play: Play) -> None:
    """Leaves that are unknown, excluded, elsewhere, or at the end of a step with an open call."""
    play.own()
    play.ask()
    play.ask("e2", "e1")
    play.ask("b2", "e1")
    play.begin()
    play.start(leaf=play.dice.pick(["e2", "e9", None]))
    play.start()
    play.call("e3", "e2", "c1", "c2")
    play.answer("e4", "e3", "c1")
    for leaf in ("e9", "e3", "e4", "b2"):
        play.commit(leaf)
    play.restore()
    play.commit("e4")
    play.record("c1", leaf=play.dice.pick(["e4", "e9", "e2"]))
    play.commit("e1")


def under_a_call(play: Play) -> None:
    """The checkpoint stands at a call that nobody answers: what a repair would cut is not to be committed."""
    play.own()
    play.ask()
    play.call("e2", "e1", "c1")
    play.append(Draft(kind="extension_data", entry_id="x3", parent_id="e2", ext_type="note"))
    play.begin()
    play.start(leaf=play.dice.pick(["e2", "x3"]))
    play.commit("x3")
    play.commit("e2")
    play.restore()


def deletion(play: Play) -> None:
    """A session goes, its worker keeps writing, and nothing comes back."""
    play.own()
    play.ask()
    play.begin()
    play.start()
    play.do(ops.AppendStreamSegment, stream_key=KEY, segment_index=0, body="x")
    play.by(ops.InsertAttemptMarker)
    play.do(ops.DeleteSession, session_key=RUN)
    play.by(play.dice.pick([ops.Complete, ops.Requeue]))
    play.transfer()
    play.by(ops.Complete, A2)
    play.do(ops.DeleteSession, session_key=RUN)
    play.do(ops.ListPendingDeletions)
    late: list[Callable[[], None]] = [
        play.admit,
        lambda: play.do(ops.AppendStreamSegment, stream_key=KEY, segment_index=1, body="late"),
        lambda: play.by(ops.InsertAttemptMarker, A2),
        lambda: play.append(talk.message("e2", "e1", talk.says("late")), attempt=A2),
        lambda: play.begin(A2),
        lambda: play.commit("e1", A2),
        lambda: play.by(ops.Complete, A2),
        lambda: play.admit("s2"),
    ]
    at = play.dice.below(len(late))
    for verb in late[at:] + late[:at]:
        verb()
    play.crash()
    play.do(ops.DeleteSession, session_key=RUN)


def leases(play: Play) -> None:
    play.admit()
    play.claim(lease=play.dice.pick([play.now + 5, 0, 100_000]))
    play.do(ops.ListExpired)
    play.do(ops.RenewLeases, owner_id=play.dice.pick(["w2", "w1"]), submission_ids=(S1, "s9"))
    play.do(ops.RenewLeases, owner_id="w1", submission_ids=(S1, S1), lease_ms=play.dice.pick([None, 50, 0, -9]))
    play.transfer(observed_lease_expires_at=100_000, lease=Lease(owner_id="w2", lease_expires_at=play.now))
    play.do(ops.ListExpired)
    play.by(ops.RequestRecovery)
    play.by(ops.RequestRecovery)
    play.do(ops.ListRunning)
    play.do(ops.HasUnsettled)


def markers(play: Play) -> None:
    for attempt in (A2, A1, A2):
        play.by(ops.InsertAttemptMarker, attempt)
    play.by(ops.InsertAttemptMarker, A1, "s0")
    play.do(ops.ListAttemptMarkers)
    play.by(ops.DeleteAttemptMarker, play.dice.pick([A2, "a9"]))
    play.do(ops.ListAttemptMarkers)


def segments(play: Play) -> None:
    for index in (0, 0, 2, -1, 1):
        play.do(ops.AppendStreamSegment, stream_key=KEY, segment_index=index, body=f"b{play.now}")
    play.do(ops.AppendStreamSegment, stream_key="k", segment_index=0, body="")
    play.do(ops.GetStreamSegments, stream_key=KEY)
    play.do(ops.DeleteStreamSegments, stream_key=play.dice.pick([KEY, "none"]))
    play.do(ops.GetStreamSegments, stream_key=KEY)


def pending(play: Play) -> None:
    """The journal recorded the calls, the step is there in part, the worker died (P9)."""
    play.own()
    play.ask()
    play.begin()
    play.start(leaf="e1")
    play.record("c1", "c2")
    if play.dice.below(4):
        play.call(assistant_entry_id(S1, "t1"), "e1", "c1", "c2")
        parent = assistant_entry_id(S1, "t1")
    else:
        play.call("e2", "e1", *play.dice.pick([("c2", "c1"), ("c1",), ("c1", "c2")]))
        parent = "e2"
    play.answer(result_entry_id(S1, "t1", "c1"), parent, play.dice.pick(["c1", "c2"]))
    play.crash()
    play.on(ops.Inspect)
    if play.dice.below(2):
        play.transfer()
    play.restore()
    play.do(ops.Recover, submission_id=S1)
    play.on(ops.Position)
    play.by(ops.FailSubmission, A2, error="gave up")
    play.restore()


def oddities(play: Play) -> None:
    """Texts that some layer may not keep: separators, percent signs, NUL, emoji, empty ids, lone surrogates."""
    odd = play.dice.pick(["a:b%25", "", "nul\0nul", "😀", "a b\nc", "\ud800"])
    play.admit(odd)
    play.claim(odd, odd, odd)
    play.begin(odd, odd, odd)
    key = mint_stream_key(odd, odd, odd)
    play.by(ops.UpdateTurnJournalPhase, odd, odd, phase=STARTED, stream_key=key)
    play.do(ops.AppendStreamSegment, stream_key=key, segment_index=0, body=odd)
    play.by(ops.FailSubmission, odd, odd, error=odd)
    play.append(Draft(kind="message", entry_id=odd or "e", role=odd, text=odd))
    play.on(ops.Inspect)
    play.append(Draft(kind="turn", ext_type=odd, text=odd, timestamp=play.dice.pick([None, -5, 0])))
    play.admit("s2", play.dice.pick(["", ".x", "a/b", "x" * 201]))
    play.admit("s3", payload="no json")
    play.admit("s3", kind="other")
