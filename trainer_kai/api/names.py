"""All names that objects carry: API groups, labels, annotations, finalizers.

No other file spells one of these names. KAI's names have KAI's meaning; we add a name only where
KAI has none. A key that is both a label and an annotation has one constant here.
"""

from typing import Final

# API groups.
ADMISSION: Final = "admission.k8s.io"
ADMISSION_REGISTRATION: Final = "admissionregistration.k8s.io"
API_EXTENSIONS: Final = "apiextensions.k8s.io"
APPS: Final = "apps"
ARGO: Final = "argoproj.io"
AUTOSCALING: Final = "autoscaling.x-k8s.io"
AUTHENTICATION: Final = "authentication.k8s.io"
AUTHORIZATION: Final = "authorization.k8s.io"
BATCH: Final = "batch"
COORDINATION: Final = "coordination.k8s.io"
DYNAMO: Final = "nvidia.com"
EGX: Final = "egx.nvidia.io"
GROVE: Final = "grove.io"
JOBSET: Final = "jobset.x-k8s.io"
KAI: Final = "kai.scheduler"
KUBEFLOW: Final = "kubeflow.org"
KNATIVE: Final = "serving.knative.dev"
KUEUE: Final = "kueue.x-k8s.io"
KAI_SNAPSHOT: Final = "snapshot.kai.scheduler"  # not an API: the settings in a snapshot of KAI
LEADER_WORKER_SET: Final = "leaderworkerset.x-k8s.io"
NODE: Final = "node.k8s.io"
NODE_TOPOLOGY: Final = "topology.node.k8s.io"
POLICY: Final = "policy"
RAY: Final = "ray.io"
RBAC: Final = "rbac.authorization.k8s.io"
RESOURCE: Final = "resource.k8s.io"
RUN_AI: Final = "scheduling.run.ai"
SCHEDULING: Final = "scheduling.k8s.io"
SPARK: Final = "sparkoperator.k8s.io"
STORAGE: Final = "storage.k8s.io"
TRAINER: Final = "trainer.kubeflow.org"

# The schedulers, the default queue of a workload that names none, and its parent.
SCHEDULER_NAME: Final = "kai-scheduler"
DEFAULT_SCHEDULER: Final = "default-scheduler"  # the default of the API server
DEFAULT_QUEUE: Final = "default-queue"
DEFAULT_PARENT_QUEUE: Final = "default-parent-queue"

# KAI: labels of workloads and pods.
QUEUE: Final = "kai.scheduler/queue"
NODE_POOL: Final = "kai.scheduler/node-pool"  # also of nodes, queues and PodGroups
PREEMPTIBILITY: Final = "kai.scheduler/preemptibility"
PRIORITY_CLASS_NAME: Final = "priorityClassName"
PROJECT: Final = "project"  # KAI: names the queue where no label of a queue does
SUBGROUP: Final = "kai.scheduler/subgroup-name"
TASK_PRIORITY: Final = "kai.scheduler/task-priority"
GPU_GROUP: Final = "runai-gpu-group"
KAI_PREFIX: Final = "kai.scheduler/"
GPU_GROUP_PREFIX: Final = "runai-gpu-group/"  # one label per shared GPU
APP: Final = "app"  # together with one of the two labels below: a pod that works for the scheduler
# Also the namespace and the service account of such pods.
RESERVATION_APP: Final = "kai-resource-reservation"
SCALING_APP: Final = "scaling-pod"
SCALING_NAMESPACE: Final = "kai-scale-adjust"

# KAI: annotations of workloads and pods.
POD_GROUP: Final = "pod-group-name"
TOPOLOGY: Final = "kai.scheduler/topology"
TOPOLOGY_REQUIRED: Final = "kai.scheduler/topology-required-placement"
TOPOLOGY_PREFERRED: Final = "kai.scheduler/topology-preferred-placement"
SEGMENT_SIZE: Final = "kai.scheduler/segment-size"
SEGMENT_REQUIRED: Final = "kai.scheduler/segment-topology-required-placement"
SEGMENT_PREFERRED: Final = "kai.scheduler/segment-topology-preferred-placement"
BATCH_MIN_MEMBER: Final = "kai.scheduler/batch-min-member"
PREEMPTION_DELAY: Final = "kai.scheduler/preemption-delay"
STALENESS_GRACE_PERIOD: Final = "kai.scheduler/staleness-grace-period"
SKIP_PODGROUPER: Final = "kai.scheduler/skip-podgrouper"
GPU_FRACTION: Final = "gpu-fraction"
GPU_MEMORY: Final = "gpu-memory"
GPU_FRACTION_DEVICES: Final = "gpu-fraction-num-devices"
GPU_CONTAINER: Final = "gpu-fraction-container-name"
MPS: Final = "mps"
GPU_CONFIG_MAP: Final = "runai/shared-gpu-configmap"  # the prefix of the pod's ConfigMaps
RECEIVED_TYPE: Final = "received-resource-type"
RESERVED_DEVICE: Final = "run.ai/reserve_for_gpu_index"  # of a reservation pod: a device's UUID

