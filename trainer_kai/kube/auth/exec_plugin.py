"""Users of a kubeconfig with credentials from a program: `exec` plugins.

The official package implements the protocol of `exec` plugins. Its loader hides a plugin that
fails, so the plugin is run by the package's inner class, which does not. Only this module imports
the package, and only if a kubeconfig needs it.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

from trainer_kai.errors import ConfigError, FieldError
from trainer_kai.kube.auth.kubeconfig import SelectedContext
from trainer_kai.kube.auth.rest_config import ClientCertificate, RestConfig
from trainer_kai.kube.rest.response import ApiError
from trainer_kai.service.clock import Clock

_EARLY_S: Final = 60.0  # a token is replaced this long before it expires
_RETRY_S: Final = 5.0  # between two attempts to replace a token that is still valid


class _FetchedToken(NamedTuple):
    header: str
    remaining_s: float  # until it expires

    @property
    def use_for_s(self) -> float:
        """Return for how long a token is used; a short-lived one for half of its lifetime."""
        return max(self.remaining_s - min(_EARLY_S, self.remaining_s / 2), 0.0)


class _RenewedToken:
    """A token that is renewed before it expires, by one task for all."""

    def __init__(self, fetch: Callable[[], Awaitable[_FetchedToken]], clock: Clock) -> None:
        self._fetch = fetch
        self._clock = clock
        self._lock = asyncio.Lock()
        self._header = ""
        self._replace_at_s = 0.0
        self._expires_at_s = 0.0

    def use(self, fetched: _FetchedToken) -> None:
        now_s = self._clock.monotonic_s()
        self._header = fetched.header
        self._replace_at_s = now_s + fetched.use_for_s
        self._expires_at_s = now_s + fetched.remaining_s

    async def authorization(self) -> str:
        if self._must_replace():
            async with self._lock:
                if self._must_replace():
                    await self._replace()
        return self._header

    async def _replace(self) -> None:
        """Renew the token; a failure before the old token expires is retried later."""
        try:
            self.use(await self._fetch())
        except (ConfigError, ApiError):
            left_s = self._expires_at_s - self._clock.monotonic_s()
            if left_s <= 0:
                raise
            self._replace_at_s = self._clock.monotonic_s() + min(_RETRY_S, left_s)

    async def renew(self) -> bool:
        """Renew the token, unless another task just did; say whether it changed."""
        before = self._header
        async with self._lock:
            if self._header == before:
                self.use(await self._fetch())
        return self._header != before

    def _must_replace(self) -> bool:
        return not self._header or self._clock.monotonic_s() >= self._replace_at_s


async def with_exec_plugin(
    rest_config: RestConfig, selected: SelectedContext, clock: Clock
) -> RestConfig:
    status = await _run_plugin(selected)
    chain, key = (str(status.get(f"client{it}Data") or "") for it in ("Certificate", "Key"))
    if bool(chain) != bool(key):
        raise _fault(selected, "the plugin returned only one of a certificate and its key")
    if chain:
        rest_config = replace(
            rest_config, certificate=ClientCertificate(chain.encode(), key.encode())
        )
    if not status.get("token"):
        if chain:
            return rest_config
        raise _fault(selected, "the plugin returned neither a token nor a certificate")

    async def fetch() -> _FetchedToken:
        return _read_token(await _run_plugin(selected), selected, clock)

    credentials = _RenewedToken(fetch, clock)
    credentials.use(_read_token(status, selected, clock))
    return replace(rest_config, credentials=credentials)


async def _run_plugin(selected: SelectedContext) -> dict[str, Any]:
    # The package takes most of a second to import, and the image is built without it.
    try:
        from kubernetes.aio.config.config_exception import ConfigException  # noqa: PLC0415
        from kubernetes.aio.config.exec_provider import ExecProvider  # noqa: PLC0415
        from kubernetes.aio.config.kube_config import ConfigNode  # noqa: PLC0415
    except ModuleNotFoundError as error:
        message = (
            "an exec plugin needs the Python package kubernetes, which is not installed here (the"
            " container image is built without it); use a token, a certificate or a ServiceAccount"
        )
        raise _fault(selected, message) from error
    exec_fields = selected.user.fields["exec"]
    if not isinstance(exec_fields, dict):
        raise _fault(selected, "must have a command and an apiVersion")
    command = str(exec_fields.get("command") or "")
    fields = {name: value for name, value in exec_fields.items() if value}
    if "/" in command:  # the path is relative to the kubeconfig, as in kubectl
        fields["command"] = str(selected.user.file.absolute().parent / command)
    section = ConfigNode("exec", fields)  # type: ignore[no-untyped-call]  # the package has no types
    try:
        provider = ExecProvider(section)  # type: ignore[no-untyped-call]
        status = await provider.run()  # type: ignore[no-untyped-call]
    except ConfigException as error:
        raise _fault(selected, " ".join(str(error).split())) from error
    except (TypeError, ValueError) as error:  # it trusts what it reads
        raise _fault(selected, f"cannot be run, or returns no ExecCredential: {error}") from error
    except OSError as error:
        message = f"{command}: {error.strerror}; is the plugin installed and on PATH?"
        raise _fault(selected, message) from error
    if not isinstance(status, dict):
        raise _fault(selected, "the plugin returned an ExecCredential without a status")
    return status


def _read_token(status: dict[str, Any], selected: SelectedContext, clock: Clock) -> _FetchedToken:
    token = status.get("token")
    if not token:
        raise _fault(selected, "the plugin returned no token any more")
    expiry = status.get("expirationTimestamp")
    if not expiry:
        return _FetchedToken(f"Bearer {token}", float("inf"))  # as the protocol has it: until a 401
    try:
        until = datetime.fromisoformat(str(expiry))
    except ValueError as error:
        raise _fault(selected, f"the plugin returned an invalid expiry time: {expiry!r}") from error
    if until.tzinfo is None:
        until = until.replace(tzinfo=UTC)
    return _FetchedToken(f"Bearer {token}", (until - clock.now()).total_seconds())


def _fault(selected: SelectedContext, message: str) -> ConfigError:
    user = selected.user
    where = f"{user.file}: users[{user.name}].user.exec"
    return ConfigError([FieldError(where, message)])
