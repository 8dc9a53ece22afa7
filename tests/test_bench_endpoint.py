"""The counted endpoint: what passes through it, and what it counts."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Callable, Mapping
from typing import Any

import httpx
import pytest

from agentloop_autogen.bench.endpoint import AttemptTraffic, CountedEndpoint, Upstream
from agentloop_autogen.errors import ModelError, UsageError

from .fake_openai import FakeOpenAI, Reply, tool_call

DECODING = {"max_tokens": 77, "temperature": 0.0, "seed": 5}
ASKED: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "hello " * 10}]}
TOOLS = [{"type": "function", "function": {"name": "look", "description": "", "parameters": {"type": "object"}}}]


def counted(*servers: FakeOpenAI, most_requests: int | None = None) -> CountedEndpoint:
    return CountedEndpoint([Upstream(base_url=server.base_url) for server in servers], most_requests=most_requests)


async def post(traffic: AttemptTraffic, timeout_s: float = 10.0, **fields: Any) -> httpx.Response:
    async with httpx.AsyncClient(timeout=timeout_s) as client:
        return await client.post(f"{traffic.base_url}/chat/completions", json={**ASKED, **fields})


def closed_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


async def until(holds: Callable[[], bool]) -> None:
    for _ in range(250):
        if holds():
            return
        await asyncio.sleep(0.02)
    pytest.fail("it did not come about within 5 s")


async def straight(server: FakeOpenAI, **fields: Any) -> httpx.Response:
    async with httpx.AsyncClient() as client:
        return await client.post(f"{server.base_url}/chat/completions", json={**ASKED, **fields})


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
async def test_a_reply_passes_unchanged_and_is_counted(stream: bool) -> None:
    """A reply reaches the system byte by byte as the server sent it, and its cost is counted, streamed or not."""
    reply = Reply(content="the answer is 42", usage=(120, 7), cached=90)
    more: Mapping[str, Any] = {"stream": True, "stream_options": {"include_usage": True}} if stream else {}
    with FakeOpenAI([reply]) as server, counted(server) as endpoint:
        async with endpoint.attempt(DECODING) as traffic:
            got = await post(traffic, **more)
        wanted = await straight(server, **more)
    assert got.content == wanted.content
    assert got.headers["content-type"] == wanted.headers["content-type"]
    (call,) = traffic.calls
    assert (call.prompt_tokens, call.completion_tokens, call.cached_tokens, call.status) == (120, 7, 90, 200)
    assert call.content == "the answer is 42"
    assert not call.offers_tools
    assert not call.estimated
    assert 0 <= call.began_s <= call.ended_s
    assert (call.first_token_s is not None) == stream


async def test_tool_calls_are_kept_the_same_way_streamed_or_not() -> None:
    """The calls a model asks for, and that tools were on offer, are counted alike for both kinds of reply."""
    reply = Reply(tool_calls=[tool_call("look", {"x": 1}), tool_call("look", {"x": 2}, call_id="c2")])
    with FakeOpenAI([reply]) as server, counted(server) as endpoint:
        async with endpoint.attempt(DECODING) as traffic:
            await post(traffic, tools=TOOLS)
            await post(traffic, tools=TOOLS, stream=True)
    one, two = traffic.calls
    assert one.tool_calls == two.tool_calls == tuple({"name": "look", "arguments": f'{{"x": {x}}}'} for x in (1, 2))
    assert one.offers_tools
    assert two.offers_tools


async def test_usage_is_asked_for_but_only_shown_to_those_who_asked() -> None:
    """A streamed request is always asked for its usage; a system that did not ask does not see the chunk."""
    with FakeOpenAI([Reply(content="hi", usage=(9, 3))]) as server, counted(server) as endpoint:
        async with endpoint.attempt(DECODING) as traffic:
            unasked = await post(traffic, stream=True)
            asked = await post(traffic, stream=True, stream_options={"include_usage": True})
        wanted = await straight(server, stream=True)
    assert unasked.content == wanted.content
    assert b'"usage"' in asked.content
    assert [call.prompt_tokens for call in traffic.calls] == [9, 9]


async def test_decoding_is_filled_in_only_where_the_system_is_silent() -> None:
    """Output cap, temperature and seed are the attempt's unless the request sets them, under either name of the cap."""
    with FakeOpenAI(["ok"]) as server, counted(server) as endpoint:
        async with endpoint.attempt(DECODING) as traffic:
            await post(traffic)
            await post(traffic, temperature=0.5, seed=None)
            await post(traffic, max_completion_tokens=9)
    silent, warm, capped = server.bodies
    assert {name: silent[name] for name in DECODING} == DECODING
    assert (warm["temperature"], warm["seed"]) == (0.5, 5)
    assert "max_tokens" not in capped
    assert silent["messages"] == ASKED["messages"]


