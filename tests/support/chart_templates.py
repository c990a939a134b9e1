"""The generated parts of the Helm charts; `make tables` writes them.

Everything that kustomize and Helm install alike stands once, in `manifests/base`, its overlays and
its components. From there the templates are written, with the values of the chart in place of what
components and overlays change. A test sees that they are current, and `e2e/install/test_helm.py`
that both render the same objects.
"""

import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import yaml

from tests.support.chart_values import CHART, HEADING, lists_file, schema_file
from tests.support.documents import documents
from tests.support.repository import ROOT

Obj = dict[str, Any]

CRD_CHART: Final = ROOT / "manifests" / "chart-crds"
_MANIFESTS: Final = ROOT / "manifests"
_GENERATED: Final = "templates/generated"
_NAMESPACE: Final = "trainer-kai"
_RESERVATION: Final = "kai-resource-reservation"
_SCHEDULER: Final = "kai-scheduler"
_PART_OF: Final = {"app.kubernetes.io/part-of": "trainer-kai"}
_MAX_PLAIN: Final = 100  # longer texts are folded
_KEEP: Final = {"helm.sh/resource-policy": "keep"}
# Without these the reservation pods of running shares would end, or could not restart. The rights
# of their account go, because the policy that restricts them goes.
_KEPT_KINDS: Final = ("Namespace", "ServiceAccount")

_ACTIVE: Final = 'ne .Values.mode "policy-only"'
_BUNDLED: Final = 'eq .Values.mode "bundled"'
_WITH_PROCESSES: Final = f"and ({_ACTIVE}) .Values.processes.enabled"
_SHARING: Final = 'include "trainer-kai.gpuSharing" .'
_RESERVATIONS: Final = 'include "trainer-kai.reservationNamespace" .'

# Each manifest with the condition under which its objects are rendered.
RENDERED: Final[Mapping[str, str]] = {
    "base/rbac/webhook.yaml": _ACTIVE,
    "base/rbac/podgrouper.yaml": _ACTIVE,
    "base/rbac/scheduler.yaml": _BUNDLED,
    "base/rbac/reservations.yaml": _SHARING,
    "base/rbac/people.yaml": _ACTIVE,
    "base/gpu-sharing/namespace.yaml": _RESERVATIONS,
    "base/gpu-sharing/agent.yaml": _RESERVATIONS,
    "base/gpu-sharing/networkpolicy.yaml": _RESERVATIONS,
    "base/policies/configmaps.yaml": _BUNDLED,
    "base/policies/gpu-sharing.yaml": _ACTIVE,
    "base/policies/jobs.yaml": _ACTIVE,
    "base/policies/jobsets.yaml": _ACTIVE,
    "base/policies/pod-status.yaml": _BUNDLED,
    "base/policies/podgrouper.yaml": _ACTIVE,
    "base/policies/podgroups.yaml": _ACTIVE,
    "base/policies/pods.yaml": _ACTIVE,
    "base/policies/reservation-agent.yaml": _BUNDLED,
    "base/policies/reservation-pods.yaml": _BUNDLED,
    "base/policies/scheduler-patches.yaml": _ACTIVE,
    "base/policies/share-configmaps.yaml": _BUNDLED,
    "base/policies/trainjobs.yaml": _ACTIVE,
    "base/policies/webhook.yaml": _ACTIVE,
    "base/webhooks.yaml": _ACTIVE,
    "base/validating.yaml": _ACTIVE,
    "base/priorityclass.yaml": _ACTIVE,
    "base/processes/service.yaml": _WITH_PROCESSES,
    "base/processes/webhook.yaml": _WITH_PROCESSES,
    "base/processes/podgrouper.yaml": _WITH_PROCESSES,
    "base/processes/scheduler.yaml": f"and ({_BUNDLED}) .Values.processes.enabled",
    "base/priorityclasses/priorityclasses.yaml": 'include "trainer-kai.priorityClasses" .',
    "components/cert-manager/certificate.yaml": (
        f'and ({_ACTIVE}) (eq .Values.certificates.source "cert-manager")'
    ),
    "components/snapshot/reader.yaml": f"and ({_BUNDLED}) .Values.snapshot",
    "overlays/policy-only/policy.yaml": 'eq .Values.mode "policy-only"',
}
# The webhooks that only some releases have, each with its condition; one is of a component.
_DEVICE_ACCESS: Final = "device-access.trainer-kai.dev"
_HOOK_CONDITIONS: Final[Mapping[str, str]] = {
    "gpu-share.trainer-kai.dev": _SHARING,
    "job-gang.trainer-kai.dev": _BUNDLED,
    _DEVICE_ACCESS: 'include "trainer-kai.restrictsDevices" .',
}
# The scheduler's rights that are only for shared GPUs: resources, verbs.
_SHARING_RULES: Final = (
    (["configmaps"], ["create", "patch", "delete"]),
    (["pods"], ["get"]),
)
# The scheduler's rights for ProvisioningRequests, as their component gives them.
_PROVISIONING_RULES: Final = (
    {
        "apiGroups": ["autoscaling.x-k8s.io"],
        "resources": ["provisioningrequests"],
        "verbs": ["list", "watch", "create", "delete"],
    },
    {"apiGroups": [""], "resources": ["podtemplates"], "verbs": ["create", "delete"]},
)
# What is read by a kustomization with labels.
_LABELLED: Final = (
    *("base/rbac/", "base/policies/", "base/webhooks", "base/validating", "base/processes/"),
    *("base/gpu-sharing/", "base/priorityclass.yaml", "overlays/policy-only/"),
)


