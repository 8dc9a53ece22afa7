"""Errors on one line: bounded, without secrets, and still telling what is wrong."""

from __future__ import annotations

import time

import pytest

from agentloop_autogen.faults import causes_of, describe_error, status_of, without_secrets


class Refused(Exception):
    """A client's error with a status."""

    def __init__(self, status_code: int, message: str) -> None:
        self.status_code = status_code
        super().__init__(message)


class Response:
    """What an HTTP library hangs on its errors."""

    status_code = 503


@pytest.mark.parametrize(
    ("told", "shown"),
    [
        ("key sk-proj-Ab12Cd34Ef56 refused", "key *** refused"),
        ("key sk-abc***************wxyz refused", "key *** refused"),
        ("Authorization: Bearer abc.def-ghi", "Authorization: ***"),
        ("authorization: Basic dXNlcjpwdw==", "authorization: ***"),
        ("sent Bearer abcdefgh twice", "sent *** twice"),
        ("sent basic dXNlcjpwdw== twice", "sent *** twice"),
        ("sent Bearer token-abcd", "sent ***"),
        ("api_key=hunter2 was refused", "api_key=*** was refused"),
        ("OPENAI_API_KEY = hunter2", "OPENAI_API_KEY = ***"),
        ("X-Api-Key: hunter2", "X-Api-Key: ***"),
        ("password: 'two words', user: ann", "password: ***, user: ann"),
        ("Incorrect API key provided: hunter2. See the docs", "Incorrect API key provided: *** See the docs"),
        ('{"api_key": "hunter2", "model": "m"}', '{"api_key": ***, "model": "m"}'),
        (r"{\"api_key\": \"hunter2\", \"model\": 1}", r"{\"api_key\": ***\", \"model\": 1}"),
        ("{'client_secret': 'hunter2'}", "{'client_secret': ***}"),
        ("http://user:pw@host/v1 is down", "http://***@host/v1 is down"),
        ("https://user:p@w@host:8000 is down", "https://***@host:8000 is down"),
        ("GET https://host/v1?key=hunter2&x=1", "GET https://host/v1?key=***&x=1"),
        ("hf_abcDEF123456ghiJKL is no token", "*** is no token"),
        ("eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIx.sig is over", "*** is over"),
        ("id 0123456789abcdef0123456789abcdef", "id ***"),
    ],
)
def test_secrets_are_masked(told: str, shown: str) -> None:
    """Each kind of secret goes, and what stands around it stays."""
    assert without_secrets(told) == shown


@pytest.mark.parametrize(
    "told",
    [
        "The model `Meta-Llama-3.1-70B-Instruct-AWQ-INT4` does not exist",
        "maximum context length is 4096 tokens, you asked for 5000 tokens: 4000 in the prompt",
        "basic authentication is required",
        "hf_hub_download() got an unexpected keyword argument",
        "GET http://host:8000/v1/models?mail=a@b.org failed",
        "list index out of range",
    ],
)
def test_ordinary_words_stay(told: str) -> None:
    """Model names, token counts and addresses are what mends a fault, and are shown."""
    assert without_secrets(told) == told


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (RuntimeError("boom\nwith  lines"), "RuntimeError: boom with lines"),
        (TimeoutError(), "TimeoutError"),
        (PermissionError("sk-abcdef1234567890 sent"), "PermissionError: *** sent"),
        (Refused(401, "wrong: hunter2"), "Refused: the server refused the credentials (HTTP 401)"),
        (Refused(403, "no access to model m"), "Refused: no access to model m"),
    ],
)
def test_an_error_is_one_line(error: BaseException, line: str) -> None:
    """The class is named, the message is on one line, and a refused key is never repeated."""
    assert describe_error(error) == line


def test_an_error_that_cannot_be_printed_is_named() -> None:
    """An exception whose own text raises is told by its class."""

    class Broken(Exception):
        def __str__(self) -> str:
            raise ValueError

    assert describe_error(Broken()) == "Broken"


def test_a_long_message_is_cut() -> None:
    """A page of HTML from a proxy does not fill the log, and costs no time."""
    started = time.monotonic()
    for text in ("x y " * 50_000, "a-" * 50_000, "://" * 50_000, "api key " * 50_000):
        line = describe_error(RuntimeError(text))
        assert len(line) == 300
        assert line.endswith("…")
    assert time.monotonic() - started < 2


def test_the_status_is_found_wherever_it_is() -> None:
    """An error's own status counts, then its response's, then that of the error it was raised from."""
    inner, outer = RuntimeError("down"), ValueError("failed")
    assert status_of(outer) is None
    inner.response = Response()  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue] - as HTTP libraries do
    outer.__cause__ = inner
    assert status_of(outer) == 503
    assert status_of(Refused(404, "gone")) == 404


def test_a_chain_of_causes_is_bounded() -> None:
    """A chain that bites its own tail ends."""
    error = ValueError("a")
    error.__cause__ = error
    assert len(list(causes_of(error))) == 8
