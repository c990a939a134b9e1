"""No test is read by the likeness of another test's pods."""

import pytest

from trainer_kai.api import podtext
from trainer_kai.api.families import PodTextTemplates


@pytest.fixture(autouse=True)
def templates(monkeypatch: pytest.MonkeyPatch) -> PodTextTemplates:
    """Let each test begin without a family."""
    known = PodTextTemplates()
    monkeypatch.setattr(podtext, "TEMPLATES", known)
    return known
