"""Each kind by its own chain of owners, with stand-ins for operators; it prints a table."""

import pytest

from e2e.fixtures.installation import Installation
from e2e.kinds.life import live
from e2e.kinds.stand_ins import STAND_INS
from e2e.kinds.workloads import ROWS, KindRow


@pytest.mark.parametrize("row", ROWS, ids=[it.resource.kind for it in ROWS])
async def test_a_kind(
    row: KindRow,
    kinds_installation: Installation,
    kinds_namespace: str,
    kind_table: list[tuple[str, ...]],
) -> None:
    operator = STAND_INS.get(row.resource.kind)
    kind_table.append(await live(kinds_installation.cluster, kinds_namespace, row, operator))
