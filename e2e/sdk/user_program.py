"""What a user of the SDK writes: runs in the environment of the SDK, and imports nothing of ours.

Each line of standard input is a call; each answer is a line of JSON.
"""

import json
import sys
from typing import Any

from kubeflow.trainer import (
    CustomTrainer,
    KubernetesBackendConfig,
    TrainerClient,
)
from kubeflow.trainer.options import Labels, RuntimePatch
from kubeflow.trainer.options import kubernetes as options


def _work() -> None:
    print("training")


def _pods_that_run_for(annotation: str, seconds: str) -> Any:
    """Return a patch: the simulated kubelet ends the pods after that time."""
    template = options.PodTemplatePatch(metadata={"annotations": {annotation: seconds}})
    job = options.JobTemplatePatch(spec=options.JobSpecPatch(template=template))
    replicated = options.ReplicatedJobPatch(name="node", template=job)
    spec = options.JobSetSpecPatch(replicated_jobs=[replicated])
    jobset = options.JobSetTemplatePatch(spec=spec)
    return RuntimePatch(training_runtime_spec=options.TrainingRuntimeSpecPatch(template=jobset))


def _answer(client: Any, call: str, *arguments: Any) -> Any:
    if call == "train":
        queue, nodes, seconds, gpus, annotation = arguments
        trainer = CustomTrainer(func=_work, num_nodes=nodes, resources_per_node={"gpu": gpus})
        patch = _pods_that_run_for(annotation, seconds)
        labels = Labels({"kai.scheduler/queue": queue})
        return client.train(runtime="torch-distributed", trainer=trainer, options=[labels, patch])
    if call == "wait":
        name, status, timeout = arguments
        return client.wait_for_job_status(name, {status}, timeout, 1).status
    if call == "status":
        job = client.get_job(*arguments)
        return [job.status, [it.status for it in job.steps]]
    return [f"{it.reason}: {it.message}" for it in client.get_job_events(*arguments)]


def main(kubeconfig: str, namespace: str) -> None:
    config = KubernetesBackendConfig(config_file=kubeconfig, namespace=namespace)
    client = TrainerClient(backend_config=config)
    for line in sys.stdin:
        call, *arguments = json.loads(line)
        try:
            answer = {"result": _answer(client, call, *arguments)}
        except (RuntimeError, TimeoutError, ValueError) as error:
            causes = [str(it) for it in (error, error.__cause__) if it is not None]
            answer = {"error": " / ".join(causes)}
        print(json.dumps(answer), flush=True)


main(*sys.argv[1:])
