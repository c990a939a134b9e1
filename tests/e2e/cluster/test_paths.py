"""Where things are kept."""

from pathlib import Path

import pytest

from e2e.cluster.paths import cache_root, chain_source, clusters_root, kept_logs_root
from tests.support.case import Case, ids

# TRAINER_KAI_CACHE, XDG_CACHE_HOME -> the cache
ROOTS = [
    Case("it is in the cache of the user", (None, None), "/home-of-one/.cache/trainer-kai"),
    Case("which may be elsewhere", (None, "/xdg"), "/xdg/trainer-kai"),
    Case("it may be put anywhere", ("/mine", "/xdg"), "/mine"),
    Case("an empty variable says nothing", ("", ""), "/home-of-one/.cache/trainer-kai"),
]


@pytest.mark.parametrize("case", ROOTS, ids=ids)
def test_cache_root(
    monkeypatch: pytest.MonkeyPatch, case: Case[tuple[str | None, str | None], str]
) -> None:
    """Our variable outranks the desktop's, and that one the home folder."""
    monkeypatch.setenv("HOME", "/home-of-one")
    for name, value in zip(("TRAINER_KAI_CACHE", "XDG_CACHE_HOME"), case.given, strict=True):
        if value is None:
            monkeypatch.delenv(name, raising=False)
        else:
            monkeypatch.setenv(name, value)

    assert cache_root() == Path(case.want)


def test_everything_lies_in_the_cache(cache: Path) -> None:
    """Clusters and kept logs are found below one folder; the source is in the checkout."""
    assert [clusters_root(), kept_logs_root()] == [cache / "clusters", cache / "kept-logs"]
    assert (chain_source() / "go.mod").is_file()
