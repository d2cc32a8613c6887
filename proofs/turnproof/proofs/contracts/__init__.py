"""The promises as contracts over the model's own step functions, for CrossHair to prove one step at a time.

Every contract has inductive form: the invariant and what is known go in (``pre:``), the invariant and the promise come
out (``post:``). Ids are ``int``: the rules only compare ids for equality, so what holds for every ``int`` holds for
every text (SPEC section 0, data independence). Sequences are bounded; each contract names its bounds.

One module a layer; ``refuted`` holds what is false on purpose. Importing this package fills ``CONTRACTS``, and needs no
CrossHair.
"""

from turnproof.proofs.contracts import (
    commit,
    journal,
    log,
    names,
    recovery,
    refuted,
    repair,
    stream,
    submission,
    transcript,
    transfer,
)
from turnproof.proofs.contracts.registry import CONTRACTS, Contract

__all__ = [
    "CONTRACTS",
    "Contract",
    "commit",
    "journal",
    "log",
    "names",
    "recovery",
    "refuted",
    "repair",
    "stream",
    "submission",
    "transcript",
    "transfer",
]
