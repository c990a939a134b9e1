"""Find the API server and its credentials: a named kubeconfig, the pod, or the home directory."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from trainer_kai.errors import ConfigError, FieldError
from trainer_kai.kube.auth.in_cluster import in_cluster_config, is_in_cluster
from trainer_kai.kube.auth.kubeconfig import load_rest_config, read_files, select_context
from trainer_kai.kube.auth.proxy import check_proxy, proxy_for_server
from trainer_kai.kube.auth.rest_config import RestConfig
from trainer_kai.service.clock import Clock


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
        check_proxy(
            rest_config.proxy, f"{cluster.file}: clusters[{cluster.name}].cluster.proxy-url"
        )
    else:
        rest_config = replace(rest_config, proxy=proxy_for_server(rest_config.server, environ))
    if not selected.has_exec_plugin:
        return rest_config
    from trainer_kai.kube.auth.exec_plugin import with_exec_plugin  # noqa: PLC0415 - few need it

    return await with_exec_plugin(rest_config, selected, clock)


def kubeconfig_files(environ: Mapping[str, str], named: str = "") -> list[Path]:
    """Return the kubeconfig files that the caller or the environment names."""
    if named:
        at_home = (
            named.startswith("~/") and "HOME" in environ
        )  # shells do not expand --kubeconfig=~/…
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