async def test_a_refusal_is_passed_on_and_counted() -> None:
    """A request the server refuses costs no tokens, but counts as a request with its status."""
    with FakeOpenAI([Reply(status=400, message="too long")]) as server, counted(server) as endpoint:
        async with endpoint.attempt(DECODING) as traffic:
            got = await post(traffic)
    assert got.status_code == 400
    assert "too long" in got.text
    (call,) = traffic.calls
    assert (call.status, call.prompt_tokens, call.completion_tokens) == (400, 0, 0)
    assert not traffic.unreachable


async def test_a_request_that_is_no_json_goes_on_as_it_is() -> None:
    """What a system sends is never replaced: the server itself refuses what it cannot read, and that counts."""
    with FakeOpenAI(["ok"]) as server, counted(server) as endpoint:
        async with endpoint.attempt(DECODING) as traffic, httpx.AsyncClient() as client:
            got = await client.post(f"{traffic.base_url}/chat/completions", content=b"{broken")
    assert got.status_code == 500
    assert [call.status for call in traffic.calls] == [500]


async def test_a_request_its_system_gives_up_is_counted_with_an_estimate() -> None:
    """A system that hangs up is charged for its prompt by a marked estimate, and the server is told."""
    with FakeOpenAI([Reply(hang=True)]) as server, counted(server) as endpoint:
        async with endpoint.attempt(DECODING) as traffic:
            with pytest.raises(httpx.ReadTimeout):
                await post(traffic, timeout_s=0.3)
            await until(lambda: bool(traffic.calls and server.hung_up))
    (call,) = traffic.calls
    assert (call.status, call.estimated, call.completion_tokens) == (499, True, 0)
    assert call.prompt_tokens == pytest.approx(len(json.dumps(ASKED["messages"])) / 4, rel=0.5)
    assert server.hung_up == 1


async def test_what_is_under_way_at_the_end_of_an_attempt_is_cut_off_and_counted() -> None:
    """At the end of an attempt its requests end too, are counted, and no later one gets through."""
    with FakeOpenAI([Reply(hang=True)]) as server, counted(server) as endpoint:
        async with endpoint.attempt(DECODING) as traffic:
            asking = asyncio.create_task(post(traffic))
            await until(lambda: bool(server.bodies))
        assert [call.status for call in traffic.calls] == [499]
        assert (await asking).status_code == 500
        late = await post(traffic)
    assert late.status_code == 410
    assert len(traffic.calls) == 1


async def test_an_endpoint_that_is_down_is_told_apart_from_a_bad_request() -> None:
    """Where nothing listens the system gets an error that says so, and the attempt is marked as without a model."""
    with CountedEndpoint([Upstream(base_url=f"http://127.0.0.1:{closed_port()}/v1")]) as endpoint:
        async with endpoint.attempt(DECODING) as traffic:
            got = await post(traffic)
    assert got.status_code == 502
    assert "start it again" in got.json()["error"]["message"]
    assert traffic.unreachable
    assert [(call.status, call.prompt_tokens) for call in traffic.calls] == [(502, 0)]


@pytest.mark.parametrize(("status", "out_of_reach"), [(429, True), (503, True), (404, False), (500, False)])
async def test_a_server_without_a_model_to_ask_counts_as_out_of_reach(status: int, out_of_reach: bool) -> None:
    """Overrun and out of service are no fault of the system; a wrong request and a crash of its making are."""
    with FakeOpenAI([Reply(status=status)]) as server, counted(server) as endpoint:
        async with endpoint.attempt(DECODING) as traffic:
            assert (await post(traffic)).status_code == status
    assert traffic.unreachable == out_of_reach
    assert "sesame" not in repr(Upstream(base_url="http://127.0.0.1:1/v1", api_key="sesame"))


async def test_a_stream_that_breaks_off_breaks_off_for_the_system_too() -> None:
    """A reply that is cut in the middle is not made to look complete, and counts as the endpoint's fault."""
    with FakeOpenAI([Reply(content="a long answer", break_off=True)]) as server, counted(server) as endpoint:
        async with endpoint.attempt(DECODING) as traffic:
            with pytest.raises(httpx.RemoteProtocolError):
                await post(traffic, stream=True)
    (call,) = traffic.calls
    assert (call.status, call.estimated) == (502, True)
    assert traffic.unreachable


