"""Which Go modules a chain is built from."""

import pytest

from e2e.cluster.binaries import BuildError
from e2e.cluster.chains import all_chains, chain_modules, chosen_chain
from e2e.cluster.paths import chain_source


@pytest.mark.parametrize("value", [None, ""])
def test_without_a_name_it_is_the_default(
    monkeypatch: pytest.MonkeyPatch, value: str | None
) -> None:
    """An empty variable is no variable; the default chain is one module."""
    monkeypatch.delenv("TRAINER_KAI_CHAIN", raising=False)
    if value is not None:
        monkeypatch.setenv("TRAINER_KAI_CHAIN", value)

    assert chosen_chain() == "default"
    assert chain_modules("default") == [chain_source()]


def test_another_chain_replaces_programs_of_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its modules come after the one of the default chain, so what they build is what stays."""
    monkeypatch.setenv("TRAINER_KAI_CHAIN", "oldest")

    first, *others = chain_modules(chosen_chain())

    assert first == chain_source()
    assert [module.name for module in others] == ["kubernetes", "trainer"]
    assert all((module / "go.sum").is_file() for module in others)


def test_an_unknown_name_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """The message names the chains that exist."""
    monkeypatch.setenv("TRAINER_KAI_CHAIN", "olderst")

    with pytest.raises(BuildError, match=f"is 'olderst'; the chains are {all_chains()[0]}, "):
        chosen_chain()
