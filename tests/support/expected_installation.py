"""What the manifests install, as the doctor compares it with a cluster: `expected.json`.

`make tables` writes it, and what docs/cli.md shows of the doctor; tests see that both are current.
"""

import json
import re
import sys
import textwrap
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec

from tests.architecture.readme_tables import with_tables
from tests.support.documents import documents
from tests.support.repository import ROOT
from tests.trainer_kai.cli.commands.doctor.installation import broken_installation
from trainer_kai.cli.commands.doctor.checks.all_checks import run_checks
from trainer_kai.cli.commands.doctor.expected import (
    PATH,
    ExpectedAccount,
    ExpectedConfiguration,
    ExpectedDefinition,
    ExpectedManifests,
    ExpectedPolicy,
    ExpectedWebhook,
    Permission,
    field_paths,
    rule_messages,
)
from trainer_kai.cli.commands.doctor.text_output import as_text
from trainer_kai.cli.output.table import MAX_WIDTH

Obj = dict[str, Any]

README: Final = ROOT / "docs" / "cli.md"
_BASE: Final = ROOT / "manifests" / "base"
_FIELD: Final = ROOT / "manifests" / "components" / "runtime-queue-field"
_EXTERNAL: Final = ROOT / "manifests" / "overlays" / "external-kai"
_PROPERTIES: Final = "/schema/openAPIV3Schema/properties/"
_ALWAYS: Final = frozenset({"apiVersion", "kind", "metadata"})
_HOOKS: Final = ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")
_POLICY: Final = "ValidatingAdmissionPolicy"
_WIDTH: Final = 120
# What an overlay may say otherwise, and what is written elsewhere.
_OVERLAY_FIELDS: Final = (
    "name",
    "clientConfig",
    "failurePolicy",
    "matchConditions",
    "namespaceSelector",
)


def expected_installation() -> ExpectedManifests:
    objects = list(_objects(_BASE))
    (namespace,) = {it["metadata"]["namespace"] for it in _of_kind(objects, "Deployment")}
    patch = documents(_FIELD / "patch.yaml")[0]
    return ExpectedManifests(
        namespace=namespace,
        definitions=tuple(_definition(it) for it in _of_kind(objects, "CustomResourceDefinition")),
        configurations=tuple(
            _configuration(it) for kind in _HOOKS for it in _of_kind(objects, kind)
        ),
        policies=tuple(_policies(objects)),
        accounts=tuple(_accounts(objects, namespace)),
        deployments=tuple(sorted(it["metadata"]["name"] for it in _of_kind(objects, "Deployment"))),
        classes=tuple(_classes(objects)),
        runtime_field=_patched(patch),
        runtime_definitions=_targets(documents(_FIELD / "kustomization.yaml")[0]),
    )


def as_json(found: ExpectedManifests) -> str:
    """Return the file: what fits is on one line, so that a diff shows what changed."""
    return _json_lines(msgspec.json.decode(msgspec.json.encode(found))) + "\n"


def _json_lines(value: Any, indent: str = "") -> str:
    whole, inner = json.dumps(value, ensure_ascii=False), f"{indent} "
    if len(indent) + len(whole) <= _WIDTH or not value or not isinstance(value, dict | list):
        return whole
    if isinstance(value, dict):
        parts = [f"{json.dumps(name)}: {_json_lines(it, inner)}" for name, it in value.items()]
    else:
        parts = [_json_lines(it, inner) for it in value]
    text = f",\n{inner}".join(parts)
    if not any(" " in it for it in parts):  # names: as many in a line as fit
        text = textwrap.fill(", ".join(parts), _WIDTH, subsequent_indent=inner)
    opening, closing = "{}" if isinstance(value, dict) else "[]"
    return f"{opening}\n{inner}{text}\n{indent}{closing}"


def _objects(folder: Path) -> Iterator[Obj]:
    for file in sorted(folder.rglob("*.yaml")):
        if file.name != "kustomization.yaml":
            yield from documents(file)


def _of_kind(objects: Iterable[Obj], kind: str) -> list[Obj]:
    return [it for it in objects if it["kind"] == kind]


def _definition(crd: Obj) -> ExpectedDefinition:
    (version,) = crd["spec"]["versions"]
    schema = version["schema"]["openAPIV3Schema"]
    return ExpectedDefinition(
        name=crd["metadata"]["name"],
        version=version["name"],
        fields=tuple(sorted(set(field_paths(schema)) - _ALWAYS)),
        rules=tuple(dict.fromkeys(rule_messages(schema))),
    )


def _configuration(found: Obj) -> ExpectedConfiguration:
    hooks = tuple(_hook(it) for it in found["webhooks"])
    return ExpectedConfiguration(kind=found["kind"], name=found["metadata"]["name"], hooks=hooks)


