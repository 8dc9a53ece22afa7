"""The report: many traces as one page, and its charts as files."""

from __future__ import annotations

from agentloop_autogen.diagnostics.report.data import (
    Distribution,
    FrontierPoint,
    GroupRow,
    Metric,
    ReportData,
    RoundCell,
    SlotCell,
    Timeline,
    ToolCell,
)
from agentloop_autogen.diagnostics.report.figures import FigureFormat, render_figures
from agentloop_autogen.diagnostics.report.page import render_html

__all__ = [
    "Distribution",
    "FigureFormat",
    "FrontierPoint",
    "GroupRow",
    "Metric",
    "ReportData",
    "RoundCell",
    "SlotCell",
    "Timeline",
    "ToolCell",
    "render_figures",
    "render_html",
]
