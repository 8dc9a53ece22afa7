"""What to ask for once a server has refused part of a request, and the memory of it."""

from __future__ import annotations

from dataclasses import replace

from agentloop_autogen.models.guided.records import GuidedRung
from agentloop_autogen.models.vllm.refusals import is_format_refusal, is_template_refusal
from agentloop_autogen.models.vllm.request import Attempt, PlannedRequest

__all__ = ["RefusalMemory"]


class RefusalMemory:
    """Remembers how much one server takes, apart for native and for guided requests.

    A server may refuse the schema of many tools, which is large, and take the small one of an answer.
    """

    def __init__(self) -> None:
        self._plain = Attempt()
        self._guided = Attempt()

    def first(self, request: PlannedRequest) -> Attempt:
        """What to begin with: what the server took last.

        Args:
            request: What is to be sent.
        """
        return self._guided if request.guided else self._plain

    def lower(self, request: PlannedRequest, attempt: Attempt, error: Exception) -> Attempt | None:
        """What to try after a refusal, None where asking for less does not mend it.

        Args:
            request: What was sent.
            attempt: How much of it was asked for.
            error: What the SDK raised.
        """
        if attempt.template_options and request.has_template_options and is_template_refusal(error):
            return replace(attempt, template_options=False)
        if not request.has_format or not is_format_refusal(error):
            return None
        # Without a schema the two upper rungs are the same request.
        same_below = attempt.rung is GuidedRung.SCHEMA and not request.has_schema
        return replace(attempt, rung=GuidedRung.PROMPT) if same_below else attempt.lower_rung()

    def keep(self, request: PlannedRequest, attempt: Attempt) -> None:
        """Remember what worked; a server that refuses everything refuses something else.

        Args:
            request: What was sent.
            attempt: How much of it the server took.
        """
        if request.guided:
            self._guided = attempt
        elif request.has_format:
            self._plain = attempt
        else:
            self._plain = replace(self._plain, template_options=attempt.template_options)