class _Template:
    """Objects as YAML in which some values are actions of a template.

    An action stands as a mark in the object, and replaces the mark in the text.
    """

    def __init__(self) -> None:
        self._inline: dict[str, str] = {}
        self._lines: dict[str, str] = {}

    def inline(self, action: str) -> str:
        """Return a mark that becomes an action within a line."""
        mark = f"__{len(self._inline)}i__"
        self._inline[mark] = action
        return mark

    def line(self, action: str) -> str:
        """Return a mark, as an item of a list or as a key: its line becomes an action."""
        mark = f"__{len(self._lines)}l__"
        self._lines[mark] = action
        return mark

    def include(self, name: str, arguments: str = ".") -> str:
        """Return a mark, as an item or as a key: its line becomes lines that a helper writes."""
        lines = "{{ . | trim | nindent INDENT }}"
        return self.line(
            f'{{{{- with include "trainer-kai.{name}" {arguments} }}}}{lines}{{{{- end }}}}'
        )

    def text(self, obj: Obj) -> str:
        """Return an object as a template."""
        text = yaml.dump(obj, Dumper=_Dumper, sort_keys=False, width=100, allow_unicode=True)
        assert "{{" not in text, "the text of a manifest would be an action"
        lines = []
        for line in text.splitlines():
            found = re.fullmatch(r"( *)(?:- )?(__\d+l__)(?:: null)?", line)
            if found:
                indent, mark = found.groups()
                lines.append(self._lines[mark].replace("INDENT", str(len(indent))))
            else:
                lines.append(re.sub(r"__\d+i__", lambda it: self._inline[it[0]], line))
        return "\n".join(lines) + "\n"


class _Dumper(yaml.SafeDumper):
    """Writes long texts in folded lines, and repeats what is the same."""

    def ignore_aliases(self, _data: object) -> bool:
        return True


def _write_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = ">" if len(text) > _MAX_PLAIN and "\n" not in text else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _write_text)


def generated_files() -> dict[Path, str]:
    """Return the text of each generated file."""
    files = {
        CHART / _GENERATED / file.removeprefix("base/").replace("/", "-"): _template(
            file, condition
        )
        for file, condition in RENDERED.items()
    }
    for definition in sorted((_MANIFESTS / "base" / "crds").glob("*.yaml")):
        if definition.name != "kustomization.yaml":
            files[CHART / "crds" / definition.name] = definition.read_text()
            files[CRD_CHART / "templates" / definition.name] = _kept_definition(definition)
    files[CHART / _GENERATED / "_lists.tpl"] = lists_file()
    files[CHART / "values.schema.json"] = schema_file()
    return files


def _template(file: str, condition: str) -> str:
    template = _Template()
    is_labelled = file.startswith(_LABELLED)
    objects = []
    for obj in documents(_MANIFESTS / file):
        if is_labelled:
            obj["metadata"]["labels"] = {**obj["metadata"].get("labels", {}), **_PART_OF}
        if obj["kind"] == "MutatingWebhookConfiguration":
            obj["webhooks"].append(_device_access_hook())
        if file.startswith("base/gpu-sharing/") and obj["kind"] in _KEPT_KINDS:
            obj["metadata"]["annotations"] = _KEEP
        changed = _substituted(template, obj)
        for change in _CHANGES.get(obj["kind"], ()):
            change(template, changed)
        objects.append(_with_condition(obj["kind"], template.text(changed)))
    body = "".join(objects)
    return f"{HEADING.format(file)}{{{{- if {condition} }}}}\n{body}{{{{- end }}}}\n"


