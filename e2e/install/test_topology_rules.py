"""What a Topology may say, and what of it may change."""

from typing import Final

import pytest

from e2e.cluster.api import ApiError
from e2e.cluster.cluster import Cluster
from e2e.cluster.resources import Obj
from e2e.fixtures.install import TOPOLOGIES
from e2e.install.schema_check import RuleCase, check_case, row_id, topology
from tests.support.case import Case, ids

RACK: Final = {"nodeLabel": "example.com/rack", "alias": "rack"}
BLOCK: Final = {"nodeLabel": "example.com/block"}
NODE: Final = {"nodeLabel": "kubernetes.io/hostname"}
MANY: Final = [{"nodeLabel": f"example.com/level-{i}"} for i in range(17)]

ROWS: Final = [
    RuleCase("one level is enough", topology(RACK)),
    RuleCase("16 levels", topology(*MANY[:16])),
    RuleCase("a node is the finest", topology(BLOCK, RACK, NODE)),
    RuleCase("no level", topology(), "should have at least 1 items"),
    RuleCase("17 levels", topology(*MANY), "must have at most 16 items"),
    RuleCase("a label twice", topology(BLOCK, RACK, BLOCK), "each nodeLabel may "
"appear only once"),
    RuleCase("a node above a rack", topology(NODE, RACK),
        "kubernetes.io/hostname must be the last"),
    RuleCase("an alias twice", topology(RACK, {**BLOCK, "alias": "rack"}),
        "each alias may appear only once"),
    RuleCase("an alias that is a label", topology(RACK, {**BLOCK, "alias": "example.com/rack"}),
        "an alias cannot be the nodeLabel of any level"),
    RuleCase("an alias that is its own "
"label", topology({**BLOCK, "alias": "example.com/block"}),
        "including its own"),
    RuleCase("a label that no node can have", topology({"nodeLabel": "one rack"}),
        'spec.levels[0].nodeLabel: Invalid value: "one rack": must be a valid label name'),
    RuleCase("a prefix that is no DNS name", topology({"nodeLabel": "Example/rack"}),
        "after an optional DNS name and '/'"),
    RuleCase("an alias that no label can be", topology({**BLOCK, "alias": "a b"}),
        'spec.levels[0].alias: Invalid value: "a b": must be a valid label name'),
    RuleCase("an empty label", topology({"nodeLabel": ""}), "should be at least "
"1 chars long"),
]  # fmt: skip

# levels to begin with and levels afterwards -> what is said against the change
CHANGES: Final = [
    Case("an alias may change", [RACK, {**BLOCK, "alias": "block"}], ""),
    Case("an alias may go", [{"nodeLabel": "example.com/rack"}, BLOCK], ""),
    Case("a label may not change", [RACK, NODE], "the nodeLabels and their order cannot change"),
    Case("nor the order", [BLOCK, RACK], "create another Topology, and use its name"),
    Case("nor may a level go", [RACK], "the nodeLabels and their order cannot change"),
    Case("nor come", [RACK, BLOCK, NODE], "the nodeLabels and their order cannot change"),
]


@pytest.mark.parametrize("row", ROWS, ids=row_id)
async def test_the_rules_of_a_topology(row: RuleCase, installed_cluster: Cluster) -> None:
    """The API server says what is wrong and what would be right; the product agrees."""
    await check_case(installed_cluster, row)


@pytest.mark.parametrize("case", CHANGES, ids=ids)
async def test_the_levels_stay(case: Case[list[Obj], str], installed_cluster: Cluster) -> None:
    """Groups were placed by the levels, so that only what they are called may change."""
    await installed_cluster.api.request(
        "POST", TOPOLOGIES.path(), topology(RACK, BLOCK, name="stays")
    )
    try:
        answer = await _server_message(installed_cluster, {"spec": {"levels": case.given}})
    finally:
        await installed_cluster.api.delete(TOPOLOGIES, None, "stays")
    assert case.want in answer
    assert bool(case.want) == bool(answer)


async def _server_message(cluster: Cluster, change: Obj) -> str:
    try:
        await cluster.api.merge(TOPOLOGIES, None, "stays", change)
    except ApiError as error:
        return str(error)
    return ""
