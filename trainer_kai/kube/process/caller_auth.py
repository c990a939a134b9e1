"""Authentication and authorization of callers of this process's HTTP server.

A TokenReview returns the user of the bearer token, and a SubjectAccessReview whether the user may
`get` the path. The source address does not matter: behind a proxy in the pod all callers come from
loopback. A decision is cached for ten seconds, by a hash of the token. The number of cached
decisions and of concurrent reviews is limited, so that invalid tokens cost little memory and few
requests to the API server.
"""

from collections.abc import Mapping
from hashlib import sha256
from typing import Final, NamedTuple

import msgspec

from trainer_kai.api.names import AUTHENTICATION, AUTHORIZATION
from trainer_kai.kube.client import ACCESS_REVIEWS, AccessReviewResponse, Client, RetryPolicy
from trainer_kai.kube.rest.request import post
from trainer_kai.kube.rest.response import ApiError
from trainer_kai.service.health import Denial

_TOKEN_REVIEWS: Final = f"/apis/{AUTHENTICATION}/v1/tokenreviews"
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


class _CachedDecision(NamedTuple):
    """Why a caller is refused, or None, and until when this is valid."""

    denial: Denial | None
    until_s: float


class CallerAuthorizer:
    def __init__(self, client: Client) -> None:
        self._client: Final = client.with_retry_policy(_RETRY_POLICY)
        self._cache: Final[dict[tuple[bytes, str], _CachedDecision]] = {}  # the oldest first
        self._in_flight = 0

    async def denial(self, token: str, path: str) -> Denial | None:
        """Return why the user of a token may not read a path; None if allowed."""
        key, now_s = (sha256(token.encode()).digest(), path), self._client.clock.monotonic_s()
        cached = self._cache.get(key)
        if cached is not None and now_s < cached.until_s:
            return cached.denial
        if self._in_flight >= _MAX_IN_FLIGHT:
            return Denial(429, f"{_MAX_IN_FLIGHT} tokens are being checked. Try again in a second.")
        self._in_flight += 1
        try:
            denial = await self._check(token, path)
        except ApiError as error:
            return Denial(503, f"The API server did not review the token: {error}")
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
            message = "The API server does not accept this bearer token; it may have expired."
            return Denial(401, message)
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
            AccessReviewResponse, post(ACCESS_REVIEWS, review_body, repeatable=True)
        )
        if access_review.status.allowed:
            return None
        right = f"Bind a ClusterRole with the nonResourceURL {path} and the verb get to the user."
        return Denial(403, f"User {user.username} may not get {path}. {right}")


def _review(group: str, kind: str, spec: Mapping[str, object]) -> Mapping[str, object]:
    return {"apiVersion": f"{group}/v1", "kind": kind, "spec": spec}
