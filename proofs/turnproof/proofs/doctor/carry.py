"""Rows carried from a damaged table into a sound one: all that can be read, and what could not.

What can be read and has no place in the sound store goes, as it is, into a file beside it, a JSON object a row.

A scan stops at the first page that is not what it must be; the rows behind it are still there. A table with row numbers
is asked for the next number, and the next, until one can be read again. A table without them is read from both ends.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing
from typing import Final, TypeAlias

from attrs import define, field

from turnproof.proofs.doctor.integrity import Lenient

__all__ = ["Carried", "Remainder", "carry"]

_PROBES: Final = 1_000_000
"""How many row numbers in a row are tried before a table is given up,"""
_BLIND: Final = 20_000
"""and how many when its last row cannot be found."""

Row: TypeAlias = "tuple[str | int | bytes | float | None, ...]"


@define
class Carried:
    """What became of a table."""

    rows: int = 0
    unreadable: list[str] = field(factory=list)
    """Places that could not be read."""
    refused: list[tuple[str, str]] = field(factory=list)
    """Rows that the sound table does not take: the first column, and why."""


@define
class Remainder:
    """Rows that are left out, in a file that is made with the first of them."""

    path: str
    rows: int = 0

    def add(self, table: str, columns: str, rows: Iterable[Row]) -> None:
        names = columns.split(", ")
        with open(os.open(self.path, os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o600), "a", encoding="utf-8") as file:
            for row in rows:
                values = [value.hex() if isinstance(value, bytes) else value for value in row]
                file.write(json.dumps({"table": table, **dict(zip(names, values, strict=True))}) + "\n")
                self.rows += 1


def carry(
    source: sqlite3.Connection,
    target: sqlite3.Connection,
    table: str,
    columns: str,
    lenient: Lenient,
    remainder: Remainder,
) -> Carried:
    """Carry what can be read of ``table``. Raises ``sqlite3.Error`` when the target cannot be written."""
    carried = Carried()
    lenient.met = False
    marks = ", ".join("?" * (columns.count(",") + 1))
    rows = _numbered if "WITHOUT ROWID" not in _definition(target, table) else _from_both_ends
    for row in rows(source, table, columns, carried):
        problem = "a text is not UTF-8" if lenient.met else ""
        lenient.met = False
        if not problem:
            try:
                target.execute(f"INSERT INTO {table} ({columns}) VALUES ({marks})", row)
                carried.rows += 1
            except sqlite3.IntegrityError as error:
                problem = str(error)
        if problem:
            carried.refused.append((str(row[0]), problem))
            remainder.add(table, columns, [row])
    return carried


def _definition(target: sqlite3.Connection, table: str) -> str:
    row: tuple[str] = target.execute("SELECT sql FROM sqlite_schema WHERE name = ?", (table,)).fetchone()
    return row[0]


def _numbered(source: sqlite3.Connection, table: str, columns: str, carried: Carried) -> Iterator[Row]:
    """The rows by number, and on behind a place that cannot be read."""
    query = f"SELECT rowid, {columns} FROM {table} NOT INDEXED WHERE rowid >= ? ORDER BY rowid"
    at, end, hole, problem = _first(source, table), _last(source, table), 0, ""
    while True:
        try:
            with closing(source.execute(query, (at,))) as cursor:
                rows: Iterator[Row] = cursor
                for number, *row in rows:
                    assert isinstance(number, int)
                    if hole:
                        carried.unreadable.append(_hole(hole, number - 1, problem))
                    at, hole = number + 1, 0
                    yield tuple(row)
            break
        except sqlite3.OperationalError as error:
            hole, problem = hole or at, str(error)  # there is no such table
            break
        except sqlite3.DatabaseError as error:
            hole, problem = hole or at, str(error)
            at += 1
            if at > (hole + _BLIND if end is None else min(end, hole + _PROBES)):
                break
    if hole:
        carried.unreadable.append(_hole(hole, end, problem))


def _hole(first: int, last: int | None, problem: str) -> str:
    rows = f"rows {first} and on" if last is None else f"row {first}" if first == last else f"rows {first} to {last}"
    return f"{rows} could not be read: {problem}"


def _first(source: sqlite3.Connection, table: str) -> int:
    return _edge(source, f"SELECT min(rowid) FROM {table} NOT INDEXED") or 1


def _last(source: sqlite3.Connection, table: str) -> int | None:
    return _edge(source, f"SELECT max(rowid) FROM {table} NOT INDEXED")


def _edge(source: sqlite3.Connection, query: str) -> int | None:
    try:
        row: tuple[int | None] = source.execute(query).fetchone()
    except sqlite3.DatabaseError:
        return None
    return row[0]


def _from_both_ends(source: sqlite3.Connection, table: str, columns: str, carried: Carried) -> Iterator[Row]:
    """The rows in the order of their key, then, when that stops, from the last one backwards."""
    seen: set[Row] = set()
    for order in ("ASC", "DESC"):
        try:
            with closing(source.execute(f"SELECT {columns} FROM {table} ORDER BY {_by(columns, order)}")) as cursor:
                rows: Iterator[Row] = cursor
                for row in rows:
                    if row in seen:
                        return
                    seen.add(row)
                    yield row
            return
        except sqlite3.DatabaseError as error:
            if order == "ASC":
                carried.unreadable.append(f"what stands after {len(seen)} rows could not be read to its end: {error}")


def _by(columns: str, order: str) -> str:
    """The key: the first column, and of two ids the second as well."""
    key = columns.split(", ")[: 2 if "attempt_id" in columns else 1]
    return ", ".join(f"{column} {order}" for column in key)
