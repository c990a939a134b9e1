"""Answers reviews of Deployments, StatefulSets and Notebooks from the caches; reads nothing."""

from webhook.admission.review import AdmissionRequest, AdmissionResponse
from webhook.cache.admission_cache import AdmissionCache
from webhook.reviews.trainjob import AdmissionPolicy
from webhook.rules.queues.workload import WorkloadContext, validate_workload


class WorkloadHandler:
    """Answers the reviews of workloads other than TrainJobs."""

    def __init__(self, cache: AdmissionCache, policy: AdmissionPolicy) -> None:
        self._cache = cache
        self._policy = policy

    async def answer(self, request: AdmissionRequest) -> AdmissionResponse:
        """Answer the review of a workload; it has warnings at most."""
        cluster = self._cache.cluster
        context = WorkloadContext(
            self._cache.queues,
            cluster.known_cluster(autoscales=False, shares_gpus=self._policy.lint.shares_gpus),
            cluster.non_preemptible_usage,
            self._policy.unannotated,
        )
        return validate_workload(request, context, self._policy.rules).response()
