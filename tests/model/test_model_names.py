"""Ids and names: which are run ids, what is text, and that derived names are injective (R6, S4, P8)."""

from __future__ import annotations

from itertools import product

import pytest
from model_stories import RUN, S, Story

from turnproof.model.ids import (
    assistant_entry_id,
    escape,
    input_entry_id,
    is_reserved_run,
    is_run_id,
    is_text,
    mint_stream_key,
    result_entry_id,
    split_stream_key,
)
from turnproof.model.vocabulary import MAX_INTEGER, ErrorCode

PARTS = [""] + ["".join(letters) for length in (1, 2, 3) for letters in product("%:25x", repeat=length)]
"""All texts of up to three letters of an alphabet of escapes and what they are made of: 156."""

EDGES = ("", "%", ":", "%25", "%3A", "%3a", "a:b", "a%3Ab", "\x00", "é", "e\u0301", "\U0001f600", "x" * 5000)


def test_minting_is_injective_over_all_small_parts() -> None:
    small = [part for part in PARTS if len(part) <= 2]
    keys = {mint_stream_key(*triple): triple for triple in product(small, repeat=3)}
    assert len(keys) == len(small) ** 3 == 29_791
    assert all(split_stream_key(key) == triple for key, triple in keys.items())


def test_escaping_is_injective_and_leaves_no_separator() -> None:
    escaped = [escape(part) for part in PARTS]
    assert len(set(escaped)) == len(PARTS) == 156
    assert not any(":" in part for part in escaped)


@pytest.mark.parametrize("part", EDGES)
def test_a_minted_key_names_its_parts_again(part: str) -> None:
    assert split_stream_key(mint_stream_key(part, "t", part)) == (part, "t", part)


@pytest.mark.parametrize("key", ["", "a", "a:b", "a:b:c:d", "a:b%:c", "a:%3a:c", "%2:b:c", "a%253:b:c%"])
def test_a_key_that_nobody_minted_has_no_parts(key: str) -> None:
    assert split_stream_key(key) is None


def test_derived_entry_ids_never_meet() -> None:
    small = [part for part in PARTS if len(part) <= 1]
    derived = [
        *(input_entry_id(s) for s in small),
        *(assistant_entry_id(s, t) for s, t in product(small, repeat=2)),
        *(result_entry_id(s, t, c) for s, t, c in product(small, repeat=3)),
    ]
    assert len(set(derived)) == len(derived) == 6 + 36 + 216


RUN_IDS = ("a", "A.b-c_9", "-", "_", "x" * 200, "bonnie.books")
NO_RUN_IDS = ("", ".", ".a", "a/b", "a b", "é", "a\n", "x" * 201, "a:b", "a\x00", "٣")


def test_run_ids_have_the_documented_shape() -> None:
    assert all(map(is_run_id, RUN_IDS))
    assert not any(map(is_run_id, NO_RUN_IDS))
    assert [is_reserved_run(run) for run in ("bonnie.books", "bonnie", "xbonnie.")] == [True, False, False]


BY_RUN = {
    "replay": {},
    "state": {},
    "position": {},
    "restore": {},
    "inspect": {},
    "context": {},
    "clear": {},
    "set_leaf": {"entry_id": ""},
    "checkpoint": {"state": "running"},
    "append_step": {"records": ()},
}


@pytest.mark.parametrize("verb", BY_RUN)
@pytest.mark.parametrize("run_id", NO_RUN_IDS)
def test_every_verb_refuses_what_is_no_run_id(verb: str, run_id: str) -> None:
    Story().error(ErrorCode.INVALID_RUN_ID, verb, run_id=run_id, **BY_RUN[verb])


def test_ids_are_opaque_and_kept_code_point_for_code_point() -> None:
    for submission_id in EDGES:
        story = Story()
        admit = {"session_key": RUN, "kind": "direct", "payload": "1", "accepted_at": 0}
        story.do("admit", submission_id=submission_id, **admit)
        assert story.do("get_submission", submission_id=submission_id).submission_id == submission_id
    assert story.do("get_submission", submission_id="é") is None


def test_lone_surrogates_and_large_integers_are_no_arguments() -> None:
    story = Story().admitted()
    claim = {"attempt_id": "a1", "owner_id": "w", "lease_expires_at": 0}
    story.error(ErrorCode.INVALID_ARGUMENT, "claim", submission_id="\ud800", **claim)
    story.error(ErrorCode.INVALID_ARGUMENT, "claim", submission_id=S, **{**claim, "owner_id": "\udfff"})
    for beyond in (MAX_INTEGER + 1, -MAX_INTEGER - 1):
        story.error(ErrorCode.INVALID_ARGUMENT, "claim", submission_id=S, **{**claim, "lease_expires_at": beyond})
    story.do("claim", submission_id=S, **{**claim, "lease_expires_at": -MAX_INTEGER})
    assert is_text("\U0001f600\x00") and not is_text("\ud83d")
