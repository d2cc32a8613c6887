"""The production store: SQLite, one file, many threads and processes, and every promise of the ledger."""

from turnproof.impl.memory import MemoryStore
from turnproof.impl.session import Session
from turnproof.impl.store import Store, open_store

__all__ = ["MemoryStore", "Session", "Store", "open_store"]
