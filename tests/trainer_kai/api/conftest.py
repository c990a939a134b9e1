"""No test is read by the likeness of another test's pods."""

import pytest

from trainer_kai.api import pod_text
from trainer_kai.api.pod_text_templates import PodTextTemplates


@pytest.fixture(autouse=True)
def templates(monkeypatch: pytest.MonkeyPatch) -> PodTextTemplates:
    known = PodTextTemplates()
    monkeypatch.setattr(pod_text, "TEMPLATES", known)
    return known
