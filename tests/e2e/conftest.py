"""What these tests share: a cache folder of their own."""

from pathlib import Path

import pytest


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return an empty folder that takes the place of the cache of this machine."""
    monkeypatch.setenv("TRAINER_KAI_CACHE", str(tmp_path))
    return tmp_path
