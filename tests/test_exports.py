"""The public surface: what can be imported, from where, and at what price."""

from __future__ import annotations

import importlib
import subprocess
import sys
from importlib.metadata import entry_points, metadata, requires

import pytest

import agentloop_autogen

CONTRACT = {
    "AgentLoopAssistantAgent",
    "AgentLoopTermination",
    "ControlAction",
    "ControlBranch",
    "ControlEvent",
    "Decision",
    "Evidence",
    "Failure",
    "LoopConfig",
    "LoopOutcome",
    "ModelSlotVerifier",
    "Slot",
    "SlotState",
    "SlotVerifier",
    "StopReason",
    "VLLMChatCompletionClient",
    "Verdict",
}


def test_the_contract_is_exported() -> None:
    """Every name the documentation promises can be imported from the top level."""
    assert set(agentloop_autogen.__all__) >= CONTRACT


@pytest.mark.parametrize(
    "module",
    [
        "agentloop_autogen",
        "agentloop_autogen.agent",
        "agentloop_autogen.models",
        "agentloop_autogen.termination",
        "agentloop_autogen.models.vllm",
        "agentloop_autogen.slots.lines",
        "agentloop_autogen.slots.sql",
        "agentloop_autogen.testing",
        "agentloop_autogen.verify",
    ],
)
def test_exports_are_there(module: str) -> None:
    """`__all__` has no repeats, and every name in it exists (its order is the linter's business)."""
    loaded = importlib.import_module(module)
    assert len(loaded.__all__) == len(set(loaded.__all__)) > 0
    for name in loaded.__all__:
        assert getattr(loaded, name) is not None


def test_the_base_needs_no_extra() -> None:
    """Importing the package touches no optional dependency, so the base install works without any extra."""
    optional = "rich yaml xllamacpp starlette uvicorn httpx openai huggingface_hub hypothesis pytest sqlalchemy"
    code = (
        "import sys, agentloop_autogen.agent, agentloop_autogen.testing, agentloop_autogen.models\n"
        "import agentloop_autogen.slots.lines\n"
        f"print([m for m in '{optional}'.split() if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=50, check=True)  # noqa: S603 - our own code
    assert done.stdout.strip() == "[]"


def test_help_is_quick_to_come() -> None:
    """`agentloop --help` imports neither AutoGen nor a model runtime."""
    code = (
        "import sys, contextlib\nfrom agentloop_autogen import cli\n"
        "with contextlib.suppress(SystemExit):\n    cli.main(['--help'])\n"
        "print([m for m in ('autogen_agentchat', 'autogen_ext', 'xllamacpp') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=50, check=True)  # noqa: S603 - our own code
    assert done.stdout.strip().endswith("[]")


def test_packaging() -> None:
    """The distribution names its command, its licence and bounded AutoGen dependencies."""
    about = metadata("agentloop-autogen")
    assert about["License-Expression"] == "MIT"
    assert [script.value for script in entry_points(group="console_scripts", name="agentloop")] == [
        "agentloop_autogen.cli:main"
    ]
    base = [need for need in requires("agentloop-autogen") or [] if "extra ==" not in need]
    assert {need.split(">")[0].split("<")[0] for need in base} == {
        "autogen-agentchat",
        "autogen-core",
        "autogen-ext",
        "pydantic",
        "rapidfuzz",
    }
    assert all("<0.8" in need for need in base if need.startswith("autogen"))
