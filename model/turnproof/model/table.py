"""A small immutable map: hashable, compared by content, changed by making another.

The whole state of the model must be a value (kept, compared, hashed, enumerated); a ``dict`` is not.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Generic, TypeVar

__all__ = ["Table"]

K = TypeVar("K")
V = TypeVar("V")


class Table(Mapping[K, V], Generic[K, V]):
    """An immutable mapping that keeps insertion order; equality and hash ignore the order."""

    __slots__ = ("_hash", "_items")

    def __init__(self, items: Mapping[K, V] | None = None) -> None:
        self._items: dict[K, V] = dict(items or {})
        self._hash: int | None = None

    def __getitem__(self, key: K) -> V:
        return self._items[key]

    def __iter__(self) -> Iterator[K]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)

    def __eq__(self, other: object) -> bool:
        return self._items == other._items if isinstance(other, Table) else NotImplemented

    def __hash__(self) -> int:
        if self._hash is None:
            self._hash = hash(frozenset(self._items.items()))
        return self._hash

    def __repr__(self) -> str:
        return f"Table({self._items!r})"

    def put(self, key: K, value: V) -> Table[K, V]:
        """The same map with ``key`` bound to ``value``."""
        return Table({**self._items, key: value})

    def drop(self, *keys: K) -> Table[K, V]:
        """The same map without ``keys``; those that are not there do not matter."""
        return Table({k: v for k, v in self._items.items() if k not in keys})
