"""Scenes of the run journal: steps that tear, branches, retries, compactions, states."""

from __future__ import annotations

from turnproof.model import operations as ops
from turnproof.model.rows import Draft, Fence
from turnproof.proofs import talk
from turnproof.proofs.scene import A1, A2, S1, Play

__all__ = [
    "branches",
    "compactions",
    "corrupt",
    "guards",
    "in_between",
    "legacy",
    "raw_repairs",
    "retries",
    "reused_calls",
    "states",
    "torn",
]


def torn(play: Play) -> None:
    """A torn tail is cut once; late results do not revive it; a branch does."""
    play.ask()
    play.call("e2", "e1", "c1", "c2")
    play.answer("e3", "e2", play.dice.pick(["c1", "c2"]))
    if play.dice.rarely(2):
        play.append(talk.entry("extension_data", "x1", "e3", '{"k":1}'))
    play.crash()
    play.restore()
    play.on(ops.Restore)
    play.answer("e4", "e3", "c1", "c2")
    play.restore()
    play.ask("e5", "e1", "again")
    play.on(ops.SetLeaf, entry_id=play.dice.pick(["e2", "e3", "e4"]))
    play.restore()
    play.answer("e6", "e3", "c2")


def corrupt(play: Play) -> None:
    """Holes and strays that no repair may hide."""
    play.ask()
    play.call("e2", "e1", "c1", "c2")
    match play.dice.below(4):
        case 0:
            play.ask("e3", "e2")
        case 1:
            play.answer("e3", "e2", "c9")
        case 2:
            play.step(talk.message("e3", "e2", talk.results("c1", "c2")), talk.message("e4", "e3", talk.results("c1")))
        case _:
            play.append(talk.message("e3", "e2", talk.results("c1").replace('"tool"', '"user"', 1)))
    play.restore()
    play.on(ops.ContextOf)
    play.on(ops.SetLeaf, entry_id="e1")
    play.restore()


def reused_calls(play: Play) -> None:
    """Providers count their calls from one in every turn (P1)."""
    play.ask()
    play.step(talk.message("e2", "e1", talk.assistant("c1")), talk.message("e3", "e2", talk.results("c1")))
    play.ask("e4", "e3")
    play.call("e5", "e4", "c1")
    play.restore()
    play.step(talk.message("e6", "e4", talk.assistant("c1")), talk.message("e7", "e6", talk.results("c1")))
    play.restore()


def in_between(play: Play) -> None:
    """Entries that are no messages, in every position of a step."""
    play.ask()
    play.append(talk.entry("model_change", "m1", "e1", talk.change("one")))
    play.call("e2", "m1", "c1", "c2")
    play.append(talk.entry("extension_data", "x1", "e2", play.dice.pick(["", '{"k":1}'])))
    play.answer("e3", "x1", "c1")
    play.append(talk.entry("model_change", "m2", "e3", talk.change("two")))
    play.restore()
    play.answer("e4", play.dice.pick(["m2", "e3", "m1"]), "c2")
    play.restore()
    play.append(talk.entry("branch_summary", "x2", play.dice.pick(["e4", "e1", ""])))
    play.on(ops.Inspect)


def branches(play: Play) -> None:
    """The leaf goes to and fro; the model is the one of the active path."""
    play.ask()
    play.append(talk.entry("model_change", "m1", "e1", talk.change("one")))
    play.ask("e2", "m1")
    play.on(ops.SetLeaf, entry_id=play.dice.pick(["e1", "", "e9"]))
    play.append(talk.entry("model_change", "m2", "e1", talk.change("two")))
    play.on(ops.SetLeaf, entry_id="e2")
    play.on(ops.Inspect)
    play.append(Draft(kind="branch", parent_id=play.dice.pick(["m2", "", "e9"])))
    play.on(ops.Inspect)
    play.on(ops.Clear)
    play.on(ops.Inspect)
    play.ask("e3", play.dice.pick(["", "e2"]))
    play.on(ops.Inspect)


def compactions(play: Play) -> None:
    play.ask()
    play.step(talk.message("e2", "e1", talk.assistant("c1")), talk.message("e3", "e2", talk.results("c1")))
    play.ask("e4", "e3")
    for entry in ("e3", "e9", "e2", "e4"):
        play.append(talk.entry("compaction", f"k{entry}", "e4", talk.compaction("so far", entry)))
        play.on(ops.ContextOf)
    play.append(talk.entry("compaction", "k", "ke4", '{"summary":1}'))
    play.ask("e5", "ke4")
    play.call("e6", "e5", "c1")
    for kept in (play.dice.pick(["e6", "e5", "e4"]), "k6"):
        play.append(talk.entry("compaction", "k6", "e6", talk.compaction("newer", kept)))
    play.answer("e7", play.dice.pick(["k6", "e6"]), "c1")
    play.on(ops.ContextOf)
    play.on(ops.SetLeaf, entry_id="e1")
    play.on(ops.ContextOf)


