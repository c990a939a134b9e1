"""Pieces of a stream, cut anywhere, into lines of any length. Pure."""

__all__ = ["Lines"]


class Lines:
    """Give it pieces, take whole lines. A line that is never finished is never given out.

    A line may come in thousands of pieces (an object of some MiB does): they are joined once.
    """

    def __init__(self) -> None:
        self._begun: list[bytes] = []

    def feed(self, piece: bytes) -> list[bytes]:
        """Return the lines that this piece completes, without their ends."""
        if b"\n" not in piece:
            self._begun.append(piece)
            return []
        *lines, rest = piece.split(b"\n")
        if self._begun:
            lines[0] = b"".join((*self._begun, lines[0]))
        self._begun = [rest] if rest else []
        return [line for line in lines if line]