def _policies(objects: list[Obj]) -> Iterator[ExpectedPolicy]:
    """Yield each with its binding, which is called like it."""
    bindings = {it["metadata"]["name"]: it["spec"] for it in _of_kind(objects, f"{_POLICY}Binding")}
    patches = documents(_EXTERNAL / "kustomization.yaml")[0]["patches"]
    (left_out,) = (it["target"]["name"] for it in patches if "$patch: delete" in it["patch"])
    for found in _of_kind(objects, _POLICY):
        name = found["metadata"]["name"]
        yield ExpectedPolicy(
            name=name,
            spec=found["spec"],
            binding=bindings.pop(name),
            beside_kai=not re.fullmatch(left_out, name),
        )
    assert not bindings


def _hook(found: Obj) -> ExpectedWebhook:
    called = found["clientConfig"]
    service = called.get("service")
    return ExpectedWebhook(
        name=found["name"],
        path=service["path"] if service else urlsplit(called["url"]).path,
        failure_policy=found["failurePolicy"],
        fields={name: value for name, value in found.items() if name not in _OVERLAY_FIELDS},
        conditions={it["name"]: it["expression"] for it in found.get("matchConditions", ())},
    )


def _classes(objects: list[Obj]) -> Iterator[str]:
    """Yield those for workloads: that of our own pods is asked for by their Deployments."""
    own = {
        it["spec"]["template"]["spec"].get("priorityClassName")
        for it in _of_kind(objects, "Deployment")
    }
    for found in _of_kind(objects, "PriorityClass"):
        if found["metadata"]["name"] not in own:
            yield found["metadata"]["name"]


def _accounts(objects: list[Obj], home: str) -> Iterator[ExpectedAccount]:
    roles = {_key(it["kind"], it["metadata"]): it for it in objects if "rules" in it}
    rights: dict[tuple[str, str], set[Permission]] = {}
    for kind in ("ClusterRoleBinding", "RoleBinding"):
        for binding in _of_kind(objects, kind):
            where = {**binding["metadata"], "name": binding["roleRef"]["name"]}
            role = roles[_key(binding["roleRef"]["kind"], where)]
            for subject in binding["subjects"]:
                account = (subject["name"], subject["namespace"])
                place = where.get("namespace", "")
                own = rights.setdefault(account, set())
                own.update(
                    _account_rights(
                        role["rules"],
                        everywhere=kind == "ClusterRoleBinding",
                        namespace="" if place == subject["namespace"] else place,
                    )
                )
    accounts = [
        ExpectedAccount(
            name=name, namespace="" if namespace == home else namespace, rights=tuple(sorted(own))
        )
        for (name, namespace), own in rights.items()
    ]
    yield from sorted(accounts, key=lambda it: (it.namespace, it.name))


def _key(kind: str, metadata: Obj) -> tuple[str, str, str]:
    """Return what a role is found by; one of the cluster is in no namespace."""
    namespace = "" if kind == "ClusterRole" else metadata["namespace"]
    return kind, namespace, metadata["name"]


def _account_rights(
    rules: Iterable[Obj], *, everywhere: bool, namespace: str
) -> Iterator[Permission]:
    for rule in rules:
        for group in rule["apiGroups"]:
            for whole in rule["resources"]:
                resource, _, part = whole.partition("/")
                for verb in rule["verbs"]:
                    for name in rule.get("resourceNames", ("",)):
                        yield Permission(
                            verb=verb,
                            group=group,
                            resource=resource,
                            subresource=part,
                            name=name,
                            everywhere=everywhere,
                            namespace=namespace,
                        )


def _patched(operations: Iterable[Obj]) -> str:
    """Return the one field that is added, and what is in it."""
    (added,) = (it for it in operations if it["op"] == "add")
    path = added["path"].partition(_PROPERTIES)[2].replace("/properties/", ".")
    (inner,) = added["value"]["properties"]
    return f"{path}.{inner}"


def _targets(kustomization: Obj) -> tuple[str, ...]:
    """Return the two definitions that the pattern of the patch means."""
    (pattern,) = (it["target"]["name"] for it in kustomization["patches"])
    names = [f"{it}trainingruntimes.trainer.kubeflow.org" for it in ("", "cluster")]
    assert all(re.fullmatch(pattern, name) for name in names)
    return tuple(names)


def main() -> int:
    old, new = PATH.read_text() if PATH.exists() else "", as_json(expected_installation())
    PATH.write_text(new)
    print(f"{PATH.relative_to(ROOT)}: {'as it was' if new == old else 'written anew'}")
    old = README.read_text()
    new = with_tables(old, {"doctor": example()})
    README.write_text(new)
    print(f"{README.relative_to(ROOT)}: {'as it was' if new == old else 'written anew'}")
    return 0


def example() -> str:
    return f"```\n{as_text(run_checks(broken_installation()), MAX_WIDTH)}\n```"


if __name__ == "__main__":
    sys.exit(main())
