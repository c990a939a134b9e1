"""Record what Trainer builds of runtimes that nobody ships: the corners in `corners.yaml`.

A fixture holds the runtime, the TrainJob that was submitted and the JobSet that was built.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

import yaml

from e2e.cluster import resources
from e2e.cluster.cluster import Cluster
from e2e.cluster.resources import JOBSETS, NAMESPACES, RUNTIMES, TRAINJOBS, Obj, Resource
from e2e.cluster.together import together
from e2e.upstream.stable_fields import as_text, stable_fields

_CORNERS: Final = Path(__file__).with_name("corners.yaml")


async def record_corners(cluster: Cluster) -> Mapping[Path, str]:
    """Submit every corner to a chain and return the text of every fixture by its path."""
    corners = yaml.safe_load(_CORNERS.read_text())
    texts = await together(
        (_record(cluster, name, corner) for name, corner in corners.items()), at_once=16
    )
    return {
        Path("corners") / f"{name}.yaml": text for name, text in zip(corners, texts, strict=True)
    }


async def _record(cluster: Cluster, name: str, corner: Obj) -> str:
    namespace = f"corner-{name}"
    await cluster.api.create(resources.namespace(namespace))
    await cluster.api.create(_object(RUNTIMES, namespace, "corner", corner["runtime"]))
    runtime = await cluster.api.get(RUNTIMES, namespace, "corner")
    spec = {"runtimeRef": {"name": "corner", "kind": RUNTIMES.kind}, **corner.get("trainjob", {})}
    submitted = _object(TRAINJOBS, namespace, "job", spec)
    await cluster.api.create(submitted)
    await cluster.until_found(JOBSETS, namespace, "job")
    built = await cluster.api.get(JOBSETS, namespace, "job")
    await cluster.api.delete(NAMESPACES, None, namespace)
    return as_text(stable_fields(runtime), stable_fields(submitted), stable_fields(built))


def _object(resource: Resource, namespace: str, name: str, spec: Obj) -> Obj:
    return {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "metadata": {"namespace": namespace, "name": name},
        "spec": spec,
    }
