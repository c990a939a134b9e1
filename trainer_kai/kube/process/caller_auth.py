"""The user behind an HTTP request to this process, and whether RBAC allows that user the path.

A TokenReview says whose bearer token it is, and a SubjectAccessReview whether that user may `get`
the path. From where a request comes says nothing: behind a proxy in the pod every caller comes from
loopback. A decision is good for ten seconds, cached by a hash of the token. How many are cached and
how many are in flight at once is bounded, so that made-up tokens cost no memory and little of the
API server.
"""

from collections.abc import Mapping
from hashlib import sha256
from typing import Final, NamedTuple

import msgspec

from trainer_kai.api.names import AUTHENTICATION, AUTHORIZATION
from trainer_kai.kube.client import Client, RetryPolicy
from trainer_kai.kube.rest.errors import ApiError
from trainer_kai.kube.rest.request import post
from trainer_kai.service.health import Denial

__all__ = ["CallerAuthorizer"]

_TOKEN_REVIEWS: Final = f"/apis/{AUTHENTICATION}/v1/tokenreviews"
_ACCESS_REVIEWS: Final = f"/apis/{AUTHORIZATION}/v1/subjectaccessreviews"
_CACHED_FOR_S: Final = 10.0
_MAX_CACHED: Final = 64
_MAX_IN_FLIGHT: Final = 4  # at once
_RETRY_POLICY: Final = RetryPolicy(timeout_s=5.0, total_s=5.0)


class _User(msgspec.Struct, frozen=True):
    username: str = ""
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: Mapping[str, tuple[str, ...]] = {}


class _TokenReviewStatus(msgspec.Struct, frozen=True):
    authenticated: bool = False
    user: _User = _User()


class _TokenReview(msgspec.Struct, frozen=True):
    status: _TokenReviewStatus


class _AccessReviewStatus(msgspec.Struct, frozen=True):
    allowed: bool = False


class _AccessReview(msgspec.Struct, frozen=True):
    status: _AccessReviewStatus


class _CachedDecision(NamedTuple):
    """Why a caller is refused, or None, and until when that is so."""

    denial: Denial | None
    until_s: float


class CallerAuthorizer:
    """Callers of this process, as the API server knows them."""

    def __init__(self, client: Client) -> None:
        self._client: Final = client.with_retry_policy(_RETRY_POLICY)
        self._cache: Final[dict[tuple[bytes, str], _CachedDecision]] = {}  # the oldest first
        self._in_flight = 0

    async def denial(self, token: str, path: str) -> Denial | None:
        """Say why the bearer of a token may not read a path; None for one that may."""
        key, now_s = (sha256(token.encode()).digest(), path), self._client.clock.monotonic_s()
        cached = self._cache.get(key)
        if cached is not None and now_s < cached.until_s:
            return cached.denial
        if self._in_flight >= _MAX_IN_FLIGHT:
            return Denial(
                429, f"{_MAX_IN_FLIGHT} tokens are being looked at: ask again in a second"
            )
        self._in_flight += 1
        try:
            denial = await self._check(token, path)
        except ApiError as error:
            return Denial(503, f"the API server did not say whose token it is: {error}")
        finally:
            self._in_flight -= 1
        self._cache.pop(key, None)
        self._cache[key] = _CachedDecision(denial, now_s + _CACHED_FOR_S)
        if len(self._cache) > _MAX_CACHED:
            del self._cache[next(iter(self._cache))]
        return denial

    async def _check(self, token: str, path: str) -> Denial | None:
        review_body = _review(AUTHENTICATION, "TokenReview", {"token": token})
        token_review = await self._client.call(
            _TokenReview, post(_TOKEN_REVIEWS, review_body, repeatable=True)
        )
        if not token_review.status.authenticated:
            return Denial(401, "the API server does not take this bearer token: it may be over")
        user = token_review.status.user
        spec = {
            "user": user.username,
            "uid": user.uid,
            "groups": list(user.groups),
            "extra": {name: list(values) for name, values in user.extra.items()},
            "nonResourceAttributes": {"path": path, "verb": "get"},
        }
        review_body = _review(AUTHORIZATION, "SubjectAccessReview", spec)
        access_review = await self._client.call(
            _AccessReview, post(_ACCESS_REVIEWS, review_body, repeatable=True)
        )
        if access_review.status.allowed:
            return None
        right = f"bind a ClusterRole with the nonResourceURL {path} and the verb get to it"
        return Denial(403, f"{user.username} may not get {path}: {right}")


def _review(group: str, kind: str, spec: Mapping[str, object]) -> Mapping[str, object]:
    return {"apiVersion": f"{group}/v1", "kind": kind, "spec": spec}
