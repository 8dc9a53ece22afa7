"""What recorded runs show: how much of the work was wasted, and what the loop would have saved and lost."""

from agentloop_autogen.diagnostics.formats.autogen import trace_of
from agentloop_autogen.diagnostics.loading import Skipped, TraceReader, load_traces
from agentloop_autogen.diagnostics.loop_run import ReplayRow
from agentloop_autogen.diagnostics.low_value import Risk, RiskRecord, low_value_risk
from agentloop_autogen.diagnostics.measures import Measures, measure
from agentloop_autogen.diagnostics.metric import Metric
from agentloop_autogen.diagnostics.replay import ReplayResult, replay
from agentloop_autogen.diagnostics.summary import Summary, SummaryRow, summarize
from agentloop_autogen.diagnostics.sweep import SweepPoint, sweep
from agentloop_autogen.diagnostics.trace import Trace, TraceRound
from agentloop_autogen.diagnostics.writing import TraceFormat, to_record, write_traces

__all__ = [
    "Measures",
    "Metric",
    "ReplayResult",
    "ReplayRow",
    "Risk",
    "RiskRecord",
    "Skipped",
    "Summary",
    "SummaryRow",
    "SweepPoint",
    "Trace",
    "TraceFormat",
    "TraceReader",
    "TraceRound",
    "load_traces",
    "low_value_risk",
    "measure",
    "replay",
    "summarize",
    "sweep",
    "to_record",
    "trace_of",
    "write_traces",
]
