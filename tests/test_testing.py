"""The scripted verifier: what it gives, what it remembers, and how it travels."""

from __future__ import annotations

import asyncio
import json

import pytest
from autogen_core import CancellationToken

from agentloop_autogen.core.records import Evidence, Failure, Slot, SlotState, UnavailableVerdict, Verdict
from agentloop_autogen.errors import UsageError
from agentloop_autogen.testing import ScriptedVerifier, VerifyCall
from agentloop_autogen.verify import SlotVerifier

OPEN = Verdict(answer_complete=False, need_tool=True, confidence=0.5, missing=("x",))
CLOSED = Verdict(answer_complete=True, need_tool=False, confidence=0.9)
EVIDENCE = Evidence(id="e1", tool="t", is_error=False, finding="x is 1")


async def test_verdicts_come_in_order_and_the_last_one_stays() -> None:
    """Each call takes the next verdict; once they are used up the last one is repeated."""
    verifier = ScriptedVerifier([OPEN, CLOSED])
    assert [await verifier.verify("q", "", ()) for _ in range(4)] == [OPEN, CLOSED, CLOSED, CLOSED]


async def test_calls_are_recorded() -> None:
    """Request, draft, evidence and token of every call can be looked at afterwards."""
    verifier, token = ScriptedVerifier([CLOSED]), CancellationToken()
    await verifier.verify("q", "d", [EVIDENCE], cancellation_token=token)
    assert verifier.calls == [VerifyCall("q", "d", (EVIDENCE,), token)]
    assert verifier.calls[0].evidence[0].finding == "x is 1"


@pytest.mark.parametrize("error", [ValueError, ValueError("bad"), asyncio.CancelledError, asyncio.CancelledError()])
async def test_a_verdict_may_be_an_exception(error: BaseException | type[BaseException]) -> None:
    """An exception, by instance or by class, is raised, and the call is recorded all the same."""
    verifier = ScriptedVerifier([error, CLOSED])
    with pytest.raises(error if isinstance(error, type) else type(error)):
        await verifier.verify("q", "", ())
    assert await verifier.verify("q", "", ()) == CLOSED
    assert len(verifier.calls) == 2


async def test_a_call_too_many_is_an_error_where_nothing_repeats() -> None:
    """With `repeat_last=False` the script must be long enough."""
    verifier = ScriptedVerifier([CLOSED], repeat_last=False)
    await verifier.verify("q", "", ())
    with pytest.raises(UsageError, match="has 1 verdicts and was asked 2 times"):
        await verifier.verify("q", "", ())


async def test_an_empty_script_needs_repeat_last_false() -> None:
    """Nothing can be repeated: that is said when the verifier is made."""
    with pytest.raises(UsageError, match="at least one verdict"):
        ScriptedVerifier([])
    with pytest.raises(UsageError, match="has 0 verdicts"):
        await ScriptedVerifier([], repeat_last=False).verify("q", "", ())


async def test_it_is_a_component() -> None:
    """Verdicts and settings survive dump and load, the unavailable verdict with its cause included."""
    slots = (Slot(name="x", state=SlotState.SUPPORTED, quote="x is 1", evidence=("e1",)),)
    verdicts = [
        OPEN,
        CLOSED.model_copy(update={"slots": slots, "failure": Failure.LOW_CONFIDENCE}),
        UnavailableVerdict(cause="gone"),
        UnavailableVerdict(),
    ]
    model = ScriptedVerifier(verdicts, repeat_last=False).dump_component()
    assert model.provider == "agentloop_autogen.testing.ScriptedVerifier"
    for source in (model, json.loads(model.model_dump_json())):
        loaded = SlotVerifier.load_component(source)
        assert type(loaded) is ScriptedVerifier
        again = [await loaded.verify("q", "", ()) for _ in verdicts]
        assert again == verdicts
        assert [type(verdict) for verdict in again] == [type(verdict) for verdict in verdicts]
        with pytest.raises(UsageError):
            await loaded.verify("q", "", ())


def test_scripted_exceptions_cannot_be_dumped() -> None:
    """An exception has no JSON form, and dumping says so instead of dropping it."""
    with pytest.raises(UsageError, match="cannot be dumped"):
        ScriptedVerifier([ValueError("bad")]).dump_component()
