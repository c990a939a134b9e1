"""Pieces of a stream, cut anywhere, into lines of any length. Pure."""

__all__ = ["LineSplitter"]


class LineSplitter:
    """Give it pieces, take whole lines. A line that is never finished is never given out.

    A line may come in thousands of pieces (an object of some MiB does): they are joined once.
    """

    def __init__(self) -> None:
        self._unfinished: list[bytes] = []

    def feed(self, piece: bytes) -> list[bytes]:
        """Return the lines that this piece completes, without their ends."""
        if b"\n" not in piece:
            self._unfinished.append(piece)
            return []
        *lines, rest = piece.split(b"\n")
        if self._unfinished:
            lines[0] = b"".join((*self._unfinished, lines[0]))
        self._unfinished = [rest] if rest else []
        return [line for line in lines if line]
