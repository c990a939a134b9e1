"""The version of trainer-kai: the package, the image and `--version` have it from here.

A constant, because a checkout that is not installed has no metadata to read the version from.
"""

from collections.abc import Sequence

__version__ = "0.1.0"


def version_text(python: Sequence[object]) -> str:
    """Return what `--version` prints, with the version of Python that runs it."""
    return f"trainer-kai {__version__} (Python {'.'.join(map(str, python[:3]))})"
