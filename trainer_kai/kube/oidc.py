"""Users of a kubeconfig that an OpenID Connect provider vouches for: `auth-provider: oidc`.

The official package knows this as well, but sends the refresh token to whoever answers (it checks
no certificate unless an authority is given, and fails when one is), and forgets the new tokens.
New ones are written into the kubeconfig: a provider may accept each refresh token only once.
"""

import base64
import json
import os
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final
from urllib.parse import quote, urlencode, urlsplit

import yaml

from trainer_kai.clock import Clock
from trainer_kai.errors import ConfigError, FieldError
from trainer_kai.kube.access import Access, Basic, Token, Trust
from trainer_kai.kube.answer import check
from trainer_kai.kube.errors import ApiError, Unavailable, is_retryable
from trainer_kai.kube.kubeconfig import Entry, Selected, is_address, read_data, read_files
from trainer_kai.kube.proxies import proxy_for
from trainer_kai.kube.request import Request
from trainer_kai.kube.single import SingleTransport
from trainer_kai.kube.transport import Transport

__all__ = ["Login"]

_TIMEOUT_S: Final = 10.0
_FORM: Final = "application/x-www-form-urlencoded"


class Login:
    """A login with a provider: an id token, and what it takes to get the next one."""

    def __init__(self, selected: Selected, clock: Clock, environ: Mapping[str, str]) -> None:
        self._selected = selected
        self._clock = clock
        self._environ = environ
        self._config = self._config_of(selected.user)

    async def token(self, early_s: float) -> tuple[str, float]:
        """Return an id token that is good for longer than *early_s*, and for how long."""
        if self._left_s() <= early_s:
            self._reread()  # another command may have renewed it
        if self._left_s() <= early_s:
            await self._renew()
        return str(self._config["id-token"]), self._left_s()

    def _left_s(self) -> float:
        """Return for how long the id token is good; nothing if there is none that can be read."""
        try:
            claims = str(self._config.get("id-token") or "").split(".")[1]
            padded = claims + "=" * (-len(claims) % 4)
            expiry = json.loads(base64.urlsafe_b64decode(padded)).get("exp", float("inf"))
            return float(expiry) - self._clock.now().timestamp()
        except (AttributeError, IndexError, TypeError, ValueError):
            return 0.0

    async def _renew(self) -> None:
        refresh = str(self._config.get("refresh-token") or "")
        if not refresh:
            raise self._fault("refresh-token", "the id-token has run out: log in again")
        issuer = str(self._config.get("idp-issuer-url") or "")
        about = await self._ask(f"{issuer.rstrip('/')}/.well-known/openid-configuration", None)
        form = {"grant_type": "refresh_token", "refresh_token": refresh}
        given = await self._ask(str(about.get("token_endpoint") or ""), form)
        if not given.get("id_token"):
            raise self._fault("idp-issuer-url", "the provider gave no id_token: log in again")
        tokens = {"id-token": str(given["id_token"])}
        tokens["refresh-token"] = str(given.get("refresh_token") or refresh)
        self._config = {**self._config, **tokens}
        _write(self._selected.user, tokens)

    async def _ask(self, url: str, form: dict[str, str] | None) -> dict[str, Any]:
        """Ask for a document, or for tokens with a form."""
        if not is_address(url):
            raise self._fault("idp-issuer-url", f"{url!r} is no address of a provider")
        access, request = self._access(url), Request("GET", urlsplit(url).path)
        if form is not None:
            client, secret = (
                str(self._config.get(f"client-{it}") or "") for it in ("id", "secret")
            )
            if secret:
                access = replace(access, credentials=Basic(quote(client), quote(secret)))
            else:
                form["client_id"] = client
            body = urlencode(form).encode()
            request = Request("POST", urlsplit(url).path, body=body, content_type=_FORM)
        transport = _transport(access)
        try:
            document = json.loads(check(request, await transport.send(request, _TIMEOUT_S)))
        except ApiError as error:
            if is_retryable(error):  # ours has not been sent to the API server, so it can be again
                message = f"the provider of the login: {error.refusal.message}"
                raise Unavailable(
                    error.refusal._replace(message=message), was_sent=False
                ) from error
            raise self._fault("refresh-token", f"log in again: {error}") from error
        except ValueError:
            document = None
        finally:
            await transport.close()
        if not isinstance(document, dict):
            raise self._fault("idp-issuer-url", f"{url} gives no JSON: is this the provider?")
        return document

    def _access(self, url: str) -> Access:
        entry = replace(self._selected.user, fields=self._config)
        name, where = "idp-certificate-authority", f"users[{entry.name}].user.auth-provider.config"
        authority = read_data(entry, where, name).decode(errors="replace")
        parts = urlsplit(url)
        server = f"{parts.scheme}://{parts.netloc}"
        proxy = proxy_for(server, self._environ)
        origin = f"{entry.file}: {where}"
        return Access(server, Token(""), Trust(authority), proxy=proxy, origin=origin)

    def _reread(self) -> None:
        user = self._selected.user
        try:
            self._config = self._config_of(read_files([user.file]).users.get(user.name, user))
        except ConfigError:
            return  # somebody changes the file: what we know may do

    def _config_of(self, user: Entry) -> Mapping[str, Any]:
        provider = user.fields.get("auth-provider")
        if not isinstance(provider, dict) or not isinstance(provider.get("config"), dict):
            raise self._fault("", "must have a name and a config")
        if provider.get("name") != "oidc":
            message = f"{provider.get('name')!r} is known to nobody any more: use an exec plugin"
            raise self._fault("name", message)
        config: Mapping[str, Any] = provider["config"]
        return config

    def _fault(self, field: str, message: str) -> ConfigError:
        user = self._selected.user
        name = "config." * (field not in ("", "name")) + field
        where = f"{user.file}: users[{user.name}].user.auth-provider.{name}".rstrip(".")
        return ConfigError([FieldError(where, message)])


def _transport(access: Access) -> Transport:
    if not access.proxy:
        return SingleTransport(access)
    from trainer_kai.kube.pooled import PooledTransport  # noqa: PLC0415 - it imports aiohttp

    return PooledTransport(access)


def _write(user: Entry, tokens: Mapping[str, str]) -> None:
    """Put new tokens where the old ones stand; a file that cannot be written stays as it is."""
    file = user.file.resolve()
    try:
        document = yaml.safe_load(file.read_bytes())
        entry = next(item for item in document["users"] if str(item["name"]) == user.name)
        entry["user"]["auth-provider"]["config"].update(tokens)
        new = file.with_name(f"{file.name}.{os.getpid()}")
        new.touch(mode=0o600)
        try:
            new.write_text(yaml.safe_dump(document))
            new.chmod(file.stat().st_mode)
            new.replace(file)  # at once, so that nobody reads half of it
        finally:
            new.unlink(missing_ok=True)
    except (OSError, KeyError, TypeError, ValueError, StopIteration, yaml.YAMLError):
        return
