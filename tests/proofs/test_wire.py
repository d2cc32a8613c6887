"""The codec: any bytes are a request or a typed error, and what is encoded decodes to the same."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnproof.model.decision import Accept
from turnproof.model.operations import ALPHABET, Append, Operation, ReplaceTurnJournalAttempt
from turnproof.model.payload import MAX_JSON_DEPTH
from turnproof.model.rows import Draft, Fence, Lease
from turnproof.model.system import EMPTY, apply
from turnproof.model.vocabulary import InvalidArgument, InvalidRecord, Unsupported
from turnproof.proofs import wire
from turnproof.proofs.dice import Dice
from turnproof.proofs.scene import Play
from turnproof.proofs.scenes import SCENES
from turnproof.proofs.wire import MAX_LINE, decode_operation, decode_request, encode_args, encode_line, parse_line


@given(st.binary(max_size=200))
def test_any_bytes_are_a_request_or_an_error(line: bytes) -> None:
    request = decode_request(line)
    assert request.error is not None or request.id is not None


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"{",
        b"[" * 100_000,
        b'{"id":1,"op":"hello","args":' + b'{"a":' * 50_000 + b"}" * 50_001,
        b'{"id":NaN,"op":"hello"}',
        b'{"id":1,"op":"hello","x":Infinity}',
        b'\xef\xbb\xbf{"id":1,"op":"hello"}',
        b'{"id":"\xff","op":"hello"}',
        b'{"id":' + b"9" * 10_000 + b',"op":"hello"}',
        b'{"id":1.5,"op":"hello"}',
        b'{"id":true,"op":"hello"}',
        b'{"id":9007199254740993,"op":"hello"}',
        b'{"id":"\\ud800","op":"hello"}',
        b'{"op":"hello"}',
        b"null",
        b"[]",
    ],
    ids=range(16),
)
def test_a_request_whose_id_cannot_be_read_has_none(line: bytes) -> None:
    request = decode_request(line)
    assert request.id is None
    assert isinstance(request.error, InvalidArgument)


@pytest.mark.parametrize("line", [b'{"id":7}', b'{"id":7,"op":5}', b'{"id":7,"op":"hello","args":[]}'])
def test_an_id_that_can_be_read_is_kept_with_the_error(line: bytes) -> None:
    request = decode_request(line)
    assert request.id == 7
    assert isinstance(request.error, InvalidArgument)


def test_a_line_has_a_longest() -> None:
    with pytest.raises(InvalidArgument, match="at most"):
        parse_line(b'"' + b"x" * MAX_LINE + b'"')


def operations() -> list[Operation]:
    found = []
    for number, scene in enumerate(SCENES):
        play = Play(Dice(bytes([number]) * 16))
        scene(play)
        found += [step for step in play.steps if isinstance(step, Operation)]
    return found


def test_what_is_encoded_decodes_to_the_same() -> None:
    for operation in operations():
        line = encode_line({"id": 1, "op": operation.verb, "args": encode_args(operation)})
        request = decode_request(line)
        assert request.error is None
        assert decode_operation(request.op, request.args, 0) == operation


def test_every_verb_can_be_decoded() -> None:
    assert {operation.verb for operation in operations()} >= set(ALPHABET) - {"get_submission", "get_turn_journal"}


def test_every_answer_has_a_form_on_the_wire() -> None:
    state = EMPTY
    for operation in operations():
        state, answer = apply(state, operation)
        if isinstance(answer, Accept):
            assert json.loads(encode_line(wire.encode(answer.value))) == wire.encode(answer.value)


CLAIM = {"submission_id": "s", "attempt_id": "a", "owner_id": "w", "lease_expires_at": 1}


@pytest.mark.parametrize("bad", [None, True, 1.0, "1", 2**53 + 1, -(2**53) - 1, [], {}])
def test_an_integer_is_an_integer_within_bounds(bad: wire.Json) -> None:
    with pytest.raises(InvalidArgument, match="lease_expires_at"):
        decode_operation("claim", {**CLAIM, "lease_expires_at": bad}, 0)


@pytest.mark.parametrize("bad", [None, True, 1, [], {}])
def test_text_is_text(bad: wire.Json) -> None:
    with pytest.raises(InvalidArgument, match="owner_id"):
        decode_operation("claim", {**CLAIM, "owner_id": bad}, 0)


def test_what_an_operation_does_not_know_is_ignored() -> None:
    assert decode_operation("claim", {**CLAIM, "colour": "red"}, 5).now == 5


def test_absent_and_null_are_the_same() -> None:
    args: wire.Object = {"submission_id": "s", "attempt_id": "a", "next_attempt_id": "b"}
    bare = decode_operation("replace_turn_journal_attempt", args, 5)
    assert bare == decode_operation("replace_turn_journal_attempt", {**args, "lease": None, "now": None}, 5)
    assert bare == ReplaceTurnJournalAttempt(now=5, submission_id="s", attempt_id="a", next_attempt_id="b")


def test_nested_values_are_decoded_and_their_errors_named() -> None:
    args: wire.Object = {"submission_id": "s", "attempt_id": "a", "next_attempt_id": "b"}
    lease: wire.Object = {"owner_id": "w", "lease_expires_at": 9}
    decoded = decode_operation("replace_turn_journal_attempt", {**args, "lease": lease}, 0)
    assert isinstance(decoded, ReplaceTurnJournalAttempt)
    assert decoded.lease == Lease(owner_id="w", lease_expires_at=9)
    with pytest.raises(InvalidArgument, match="lease: lease_expires_at"):
        decode_operation("replace_turn_journal_attempt", {**args, "lease": {**lease, "lease_expires_at": True}}, 0)


def test_a_record_ignores_its_seq_and_loses_nothing_else() -> None:
    args: wire.Object = {"run_id": "r", "fence": {"submission_id": "s", "attempt_id": "a"}}
    decoded = decode_operation("append", {**args, "record": {"kind": "turn", "seq": "any", "text": None}}, 3)
    assert decoded == Append(
        now=3, run_id="r", record=Draft(kind="turn"), fence=Fence(submission_id="s", attempt_id="a")
    )
    for record in ({"kind": "turn", "colour": "red"}, {"kind": 5}, {}, {"kind": "turn", "timestamp": 1.5}):
        with pytest.raises(InvalidRecord):
            decode_operation("append", {**args, "record": record}, 0)
    with pytest.raises(InvalidArgument):
        decode_operation("append", {**args, "record": "turn"}, 0)


def test_an_unknown_verb_is_unsupported() -> None:
    with pytest.raises(Unsupported, match="levitate"):
        decode_operation("levitate", {}, 0)


def test_lone_surrogates_pass_the_wire_as_escapes() -> None:
    line = encode_line({"id": 1, "op": "x", "args": {"a": "\ud800"}})
    assert line.decode()
    assert decode_request(line).args == {"a": "\ud800"}


def test_the_depth_of_a_payload_is_not_the_depth_of_a_line() -> None:
    payload = "[" * MAX_JSON_DEPTH + "]" * MAX_JSON_DEPTH
    assert decode_request(encode_line({"id": 1, "op": "x", "args": {"payload": payload}})).args == {"payload": payload}
