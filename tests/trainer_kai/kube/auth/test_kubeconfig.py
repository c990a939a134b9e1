"""Kubeconfig files are read as kubectl reads them, and every fault says where it is."""

import base64
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeAlias

import hypothesis.strategies as st
import pytest
import yaml
from hypothesis import HealthCheck, given, settings

from tests.support.case import Case, ids
from tests.support.clock import VirtualClock
from tests.support.size import examples
from trainer_kai.errors import ConfigError
from trainer_kai.kube.auth.kubeconfig import load_rest_config, read_files, select_context
from trainer_kai.kube.auth.rest_config import ClientCertificate, RestConfig, ServerTrust

Config: TypeAlias = dict[str, Any]
Change: TypeAlias = Callable[[Config], object]

SERVER: Final = "https://10.0.0.1:6443"


def config(name: str = "a", **user: Any) -> Config:
    """Return a kubeconfig with one cluster, one user and one context, all of that name."""
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": name,
        "clusters": [{"name": name, "cluster": {"server": SERVER}}],
        "users": [{"name": name, "user": user}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
    }


def write(file: Path, content: Config | str) -> Path:
    file.parent.mkdir(exist_ok=True)
    file.write_text(content if isinstance(content, str) else yaml.safe_dump(content))
    return file


def load(*files: Path, context: str = "") -> RestConfig:
    return load_rest_config(select_context(read_files(files), context), VirtualClock())


def encoded(text: str | bytes) -> str:
    return base64.b64encode(text.encode() if isinstance(text, str) else text).decode()


async def header(file: Path) -> str:
    return await load(file).credentials.authorization()


# Several files


def test_the_first_definition_of_a_name_counts(tmp_path: Path) -> None:
    """Entries are taken whole, whatever a later file says; the first current context is it."""
    first, second = config("a", token="first"), config("a", token="second")
    second["current-context"] = "b"
    second["clusters"][0]["cluster"]["proxy-url"] = "http://p:1"
    second["contexts"].append({"name": "b", "context": {"cluster": "a", "namespace": "n"}})
    files = [write(tmp_path / "1", first), write(tmp_path / "2", second)]

    merged = read_files(files)

    assert merged.current == "a"
    assert merged.users["a"].fields == {"token": "first"}
    assert merged.clusters["a"].fields == {"server": SERVER}
    assert load(*files, context="b").namespace == "n"
    assert load(*reversed(files)).namespace == "n"


def test_a_file_may_leave_out_everything(tmp_path: Path) -> None:
    """Others say it: an empty file, and one that names nothing."""
    empty = write(tmp_path / "1", "# nothing\n")
    null = write(tmp_path / "2", "users: null\ncurrent-context: ~\nclusters:\ncontexts: []\n")

    assert load(empty, null, write(tmp_path / "3", config())).server == SERVER


def test_paths_start_where_their_file_stands(tmp_path: Path) -> None:
    """A context, its cluster and its user may come from three folders."""
    whole = config(**{"client-certificate": "pki/c", "client-key": "/no/such/file"})
    whole["clusters"][0]["cluster"]["certificate-authority"] = "../ca"
    files = []
    for kind in ("contexts", "clusters", "users"):
        part = {kind: whole[kind], "current-context": "a"}
        files.append(write(tmp_path / kind / "config", part))
    write(tmp_path / "ca", "the authority")
    write(tmp_path / "users" / "pki" / "c", "the chain")
    key = write(tmp_path / "key", "the key")
    whole["users"][0]["user"]["client-key"] = str(key)
    write(files[2], {"users": whole["users"]})

    rest_config = load(*files)

    assert rest_config.trust == ServerTrust("the authority")
    assert rest_config.certificate == ClientCertificate(b"the chain", b"the key")
    assert rest_config.origin == f"context a of {files[0]}"


# One file


def test_a_context_with_everything(tmp_path: Path) -> None:
    """Every field of a cluster and of a context arrives."""
    whole = config()
    whole["clusters"][0]["cluster"] |= {
        "server": f"{SERVER}/k8s/clusters/c-1/",
        "certificate-authority-data": encoded("ca"),
        "certificate-authority": "/no/such/file",
        "insecure-skip-tls-verify": True,
        "tls-server-name": "inside",
        "proxy-url": "http://p:1",
    }
    whole["contexts"][0]["context"]["namespace"] = "n"

    rest_config = load(write(tmp_path / "config", whole))

    assert rest_config.server == f"{SERVER}/k8s/clusters/c-1"
    assert rest_config.trust == ServerTrust("ca", insecure=True, server_name="inside")
    assert (rest_config.namespace, rest_config.proxy) == ("n", "http://p:1")


def test_a_context_with_next_to_nothing(tmp_path: Path) -> None:
    """There may be no user at all: a proxy before the API server may know us."""
    bare = config()
    del bare["users"], bare["contexts"][0]["context"]["user"]

    rest_config = load(write(tmp_path / "config", bare))

    assert (rest_config.trust, rest_config.certificate) == (ServerTrust(), None)
    assert (rest_config.namespace, rest_config.proxy) == ("default", "")


