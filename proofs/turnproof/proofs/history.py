"""One history on one subject: every operation is put to the model and to the subject, and the two are compared.

Compared is the answer, and the complete state that can be read afterwards. A store of our own shows all of it in one
read, after every write. Others are asked after each write for the rows that it names, and from time to time, after
every crash and at the end for everything that the history ever named. The first difference ends the history as a
``Divergence``.
"""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, TypeAlias

import attrs

from turnproof.impl.memory import dump_of
from turnproof.model.choices import Choices
from turnproof.model.operations import Operation
from turnproof.model.state import EMPTY, State
from turnproof.proofs.compare import Comparison, Known, blame, offered
from turnproof.proofs.subjects import Subject, expected, reopen
from turnproof.proofs.wire import Outcome
from turnproof.proofs.witness import witnessed

__all__ = ["Divergence", "History", "Move", "Tally", "on_empty_store", "play"]

Move: TypeAlias = Operation | str
"""An operation, ``crash`` or ``reopen``."""

_EVERYTHING: Final = 15
"""Operations between two comparisons of everything."""


class Divergence(Exception):
    """The subject answered otherwise than the model: at ``operation``, the last of ``moves``."""

    def __init__(
        self, moves: Sequence[Move], operation: Operation, wanted: Outcome, got: Outcome, promise: str
    ) -> None:
        super().__init__(promise)
        self.moves = tuple(moves)
        self.operation = operation
        self.wanted = wanted
        self.got = got
        self.promise = promise


@attrs.define
class Tally:
    """What was compared: operations, reads of the state besides, and how often each promise decided, and how."""

    operations: int = 0
    reads: int = 0
    sequences: int = 0
    crashes: int = 0
    promises: Counter[tuple[str, str]] = attrs.Factory(Counter)

    def add(self, other: Tally) -> None:
        self.operations += other.operations
        self.reads += other.reads
        self.sequences += other.sequences
        self.crashes += other.crashes
        self.promises.update(other.promises)


@attrs.define
class History:
    """A history in progress, on a subject whose store was just created empty in ``path``."""

    subject: Subject
    path: Path
    choices: Choices
    tally: Tally
    thorough: bool = False
    """Compare everything after every operation: slower, and the first difference is seen where it arises."""
    state: State = EMPTY
    moves: list[Move] = attrs.Factory(list)
    _known: Known = attrs.Factory(Known)
    _comparison: Comparison = attrs.field(init=False)
    _written: list[str] = attrs.Factory(list)
    """The promises that the last write was about."""
    _now: int = 0

    def __attrs_post_init__(self) -> None:
        self._comparison = Comparison(self.subject.identity.clock == "own")

    def move(self, move: Move) -> None:
        """Make one move. Raises ``Divergence``; what the subject does not offer is left out."""
        if isinstance(move, str):
            self.moves.append(move)
            self.tally.crashes += 1
            self._return(move)
            self._compare(self._known.reads(self._now))
        elif offered(move, self.subject.identity):
            self._operate(move)

    def finish(self) -> None:
        """Compare everything that the history named."""
        self._compare(self._known.reads(self._now))

    def _return(self, move: str) -> None:
        if move == "crash":
            self.subject.crash()
        else:
            reopen(self.subject, self.path)

    def _operate(self, operation: Operation) -> None:
        self.moves.append(operation)
        self._known.note(operation)
        self._now = max(self._now, operation.now)
        before = self.state
        model = expected(operation, before, self.choices)
        got = self.subject.call(operation)
        if not self._comparison.same(model.outcome, got):
            promise = blame(operation, model.outcome, got, model.rule, ())
            raise Divergence(self.moves, operation, model.outcome, got, promise)
        self.state = model.state
        promises = [*witnessed(before, operation, model, self.choices), *model.rule.split()]
        if not operation.reads:
            self._written = promises
        self.tally.operations += 1
        for promise in set(promises):
            self.tally.promises[promise, model.sort] += 1
        if self.thorough or len(self.moves) % _EVERYTHING == 0:
            self._compare(self._known.reads(operation.now))
        elif not operation.reads and not self._is_whole():
            self._compare(self._known.reads_near(operation, before))

    def _is_whole(self) -> bool:
        """Whether the subject showed its whole state, and every read of it answers as the model's does.

        A difference in what it showed is looked for in the reads: only what can be read is promised.
        """
        stored = self.subject.whole()
        if stored is not None and stored != dump_of(self.state):
            self._compare(self._known.reads(self._now))
        return stored is not None

    def _compare(self, reads: Iterable[Operation]) -> None:
        for read in reads:
            if not offered(read, self.subject.identity):
                continue
            model = expected(read, self.state, self.choices)
            got = self.subject.call(read)
            self.tally.reads += 1
            if not self._comparison.same(model.outcome, got):
                promise = blame(read, model.outcome, got, model.rule, self._written)
                raise Divergence([*self.moves, read], read, model.outcome, got, promise)


@contextmanager
def on_empty_store(subject: Subject, path: Path) -> Iterator[None]:
    """The subject with an empty store in ``path``, which is removed afterwards.

    An interruption does not close it: whoever owns the subject stops it, and a program under test may not answer.
    """
    subject.open(path)
    try:
        yield
    except Exception:
        subject.close()
        raise
    else:
        subject.close()
    finally:
        shutil.rmtree(path, ignore_errors=True)


def play(
    subject: Subject, path: Path, moves: Sequence[Move], choices: Choices, *, thorough: bool = True
) -> Divergence | None:
    """Play a fixed history from an empty store; the divergence, if any."""
    with on_empty_store(subject, path):
        history = History(subject, path, choices, Tally(), thorough)
        try:
            for move in moves:
                history.move(move)
            history.finish()
        except Divergence as divergence:
            return divergence
    return None
