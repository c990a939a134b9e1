"""Users of a kubeconfig that a program or an identity provider vouches for.

This is what the official package is here for: the protocols of `exec` plugins and of OpenID
Connect. Its loader hides a plugin that fails, so the plugin is run by its own class, which does
not. Only this module imports the package, and only when a kubeconfig asks for it.
"""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import datetime
from typing import Any, Final, NamedTuple

from kubernetes.aio.client import Configuration
from kubernetes.aio.config.config_exception import ConfigException
from kubernetes.aio.config.exec_provider import ExecProvider
from kubernetes.aio.config.kube_config import ConfigNode, load_kube_config

from trainer_kai.clock import Clock
from trainer_kai.errors import ConfigError, FieldError
from trainer_kai.kube.access import Access, Certificate
from trainer_kai.kube.kubeconfig import Selected

__all__ = ["with_plugin"]

_EARLY_S: Final = 60.0  # a token is replaced this long before it runs out
_BETWEEN_LOOKS_S: Final = 60.0  # an OIDC token's date is read by the package, not by us


class _Fetched(NamedTuple):
    header: str
    good_for_s: float


class _Renewed:
    """A token that is fetched again before it runs out."""

    def __init__(self, fetch: Callable[[], Awaitable[_Fetched]], clock: Clock) -> None:
        self._fetch = fetch
        self._clock = clock
        self._header = ""
        self._until_s = 0.0

    def keep(self, fetched: _Fetched) -> None:
        """Use a token for as long as it is good."""
        self._header = fetched.header
        self._until_s = self._clock.monotonic_s() + fetched.good_for_s

    async def authorization(self) -> str:
        """Return the token, a new one where the old one is about to run out."""
        if not self._header or self._clock.monotonic_s() > self._until_s:
            await self.renew()
        return self._header

    async def renew(self) -> bool:
        """Fetch one; say whether it differs."""
        before = self._header
        self.keep(await self._fetch())
        return self._header != before


async def with_plugin(access: Access, selected: Selected, clock: Clock) -> Access:
    """Return the access with credentials from the provider that the user names."""
    if selected.plugin == "auth-provider":
        return replace(access, credentials=_Renewed(_from_provider(selected), clock))
    status = await _run(selected)
    chain = status.get("clientCertificateData")
    if chain:
        key = status.get("clientKeyData") or ""
        return replace(access, certificate=Certificate(chain.encode(), key.encode()))

    async def fetch() -> _Fetched:
        return _token_of(await _run(selected), selected, clock)

    credentials = _Renewed(fetch, clock)
    credentials.keep(_token_of(status, selected, clock))
    return replace(access, credentials=credentials)


async def _run(selected: Selected) -> dict[str, Any]:
    """Run the plugin and return what it says."""
    fields = dict(selected.user.fields["exec"])
    command = str(fields.get("command") or "")
    if "/" in command:  # then it is meant from where the kubeconfig is, as kubectl has it
        fields["command"] = str(selected.user.file.parent / command)
    section = ConfigNode("exec", fields)  # type: ignore[no-untyped-call]  # the package has no types
    try:
        provider = ExecProvider(section)  # type: ignore[no-untyped-call]
        status: dict[str, Any] = await provider.run()  # type: ignore[no-untyped-call]
    except ConfigException as error:
        raise _fault(selected, str(error)) from error
    except OSError as error:
        message = f"{command}: {error.strerror}; is the plugin installed and on PATH?"
        raise _fault(selected, message) from error
    return status


def _token_of(status: dict[str, Any], selected: Selected, clock: Clock) -> _Fetched:
    token = status.get("token")
    if not token:
        raise _fault(selected, "the plugin gave neither a token nor a certificate")
    expiry = status.get("expirationTimestamp")
    if not expiry:
        return _Fetched(f"Bearer {token}", float("inf"))  # as the protocol has it: until a 401
    left_s = (datetime.fromisoformat(expiry) - clock.now()).total_seconds()
    return _Fetched(f"Bearer {token}", max(left_s - _EARLY_S, 0.0))


def _from_provider(selected: Selected) -> Callable[[], Awaitable[_Fetched]]:
    async def fetch() -> _Fetched:
        configuration = Configuration()
        load: Callable[..., Awaitable[object]] = load_kube_config  # the package has no types
        try:
            await load(str(selected.context.file), selected.context.name, configuration)
        except (ConfigException, ValueError, OSError) as error:
            raise _fault(selected, str(error)) from error
        return _Fetched(configuration.api_key.get("BearerToken", ""), _BETWEEN_LOOKS_S)

    return fetch


def _fault(selected: Selected, message: str) -> ConfigError:
    user = selected.user
    where = f"{user.file}: users[{user.name}].user.{selected.plugin}"
    return ConfigError([FieldError(where, message)])
