"""Where the access is looked for, and in which order."""

import json
from pathlib import Path
from typing import Final

import pytest

from tests.support.case import Case, ids
from tests.support.clock import VirtualClock
from trainer_kai.errors import ConfigError
from trainer_kai.kube.auth.kubeconfig import find_rest_config, kubeconfig_files
from trainer_kai.kube.auth.rest_config import RestConfig

POD: Final = {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}


def write(file: Path, name: str, **cluster: str) -> Path:
    """Write a kubeconfig whose server has that name."""
    entry = {"name": name, "cluster": {"server": f"https://{name}", **cluster}}
    content = {
        "current-context": name,
        "clusters": [entry],
        "contexts": [{"name": name, "context": {"cluster": name}}],
    }
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(content))
    return file


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """Return a home with a kubeconfig, and two more beside it."""
    write(tmp_path / ".kube" / "config", "at-home")
    write(tmp_path / "one", "one")
    write(tmp_path / "two", "two")
    return tmp_path


async def find_config(environ: dict[str, str], **named: str) -> RestConfig:
    return await find_rest_config(environ, VirtualClock(), **named)


# the environment and what is named -> the server; H is the home
FOUND: list[Case[tuple[dict[str, str], dict[str, str]], str]] = [
    Case("what is named", ({"KUBECONFIG": "H/two", **POD}, {"kubeconfig": "H/one"}), "one"),
    Case("what is named by way of home", ({}, {"kubeconfig": "~/one"}), "one"),
    Case("the variable before the pod", ({"KUBECONFIG": "H/two", **POD}, {}), "two"),
    Case("the first of several", ({"KUBECONFIG": "H/one:H/two"}, {}), "one"),
    Case("those that are missing are left out", ({"KUBECONFIG": "H/none::H/two"}, {}), "two"),
    Case("a context of any of them", ({"KUBECONFIG": "H/one:H/two"}, {"context": "two"}), "two"),
    Case("home", ({}, {}), "at-home"),
    Case("an empty variable", ({"KUBECONFIG": ":"}, {}), "at-home"),
    Case("a context is one of a file, pod or not", (POD, {"context": "at-home"}), "at-home"),
]


@pytest.mark.parametrize("case", FOUND, ids=ids)
async def test_where_it_is(
    home: Path, case: Case[tuple[dict[str, str], dict[str, str]], str]
) -> None:
    """Named, then the variable, then the pod, then home."""
    environ, named = case.given
    environ = {key: text.replace("H/", f"{home}/") for key, text in environ.items()}
    named = {key: text.replace("H/", f"{home}/") for key, text in named.items()}

    rest_config = await find_config({"HOME": str(home), **environ}, **named)

    assert rest_config.server == f"https://{case.want}"


async def test_in_a_pod_it_is_the_account(home: Path) -> None:
    """Before home, which an image may have; here there is no account to read."""
    with pytest.raises(ConfigError, match="automountServiceAccountToken"):
        await find_config({"HOME": str(home), **POD})


def test_a_home_that_is_not_known() -> None:
    assert kubeconfig_files({}, "~/x") == [Path("~/x")]


async def test_nothing_is_there(tmp_path: Path) -> None:
    message = f"kubeconfig: no such file: {tmp_path}/.kube/config; set --kubeconfig or $KUBECONFIG"
    with pytest.raises(ConfigError) as raised:
        await find_config({"HOME": str(tmp_path)})
    assert str(raised.value) == message

    with pytest.raises(ConfigError, match=f"no such file: {tmp_path}/a, {tmp_path}/b;"):
        await find_config({"KUBECONFIG": f"{tmp_path}/a:{tmp_path}/b"})


async def test_a_name_that_no_file_can_have() -> None:
    """It is reported in the system's words, without a traceback."""
    with pytest.raises(ConfigError, match="File name too long"):
        await find_config({"KUBECONFIG": "x" * 5000})


# The proxy


async def test_the_environment_names_a_proxy(home: Path) -> None:
    """Only where the kubeconfig names none."""
    environ = {"HOME": str(home), "HTTPS_PROXY": "proxy:3128", "NO_PROXY": "two"}
    own = write(home / "own", "own", **{"proxy-url": "http://other:1"})

    assert (await find_config(environ)).proxy == "http://proxy:3128"
    assert (await find_config(environ, kubeconfig=str(own))).proxy == "http://other:1"
    assert (await find_config(environ, kubeconfig=str(home / "two"))).proxy == ""


async def test_a_proxy_of_the_kubeconfig_that_cannot_be(tmp_path: Path) -> None:
    file = write(tmp_path / "config", "a", **{"proxy-url": "socks5://p"})

    with pytest.raises(ConfigError, match=rf"^{file}: clusters\[a\]\.cluster\.proxy-url: must be"):
        await find_config({}, kubeconfig=str(file))
