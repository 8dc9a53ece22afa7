"""The counted endpoint: one reverse proxy before the real one, through which the model traffic of every system goes."""

from agentloop_autogen.bench.endpoint.app_server import AppServer
from agentloop_autogen.bench.endpoint.server import CountedEndpoint
from agentloop_autogen.bench.endpoint.traffic import AttemptTraffic
from agentloop_autogen.bench.endpoint.upstream import Upstream

__all__ = ["AppServer", "AttemptTraffic", "CountedEndpoint", "Upstream"]
