"""The record log: seqs, steps, replays, conflicts, guards, state (R1-R8, R11, R17, R18)."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from attrs import evolve
from impl_helpers import NOW, answers, asks, fence, message, outcome, running

from turnproof.impl import Store
from turnproof.model.rows import Draft, Record, RunView
from turnproof.model.vocabulary import ErrorCode, RecordKind, RunState


def test_seqs_and_fields(store: Store) -> None:
    draft = Draft(kind="extension_data", entry_id="x", role="r", ext_type="e", text="t", payload='{"a": 1.0}')
    assert store.append("run1", Draft(kind="turn", text="t1", run_id="run1"), now=5) == 1
    assert store.append("run1", evolve(draft, timestamp=-7)) == 2
    assert store.checkpoint("run1", "running") == 3
    assert store.replay("run1") == [
        Record(seq=1, run_id="run1", kind=RecordKind.TURN, timestamp=5, text="t1"),
        Record(
            seq=2, run_id="run1", kind=RecordKind.EXTENSION_DATA, timestamp=-7, entry_id="x", role="r", ext_type="e",
            text="t", payload='{"a": 1.0}',
        ),
        Record(seq=3, run_id="run1", kind=RecordKind.STATE, timestamp=NOW, state="running"),
    ]  # fmt: skip
    assert [record.seq for record in store.replay("run1", 1)] == [2, 3]
    assert store.replay("run1", after=9) == []
    assert list(store.stream("run1", 2)) == store.replay("run1", 2)
    assert (store.position("run1"), store.state("run1"), store.position("run2")) == (3, RunState.RUNNING, 0)


def test_state_moves_with_its_record(store: Store) -> None:
    store.append("run1", message("e1"))
    assert store.state("run1") is RunState.PENDING
    states = [Draft(kind="state", state=state) for state in ("running", "waiting")]
    assert store.append_step("run1", [*states, message("e2", "e1")]) == [2, 3, 4]
    assert store.state("run1") is RunState.WAITING
    assert store.append("run1", Draft(kind="turn", state="failed")) == 5
    assert store.state("run1") is RunState.WAITING
    store.checkpoint("bonnie.map", "running")
    assert store.runs() == ["bonnie.map", "run1"]
    assert store.runs("waiting") == ["run1"] == store.runs(include_reserved=False)
    assert outcome(lambda: store.runs("sleeping")) == ErrorCode.INVALID_ARGUMENT


@pytest.mark.parametrize("run", ["", ".a", "a/b", "ä", "a" * 201, "a\n", "a\0"])
def test_run_ids_are_checked_by_every_method(store: Store, run: str) -> None:
    calls: list[Callable[[], object]] = [
        lambda: store.append(run, message("e1")),
        lambda: store.append_step(run, []),
        lambda: store.checkpoint(run, "running"),
        lambda: store.replay(run),
        lambda: list(store.stream(run)),
        lambda: store.state(run),
        lambda: store.position(run),
        lambda: store.restore(run),
        lambda: store.inspect(run),
        lambda: store.context(run),
        lambda: store.set_leaf(run, ""),
        lambda: store.clear(run),
        lambda: store.run_view(run),
        lambda: store.cleanup_due(run),
        lambda: store.delete_session(run),
    ]
    assert {outcome(call) for call in calls} == {ErrorCode.INVALID_RUN_ID}
    assert store.runs() == []


def test_unknown_runs_are_not_made_by_reading(store: Store) -> None:
    calls: list[Callable[[], object]] = [
        lambda: store.replay("run1"),
        lambda: list(store.stream("run1")),
        lambda: store.state("run1"),
        lambda: store.restore("run1"),
        lambda: store.inspect("run1"),
        lambda: store.context("run1"),
        lambda: store.set_leaf("run1", ""),
        lambda: store.clear("run1"),
        lambda: store.run_view("run1"),
    ]
    assert {outcome(call) for call in calls} == {ErrorCode.RUN_NOT_FOUND}
    assert store.runs() == [] and store.append_step("run1", []) == [] and store.runs() == []


BAD: list[tuple[Draft, str]] = [
    (Draft(kind="nonsense"), "invalid_record"),
    (Draft(kind="turn", run_id="run2"), "invalid_record"),
    (Draft(kind="turn", state="sleeping"), "invalid_record"),
    (Draft(kind="state"), "invalid_record"),
    (Draft(kind="message"), "invalid_record"),
    (Draft(kind="message", entry_id="e9", payload="{"), "invalid_record"),
    (Draft(kind="message", entry_id="e9", payload="[]"), "invalid_record"),
    (Draft(kind="compaction", entry_id="e9"), "invalid_record"),
    (Draft(kind="model_change", entry_id="e9", payload='{"provider":"p"}'), "invalid_record"),
    (Draft(kind="repair"), "invalid_record"),
    (Draft(kind="turn", payload="not json"), "invalid_record"),
    (Draft(kind="turn", text="\ud800"), "invalid_argument"),
    (Draft(kind="turn", timestamp=2**54), "invalid_argument"),
    (message("e9", "nowhere"), "entry_not_found"),
    (Draft(kind="branch", parent_id="nowhere"), "entry_not_found"),
    (Draft(kind="repair", parent_id="nowhere", payload='{"dropped_entry_ids":[]}'), "entry_not_found"),
    (Draft(kind="repair", payload='{"dropped_entry_ids":["nowhere"]}'), "entry_not_found"),
    (Draft(kind="repair", parent_id="e2", payload='{"dropped_entry_ids":["e1"]}'), "entry_not_found"),
    (message("e1", text="other"), "entry_conflict"),
]


@pytest.mark.parametrize("case", range(len(BAD)))
def test_bad_records_change_nothing(store: Store, case: int) -> None:
    store.append_step("run1", [message("e1"), message("e2", "e1")])
    draft, code = BAD[case]
    before = store.dump()
    assert outcome(lambda: store.append("run1", draft)) == code
    assert outcome(lambda: store.append_step("run1", [message("e3", "e2"), draft])) == code
    assert store.dump() == before


def test_replay_of_entries_and_steps(store: Store) -> None:
    step = [Draft(kind="step", text="a"), message("e1"), Draft(kind="step", text="b"), message("e2", "e1")]
    assert store.append_step("run1", step, now=5) == [1, 2, 3, 4]
    before = store.dump()
    assert store.append_step("run1", step, expected_position=0, now=9) == [1, 2, 3, 4]
    assert store.append("run1", evolve(step[1], timestamp=99)) == 2
    for other in (
        [step[1], message("e3", "e2")],
        [evolve(step[0], text="z"), *step[1:]],
        [step[1], step[1]],
        [message("e4"), message("e4")],
    ):
        assert outcome(lambda o=other: store.append_step("run1", o)) == ErrorCode.ENTRY_CONFLICT
    assert store.dump() == before
    assert store.append_step("run1", step[::2]) == [5, 6]  # nothing to recognise it by


def test_guards(store: Store) -> None:
    running(store)
    assert store.append("run1", message("e1"), fence=fence(), expected_position=0) == 1
    before = store.dump()
    assert store.append("run1", message("e2", "e1"), expected_position=0) is None
    assert store.append("run1", message("e2", "nowhere"), fence=fence("zz")) is None  # the fence comes first
    assert store.append("run2", message("e2"), fence=fence()) is None
    assert outcome(lambda: store.append("run1", message("e2"), fence="s1")) == ErrorCode.INVALID_ARGUMENT
    assert store.dump() == before
    assert store.append("run1", message("e1"), expected_position=77) == 1


def test_compactions_split_no_step(store: Store) -> None:
    step = [message("e1"), asks("e2", "e1", "c1"), answers("e3", "e2", "c1"), message("e4", "e3")]
    store.append_step("run1", step)
    store.append_step("run1", [asks("e5", "e4", "c2")])
    before = store.dump()

    def compact(first_kept: str, parent: str = "e4") -> object:
        payload = f'{{"summary":"s","first_kept":"{first_kept}"}}'
        draft = Draft(kind="compaction", entry_id=f"k{first_kept}", parent_id=parent, payload=payload)
        return outcome(lambda: store.append("run1", draft))

    refused = [compact("e3"), compact("nowhere"), compact("e5"), compact("e5", "e5")]
    assert refused == [ErrorCode.INVALID_RECORD] * 4
    assert store.dump() == before
    assert compact("e2") == 6
    context = store.context("run1")
    assert (context.summary, context.entries) == ("s", ("e2", "e3", "e4", "ke2"))
    assert compact("ke4", "ke2") == ErrorCode.INVALID_RECORD
    assert compact("ke1", "ke2") == ErrorCode.INVALID_RECORD
    own = Draft(kind="compaction", entry_id="own", parent_id="ke2", payload='{"summary":"t","first_kept":"own"}')
    assert store.append("run1", own) == 7
    assert store.context("run1").entries == ("own",)


def test_view_and_cleanup(store: Store) -> None:
    for draft in (
        Draft(kind="trigger", text="cron"),
        Draft(kind="turn", text="t1"),
        Draft(kind="context", text="c1"),
        Draft(kind="cancel", text="t0"),
        Draft(kind="suspend", text="ask"),
        Draft(kind="sandbox", text="box"),
    ):
        store.append("run1", draft)
    records = store.replay("run1")
    view = RunView(turn="t1", suspension=records[4], trigger=records[0], sandbox=records[5], contexts=("c1",))
    assert store.run_view("run1") == view
    store.append("run1", Draft(kind="cancel", text="t1"))
    store.append("run1", Draft(kind="resume"))
    view = evolve(view, cancel_requested=True, suspension=None)
    assert store.run_view("run1") == view
    assert store.cleanup_due("run1") is False
    store.checkpoint("run1", "cancelled")
    assert store.run_view("run1") == evolve(view, cancel_requested=False)
    assert store.cleanup_due("run1") is True
    store.append("run1", Draft(kind="workspace_deleted"))
    assert store.cleanup_due("run1") is False
    store.checkpoint("run1", "retired")
    assert store.cleanup_due("run1") is True
    store.checkpoint("run1", "interrupted")
    assert store.cleanup_due("run1") is False


def test_stream_is_chunked_and_ends_where_it_began(store: Store) -> None:
    store.append_step("run1", [Draft(kind="step", text=str(i)) for i in range(1201)])
    records = store.stream("run1")
    first = next(records)
    store.append("run1", Draft(kind="step"))
    assert store._pool.open_count <= 2
    assert [first.seq, *(record.seq for record in records)] == list(range(1, 1202))
