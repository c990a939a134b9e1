"""The version of trainer-kai: the package, the image and `--version` have it from here.

A constant, because a checkout that is not installed has no metadata to read the version from.
"""

__all__ = ["__version__"]

__version__ = "0.1.0"
