"""An upgrade from 515b908, of which a fixture holds what it left in a cluster."""

from contextlib import AsyncExitStack
from datetime import UTC, datetime
from pathlib import Path

from e2e.cluster.bringup import Options, running_cluster
from e2e.fixtures.install import apply_all
from e2e.fixtures.processes import webhook_port
from e2e.upgrade import leftovers
from e2e.upgrade.before_upgrade import furnish
from e2e.upgrade.run_upgrade import upgrade


async def test_an_upgrade_disturbs_no_trainjob(tmp_path: Path) -> None:
    """What runs runs on, what made room comes back, and what waits, or is new, has its turn."""
    left = leftovers.read(datetime.now(UTC))
    async with running_cluster(Options(name="test-upgrade")) as cluster:
        await furnish(cluster)
        await apply_all(cluster, left.manifests, webhook_port(cluster))
        await leftovers.put_back(cluster, left.objects)
        await upgrade(cluster, tmp_path, AsyncExitStack())
