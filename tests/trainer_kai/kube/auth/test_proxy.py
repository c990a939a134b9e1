"""Which proxy leads to the API server, as kubectl reads the environment."""

from collections.abc import Mapping

import pytest

from tests.support.case import Case, ids
from trainer_kai.errors import ConfigError
from trainer_kai.kube.auth.rest_config import check_proxy, proxy_for_server

PROXY = "http://proxy:3128"

# the server and the environment -> the proxy
FOUND: list[Case[tuple[str, Mapping[str, str]], str]] = [
    Case("none is set", ("https://h", {}), ""),
    Case("one is set", ("https://h:6443", {"HTTPS_PROXY": PROXY}), PROXY),
    Case("in small letters", ("https://h", {"https_proxy": PROXY}), PROXY),
    Case(
        "capitals win over small letters",
        ("https://h", {"https_proxy": "http://x", "HTTPS_PROXY": PROXY}),
        PROXY,
    ),
    Case("empty is not set", ("https://h", {"https_proxy": PROXY, "HTTPS_PROXY": ""}), PROXY),
    Case("without a scheme", ("https://h", {"HTTPS_PROXY": "proxy:3128"}), PROXY),
    Case("with a password", ("https://h", {"HTTPS_PROXY": "http://u:p@x"}), "http://u:p@x"),
    Case("the other scheme's is not ours", ("https://h", {"HTTP_PROXY": PROXY}), ""),
    Case("http has a proxy of its own", ("http://h", {"HTTP_PROXY": PROXY}), PROXY),
    Case("this machine by name", ("https://localhost:6443", {"HTTPS_PROXY": PROXY}), ""),
    Case("this machine by number", ("https://127.0.0.9", {"HTTPS_PROXY": PROXY}), ""),
    Case("this machine by six", ("https://[::1]:6443", {"HTTPS_PROXY": PROXY}), ""),
    Case(
        "one that we cannot use for what is excepted",
        ("https://h", {"HTTPS_PROXY": "socks5://p", "NO_PROXY": "h"}),
        "",
    ),
]


@pytest.mark.parametrize("case", FOUND, ids=ids)
def test_which_proxy(case: Case[tuple[str, Mapping[str, str]], str]) -> None:
    assert proxy_for_server(*case.given) == case.want


# the server and NO_PROXY -> whether no proxy is used
EXCEPTED: list[Case[tuple[str, str], bool]] = [
    Case("an asterisk excepts everything", ("https://h", "x, *"), True),
    Case("an empty list excepts nothing", ("https://h", " , "), False),
    Case("a name excepts itself", ("https://api.example.com", "x,api.example.com"), True),
    Case("capitals do not count", ("https://API.example.com", " Api.Example.Com "), True),
    Case("a domain and all below", ("https://api.example.com", "example.com"), True),
    Case("a dot: only what is below", ("https://example.com", ".example.com"), False),
    Case("a leading dot excepts what ends so", ("https://api.example.com", ".example.com"), True),
    Case("a star is a dot", ("https://api.example.com", "*.example.com"), True),
    Case("a name that only ends so", ("https://badexample.com", "example.com"), False),
    Case("a dot at the end of the host", ("https://h.", "h"), True),
    Case("an address excepts itself", ("https://10.1.2.3:6443", "10.1.2.3"), True),
    Case("another address is not excepted", ("https://10.1.2.3", "10.1.2.4"), False),
    Case("an address is no domain", ("https://10.1.2.3", "2.3"), False),
    Case("a network excepts its addresses", ("https://10.1.2.3:6443", "10.0.0.0/8"), True),
    Case("another network does not", ("https://11.1.2.3", "10.0.0.0/8"), False),
    Case("a network with a host in it", ("https://10.1.2.3", "10.1.0.1/16"), True),
    Case("a network is about no name", ("https://h", "0.0.0.0/0"), False),
    Case("a network that is none", ("https://10.1.2.3", "10.0.0.0/99"), False),
    Case("a network of six", ("https://[fd00::1]:6443", "fd00::/8"), True),
    Case("an address of six", ("https://[fd00::1]:6443", "fd00:0::1"), True),
    Case("an address of six with a port", ("https://[fd00::1]:6443", "[fd00::1]:6443"), True),
    Case("a port excepts itself", ("https://h:6443", "h:6443"), True),
    Case("another port is not excepted", ("https://h:6443", "h:443"), False),
    Case("the port that goes without saying", ("https://h", "h:443"), True),
]


@pytest.mark.parametrize("name", ["NO_PROXY", "no_proxy"])
@pytest.mark.parametrize("case", EXCEPTED, ids=ids)
def test_servers_without_a_proxy(case: Case[tuple[str, str], bool], name: str) -> None:
    server, excepted = case.given

    found = proxy_for_server(server, {"HTTPS_PROXY": PROXY, name: excepted})

    assert found == ("" if case.want else PROXY)


@pytest.mark.parametrize(
    "proxy",
    ["socks5://u:secret@p:1", "http://", "http://p:x", "http://[", "proxy:3128", "http://p:0"],
)
def test_a_proxy_that_we_cannot_speak_to(proxy: str) -> None:
    """The field is named; the address may hold a password and is not."""
    with pytest.raises(ConfigError) as raised:
        check_proxy(proxy, "proxy-url")

    message = "proxy-url: must be the address of an HTTP proxy: http://HOST:PORT"
    assert str(raised.value) == message


def test_the_variable_is_named() -> None:
    """The user who set it must find it."""
    with pytest.raises(ConfigError, match=r"^\$https_proxy: must be"):
        proxy_for_server("https://h", {"https_proxy": "socks5://p"})