def test_data_may_be_broken_into_lines(tmp_path: Path) -> None:
    """As openssl and base64 write it."""
    broken = config(**{"client-certificate-data": "Y2hh\naW4=\n", "client-key-data": "a2V5"})

    rest_config = load(write(tmp_path / "config", broken))

    assert rest_config.certificate == ClientCertificate(b"chain", b"key")


USERS: list[Case[str, str]] = [
    Case("a token is sent without its blanks", "token: ' t '", "Bearer t"),
    Case("a token that looks like a number", "token: 0123", "Bearer 0123"),
    Case("a token that looks like a date", "token: 2001-01-01", "Bearer 2001-01-01"),
    Case("a token that looks like no bool", "token: yes", "Bearer yes"),
    Case("a file before a token", "token: t\ntokenFile: sub/token", "Bearer from the file"),
    Case("a token file lies beside the kubeconfig", "tokenFile: sub/token", "Bearer from the file"),
    Case("a name and a password", "username: u\npassword: 1e3", f"Basic {encoded('u:1e3')}"),
    Case("a name alone", "username: u", f"Basic {encoded('u:')}"),
    Case("a token before a name", "token: t\nusername: u", "Bearer t"),
    Case("a user without credentials sends none", "{}", ""),
    Case("fields that are null", "token: null\nusername: ~\nauth-provider: null", ""),
]


@pytest.mark.parametrize("case", USERS, ids=ids)
async def test_a_user(tmp_path: Path, case: Case[str, str]) -> None:
    write(tmp_path / "sub" / "token", "from the file\n")
    whole = config()
    del whole["users"]
    text = yaml.safe_dump(whole) + "users: [{name: a, user: USER}]"
    fields = ", ".join(case.given.split("\n")) if case.given != "{}" else ""

    assert await header(write(tmp_path / "config", text.replace("USER", f"{{{fields}}}"))) == (
        case.want
    )


# What can be wrong


def only(kind: str, fields: Config) -> Change:
    return lambda whole: whole[f"{kind}s"][0].update({kind: fields})


def server(address: object) -> Change:
    return only("cluster", {"server": address})


NO_ADDRESS: Final = ": clusters[a].cluster.server: {!r} is not an address; write https://HOST:PORT"
# a change of a good file -> the fault, after the name of the file
FAULTS: list[Case[Change, str]] = [
    Case(
        "no current context",
        lambda whole: whole.pop("current-context"),
        ": current-context: no context is named; valid names are: a",
    ),
    Case(
        "a current context that is not there",
        lambda whole: whole.update({"current-context": "x"}),
        ": current-context: context 'x' does not exist; valid names are: a",
    ),
    Case(
        "rights of somebody else",
        only("user", {"token": "t", "as": "somebody"}),
        ": users[a].user.as: is not supported: impersonation would be ignored",
    ),
    Case(
        "a login that exec plugins have replaced",
        only("user", {"auth-provider": {"name": "oidc", "config": {"id-token": "x"}}}),
        (
            ": users[a].user.auth-provider: is not supported; use an exec plugin, such as"
            " kubelogin (kubectl oidc-login) for OpenID Connect"
        ),
    ),
    Case(
        "no contexts at all",
        lambda whole: whole.pop("contexts"),
        ": current-context: context 'a' does not exist; valid names are: none",
    ),
    Case(
        "a cluster that is not there",
        only("context", {"cluster": "x", "user": "a"}),
        ": contexts[a].context.cluster: cluster 'x' does not exist; valid names are: a",
    ),
    Case(
        "a user that is not there",
        only("context", {"cluster": "a", "user": "x"}),
        ": contexts[a].context.user: user 'x' does not exist; valid names are: a",
    ),
    Case("a cluster needs a server", only("cluster", {}), NO_ADDRESS.format("")),
    Case("a server without a scheme", server("h:6443"), NO_ADDRESS.format("h:6443")),
    Case("a scheme other than http is refused", server("ftp://h"), NO_ADDRESS.format("ftp://h")),
    Case("a scheme that shouts", server("HTTPS://h"), NO_ADDRESS.format("HTTPS://h")),
    Case(
        "a server without a host is refused",
        server("https://:6443"),
        NO_ADDRESS.format("https://:6443"),
    ),
    Case("a port that is none", server("https://h:x"), NO_ADDRESS.format("https://h:x")),
    Case(
        "a query in the server is refused", server("https://h?a"), NO_ADDRESS.format("https://h?a")
    ),
    Case(
        "credentials in the server are refused",
        server("https://u:p@h"),
        NO_ADDRESS.format("https://u:p@h"),
    ),
    Case(
        "a blank in the server is refused", server("https://h /"), NO_ADDRESS.format("https://h ")
    ),
    Case(
        "data that is not base64",
        only("cluster", {"server": SERVER, "certificate-authority-data": "*"}),
        ": clusters[a].cluster.certificate-authority-data: is not base64",
    ),
    Case(
        "data in letters that base64 does not know",
        only("user", {"client-certificate-data": "ü"}),
        ": users[a].user.client-certificate-data: is not base64",
    ),
    Case(
        "a file that is not there",
        only("cluster", {"server": SERVER, "certificate-authority": "none"}),
        ": clusters[a].cluster.certificate-authority: none: No such file or directory",
    ),
    Case(
        "a file whose name cannot be",
        only("user", {"client-certificate": "a\0"}),
        ": users[a].user.client-certificate: a\0: embedded null byte",
    ),
    Case(
        "entries that are no list",
        lambda whole: whole.update(clusters={"a": {}}),
        ": clusters[0]: must be a list of entries with a name and a cluster",
    ),
    Case(
        "an entry that is no mapping",
        lambda whole: whole["users"].append("x"),
        ": users[1]: must be a list of entries with a name and a user",
    ),
    Case(
        "fields that are no mapping",
        lambda whole: whole["contexts"].append({"name": "b", "context": ["x"]}),
        ": contexts[1]: must be a list of entries with a name and a context",
    ),
]


