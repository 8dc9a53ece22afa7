"""Text made comparable: canonical JSON, bounded length, masked volatile fields, salient tokens.

Everything here is a pure function of its text and linear in its length.
"""

from __future__ import annotations

import hashlib
import json
import re
import unicodedata
from contextlib import suppress
from functools import lru_cache
from typing import Final

__all__ = [
    "MASK",
    "bounded_text",
    "is_empty_result",
    "is_volatile",
    "mask_words",
    "normalise_arguments",
    "normalise_text",
    "plain_line",
    "plain_text",
    "raw_words",
    "replace_blobs",
    "similarity_tokens",
    "similarity_words",
    "split_thinking",
    "without_thinking",
    "words",
]

_CJK: Final = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003ffff"
_TOKEN: Final = re.compile(rf"[{_CJK}]|[^\W{_CJK}]+")
_ASCII_TOKEN: Final = re.compile(r"\w+", re.ASCII)
_JSON_START: Final = ("{", "[", '"')
_LAST_THINK_TAG: Final = re.compile(r"\A.*</think(?:ing)?\s*>", re.DOTALL | re.IGNORECASE)
_OPEN_THINK_TAG: Final = re.compile(r"\A\s*<think(?:ing)?\s*>", re.IGNORECASE)
_THINK_TAGS: Final = re.compile(r"</?think(?:ing)?\s*>", re.IGNORECASE)
_BLOB: Final = re.compile(
    r"(?:data:([\w.+-]+/[\w.+-]+);base64,)?(?:[A-Za-z0-9+/_-]{256,}|(?:[A-Za-z0-9+/]{60,}\r?\n){3,}[A-Za-z0-9+/]+)={0,2}"
)
_REMEMBERED_CHARS: Final = 1_000
_LEAST_KEPT: Final = 24
"""Characters worth keeping around a mark; below it the head alone is kept."""
_EMPTY: Final = frozenset({"", "none", "null", "[]", "{}", "()", '""', "''", "nan", "undefined"})


def _canonical_json(value: object) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def _compatible(text: str) -> str:
    # NFKC makes composed and decomposed letters, and full-width digits, equal; ASCII is its own normal form.
    return text if text.isascii() else unicodedata.normalize("NFKC", text)


def normalise_arguments(arguments: str) -> str:
    """Return tool-call arguments in one canonical spelling: keys sorted, compact, raw Unicode.

    Args:
        arguments: The arguments as the model wrote them; what is no JSON is taken as plain text.

    Returns:
        Canonical JSON, or the trimmed text.
    """
    # Only short ones are worth remembering for as long as the process lives.
    return _remembered_arguments(arguments) if len(arguments) <= _REMEMBERED_CHARS else _canonical(arguments)


def _canonical(arguments: str) -> str:
    try:
        return _compatible(_canonical_json(json.loads(arguments)))
    except (ValueError, RecursionError):
        return _compatible(" ".join(arguments.split()))


_remembered_arguments = lru_cache(maxsize=4_096)(_canonical)


def plain_text(text: str) -> str:
    r"""Return a tool result with its `\uXXXX` escapes and compatibility characters in plain Unicode, layout kept."""
    stripped = text.strip()
    if "\\u" in stripped and stripped.startswith(_JSON_START):
        with suppress(ValueError, RecursionError):
            stripped = json.dumps(json.loads(stripped), ensure_ascii=False)
    return _compatible(stripped)


def normalise_text(text: str) -> str:
    """Return a tool result in one canonical spelling: plain Unicode, each run of white space one blank, order kept."""
    plain = plain_text(text)
    if "\n" in plain or "  " in plain or "\t" in plain or "\r" in plain:
        plain = " ".join(plain.split())
    return plain


def similarity_words(text: str) -> list[str]:
    """Return the tokens of eq. 4 in order: lower-cased runs of word characters, CJK characters one by one."""
    pattern = _ASCII_TOKEN if text.isascii() else _TOKEN
    return pattern.findall(text.lower())


