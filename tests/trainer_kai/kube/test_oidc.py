"""Users for whom an OpenID Connect provider vouches: a real one, on loopback."""

import base64
import json
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from aiohttp import encode_basic_auth, web
from aiohttp.test_utils import TestServer

from e2e.cluster.certificates import Authority
from tests.support.case import Case, ids
from tests.support.clock import VirtualClock
from trainer_kai.errors import ConfigError
from trainer_kai.kube.access import Access
from trainer_kai.kube.errors import Unavailable
from trainer_kai.kube.locate import find_access

CLOCK: Final = VirtualClock()


def jwt(name: str, good_for_s: float | None) -> str:
    """Return an id token; names with odd letters make a token that only base64url can write."""
    claims: dict[str, object] = {"sub": f"{name}???>>>~~~"}
    if good_for_s is not None:
        claims["exp"] = CLOCK.now().timestamp() + good_for_s
    parts = (json.dumps(part).encode() for part in ({"alg": "none"}, claims))
    encoded = [base64.urlsafe_b64encode(part).decode().rstrip("=") for part in parts]
    return ".".join((*encoded, "signature"))


NEW: Final = jwt("new", 3600)
OVER: Final = jwt("over", -1)
ENDLESS: Final = jwt("endless", None)


class Provider:
    """Gives a new token for each refresh token that it gave, once."""

    def __init__(self, folder: Path) -> None:
        self.authority = Authority.create(folder)
        self.clock = VirtualClock()
        self.url = ""
        self.asked: list[tuple[str, str | None, dict[str, Any]]] = []
        self.gives: dict[str, Any] = {"id_token": NEW, "refresh_token": "r2"}
        self.status = 200
        self.kubeconfig = folder / "config"
        pair = self.authority.serve_loopback(folder)
        self.tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        self.tls.load_cert_chain(*pair)

    async def about(self, _request: web.Request) -> web.Response:
        """Say where tokens are given."""
        return web.json_response({"token_endpoint": f"{self.url}/token"})

    async def token(self, request: web.Request) -> web.Response:
        """Give tokens."""
        form = {str(name): value for name, value in (await request.post()).items()}
        self.asked.append((request.path, request.headers.get("Authorization"), form))
        return web.json_response(self.gives, status=self.status)

    def write(self, **config: object) -> None:
        """Write a kubeconfig whose user has a login with this provider."""
        whole = {
            "idp-issuer-url": f"{self.url}/dex/",
            "client-id": "kube client",
            "client-secret": "s:ecret",
            "refresh-token": "r1",
            "id-token": OVER,
            "idp-certificate-authority-data": base64.b64encode(self.authority.pem).decode(),
            **config,
        }
        self.write_user({"name": "oidc", "config": {k: v for k, v in whole.items() if v}})

    def write_user(self, provider: object) -> None:
        """Write a kubeconfig with any auth-provider."""
        cluster = {"server": "https://h", "insecure-skip-tls-verify": True}
        content = {
            "current-context": "c",
            "clusters": [{"name": "c", "cluster": cluster}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "me"}}],
            "users": [
                {"name": "other", "user": {"token": "0123"}},
                {"name": "me", "user": {"auth-provider": provider}},
            ],
        }
        self.kubeconfig.write_text(yaml.safe_dump(content))
        self.kubeconfig.chmod(0o640)

    async def find(self, **environ: str) -> Access:
        """Return the access."""
        return await find_access(environ, self.clock, kubeconfig=str(self.kubeconfig))

    async def header(self) -> str:
        """Return what is sent."""
        return await (await self.find()).credentials.authorization()

    def config(self) -> Any:
        """Return what the kubeconfig holds now."""
        content = yaml.safe_load(self.kubeconfig.read_text())
        return content["users"][1]["user"]["auth-provider"]["config"]


