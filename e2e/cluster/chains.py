"""The chains that can be built: each is a list of Go modules.

The environment variable TRAINER_KAI_CHAIN names a chain. Without it, the chain is `default`: the
one module in `chain/`, on which all tests run. The chain NAME is that module and the modules below
`chain-NAME/`. A later module replaces the programs of an earlier module, and the manifests that
these programs need, so a chain of other versions names only what differs.
"""

import os
from pathlib import Path
from typing import Final

from e2e.cluster.paths import chain_source
from e2e.cluster.toolchain import BuildError

CHAIN: Final = "TRAINER_KAI_CHAIN"
_DEFAULT: Final = "default"


def all_chains() -> list[str]:
    """Return the names of all chains, the default chain first."""
    prefix = f"{chain_source().name}-"
    folders = chain_source().parent.glob(f"{prefix}*/")
    return [_DEFAULT, *sorted(folder.name.removeprefix(prefix) for folder in folders)]


def chosen_chain() -> str:
    """Return the name of the chain that the environment asks for."""
    name = os.environ.get(CHAIN) or _DEFAULT
    if name not in all_chains():
        raise BuildError(f"{CHAIN} is {name!r}; the chains are {', '.join(all_chains())}")
    return name


def chain_modules(name: str) -> list[Path]:
    """Return the folders of the Go modules of a chain, in the order in which they are built."""
    own = chain_source().with_name(f"{chain_source().name}-{name}")
    return [chain_source(), *sorted(file.parent for file in own.glob("*/go.mod"))]
