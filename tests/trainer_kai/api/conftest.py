"""No test is read by the likeness of another test's pods."""

import pytest

from trainer_kai.api import podtext
from trainer_kai.api.families import Families


@pytest.fixture(autouse=True)
def families(monkeypatch: pytest.MonkeyPatch) -> Families:
    """Let each test begin without a family."""
    known = Families()
    monkeypatch.setattr(podtext, "FAMILIES", known)
    return known
