"""Recording a run's model replies, and playing them back without a model."""

from __future__ import annotations

from pathlib import Path

import pytest
from autogen_core import FunctionCall
from autogen_core.models import CreateResult, ModelFamily, ModelInfo, RequestUsage, UserMessage
from autogen_core.tools import FunctionTool
from autogen_ext.models.replay import ReplayChatCompletionClient

from agentloop_autogen.console.tape import Role, Tape, TapePlayer, TapeRecorder, load_tape
from agentloop_autogen.errors import ModelError, UsageError
from agentloop_autogen.recording import RecordedClient, RecordingClient

ASK = [UserMessage(content="How many?", source="user")]
INFO = ModelInfo(
    vision=False, function_calling=True, json_output=True, structured_output=True, family=ModelFamily.UNKNOWN
)
CALL = CreateResult(
    finish_reason="function_calls",
    content=[FunctionCall(id="1", name="count", arguments='{"what": "lamps"}')],
    usage=RequestUsage(prompt_tokens=11, completion_tokens=7),
    cached=False,
    thought="I should count.",
)


def count(what: str) -> str:
    """Count things."""
    return f"3 {what}"


TOOLS = [FunctionTool(count, description="Count things.")]


async def recorded(path: Path) -> Tape:
    recorder = TapeRecorder(path)
    planner = RecordingClient(ReplayChatCompletionClient([CALL, "Three."], model_info=INFO), recorder)
    verifier = RecordingClient(ReplayChatCompletionClient(["{}"], model_info=INFO), recorder, verifier=True)
    await planner.create(ASK, tools=TOOLS)
    await verifier.create(ASK)
    streamed = [part async for part in planner.create_stream(ASK)]
    assert streamed[0] == "Three."
    recorder.save(scenario="mine", request="How many?", model="m", recorded="2031-01-02", policy="extended")
    await planner.close()
    assert planner.actual_usage().completion_tokens >= 1
    assert planner.total_usage().prompt_tokens >= 1
    assert planner.count_tokens(ASK) == 2
    assert planner.remaining_tokens(ASK) > 0
    assert planner.model_info == INFO
    return load_tape(path)


async def test_a_tape_holds_every_reply_in_order_with_its_role(tmp_path: Path) -> None:
    """Replies of all roles land on one tape in the order they were asked for, the streamed one too."""
    tape = await recorded(tmp_path / "deep" / "tape.json")
    assert [reply.role for reply in tape.replies] == [Role.PLANNING, Role.VERIFIER, Role.SYNTHESIS]
    assert tape.replies[0].calls[0].arguments == '{"what": "lamps"}'
    assert tape.replies[0].thought == "I should count."
    assert (tape.model, tape.recorded, tape.request) == ("m", "2031-01-02", "How many?")


async def test_a_tape_plays_back_what_was_recorded(tmp_path: Path) -> None:
    """Played back, the calls, texts, thoughts and token counts are those that were recorded."""
    player = TapePlayer(await recorded(tmp_path / "tape.json"))
    planner, verifier = RecordedClient(player), RecordedClient(player, verifier=True)
    assert (await planner.create(ASK, tools=TOOLS)) == CALL
    assert player.problem().startswith("the run no longer follows its recording: the run ended with 2 of 3")
    player = TapePlayer(player.tape)
    planner, verifier = RecordedClient(player), RecordedClient(player, verifier=True)
    await planner.create(ASK, tools=TOOLS)
    assert (await verifier.create(ASK)).content == "{}"
    parts = [part async for part in planner.create_stream(ASK)]
    assert parts[0] == "Three."
    assert isinstance(parts[1], CreateResult)
    assert player.problem() == ""
    assert planner.actual_usage() == planner.total_usage()
    assert planner.total_usage().prompt_tokens == 11 + parts[1].usage.prompt_tokens
    assert planner.model_info["function_calling"]
    assert 0 < planner.remaining_tokens(ASK) < 40_000
    await planner.close()


async def test_a_run_that_asks_for_another_role_has_diverged(tmp_path: Path) -> None:
    """A reply asked for in another role than the recorded one ends playback with both roles named."""
    player = TapePlayer(await recorded(tmp_path / "tape.json"))
    with pytest.raises(ModelError, match="reply 1 is for planning and the run asks for synthesis"):
        await RecordedClient(player).create(ASK)
    with pytest.raises(ModelError, match="reply 1 is for planning"):
        await RecordedClient(player).create(ASK, tools=TOOLS)
    assert "record it anew" in player.problem()


async def test_a_run_that_asks_for_too_much_has_diverged(tmp_path: Path) -> None:
    """A call beyond the last recorded reply says how many there are."""
    tape = await recorded(tmp_path / "tape.json")
    player = TapePlayer(tape.model_copy(update={"replies": ()}))
    with pytest.raises(ModelError, match="it holds 0 replies and the run asks for one more"):
        await RecordedClient(player, verifier=True).create(ASK)


async def test_a_call_without_a_reply_makes_no_tape(tmp_path: Path) -> None:
    """A run in which a model call failed cannot be played back, so it is not written."""
    recorder = TapeRecorder(tmp_path / "t.json")
    client = RecordingClient(ReplayChatCompletionClient([], model_info=INFO), recorder)
    with pytest.raises(ValueError, match="No more mock responses"):
        await client.create(ASK)
    with pytest.raises(ModelError, match="1 model call"):
        recorder.save(scenario="mine", request="", model="m", recorded="", policy="extended")
    assert not (tmp_path / "t.json").exists()


def test_a_tape_that_cannot_be_written_or_read_is_one_line(tmp_path: Path) -> None:
    """A path that is no file, a missing tape and a broken one are each refused with what to do."""
    with pytest.raises(UsageError, match="cannot write"):
        TapeRecorder(tmp_path)
    recorder = TapeRecorder(tmp_path / "gone" / "tape.json")
    recorder.path.parent.rmdir()
    with pytest.raises(UsageError, match="cannot write"):
        recorder.save(scenario="mine", request="", model="m", recorded="", policy="extended")
    with pytest.raises(UsageError, match="--record"):
        load_tape(tmp_path / "absent.json")
    broken = tmp_path / "broken.json"
    broken.write_text('{"scenario": "x"}', encoding="utf-8")
    with pytest.raises(UsageError, match="is no recording"):
        load_tape(broken)


def test_the_old_capabilities_property_warns(tmp_path: Path) -> None:
    """The deprecated property still answers, with the warning AutoGen's own clients give."""
    client = RecordedClient(
        TapePlayer(Tape(scenario="a", request="", model="m", recorded="", policy="off", replies=()))
    )
    with pytest.warns(DeprecationWarning, match="model_info"):
        assert client.capabilities == client.model_info  # pyright: ignore[reportDeprecated] - this is what is tested
