"""What AutoGen's messages say of who spoke, and of which result belongs to which call."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from autogen_core import FunctionCall
from autogen_core.models import FunctionExecutionResult

from agentloop_autogen.core.rounds import ToolCall, ToolResult

__all__ = ["is_user", "tool_results"]

_USER: Final = re.compile(r"(the_?)?(user|human)(_?(proxy|input))?(_?agent)?_?\d*", re.IGNORECASE)


def is_user(source: str) -> bool:
    """Return whether a source is named as a person: `user`, `user_proxy`, `UserProxyAgent`, `human` and the like.

    Args:
        source: The `source` of a message.
    """
    return _USER.fullmatch(source) is not None


def tool_results(calls: Sequence[FunctionCall], results: Sequence[FunctionExecutionResult]) -> list[ToolResult]:
    """Return the results of one round with the calls they are of.

    Args:
        calls: What was asked for; ids are not used, since some servers repeat them.
        results: What came back; by place where the names agree, else each is of the first call of its name.
    """
    if [call.name for call in calls] == [result.name for result in results]:
        arguments = [call.arguments for call in calls]
    else:
        arguments = [next((call.arguments for call in calls if call.name == item.name), "") for item in results]
    return [
        ToolResult(ToolCall(result.name, given), result.content, is_error=bool(result.is_error))
        for result, given in zip(results, arguments, strict=True)
    ]