# KAI: annotations of PodGroups.
TOP_OWNER: Final = "kai.scheduler/top-owner-metadata"
STALE_SINCE: Final = "kai.scheduler/stale-podgroup-timestamp"
LAST_START: Final = "kai.scheduler/last-start-timestamp"
LAST_EVICTION: Final = "kai.scheduler/last-eviction-timestamp"

# trainer-kai's own.
TRAINER_KAI_PREFIX: Final = "trainer-kai.dev/"
ADMITTED: Final = "trainer-kai.dev/admitted"  # JobSet annotation, set when it is created
ADMITTED_MARK: Final = "v1"  # its value: the version of the rules
# JobSet annotation, set when it is created: labels and annotations that its TrainJob may change.
FOLLOWS_TRAINJOB: Final = "trainer-kai.dev/follows-trainjob"
GANG: Final = "trainer-kai.dev/gang"  # label of pod templates: the suffix of the PodGroup
ANTICIPATED: Final = "trainer-kai.dev/anticipated"  # PodGroup annotation of the podgrouper
STAGE: Final = "trainer-kai.dev/stage"  # PodGroup annotation: the stage, and the stages before it
# PodGroup annotation: the number of pods by replicatedJob.
MEMBERS: Final = "trainer-kai.dev/members"
RESERVED: Final = "trainer-kai.dev/reserved"  # PodGroup annotation of the scheduler
LINE: Final = "trainer-kai.dev/line"  # PodGroup annotation of the scheduler, JSON
ASKED_FOR_NODES: Final = "trainer-kai.dev/asked-for-nodes"  # PodGroup annotation, JSON
INJECT: Final = "trainer-kai.dev/inject"  # namespace label
# Pod annotation: which annotations for autoscalers the scheduler wrote with the bind.
KEEPS_NODE: Final = "trainer-kai.dev/keeps-node"
GPU_DEVICES: Final = "trainer-kai.dev/gpu-devices"  # pod annotation: the UUIDs of its shared GPUs
CLAIMS_RELEASED: Final = "trainer-kai.dev/claims-released"  # pod annotation: its devices are free
LAST_CHECKPOINT: Final = "trainer-kai.dev/last-checkpoint"  # TrainJob annotation, RFC 3339
RECLAIM_GOAL: Final = "trainer-kai.dev/reclaim-goal"  # Queue annotation: for the queues below it
CONSOLIDATION: Final = "trainer-kai.dev/consolidation"  # Queue annotation: may they be relocated
ACCESS: Final = "trainer-kai.dev/access"  # Queue annotation: open, or closed (only with a grant)
STOP_POLICY: Final = "trainer-kai.dev/stop-policy"  # Queue annotation: None, Hold, HoldAndDrain
QUEUE_ORDER: Final = "trainer-kai.dev/queue-order"  # Queue annotation: best-effort, reserve, strict
# Queue annotation: the class of the ProvisioningRequests by which its PodGroups ask for nodes.
PROVISIONING_CLASS: Final = "trainer-kai.dev/provisioning-class"
ALLOW_DELETE: Final = "trainer-kai.dev/allow-delete"  # Queue annotation: "true" also while in use
EVICTED_BY: Final = "trainer-kai.dev/evicted-by"  # PodGroup annotation, with a copy on its TrainJob
LAST_EVICTION_RECORD: Final = "trainer-kai.dev/last-eviction"  # PodGroup annotation, JSON
# PodGroup annotation: GPUs of the last eviction.
EVICTED_GPUS: Final = "trainer-kai.dev/evicted-gpus"
DISRUPTION_TARGET: Final = "DisruptionTarget"  # condition of a pod
AVOIDED_NODES: Final = "trainer-kai.dev/avoided-nodes"  # PodGroup annotation, JSON

