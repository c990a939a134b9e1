"""Find the API server and its credentials: a kubeconfig, the pod's account, or the home directory.

Kubeconfigs, and the two files and two variables of a pod, are read here, because importing the
official package costs each process the time and memory that `make bench` prints. Only the
credentials of a user with an `exec` plugin come from that package, by
`trainer_kai.kube.auth.exec_plugin`. An `auth-provider` is refused: it would have to log in here,
and to write new tokens into a file that other commands read.
"""

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, TypeAlias
from urllib.parse import urlsplit

import msgspec
import yaml

from trainer_kai.errors import ConfigError, FieldError
from trainer_kai.kube.auth.rest_config import (
    BasicAuth,
    ClientCertificate,
    Credentials,
    RestConfig,
    ServerTrust,
    StaticToken,
    TokenFile,
    check_proxy,
    proxy_for_server,
)
from trainer_kai.service.clock import Clock

Section: TypeAlias = Mapping[str, Any]

SERVICE_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_HOST: Final = "KUBERNETES_SERVICE_HOST"
_PORT: Final = "KUBERNETES_SERVICE_PORT"
_IMPERSONATION: Final = ("as", "as-uid", "as-groups", "as-user-extra")
_YES: Final = ("true", "True", "TRUE")
_NULL: Final = "tag:yaml.org,2002:null"
_PLAIN: Final = ("bool", "int", "float", "timestamp", "binary")


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]  # C or not
    """Reads all scalars as strings: a token can look like a number, a name like a date."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag == _NULL]
    for first, resolvers in _Loader.yaml_implicit_resolvers.items()
}
for _tag in _PLAIN:
    _Loader.add_constructor(f"tag:yaml.org,2002:{_tag}", _Loader.construct_yaml_str)


@dataclass(frozen=True)
class KubeconfigEntry:
    """A named cluster, user or context, and its file; paths are relative to that file."""

    name: str
    file: Path
    fields: Section = field(repr=False)  # a user has tokens and keys


class SelectedContext(msgspec.Struct, frozen=True):
    context: KubeconfigEntry
    cluster: KubeconfigEntry
    user: KubeconfigEntry

    @property
    def has_exec_plugin(self) -> bool:
        return bool(self.user.fields.get("exec"))


class _MergedKubeconfigs(msgspec.Struct, frozen=True):
    clusters: Mapping[str, KubeconfigEntry]
    users: Mapping[str, KubeconfigEntry]
    contexts: Mapping[str, KubeconfigEntry]
    current: str
    files: tuple[Path, ...]


async def find_rest_config(
    environ: Mapping[str, str], clock: Clock, *, kubeconfig: str = "", context: str = ""
) -> RestConfig:
    """Return the RestConfig of *kubeconfig*, $KUBECONFIG, the pod's account or ~/.kube/config."""
    files = kubeconfig_files(environ, kubeconfig)
    if not files and is_in_cluster(environ) and not context:
        return in_cluster_config(environ, clock)  # a pod reaches its own cluster without a proxy
    selected = select_context(read_files(_existing(files or [_home_kubeconfig(environ)])), context)
    rest_config = load_rest_config(selected, clock)
    if rest_config.proxy:
        cluster = selected.cluster
        where = f"{cluster.file}: clusters[{cluster.name}].cluster.proxy-url"
        check_proxy(rest_config.proxy, where)
    else:
        rest_config = replace(rest_config, proxy=proxy_for_server(rest_config.server, environ))
    if not selected.has_exec_plugin:
        return rest_config
    from trainer_kai.kube.auth.exec_plugin import with_exec_plugin  # noqa: PLC0415 - few need it

    return await with_exec_plugin(rest_config, selected, clock)


def kubeconfig_files(environ: Mapping[str, str], named: str = "") -> list[Path]:
    if named:
        # shells do not expand --kubeconfig=~/…
        at_home = named.startswith("~/") and "HOME" in environ
        return [Path(environ["HOME"], named[2:]) if at_home else Path(named)]
    return [Path(part) for part in environ.get("KUBECONFIG", "").split(":") if part]


def _home_kubeconfig(environ: Mapping[str, str]) -> Path:
    return Path(environ.get("HOME", "/")) / ".kube" / "config"


