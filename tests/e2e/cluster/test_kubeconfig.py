"""The users of a cluster and their files."""

import base64
import json
import stat
from pathlib import Path

import pytest

from e2e.cluster.kubeconfig import (
    ADMIN,
    OPERATORS,
    Credentials,
    make_tokens,
    tokens_csv,
    write_kubeconfig,
)
from tests.support.case import Case, ids


def test_every_user_has_a_secret_of_its_own() -> None:
    """No two programs can be taken for one another, and no two clusters share a secret."""
    tokens, others = make_tokens(), make_tokens()

    assert list(tokens) == [ADMIN, *OPERATORS]
    assert len({*tokens.values(), *others.values()}) == 2 * len(tokens)


def test_the_token_file_names_user_and_group() -> None:
    """One line for each user; the API server takes the group as it stands there."""
    assert tokens_csv({"admin": "a1", "kwok": "b2"}) == (
        "a1,admin,admin,system:masters\nb2,kwok,kwok,system:masters\n"
    )


CREDENTIALS = Credentials("https://127.0.0.1:1", b"authority", {"kwok": "secret"})

# user, token and server asked for -> server and token in the file
CONFIGS = [
    Case("a user of the cluster", ("kwok", "", ""), ("https://127.0.0.1:1", "secret")),
    Case("somebody else", ("ns.default", "other", ""), ("https://127.0.0.1:1", "other")),
    Case(
        "through a proxy",
        ("kwok", "", "https://127.0.0.1:2"),
        ("https://127.0.0.1:2", "secret"),
    ),
]


@pytest.mark.parametrize("case", CONFIGS, ids=ids)
def test_a_kubeconfig_leads_to_one_user_of_one_cluster(
    case: Case[tuple[str, str, str], tuple[str, str]],
) -> None:
    """Whoever uses it reaches the server, trusts its authority and logs in with the token."""
    config = json.loads(CREDENTIALS.kubeconfig(*case.given))

    (cluster,), (context,), (user,) = config["clusters"], config["contexts"], config["users"]
    assert config["current-context"] == context["name"]
    assert context["context"] == {"cluster": cluster["name"], "user": user["name"]}
    assert base64.b64decode(cluster["cluster"]["certificate-authority-data"]) == b"authority"
    assert (cluster["cluster"]["server"], user["user"]["token"]) == case.want
    assert user["name"] == case.given[0]


@pytest.mark.parametrize("namespace", ["", "team"])
def test_a_kubeconfig_names_the_namespace_of_an_account(namespace: str) -> None:
    """Nobody else has one, and then the field is left out: an empty one would be no namespace."""
    config = json.loads(CREDENTIALS.kubeconfig("team.account", "token", namespace=namespace))

    (context,) = config["contexts"]
    assert context["context"].get("namespace") == (namespace or None)


def test_a_kubeconfig_is_for_the_owner(tmp_path: Path) -> None:
    """Nobody else on the machine can read it, and it can be written again."""
    file = tmp_path / "kubeconfigs" / "admin.yaml"

    assert [write_kubeconfig(file, text) for text in ("first", "second")] == [file, file]

    assert file.read_text() == "second"
    assert [stat.S_IMODE(path.stat().st_mode) for path in (file.parent, file)] == [0o700, 0o600]