# JobSet: labels of its jobs and pods, and annotations too.
JOBSET_NAME: Final = "jobset.sigs.k8s.io/jobset-name"
JOBSET_UID: Final = "jobset.sigs.k8s.io/jobset-uid"
REPLICATED_JOB: Final = "jobset.sigs.k8s.io/replicatedjob-name"
JOB_INDEX: Final = "jobset.sigs.k8s.io/job-index"
RESTART_ATTEMPT: Final = "jobset.sigs.k8s.io/restart-attempt"
JOB_RESTART_ATTEMPT: Final = "jobset.sigs.k8s.io/job-restart-attempt"
EXCLUSIVE_TOPOLOGY: Final = "alpha.jobset.sigs.k8s.io/exclusive-topology"
NODE_SELECTOR_STRATEGY: Final = "alpha.jobset.sigs.k8s.io/node-selector"

JOBSET_CONTROLLER: Final = "jobset.sigs.k8s.io/jobset-controller"  # a value of managedBy

# Job: labels of its pods; the completion index is an annotation too.
JOB_NAME: Final = "batch.kubernetes.io/job-name"
CONTROLLER_UID: Final = "batch.kubernetes.io/controller-uid"
COMPLETION_INDEX: Final = "batch.kubernetes.io/job-completion-index"
JOB_CONTROLLER: Final = "kubernetes.io/job-controller"  # a value of managedBy
JOB_TRACKING: Final = "batch.kubernetes.io/job-tracking"  # finalizer

# Trainer.
ANCESTOR_STEP: Final = "trainer.kubeflow.org/trainjob-ancestor-step"  # label of job templates
TRAINJOB_CONTROLLER: Final = "trainer.kubeflow.org/trainjob-controller"  # a value of managedBy

# Kubeflow's jobs, with the order in which pods of a job are removed.
KUBEFLOW_JOB_NAME: Final = "training.kubeflow.org/job-name"
KUBEFLOW_JOB_ROLE: Final = "training.kubeflow.org/job-role"
KUBEFLOW_REPLICA_TYPE: Final = "training.kubeflow.org/replica-type"
KUBEFLOW_REPLICA_INDEX: Final = "training.kubeflow.org/replica-index"
TRAINING_OPERATOR: Final = "kubeflow.org/training-operator"  # a value of managedBy
MPI_OPERATOR: Final = "kubeflow.org/mpi-operator"  # the same

# Ray: labels of pods, the first one with the order in which they are removed.
RAY_NODE_TYPE: Final = "ray.io/node-type"
RAY_GROUP: Final = "ray.io/group"
RAY_CLUSTER: Final = "ray.io/cluster"
RAY_OWNER: Final = "ray.io/originated-from-cr-name"  # of its objects: the RayJob or RayService
RAY_PRIORITY_CLASS: Final = "ray.io/priority-class-name"  # label of a cluster, job or service
RAY_OPERATOR: Final = "ray.io/kuberay-operator"  # a value of managedBy

# Knative: annotation of revisions.
KNATIVE_MIN_SCALE: Final = "autoscaling.knative.dev/min-scale"

# LeaderWorkerSet: labels of pods.
LWS_NAME: Final = "leaderworkerset.sigs.k8s.io/name"
LWS_GROUP_INDEX: Final = "leaderworkerset.sigs.k8s.io/group-index"
LWS_WORKER_INDEX: Final = "leaderworkerset.sigs.k8s.io/worker-index"  # 0: the leader

# Kubeflow notebooks.
NOTEBOOK_STOPPED: Final = "kubeflow-resource-stopped"  # annotation: the notebook has no pod

# Other schedulers and queues.
KUEUE_PRIORITY_CLASS: Final = "kueue.x-k8s.io/priority-class"
KUEUE_QUEUE: Final = "kueue.x-k8s.io/queue-name"
VOLCANO_GROUP: Final = "scheduling.k8s.io/group-name"
COSCHEDULING_GROUP: Final = "scheduling.x-k8s.io/pod-group"

