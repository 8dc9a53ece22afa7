"""JSON values out of a file in bounded memory: one a line, spread over lines, side by side, or in one long array."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import Final, cast

from agentloop_autogen.diagnostics.byte_source import ByteSource
from agentloop_autogen.diagnostics.formats.fields import is_list
from agentloop_autogen.diagnostics.formats.place import MAX_BYTES, Document, Place

__all__ = ["JsonValues", "parse", "problem_of"]

_SPACE: Final = b" \t\r\n"
_TOKEN = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*("?)|[\[\]{}]', re.DOTALL)
_STRING_REST = re.compile(rb'[^"\\]*(?:\\.[^"\\]*)*("?)', re.DOTALL)
_SURROGATE_ESCAPE = re.compile(r"\\u[dD][89a-fA-F]")
_SURROGATE = re.compile("[\ud800-\udfff]")
_TOO_LARGE: Final = f"larger than {MAX_BYTES // 2**20} MiB, which is the most one document may have"


def parse(data: bytes | str) -> object:
    """Read one JSON value; bytes that are no UTF-8 and halves of surrogate pairs become replacement characters.

    Args:
        data: The whole value.

    Returns:
        Plain data.

    Raises:
        ValueError: It is no JSON, or a number in it has too many digits.
        RecursionError: It is nested too deeply.
    """
    source = data if isinstance(data, str) else data.decode(errors="replace")
    value: object = json.loads(source)
    return _without_surrogates(value) if _SURROGATE_ESCAPE.search(source) else value


def _without_surrogates(value: object) -> object:
    if isinstance(value, str):
        return _SURROGATE.sub("\ufffd", value)
    if is_list(value):
        return [_without_surrogates(item) for item in value]
    if isinstance(value, dict):
        pairs = cast("dict[str, object]", value).items()
        return {_SURROGATE.sub("\ufffd", key): _without_surrogates(item) for key, item in pairs}
    return value


def problem_of(error: ValueError | RecursionError) -> str:
    """Say in words why a text is no JSON value that can be read."""
    if isinstance(error, RecursionError):
        return "expected a trace in JSON, found JSON that is nested too deeply"
    if isinstance(error, json.JSONDecodeError):
        return f"expected JSON: {error.msg} (column {error.colno}{_further_line(error)})"
    return "expected JSON with numbers of a sensible length"


def _further_line(error: json.JSONDecodeError) -> str:
    return f" of line {error.lineno} of the object" if error.lineno > 1 else ""


class _Balance:
    """Follows strings and brackets through pieces of JSON text."""

    def __init__(self) -> None:
        self.depth = 0
        self.in_string = False
        self._escaped = False

    def end(self, data: bytes, start: int) -> int | None:
        """Return the index behind the bracket that closes the value; None: it goes on in the next piece."""
        if self.in_string:
            rest = _STRING_REST.match(data, start + self._escaped)
            if rest is None or not self._closes(rest, data):
                return None
            start = rest.end()
        for token in _TOKEN.finditer(data, start):
            first = data[token.start()]
            if first == 0x22:
                if not self._closes(token, data):
                    return None
            elif first in b"[{":
                self.depth += 1
            else:
                self.depth -= 1
                if self.depth <= 0:
                    return token.end()
        return None

    def _closes(self, string: re.Match[bytes], data: bytes) -> bool:
        self.in_string = not string.group(1)
        self._escaped = self.in_string and string.end() < len(data)
        return not self.in_string


class JsonValues:
    """The JSON values of one file, in order.

    Args:
        source: The bytes.
        file: The file's path as given.
        fail: Is told of everything that could not be read: the line and the reason.
    """

    def __init__(self, source: ByteSource, file: str, fail: Callable[[int, str], None]) -> None:
        self._source = source
        self._file = file
        self._fail = fail
        self._arrays = 0

    def __iter__(self) -> Iterator[Document]:
        while piece := self._source.read_piece():
            head = piece.lstrip(_SPACE)
            if head.startswith(b"["):
                yield from self._array(piece)
            elif head:
                yield from self._objects(piece)
        if self._source.problem:
            self._fail(self._source.line, f"{self._source.problem}; what came before was read")

    # --- objects -------------------------------------------------------------------------------------------------

    def _objects(self, piece: bytes) -> Iterator[Document]:
        """Read what begins on a line and does not begin with an array."""
        line = self._source.line
        whole = self._rest_of_line(piece)
        if whole is None:
            self._fail(line, f"a line {_TOO_LARGE}")
            return
        try:
            value = parse(whole.rstrip(_SPACE))
        except (ValueError, RecursionError) as error:
            yield from self._split(whole, line, error)
            return
        yield Document(value, Place(self._file, line, size=len(whole)))

    def _rest_of_line(self, piece: bytes) -> bytes | None:
        """Complete a line; None where it is too large: then it has been passed over."""
        if piece.endswith(b"\n"):
            return piece
        pieces, size = [piece], len(piece)
        while not piece.endswith(b"\n") and (piece := self._source.read_piece()):
            size += len(piece)
            if size <= MAX_BYTES:
                pieces.append(piece)
            else:
                pieces.clear()
        return b"".join(pieces) if size <= MAX_BYTES else None

    def _split(self, whole: bytes, line: int, error: ValueError | RecursionError) -> Iterator[Document]:
        """Read a line that is no single value: several of them, or the beginning of one that goes on."""
        start = _skip_gap(whole, 0)
        while start < len(whole):
            balance = _Balance()
            end = balance.end(whole, start) if whole.startswith(b"{", start) else start
            if end is None and not balance.in_string and whole.endswith(b"\n"):
                yield from self._spread(whole[start:], line, balance)
                return
            try:
                value = parse(whole[start:end])
            except (ValueError, RecursionError):
                break
            end = end or len(whole)
            yield Document(value, Place(self._file, line, size=end - start))
            start = _skip_gap(whole, end)
        # A line that a fault of the medium cut off is reported with that fault.
        if start < len(whole) and (whole.endswith(b"\n") or not self._source.problem):
            self._fail(line, problem_of(error))

    def _spread(self, first: bytes, line: int, balance: _Balance) -> Iterator[Document]:
        """Read an object that goes on over further lines."""
        pieces, size, check_at = [first], len(first), 0
        end, sound = None, True
        while end is None and sound and (piece := self._source.read_piece()):
            end = balance.end(piece, 0)
            size += len(piece[:end])
            if end is not None:
                self._source.push_back(piece[end:])
            if size > MAX_BYTES:
                pieces.clear()
                continue
            pieces.append(piece[:end])
            sound = not (balance.in_string and piece.endswith(b"\n"))
            if end is None and sound and size > check_at and piece.endswith(b"\n"):
                check_at = 2 * size
                sound = _may_go_on(b"".join(pieces))
        if size > MAX_BYTES:
            self._fail(line, f"an object {_TOO_LARGE}")
            return
        yield from self._joined(b"".join(pieces), line)

    def _joined(self, whole: bytes, line: int) -> Iterator[Document]:
        try:
            value = parse(whole)
        except (ValueError, RecursionError) as error:
            cut_off = _may_go_on(whole)
            self._fail(line, "expected an object that is closed: it is cut off" if cut_off else problem_of(error))
            yield from self._lines_of(whole, line)
            return
        yield Document(value, Place(self._file, line, size=len(whole)))

    def _lines_of(self, whole: bytes, line: int) -> Iterator[Document]:
        """Read the lines behind a broken beginning that are whole objects of their own."""
        for number, text in enumerate(whole.split(b"\n")[1:], start=line + 1):
            if not text.startswith(b'{"'):
                continue
            try:
                value = parse(text)
            except (ValueError, RecursionError):
                continue
            yield Document(value, Place(self._file, number, size=len(text)))

    # --- arrays --------------------------------------------------------------------------------------------------

    def _array(self, piece: bytes) -> Iterator[Document]:
        """Read the elements of an array one after the other, whether it ends on this line or a gigabyte later."""
        line = self._source.line
        self._arrays += 1
        try:
            value = parse(piece)
        except (ValueError, RecursionError) as error:
            inside = piece.lstrip(_SPACE)[1:].lstrip(_SPACE)
            if inside and inside[:1] not in b"{[]":
                self._rest_of_line(piece)
                self._fail(line, problem_of(error))
                return
            yield from _Elements(self._source, self._file, self._fail, self._arrays).read(piece, line)
            return
        if not is_list(value):
            return
        for index, element in enumerate(value, start=1):
            yield Document(element, Place(self._file, line, index, self._arrays, len(piece) // len(value)))


def _skip_gap(data: bytes, start: int) -> int:
    """Return where the next value of a line begins."""
    return len(data) - len(data[start:].lstrip(_SPACE + b","))


def _may_go_on(data: bytes) -> bool:
    """Return whether a text is the sound beginning of a value that is not over."""
    text = data.decode(errors="replace").rstrip()
    try:
        json.loads(text)
    except json.JSONDecodeError as error:
        return error.pos >= len(text)
    except (ValueError, RecursionError):
        return False
    return False


class _Elements:
    """Reads one long array; see `JsonValues` for what it is given."""

    def __init__(self, source: ByteSource, file: str, fail: Callable[[int, str], None], array: int) -> None:
        self._source = source
        self._file = file
        self._fail = fail
        self._array = array
        self._number = 0
        self._start_line = 0
        self._pieces: list[bytes] = []
        self._size = 0
        self._balance: _Balance | None = None
        self._separated = True
        self._over = False

    def read(self, piece: bytes, line: int) -> Iterator[Document]:
        """Read the elements.

        Args:
            piece: The beginning of the array.
            line: Its line.

        Yields:
            The elements that could be read.
        """
        position = piece.index(b"[") + 1
        while piece and not self._over:
            yield from self._in_piece(piece, position)
            if self._balance is not None and self._balance.in_string and piece.endswith(b"\n"):
                self._fail(self._start_line, f"element {self._number} of the array: a text in it is cut off")
                return
            if not self._over:
                piece, position = self._source.read_piece(), 0
        if self._over or self._source.problem:
            return
        where = f"inside element {self._number}" if self._balance else "before its closing bracket"
        self._fail(self._start_line or line, f"expected an array that is closed: it is cut off {where}")

    def _in_piece(self, piece: bytes, position: int) -> Iterator[Document]:
        while position < len(piece) and not self._over:
            if self._balance is None:
                position = self._between(piece, position)
                continue
            end = self._balance.end(piece, position)
            self._keep(piece[position:end])
            if end is None:
                return
            position, self._balance, self._separated = end, None, False
            yield from self._element()

    def _between(self, piece: bytes, position: int) -> int:
        """Pass over what stands between elements; return where to go on."""
        char = piece[position : position + 1]
        if char in b" \t\r\n,":
            self._separated = self._separated or char == b","
            return position + 1
        if char == b"]" or not self._separated:
            self._over = True
            if char != b"]":
                self._fail(self._source.line, f"expected a comma or the end of the array behind element {self._number}")
            self._source.push_back(piece[position + (char == b"]") :])
            return position
        self._number += 1
        self._start_line = self._source.line
        if char in b"{[":
            self._balance = _Balance()
            return position
        self._fail(self._start_line, f"element {self._number} of the array is no object")
        return position + len(re.split(rb"[,\]\n]", piece[position:], maxsplit=1)[0])

    def _keep(self, data: bytes) -> None:
        self._size += len(data)
        if self._size <= MAX_BYTES:
            self._pieces.append(data)
        else:
            self._pieces.clear()

    def _element(self) -> Iterator[Document]:
        data, size = b"".join(self._pieces), self._size
        self._pieces.clear()
        self._size = 0
        where = f"element {self._number} of the array"
        if size > MAX_BYTES:
            self._fail(self._start_line, f"{where} is {_TOO_LARGE}")
            return
        try:
            value = parse(data)
        except (ValueError, RecursionError) as error:
            self._fail(self._start_line, f"{where}: {problem_of(error)}")
            return
        yield Document(value, Place(self._file, self._start_line, self._number, self._array, size))
