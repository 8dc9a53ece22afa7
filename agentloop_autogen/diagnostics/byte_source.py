"""Bytes of a file line by line, unpacked where they are packed, with every fault of the medium kept as a remark."""

from __future__ import annotations

import io
import zlib
from typing import BinaryIO, Final

__all__ = ["ByteSource"]

_PIECE: Final = 1024 * 1024
"""Bytes of a line that are read at once."""
_PACKED: Final = 512
"""Packed bytes handed on at once: what a fault in them takes along."""
_MAGIC: Final = b"\x1f\x8b"
_BOM: Final = b"\xef\xbb\xbf"
_GZIP_WINDOW: Final = zlib.MAX_WBITS | 16


class ByteSource:
    """Reads lines in bounded pieces and knows their numbers.

    Args:
        stream: A binary stream; the caller closes it.
    """

    def __init__(self, stream: BinaryIO) -> None:
        self._raw = _Unpacked(stream)
        self._lines = io.BufferedReader(self._raw, _PIECE)
        self._rest: bytes | None = None
        self._next_line = 1
        self.line = 1
        """Number of the line the last piece is from."""

    @property
    def problem(self) -> str:
        """What ended the reading before the end of the data; empty: nothing."""
        return self._raw.problem

    def read_piece(self) -> bytes:
        """Return the next line with its end, or the next 1 MiB of it; empty at the end of the data."""
        piece, self._rest = self._rest or self._lines.readline(_PIECE), None
        if self._next_line == 1:
            piece = piece.removeprefix(_BOM)
        self.line = self._next_line
        self._next_line += piece.endswith(b"\n")
        return piece

    def push_back(self, piece: bytes) -> None:
        """Have the end of the last piece read again."""
        self._rest = piece or None
        self._next_line = self.line if piece else self._next_line


class _Unpacked(io.RawIOBase):
    """The bytes of a stream, unpacked if they are a gzip; after a fault it is simply at its end."""

    def __init__(self, stream: BinaryIO) -> None:
        super().__init__()
        self.problem = ""
        self._stream = stream
        self._head = b""
        self._head = self._take(len(_MAGIC))
        self._packed = self._head == _MAGIC
        self._unpacker = zlib.decompressobj(_GZIP_WINDOW)
        self._waiting = b""

    def readable(self) -> bool:
        """Always."""
        return True

    def readinto(self, buffer: bytearray | memoryview, /) -> int:  # pyright: ignore[reportIncompatibleMethodOverride] - the base names a private type
        """Fill a buffer as far as it goes."""
        data = self._unpack(len(buffer)) if self._packed else self._take(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def _take(self, size: int) -> bytes:
        head, self._head = self._head, b""
        if head or self.problem:
            return head
        try:
            return self._stream.read(size) or b""
        except OSError as error:
            self.problem = f"the file cannot be read any further ({error.strerror or type(error).__name__})"
            return b""

    def _unpack(self, size: int) -> bytes:
        while not self.problem:
            packed = self._waiting or self._take(_PACKED)
            if self._unpacker.eof:
                # Further members may follow, and zeros that fill up a block.
                packed = packed.lstrip(b"\0")
                if not packed:
                    self._waiting = self._take(_PACKED)
                    if self._waiting:
                        continue
                    return b""
                self._unpacker = zlib.decompressobj(_GZIP_WINDOW)
            elif not packed:
                self.problem = self.problem or "the gzip is cut off"
                return self._unpacker.flush()
            try:
                data = self._unpacker.decompress(packed, size)
            except zlib.error:
                self.problem = "the gzip is damaged"
                return b""
            self._waiting = self._unpacker.unconsumed_tail or self._unpacker.unused_data
            if data:
                return data
        return b""
