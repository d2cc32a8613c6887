"""The digest chain of every run, and the run's row over it: which record was changed, which is gone (R4, R14).

The store stops at the first record that does not fit, and must. Here the walk goes on with the digest that *is* stored,
so that one changed record is told from a hundred, and a removed one from a changed one: a change breaks the link of the
record itself, a removal the link of the record after it, where the seqs have a gap.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing
from typing import Final

from attrs import define, field

from turnproof.impl.columns import RECORD, RecordRow, record_of
from turnproof.impl.log import GENESIS, link, seal
from turnproof.model.ids import is_run_id
from turnproof.model.rows import Record
from turnproof.model.vocabulary import TREE_KINDS, RecordKind, RunState, StorageDamaged
from turnproof.proofs.doctor.finding import Finding, Severity

__all__ = ["Chain", "run_ids", "walk"]

_NAMED: Final = 5
"""How many broken links of one run are named."""
_FOLDED: Final = TREE_KINDS | {RecordKind.BRANCH, RecordKind.CLEAR, RecordKind.REPAIR}
"""The kinds that the transcript is folded from; of other records nothing is kept."""
_RESTORE: Final = "restore a backup; the run is refused by the store (storage_damaged) until then"


@define
class Chain:
    """A run, walked."""

    run: str
    folded: list[Record] = field(factory=list)
    """The records that make the transcript."""
    records: int = 0
    last: int = 0
    proved: int = 0
    """The last seq up to which every record fits."""
    digest: bytes = GENESIS
    state: RunState = RunState.PENDING
    sound: bool = True
    findings: list[Finding] = field(factory=list)

    def broken(self, code: str, seq: int | None, what: str) -> None:
        self.sound = False
        self.findings.append(
            Finding(code=code, severity=Severity.DAMAGE, run=self.run, seq=seq, what=what, remedy=_RESTORE)
        )


def run_ids(connection: sqlite3.Connection) -> list[str]:
    """Every run that has a row or a record. Raises ``sqlite3.Error``."""
    rows: Iterable[tuple[str]] = connection.execute(
        "SELECT run_id FROM runs UNION SELECT DISTINCT run_id FROM records ORDER BY 1"
    )
    return [run_id for (run_id,) in rows]


def walk(connection: sqlite3.Connection, run_id: str) -> Chain:
    """Recompute the chain of a run, and compare its row with its records."""
    chain = Chain(run_id)
    if not is_run_id(run_id):
        chain.broken("run_id", None, "its name is no run id, so no verb of the store can reach it")
    try:
        _records(connection, chain)
        _row(connection, chain)
    except sqlite3.Error as error:
        after = f"cannot be read beyond seq {chain.last}" if chain.last else "cannot be read"
        chain.broken("unreadable_run", chain.last + 1, f"the log {after}: {error}")
    return chain


def _records(connection: sqlite3.Connection, chain: Chain) -> None:
    broken = 0
    with closing(
        connection.execute(f"SELECT {RECORD} FROM records WHERE run_id = ? ORDER BY seq", (chain.run,))
    ) as cursor:
        rows: Iterator[RecordRow] = cursor
        for row in rows:
            try:
                problem = _link(chain, row)
            except (AttributeError, TypeError):
                problem = "record_changed", "the record was changed: it holds what no store writes there"
            if problem is not None:
                broken += 1
                if broken <= _NAMED:
                    chain.broken(problem[0], row[0], problem[1])
            elif not broken:
                chain.proved = row[0]
            chain.last, chain.digest, chain.records = row[0], row[10], chain.records + 1
    if broken > _NAMED:
        chain.broken("record_changed", None, f"{broken - _NAMED} more records do not fit into the chain")


def _link(chain: Chain, row: RecordRow) -> tuple[str, str] | None:
    """What is wrong with a record where it stands: the code, and the words."""
    try:
        record = record_of(chain.run, row)
    except StorageDamaged as error:
        said = error.message.removeprefix(f"run {chain.run!r} seq {row[0]}: ")
        return "record_changed", f"the record was changed: {said}"
    if record.kind in _FOLDED:
        chain.folded.append(record)
    if record.kind is RecordKind.STATE:
        if record.state not in tuple(RunState):
            return "record_changed", f"the record was changed: {record.state!r} is no state"
        chain.state = RunState(record.state)
    if link(chain.digest, record) == row[10]:
        return None
    if record.seq > chain.last + 1:
        gap = f"seq {chain.last + 1}" if record.seq == chain.last + 2 else f"seqs {chain.last + 1} to {record.seq - 1}"
        return "record_removed", f"its digest does not follow from seq {chain.last}: {gap} removed, or this one changed"
    return "record_changed", "the record was changed: its digest is not that of its fields"


def _row(connection: sqlite3.Connection, chain: Chain) -> None:
    row: tuple[str, int, bytes, bytes] | None = connection.execute(
        "SELECT state, position, digest, seal FROM runs WHERE run_id = ?", (chain.run,)
    ).fetchone()
    if row is None:
        chain.broken("run_row", None, f"it has {chain.records} records, but its row is gone")
        return
    state, position, digest, mark = row
    if not (isinstance(state, str) and isinstance(position, int) and isinstance(digest, bytes)):
        chain.broken("run_row", None, "its row was changed: it holds what no store writes there")
        return
    if seal(chain.run, state, position, digest) != mark:
        chain.broken("run_row", None, f"its row was changed (state {state!r}, position {position})")
    if position > chain.last:
        gone = f"seq {position}" if position == chain.last + 1 else f"what stood up to seq {position}"
        chain.broken("record_removed", position, f"{gone} was removed from the end; seq {chain.last} is the last one")
    elif position < chain.last:
        chain.broken("run_row", chain.last, f"its row stops at seq {position}, but seq {chain.last} is stored")
    elif digest != chain.digest:
        chain.broken("record_changed", chain.last, "the last record is not the one that the run's row names")
    if chain.sound and state != chain.state:
        chain.broken("run_state", None, f"its row says {state!r}, its records make it {chain.state.value!r}")