def similarity_tokens(text: str) -> frozenset[str]:
    """Return the token set of eq. 4: lower-cased runs of word characters, CJK characters one by one."""
    return frozenset(similarity_words(text))


def bounded_text(text: str, limit: int) -> str:
    """Return at most `limit` characters of `text`: two thirds from its head, the rest from its tail, a mark between.

    The mark says how many characters were left out; where it has no room, the head alone is kept. Cuts fall between
    characters and never before a combining mark.
    """
    if len(text) <= limit:
        return text
    room = limit - len(_left_out(len(text)))
    if room < _LEAST_KEPT:
        return text[: _cut_position(text, limit)]
    head = _cut_position(text, room * 2 // 3)
    tail = len(text) - (room - head)
    while tail < len(text) and _joins(text[tail]):
        tail += 1
    return f"{text[:head]}{_left_out(tail - head)}{text[tail:]}"


def plain_line(text: str, limit: int) -> str:
    """Return the head of `text` on one line of at most `limit` characters, without anything that does not print."""
    # Only the head is looked at: what is cut anyway may be of any length.
    head = text[: 4 * limit]
    printed = "".join(character if character.isprintable() else " " for character in head)
    return " ".join(printed.split())[:limit].rstrip()


def _left_out(count: int) -> str:
    return f" [... {count} characters left out ...] "


def _joins(character: str) -> bool:
    return bool(unicodedata.combining(character)) or character in "\u200d\ufe0f"


def _cut_position(text: str, position: int) -> int:
    while position > 0 and _joins(text[position]):
        position -= 1
    return position


def replace_blobs(text: str) -> str:
    """Return `text` with base64 of 256 characters or more replaced by a mark that names type, size and a digest."""
    # A run of 256 covers one whole aligned slice of 128; looking for that first spares most texts the expression.
    for start in range(0, len(text) - 127, 128):
        part = text[start : start + 128]
        if " " not in part and '"' not in part and "," not in part:
            break
    else:
        return text
    return _BLOB.sub(_blob_mark, text)


def _blob_mark(match: re.Match[str]) -> str:
    blob = match.group(0)
    if not any(map(str.isalnum, blob)):
        return blob  # a ruler of dashes, not data
    digest = hashlib.blake2b(blob.encode(), digest_size=4).hexdigest()
    return f"[{match.group(1) or 'binary data'}, {len(blob)} characters of base64, digest {digest}]"


def split_thinking(text: str) -> tuple[str, str]:
    """Return the reasoning in `text` and the rest, both trimmed.

    Everything up to the last closing think tag is reasoning; an opening tag that is never closed makes all of the rest
    reasoning where it starts it, and is plain text elsewhere.
    """
    if "<" not in text:
        return "", text.strip()
    match = _LAST_THINK_TAG.match(text)
    thought, rest = (match.group(0), text[match.end() :]) if match else ("", text)
    if _OPEN_THINK_TAG.match(rest):
        thought, rest = f"{thought}{rest}", ""
    return _THINK_TAGS.sub("", thought).strip(), rest.strip()


def without_thinking(text: str) -> str:
    """Return `text` without its reasoning; see `split_thinking`."""
    return split_thinking(text)[1]


def is_empty_result(text: str) -> bool:
    """Return whether a tool result carries nothing at all: blank, `None`, `null`, `[]`, `{}` and their like."""
    return len(text) < 64 and "".join(text.split()).lower() in _EMPTY


# --- volatile fields -------------------------------------------------------------------------------------------------

_SPLIT: Final = str.maketrans(dict.fromkeys("{}[](),;<>|\"'`=\\!?\u3002\uff0c\u3001\uff1b\u300c\u300d", " "))
_TRIM: Final = ".:-*#/"
MASK: Final = "\u2022"
"""Stands for a volatile word."""
_VOLATILE_SHAPE: Final = re.compile(
    r"""
      \d{4}-\d\d-\d\d(?:[t_]\d.*)?                              # ISO date, date and time
    | \d\d?:\d\d(?::\d\d(?:[.]\d+)?)?(?:z|[+-]\d\d:?\d\d)?      # clock
    | [0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}
    | 0x[0-9a-f]{4,}                                            # memory address
    | (?=[a-f]*\d)(?=\d*[a-f])[0-9a-f]{16,}                     # digest, trace id
    | (?:req|request|trace|span|corr|correlation|session|txn|job-run)[-_][\w-]*\d[\w-]*
    | \d+(?:[.]\d+)?(?:ns|us|\u00b5s|\u03bcs|ms|s|sec|secs|min)                # duration
    | 1[5-9]\d{8}(?:\d{3}|[.]\d+)?                              # Unix time, 2017 to 2033
    """,
    re.VERBOSE,
)
_VOLATILE_KEY: Final = re.compile(
    r"(?:.*[_.-])?(?:timestamp|ts|time|datetime|elapsed|duration|took|latency|uptime|nonce|etag|uuid|guid"
    r"|request[_-]?id|trace[_-]?id|span[_-]?id|correlation[_-]?id|session[_-]?id"
    r"|(?:updated|checked|fetched|generated|queried|served)(?:[_-]?at)?)(?:[_-](?:ms|s|us|ns|seconds|utc))?"
)
_UNIX_TIME_DIGITS: Final = 10
_TIME_UNITS: Final = frozenset(
    {"ns", "us", "ms", "s", "sec", "secs", "second", "seconds", "milliseconds", "minute", "minutes", "min", "mins"}
)


@lru_cache(maxsize=16_384)
def _is_volatile_shape(word: str) -> bool:
    return _VOLATILE_SHAPE.fullmatch(word) is not None


@lru_cache(maxsize=4_096)
def _is_volatile_key(word: str) -> bool:
    return _VOLATILE_KEY.fullmatch(word) is not None


def _split_key(word: str) -> list[str]:
    # `elapsed:12` is a key and its value; `12:30:05` is one clock.
    return [word] if _is_volatile_shape(word) else [part for part in word.split(":") if part]


def raw_words(text: str) -> list[str]:
    """Return the words of `text` lower-cased and in order; punctuation inside a word (`2.5`, `a/b`, `x-1`) stays."""
    found = [stripped for raw in text.lower().translate(_SPLIT).split() if (stripped := raw.strip(_TRIM))]
    keyed = [index for index, word in enumerate(found) if ":" in word]
    for index in reversed(keyed):
        found[index : index + 1] = _split_key(found[index])
    return found


def words(text: str) -> list[str]:
    """Return the words of `text` lower-cased and in order, volatile ones (times, ids, durations, addresses) masked."""
    found = raw_words(text)
    mask_words(found)
    return found


def mask_words(found: list[str]) -> None:
    """Replace the volatile words of a list from `raw_words` by `MASK`, in place."""
    for index, word in enumerate(found):
        if not word.isalpha() and is_volatile(found, index):
            found[index] = MASK


def is_volatile(found: list[str], index: int) -> bool:
    """Return whether the word at `index` is a time, an id, a duration or an address, by its shape or its neighbours."""
    word = found[index]
    if word.isdigit():
        # The common case: a bare number is volatile for what stands beside it, or as a Unix time.
        if len(word) >= _UNIX_TIME_DIGITS and _is_volatile_shape(word):
            return True
    elif not any(map(str.isdigit, word)):
        return False
    elif _is_volatile_shape(word):
        return True
    if index and _is_volatile_key(found[index - 1]):
        return True
    follows_unit = index + 1 < len(found) and found[index + 1] in _TIME_UNITS
    return follows_unit and word.replace(".", "", 1).isdigit()
