"""Who asks this process by HTTP, and whether RBAC lets that user read the path.

As the API server does it for others: a TokenReview says whose bearer token it is, and a
SubjectAccessReview whether that user may `get` the path. From where a request comes says nothing:
behind a proxy in the pod every caller comes from loopback.

An answer is good for ten seconds, kept by a hash of the token. How many are kept and how many are
asked for at once is bounded, so that made-up tokens cost no memory and little of the API server.
"""

from collections.abc import Mapping
from hashlib import sha256
from typing import Final, NamedTuple

import msgspec

from trainer_kai.api.names import AUTHENTICATION, AUTHORIZATION
from trainer_kai.health import Denial
from trainer_kai.kube.client import Client, Patience
from trainer_kai.kube.errors import ApiError
from trainer_kai.kube.request import post

__all__ = ["Callers"]

_TOKENS: Final = f"/apis/{AUTHENTICATION}/v1/tokenreviews"
_ACCESS: Final = f"/apis/{AUTHORIZATION}/v1/subjectaccessreviews"
_GOOD_FOR_S: Final = 10.0
_MOST_KEPT: Final = 64
_MOST_ASKED: Final = 4  # at once
_PATIENCE: Final = Patience(timeout_s=5.0, total_s=5.0)


class _User(msgspec.Struct, frozen=True):
    username: str = ""
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: Mapping[str, tuple[str, ...]] = {}


class _Authenticated(msgspec.Struct, frozen=True):
    authenticated: bool = False
    user: _User = _User()


class _TokenReview(msgspec.Struct, frozen=True):
    status: _Authenticated


class _Allowed(msgspec.Struct, frozen=True):
    allowed: bool = False


class _AccessReview(msgspec.Struct, frozen=True):
    status: _Allowed


class _Answer(NamedTuple):
    """Why a caller is refused, or None, and until when that is so."""

    denial: Denial | None
    until_s: float


class Callers:
    """Callers of this process, as the API server knows them."""

    def __init__(self, client: Client) -> None:
        self._client: Final = client.with_patience(_PATIENCE)
        self._known: Final[dict[tuple[bytes, str], _Answer]] = {}  # the oldest first
        self._asking = 0

    async def denial(self, token: str, path: str) -> Denial | None:
        """Say why the bearer of a token may not read a path; None for one that may."""
        key, now_s = (sha256(token.encode()).digest(), path), self._client.clock.monotonic_s()
        known = self._known.get(key)
        if known is not None and now_s < known.until_s:
            return known.denial
        if self._asking >= _MOST_ASKED:
            return Denial(429, f"{_MOST_ASKED} tokens are being looked at: ask again in a second")
        self._asking += 1
        try:
            found = await self._ask(token, path)
        except ApiError as error:
            return Denial(503, f"the API server did not say whose token it is: {error}")
        finally:
            self._asking -= 1
        self._known.pop(key, None)
        self._known[key] = _Answer(found, now_s + _GOOD_FOR_S)
        if len(self._known) > _MOST_KEPT:
            del self._known[next(iter(self._known))]
        return found

    async def _ask(self, token: str, path: str) -> Denial | None:
        asked = _review(AUTHENTICATION, "TokenReview", {"token": token})
        told = await self._client.ask(_TokenReview, post(_TOKENS, asked, repeatable=True))
        if not told.status.authenticated:
            return Denial(401, "the API server does not take this bearer token: it may be over")
        user = told.status.user
        spec = {
            "user": user.username,
            "uid": user.uid,
            "groups": list(user.groups),
            "extra": {name: list(values) for name, values in user.extra.items()},
            "nonResourceAttributes": {"path": path, "verb": "get"},
        }
        asked = _review(AUTHORIZATION, "SubjectAccessReview", spec)
        answer = await self._client.ask(_AccessReview, post(_ACCESS, asked, repeatable=True))
        if answer.status.allowed:
            return None
        right = f"bind a ClusterRole with the nonResourceURL {path} and the verb get to it"
        return Denial(403, f"{user.username} may not get {path}: {right}")


def _review(group: str, kind: str, spec: Mapping[str, object]) -> Mapping[str, object]:
    return {"apiVersion": f"{group}/v1", "kind": kind, "spec": spec}
