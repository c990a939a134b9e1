"""What all tests on the real cluster share: one cluster for the tests that do not damage it."""

import itertools
from collections.abc import AsyncIterator, Callable, Generator, Iterator
from pathlib import Path
from typing import Final

import pytest
import pytest_asyncio
from _pytest.nodeid import coerce_node_id

from e2e.chain_seconds import read_chain_seconds
from e2e.cluster import resources
from e2e.cluster.binaries import OTHERS, ensure_built
from e2e.cluster.bootstrap import CACHE_INITIALIZER
from e2e.cluster.bringup import Options, running_cluster
from e2e.cluster.cluster import Cluster
from e2e.cluster.patience import patience_s, slowdown
from e2e.cluster.resources import NAMESPACES, SERVICE_ACCOUNTS
from e2e.cluster.toolchain import BuildError

_NUMBERS = itertools.count(1)
_FAILED = pytest.StashKey[bool]()
EDGES_MS = (5, 10, 20, 50, 100, 200, 500, 1000, 2000)
# fixture -> title and heading of the table that is printed after the run
_TABLES: Final = {
    "stage_table": (
        "runtime → units → groups → Complete",
        ["runtime", "numNodes", "groups", "units", "pods", "Complete after"],
    ),
    "kind_table": (
        "kind → controller → PodGroups → bound → reclaimed and back → Complete",
        ["kind", "controller", "PodGroups", "bound", "reclaimed and back", "Complete"],
    ),
    "latency_table": (
        "pods of others, by how long their creation took",
        ["while", *(f"<{edge} ms" for edge in EDGES_MS), "more"],
    ),
}
# Chains that several files share: their tests run on one worker, so that each starts once.
_SHARED_CLUSTERS: Final = (
    "installation",
    "two_teams_installation",
    "damaged_installation",
    "hostile",
    "webhook_installation",
    "damaged_webhook_installation",
    "service_accounts",
    "sharing_installation",
    "kinds_installation",
    "claims_installation",
    "judged_installation",
    "autoscaled",
    "_damaged_cluster",
)
# Chains of one test: it may run on any worker.
_OWN_CLUSTERS: Final = frozenset({"own_cluster", "own_webhook_installation", "own_installation"})


def pytest_configure() -> None:
    """Measure the machine before the tests and their workers are a load on it."""
    slowdown()


def pytest_report_header() -> str:
    """Say how long waits are."""
    return f"waits on the chain: for a machine {slowdown():.1f} times slower than usual"


def pytest_sessionstart(session: pytest.Session) -> None:
    """Build what is missing before any test's time-out begins, and before there are workers."""
    if session.config.option.collectonly:
        return
    capture = session.config.pluginmanager.getplugin("capturemanager")
    with capture.global_and_fixture_disabled():  # it takes minutes, and says what it does
        try:
            ensure_built(*OTHERS)
        except BuildError as error:
            raise pytest.UsageError(str(error)) from error


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Run all tests here in one event loop, and those of one chain on one worker: they share it."""
    ours = [item for item in items if item.path.is_relative_to(Path(__file__).parent)]
    for item in ours:
        item.add_marker(pytest.mark.asyncio(loop_scope="session"), append=False)
        own = item.get_closest_marker("timeout")
        seconds = float(own.args[0] if own else config.getini("timeout"))
        item.add_marker(pytest.mark.timeout(patience_s(seconds)), append=False)
    if config.getoption("loadgroup", default=False):
        _longest_cluster_first(ours)
        for item in ours:
            # What `xdist_group` does; but xdist 3.8 writes to where pytest 9.2 does not look.
            item._id = coerce_node_id(f"{item.nodeid}@{_cluster_of(item)}")  # noqa: SLF001
        items[:] = [*ours, *(item for item in items if item not in ours)]


def _longest_cluster_first(items: list[pytest.Item]) -> None:
    """Sort the tests so that no long chain begins when all others are done; in it nothing moves."""
    seconds = read_chain_seconds()
    items.sort(key=lambda item: (-seconds.get(_cluster_of(item), 0.0), _cluster_of(item)))


def _cluster_of(item: pytest.Item) -> str:
    """Name the chain that a test runs on: a shared one, its own, or the one of its file."""
    fixtures: list[str] = getattr(item, "fixturenames", [])
    for name in _SHARED_CLUSTERS:
        if name in fixtures:
            return name
    if _OWN_CLUSTERS.intersection(fixtures):
        return item.name.partition("[")[0]
    folder = item.path.parent.name
    return f"cluster-{folder}" if "cluster" in fixtures else f"{folder}/{item.path.stem}"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Remember what failed, so that the logs of its cluster are kept."""
    report = yield
    if report.failed:
        item.stash[_FAILED] = item.config.stash[_FAILED] = True
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the tables after the tests; the rows come with the reports, also from workers."""
    given = [
        row
        for report in terminalreporter.getreports("")
        if report.when == "teardown"
        for row in report.user_properties
    ]
    for name, (title, heading) in _TABLES.items():
        rows = [heading, *sorted(row for table, row in given if table == name)]
        if len(rows) == 1:
            continue
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        terminalreporter.section(title)
        for row in rows:
            line = "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
            terminalreporter.write_line(line.rstrip())


def _table(name: str) -> Callable[[pytest.FixtureRequest], Iterator[list[tuple[str, ...]]]]:
    """Make the fixture of a table: rows that a test adds travel with its report."""

    @pytest.fixture(name=name)
    def rows(request: pytest.FixtureRequest) -> Iterator[list[tuple[str, ...]]]:
        added: list[tuple[str, ...]] = []
        yield added
        request.node.user_properties += [(name, list(row)) for row in added]

    return rows


stage_table = _table("stage_table")
latency_table = _table("latency_table")
kind_table = _table("kind_table")


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


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def _damaged_cluster(request: pytest.FixtureRequest) -> AsyncIterator[Cluster]:
    async with running_cluster(Options(name="test-shared")) as shared:
        await shared.add_nodes(4)
        yield shared
        if failed(request.config):
            shared.keep_logs()


@pytest_asyncio.fixture(loop_scope="session")
async def damaged_cluster(_damaged_cluster: Cluster) -> AsyncIterator[Cluster]:
    """Return a chain to do harm to its programs: after each test all of them run again."""
    yield _damaged_cluster
    for process in _damaged_cluster.processes:
        if process.identity is None:
            process.start()
            await _damaged_cluster.ready(process.name)
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
