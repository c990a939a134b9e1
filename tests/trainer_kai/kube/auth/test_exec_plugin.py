"""Credentials from exec plugins: real programs, which are run as often as there is need."""

import asyncio
import json
import sys
from pathlib import Path
from typing import Any, Final

import pytest

from tests.support.case import Case, ids
from tests.support.clock import VirtualClock
from trainer_kai.errors import ConfigError
from trainer_kai.kube.auth.kubeconfig import find_rest_config
from trainer_kai.kube.auth.rest_config import ClientCertificate, RestConfig

API: Final = "client.authentication.k8s.io/v1"


class Plugin:
    """A program that says what a file beside it holds, and counts how often it was asked."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.clock = VirtualClock()
        self.program = folder / "bin" / "plugin"
        self.program.parent.mkdir()
        self.script('echo run >> "$HERE/runs"\ncat "$HERE/says"\n')
        self.will_print({"token": "one"})

    def script(self, lines: str) -> None:
        """Write the program anew; it knows its folder."""
        self.program.write_text(f"#!/bin/sh\nHERE='{self.folder}'\n{lines}")
        self.program.chmod(0o755)

    def will_print(self, status: object, **fields: object) -> None:
        document = {"apiVersion": API, "kind": "ExecCredential", "status": status, **fields}
        (self.folder / "says").write_text(json.dumps(document))

    @property
    def runs(self) -> int:
        runs = self.folder / "runs"
        return len(runs.read_text().split()) if runs.exists() else 0

    @property
    def kubeconfig(self) -> Path:
        return self.folder / "config"

    async def find_config(self, **fields: Any) -> RestConfig:
        plugin = {"apiVersion": API, "command": "bin/plugin", **fields}
        return await self.find_user({"exec": plugin})

    async def find_user(self, user: object) -> RestConfig:
        content = {
            "current-context": "c",
            "clusters": [{"name": "c", "cluster": {"server": "https://h"}}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "me"}}],
            "users": [{"name": "me", "user": user}],
        }
        self.kubeconfig.write_text(json.dumps(content))
        return await find_rest_config({}, self.clock, kubeconfig=str(self.kubeconfig))


@pytest.fixture
def plugin(tmp_path: Path) -> Plugin:
    return Plugin(tmp_path)


def in_s(plugin: Plugin, seconds: float) -> str:
    moment = plugin.clock.now().timestamp() + seconds
    return f"{plugin.clock.now().fromtimestamp(moment):%Y-%m-%dT%H:%M:%SZ}"


async def header(rest_config: RestConfig) -> str:
    return await rest_config.credentials.authorization()


async def test_a_token_without_an_end_is_kept(plugin: Plugin) -> None:
    """Until the API server refuses it; then it is worth another try if the next one differs."""
    rest_config = await plugin.find_config()
    await plugin.clock.advance(1e6)
    assert (await header(rest_config), plugin.runs) == ("Bearer one", 1)

    assert not await rest_config.credentials.renew()
    plugin.will_print({"token": "two"})
    assert await rest_config.credentials.renew()
    assert (await header(rest_config), plugin.runs) == ("Bearer two", 3)


@pytest.mark.parametrize(("lives_s", "kept_s"), [(600, 540), (60, 30)])
async def test_a_token_is_replaced_before_it_ends(
    plugin: Plugin, lives_s: float, kept_s: float
) -> None:
    """A minute before, or after half of a short life; not for every request."""
    plugin.will_print({"token": "one", "expirationTimestamp": in_s(plugin, lives_s)})
    rest_config = await plugin.find_config()
    plugin.will_print({"token": "two", "expirationTimestamp": in_s(plugin, 2 * lives_s)})

    await plugin.clock.advance(kept_s - 0.001)
    assert (await header(rest_config), plugin.runs) == ("Bearer one", 1)
    await plugin.clock.advance(0.001)
    assert (await header(rest_config), plugin.runs) == ("Bearer two", 2)


async def test_a_program_that_fails_once_is_run_again_while_the_token_lasts(
    plugin: Plugin,
) -> None:
    """A minute is left when the next token is asked for, and that is enough for another try."""
    plugin.will_print({"token": "one", "expirationTimestamp": in_s(plugin, 600)})
    rest_config = await plugin.find_config()
    good = plugin.program.read_text()
    plugin.script("exit 1\n")
    await plugin.clock.advance(540)
    assert await header(rest_config) == "Bearer one"

    plugin.program.write_text(good)
    plugin.will_print({"token": "two", "expirationTimestamp": in_s(plugin, 1200)})
    await plugin.clock.advance(5)
    assert await header(rest_config) == "Bearer two"

    plugin.script("exit 1\n")
    await plugin.clock.advance(1200)
    with pytest.raises(ConfigError):
        await header(rest_config)


async def test_one_run_is_enough_for_all(plugin: Plugin) -> None:
    """Many requests find out at once that a token ends, or that it is refused."""
    plugin.will_print({"token": "one", "expirationTimestamp": in_s(plugin, 600)})
    rest_config = await plugin.find_config()
    plugin.will_print({"token": "two"})
    await plugin.clock.advance(600)

    assert set(await asyncio.gather(*(header(rest_config) for _ in range(5)))) == {"Bearer two"}
    assert plugin.runs == 2
    plugin.will_print({"token": "three"})
    assert all(await asyncio.gather(*(rest_config.credentials.renew() for _ in range(5))))
    assert plugin.runs == 3


@pytest.mark.parametrize(
    ("token", "sent"), [(None, ""), ("t", "Bearer t")], ids=["alone", "and a token"]
)
async def test_a_certificate(plugin: Plugin, token: str | None, sent: str) -> None:
    """A plugin may give one instead of a token, or beside it."""
    plugin.will_print({"clientCertificateData": "chain", "clientKeyData": "key", "token": token})

    rest_config = await plugin.find_config()

    assert rest_config.certificate == ClientCertificate(b"chain", b"key")
    assert await header(rest_config) == sent


async def test_what_a_program_is_given(plugin: Plugin) -> None:
    """Arguments and variables of the kubeconfig, and what the protocol says."""
    plugin.script('echo "$* $NAME $KUBERNETES_EXEC_INFO" > "$HERE/given"\ncat "$HERE/says"\n')

    await plugin.find_config(
        args=["a", "b"], env=[{"name": "NAME", "value": "v"}], installHint=None
    )

    words, _, about = (plugin.folder / "given").read_text().partition(" v ")
    assert (words, json.loads(about)["apiVersion"]) == ("a b", API)


@pytest.mark.parametrize("fields", [{"args": None, "env": None}, {"args": [], "env": []}])
async def test_nothing_may_be_given(plugin: Plugin, fields: dict[str, Any]) -> None:
    assert await header(await plugin.find_config(**fields)) == "Bearer one"


# the fields of the plugin -> the fault after the field
FIELDS: list[Case[dict[str, Any], str]] = [
    Case(
        "no such program",
        {"command": "no-such-plugin"},
        "no-such-plugin: No such file or directory; is the plugin installed and on PATH?",
    ),
    Case(
        "no such program beside the kubeconfig",
        {"command": "./none"},
        "./none: No such file or directory; is the plugin installed and on PATH?",
    ),
    Case(
        "a plugin needs a command",
        {"command": ""},
        "exec: malformed request. missing key 'command'",
    ),
    Case(
        "a plugin needs a version",
        {"apiVersion": None},
        "exec: malformed request. missing key 'apiVersion'",
    ),
    Case(
        "an answer of another version is refused",
        {"apiVersion": "other"},
        f"exec: plugin api version {API} does not match other",
    ),
]


@pytest.mark.parametrize("case", FIELDS, ids=ids)
async def test_a_plugin_that_cannot_be_run(plugin: Plugin, case: Case[dict[str, Any], str]) -> None:
    """The file, the user and the field are named."""
    with pytest.raises(ConfigError) as raised:
        await plugin.find_config(**case.given)

    assert str(raised.value) == f"{plugin.kubeconfig}: users[me].user.exec: {case.want}"


ONE_HALF: Final = "the plugin returned only one of a certificate and its key"
# what the program does -> the fault
ANSWERS: list[Case[str, str]] = [
    Case(
        "the error of a program that fails is shown",
        "echo 'log in\nfirst' >&2; exit 3",
        r"exec: process returned 3\. .*log in",
    ),
    Case("it fails in silence", "exit 3", r"exec: process returned 3$"),
    Case(
        "an answer that is no JSON is refused",
        "echo hello",
        "exec: failed to decode process output: ",
    ),
    Case(
        "an answer that is no text is refused",
        r"printf '\377'",
        "exec: failed to decode process output: ",
    ),
    Case("an empty answer is refused", "true", "exec: failed to decode process output: "),
    Case(
        "an answer that is no object is refused",
        "echo '[1]'",
        r"exec: malformed response\. missing key",
    ),
    Case(
        "an answer of null is refused", "echo null", "cannot be run, or returns no ExecCredential: "
    ),
    Case(
        "an answer without fields is refused",
        "echo '{}'",
        r"exec: malformed response\. missing key",
    ),
]


@pytest.mark.parametrize("case", ANSWERS, ids=ids)
async def test_a_program_that_fails(plugin: Plugin, case: Case[str, str]) -> None:
    """In the words of the program where there are any, on one line."""
    plugin.script(case.given + "\n")

    with pytest.raises(ConfigError, match=case.want) as raised:
        await plugin.find_config()

    assert str(raised.value).startswith(f"{plugin.kubeconfig}: users[me].user.exec: ")
    assert "\n" not in str(raised.value)


STATUSES: list[Case[object, str]] = [
    Case(
        "an answer without a status is refused",
        None,
        "the plugin returned an ExecCredential without a status",
    ),
    Case("an empty one", {}, "the plugin returned neither a token nor a certificate"),
    Case("a certificate alone", {"clientCertificateData": "c", "token": "t"}, ONE_HALF),
    Case("a key alone", {"clientKeyData": "k"}, ONE_HALF),
    Case(
        "a date that is none",
        {"token": "t", "expirationTimestamp": "soon"},
        "the plugin returned an invalid expiry time: 'soon'",
    ),
]


@pytest.mark.parametrize("case", STATUSES, ids=ids)
async def test_a_status_that_says_too_little(plugin: Plugin, case: Case[object, str]) -> None:
    """The protocol has been kept, and still there is no way in."""
    plugin.will_print(case.given)

    with pytest.raises(ConfigError, match=f": {case.want}$"):
        await plugin.find_config()


async def test_a_plugin_that_gives_no_token_any_more(plugin: Plugin) -> None:
    """Later it is reported as well as at the start."""
    rest_config = await plugin.find_config()
    plugin.will_print({})

    with pytest.raises(ConfigError, match=r"the plugin returned no token any more$"):
        await rest_config.credentials.renew()


async def test_an_installation_without_the_kubernetes_package(
    plugin: Plugin, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The image is one: the error names the package, and what works instead."""
    monkeypatch.setitem(sys.modules, "kubernetes.aio.config.config_exception", None)

    with pytest.raises(ConfigError, match=r"needs the Python package kubernetes, .* use a token"):
        await plugin.find_config()


async def test_a_date_without_a_zone_is_one_of_utc(plugin: Plugin) -> None:
    """There are plugins that leave it out."""
    until = in_s(plugin, 600).rstrip("Z")
    plugin.will_print({"token": "one", "expirationTimestamp": until})

    rest_config = await plugin.find_config()

    await plugin.clock.advance(539)
    assert (await header(rest_config), plugin.runs) == ("Bearer one", 1)


@pytest.mark.parametrize("given", ["bin/plugin", ["bin/plugin"]])
async def test_an_exec_without_fields(plugin: Plugin, given: object) -> None:
    with pytest.raises(ConfigError, match=r"must have a command and an apiVersion$"):
        await plugin.find_user({"exec": given})
