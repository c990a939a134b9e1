"""What the command line knows of the fields of Trainer, JobSet and pods is what their CRDs have."""

from e2e.cluster.cluster import Cluster
from e2e.cluster.resources import CRDS
from tests.support.schemas import crd_schema, unread_properties
from trainer_kai.api.resources import CLUSTER_RUNTIMES, JOBSETS, RUNTIMES, TRAINJOBS
from trainer_kai.cli.input.unknown_fields import UNREAD_FIELDS

_NOT_READ = {"PresenceOnly"}  # fields of which we read only that they are there


async def test_known_fields_are_those_of_the_crds(cluster: Cluster) -> None:
    """Each field that we do not read stands beside its struct: none is missing, none is made up."""
    found: dict[str, set[str]] = {}
    crds, _ = await cluster.api.list(CRDS)
    by_name = {crd["metadata"]["name"]: crd for crd in crds}
    for resource in (CLUSTER_RUNTIMES, JOBSETS, RUNTIMES, TRAINJOBS):
        crd = by_name[f"{resource.plural}.{resource.group}"]
        for name, names in unread_properties(
            resource.struct, crd_schema(crd, resource.version)
        ).items():
            found.setdefault(name, set()).update(names)

    assert len(found) > 40
    expected = {name: names for name, names in found.items() if name not in _NOT_READ}
    assert {name: set(UNREAD_FIELDS[name].split()) for name in expected} == expected
