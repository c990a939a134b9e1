"""The webhook as a process: `python -m webhook`. Every replica answers; none is the leader."""

import asyncio
import sys
from typing import Any, Final

from trainer_kai.kube.process.context import ProcessContext, run_process
from trainer_kai.kube.process.runner import Runner
from trainer_kai.policy.podgroups.manifests import GroupingRules
from trainer_kai.policy.queueing.kind_defaults import KindDefaults
from trainer_kai.service.metrics import Metrics
from trainer_kai.service.setting_checks import read_kind_defaults
from trainer_kai.service.settings import TlsSettings, WebhookSettings
from webhook.cache.admission_cache import AdmissionCache
from webhook.cache.runtimes import BoundedStore
from webhook.cache_watches import relist_runtimes, start_watches
from webhook.reviews.answer_jobs import JobsHandler
from webhook.reviews.answer_queue import QueueHandler, queue_lookups
from webhook.reviews.answer_trainjob import (
    AdmissionPolicy,
    TrainJobHandler,
    live_lookups,
    trainjob_reader,
)
from webhook.reviews.router import (
    GpuAccessRules,
    NewPodHandler,
    ReviewRouter,
    Route,
    WorkloadHandler,
)
from webhook.rules.pod_gpu_share import ShareRules
from webhook.rules.trainjob_validate import LintPolicy
from webhook.server import WebhookServer
from webhook.tls.certificate_store import CertificateStore
from webhook.tls.self_managed import SelfManagedCertificate
from webhook.tls.serving_certificate import (
    CertificateSource,
    CertManagerCertificate,
    FileCertificate,
    ServingCertificate,
)

_MAX_LIVE_READS: Final = 16  # concurrent reads; each object may have 1.5 MB


async def webhook(run: Runner, context: ProcessContext, settings: WebhookSettings) -> None:
    client, clock, metrics, health, observer, log = context
    cache = AdmissionCache()
    start_watches(run, client, cache, observer, health)
    for kind, store in cache.stores.items():
        _measure_store(kind, store, metrics)
    interval_s = settings.server.runtimes_s
    run.start("list runtimes again", lambda: relist_runtimes(client, cache, interval_s, log))
    certificate = serving_certificate(context, settings.tls)
    health.add_condition("certificate loaded", certificate.not_loaded_reason)
    health.add_condition("certificate trusted", certificate.not_trusted_reason)
    health.add_condition("certificate valid", certificate.not_valid_reason)
    await certificate.wait_until_loaded()
    read_limit = asyncio.Semaphore(_MAX_LIVE_READS)
    rules = _grouping_rules(settings)
    reader, lookups = trainjob_reader(client, read_limit), live_lookups(client, read_limit)
    router = ReviewRouter(settings.mode, clock, metrics, log)
    admission_policy = _admission_policy(settings, rules)
    trainjob_handler = TrainJobHandler(cache, admission_policy, lookups, clock, metrics, log)
    trainjob_route = Route("trainjob", trainjob_handler.answer, trainjob_handler.fails_closed)
    router.add_route("/validate/trainjob", trainjob_route)
    queue_access = trainjob_handler.queue_access
    jobs_handler = JobsHandler(cache, admission_policy, reader, queue_access, metrics, log)
    router.add_route("/mutate/jobset", Route("jobset", jobs_handler.answer_jobset, lambda: True))
    job_route = Route("job", jobs_handler.answer_job, queue_access.fails_closed)
    router.add_route("/mutate/job", job_route)
    queue_handler = QueueHandler(cache, rules.default_queue, queue_lookups(client), metrics, log)
    router.add_route("/validate/queue", Route("queue", queue_handler.answer))
    workload_handler = WorkloadHandler(cache, admission_policy)
    router.add_route("/validate/workload", Route("workload", workload_handler.answer))
    new_pod_handler = NewPodHandler(_gpu_access_rules(settings))
    router.add_route("/mutate/gpu-share", Route("gpu-share", new_pod_handler.answer, lambda: True))
    tls_context = certificate.tls.context
    server = WebhookServer(router, settings.server, tls_context, clock, health.stopping)
    await run.enter("server", server)
    log.info("webhook server started", address=settings.server.address, port=settings.server.port)
    run.start("keep the certificate", certificate.run)


def _measure_store(kind: str, store: BoundedStore[Any], metrics: Metrics) -> None:
    metrics.admission_kept_bytes.labels(kind).set_function(lambda: store.held_bytes)
    metrics.admission_left_out.labels(kind).set_function(lambda: store.left_out)


def _grouping_rules(settings: WebhookSettings) -> GroupingRules:
    return GroupingRules(
        settings.mode,
        settings.scheduler_name,
        settings.default_queue,
        settings.kueue,
        settings.gangs.indexed_jobs,
        KindDefaults(read_kind_defaults(settings.kind_defaults)),
    )


def _admission_policy(settings: WebhookSettings, rules: GroupingRules) -> AdmissionPolicy:
    admission = settings.admission
    lint = LintPolicy(
        admission.lint != "off",
        admission.lint == "deny",
        admission.cluster == "grows",
        settings.gpu_sharing.enabled,
    )
    unannotated = settings.queue_access.unannotated
    return AdmissionPolicy(rules, unannotated, admission.unknown_queue == "deny", lint)


def _gpu_access_rules(settings: WebhookSettings) -> GpuAccessRules:
    sharing, is_bundled = settings.gpu_sharing, settings.mode == "bundled"
    shares = ShareRules(
        is_enabled=is_bundled and sharing.enabled,
        is_by_kai=not is_bundled,
        runtime_class=sharing.runtime_class,
        limits_memory=sharing.memory_limits == "hami-core",
    )
    restricts = settings.admission.nvidia_visible_devices == "block"
    return GpuAccessRules(settings.scheduler_name, shares, restricts_devices=restricts)


def serving_certificate(context: ProcessContext, settings: TlsSettings) -> ServingCertificate:
    clock, log = context.clock, context.log
    certificate_store = CertificateStore(context.client, settings)
    source: CertificateSource
    match settings.source:
        case "self-managed":
            source = SelfManagedCertificate(certificate_store, settings, clock, log)
        case "cert-manager":
            source = CertManagerCertificate(certificate_store)
        case "files":
            source = FileCertificate(settings.certificate_file, settings.key_file)
    return ServingCertificate(source, certificate_store, settings, clock, context.metrics, log)


if __name__ == "__main__":
    sys.exit(run_process("webhook", WebhookSettings, webhook))
