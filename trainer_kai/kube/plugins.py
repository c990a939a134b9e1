"""Users of a kubeconfig whose credentials a program gives: `exec` plugins.

The protocol of `exec` plugins is what the official package is here for. Its loader hides a plugin
that fails, so the plugin is run by its own class, which does not. Only this module imports the
package, and only when a kubeconfig asks for it.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

from trainer_kai.clock import Clock
from trainer_kai.errors import ConfigError, FieldError
from trainer_kai.kube.access import Access, Certificate
from trainer_kai.kube.errors import ApiError
from trainer_kai.kube.kubeconfig import Selected

__all__ = ["with_plugin"]

_EARLY_S: Final = 60.0  # a token is replaced this long before it runs out
_AGAIN_S: Final = 5.0  # between two attempts to replace one that is still good


class _Fetched(NamedTuple):
    header: str
    left_s: float  # until it ends

    @property
    def good_for_s(self) -> float:
        """Return for how long it is used: one that is short-lived for half of its life."""
        return max(self.left_s - min(_EARLY_S, self.left_s / 2), 0.0)


class _Renewed:
    """A token that is fetched again before it runs out, by one task for all."""

    def __init__(self, fetch: Callable[[], Awaitable[_Fetched]], clock: Clock) -> None:
        self._fetch = fetch
        self._clock = clock
        self._turn = asyncio.Lock()
        self._header = ""
        self._until_s = 0.0
        self._ends_s = 0.0

    def keep(self, fetched: _Fetched) -> None:
        """Use a token for as long as it is good."""
        now_s = self._clock.monotonic_s()
        self._header = fetched.header
        self._until_s = now_s + fetched.good_for_s
        self._ends_s = now_s + fetched.left_s

    async def authorization(self) -> str:
        """Return the token, a new one where the old one is about to run out."""
        if self._is_over():
            async with self._turn:
                if self._is_over():
                    await self._replace()
        return self._header

    async def _replace(self) -> None:
        """Fetch the next one; what fails before the old one has ended is tried again later."""
        try:
            self.keep(await self._fetch())
        except (ConfigError, ApiError):
            left_s = self._ends_s - self._clock.monotonic_s()
            if left_s <= 0:
                raise
            self._until_s = self._clock.monotonic_s() + min(_AGAIN_S, left_s)

    async def renew(self) -> bool:
        """Fetch one, unless somebody just did; say whether it differs."""
        before = self._header
        async with self._turn:
            if self._header == before:
                self.keep(await self._fetch())
        return self._header != before

    def _is_over(self) -> bool:
        return not self._header or self._clock.monotonic_s() >= self._until_s


async def with_plugin(access: Access, selected: Selected, clock: Clock) -> Access:
    """Return the access with credentials from the plugin that the user names."""
    status = await _run(selected)
    chain, key = (str(status.get(f"client{it}Data") or "") for it in ("Certificate", "Key"))
    if bool(chain) != bool(key):
        raise _fault(selected, "the plugin gave only one of a certificate and its key")
    if chain:
        access = replace(access, certificate=Certificate(chain.encode(), key.encode()))
    if not status.get("token"):
        if chain:
            return access
        raise _fault(selected, "the plugin gave neither a token nor a certificate")

    async def fetch() -> _Fetched:
        return _token_of(await _run(selected), selected, clock)

    credentials = _Renewed(fetch, clock)
    credentials.keep(_token_of(status, selected, clock))
    return replace(access, credentials=credentials)


async def _run(selected: Selected) -> dict[str, Any]:
    """Run the plugin and return what it says."""
    # The package takes most of a second to import.
    from kubernetes.aio.config.config_exception import ConfigException  # noqa: PLC0415
    from kubernetes.aio.config.exec_provider import ExecProvider  # noqa: PLC0415
    from kubernetes.aio.config.kube_config import ConfigNode  # noqa: PLC0415

    given = selected.user.fields["exec"]
    if not isinstance(given, dict):
        raise _fault(selected, "must have a command and an apiVersion")
    command = str(given.get("command") or "")
    fields = {name: value for name, value in given.items() if value}
    if "/" in command:  # then it is meant from where the kubeconfig is, as kubectl has it
        fields["command"] = str(selected.user.file.absolute().parent / command)
    section = ConfigNode("exec", fields)  # type: ignore[no-untyped-call]  # the package has no types
    try:
        provider = ExecProvider(section)  # type: ignore[no-untyped-call]
        status = await provider.run()  # type: ignore[no-untyped-call]
    except ConfigException as error:
        raise _fault(selected, " ".join(str(error).split())) from error
    except (TypeError, ValueError) as error:  # it trusts what it reads
        raise _fault(selected, f"cannot be run, or gives no ExecCredential: {error}") from error
    except OSError as error:
        message = f"{command}: {error.strerror}; is the plugin installed and on PATH?"
        raise _fault(selected, message) from error
    if not isinstance(status, dict):
        raise _fault(selected, "the plugin gave an ExecCredential without a status")
    return status


def _token_of(status: dict[str, Any], selected: Selected, clock: Clock) -> _Fetched:
    token = status.get("token")
    if not token:
        raise _fault(selected, "the plugin gave no token any more")
    expiry = status.get("expirationTimestamp")
    if not expiry:
        return _Fetched(f"Bearer {token}", float("inf"))  # as the protocol has it: until a 401
    try:
        until = datetime.fromisoformat(str(expiry))
    except ValueError as error:
        raise _fault(selected, f"the plugin gave no date but {expiry!r}") from error
    if until.tzinfo is None:
        until = until.replace(tzinfo=UTC)
    return _Fetched(f"Bearer {token}", (until - clock.now()).total_seconds())


def _fault(selected: Selected, message: str) -> ConfigError:
    user = selected.user
    where = f"{user.file}: users[{user.name}].user.exec"
    return ConfigError([FieldError(where, message)])
