"""How much a tenant or an administrator may write, and whose cost each bound limits.

An object above a bound is refused, or it waits with a message that has the field and both numbers;
other objects are not affected. These numbers are promises to users: they may grow, and they shrink
only with a line in the changelog. What a module limits for itself (names in a message, entries of a
cache) is in that module.
"""

from typing import Final

# A number or a duration. Every process parses each of them, and reports errors with the text.
QUANTITY_CHARACTERS: Final = 4096  # with insignificant zeros, which the API server accepts
NUMBER_DIGITS: Final = 100  # that a user can mean
DURATION_CHARACTERS: Final = 64
LARGEST_NUMBER: Final = 2**31 - 1  # of an integer field, in Kubernetes

# Names and metadata, as in Kubernetes.
LABEL_CHARACTERS: Final = 63
SUBDOMAIN_CHARACTERS: Final = 253
ANNOTATIONS_BYTES: Final = 256 * 1024  # of one object

# A Topology, as in KAI's CRD.
TOPOLOGY_LEVELS: Final = 16

# A JobSet. The webhook and the podgrouper plan it while other JobSets wait.
MOST_JOBS: Final = 64  # replicatedJobs: 64 take at most 15 ms
MOST_EDGES: Final = 10 * MOST_JOBS  # dependsOn, of all replicatedJobs together

# A PodGroup. The scheduler keeps its pods that do not exist yet, and places them in each plan.
MOST_SUB_GROUPS: Final = 3000  # the limit of the PodGroup CRD
MOST_EXPECTED: Final = 100_000  # anticipated pods
MOST_CONSTRAINED: Final = 5000  # anticipated pods with inter-pod constraints: placed one by one

MOST_GROUPS: Final = 1000  # of one LeaderWorkerSet: each is a PodGroup

# The spec of a pod. The scheduler compares it with every node, and with pods of others.
MOST_RESOURCES: Final = 64  # by name
MOST_PORTS: Final = 256  # of the node
MOST_TERMS: Final = 64  # required pod (anti-)affinity and hard spread constraints
MOST_EXPRESSIONS: Final = 256  # in selectors of nodes and of pods
MOST_VALUES: Final = 1024  # in these expressions together
MOST_TOLERATIONS: Final = 256
MOST_VOLUMES: Final = 256
MOST_TERMS_PER_NAMESPACE: Final = 2048  # different terms and host ports of all its pods

# Shares of GPUs of a pod. The scheduler places them one by one.
MAX_DEVICES: Final = 64  # GPUs of which one pod may have shares
MAX_MEMORY_MIB: Final = 2**40  # more counts as this much: no GPU has it

# ResourceClaims. The scheduler allocates their devices node by node.
MOST_CLAIMS: Final = 32  # of one pod
MOST_DEVICE_REQUESTS: Final = 32  # of one claim, and alternatives of one request
MOST_CLAIM_CONSTRAINTS: Final = 32
MOST_CLAIM_USERS: Final = 256  # pods that share one claim, as in Kubernetes
MOST_SELECTORS: Final = 32  # CEL expressions of one request or class
SELECTOR_CHARACTERS: Final = 10 * 1024  # of one expression, as in Kubernetes
LOOPING_SELECTOR_CHARACTERS: Final = 1024  # of an expression that repeats a part of it
MOST_SELECTORS_PER_NAMESPACE: Final = 128  # different selectors, and requests, of all its claims

# A TrainJob with its runtime. Other reviews wait while it is linted; a larger one is not linted.
MOST_PARTS: Final = 25_000
