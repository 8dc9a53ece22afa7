"""Finding values in an answer: numbers however they are written, and texts between word boundaries."""

from __future__ import annotations

import re
import unicodedata
from decimal import Decimal, InvalidOperation
from functools import lru_cache
from typing import Final

from agentloop_autogen.jsonish import find_objects

__all__ = ["as_number", "plain", "prose", "stated_numbers", "states_number", "states_text"]

# Digits with or without separators of thousands, decimals, and a power of ten.
_NUMBER: Final = re.compile(
    r"(?<![\w.])(?P<sign>[-+](?<![\w)\]]-))?(?P<whole>\d{1,3}(?:,\d{3})+(?![\d])|\d+)(?P<part>\.\d+)?"
    r"(?P<power>[eE][-+]?\d{1,3})?(?!\w)(?!\.\d)"
)
_PLAIN: Final = re.compile(r"[-+]?(?:0|[1-9]\d{0,2}(?:,\d{3})+|[1-9]\d*)(?:\.\d+)?(?:[eE][-+]?\d{1,3})?\Z")
# A date or a time of day is one value, not three.
_CLOCK: Final = re.compile(
    r"\b\d{4}-\d{1,2}-\d{1,2}\b|\b\d{1,2}:\d{2}(?::\d{2}(?:\.\d+)?)?\b|\b\d{1,2}/\d{1,2}/\d{2,4}\b"
)
_WORDS: Final = {"zero": 0, "two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7, "eight": 8, "nine": 9} | {
    "ten": 10,
    "eleven": 11,
    "twelve": 12,
}
"""Number words; "one" is left out, it is a pronoun more often than a number."""
_WORD: Final = re.compile(rf"\b(?:{'|'.join(_WORDS)})\b")
_FENCED: Final = re.compile(r"```.*?(?:```|\Z)|<tool_call>.*?(?:</tool_call>|\Z)|<tools>.*?(?:</tools>|\Z)", re.DOTALL)
_CODE: Final = re.compile(r'\bselect\b.*?\bfrom\b|"arguments"|"parameters"', re.DOTALL | re.IGNORECASE)
_QUERY: Final = re.compile(r"`[^`]*\bSELECT\b[^`]*`|\bSELECT\b[^;\n]*?\bFROM\b[^;\n]*", re.IGNORECASE)
_CALL_KEYS: Final = frozenset({"arguments", "parameters", "tool_calls"})
_SPACE: Final = re.compile(r"\s+")
_MARKS: Final = str.maketrans({"’": "'", "‘": "'", "“": '"', "”": '"', "−": "-", "–": "-", "—": "-", "*": None})
_DECIMALS: Final = 2
"""Decimals that make a rounded number exact enough."""
_DIGITS: Final = 4
"""Significant digits that do so too."""


def plain(text: str) -> str:
    """Return a text for comparing: lower case, no accents, straight quotes, no emphasis, single spaces."""
    return _plain_cased(text).casefold()


def prose(answer: str) -> str:
    """Return an answer without the queries and tool calls in it: what a model wanted to do is no answer."""
    answer = _FENCED.sub(lambda match: " " if _CODE.search(match[0]) else match[0], answer)
    for found in list(find_objects(answer)):
        if _CALL_KEYS & found.value.keys():
            answer = answer.replace(found.source, " ")
    return _QUERY.sub(" ", answer)


def as_number(value: object) -> Decimal | None:
    """Return the number a value is, or is written as.

    Args:
        value: A cell of a result. A text counts as a number only if it is written as one: "007" is not.

    Returns:
        The number; None: the value is none.
    """
    if isinstance(value, bool):
        return None
    if isinstance(value, int | float):
        number = Decimal(repr(value))
        return number if number.is_finite() else None
    if isinstance(value, str) and _PLAIN.match(value.strip()):
        return _decimal(value.strip())
    return None


@lru_cache(maxsize=64)
def stated_numbers(text: str) -> tuple[str, ...]:
    """Return the numbers of a text as they are written, without signs of thousands; dates and times are left out.

    Args:
        text: A text as `plain` gives it.
    """
    text = _CLOCK.sub(" ", text)
    found: list[str] = []
    for match in _NUMBER.finditer(text):
        tail = f"{match['part'] or ''}{match['power'] or ''}"
        found.append(f"{match['sign'] or ''}{match['whole'].replace(',', '')}{tail}")
        if "," in match["whole"]:
            # It may as well be a list written without spaces.
            found += [piece for piece in match["whole"].split(",") if piece == piece.lstrip("0") or piece == "0"]
    # A leading zero makes it a code, not a number.
    numbers = [number for number in found if not re.match(r"[-+]?0\d", number)]
    return (*numbers, *(str(_WORDS[word]) for word in _WORD.findall(text)))


def states_number(text: str, number: Decimal) -> bool:
    """Return whether a text states a number, exactly or rounded to the digits it shows.

    A rounded number needs two decimals or four digits: "3.33" states 3.3333, "3" does not.

    Args:
        text: A text as `plain` gives it.
        number: The number looked for.
    """
    return any(_same(written, number) for written in stated_numbers(text))


def states_text(text: str, value: str, *, cased: str = "") -> bool:
    """Return whether a text holds a value between word boundaries.

    Args:
        text: A text as `plain` gives it.
        value: The value as it is in the data. A single letter must be written in its own case, or every "a" would be
            an "A".
        cased: The text as it was written, for single letters.
    """
    bare = plain(value)
    if len(bare) == 1 and bare.isalpha():
        text, bare = _plain_cased(cased or text), _plain_cased(value)
    # A figure at an edge of the value must not go on as a longer number.
    before = r"(?<!\w)(?<!\d[.,])" if bare[:1].isdigit() else r"(?<!\w)"
    after = r"(?!\w)(?![.,]\d)" if bare[-1:].isdigit() else r"(?!\w)"
    return re.search(f"{before}{re.escape(bare)}{after}", text) is not None


def _plain_cased(text: str) -> str:
    letters = unicodedata.normalize("NFKD", text.translate(_MARKS))
    return _SPACE.sub(" ", "".join(letter for letter in letters if not unicodedata.combining(letter))).strip()


def _decimal(text: str) -> Decimal | None:
    try:
        return Decimal(text.replace(",", ""))
    except InvalidOperation:
        return None


def _same(written: str, number: Decimal) -> bool:
    shown = _decimal(written)
    if shown is None:
        return False
    if shown == number:
        return True
    if not shown.is_finite() or "e" in written.lower():
        return False
    decimals = len(written.partition(".")[2])
    digits = len(written.replace(".", "").lstrip("+-0"))
    exact_enough = digits > 0 and (decimals >= _DECIMALS or digits >= _DIGITS) and number % 1 != 0
    return exact_enough and abs(shown - number) <= Decimal(5).scaleb(-decimals - 1)
