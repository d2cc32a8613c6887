"""Tail repair over generated logs (P1-P7): whatever a log holds, a repair is a cut at the end, once, and no more."""

from __future__ import annotations

import json
from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st
from model_stories import RUN, Story, answers, asks, message, result, says, user

from turnproof.model.conversation import read
from turnproof.model.decision import Accept, Fail
from turnproof.model.operations import ALPHABET
from turnproof.model.rows import Draft, Restored
from turnproof.model.system import apply
from turnproof.model.transcript import Transcript
from turnproof.model.vocabulary import ErrorCode

CALLS = ("c1", "c2")

moves = st.tuples(
    st.sampled_from(["user", "says", "asks1", "asks2", "answers", "answers2", "note", "model", "branch", "clear"]),
    st.sampled_from(CALLS),
    st.integers(0, 12),
)
"""What is written next: its sort, a call id, and (above 6, mostly the leaf) an entry to hang it below."""


def build(script: list[tuple[str, str, int]]) -> Story:
    """A log written through the rules, so that its tree is sound; its conversation may be anything."""
    story = Story().append(user("e0", ""))
    for number, (sort, call_id, where) in enumerate(script, 1):
        tree = story.state.transcript(RUN)
        known = [entry.entry_id for entry in tree.entries]
        parent = known[where] if where < len(known) and where < 3 else tree.id_of(tree.leaf)
        story.append(written(sort, f"e{number}", parent, call_id))
    return story


def written(sort: str, entry: str, parent: str, call_id: str) -> Draft:
    match sort:
        case "user":
            return user(entry, parent)
        case "says":
            return says(entry, parent)
        case "asks1":
            return asks(entry, parent, call_id)
        case "asks2":
            return asks(entry, parent, *CALLS)
        case "answers":
            return answers(entry, parent, call_id)
        case "answers2":
            return message(entry, parent, "tool", *(result(call) for call in CALLS))
        case "note":
            return Draft(kind="extension_data", entry_id=entry, parent_id=parent)
        case "model":
            return Draft(kind="model_change", entry_id=entry, parent_id=parent, payload='{"provider":"p","model":"m"}')
        case "branch":
            return Draft(kind="branch", parent_id=parent)
        case _:
            return Draft(kind="clear")


def parts_of(tree: Transcript, entry: str) -> tuple[str, list[str], list[str]]:
    """The role, the calls and the results of an entry; no role for an entry that is no message."""
    record = tree.entries[tree.index[entry]]
    if record.kind.value != "message":
        return "", [], []
    parts = json.loads(record.payload)["parts"]
    calls = [part["id"] for part in parts if part["type"] == "tool_call"]
    return record.role, calls, [part["call_id"] for part in parts if part["type"] == "tool_result"]


def is_acceptable(tree: Transcript, path: tuple[str, ...]) -> bool:
    """What a provider accepts: each call answered exactly once before anything else is said, no other result."""
    awaited: list[str] = []
    for entry in path:
        role, calls, results = parts_of(tree, entry)
        if role == "":
            continue
        if role == "tool":
            if sorted(results) != sorted(set(results)) or not set(results) <= set(awaited) or calls:
                return False
            awaited = [call for call in awaited if call not in results]
            continue
        if awaited or results:
            return False
        awaited = calls
    return not awaited


def check(story: Story) -> str:
    """Every promise about one log; answers what the log was."""
    state = story.state
    tree = state.transcript(RUN)
    whole = tuple(tree.id_of(node) for node in tree.path())
    after, inspected = apply(state, ALPHABET["inspect"](run_id=RUN))
    assert after is state  # P7: inspect writes nothing
    restored_state, restored = apply(state, ALPHABET["restore"](run_id=RUN))
    if isinstance(restored, Fail):
        assert (restored.code, inspected) == (ErrorCode.CORRUPT_CONVERSATION, restored)
        assert restored_state is state  # P3: nothing is written
        assert not is_acceptable(tree, whole)
        return "corrupt"
    assert isinstance(restored, Accept) and isinstance(inspected, Accept)
    found = restored.value
    assert isinstance(found, Restored)
    assert found == inspected.value  # P7: the same answer
    assert is_acceptable(tree, found.path)  # P1, P6: no open call, no stray result
    assert found.leaf == (found.path[-1] if found.path else "")
    assert found.path == whole[: len(found.path)]  # P6: a prefix
    if found.repair is None:
        assert found.path == whole and is_acceptable(tree, whole)
        assert restored_state is state  # P6: untouched, and nothing written
        return "whole"
    dropped = found.repair.dropped_entry_ids
    assert found.path + dropped == whole  # P4: what it drops, in path order
    role, calls, _ = parts_of(tree, dropped[0])
    assert role == "assistant" and calls  # P2: the whole step
    assert all(parts_of(tree, entry)[0] in ("tool", "") for entry in dropped[1:])
    again_state, again = apply(restored_state, ALPHABET["restore"](run_id=RUN))
    assert again_state is restored_state  # P4: recorded once
    assert isinstance(again, Accept) and isinstance(again.value, Restored)
    assert (again.value.path, again.value.repair) == (found.path, None)  # P6: a fixpoint
    late_child_stays_excluded(Story(restored_state), dropped, found)
    return "torn"


