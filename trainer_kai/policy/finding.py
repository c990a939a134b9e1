"""What is worth telling about a TrainJob before it runs."""

from typing import NamedTuple

__all__ = ["Finding"]


class Finding(NamedTuple):
    """One fact, and where it comes from."""

    path: str  # in the JobSet
    message: str
    blocks: bool = False  # something will never run

    def __str__(self) -> str:
        return f"{self.path}: {self.message}"
