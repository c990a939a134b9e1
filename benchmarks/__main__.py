"""Run every benchmark, or the named ones: `python -m benchmarks planning decode`."""

import subprocess
import sys
from typing import Final

from benchmarks import (
    ablation,
    chain,
    decode,
    encode,
    event_loop,
    gang_streams,
    incremental,
    line,
    list_workloads,
    modules,
    packing,
    planning,
    pod_templates,
    podgrouper,
    scheduler_start,
    scheduling,
    sharing,
    startup,
    victims,
    watch,
    webhook,
)
from e2e.cluster.binaries import ensure_built
from trainer_kai.kube.process.runner import run_loop

_ALL: Final = {
    "planning": planning,
    "victims": victims,
    "encode": encode,
    "incremental": incremental,
    "event_loop": event_loop,
    "decode": decode,
    "startup": startup,
    "list_workloads": list_workloads,
    "watch": watch,
    "webhook": webhook,
    "podgrouper": podgrouper,
    "chain": chain,
    "modules": modules,
}
_BY_NAME: Final = {
    "scheduling": scheduling,  # `make bench-chain`: it takes long
    "scheduler_start": scheduler_start,
    "sharing": sharing,
    "ablation": ablation,
    "gang_streams": gang_streams,
    "packing": packing,  # it has options
    "line": line,  # likewise
    "pod_templates": pod_templates,
}
_WITHOUT_CHAIN: Final = {
    "planning",
    "victims",
    "encode",
    "incremental",
    "event_loop",
    "decode",
    "list_workloads",
    "webhook",
    "podgrouper",
    "modules",
    "ablation",
    "gang_streams",
    "packing",
    "line",
    "pod_templates",
}

if __name__ == "__main__":
    names = sys.argv[1:] or list(_ALL)
    if names[0] in {"packing", "line"}:  # what follows are its options
        del names[1:]
    known = _ALL | _BY_NAME
    unknown = [name for name in names if name not in known]
    if unknown:
        sys.exit(f"no benchmark {', '.join(unknown)}; there are {', '.join(known)}")
    try:
        if names[1:]:  # each in a process of its own: no other's memory is in its way
            by_name = {name: [sys.executable, "-m", "benchmarks", name] for name in names}
            failed = [
                it for it, argv in by_name.items() if subprocess.run(argv, check=False).returncode
            ]
            if failed:
                sys.exit(f"failed: {', '.join(failed)}")
        else:
            if not _WITHOUT_CHAIN.issuperset(names):
                # Outside the event loop, which would keep Ctrl-C from it.
                ensure_built("kube-scheduler")
            run_loop(known[names[0]].main())
    except KeyboardInterrupt:
        sys.exit(130)
