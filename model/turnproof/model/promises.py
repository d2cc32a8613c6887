"""The ledger: every promise of the specification, once, in our own words.

Ids are the vocabulary of the whole project: the model answers with the promise that decided, a verdict names the one
that a store breaks, a mutant the one that it violates. A row also says where the promise comes from and which wire
capabilities a store must declare before it is held to it: what is not declared is *not offered*, never passed.
"""

from __future__ import annotations

from typing import Final

from attrs import frozen

__all__ = ["LAYERS", "PROMISES", "PROPERTIES", "Promise"]

LAYERS: Final = {
    # letter: (layer, SPEC section, where the section's rules come from)
    "L": ("submissions", "SPEC 1, seed 000"),
    "J": ("turn journal", "SPEC 2, seed 000"),
    "T": ("attempt transfer", "SPEC 3, seed 000"),
    "S": ("stream segments", "SPEC 4, seed 000"),
    "R": ("record log", "SPEC 5, seed 003"),
    "A": ("transcript and anchors", "SPEC 6, seeds 000 and 003"),
    "P": ("tail repair", "SPEC 7, seed 003"),
    "C": ("recovery", "SPEC 8, seed 000"),
    "E": ("turn driver", "SPEC 8, seed 000"),
    "X": ("crashes and faults", "SPEC 10"),
}

PROPERTIES: Final = {
    # "Resume Means Resume" (arXiv 2608.03836): its six properties and the promises that carry them
    "prefix continuation": ("R2", "A2", "P6"),
    "effect exactly-once": ("E1", "E2"),
    "fork determinism": ("A3", "P5"),
    "checkpoint validity": ("A4", "A5"),
    "consume-once": ("J9", "L2", "T7"),
    "recovery determinism": ("C1",),
}


@frozen
class Promise:
    """One promise. ``needs`` are the capabilities without which it is not offered (PROTOCOL, "Handshake")."""

    id: str
    statement: str
    needs: tuple[str, ...]
    layer: str
    source: str
    property: str | None


def _rows(letter: str, default: str, *rows: tuple[int, str] | tuple[int, str, str]) -> tuple[Promise, ...]:
    """The promises of one layer, ``(number, statement)`` each, ``(number, statement, needs)`` where needs differ."""
    layer, source = LAYERS[letter]
    return tuple(
        Promise(
            id=f"{letter}{row[0]}",
            statement=row[1],
            needs=tuple((row[2] if len(row) == 3 else default).split()),
            layer=layer,
            source=source,
            property=next((name for name, ids in PROPERTIES.items() if f"{letter}{row[0]}" in ids), None),
        )
        for row in rows
    )


