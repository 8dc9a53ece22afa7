"""Where the time of an attempt went."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentloop_autogen.bench.records import CountedToolCall
from agentloop_autogen.bench.timing import split_time

from .bench_samples import attempt, model_call

Spans = list[tuple[int, int]]
spans = st.lists(st.tuples(st.integers(-5, 60), st.integers(-5, 60)), max_size=8)


def timed(model: Spans, tools: Spans, *, elapsed: float, waited: float = 0.0) -> dict[str, float]:
    ran = [CountedToolCall(name="t", arguments={}, began_s=began, ended_s=ended) for began, ended in tools]
    split = split_time(
        attempt(
            model_calls=tuple(model_call(began, ended) for began, ended in model),
            tool_calls=tuple(ran),
            elapsed_s=elapsed,
            waited_s=waited,
        )
    )
    parts = {"model": split.model_s, "tools": split.tool_s, "waiting": split.waiting_s, "control": split.control_s}
    return {**parts, "all": split.elapsed_s}


def covered(intervals: Spans, elapsed: int) -> set[int]:
    """The whole seconds of the attempt that some interval covers, one by one."""
    return {second for began, ended in intervals for second in range(max(0, began), min(elapsed, ended))}


@given(model=spans, tools=spans, elapsed=st.integers(0, 50), waited=st.integers(0, 80))
def test_every_second_counts_once_and_the_model_goes_first(
    model: Spans, tools: Spans, elapsed: int, waited: int
) -> None:
    """However calls overlap, each second is the model's, else a tool's, else waiting or control, and all add up."""
    found = timed(model, tools, elapsed=elapsed, waited=waited)
    at_model, at_tools = covered(model, elapsed), covered(tools, elapsed)
    assert found["model"] == len(at_model)
    assert found["tools"] == len(at_tools - at_model)
    assert found["waiting"] == min(waited, elapsed - len(at_model | at_tools))
    assert found["control"] >= 0
    assert found["all"] == elapsed


def test_calls_beside_each_other_are_one_stretch_of_time() -> None:
    """Two requests at once and a tool beside them: 4 s of model, 1 s of tool alone, half a second waiting."""
    found = timed([(0, 3), (2, 4)], [(3, 5)], elapsed=8.0, waited=0.5)
    assert found == pytest.approx({"model": 4, "tools": 1, "waiting": 0.5, "control": 2.5, "all": 8})
