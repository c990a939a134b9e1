"""The front door leads to every kind, and costs nothing until it is used."""

import subprocess
import sys

import pytest

from trainer_kai import api


@pytest.mark.parametrize("name", api.__all__)
def test_every_kind_is_there(name: str) -> None:
    """Under its own name."""
    assert getattr(api, name).__name__ == name


def test_what_is_not_there_is_an_attribute_error() -> None:
    """As for any module."""
    with pytest.raises(AttributeError, match=r"module 'trainer_kai\.api' has no attribute 'Pods'"):
        api.Pods  # type: ignore[attr-defined] # noqa: B018


def test_nothing_is_loaded_before_it_is_asked_for() -> None:
    """A command line that reads one kind does not pay for eighteen."""
    script = (
        "import sys, trainer_kai.api as api;"
        "before = {name for name in sys.modules if name.startswith('trainer_kai.api.')};"
        "api.Lease;"
        "print(before, 'msgspec' in sys.modules, 'trainer_kai.api.pod' in sys.modules)"
    )

    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )

    assert done.stdout == "set() True False\n"
