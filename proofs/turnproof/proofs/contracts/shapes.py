"""How a symbolic row is made: the shapes that CrossHair forks over.

Left alone, CrossHair forks for every optional field *before* it looks at the ``pre:`` lines, some 131,000 times for a
submission and a slot together. These factories fork only over the shapes that the invariants allow, so that a one-step
contract is exhausted within seconds. They assume nothing: a test enumerates all shapes and shows that the factories
make exactly those for which the invariants hold, and each contract still states its ``pre:``.

Nothing here imports CrossHair; ``plugin.py`` hands the factories over.
"""

from __future__ import annotations

from typing import Protocol, TypeVar

from turnproof.model.log import Line
from turnproof.model.repair import Item, Sort
from turnproof.model.rows import Lease, Slot, Submission
from turnproof.model.vocabulary import Phase, Status, SubmissionKind

__all__ = [
    "Gate",
    "Maker",
    "Running",
    "make_gate",
    "make_item",
    "make_lease",
    "make_line",
    "make_running",
    "make_slot",
    "make_submission",
]

T = TypeVar("T")


class Gate(Submission[int]):
    """A submission of which only what the gates read is unknown: status, attempt, session.

    The journal reads nothing else of a submission but its kind (a test watches it), so nothing is lost, and a contract
    that combines a submission with a slot has 3 shapes of submissions to go through instead of 13.
    """


class Running(Submission[int]):
    """A submission that is known to be running: the only status in which the verbs of an owner write."""


class Maker(Protocol):
    """What CrossHair hands to a factory: it makes an unknown value of a type; asking a bool its value forks."""

    def __call__(self, typ: type[T], suffix: str = ..., /) -> T: ...


def _maybe(make: Maker, name: str) -> int | None:
    return make(int, name) if make(bool, f"{name}_given") else None


def make_slot(make: Maker, *_: object) -> Slot[int]:
    """A slot of any shape that ``journal.invariant`` allows, every id and number unknown."""
    phase = make(Phase, "_phase")
    started = phase is not Phase.BEFORE_PROVIDER
    if phase is Phase.TOOL_REQUEST_RECORDED:
        tool_request: int | None = make(int, "_tools")
    else:
        tool_request = _maybe(make, "_tools") if phase is Phase.COMMITTED else None
    if tool_request is not None:
        checkpoint: int | None = make(int, "_checkpoint")
    else:
        checkpoint = _maybe(make, "_checkpoint") if started else None
    return Slot(
        submission_id=make(int, "_submission"),
        session_key=make(int, "_session"),
        kind=SubmissionKind.DISPATCH,
        attempt_id=make(int, "_attempt"),
        operation_id=make(int, "_operation"),
        turn_id=make(int, "_turn"),
        phase=phase,
        revision=make(int, "_revision"),
        created_at=make(int, "_created"),
        updated_at=make(int, "_updated"),
        stream_key=make(int, "_key") if started else None,
        stream_consumed_at=_maybe(make, "_consumed") if started else None,
        tool_request=tool_request,
        checkpoint_leaf_id=checkpoint,
        committed_leaf_id=make(int, "_leaf") if phase is Phase.COMMITTED else None,
    )


def make_submission(make: Maker, *_: object) -> Submission[int]:
    """A submission of any shape that ``submission.invariant`` allows."""
    status = make(Status, "_status")
    owned = status is not Status.QUEUED
    settled = status is Status.SETTLED
    return Submission(
        submission_id=make(int, "_submission"),
        session_key=make(int, "_session"),
        kind=SubmissionKind.DISPATCH,
        payload=make(int, "_payload"),
        status=status,
        sequence=make(int, "_sequence"),
        accepted_at=make(int, "_accepted"),
        attempt_id=make(int, "_attempt") if owned else None,
        owner_id=make(int, "_owner") if owned else None,
        lease_expires_at=make(int, "_lease"),
        input_applied_at=_maybe(make, "_applied") if owned else None,
        recovery_requested_at=_maybe(make, "_recovery") if owned else None,
        started_at=make(int, "_started") if owned else None,
        settled_at=make(int, "_settled") if settled else None,
        error=_maybe(make, "_error") if settled else None,
        attempt_count=make(int, "_count"),
        max_retry=make(int, "_retry"),
        timeout_at=make(int, "_timeout"),
    )


def make_gate(make: Maker, *_: object) -> Gate:
    """A submission as the gates see it."""
    status = make(Status, "_status")
    return Gate(
        submission_id=1,
        session_key=make(int, "_session"),
        kind=SubmissionKind.DISPATCH,
        payload=1,
        status=status,
        sequence=1,
        accepted_at=1,
        attempt_id=None if status is Status.QUEUED else make(int, "_attempt"),
    )


def make_running(make: Maker, *_: object) -> Running:
    """A running submission, every id and number unknown."""
    return Running(
        submission_id=make(int, "_submission"),
        session_key=make(int, "_session"),
        kind=SubmissionKind.DISPATCH,
        payload=make(int, "_payload"),
        status=Status.RUNNING,
        sequence=make(int, "_sequence"),
        accepted_at=make(int, "_accepted"),
        attempt_id=make(int, "_attempt"),
        owner_id=make(int, "_owner"),
        lease_expires_at=make(int, "_lease"),
        input_applied_at=_maybe(make, "_applied"),
        recovery_requested_at=_maybe(make, "_recovery"),
        started_at=make(int, "_started"),
        attempt_count=make(int, "_count"),
        max_retry=make(int, "_retry"),
        timeout_at=make(int, "_timeout"),
    )


def make_lease(make: Maker, *_: object) -> Lease[int]:
    return Lease(owner_id=make(int, "_owner"), lease_expires_at=make(int, "_until"))


def make_line(make: Maker, *_: object) -> Line[int]:
    """A record as the rule of replay sees it: an entry of the tree, or not."""
    return Line(_maybe(make, "_entry"), make(int, "_content"))


def make_item(make: Maker, *_: object) -> Item[int]:
    """An entry of a path with at most one call and one result; an entry that is no message has neither."""
    sort = make(Sort, "_sort")
    if sort is Sort.OTHER:
        return Item(sort)
    call, result = _maybe(make, "_call"), _maybe(make, "_result")
    return Item(sort, () if call is None else (call,), () if result is None else (result,))