def _device_access_hook() -> Obj:
    """Return the webhook that a component adds."""
    [[operation]] = documents(_MANIFESTS / "components" / "device-access" / "webhook.yaml")
    hook: Obj = operation["value"]
    return hook


def _with_condition(kind: str, text: str) -> str:
    condition = _KIND_CONDITIONS.get(kind)
    text = f"---\n{text}"
    return f"{{{{- if {condition} }}}}\n{text}{{{{- end }}}}\n" if condition else text


def _kept_definition(path: Path) -> str:
    [definition] = documents(path)
    annotations = {**definition["metadata"].get("annotations", {}), **_KEEP}
    definition["metadata"] = {**definition["metadata"], "annotations": annotations}
    heading = HEADING.format(path.relative_to(_MANIFESTS).as_posix())
    return heading + _Template().text(definition)


def _substituted(template: _Template, obj: Obj) -> Obj:
    """Return an object with the namespace and the scheduler name of the release."""
    namespace = "{{ $.Release.Namespace }}"
    quoted = "{{ $.Release.Namespace | quote }}"
    scheduler = "{{ $.Values.schedulerName }}"

    def of_text(text: str) -> str:
        text = re.sub(
            rf"(?<=system:serviceaccount:){_NAMESPACE}(?=:)|(?<=webhook\.){_NAMESPACE}(?=\.|$)"
            rf"|^{_NAMESPACE}(?=/)",
            lambda _: template.inline(namespace),
            text,
        )
        return re.sub(
            rf"(?:(?<=^)|(?<=[' ])){_SCHEDULER}", lambda _: template.inline(scheduler), text
        )

    def of(value: Any, key: str) -> Any:
        if isinstance(value, Mapping):
            return {name: of(inner, name) for name, inner in value.items()}
        if isinstance(value, list):
            return [of(inner, key) for inner in value]
        if isinstance(value, str):
            is_namespace = value == _NAMESPACE and key in ("namespace", "values")
            return template.inline(quoted) if is_namespace else of_text(value)
        return value

    return {name: of(value, name) for name, value in obj.items()}


def _change_webhooks(template: _Template, configuration: Obj) -> None:
    """Call the webhook where the values say, for the namespaces that the values say."""
    metadata = configuration["metadata"]
    metadata[template.include("injectedAuthority")] = None
    for hook in configuration["webhooks"]:
        service = hook.pop("clientConfig")["service"]
        arguments = f'(dict "root" . "path" "{service["path"]}")'
        called = {template.include("clientConfig", arguments): None}
        hook_fields = {"name": hook.pop("name"), **called, **hook}
        hook.clear()
        hook.update(hook_fields)
        if hook["name"] == "trainjob.trainer-kai.dev":
            hook["failurePolicy"] = template.inline(
                '{{ ternary "Fail" "Ignore" (eq .Values.queueAccess "closed") }}'
            )
        if "namespaceSelector" in hook and hook["name"] != _DEVICE_ACCESS:
            _change_selector(template, hook["namespaceSelector"])
    configuration["webhooks"] = [
        it for hook in configuration["webhooks"] for it in _conditional_hook(template, hook)
    ]


def _conditional_hook(template: _Template, hook: Obj) -> list[Any]:
    """Return the items of a list that are rendered as a webhook, or as none."""
    condition = _HOOK_CONDITIONS.get(hook["name"])
    if condition is None:
        return [hook]
    end = template.line("{{- end }}")
    return [template.line(f"{{{{- if {condition} }}}}"), hook, end]


def _change_policy(template: _Template, policy: Obj) -> None:
    _change_selector(template, policy["spec"]["matchConstraints"]["namespaceSelector"])


def _change_exemptions(template: _Template, policy: Obj) -> None:
    """Exempt the accounts of KAI where the values say that it runs."""
    for condition in policy["spec"].get("matchConditions", ()):
        if condition["name"] == "not-by-kai":
            condition["expression"] = template.inline(
                '{{ include "trainer-kai.notByKai" . | quote }}'
            )


def _change_selector(template: _Template, selector: Obj) -> None:
    selector["matchExpressions"] = [
        template.include("inject") if it["key"] == "trainer-kai.dev/inject" else it
        for it in selector["matchExpressions"]
    ]


