"""Tool calls and their results on a path: which steps are whole, torn or corrupt, and what a repair cuts (P1-P3, P9).

A *step* is an assistant message with calls and the block of tool messages right after it; entries that are no messages
do not end the block. Pairing never looks outside the step, since providers use the same call ids in later turns.

Only one thing may be cut: the *last* step of a path, when a call of it has no result and no message follows. Anything
else that is not whole is corruption, and is called so.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from attrs import define, field, frozen

from turnproof.impl.transcript import ROOT, Damage, Fact, Transcript
from turnproof.model.ids import assistant_entry_id
from turnproof.model.payload import decode_compaction, decode_tool_request
from turnproof.model.rows import Record

__all__ = [
    "Request",
    "Step",
    "compaction_problem",
    "examine",
    "open_calls",
    "pending_step",
    "recorded_step",
    "repair_problem",
    "soundness",
]


@define
class Step:
    """A step on a path; positions are places on that path."""

    start: int
    end: int
    unanswered: set[str]
    followed: bool = False
    """A message stands after the block."""


@frozen
class Examined:
    """What stands on a path."""

    steps: Sequence[Step]
    corrupt: int | None
    """Where the first corruption is: a stray result, a call where none may be, or the start of a step with a hole."""

    @property
    def torn(self) -> Step | None:
        """The last step, when a call of it is open and nothing was said after it."""
        last = self.steps[-1] if self.steps else None
        return last if last is not None and last.unanswered and not last.followed else None


def examine(facts: Iterable[Fact]) -> Examined:
    """Find the steps of a path and the first thing on it that no repair may touch."""
    steps: list[Step] = []
    wrong: list[int] = []
    block: Step | None = None
    for at, fact in enumerate(facts):
        if fact is None or isinstance(fact, Damage):
            continue
        if block is not None and fact.role == "tool":
            block.end = at
        else:
            if block is not None:
                block.followed = True
                if block.unanswered:
                    wrong.append(block.start)
            block = None
        for result in fact.results:
            if block is None or result.call_id not in block.unanswered:
                wrong.append(at)
            else:
                block.unanswered.remove(result.call_id)
        if fact.calls and fact.role == "assistant":
            block = Step(at, at, {call.id for call in fact.calls})
            steps.append(block)
        elif fact.calls:
            wrong.append(at)
    return Examined(steps, min(wrong, default=None))


# --- what may be appended, and what may be anchored ------------------------------------------------------------------


def compaction_problem(tree: Transcript, record: Record) -> str | None:
    """Why a compaction may not be appended: what it keeps must start on its own path and split no step (A8).

    A step with an open call reaches to the end of the path, and over the compaction that is put there.
    """
    first_kept = decode_compaction(record.payload).first_kept
    path = tree.path(tree.index.get(record.parent_id, ROOT))
    if first_kept == record.entry_id:
        at = len(path)
    elif (kept := tree.index.get(first_kept, ROOT)) != ROOT and kept in path:
        at = path.index(kept)
    else:
        return f"first_kept {first_kept!r} is not on the path to this compaction"
    found = examine(tree.facts[node] for node in path)
    for step in found.steps:
        end = len(path) if step is found.torn else step.end
        if step.start < at <= end:
            return f"first_kept {first_kept!r} splits the step of {tree.ids[path[step.start]]!r}"
        if step.start == at and step.unanswered:
            return f"first_kept {first_kept!r} starts a step with an open call"
    return None


def repair_problem(tree: Transcript, parent_id: str, dropped: Sequence[str]) -> str | None:
    """Why a raw repair may not be appended: leaf and ids must be known, the leaf not excluded before or by it (A1)."""
    for entry_id in dropped:
        if entry_id not in tree.index:
            return f"the repaired entry {entry_id!r} is not stored"
    if not parent_id:
        return None
    leaf = tree.index.get(parent_id, ROOT)
    if leaf == ROOT:
        return f"the repair's leaf {parent_id!r} is not stored"
    if tree.excluded(leaf) or tree.is_below(leaf, [tree.index[entry_id] for entry_id in dropped]):
        return f"the repair's leaf {parent_id!r} is excluded"
    return None


def soundness(tree: Transcript, leaf: int, checkpoint: str | None) -> str | None:
    """Why a leaf may not be committed, or ``None`` (A4).

    It must be the checkpoint or below it, and the entries between the two must be a conversation of their own. Where no
    message is among them, the step above them must be whole too: a repair would cut them with it.
    """
    start = tree.index.get(checkpoint, ROOT) if checkpoint else ROOT
    if checkpoint and start == ROOT:
        return f"the checkpoint {checkpoint!r} is not stored"
    between: list[int] = []
    node = leaf
    while node not in (start, ROOT):
        between.append(node)
        node = tree.parents[node]
    if node != start:
        return f"it is not at or below the checkpoint {checkpoint!r}"
    facts = [tree.facts[node] for node in reversed(between)]
    if any(isinstance(fact, Damage) for fact in facts):
        return "a message on its path cannot be read"
    found = examine(facts)
    if found.corrupt is not None:
        return f"the path to it is corrupt at {tree.ids[between[-1 - found.corrupt]]!r}"
    if not any(facts):
        found = examine(tree.facts[node] for node in tree.path(leaf))
    torn = found.corrupt is None and found.torn is not None
    return "the path to it ends in a step with an open call" if torn else None


# --- the step that the journal knows (P9, A5) -------------------------------------------------------------------------


@frozen
class Request:
    """A tool request that the journal holds for the running submission of the session."""

    submission_id: str
    turn_id: str
    tool_request: str
    checkpoint: str

    @property
    def calls(self) -> tuple[str, ...]:
        """The call ids in request order."""
        return tuple(call.id for call in decode_tool_request(self.tool_request))


@frozen
class Kept:
    """A step that is kept because the journal holds its calls."""

    assistant: int
    answered: frozenset[str]


_NO_CALLS: Final[frozenset[str]] = frozenset()


def _calls(tree: Transcript, node: int) -> frozenset[str]:
    """The calls of an assistant message, none for anything else."""
    fact = tree.facts[node]
    if fact is None or isinstance(fact, Damage) or fact.role != "assistant":
        return _NO_CALLS
    return frozenset(call.id for call in fact.calls)


def _strictly_below(tree: Transcript, node: int, checkpoint: str) -> bool:
    if not checkpoint:
        return True
    start = tree.index.get(checkpoint, ROOT)
    return start not in (ROOT, node) and tree.is_below(node, (start,))


def recorded_step(tree: Transcript, request: Request) -> Kept | None:
    """The step of the recorded request: that of the derived assistant entry, wherever it is stored; else the first on
    the active path below the checkpoint that makes exactly the recorded calls (section 8)."""
    derived = tree.index.get(assistant_entry_id(request.submission_id, request.turn_id), ROOT)
    if derived != ROOT and _calls(tree, derived):
        return Kept(derived, _answered(tree, derived, _calls(tree, derived)))
    wanted = frozenset(request.calls)
    path = tree.path(tree.leaf)
    start = tree.index.get(request.checkpoint, ROOT) if request.checkpoint else ROOT
    if request.checkpoint and start not in path:
        return None
    for node in path[path.index(start) + 1 :] if start != ROOT else path:
        if _calls(tree, node) == wanted:
            return Kept(node, _answered(tree, node, wanted))
    return None


def pending_step(tree: Transcript, request: Request | None) -> Kept | None:
    """The recorded step, when it is below its checkpoint and makes exactly the recorded calls (P9)."""
    step = None if request is None else recorded_step(tree, request)
    if request is None or step is None or _calls(tree, step.assistant) != frozenset(request.calls):
        return None
    return step if _strictly_below(tree, step.assistant, request.checkpoint) else None


@define(order=True)
class _Branch:
    """One way to go on below a call; the greatest is the step (answers, messages, on the active path, latest)."""

    answers: int
    depth: int
    active: bool
    node: int
    answered: frozenset[str] = field(order=False)


def _answered(tree: Transcript, assistant: int, calls: frozenset[str]) -> frozenset[str]:
    """The calls that the step's stored results answer, on the continuation that answers most."""
    active = set(tree.path(tree.leaf))
    children: dict[int, list[int]] = {}
    for node in range(assistant + 1, len(tree.parents)):
        children.setdefault(tree.parents[node], []).append(node)
    best = _Branch(0, 0, assistant in active, assistant, _NO_CALLS)
    waiting = [best]
    while waiting:
        here = waiting.pop()
        for child in children.get(here.node, ()):
            fact = tree.facts[child]
            if fact is None:
                waiting.append(_Branch(here.answers, here.depth, child in active, child, here.answered))
                continue
            if isinstance(fact, Damage) or fact.role != "tool" or fact.calls:
                continue
            results = [result.call_id for result in fact.results]
            if len(set(results)) < len(results) or not calls - here.answered >= set(results):
                continue
            answered = here.answered.union(results)
            branch = _Branch(len(answered), here.depth + 1, child in active, child, answered)
            waiting.append(branch)
            best = max(best, branch)
    return best.answered


def open_calls(request: Request, kept: Kept) -> tuple[str, ...]:
    """The recorded calls without a stored result, in request order."""
    return tuple(call for call in request.calls if call not in kept.answered)
