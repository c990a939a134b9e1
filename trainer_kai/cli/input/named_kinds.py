"""The kinds of workloads that `trainer-kai why` explains, by the names that kubectl has for them.

Kinds without an adapter are read as an owner of pods, and only their metadata: those that the
podgrouper counts, and the wrappers, whose PodGroups belong to objects below them.
"""

from typing import Final, NamedTuple

from trainer_kai.api.names import (
    APPS,
    ARGO,
    BATCH,
    DYNAMO,
    EGX,
    GROVE,
    JOBSET,
    KNATIVE,
    KUBEFLOW,
    LEADER_WORKER_SET,
    RAY,
    RUN_AI_DOMAIN,
    SPARK,
    TRAINER,
)


class NamedKind(NamedTuple):
    kind: str
    plural: str
    group: str
    version: str = ""  # of a kind that is read as an owner of pods; "": it has an adapter
    short_names: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        return (self.kind.lower(), self.plural, *self.short_names)

    @property
    def group_kind(self) -> tuple[str, str]:
        return self.group, self.kind


NAMED_KINDS: Final = (
    NamedKind("TrainJob", "trainjobs", TRAINER),
    NamedKind("JobSet", "jobsets", JOBSET),
    NamedKind("Job", "jobs", BATCH),
    NamedKind("Pod", "pods", "", short_names=("po",)),
    NamedKind("PyTorchJob", "pytorchjobs", KUBEFLOW),
    NamedKind("TFJob", "tfjobs", KUBEFLOW),
    NamedKind("XGBoostJob", "xgboostjobs", KUBEFLOW),
    NamedKind("JAXJob", "jaxjobs", KUBEFLOW),
    NamedKind("MPIJob", "mpijobs", KUBEFLOW),
    NamedKind("RayCluster", "rayclusters", RAY),
    NamedKind("RayJob", "rayjobs", RAY),
    NamedKind("RayService", "rayservices", RAY),
    NamedKind("LeaderWorkerSet", "leaderworkersets", LEADER_WORKER_SET, short_names=("lws",)),
    NamedKind("Deployment", "deployments", APPS, "v1", ("deploy",)),
    NamedKind("StatefulSet", "statefulsets", APPS, "v1", ("sts",)),
    NamedKind("ReplicaSet", "replicasets", APPS, "v1", ("rs",)),
    NamedKind("DaemonSet", "daemonsets", APPS, "v1", ("ds",)),
    NamedKind("CronJob", "cronjobs", BATCH, "v1", ("cj",)),
    NamedKind("Notebook", "notebooks", KUBEFLOW, "v1"),
    NamedKind("Revision", "revisions", KNATIVE, "v1", ("rev",)),
    NamedKind("Configuration", "configurations", KNATIVE, "v1", ("config", "cfg")),
    NamedKind("Service", "services", KNATIVE, "v1", ("kservice", "ksvc")),
    NamedKind("SparkApplication", "sparkapplications", SPARK, "v1beta2", ("sparkapp",)),
    NamedKind("PodCliqueSet", "podcliquesets", GROVE, "v1alpha1", ("pcs",)),
    NamedKind("DynamoGraphDeployment", "dynamographdeployments", DYNAMO, "v1alpha1", ("dgd",)),
    NamedKind("Workflow", "workflows", ARGO, "v1alpha1", ("wf",)),
    NamedKind("SPOTRequest", "spotrequests", EGX, "v1"),
    *(
        NamedKind(f"{kind}Workload", f"{kind.lower()}workloads", RUN_AI_DOMAIN, "v2alpha1")
        for kind in (
            "Training",
            "Interactive",
            "Distributed",
            "Inference",
            "DistributedInference",
        )
    ),
)
POD_OWNERS: Final = tuple(it for it in NAMED_KINDS if it.version)
KIND_OF_NAME: Final = {name: it for it in NAMED_KINDS for name in it.names}
EXAMPLES: Final = ", ".join(it.kind.lower() for it in NAMED_KINDS[4:])
