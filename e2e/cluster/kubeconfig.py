"""Who may talk to the API server, and the files that let them."""

import base64
import json
import secrets
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

__all__ = ["ADMIN", "OPERATORS", "kubeconfig", "make_tokens", "tokens_csv", "write_kubeconfigs"]

ADMIN: Final = "admin"
# One user per program, so that the audit log tells their writes apart. All may do everything: the
# chain is tested as it is, not the RBAC its makers ship.
OPERATORS: Final = ("kube-controller-manager", "kube-scheduler", "jobset", "trainer", "kwok")


def make_tokens() -> dict[str, str]:
    """Return a fresh secret for every user."""
    return {user: secrets.token_hex(16) for user in (ADMIN, *OPERATORS)}


def tokens_csv(tokens: Mapping[str, str]) -> str:
    """Return the API server's static token file: token, user, uid, groups."""
    return "".join(f"{token},{user},{user},system:masters\n" for user, token in tokens.items())


def kubeconfig(server: str, authority_pem: bytes, user: str, token: str) -> str:
    """Return a kubeconfig for one user; JSON, which is YAML, so no quoting can go wrong."""
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [
            {
                "name": "chain",
                "cluster": {
                    "server": server,
                    "certificate-authority-data": base64.b64encode(authority_pem).decode(),
                },
            }
        ],
        "users": [{"name": user, "user": {"token": token}}],
        "contexts": [{"name": "chain", "context": {"cluster": "chain", "user": user}}],
        "current-context": "chain",
    }
    return json.dumps(config, indent=1)


def write_kubeconfigs(folder: Path, configs: Iterable[tuple[str, str]]) -> None:
    """Write one file per user, readable by the owner only."""
    folder.mkdir(mode=0o700, exist_ok=True)
    for user, text in configs:
        file = folder / f"{user}.yaml"
        file.touch(mode=0o600)
        file.write_text(text)