@pytest.fixture
async def provider(tmp_path: Path) -> AsyncIterator[Provider]:
    """Return a running provider, and a kubeconfig with a login that is over."""
    made = Provider(tmp_path)
    application = web.Application()
    application.router.add_get("/dex/.well-known/openid-configuration", made.about)
    application.router.add_post("/token", made.token)
    running = TestServer(application, scheme="https", host="127.0.0.1")
    await running.start_server(ssl=made.tls)
    made.url = str(running.make_url("")).rstrip("/")
    made.write()
    yield made
    await running.close()


@pytest.mark.parametrize("good", [jwt("good", 61), ENDLESS], ids=["for a while", "for ever"])
async def test_a_token_that_is_good_is_used(provider: Provider, good: str) -> None:
    """The provider is not asked."""
    provider.write(**{"id-token": good, "idp-issuer-url": "https://127.0.0.1:1"})

    assert await provider.header() == f"Bearer {good}"


OLD: list[Case[str, None]] = [
    Case("one that is over", OVER, None),
    Case("one that nearly is", jwt("nearly", 60), None),
    Case("none", "", None),
    Case("one of too few parts", "no token", None),
    Case("one that is no base64", "a.b.c", None),
    Case("one that holds no fields", "a.W10.c", None),
    Case("one whose end is no number", "a.eyJleHAiOiAieCJ9.c", None),
]


@pytest.mark.parametrize("case", OLD, ids=ids)
async def test_a_token_that_is_not_is_renewed(provider: Provider, case: Case[str, None]) -> None:
    """The provider checks the client and gives a new one."""
    provider.write(**{"id-token": case.given})

    assert await provider.header() == f"Bearer {NEW}"
    basic = encode_basic_auth("kube%20client", "s%3Aecret")
    form = {"grant_type": "refresh_token", "refresh_token": "r1"}
    assert provider.asked == [("/token", basic, form)]


async def test_a_client_without_a_secret_says_its_name(provider: Provider) -> None:
    """A command line can keep none."""
    provider.write(**{"client-secret": None})

    await provider.header()

    form = {"grant_type": "refresh_token", "refresh_token": "r1", "client_id": "kube client"}
    assert provider.asked == [("/token", None, form)]


async def test_new_tokens_are_written_down(provider: Provider) -> None:
    """A refresh token may be good only once; the rest of the file stays what it was."""
    before = yaml.safe_load(provider.kubeconfig.read_text())

    await provider.header()

    after = yaml.safe_load(provider.kubeconfig.read_text())
    tokens = {"id-token": NEW, "refresh-token": "r2"}
    before["users"][1]["user"]["auth-provider"]["config"].update(tokens)
    assert after == before
    assert provider.kubeconfig.stat().st_mode & 0o777 == 0o640
    assert [*provider.kubeconfig.parent.glob("config.*")] == []


async def test_a_refresh_token_stays_good_if_there_is_no_other(provider: Provider) -> None:
    """The protocol leaves it to the provider."""
    provider.gives = {"id_token": NEW}

    await provider.header()

    assert provider.config()["refresh-token"] == "r1"


async def test_what_another_command_renewed_is_used(provider: Provider) -> None:
    """The file is read again before the provider is asked."""
    access = await provider.find()
    provider.write(**{"id-token": NEW})

    assert await access.credentials.authorization() == f"Bearer {NEW}"
    assert provider.asked == []


async def test_a_process_renews_its_token(provider: Provider) -> None:
    """A minute before it ends, again and again, each time with the newest refresh token."""
    access = await provider.find()
    await access.credentials.authorization()
    provider.gives = {"id_token": jwt("newer", 7200), "refresh_token": "r3"}
    await provider.clock.advance(3539)
    assert await access.credentials.authorization() == f"Bearer {NEW}"
    await provider.clock.advance(1)

    assert await access.credentials.authorization() == f"Bearer {provider.gives['id_token']}"
    assert [form["refresh_token"] for _, _, form in provider.asked] == ["r1", "r2"]