_ALL: Final = (
    *_rows(
        "L",
        "journal",
        (1, "admitting the same work twice answers the row as it is; other content under the same id is a conflict"),
        (
            2,
            "only the queued head of a session is claimed, once; a claim counts the attempt and sets the deadline once",
        ),
        (3, "the first mark of the applied input stamps and installs the budget; later marks change nothing", "queue"),
        (4, "a recovery request is stamped once, by the owner only", "queue"),
        (5, "work goes back to the queue only before its input was applied and before its provider started", "queue"),
        (6, "only the owner settles a submission, and the first terminal state wins"),
        (7, "a lease is renewed for its owner only, never shortened, and the answer says which", "leases"),
        (8, "the lists show what is runnable, running or expired in admission order, one head a session", "queue"),
        (9, "an attempt marker keeps its first time and is deleted by both its ids", "markers"),
        (10, "a deleted session leaves receipts only, and nothing that is written late brings it back", "deletion"),
    ),
    *_rows(
        "J",
        "journal",
        (1, "a submission has one slot, ever: begin replaces it in place"),
        (2, "only the owner of a running submission begins a turn, of its own session and kind"),
        (3, "begin writes the turn's identity and clears whatever the turn before left"),
        (4, "the phase moves forward along the arrows only: never back, never repeated, nothing skipped"),
        (5, "provider_started names the stream, and its key is the one minted for this turn and attempt"),
        (6, "tool_request_recorded carries the calls, at least one, ids distinct, and the checkpoint leaf"),
        (7, "only the slot's owner commits, from a phase in which there is something to commit"),
        (8, "a committed slot is frozen for everyone, the committer included, until a new turn begins"),
        (9, "a stream is consumed once a turn, by the owner, while the provider runs"),
        (10, "the revision counts the resets of the slot and nothing else"),
        (11, "compare and write are one atomic statement: concurrent calls answer as in some order of them"),
        (12, "a submission that never began a turn has no slot"),
    ),
    *_rows(
        "T",
        "journal",
        (1, "a transfer moves submission and uncommitted slot to the next attempt at once and keeps the turn's data"),
        (2, "a transfer from an attempt that does not own the running submission does nothing"),
        (3, "after a transfer every write of the old attempt is refused, verb by verb"),
        (4, "a crash inside a transfer leaves all of it or none"),
        (5, "an attempt id that once owned a submission never owns it again"),
        (6, "a transfer that looked at an older lease than the stored one does nothing", "journal leases"),
        (7, "of many concurrent transfers from one attempt exactly one succeeds"),
    ),
    *_rows(
        "S",
        "streams",
        (1, "a segment is written once: the first body wins and a repeat changes nothing"),
        (2, "segments are read in ascending index, and an unknown key has none"),
        (3, "only the run of segments without a gap counts as captured", "streams recovery"),
        (4, "stream keys are minted injectively from submission, turn and attempt", "journal streams"),
        (5, "the segments of a stale attempt can only land under its own key"),
        (6, "deleting a stream removes all its segments, and is harmless when there are none"),
    ),
    *_rows(
        "R",
        "records",
        (1, "a record gets the next seq of its run, whatever the caller says, and position is the last one"),
        (2, "a record is never changed and never removed"),
        (3, "a step is stored whole or not at all and answers its seqs in order", "records steps"),
        (4, "the state of a run moves together with the record that moves it"),
        (5, "an unknown run is an error to replay, 0 as position, and no read creates it"),
        (6, "a run id has the documented shape everywhere, and bookkeeping runs can be told by their prefix"),
        (7, "a payload is kept byte for byte, and one that has not the shape of its kind is refused"),
        (8, "an entry repeated exactly answers its seq; another content under its id, or no parent, is an error"),
        (9, "a store of a newer schema is refused before anything is read or written", ""),
        (10, "what is acknowledged survives a power cut, or under the relaxed policy a prefix of it does", ""),
        (11, "fence and expected position are checked in the transaction of the write", "records fencing"),
        (12, "legacy logs are imported with their seqs, once, and damaged ones change nothing", "import"),
        (13, "finished work is saved before a cancellation stops the next", ""),
        (14, "a changed, removed or re-ordered record is found when the run is read", ""),
        (15, "a store is one database file, with bounded connections that all have the same settings", ""),
        (16, "a store without atomic steps is still a journal: single appends and tail repair cover it", ""),
        (17, "the files of a run are due for cleanup only after a terminal state, once per cycle", ""),
        (18, "the view of a run shows turn, cancellation, suspension, trigger and context by a pure fold", ""),
    ),
    *_rows(
        "A",
        "conversation",
        (1, "the leaf follows entries, branches, clears and repairs in log order, and nothing else moves it"),
        (2, "the active path is complete or the conversation is corrupt: nothing is cut silently"),
        (3, "the leaf is set to a known entry or to the root, never elsewhere"),
        (4, "anchors name live entries of the session's tree, and what is committed is never cut", "journal records"),
        (5, "recovery re-attaches at the recorded step or its checkpoint, which no one else can move", "recovery"),
        (6, "a turn that has a committed leaf is not committed again", "journal"),
        (7, "messages are rebuilt from their payload alone, and from text only where there is none"),
        (8, "the context is the newest compaction on the active path and what it keeps, cut at no half step"),
    ),
    *_rows(
        "P",
        "conversation",
        (1, "calls and results pair inside one step only: reused call ids do not answer for each other"),
        (2, "an incomplete last step leaves the path whole, its answered siblings too"),
        (3, "a hole, a stray result or a second result elsewhere is corruption, and nothing is written"),
        (4, "a repair is recorded once, with what it dropped in path order"),
        (5, "an excluded entry stays excluded until a branch selects it"),
        (6, "a repaired path is a prefix without open calls, and repairing it again changes nothing"),
        (7, "inspect answers what restore would, and writes nothing"),
        (8, "a recorded call that was never answered is closed as interrupted, once", "conversation recovery"),
        (9, "a step that the journal still holds is pending, not a torn tail", "conversation journal"),
    ),
    *_rows(
        "C",
        "recovery",
        (1, "the decision is a total, deterministic function of durable state, and recovering twice is once"),
        (2, "nothing is written to the transcript before ownership is taken"),
    ),
    *_rows(
        "E",
        "",
        (1, "recovery never runs the tools of a recorded request, and a tool runs at most once per request"),
        (2, "the provider is not asked again for a turn whose tool request is recorded"),
        (3, "each turn is committed once, and the final path holds its output once"),
        (4, "nothing acknowledged is lost, and what was shown is durable"),
        (5, "attempts are bounded: every schedule of crashes ends settled"),
        (6, "a crashed and recovered run ends with the path of an uncrashed one, but for interrupted results"),
        (7, "a frozen worker that wakes after its successor finished changes nothing"),
    ),
    *_rows(
        "X",
        "",
        (1, "after a kill at any write all acknowledged operations are there, and the one in flight whole or not"),
        (2, "after a power cut at any write the same holds, or under the relaxed policy a prefix does"),
        (3, "a failing or full disk is an error that leaves the store usable and acknowledged work intact"),
        (4, "damage is a typed error naming the file, never a wrong answer and never a write into it"),
        (5, "many threads and processes on one store see some order of their calls and lose nothing"),
        (6, "a crash suite shows how many writes it saw and at how many it crashed, with settings read back"),
    ),
)

PROMISES: Final[dict[str, Promise]] = {promise.id: promise for promise in _ALL}
"""The ledger by promise id, in the order of the specification."""
