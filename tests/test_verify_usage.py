"""Metering of verifier calls where many agents share one verifier."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from types import SimpleNamespace
from typing import Any, cast

import pytest
from autogen_core.models import RequestUsage as AutoGenUsage

from agentloop_autogen.core.records import RequestUsage
from agentloop_autogen.verify import TokenCounts, UsageMeter, collect_usage, record_usage


def tokens(prompt: Any, completion: Any = 1) -> TokenCounts:
    """Counts as a client may report them."""
    return cast("TokenCounts", SimpleNamespace(prompt_tokens=prompt, completion_tokens=completion))


async def test_concurrent_blocks_see_only_their_own_calls() -> None:
    """Twenty tasks record at the same time, and each meter holds what its own task and its children recorded."""

    async def call(number: int) -> None:
        await asyncio.sleep(0.001 * (number % 5))
        record_usage(AutoGenUsage(prompt_tokens=number, completion_tokens=1))

    async def agent(number: int) -> UsageMeter:
        with collect_usage() as meter:
            await asyncio.gather(call(number), asyncio.create_task(call(number)))
        return meter

    for number, meter in enumerate(await asyncio.gather(*map(agent, range(20)))):
        assert (meter.calls, meter.total) == (2, RequestUsage(prompt_tokens=2 * number, completion_tokens=2))


async def test_a_cancelled_call_leaves_what_it_spent() -> None:
    """What was recorded before a timeout can be read after it."""

    async def call() -> None:
        record_usage(tokens(3))
        await asyncio.sleep(60)

    with collect_usage() as meter, pytest.raises(asyncio.TimeoutError):
        await asyncio.wait_for(call(), 0.01)
    assert (meter.calls, meter.total.total) == (1, 4)


def test_nested_blocks_all_count() -> None:
    """A verifier that meters the one it wraps hides nothing from the loop."""
    with collect_usage() as outer:
        record_usage(tokens(1))
        with collect_usage() as inner:
            record_usage(tokens(2))
    record_usage(tokens(100))
    assert (outer.total.prompt_tokens, inner.total.prompt_tokens) == (3, 2)


@pytest.mark.parametrize("count", [None, -5, float("nan"), float("inf"), "many"])
def test_nonsense_counts_as_no_tokens(count: object) -> None:
    """A server that reports null or worse costs no exception; the call itself is counted."""
    with collect_usage() as meter:
        record_usage(tokens(count))
        record_usage(None)
    assert (meter.calls, meter.total) == (2, RequestUsage(prompt_tokens=0, completion_tokens=1))


async def test_closing_a_generator_from_another_context_is_harmless() -> None:
    """A stream that meters across a yield may be closed by whoever holds it."""

    meters: list[UsageMeter] = []

    async def stream() -> AsyncGenerator[None]:
        with collect_usage() as meter:
            meters.append(meter)
            yield

    generator = stream()
    await asyncio.create_task(cast("Any", generator.__anext__()))
    await asyncio.create_task(cast("Any", generator.aclose()))
    record_usage(tokens(5))
    assert [meter.calls for meter in meters] == [0], "nothing is metered once the stream is closed"