async def test_models_are_listed_without_being_counted() -> None:
    """A system may ask which models there are; that is no model call."""
    with FakeOpenAI(["ok"], served="m") as server, counted(server) as endpoint:
        async with endpoint.attempt(DECODING) as traffic, httpx.AsyncClient() as client:
            got = await client.get(f"{traffic.base_url}/models")
    assert got.json()["data"][0]["id"] == "m"
    assert traffic.calls == ()


async def test_the_key_is_the_endpoints_own_and_no_systems() -> None:
    """The key goes to the server and to nobody else: what a system sends as its key is dropped."""
    server = FakeOpenAI(["ok"], api_key="right")
    with server, CountedEndpoint([Upstream(base_url=server.base_url, api_key="right")]) as endpoint:
        async with endpoint.attempt(DECODING) as traffic, httpx.AsyncClient() as client:
            url = f"{traffic.base_url}/chat/completions"
            got = await client.post(url, json=ASKED, headers={"Authorization": "Bearer wrong"})
    assert got.status_code == 200


async def test_requests_beyond_the_limit_wait_in_order_and_their_waiting_is_told() -> None:
    """With one request at a time the others wait in order, and that time adds up outside of the calls."""
    with FakeOpenAI([Reply(content="ok", delay_s=0.2)]) as server, counted(server, most_requests=1) as endpoint:
        async with endpoint.attempt(DECODING) as traffic:
            asking: list[asyncio.Task[httpx.Response]] = []
            for number in range(3):
                asking.append(asyncio.create_task(post(traffic, user=str(number))))
                await asyncio.sleep(0.05)
            await asyncio.gather(*asking)
    assert [body["user"] for body in server.bodies] == ["0", "1", "2"]
    first, second, third = traffic.calls
    assert first.ended_s <= second.began_s
    assert second.ended_s <= third.began_s
    assert traffic.waited_s > 0.3


async def test_a_waiting_request_that_is_given_up_lets_the_next_one_through() -> None:
    """A request that hangs up while it waits never reaches the server, is not counted, and blocks nobody."""
    with FakeOpenAI([Reply(content="ok", delay_s=0.4)]) as server, counted(server, most_requests=1) as endpoint:
        async with endpoint.attempt(DECODING) as traffic:
            first = asyncio.create_task(post(traffic))
            await asyncio.sleep(0.1)
            with pytest.raises(httpx.ReadTimeout):
                await post(traffic, timeout_s=0.1)
            last = await post(traffic)
            await first
    assert last.status_code == 200
    assert len(traffic.calls) == len(server.bodies) == 2


async def test_attempts_spread_over_endpoints_and_stay_where_they_began() -> None:
    """Attempts that run at once go to different servers, and all requests of one go to the same."""
    with FakeOpenAI(["one"]) as one, FakeOpenAI(["two"]) as two, counted(one, two) as endpoint:
        async with endpoint.attempt(DECODING) as left, endpoint.attempt(DECODING) as right:
            for _ in range(3):
                await post(left)
                await post(right)
    assert {call.content for call in left.calls} == {"one"}
    assert {call.content for call in right.calls} == {"two"}


async def test_an_endpoint_that_is_down_gets_no_further_attempts_while_another_is_up() -> None:
    """Once an endpoint was out of reach, the next attempts go to the one that works."""
    with FakeOpenAI(["up"]) as up:
        down = Upstream(base_url=f"http://127.0.0.1:{closed_port()}/v1")
        with CountedEndpoint([down, Upstream(base_url=up.base_url)]) as endpoint:
            out_of_reach: list[bool] = []
            for _ in range(3):
                async with endpoint.attempt(DECODING) as traffic:
                    await post(traffic)
                out_of_reach.append(traffic.unreachable)
    assert out_of_reach == [True, False, False]
    assert len(up.bodies) == 2


async def test_long_texts_are_kept_bounded() -> None:
    """What the model wrote is kept in a record of bounded size, however much it was."""
    with FakeOpenAI([Reply(content="x" * 50_000)]) as server, counted(server) as endpoint:
        async with endpoint.attempt(DECODING) as traffic:
            got = await post(traffic)
    assert len(got.json()["choices"][0]["message"]["content"]) == 50_000
    assert len(traffic.calls[0].content) == 4_000


async def test_an_endpoint_must_be_running_and_have_somewhere_to_send_to() -> None:
    """Wrong use says what is wrong instead of failing later."""
    with pytest.raises(UsageError, match="at least one real endpoint"):
        CountedEndpoint([])
    with pytest.raises(UsageError, match="at least 1 request"):
        CountedEndpoint([Upstream(base_url="http://127.0.0.1:1/v1")], most_requests=0)
    idle = CountedEndpoint([Upstream(base_url="http://127.0.0.1:1/v1")])
    with pytest.raises(ModelError, match="not running"):
        async with idle.attempt(DECODING):
            pass