def retries(play: Play) -> None:
    """Writes whose answer was lost are sent again; the same id with other content is a conflict."""
    play.ask()
    play.ask()
    play.ask(text="other")
    step = (
        talk.message("e2", "e1", talk.assistant("c1")),
        Draft(kind="step", text="1", payload='{"n":1}'),
        talk.message("e3", "e2", talk.results("c1")),
    )
    play.step(*step)
    play.step(*step)
    play.step(*step, expected_position=0)
    play.step(step[0], step[2])
    play.step(*step, talk.message("e4", "e3", talk.says("more")))
    play.step(talk.message("e5", "e3", talk.says("one")), talk.message("e5", "e3", talk.says("one")))
    play.step(talk.message("e5", "e3", talk.says("one")), talk.message("e6", "e9", talk.says("two")))
    play.step(talk.message("e5", "e3", talk.says("one")), Draft(kind="message", entry_id="e6", payload="{no json"))
    play.step()
    play.append(step[0], expected_position=1)


def guards(play: Play) -> None:
    play.own()
    play.ask()
    for position in (1, 0, 5):
        play.append(Draft(kind="turn", text="t"), expected_position=position)
    play.append(Draft(kind="turn"), attempt=A1)
    play.append(Draft(kind="turn"), attempt=A2)
    play.append(Draft(kind="turn"), "run2", A1)
    play.step(Draft(kind="trigger", payload='{"by":"x"}'), attempt=A1, expected_position=play.dice.pick([3, 4]))
    play.step(attempt=A2)
    play.on(ops.Checkpoint, state="running", fence=Fence(submission_id=S1, attempt_id=play.dice.pick([A1, A2])))
    play.by(ops.Complete)
    play.append(Draft(kind="turn"), attempt=A1)


def states(play: Play) -> None:
    play.on(ops.State)
    play.on(ops.Replay)
    play.on(ops.Checkpoint, state="running")
    play.on(ops.State)
    play.on(ops.Checkpoint, state="nonsense")
    play.append(Draft(kind="completion"), "bonnie.book")
    play.do(ops.Runs, state="running")
    play.do(ops.Runs, state="pending", include_reserved=False)
    play.do(ops.Runs, state="nonsense")
    play.step(Draft(kind="state", state="waiting"), Draft(kind="context"), Draft(kind="state", state="completed"))
    play.on(ops.State)
    play.append(Draft(kind="state"))
    play.append(Draft(kind="turn", run_id="run2"))
    play.append(Draft(kind="turn"), ".hidden")
    play.on(ops.Position)
    play.do(ops.Position, run_id="none")


def raw_repairs(play: Play) -> None:
    play.ask()
    play.ask("e2", "e1")
    play.ask("e3", "e2")
    parent = play.dice.pick(["e1", "", "e3", "e9"])
    dropped = play.dice.pick([("e2", "e3"), ("e3",), (), ("e9",)])
    play.append(Draft(kind="repair", parent_id=parent, payload=talk.repair(dropped)))
    play.append(Draft(kind="repair", parent_id="e3", payload=talk.repair(["e3"])))
    play.append(Draft(kind="repair", payload="{}"))
    play.on(ops.Inspect)
    play.ask("e4", "e3")
    play.on(ops.Inspect)
    play.on(ops.SetLeaf, entry_id="e2")
    play.ask("e5", play.dice.pick(["e3", "e2", "e4"]))
    play.on(ops.Inspect)


def legacy(play: Play) -> None:
    """Messages without payload, payloads that are not what they should be (A7, R7)."""
    play.append(Draft(kind="message", entry_id="e1", role="user", text='a "quoted" text\n'))
    play.append(Draft(kind="message", entry_id="e2", parent_id="e1", role="user", payload=talk.says("é", "assistant")))
    play.on(ops.Inspect)
    bad = ["x", "{}", '{"role":"user","parts":[{}]}', '{"role":"tool","parts":[{"type":"tool_result","call_id":"c"}]}']
    play.append(Draft(kind="message", entry_id="e3", parent_id="e2", payload=play.dice.pick(bad)))
    play.append(Draft(kind="model_change", entry_id="e4", parent_id="e2", payload='{"provider":"p"}'))
    play.append(Draft(kind="context", payload="{"))
    play.append(Draft(kind="nonsense"))
    play.append(Draft(kind="message", payload=talk.says("no id")))
    play.append(Draft(kind="extension_data", entry_id="e5", parent_id="e2", payload=' {"n" : 1e999} '))
    play.on(ops.Replay)
