"""Contracts of derived names: minting is injective, and derived entry ids never meet (S4, P8).

Text is the one thing that CrossHair cannot treat as opaque, so a part of a name is a few letters of a small alphabet:
the two that are escaped, and what the escape of one is made of. Injectivity is shown by a left inverse: who can be read
back cannot have come from two. (The whole bounded space is enumerated in the model's tests.)
"""

from __future__ import annotations

from turnproof.model.ids import (
    assistant_entry_id,
    escape,
    input_entry_id,
    mint_stream_key,
    result_entry_id,
    split_stream_key,
)
from turnproof.proofs.contracts.registry import promises

LETTERS = "%:25"
THREE = "parts of 3 letters of '%:25'"
ONE = "parts of 1 letter of '%:2'"


def part(*codes: int) -> str:
    """A part of a name: one letter a code, none for a code beyond the alphabet."""
    return "".join(LETTERS[code] for code in codes if 0 <= code < len(LETTERS))


def letters(*codes: int) -> bool:
    """The alphabet, and one code for "no letter"."""
    return all(0 <= code <= len(LETTERS) for code in codes)


def few(*codes: int) -> bool:
    """The first three letters, and one code for "no letter": for three parts at once."""
    return all(-1 <= code <= 2 for code in codes)


def unescape(text: str) -> str:
    """The left inverse of ``escape``, written out a second time: letter by letter."""
    found, at = [], 0
    while at < len(text):
        if text[at] == "%":
            found.append({"25": "%", "3A": ":"}[text[at + 1 : at + 3]])
            at += 3
        else:
            found.append(text[at])
            at += 1
    return "".join(found)


@promises("S4", bounds=THREE)
def s4_an_escaped_part_has_no_separator_and_is_read_back(a: int, b: int, c: int) -> str:
    r"""
    pre: letters(a, b, c)
    post: ":" not in __return__ and unescape(__return__) == part(a, b, c)
    """
    return escape(part(a, b, c))


@promises("S4", "S5", "J5", bounds=ONE)
def s4_a_minted_key_names_its_submission_turn_and_attempt(s: int, t: int, a: int) -> tuple[str, str, str] | None:
    r"""
    pre: few(s, t, a)
    post: __return__ == (part(s), part(t), part(a))
    """
    return split_stream_key(mint_stream_key(part(s), part(t), part(a)))


@promises("S5", "L10", bounds="keys of 3 letters of '%:25'")
def s5_a_key_that_is_split_was_minted(a: int, b: int, c: int) -> tuple[str, str, str] | None:
    r"""
    pre: letters(a, b, c)
    post: __return__ is None or mint_stream_key(*__return__) == part(a, b, c)
    """
    return split_stream_key(part(a, b, c))


@promises("P8", "E3", bounds=ONE)
def p8_the_entries_of_a_turn_have_ids_of_their_own(s: int, t: int, c: int) -> tuple[str, str, str]:
    r"""
    pre: few(s, t, c)
    post: len(set(__return__)) == 3
    """
    submission, turn = part(s), part(t)
    return input_entry_id(submission), assistant_entry_id(submission, turn), result_entry_id(submission, turn, part(c))


@promises("P8", bounds=ONE)
def p8_a_result_id_names_its_submission_turn_and_call(s: int, t: int, c: int) -> list[str]:
    r"""
    pre: few(s, t, c)
    post: [unescape(__return__[1]), unescape(__return__[2]), unescape(__return__[4])] == [part(s), part(t), part(c)]
    """
    return result_entry_id(part(s), part(t), part(c)).split(":")