async def test_a_file_that_is_gone_stops_nobody(provider: Provider) -> None:
    """A mounted kubeconfig cannot be written; the tokens are kept in memory."""
    access = await provider.find()
    provider.kubeconfig.unlink()

    assert await access.credentials.authorization() == f"Bearer {NEW}"
    assert not provider.kubeconfig.exists()


# What goes wrong


async def told(provider: Provider) -> str:
    """Return what is said, after the file and the user."""
    with pytest.raises(ConfigError) as raised:
        await provider.header()
    message = str(raised.value)
    assert "\n" not in message
    where = f"{provider.kubeconfig}: users[me].user.auth-provider"
    assert message.startswith(where)
    return message.removeprefix(where)


LOGINS: list[Case[dict[str, object], str]] = [
    Case(
        "nothing to renew it with",
        {"refresh-token": None},
        ".config.refresh-token: the id-token has run out: log in again",
    ),
    Case(
        "no provider",
        {"idp-issuer-url": None},
        ".config.idp-issuer-url: '/.well-known/openid-configuration' is no address of a provider",
    ),
    Case(
        "an authority that is not there",
        {"idp-certificate-authority-data": None, "idp-certificate-authority": "none"},
        ".config.idp-certificate-authority: none: No such file or directory",
    ),
]


@pytest.mark.parametrize("case", LOGINS, ids=ids)
async def test_a_login_that_cannot_be_renewed(
    provider: Provider, case: Case[dict[str, object], str]
) -> None:
    """The field to look at is named."""
    provider.write(**case.given)

    assert (await told(provider)) == case.want


async def test_a_provider_that_refuses(provider: Provider) -> None:
    """In its own words: most often the login is too old."""
    provider.status, provider.gives = 400, {"error": "invalid_grant"}

    message = await told(provider)

    assert message == (
        '.config.refresh-token: log in again: POST /token: 400: {"error": "invalid_grant"}'
    )


async def test_a_provider_that_gives_no_token(provider: Provider) -> None:
    """An access token is of no use to an API server."""
    provider.gives = {"access_token": "a"}

    message = await told(provider)

    assert message == ".config.idp-issuer-url: the provider gave no id_token: log in again"


@pytest.mark.parametrize("other", [False, True], ids=["none is given", "another one"])
async def test_a_provider_that_is_not_trusted_is_told_nothing(
    provider: Provider, tmp_path: Path, *, other: bool
) -> None:
    """A refresh token is as good as a password."""
    pem = Authority.create(tmp_path / "other").pem
    authority = base64.b64encode(pem).decode() if other else None
    provider.write(**{"idp-certificate-authority-data": authority})

    with pytest.raises(ConfigError, match="shows a certificate that is not trusted"):
        await provider.header()
    assert provider.asked == []


async def test_a_provider_that_is_away_may_come_back(provider: Provider) -> None:
    """The client waits for it as it waits for the API server: nothing has been sent there."""
    provider.status = 503

    with pytest.raises(Unavailable, match="the provider of the login: ") as raised:
        await provider.header()

    assert not raised.value.was_sent


async def test_who_answers_is_no_provider(provider: Provider) -> None:
    """Another page answers under that address."""
    provider.gives = {}
    provider.write(**{"idp-issuer-url": f"{provider.url}/elsewhere"})

    assert "log in again: GET /elsewhere/.well-known/openid-configuration: 404" in (
        await told(provider)
    )


@pytest.mark.parametrize("given", ["oidc", {"name": "oidc"}, {"name": "oidc", "config": "x"}])
async def test_a_provider_without_fields(provider: Provider, given: object) -> None:
    """It must be a mapping."""
    provider.write_user(given)

    assert await told(provider) == ": must have a name and a config"


async def test_a_provider_of_the_past(provider: Provider) -> None:
    """Kubernetes took out all others."""
    provider.write_user({"name": "gcp", "config": {"cmd-path": "gcloud"}})

    assert await told(provider) == ".name: 'gcp' is known to nobody any more: use an exec plugin"
