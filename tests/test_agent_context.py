"""What the model gets to read: one system message, the request, whole pairs, bounded size; and what is kept after."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import pytest
from autogen_agentchat.messages import MultiModalMessage, TextMessage
from autogen_core import CancellationToken, FunctionCall, Image
from autogen_core.memory import ListMemory, MemoryContent, MemoryMimeType
from autogen_core.model_context import (
    BufferedChatCompletionContext,
    ChatCompletionContext,
    HeadAndTailChatCompletionContext,
    UnboundedChatCompletionContext,
)
from autogen_core.models import (
    AssistantMessage,
    FunctionExecutionResult,
    FunctionExecutionResultMessage,
    LLMMessage,
    SystemMessage,
    UserMessage,
)
from PIL import Image as PilImage
from pydantic import BaseModel

from agentloop_autogen import Failure, LoopConfig, Verdict
from agentloop_autogen.testing import ScriptedVerifier

from .scripted_model import (
    CLOSED,
    UNWRITTEN,
    ClosedByDraft,
    ModelRequest,
    ScriptedModel,
    agent_of,
    call,
    dangling,
    open_verdict,
    outcome_of,
)


def count(number: int) -> str:
    """Count."""
    return f"finding number {number} is w{number * 7919}"


def assert_whole(request: ModelRequest) -> None:
    """Check what every server demands of a prompt."""
    messages = request.messages
    assert [i for i, message in enumerate(messages) if isinstance(message, SystemMessage)] in ([], [0])
    assert any(isinstance(message, UserMessage) for message in messages)
    for before, after in pairwise([*messages, UserMessage(content="end", source="end")]):
        calls = before.content if isinstance(before, AssistantMessage) else ""
        results = after.content if isinstance(after, FunctionExecutionResultMessage) else []
        assert [item.id for item in calls if isinstance(item, FunctionCall)] == [item.call_id for item in results]


def picture() -> Image:
    """A small picture."""
    return Image.from_pil(PilImage.new("RGB", (4, 4)))


async def test_a_memory_joins_the_one_system_message_over_repeated_runs() -> None:
    """A ListMemory adds its text to the system message, once, however often the agent runs."""
    memory = ListMemory()
    await memory.add(MemoryContent(content="the user likes metric units", mime_type=MemoryMimeType.TEXT))
    model = ScriptedModel(["one", "two", "three"])
    agent = agent_of(model, memory=[memory], system_message="Be brief.")
    for _ in range(3):
        await agent.run(task="go")
    for request in model.requests:
        assert_whole(request)
        system = request.messages[0].content
        assert isinstance(system, str)
        assert system.startswith("Be brief.")
        assert system.count("metric units") == 1


async def test_without_a_system_message_none_is_sent() -> None:
    """`system_message=None` sends no system message, in planning as in the answer call."""
    model = ScriptedModel([call("count", {"number": 1}), "answer"])
    agent = agent_of(model, [UNWRITTEN], tools=[count], system_message=None)
    await agent.run(task="go")
    assert len(model.requests) == 2
    assert not [m for request in model.requests for m in request.messages if isinstance(m, SystemMessage)]


async def test_a_memory_without_a_system_message_becomes_the_first_message() -> None:
    """Without a system message of its own the agent still puts the memory first, not behind the task."""
    memory = ListMemory()
    await memory.add(MemoryContent(content="the user likes metric units", mime_type=MemoryMimeType.TEXT))
    model = ScriptedModel(["one"])
    agent = agent_of(model, memory=[memory], system_message=None)
    await agent.run(task="go")
    assert_whole(model.requests[0])
    assert isinstance(model.requests[0].messages[0], SystemMessage)


@pytest.mark.parametrize("size", [1, 2, 3, 4])
async def test_a_buffered_context_keeps_the_request_in_every_prompt(size: int) -> None:
    """However few messages the context keeps, every planning and answer prompt states the question."""
    model = ScriptedModel([*(call("count", {"number": n}) for n in range(5)), "answer"])
    context = BufferedChatCompletionContext(size)
    agent = agent_of(model, [*[open_verdict()] * 4, UNWRITTEN], tools=[count], model_context=context)
    await agent.run(task="how do these five numbers differ?")
    assert len(model.requests) == 6
    for request in model.requests:
        assert_whole(request)
        assert "how do these five numbers differ?" in request.text


async def test_a_turn_that_comes_back_with_nothing_new_does_not_end_with_the_agents_own_words() -> None:
    """Servers refuse two replies in a row; a swarm hands the turn back to who had it, with no message in between."""
    model = ScriptedModel(["I am looking.", "Still looking."])
    agent = agent_of(model, [CLOSED])
    await agent.run(task="when does the ferry leave?")
    await agent.run()
    last = model.requests[-1].messages[-1]
    assert isinstance(last, UserMessage)
    assert "your turn again" in str(last.content)
    assert "when does the ferry leave?" in model.requests[-1].text


async def test_a_short_request_is_not_mistaken_for_a_part_of_something_else() -> None:
    """A request of a few letters is put back although an unrelated user message contains none of it."""
    model = ScriptedModel([*(call("count", {"number": n}) for n in range(4)), "answer"])
    context = BufferedChatCompletionContext(2)
    agent = agent_of(model, [*[open_verdict()] * 4, CLOSED], tools=[count], model_context=context)
    await agent.run(
        task=[TextMessage(content="x", source="helper"), TextMessage(content="compare x and y", source="user")]
    )
    for request in model.requests:
        assert "compare x and y" in request.text


async def test_a_head_and_tail_context_is_tolerated() -> None:
    """A context that cuts out the middle yields whole prompts."""
    model = ScriptedModel([*(call("count", {"number": n}) for n in range(6)), "answer"])
    context = HeadAndTailChatCompletionContext(1, 2)
    agent = agent_of(model, [*[open_verdict()] * 6, CLOSED], tools=[count], model_context=context)
    await agent.run(task="go on")
    for request in model.requests:
        assert_whole(request)


async def test_orphans_of_a_trimming_context_are_left_out() -> None:
    """A context that returns its last three messages, whatever they are, never splits a pair in a prompt."""

    class LastThree(UnboundedChatCompletionContext):
        """Trims without looking."""

        async def get_messages(self) -> list[LLMMessage]:
            """Get."""
            return (await super().get_messages())[-3:]

    model = ScriptedModel([*(call("count", {"number": n}) for n in range(4)), "answer"])
    agent = agent_of(model, [*[open_verdict()] * 4, CLOSED], tools=[count], model_context=LastThree())
    await agent.run(task="go on")
    for request in model.requests:
        assert_whole(request)


@pytest.mark.parametrize("vision", [True, False])
async def test_images_reach_models_that_see_and_no_others(vision: bool) -> None:
    """A picture in the task is sent to a model with vision and named to one without, in both kinds of calls."""
    model = ScriptedModel([call("count", {"number": 1}), "answer"], vision=vision)
    verifier = ScriptedVerifier([UNWRITTEN])
    agent = agent_of(model, verifier, tools=[count])
    await agent.run(task=MultiModalMessage(content=["what is this?", picture()], source="user"))
    for request in model.requests:
        parts = [p for m in request.messages if isinstance(m, UserMessage) for p in m.content if isinstance(p, Image)]
        assert bool(parts) is vision
        assert "what is this?" in request.text
        assert len([m for m in request.messages if isinstance(m, UserMessage)]) == 1
    assert "what is this?" in verifier.calls[0].request


async def test_tools_are_offered_while_planning_and_never_when_answering() -> None:
    """Planning offers the tools, the answer call neither tools nor a choice; nobody ever sends an empty list."""
    model = ScriptedModel([call("count", {"number": 1}), "answer"])
    agent = agent_of(model, [UNWRITTEN], tools=[count])
    await agent.run(task="go")
    assert model.requests[0].tool_names == ["count"]
    assert [bool(request.tools) for request in model.requests] == [True, False]
    assert [request.tool_choice for request in model.requests] == [None, None]
    toolless = ScriptedModel(["answer"])
    await agent_of(toolless).run(task="go")
    assert not toolless.requests[0].tools


async def test_the_output_type_is_asked_for_in_the_answer_call_only() -> None:
    """Planning calls carry no output format, which would forbid tool calls on some servers."""

    class Reply(BaseModel):
        """A reply."""

        value: int

    model = ScriptedModel([call("count", {"number": 1}), "draft", '{"value": 1}'])
    agent = agent_of(model, ClosedByDraft(), tools=[count], output_content_type=Reply)
    await agent.run(task="go")
    assert [request.json_output for request in model.requests] == [None, None, Reply]


@pytest.mark.parametrize("rounds", [1, 8])
async def test_planning_prompts_are_bounded(rounds: int) -> None:
    """Fifty large results in a round, or eight rounds of them, still fit into `max_prompt_chars`."""

    def dump(number: int) -> str:
        """Dump."""
        return f"line {number}: " + "lorem ipsum " * 2000

    calls = [[call("dump", {"number": n * 100 + i}, call_id=f"c{i}") for i in range(50)] for n in range(rounds)]
    model = ScriptedModel([*calls, "answer"])
    agent = agent_of(model, ClosedByDraft(), tools=[dump], loop=LoopConfig(max_prompt_chars=40_000, patience=20))
    await agent.run(task="go")
    assert len(model.requests) == rounds + 1
    for request in model.requests:
        assert len(request.text) < 60_000
        assert_whole(request)


async def test_large_arguments_and_texts_are_bounded_too() -> None:
    """A model that writes huge arguments, or a long conversation, does not outgrow the prompt."""

    def write(text: str) -> str:
        """Write."""
        return "ok, written"

    model = ScriptedModel([call("write", {"text": f"{n}" + "word " * 20_000}) for n in range(3)] + ["done"])
    context = UnboundedChatCompletionContext(
        initial_messages=[UserMessage(content="old " * 20_000, source="user") for _ in range(3)]
    )
    loop = LoopConfig(max_prompt_chars=30_000)
    agent = agent_of(model, ClosedByDraft(), tools=[write], loop=loop, model_context=context)
    await agent.run(task="write three files")
    for request in model.requests:
        assert len(request.text) < 45_000
        assert_whole(request)
    assert "write three files" in model.requests[-1].text


async def test_answer_prompts_are_bounded() -> None:
    """The answer prompt stays within the evidence bound whatever the tools returned."""

    def dump(number: int) -> str:
        """Dump."""
        return f"line {number}: " + f"lorem{number} ipsum " * 20_000

    calls = [call("dump", {"number": n}, call_id=f"c{n}") for n in range(30)]
    model = ScriptedModel([calls, "answer"])
    agent = agent_of(model, [UNWRITTEN], tools=[dump])
    await agent.run(task="go")
    assert len(model.requests[-1].text) < 16_000
    assert "go" in model.requests[-1].text


async def test_a_refused_prompt_is_tried_again_much_shorter() -> None:
    """A context-length error in planning is mended by one retry with a quarter of the prompt."""
    bounds: list[int] = []

    def reply(request: ModelRequest) -> object:
        bounds.append(len(request.text))
        if len(request.text) > 20_000:
            raise ValueError("maximum context length exceeded")
        return "done" if len(bounds) > 3 else call("dump", {"number": len(bounds)})

    def dump(number: int) -> str:
        """Dump."""
        return f"line {number}: " + f"lorem{number} ipsum " * 20_000

    model = ScriptedModel([reply], repeat_last=True)
    loop = LoopConfig(max_prompt_chars=40_000, max_result_chars=12_000)
    agent = agent_of(model, ClosedByDraft(), tools=[dump], loop=loop)
    done = await agent.run(task="go")
    assert done.messages[-1].to_text() == "done"
    assert max(bounds) > 20_000


async def test_prompts_never_hold_two_user_turns_of_the_loop_in_a_row() -> None:
    """Feedback joins the user turn before it, so that templates with strict alternation accept the prompt."""
    model = ScriptedModel(["", "a draft", "", "done"])
    agent = agent_of(model, [open_verdict(), open_verdict(), CLOSED])
    await agent.run(task="go")
    assert len(model.requests) == 4
    for request in model.requests:
        roles = [type(message) for message in request.messages]
        assert all(one is not two for one, two in pairwise(roles))


async def test_drafts_and_nudges_do_not_stay_in_the_conversation() -> None:
    """After a run the conversation holds the task, the tool pairs and the reply, nothing the loop added."""
    model = ScriptedModel(["a first draft", call("count", {"number": 1}), "", "the reply"])
    agent = agent_of(model, [open_verdict(), open_verdict(), CLOSED], tools=[count])
    await agent.run(task="go")
    kept = await agent.model_context.get_messages()
    assert [type(message) for message in kept] == [
        UserMessage,
        AssistantMessage,
        FunctionExecutionResultMessage,
        AssistantMessage,
    ]
    assert kept[-1].content == "the reply"
    assert outcome_of(agent).rounds == 4


async def test_a_second_run_does_not_read_the_feedback_of_the_first() -> None:
    """What the loop told the model in one run is not in the prompts of the next."""
    model = ScriptedModel(["a first draft", "the reply", "the second reply"])
    agent = agent_of(model, [open_verdict("some slot"), CLOSED])
    await agent.run(task="first task")
    assert "some slot" in model.requests[1].text
    await agent.run(task="second task")
    assert "some slot" not in model.requests[2].text
    assert "a first draft" not in model.requests[2].text
    assert "the reply" in model.requests[2].text


async def test_feedback_about_trimmed_rounds_does_not_come_last() -> None:
    """In a context that forgets, old feedback is not repeated behind newer results as if it were the latest word."""
    model = ScriptedModel(["a draft", *(call("count", {"number": n}) for n in range(4)), "done"])
    context = BufferedChatCompletionContext(2)
    agent = agent_of(
        model,
        [open_verdict("the slot"), *[UNWRITTEN_BUT_GOING] * 4, CLOSED],
        tools=[count],
        model_context=context,
        loop=LoopConfig(typed_slots=False),
    )
    await agent.run(task="go")
    last = model.requests[-1].messages
    assert isinstance(last[-1], FunctionExecutionResultMessage)


UNWRITTEN_BUT_GOING = Verdict(answer_complete=False, need_tool=False, confidence=0.9, failure=Failure.OK)
"""Neither closed nor open: the loop goes on without naming anything."""


async def test_contexts_that_hand_out_copies_work_alike() -> None:
    """Feedback finds its place in a context that returns copies of its messages."""

    class Copying(UnboundedChatCompletionContext):
        """Returns copies."""

        async def get_messages(self) -> list[LLMMessage]:
            """Get."""
            return [message.model_copy(deep=True) for message in await super().get_messages()]

    async def prompts(context: ChatCompletionContext) -> list[Sequence[type[LLMMessage]]]:
        model = ScriptedModel(["a draft", call("count", {"number": 1}), "", call("count", {"number": 2}), "done"])
        verdicts = [open_verdict("the slot")] * 3 + [CLOSED]
        await agent_of(model, verdicts, tools=[count], model_context=context).run(task="go")
        return [[type(message) for message in request.messages] for request in model.requests]

    assert await prompts(Copying()) == await prompts(UnboundedChatCompletionContext())


async def test_a_conversation_with_old_orphans_is_mended_in_the_prompt() -> None:
    """Dangling calls another program left in the conversation do not reach the model."""
    context = UnboundedChatCompletionContext(
        initial_messages=[
            FunctionExecutionResultMessage(
                content=[FunctionExecutionResult(content="r", name="f", call_id="lost", is_error=False)]
            ),
            UserMessage(content="earlier", source="user"),
            AssistantMessage(content=[call("f", call_id="dangling")], source="agent"),
            AssistantMessage(content="  ", source="agent"),
        ]
    )
    model = ScriptedModel(["done"])
    agent = agent_of(model, model_context=context)
    await agent.run(task="go")
    assert_whole(model.requests[0])
    assert [type(m) for m in model.requests[0].messages] == [SystemMessage, UserMessage, UserMessage]


async def test_the_same_token_reaches_everything() -> None:
    """Planning, tools, verifier and answer get the very token the caller gave."""
    tokens: list[CancellationToken | None] = []

    async def spy(cancellation_token: CancellationToken) -> str:
        """Spy."""
        tokens.append(cancellation_token)
        return "a finding"

    token = CancellationToken()
    verifier = ScriptedVerifier([UNWRITTEN])
    model = ScriptedModel([call("spy"), "answer"])
    agent = agent_of(model, verifier, tools=[spy])
    await agent.run(task="go", cancellation_token=token)
    tokens += [verifier.calls[0].cancellation_token, *(request.token for request in model.requests)]
    assert len(tokens) == 4
    assert all(seen is token for seen in tokens)


async def test_a_run_without_new_messages_is_about_the_last_user_message() -> None:
    """Running an agent again without a task judges by what was asked last."""
    verifier = ScriptedVerifier([CLOSED])
    agent = agent_of(ScriptedModel(["one", "two"]), verifier)
    await agent.run(task="the question")
    await agent.run()
    assert [seen.request for seen in verifier.calls] == ["the question", "the question"]


async def test_the_conversation_is_whole_after_every_kind_of_round() -> None:
    """Drafts, blanks, calls, errors and nudges mixed leave no call without a result."""
    model = ScriptedModel(
        ["", [call("nope"), call("count", "[", call_id="2")], "draft", call("count", {"number": 3}), "x"]
    )
    agent = agent_of(model, [open_verdict(), open_verdict(), CLOSED], tools=[count])
    await agent.run(task="go")
    assert await dangling(agent.model_context) == []
    for request in model.requests:
        assert_whole(request)


async def test_a_follow_up_is_answered_in_its_context() -> None:
    """The answer call of a follow-up carries the exchange it refers to; the verifier judges the new request alone."""
    model = ScriptedModel(["Vennholm lies on an island.", call("count", {"number": 1}), "It has 7 inhabitants."])
    verifier = ScriptedVerifier([CLOSED, UNWRITTEN])
    agent = agent_of(model, verifier, tools=[count])
    await agent.run(task="Where is Vennholm?")
    await agent.run(task="And how many live there?")
    answered = str(model.requests[-1].messages[-1].content)
    assert "Where is Vennholm?" in answered
    assert "Vennholm lies on an island." in answered
    assert answered.count("And how many live there?") == 1
    assert verifier.calls[-1].request == "And how many live there?"
