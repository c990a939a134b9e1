"""The data of an etcd with all CRDs: a chain that starts from a copy is ready sooner.

A fresh API server writes its own roles and compiles the schema of one CRD after the other: more
than half of the work of a start. Its content follows from the CRDs, the versions of the programs
and the namespaces of every chain.
"""

import hashlib
import json
import shutil
from pathlib import Path

from e2e.cluster.bootstrap import namespaces
from e2e.cluster.build_folder import build_lock, partial_folder
from e2e.cluster.catalog import Catalog
from e2e.cluster.paths import programs_root

_SCHEME = 1  # counts up when what `bringup` writes into a template changes


def template_of(catalog: Catalog) -> Path:
    """Return where the template is, if it was made."""
    content = json.dumps([_SCHEME, [*namespaces()], catalog.crds, catalog.versions]).encode()
    return programs_root() / "etcd-data" / hashlib.sha256(content).hexdigest()[:16]


def copy_template(catalog: Catalog, data: Path) -> bool:
    """Copy the template to the data folder of an etcd that will start; say whether there is one."""
    template = template_of(catalog)
    if not template.is_dir():
        return False
    shutil.copytree(template, data)
    return True


def keep_as_template(catalog: Catalog, data: Path) -> None:
    """Keep the data of an etcd that has stopped."""
    with build_lock():
        if (template := template_of(catalog)).is_dir():
            return
        template.parent.mkdir(exist_ok=True)
        with partial_folder() as partial:
            shutil.copytree(data, partial / "data")
            (partial / "data").rename(template)