def _existing(files: list[Path]) -> list[Path]:
    existing = [file for file in files if _may_exist(file)]
    if not existing:
        where = ", ".join(map(str, files))
        message = f"no such file: {where}; set --kubeconfig or $KUBECONFIG"
        raise ConfigError([FieldError("kubeconfig", message)])
    return existing


def _may_exist(file: Path) -> bool:
    try:
        return file.exists()
    except OSError:
        return True  # reading it reports why it cannot be read


def is_in_cluster(environ: Mapping[str, str]) -> bool:
    return bool(environ.get(_HOST))


def in_cluster_config(
    environ: Mapping[str, str], clock: Clock, folder: Path = SERVICE_ACCOUNT
) -> RestConfig:
    host, port = environ.get(_HOST, ""), environ.get(_PORT) or "443"
    where = f"[{host}]" if ":" in host else host
    return RestConfig(
        server=f"https://{where}:{port}",
        credentials=TokenFile(folder / "token", clock),
        trust=ServerTrust(authority=_read(folder / "ca.crt")),
        namespace=_read(folder / "namespace").strip() or "default",
        origin="the ServiceAccount of the pod",
    )


def _read(file: Path) -> str:
    try:
        return file.read_text(errors="replace")
    except OSError as error:
        message = f"{error.strerror}; does the pod set automountServiceAccountToken: false?"
        raise ConfigError([FieldError(str(file), message)]) from error


def read_files(files: Sequence[Path]) -> _MergedKubeconfigs:
    """Merge kubeconfigs as kubectl does: the first definition of a name wins."""
    kinds: dict[str, dict[str, KubeconfigEntry]] = {"clusters": {}, "users": {}, "contexts": {}}
    current = ""
    for file in files:
        document = _parse(file)
        current = current or str(document.get("current-context") or "")
        for kind, known in kinds.items():
            for entry in _entries(document, kind, file):
                known.setdefault(entry.name, entry)
    return _MergedKubeconfigs(**kinds, current=current, files=tuple(files))


def select_context(merged: _MergedKubeconfigs, context: str = "") -> SelectedContext:
    """Return the named context, or the current one, with its cluster and its user."""
    wanted = context or merged.current
    where = ", ".join(map(str, merged.files))
    if not wanted:
        message = _with_known_names(merged.contexts, "no context is named")
        raise _fault(where, "current-context", message)
    entry = merged.contexts.get(wanted)
    if entry is None:
        message = _with_known_names(merged.contexts, f"context {wanted!r} does not exist")
        raise _fault(where, "context" if context else "current-context", message)
    cluster_name = str(entry.fields.get("cluster") or "")
    cluster = merged.clusters.get(cluster_name)
    if cluster is None:
        message = _with_known_names(merged.clusters, f"cluster {cluster_name!r} does not exist")
        raise _fault(entry.file, f"contexts[{wanted}].context.cluster", message)
    user_name = str(entry.fields.get("user") or "")
    user = merged.users.get(user_name)
    if user is None:
        if user_name:
            message = _with_known_names(merged.users, f"user {user_name!r} does not exist")
            raise _fault(entry.file, f"contexts[{wanted}].context.user", message)
        user = KubeconfigEntry("", entry.file, {})
    return SelectedContext(entry, cluster, user)


def load_rest_config(selected: SelectedContext, clock: Clock) -> RestConfig:
    """Return the RestConfig of a context if its user has credentials in the file."""
    cluster, user = selected.cluster, selected.user
    where = f"clusters[{cluster.name}].cluster"
    server = str(cluster.fields.get("server") or "").rstrip("/")
    if not _is_address(server):
        message = f"{server!r} is not an address; write https://HOST:PORT"
        raise _fault(cluster.file, f"{where}.server", message)
    rest_config = RestConfig(
        server=server,
        credentials=_credentials(user, clock),
        trust=ServerTrust(
            authority=_read_data(cluster, where, "certificate-authority").decode(errors="replace"),
            insecure=cluster.fields.get("insecure-skip-tls-verify") in _YES,
            server_name=str(cluster.fields.get("tls-server-name") or ""),
        ),
        namespace=str(selected.context.fields.get("namespace") or "default"),
        proxy=str(cluster.fields.get("proxy-url") or ""),
        origin=f"context {selected.context.name} of {selected.context.file}",
    )
    where = f"users[{user.name}].user"
    chain = _read_data(user, where, "client-certificate")
    if not chain:
        return rest_config
    certificate = ClientCertificate(chain, _read_data(user, where, "client-key"))
    return replace(rest_config, certificate=certificate)


