"""What the processes of the race tests do. A module of its own, so that a spawned process can import it."""

from __future__ import annotations

import time
from multiprocessing.synchronize import Barrier

from impl_helpers import fence, message

from turnproof.impl import open_store
from turnproof.model.rows import Draft


def takeovers(directory: str, name: str, ready: Barrier, total: int) -> tuple[list[str], list[tuple[str, int]]]:
    """Take the submission over again and again, and append as whoever was last seen to own it, stale or not."""
    won: list[str] = []
    wrote: list[tuple[str, int]] = []
    with open_store(directory, "relaxed", busy_timeout_ms=60_000) as store:
        ready.wait()
        number = 0
        while True:
            row = store.get_submission("s1")
            assert row is not None and row.attempt_id is not None
            if row.attempt_count > total:
                return won, wrote
            entry = Draft(kind="step", text=row.attempt_id)
            if number % 2:
                time.sleep(0)  # the seen owner may be superseded before it writes
            seq = store.append("run1", entry, fence=fence(row.attempt_id))
            if seq is not None:
                wrote.append((row.attempt_id, seq))
            number += 1
            mine = f"{name}-{number}"
            if store.replace_turn_journal_attempt("s1", row.attempt_id, mine) is not None:
                won.append(mine)
                store.append("run1", Draft(kind="turn", text=mine), fence=fence(mine))


def rounds(directory: str, name: str, ready: Barrier, total: int) -> list[bool]:
    """Restore the same torn conversation as the other process does, at the same moment."""
    repaired = []
    with open_store(directory, "relaxed", busy_timeout_ms=60_000) as store:
        for number in range(total):
            ready.wait()
            restored = store.restore(f"run{number}")
            assert restored is not None and restored.path == ("e1",)
            repaired.append(restored.repair is not None)
    return repaired


def one_winner(directory: str, name: str, ready: Barrier, total: int) -> dict[str, int]:
    """Claim, transfer, commit and append the same things as the others do; count the successes."""
    done = {"claim": 0, "transfer": 0, "commit": 0, "segment": 0, "append": 0}
    with open_store(directory, "relaxed", busy_timeout_ms=60_000) as store:
        for number in range(total):
            ready.wait()
            submission, session = f"s{number}", f"run{number}"
            done["claim"] += store.claim(submission, f"{name}-c", "w", 9) is not None
            ready.wait()
            row = store.get_submission(submission)
            assert row is not None and row.attempt_id is not None
            ready.wait()
            taken = store.replace_turn_journal_attempt(submission, row.attempt_id, f"{name}-t")
            done["transfer"] += taken is not None
            if taken is not None:
                store.append(session, message("e1"))
                assert store.begin_turn_journal(submission, f"{name}-t", session, "dispatch", "o", "t")
                key = f"{submission}:t:{name}-t"
                assert store.update_turn_journal_phase(submission, f"{name}-t", "provider_started", stream_key=key)
            ready.wait()
            row = store.get_submission(submission)
            assert row is not None and row.attempt_id is not None
            done["commit"] += store.commit_turn_journal(submission, row.attempt_id, "e1")
            done["segment"] += store.append_stream_segment(f"k{number}", 0, name)
            done["append"] += store.append(session, message(f"{name}-x", "e1"), expected_position=1) is not None
    return done