# Nodes.
HOSTNAME: Final = "kubernetes.io/hostname"
UNSCHEDULABLE: Final = "node.kubernetes.io/unschedulable"  # taint
NOT_READY: Final = "node.kubernetes.io/not-ready"  # taint
NODE_PREFIX: Final = "node.kubernetes.io/"  # the prefix of taints for the condition of a node
CLOUD_NODE_PREFIX: Final = "node.cloudprovider.kubernetes.io/"  # likewise
# Taints of nodes that are about to be removed: by Karpenter (also before 1.0), cluster-autoscaler,
# GKE, and AWS's node termination handler.
TERMINATION_TAINTS: Final = (
    "karpenter.sh/disrupted",
    "karpenter.sh/disruption",
    "ToBeDeletedByClusterAutoscaler",
    "cloud.google.com/impending-node-termination",
    "aws-node-termination-handler/spot-itn",
    "aws-node-termination-handler/asg-lifecycle-termination",
)
GPU_MEMORY_MIB: Final = "nvidia.com/gpu.memory"
MIG_ENABLED: Final = "node-role.kubernetes.io/mig-enabled"
MIG_STRATEGY: Final = "nvidia.com/mig.strategy"

# Resources.
CPU: Final = "cpu"
MEMORY: Final = "memory"
EPHEMERAL_STORAGE: Final = "ephemeral-storage"
PODS: Final = "pods"
GPU: Final = "nvidia.com/gpu"
AMD_GPU: Final = "amd.com/gpu"
GPU_WORKER: Final = "node-role.kubernetes.io/gpu-worker"  # labels of nodes, whatever their value
CPU_WORKER: Final = "node-role.kubernetes.io/cpu-worker"
CLAIM_FINALIZER: Final = "resource.kubernetes.io/delete-protection"  # of allocated claims
DEVICE_CLASS_PREFIX: Final = "deviceclass.resource.kubernetes.io/"  # of the resource of each class
NVIDIA_GPU_DRIVER: Final = "gpu.nvidia.com"  # of ResourceSlices, and its DeviceClass
AMD_GPU_DRIVER: Final = "gpu.amd.com"
SHARED_GPU: Final = f"{GPU}.shared"  # a GPU by time slicing, where the device plugin renames it
MIG_PREFIX: Final = "nvidia.com/mig-"

# Node autoscalers: annotations of pods that they may not remove.
DO_NOT_DISRUPT: Final = "karpenter.sh/do-not-disrupt"
SAFE_TO_EVICT: Final = "cluster-autoscaler.kubernetes.io/safe-to-evict"

# And which ProvisioningRequest a pod uses up.
CONSUMES_REQUEST: Final = "autoscaling.x-k8s.io/consume-provisioning-request"
CONSUMES_CLASS: Final = "autoscaling.x-k8s.io/provisioning-class-name"

# Taints of nodes that cannot be used yet: keys, or their beginnings.
STARTUP_TAINTS: Final = (
    "node.kubernetes.io/",
    CLOUD_NODE_PREFIX,
    "karpenter.sh/unregistered",
    "startup-taint.cluster-autoscaler.kubernetes.io/",
    "ignore-taint.cluster-autoscaler.kubernetes.io/",
    "node.cilium.io/agent-not-ready",
)

RUN_AI_DOMAIN: Final = "run.ai"  # of annotations that KAI kept from before

# Our webhooks that change pods.
GPU_SHARE_WEBHOOK: Final = "gpu-share.trainer-kai.dev"
JOB_GANG_WEBHOOK: Final = "job-gang.trainer-kai.dev"
DEVICE_ACCESS_WEBHOOK: Final = "device-access.trainer-kai.dev"  # of a component

# The Container Device Interface: the name of a GPU is this and its UUID.
CDI_GPU_PREFIX: Final = "k8s.device-plugin.nvidia.com/gpu="

# The rest of Kubernetes.
MANAGED_BY: Final = "app.kubernetes.io/managed-by"
NATIVE_PREFIX: Final = "kubernetes.io/"  # the prefix of resources that are not extended ones
CERT_MANAGER_PREFIX: Final = "cert-manager.io/"
TLS_SECRET: Final = "kubernetes.io/tls"  # noqa: S105 - the type of a Secret
NAMESPACE_NAME: Final = "kubernetes.io/metadata.name"  # a label of all namespaces
LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"
SELECTED_NODE: Final = "volume.kubernetes.io/selected-node"  # annotation of volume claims
NO_PROVISIONER: Final = "kubernetes.io/no-provisioner"  # of a class: volumes are created by hand
