"""What the tests on the real chain share: one cluster for those that do it no harm."""

import itertools
from collections.abc import AsyncIterator, Generator
from pathlib import Path

import pytest
import pytest_asyncio

from e2e.cluster import resources
from e2e.cluster.bringup import Options, running_cluster
from e2e.cluster.cluster import Cluster
from e2e.cluster.furnish import CACHE_INITIALIZER
from e2e.cluster.resources import NAMESPACES, SERVICE_ACCOUNTS

_NUMBERS = itertools.count(1)
_TABLE = pytest.StashKey[list[tuple[str, ...]]]()
_LATENCIES = pytest.StashKey[list[tuple[str, ...]]]()
_FAILED = pytest.StashKey[bool]()
_HEADING = ("runtime", "numNodes", "jobs", "pods, in the order they were bound", "Complete after")
_STAGES = pytest.StashKey[list[tuple[str, ...]]]()
_STAGES_HEADING = (
    "runtime",
    "numNodes",
    "groups",
    "units",
    "pods bound",
    "writes",
    "Complete after",
)


EDGES_MS = (5, 10, 20, 50, 100, 200, 500, 1000, 2000)
LATENCIES = ("while", *(f"<{edge} ms" for edge in EDGES_MS), "more")


def pytest_configure(config: pytest.Config) -> None:
    """Make room for the tables of runtimes."""
    config.stash[_TABLE] = []
    config.stash[_STAGES] = []
    config.stash[_LATENCIES] = []


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run the tests on the chain in one event loop: they share a cluster and its connections."""
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            item.add_marker(pytest.mark.asyncio(loop_scope="session"), append=False)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Remember what failed, so that the logs of its cluster are kept."""
    report = yield
    if report.failed:
        item.stash[_FAILED] = item.config.stash[_FAILED] = True
    return report


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """Print the tables of runtimes after the tests."""
    for title, heading, rows in (
        ("runtime → objects → Complete", _HEADING, config.stash[_TABLE]),
        ("runtime → units → groups → Complete", _STAGES_HEADING, config.stash[_STAGES]),
        ("pods of others, by how long their creation took", LATENCIES, config.stash[_LATENCIES]),
    ):
        if not rows:
            continue
        widths = [max(map(len, column)) for column in zip(heading, *rows, strict=True)]
        terminalreporter.section(title)
        for row in [heading, *sorted(rows)]:
            line = "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
            terminalreporter.write_line(line.rstrip())


@pytest.fixture
def runtime_table(request: pytest.FixtureRequest) -> list[tuple[str, ...]]:
    """Return the table of runtimes, to add a row to."""
    return request.config.stash[_TABLE]


@pytest.fixture
def stage_table(request: pytest.FixtureRequest) -> list[tuple[str, ...]]:
    """Return the table of runtimes with their units, to add a row to."""
    return request.config.stash[_STAGES]


@pytest.fixture
def latency_table(request: pytest.FixtureRequest) -> list[tuple[str, ...]]:
    """Return the table of how long others wait for their pods, to add a row to."""
    return request.config.stash[_LATENCIES]


def failed(who: pytest.Config | pytest.Item) -> bool:
    """Say whether a test has failed, or any of the run."""
    return who.stash.get(_FAILED, False)


def next_name() -> str:
    """Return the name of a namespace that nobody has used yet."""
    return f"e2e-{next(_NUMBERS)}"


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def cluster(request: pytest.FixtureRequest) -> AsyncIterator[Cluster]:
    """Return the chain that all harmless tests share."""
    async with running_cluster(Options(name="test-shared")) as shared:
        await shared.add_nodes(8)
        yield shared
        if failed(request.config):
            shared.keep_logs()


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def _worn(request: pytest.FixtureRequest) -> AsyncIterator[Cluster]:
    async with running_cluster(Options(name="test-worn")) as worn:
        await worn.add_nodes(4)
        yield worn
        if failed(request.config):
            worn.keep_logs()


@pytest_asyncio.fixture(loop_scope="session")
async def worn_cluster(_worn: Cluster) -> AsyncIterator[Cluster]:
    """Return a chain of one module's own, to do harm to its programs: afterwards all run again."""
    yield _worn
    for process in _worn.processes:
        if process.identity is None:
            process.start()
            await _worn.ready(process.name)
        else:
            process.resume()


@pytest_asyncio.fixture(loop_scope="session")
async def own_cluster(request: pytest.FixtureRequest) -> AsyncIterator[Cluster]:
    """Return a chain of the test's own, to do it harm."""
    async with running_cluster(Options(name="test-own")) as own:
        await own.add_nodes(4)
        yield own
        if failed(request.node):
            own.keep_logs()


@pytest_asyncio.fixture(loop_scope="session")
async def namespace(cluster: Cluster) -> AsyncIterator[str]:
    """Return a namespace of the test's own on the shared chain."""
    name = next_name()
    await make_namespace(cluster, name)
    yield name
    await cluster.api.delete(NAMESPACES, None, name)


async def make_namespace(cluster: Cluster, name: str) -> None:
    """Make a namespace in which any shipped runtime works."""
    await cluster.api.create(resources.namespace(name))
    metadata = {"namespace": name, "name": CACHE_INITIALIZER}
    await cluster.api.create({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata})
    await cluster.until_found(SERVICE_ACCOUNTS, name, "default")
