"""The confidence of a verdict, taken from the probabilities its flags were written with."""

from __future__ import annotations

import math
import re
from typing import Any

import pytest
from autogen_core import ComponentModel
from autogen_core.models import ChatCompletionTokenLogprob, TopLogprob

from agentloop_autogen import ModelSlotVerifier, SlotVerifier, Verdict, VLLMChatCompletionClient
from agentloop_autogen.verify.confidence import calibrated

from .fake_openai import FakeOpenAI, Reply
from .test_vllm_client import client_of

STATED = 0.42
REPLY = (
    '{"slots": [{"name": "lamps", "evidence": [], "quote": "37", "state": "supported"}], "missing": [], '
    '"failure": "ok", "need_tool": false, "answer_complete": true, "confidence": 0.42}'
)
VERDICT = Verdict(answer_complete=True, need_tool=False, confidence=STATED)


def tokens_of(text: str, *, flag: dict[str, float]) -> list[ChatCompletionTokenLogprob]:
    """Cut a reply into tokens; those of the flags get the shares given, all others are certain."""
    tokens: list[ChatCompletionTokenLogprob] = []
    for piece in re.findall(r"\w+|\W", text):
        shares = flag if piece in ("true", "false") else {piece: 1.0}
        written = shares.get(piece, 0.9)
        tops = [TopLogprob(logprob=math.log(share), bytes=list(word.encode())) for word, share in shares.items()]
        tokens.append(
            ChatCompletionTokenLogprob(
                token=piece, logprob=math.log(written), bytes=list(piece.encode()), top_logprobs=tops
            )
        )
    return tokens


@pytest.mark.parametrize(
    ("flag", "expected"),
    [
        ({"true": 0.5, "false": 0.5}, 0.25),
        # What else might have stood there says nothing about the flag.
        ({"true": 0.3, "false": 0.3, " \n": 0.4}, 0.25),
    ],
)
def test_the_confidence_is_that_of_both_flags(flag: dict[str, float], expected: float) -> None:
    """Each flag counts with its share against the other value, and the shares are multiplied."""
    assert calibrated(VERDICT, tokens_of(REPLY, flag=flag)).confidence == pytest.approx(expected)


def test_a_value_that_is_not_shown_is_no_likelier_than_the_least_shown() -> None:
    """Where the other value is not among the alternatives it counts with the smallest share among them."""
    sure = tokens_of(REPLY, flag={"true": 0.9, "false": 0.9, "null": 0.1})
    for token in sure:
        assert token.top_logprobs is not None
        if token.token in ("true", "false"):
            token.top_logprobs = [top for top in token.top_logprobs if bytes(top.bytes or ()) == b"null"]
    assert calibrated(VERDICT, sure).confidence == pytest.approx(0.9 * 0.9)


def test_values_are_found_behind_punctuation_and_in_pieces() -> None:
    """A token may hold the colon and the start of the value alone; its alternatives are read in the same way."""
    pieces = ['{"answer_complete"', ": t", 'rue, "need', '_tool":', " false", "}"]
    tokens = [
        ChatCompletionTokenLogprob(
            token=piece,
            logprob=math.log(0.6),
            bytes=list(piece.encode()),
            top_logprobs=[
                TopLogprob(logprob=math.log(0.6), bytes=list(piece.encode())),
                TopLogprob(logprob=math.log(0.2), bytes=list((": f" if piece == ": t" else " true,").encode())),
            ],
        )
        for piece in pieces
    ]
    assert calibrated(VERDICT, tokens).confidence == pytest.approx(0.75 * 0.75)


def test_of_several_verdicts_the_last_one_counts() -> None:
    """A verdict that is quoted before the real one says nothing about its confidence."""
    quoted = tokens_of(REPLY, flag={"true": 0.5, "false": 0.5})
    tokens = [*quoted, *tokens_of(REPLY, flag={"true": 0.8, "false": 0.2})]
    assert calibrated(VERDICT, tokens).confidence == pytest.approx(0.8 * 0.2)


@pytest.mark.parametrize("text", ["", "no flags", '{"answer_complete": true}', '{"need_tool": "true"}'])
def test_without_both_flags_nothing_changes(text: str) -> None:
    """Where the tokens do not hold both flags, or there are no tokens, the stated confidence stays."""
    assert calibrated(VERDICT, tokens_of(text, flag={"true": 0.5, "false": 0.5})) == VERDICT
    assert calibrated(VERDICT, None) == VERDICT


def wire_tokens(flag: dict[str, float]) -> list[dict[str, Any]]:
    """Return the tokens of the reply as a server sends them."""
    return [
        {
            "token": token.token,
            "logprob": token.logprob,
            "bytes": token.bytes,
            "top_logprobs": [
                {"token": bytes(top.bytes or ()).decode(), "logprob": top.logprob, "bytes": top.bytes}
                for top in token.top_logprobs or ()
            ],
        }
        for token in tokens_of(REPLY, flag=flag)
    ]


@pytest.mark.parametrize(("asked", "expected"), [(True, 0.8 * 0.2), (False, STATED)])
async def test_the_verifier_takes_it_when_asked_to(asked: bool, expected: float) -> None:
    """With the switch the request asks for log probabilities and the verdict carries their confidence; else neither."""
    with FakeOpenAI([Reply(content=REPLY, logprobs=wire_tokens({"true": 0.4, "false": 0.1}))]) as server:
        async with client_of(server) as client:
            verifier = ModelSlotVerifier(client, calibrated_confidence=asked)
            verdict = await verifier.verify("How many lamps?", "There are 37.", [])
    (body,) = server.bodies
    assert (body.get("logprobs"), body.get("top_logprobs")) == ((True, 5) if asked else (None, None))
    assert verdict.confidence == pytest.approx(expected)


async def test_a_server_without_log_probabilities_is_asked_once() -> None:
    """A refusal is remembered, costs neither the verdict nor its format, and the stated confidence stays."""

    def refuse(body: dict[str, Any]) -> Reply:
        refused = "logprobs" in body
        return Reply(status=400, message="logprobs are not supported") if refused else Reply(content=REPLY)

    with FakeOpenAI([refuse]) as server:
        async with client_of(server) as client:
            verifier = ModelSlotVerifier(client, calibrated_confidence=True)
            verdicts = [await verifier.verify("How many lamps?", "There are 37.", []) for _ in range(2)]
    assert [verdict.confidence for verdict in verdicts] == [STATED, STATED]
    assert ["logprobs" in body for body in server.bodies] == [True, False, False]
    assert {body["response_format"]["type"] for body in server.bodies} == {"json_schema"}


def test_the_switch_survives_dump_and_load() -> None:
    """A verifier that is dumped and loaded still asks for log probabilities."""
    dumped = ModelSlotVerifier(VLLMChatCompletionClient("m"), calibrated_confidence=True).dump_component()
    loaded = SlotVerifier.load_component(ComponentModel.model_validate_json(dumped.model_dump_json()))
    assert loaded.dump_component().config["calibrated_confidence"] is True