def _is_address(server: str) -> bool:
    try:
        parts = urlsplit(server)
        _ = parts.port  # raises for an invalid port
    except ValueError:
        return False
    if not server.startswith(("https://", "http://")) or not parts.hostname:
        return False
    rest = parts.username is not None or parts.query or parts.fragment
    return not rest and server.isascii() and server.isprintable() and " " not in server


def _credentials(user: KubeconfigEntry, clock: Clock) -> Credentials:
    fields = user.fields
    for name in _IMPERSONATION:
        if fields.get(name):
            message = "is not supported: impersonation would be ignored"
            raise _fault(user.file, f"users[{user.name}].user.{name}", message)
    if fields.get("auth-provider") and not fields.get("exec"):
        message = (
            "is not supported; use an exec plugin, such as kubelogin (kubectl oidc-login) for"
            " OpenID Connect"
        )
        raise _fault(user.file, f"users[{user.name}].user.auth-provider", message)
    if fields.get("tokenFile"):  # the file is renewed, a token beside it is not
        return TokenFile(user.file.parent / str(fields["tokenFile"]), clock)
    if fields.get("token"):
        return StaticToken(str(fields["token"]).strip())
    if fields.get("username"):
        return BasicAuth(str(fields["username"]), str(fields.get("password") or ""))
    return StaticToken("")


def _read_data(entry: KubeconfigEntry, where: str, name: str) -> bytes:
    """Return the content of a field, or of the file that it names."""
    path = f"{where}.{name}"
    inline, named = entry.fields.get(f"{name}-data"), entry.fields.get(name)
    if inline:
        try:
            return base64.b64decode("".join(str(inline).split()), validate=True)
        except ValueError as error:
            raise _fault(entry.file, f"{path}-data", "is not base64") from error
    if not named:
        return b""
    try:
        return (entry.file.parent / str(named)).read_bytes()
    except (OSError, ValueError) as error:
        raise _fault(entry.file, path, f"{named}: {_error_text(error)}") from error


def _yaml_fault(error: Exception) -> str:
    """Return the place and the problem, without the parser's name for its input."""
    mark = getattr(error, "problem_mark", None)
    where = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
    texts = [getattr(error, name, None) for name in ("context", "problem")]
    return where + " ".join((" ".join(filter(None, texts)) or str(error)).split())


def _parse(file: Path) -> Section:
    try:
        document = yaml.load(file.read_bytes(), _Loader)  # noqa: S506 - it is a safe one
    except OSError as error:
        raise ConfigError([FieldError(str(file), _error_text(error))]) from error
    except (yaml.YAMLError, RecursionError) as error:
        message = f"is not valid YAML: {_yaml_fault(error)}"
        raise ConfigError([FieldError(str(file), message)]) from error
    if document is None:
        return {}
    if not isinstance(document, dict):
        raise ConfigError([FieldError(str(file), "is not a kubeconfig: it has no fields")])
    return document


def _entries(document: Section, kind: str, file: Path) -> list[KubeconfigEntry]:
    """Return the named entries; the fields of a cluster are below `cluster`, and so on."""
    listed = document.get(kind) or []
    single = kind[:-1]
    entries = []
    for number, item in enumerate(listed if isinstance(listed, list) else [None]):
        fields = item.get(single) if isinstance(item, dict) else None
        if not isinstance(item, dict) or not isinstance(fields or {}, dict):
            message = f"must be a list of entries with a name and a {single}"
            raise _fault(file, f"{kind}[{number}]", message)
        entries.append(KubeconfigEntry(str(item.get("name") or ""), file, fields or {}))
    return entries


def _error_text(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error)


def _with_known_names(known: Mapping[str, KubeconfigEntry], message: str) -> str:
    names = ", ".join(sorted(known)) or "none"
    return f"{message}; valid names are: {names}"


def _fault(where: Path | str, path: str, message: str) -> ConfigError:
    return ConfigError([FieldError(f"{where}: {path}", message)])