def _change_role(template: _Template, role: Obj) -> None:
    """Let the webhook only read a certificate that it does not issue."""
    if role["metadata"]["name"] == "trainer-kai-scheduler":
        _change_sharing_rules(template, role)
    if role["metadata"]["name"] != "trainer-kai-webhook":
        return
    own = 'eq .Values.certificates.source "self"'
    changed = []
    for rule in role["rules"]:
        if rule["resources"] == ["secrets"] and rule["verbs"] == ["create"]:
            changed += [template.line(f"{{{{- if {own} }}}}"), rule, template.line("{{- end }}")]
            continue
        if rule["resources"] == ["secrets"] or rule["apiGroups"] == [
            "admissionregistration.k8s.io"
        ]:
            verbs = ", ".join(rule["verbs"])
            rule["verbs"] = template.inline(f'{{{{ ternary "[{verbs}]" "[get]" ({own}) }}}}')
        changed.append(rule)
    role["rules"] = changed


def _change_sharing_rules(template: _Template, role: Obj) -> None:
    """Leave out what the scheduler may do for shared GPUs, if no GPU is shared."""
    start, end = f"{{{{- if {_SHARING} }}}}", "{{- end }}"
    changed = []
    for rule in role["rules"]:
        is_for_sharing = (rule["resources"], rule["verbs"]) in _SHARING_RULES
        changed += [template.line(start), rule, template.line(end)] if is_for_sharing else [rule]
    role["rules"] = changed


def _change_service_account(template: _Template, account: Obj) -> None:
    """Let the values say with which Secrets the image of reservation pods is pulled."""
    if account["metadata"]["name"] == _RESERVATION:
        account[template.include("reservationPullSecrets")] = None


def _change_cluster_role(template: _Template, role: Obj) -> None:
    _change_role(template, role)
    if role["metadata"]["name"] == "trainer-kai-scheduler":
        rule = {
            "apiGroups": ["authentication.k8s.io"],
            "resources": ["tokenreviews"],
            "verbs": ["create"],
        }
        end = template.line("{{- end }}")
        role["rules"] += [template.line("{{- if .Values.snapshot }}"), rule, end]
        start = template.line('{{- if include "trainer-kai.requestsNodes" . }}')
        role["rules"] += [start, *_PROVISIONING_RULES, end]


def _change_deployment(template: _Template, deployment: Obj) -> None:
    """Let the values say how many pods there are, where they run and what they may use."""
    spec = deployment["spec"]
    pod = spec["template"]["spec"]
    [container] = pod["containers"]
    arguments = f'(dict "root" . "process" "{container["name"]}")'
    labels = spec["template"]["metadata"]["labels"]
    spec["template"]["metadata"]["labels"] = {**labels, **_PART_OF}
    spec["replicas"] = template.inline(f'{{{{ include "trainer-kai.replicas" {arguments} }}}}')
    spec[template.include("strategy")] = None
    pod["priorityClassName"] = template.inline('{{ include "trainer-kai.priorityClassName" . }}')
    del pod["affinity"]
    pod[template.include("placement", arguments)] = None
    container["image"] = template.inline('{{ include "trainer-kai.image" . | quote }}')
    container[template.include("pullPolicy")] = None
    del container["env"], container["resources"]
    container[template.include("env", arguments)] = None
    container[template.include("resources", arguments)] = None
    if container["name"] == "webhook":
        container[template.include("certificateMount")] = None
        pod[template.include("certificateVolume")] = None


def _change_network_policy(template: _Template, policy: Obj) -> None:
    first, *_ = policy["spec"]["egress"]
    first["ports"] = [template.include("apiServerPorts")]
    for rule in policy["spec"].get("ingress", ()):
        if rule["ports"] == [{"port": "health"}]:
            rule[template.include("healthSources")] = None


_CHANGES: Final[Mapping[str, tuple[Callable[[_Template, Obj], None], ...]]] = {
    "MutatingWebhookConfiguration": (_change_webhooks,),
    "ValidatingWebhookConfiguration": (_change_webhooks,),
    "MutatingAdmissionPolicy": (_change_policy,),
    "ValidatingAdmissionPolicy": (_change_exemptions,),
    "ServiceAccount": (_change_service_account,),
    "Role": (_change_role,),
    "ClusterRole": (_change_cluster_role,),
    "Deployment": (_change_deployment,),
    "NetworkPolicy": (_change_network_policy,),
}
_KIND_CONDITIONS: Final[Mapping[str, str]] = {"NetworkPolicy": ".Values.networkPolicy.enabled"}


def main() -> int:
    """Write the files; say whether they changed."""
    for path, new in generated_files().items():
        path.parent.mkdir(parents=True, exist_ok=True)
        old = path.read_text() if path.exists() else ""
        path.write_text(new)
        if new != old:
            print(f"{path.relative_to(ROOT)}: written anew")
    return 0


if __name__ == "__main__":
    sys.exit(main())