def late_child_stays_excluded(story: Story, dropped: tuple[str, ...], found: Restored) -> None:
    """P5: a late result below the cut step is stored and moves nothing, until a branch selects it."""
    late = answers("late", dropped[-1], "c1")
    story.append(late)
    assert story.do("inspect", run_id=RUN).path == found.path
    story.error(ErrorCode.ENTRY_NOT_FOUND, "set_leaf", run_id=RUN, entry_id="unknown")
    story.do("set_leaf", run_id=RUN, entry_id="late")
    tree = story.state.transcript(RUN)
    assert tree.id_of(tree.leaf) == "late"
    assert not any(tree.excluded(node) for node in tree.path())


def test_a_repair_is_a_cut_at_the_end_and_no_more() -> None:
    seen: Counter[str] = Counter()

    @settings(max_examples=600, deadline=None, database=None, derandomize=True)
    @given(st.lists(moves, max_size=8))
    def over_generated_logs(script: list[tuple[str, str, int]]) -> None:
        seen[check(build(script))] += 1

    over_generated_logs()
    assert all(seen[sort] >= 20 for sort in ("whole", "torn", "corrupt")), seen


def test_a_torn_step_goes_whole_and_its_siblings_with_it() -> None:
    story = Story().append(
        user("e1", ""), asks("e2", "e1", "c1", "c2"), answers("e3", "e2", "c1"), written("note", "e4", "e3", "")
    )
    assert check(story) == "torn"
    found = story.do("restore", run_id=RUN)
    assert (found.leaf, found.path, found.repair.dropped_entry_ids) == ("e1", ("e1",), ("e2", "e3", "e4"))
    written_record = story.do("replay", run_id=RUN)[-1]
    assert (written_record.kind.value, written_record.parent_id) == ("repair", "e1")
    assert written_record.payload == '{"dropped_entry_ids":["e2","e3","e4"]}'


def test_a_reused_call_id_in_a_later_turn_does_not_answer_for_it() -> None:
    first = (user("e1", ""), asks("e2", "e1", "c1"), answers("e3", "e2", "c1"), says("e4", "e3"))
    story = Story().append(*first, user("e5", "e4"), asks("e6", "e5", "c1"))
    found = story.do("restore", run_id=RUN)
    assert (found.leaf, found.repair.dropped_entry_ids) == ("e5", ("e6",))


def test_a_hole_in_the_middle_is_corruption_and_nothing_is_written() -> None:
    story = Story().append(user("e1", ""), asks("e2", "e1", "c1"), user("e3", "e2"))
    for verb in ("restore", "inspect", "context"):
        story.error(ErrorCode.CORRUPT_CONVERSATION, verb, run_id=RUN)
    story.do("set_leaf", run_id=RUN, entry_id="e1")
    assert story.do("restore", run_id=RUN).path == ("e1",)


def test_a_recorded_step_is_pending_and_not_cut() -> None:
    story = Story().running().begun().started().recorded()
    story.append(asks("e2", "e1", "c1", "c2"), answers("e3", "e2", "c2"))
    before = story.state
    found = story.do("restore", run_id=RUN)
    assert (found.path, found.repair) == (("e1", "e2", "e3"), None)
    assert (found.pending.submission_id, found.pending.open_calls) == ("s1", ("c1",))
    assert story.state == before
    decision = story.do("recover", submission_id="s1")
    assert decision.open_calls == ("c1",)
    # Without the journal's word it is a torn tail like any other.
    tree = story.state.transcript(RUN)
    reading = read(tree, None)
    assert isinstance(reading, Restored) and reading.repair is not None


def test_inspect_and_restore_of_an_unknown_run_are_errors() -> None:
    for verb in ("restore", "inspect", "context", "clear"):
        Story().error(ErrorCode.RUN_NOT_FOUND, verb, run_id=RUN)
