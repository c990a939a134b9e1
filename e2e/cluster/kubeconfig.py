"""Who may talk to the API server, and the files that let them."""

import base64
import json
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

ADMIN: Final = "admin"
# One user per program, so that the audit log tells their writes apart. All may do everything: the
# chain is tested as it is, not the RBAC its makers ship.
OPERATORS: Final = ("kube-controller-manager", "kube-scheduler", "jobset", "trainer", "kwok")


def make_tokens() -> dict[str, str]:
    """Return a fresh secret for every user."""
    return {user: secrets.token_hex(16) for user in (ADMIN, *OPERATORS)}


def tokens_csv(tokens: Mapping[str, str]) -> str:
    """Return the API server's static token file: token, user, uid, groups."""
    return "".join(
        f"{token},{_user_name(user)},{user},system:masters\n" for user, token in tokens.items()
    )


def _user_name(user: str) -> str:
    """Return the name that the API server knows; policies exempt components of Kubernetes by it."""
    return f"system:{user}" if user.startswith("kube-") else user


class Credentials(NamedTuple):
    """Where one API server is and how its users prove who they are."""

    server: str
    authority_pem: bytes
    tokens: Mapping[str, str]

    def kubeconfig(
        self, user: str, token: str = "", server: str = "", *, namespace: str = ""
    ) -> str:
        """Return a kubeconfig for one user; JSON, which is YAML, so no quoting can go wrong."""
        context = {"cluster": "chain", "user": user}
        if namespace:  # that of a ServiceAccount, as in its pod
            context["namespace"] = namespace
        cluster = {
            "server": server or self.server,
            "certificate-authority-data": base64.b64encode(self.authority_pem).decode(),
        }
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "chain", "cluster": cluster}],
            "users": [{"name": user, "user": {"token": token or self.tokens[user]}}],
            "contexts": [{"name": "chain", "context": context}],
            "current-context": "chain",
        }
        return json.dumps(config, indent=1)


def write_kubeconfig(file: Path, text: str) -> Path:
    """Write a kubeconfig that only its owner can read; return where it is."""
    file.parent.mkdir(mode=0o700, exist_ok=True)
    file.touch(mode=0o600)
    file.write_text(text)
    return file
