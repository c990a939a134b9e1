"""The recorded fixtures are what the chain builds today."""

from pathlib import Path

from e2e.cluster.cluster import Cluster
from e2e.upstream.record import FIXTURES, record
from e2e.upstream.record_corners import record_corners
from e2e.upstream.record_pods import record_pods


async def test_fixtures_are_what_trainer_builds(cluster: Cluster) -> None:
    """Recording again gives the committed files, none more and none less: else `make fixtures`."""
    recorded = await record(cluster)

    folders = [FIXTURES / "jobsets", FIXTURES / "runtimes"]
    committed = {file for folder in folders for file in folder.rglob("*.yaml")}
    assert {FIXTURES / file for file in recorded} == committed
    assert [file for file, text in recorded.items() if _committed(file) != text] == []
    assert len(recorded) == 9 * (4 * 2 + 1)


async def test_corners_are_what_trainer_builds(cluster: Cluster) -> None:
    """So are those of runtimes that nobody ships."""
    recorded = await record_corners(cluster)

    assert {FIXTURES / file for file in recorded} == set((FIXTURES / "corners").iterdir())
    assert [file for file, text in recorded.items() if _committed(file) != text] == []


async def test_pods_are_what_the_chain_makes(cluster: Cluster) -> None:
    """A pod is written by the API server as it was when it was recorded: else `make fixtures`."""
    recorded = await record_pods(cluster)

    assert {FIXTURES / file for file in recorded} == set((FIXTURES / "pods").iterdir())
    assert [file for file, text in recorded.items() if _committed(file) != text] == []


def _committed(file: Path) -> str:
    return (FIXTURES / file).read_text()
