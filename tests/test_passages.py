"""What is kept of a long result."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentloop_autogen import LoopConfig
from agentloop_autogen.core.evidence import EvidenceLog, compress
from agentloop_autogen.core.passages import key_passages, query_terms
from agentloop_autogen.core.rounds import ToolCall, ToolResult

PARTS = [
    f"pump {pump} | {part} | FS-2{pump}{index}"
    for pump in range(1, 9)
    for index, part in enumerate(("rotor", "casing", "shaft seal", "gasket", "bolt set"))
]
TABLE = "pump | part | part number\n" + "\n".join(PARTS)
LOG = "\n".join(
    f"{hour:02}:{minute:02} pump {minute % 3 + 1} running, flow {40 + minute % 9} l/s"
    for hour in range(24)
    for minute in range(0, 60, 6)
)
NEEDLE = "17:31 pump 3 stopped: shaft seal leaking"


def test_terms_are_neighbouring_words_first() -> None:
    """Function words are no terms; pairs of neighbours come before single words."""
    terms = query_terms("Why did pump 3 at the station stop?")
    assert terms[0] == "pump 3"
    assert {"pump", "station", "stop"} <= set(terms)
    assert not {"why", "did", "the", "3"} & set(terms)


def test_the_rows_asked_for_survive_from_the_middle_of_a_table() -> None:
    """Of a table several times the bound, the rows of the thing asked for are kept, with the table's head."""
    kept = key_passages(TABLE, 600, query_terms("What is the part number of the shaft seal of pump 5?"))
    assert "pump 5 | shaft seal | FS-252" in kept
    assert kept.startswith("pump | part | part number")
    assert len(kept) <= 700


def test_the_one_line_that_matters_survives_from_the_middle_of_a_log() -> None:
    """A rare word of the request finds its line among hundreds that share the common ones."""
    log = LOG.replace("\n17:30", f"\n{NEEDLE}\n17:30")
    assert NEEDLE in key_passages(log, 1_200, query_terms("Why did pump 3 at Fennick station stop?"))


def test_a_line_cut_by_head_or_tail_is_completed() -> None:
    """Every row asked for is whole, wherever the head ends and the tail begins."""
    rows = [f"pump 3 | part{i} | FS-23{i:02}" for i in range(12)]
    table = "\n".join([*PARTS[:30], *rows])
    for limit in range(500, 700, 7):
        kept = key_passages(table, limit, query_terms("parts of pump 3"))
        assert all(row in kept for row in rows[-4:]), limit


def test_the_words_of_a_call_count_too() -> None:
    """What the model asked a tool for says what to keep of its result."""
    result = ToolResult(ToolCall("parts", '{"pump": 7}'), TABLE)
    assert "pump 7 | shaft seal | FS-272" in EvidenceLog(LoopConfig(max_finding_chars=600)).add(result).finding


def test_without_a_term_that_tells_passages_apart_head_and_tail_are_kept() -> None:
    """Terms found everywhere, or nowhere, choose nothing."""
    for terms in (("running",), ("zeppelin",), ()):
        kept = key_passages(LOG, 400, terms)
        assert kept.startswith(LOG[:100])
        assert kept.endswith(LOG[-50:])


def test_text_in_one_line_is_kept_around_its_hits() -> None:
    """Where no lines end, a passage is the text around the hit."""
    text = "x" * 5_000 + " the reactor reached 921 degrees " + "y" * 5_000
    assert "reactor reached 921 degrees" in key_passages(text, 800, ("reactor",))


@pytest.mark.parametrize("limit", [80, 300, 1_200])
def test_megabytes_stay_within_the_bound(limit: int) -> None:
    """However long the result, what is kept is about its bound."""
    assert len(compress("pump 3 stopped; all quiet. " * 200_000, limit, ("pump 3", "stopped"))) <= limit + 100


@given(st.text(max_size=600), st.integers(80, 300), st.lists(st.text(min_size=1, max_size=5), max_size=4))
def test_any_text_is_kept_within_its_bound(text: str, limit: int, terms: list[str]) -> None:
    """Any text and any terms: within the bound it is verbatim, beyond it close to the bound."""
    kept = key_passages(text, limit, terms)
    if len(text) <= limit:
        assert kept == text
    else:
        assert len(kept) <= limit + 80
