"""The examples of the documentation run as they stand."""

from __future__ import annotations

import logging
import re
import subprocess
import sys
from pathlib import Path

import pytest

from .fake_openai import FakeOpenAI, Reply, tool_call

ROOT = Path(__file__).parent.parent
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").glob("*.md")])
BLOCK = re.compile(r"```python\n(.*?)```", re.DOTALL)
EXAMPLES = [(page.name, index, code) for page in PAGES for index, code in enumerate(BLOCK.findall(page.read_text()))]
VERDICT = (
    '{"slots": [{"name": "population", "state": "supported", "quote": "48,210 inhabitants", "evidence": ["e1"]}],'
    ' "missing": [], "failure": "ok", "need_tool": false, "answer_complete": true, "confidence": 0.9}'
)
UNWRITTEN = (
    VERDICT.replace('"supported"', '"unsynthesised"').replace("true", "false").replace('"ok"', '"answer_incomplete"')
)


def run(code: str) -> str:
    """Run an example in a fresh interpreter and return what it prints."""
    done = subprocess.run(  # noqa: S603 - the code is this repository's own documentation
        [sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, timeout=50, check=False, cwd=ROOT
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_there_are_examples() -> None:
    """The README and the testing page each have an example, so that this file tests something."""
    assert {"README.md", "testing.md"} <= {name for name, _, _ in EXAMPLES}


@pytest.mark.parametrize(("page", "code"), [(name, code) for name, _, code in EXAMPLES if name != "README.md"])
def test_examples_of_the_docs_run(page: str, code: str) -> None:
    """Every Python block of the docs runs to its end, its assertions included."""
    logging.getLogger(__name__).debug("running an example of %s", page)
    assert run(code) == ""


def test_the_quick_start_answers() -> None:
    """The README's quick start works against an OpenAI-compatible server and prints the answer and why it stopped."""
    (code,) = [code for name, _, code in EXAMPLES if name == "README.md"]
    script = [
        Reply(tool_calls=[tool_call("population", {"city": "Vennholm"})], finish_reason="tool_calls"),
        UNWRITTEN,
        "Vennholm has 48,210 inhabitants.",
    ]
    with FakeOpenAI(script) as server:
        shown = run(code.replace("http://127.0.0.1:8080/v1", server.base_url))
    assert "Vennholm has 48,210 inhabitants." in shown
    assert "synthesised after 1 rounds; open: ()" in shown


def test_the_readme_has_exactly_two_set_up_commands() -> None:
    """One command runs the main job, one the tests; neither needs anything but Python and pip."""
    commands = re.findall(r"^python3 -m venv .*$", (ROOT / "README.md").read_text(), re.MULTILINE)
    assert [command.split(" && ")[-1].split()[0] for command in commands] == [".venv/bin/agentloop", ".venv/bin/pytest"]
