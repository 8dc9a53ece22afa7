"""The tools of the shipped scenarios: ordinary Python functions over invented data, grouped into named toolsets.

A scenario file names a toolset of this registry; it cannot name an import path, so no data file ever chooses code.
Each toolset is a factory: every run gets functions with state of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from agentloop_autogen.demo_tools.archive import archive_tools
from agentloop_autogen.demo_tools.export import export_tools
from agentloop_autogen.demo_tools.station import station_tools
from agentloop_autogen.demo_tools.survey import survey_tools
from agentloop_autogen.demo_tools.travel import travel_tools
from agentloop_autogen.demo_tools.warehouse import warehouse_tools

__all__ = ["TOOLSETS", "ToolFunction", "Toolset"]

ToolFunction = Callable[..., str]
"""A tool: a function with annotated arguments and a docstring, returning the text the model reads."""

Toolset = Callable[[], tuple[ToolFunction, ...]]
"""Makes the tools of one run."""

TOOLSETS: Mapping[str, Toolset] = MappingProxyType(
    {
        "archive": archive_tools,
        "export": export_tools,
        "station": station_tools,
        "survey": survey_tools,
        "travel": travel_tools,
        "warehouse": warehouse_tools,
    }
)