@pytest.mark.parametrize("case", FAULTS, ids=ids)
def test_a_fault_says_where_it_is(tmp_path: Path, case: Case[Change, str]) -> None:
    """The file, the field, and what there is instead."""
    broken = config()
    case.given(broken)
    file = write(tmp_path / "config", broken)

    with pytest.raises(ConfigError) as raised:
        load(file)

    assert str(raised.value) == f"{file}{case.want}"


def test_a_context_that_is_asked_for(tmp_path: Path) -> None:
    """It is not the file that is wrong then."""
    file = write(tmp_path / "config", config())

    with pytest.raises(
        ConfigError, match=r": context: context 'x' does not exist; valid names are: a$"
    ):
        load(file, context="x")


TEXTS: list[Case[str, str]] = [
    Case("a list is no kubeconfig", "- a", "is not a kubeconfig: it has no fields"),
    Case("a word is no kubeconfig", "hello", "is not a kubeconfig: it has no fields"),
    Case(
        "no YAML, and in which line",
        "a: b\nc: [",
        "is not valid YAML: line 3, column 1: .* expected node content$",
    ),
    Case(
        "several documents are no kubeconfig",
        "a: b\n---\nc: d",
        "is not valid YAML: line 2, column 1: expected a single document",
    ),
    Case(
        "a tag that makes an object",
        "!!python/name:os.system x",
        "is not valid YAML: line 1, column 1: could not det",
    ),
    Case("something that is no text", "a: \x01", "is not valid YAML: "),
]


@pytest.mark.parametrize("case", TEXTS, ids=ids)
def test_a_file_that_is_no_kubeconfig(tmp_path: Path, case: Case[str, str]) -> None:
    """One line, with the name of the file."""
    file = write(tmp_path / "config", case.given)

    with pytest.raises(ConfigError, match=f"^{file}: {case.want}") as raised:
        load(file)

    assert "\n" not in str(raised.value)


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=f"^{tmp_path}: Is a directory$"):
        load(tmp_path)


# Anything

WORDS: Final = [f"{kind}{s}" for kind in ("cluster", "user", "context") for s in ("", "s")]
FIELDS: Final = ["current-context", "name", "server", "token", "tokenFile", "client-certificate"]
SCALARS = st.sampled_from(
    [*WORDS, *FIELDS, SERVER, "", "2001-99-99", "0x", "~", "!!int ''", "!!bool x"]
)
ANY = st.recursive(
    st.none() | st.booleans() | st.integers() | SCALARS | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(SCALARS, inner, max_size=5),
    max_leaves=20,
)
TEXT = st.text(alphabet="ab:-!&*[]{}#|>?'\"%@`,~01.\\ \n\t\0\x7fü", max_size=40)
ODD = st.sampled_from(
    ["2001-99-99", "!!timestamp x", "!!bool x", "!!int ''", "!!float x", "!!binary x", "!!set [a]"]
)


@settings(
    max_examples=examples(30),
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(document=ANY | TEXT, user=ANY, odd=ODD)
def test_no_document_is_more_than_a_fault(
    tmp_path: Path, document: object, user: object, odd: str
) -> None:
    """Whatever a file holds, it is an access or a `ConfigError`."""
    whole = config()
    whole["users"][0]["user"] = user
    whole["clusters"][0]["cluster"]["extra"] = document
    texts = [
        document if isinstance(document, str) else yaml.safe_dump(document),
        yaml.safe_dump(whole),
        f"{yaml.safe_dump(config())}extra: {odd}",
    ]
    for text in texts:
        file = tmp_path / "config"
        file.write_bytes(text.encode())
        try:
            rest_config = load(file)
        except ConfigError as error:
            assert str(error).startswith(str(file))  # noqa: PT017 - it need not be raised
        else:
            assert rest_config.server == SERVER or document
