{{- /* What values mean. A helper with a dict gets the root as "root"; aliases of KAI come last. */}}

{{- define "trainer-kai.image" -}}
{{- $global := .Values.global | default dict -}}
{{- $registry := $global.registry | default "" -}}
{{- $named := ternary (printf "%s/trainer-kai" (trimSuffix "/" $registry)) "trainer-kai" (ne $registry "") -}}
{{- $repository := .Values.image.repository | default $named -}}
{{- if .Values.image.digest -}}
{{ $repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ $repository }}:{{ .Values.image.tag | default $global.tag | default .Chart.AppVersion }}
{{- end -}}
{{- end }}

{{- define "trainer-kai.pullPolicy" -}}
{{- $global := .Values.global | default dict -}}
{{- with .Values.image.pullPolicy | default $global.imagePullPolicy -}}
imagePullPolicy: {{ . }}
{{- end -}}
{{- end }}

{{- define "trainer-kai.replicas" -}}
{{- $of := index .root.Values .process -}}
{{- $operator := .root.Values.operator | default dict -}}
{{- if not (kindIs "invalid" $of.replicas) -}}
{{ $of.replicas | int }}
{{- else if kindIs "invalid" $operator.replicaCount -}}
2
{{- else -}}
{{ $operator.replicaCount | int }}
{{- end -}}
{{- end }}

{{- define "trainer-kai.spread" -}}
{{- $global := .Values.global | default dict -}}
{{- if or .Values.spreadReplicas $global.requireDefaultPodAntiAffinityTerm }}true{{ end -}}
{{- end }}

{{- /* A replica terminates before its successor starts, so that two nodes are enough. */}}
{{- define "trainer-kai.strategy" -}}
{{- if include "trainer-kai.spread" . -}}
strategy:
  rollingUpdate:
    maxSurge: 0
    maxUnavailable: 1
{{- end -}}
{{- end }}

{{- define "trainer-kai.priorityClassName" -}}
{{- $global := .Values.global | default dict -}}
{{ .Values.priorityClassName | default $global.priorityClassName | default "trainer-kai" }}
{{- end }}

{{- define "trainer-kai.priorityClasses" -}}
{{- $ofKai := .Values.defaultPriorityClasses | default dict -}}
{{- if and (eq .Values.mode "bundled") .Values.priorityClasses.create (ne (toString $ofKai.enabled) "false") }}true{{ end -}}
{{- end }}

{{- /* Whether the scheduler binds shares of GPUs. */}}
{{- define "trainer-kai.gpuSharingEnabled" -}}
{{- $enabled := .Values.gpuSharing.enabled -}}
{{- if kindIs "invalid" $enabled -}}
{{- $enabled = (.Values.global | default dict).gpuSharing -}}
{{- end -}}
{{- if ne (toString $enabled) "false" }}true{{ end -}}
{{- end }}

{{- define "trainer-kai.gpuSharing" -}}
{{- if eq .Values.mode "bundled" }}{{ include "trainer-kai.gpuSharingEnabled" . }}{{ end -}}
{{- end }}

{{- /* Whether the namespace of reservation pods is ours. */}}
{{- define "trainer-kai.reservationNamespace" -}}
{{- $create := .Values.gpuSharing.createNamespace -}}
{{- if kindIs "invalid" $create -}}
{{- $create = ((.Values.global | default dict).resourceReservation | default dict).create -}}
{{- end -}}
{{- if ne (toString $create) "false" }}{{ include "trainer-kai.gpuSharing" . }}{{ end -}}
{{- end }}

{{- define "trainer-kai.pullSecrets" -}}
imagePullSecrets:
{{- range . }}
- name: {{ if kindIs "map" . }}{{ .name }}{{ else }}{{ . }}{{ end }}
{{- end }}
{{- end }}

{{- define "trainer-kai.reservationPullSecrets" -}}
{{- $global := .Values.global | default dict -}}
{{- with coalesce .Values.gpuSharing.imagePullSecrets .Values.imagePullSecrets $global.imagePullSecrets }}
{{- include "trainer-kai.pullSecrets" . }}
{{- end }}
{{- end }}

{{- /* Where the pods of a process run. Affinity of the values replaces ours by its parts. */}}
{{- define "trainer-kai.placement" -}}
{{- $values := .root.Values -}}
{{- $global := $values.global | default dict -}}
{{- $of := index $values .process -}}
{{- $replicas := dict "matchLabels" (dict "app.kubernetes.io/name" (printf "trainer-kai-%s" .process)) -}}
{{- $apart := dict "topologyKey" "kubernetes.io/hostname" "labelSelector" $replicas -}}
{{- $rule := dict "preferredDuringSchedulingIgnoredDuringExecution"
      (list (dict "weight" 100 "podAffinityTerm" $apart)) -}}
{{- if include "trainer-kai.spread" .root -}}
{{- $rule = dict "requiredDuringSchedulingIgnoredDuringExecution" (list $apart) -}}
{{- end -}}
{{- $given := coalesce $of.affinity $values.affinity $global.affinity | default dict -}}
{{- if not (hasKey $given "podAntiAffinity") -}}
{{- $given = merge (dict "podAntiAffinity" $rule) $given -}}
{{- end -}}
affinity:
  {{- toYaml $given | nindent 2 }}
{{- with $values.nodeSelector | default $global.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $values.tolerations | default $global.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $values.imagePullSecrets | default $global.imagePullSecrets }}
{{ include "trainer-kai.pullSecrets" . }}
{{- end }}
{{- end }}

{{- define "trainer-kai.resources" -}}
{{- with (index .root.Values .process).resources -}}
resources:
  {{- toYaml . | nindent 2 }}
{{- end -}}
{{- end }}

{{- /* The settings of all processes as a flat map: from `settings`, and from other values that mean a setting. */}}
{{- define "trainer-kai.settings" -}}
{{- $values := .Values -}}
{{- $flat := dict -}}
{{- if (($values.global | default dict).clusterAutoscaling) -}}
{{- $_ := set $flat "admission.cluster" "grows" -}}
{{- $_ := set $flat "autoscaling.enabled" "true" -}}
{{- end -}}
{{- with $values.scheduler.placementStrategy -}}
{{- $_ := set $flat "policies.gpu_placement" . -}}
{{- $_ := set $flat "policies.cpu_placement" . -}}
{{- end -}}
{{- if not (include "trainer-kai.gpuSharingEnabled" .) -}}
{{- $_ := set $flat "gpu_sharing.enabled" "false" -}}
{{- end -}}
{{- $class := (($values.global | default dict).resourceReservation | default dict).runtimeClassName -}}
{{- if not (kindIs "invalid" $class) -}}
{{- $_ := set $flat "gpu_sharing.runtime_class" $class -}}
{{- end -}}
{{- with $values.priorityClassName | default ($values.global | default dict).priorityClassName -}}
{{- $_ := set $flat "reservation_pods.priority_class" . -}}
{{- end -}}
{{- if ne $values.schedulerName "kai-scheduler" -}}
{{- $_ := set $flat "scheduler_name" $values.schedulerName -}}
{{- end -}}
{{- if and (eq $values.mode "bundled") (ne $values.defaultQueue.childName "default-queue") -}}
{{- $_ := set $flat "default_queue" $values.defaultQueue.childName -}}
{{- end -}}
{{- if eq $values.queueAccess "closed" -}}
{{- $_ := set $flat "queue_access.unannotated" "closed" -}}
{{- $_ := set $flat "admission.unknown_queue" "deny" -}}
{{- end -}}
{{- if ne $values.certificates.source "self" -}}
{{- $_ := set $flat "tls.source" $values.certificates.source -}}
{{- end -}}
{{- if eq $values.certificates.source "files" -}}
{{- $_ := set $flat "tls.certificate_file" "/etc/trainer-kai/tls/tls.crt" -}}
{{- $_ := set $flat "tls.key_file" "/etc/trainer-kai/tls/tls.key" -}}
{{- end -}}
{{- range $name, $value := $values.settings -}}
{{- if kindIs "map" $value -}}
{{- range $inner, $one := $value -}}
{{- $_ := set $flat (printf "%s.%s" $name $inner) $one -}}
{{- end -}}
{{- else -}}
{{- $_ := set $flat $name $value -}}
{{- end -}}
{{- end -}}
{{- if eq (get $flat "health.metrics" | toString) "authorized" -}}
{{- fail "settings.health.metrics=authorized: the chart does not render the roles that it needs, so no client could read /metrics. Remove this value; docs/limits.md describes the alternatives" -}}
{{- end -}}
{{- if and (eq (get $flat "autoscaling.provisioning_requests" | toString) "true") (ne (get $flat "autoscaling.enabled" | toString) "true") -}}
{{- fail "settings.autoscaling.provisioning_requests=true: no nodes are asked for while settings.autoscaling.enabled is not true. Set global.clusterAutoscaling=true, or settings.autoscaling.enabled=true" -}}
{{- end -}}
{{ toYaml $flat }}
{{- end }}

{{- /* Whether containers see only the GPUs that they request: then a webhook reviews all pods of our scheduler. */}}
{{- define "trainer-kai.restrictsDevices" -}}
{{- $settings := include "trainer-kai.settings" . | fromYaml -}}
{{- if eq (get $settings "admission.nvidia_visible_devices" | toString) "block" }}true{{ end -}}
{{- end }}

{{- /* Whether the scheduler asks for nodes by ProvisioningRequests: then it has the rights for them. */}}
{{- define "trainer-kai.requestsNodes" -}}
{{- $settings := include "trainer-kai.settings" . | fromYaml -}}
{{- if eq (get $settings "autoscaling.provisioning_requests" | toString) "true" }}true{{ end -}}
{{- end }}

{{- /* The condition under which no account in the namespaces of KAI made the request; the default is that of the setting. */}}
{{- define "trainer-kai.notByKai" -}}
{{- $settings := include "trainer-kai.settings" . | fromYaml -}}
{{- $conditions := list -}}
{{- range splitList "," (hasKey $settings "kai.namespaces" | ternary (get $settings "kai.namespaces") "kai-scheduler") -}}
{{- with trim . -}}
{{- $conditions = append $conditions (printf "!request.userInfo.username.startsWith('system:serviceaccount:%s:')" .) -}}
{{- end -}}
{{- end -}}
{{- join " && " $conditions | default "true" -}}
{{- end }}

{{- /* The environment of a process: only settings that it has, because another one would end it. */}}
{{- define "trainer-kai.env" -}}
{{- $known := include (printf "trainer-kai.settings.%s" .process) . | splitList "\n" -}}
env:
- name: TRAINER_KAI_MODE
  value: {{ .root.Values.mode }}
{{- if and .root.Values.snapshot (eq .process "scheduler") }}
- name: TRAINER_KAI_HEALTH_SNAPSHOT
  value: authorized
{{- end }}
{{- if eq .process "scheduler" }}
- name: POD_NAME
  valueFrom:
    fieldRef:
      fieldPath: metadata.name
- name: POD_NAMESPACE
  valueFrom:
    fieldRef:
      fieldPath: metadata.namespace
{{- end }}
{{- range $name, $value := include "trainer-kai.settings" .root | fromYaml }}
{{- if has $name $known }}
- name: TRAINER_KAI_{{ $name | replace "." "_" | upper }}
{{- if and (kindIs "float64" $value) (eq (floor $value) $value) }}
  value: {{ int64 $value | quote }}
{{- else }}
  value: {{ $value | quote }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{- define "trainer-kai.certificateMount" -}}
{{- if eq .Values.certificates.source "files" -}}
volumeMounts:
- name: certificate
  mountPath: /etc/trainer-kai/tls
  readOnly: true
{{- end -}}
{{- end }}

{{- define "trainer-kai.certificateVolume" -}}
{{- if eq .Values.certificates.source "files" -}}
volumes:
- name: certificate
  secret:
    secretName: {{ required "certificates.secretName: required with certificates.source=files" .Values.certificates.secretName }}
{{- end -}}
{{- end }}

{{- /* How the API server calls the webhook. The webhook writes caBundle, except with files. */}}
{{- define "trainer-kai.clientConfig" -}}
{{- $values := .root.Values -}}
clientConfig:
{{- if $values.webhook.url }}
  url: {{ trimSuffix "/" $values.webhook.url }}{{ .path }}
{{- else }}
  service:
    name: trainer-kai-webhook
    namespace: {{ .root.Release.Namespace | quote }}
    path: {{ .path }}
    port: 443
{{- end }}
{{- if eq $values.certificates.source "files" }}
{{- with $values.certificates.caBundle }}
  caBundle: {{ . }}
{{- end }}
{{- end }}
{{- end }}

{{- define "trainer-kai.injectedAuthority" -}}
{{- if eq .Values.certificates.source "cert-manager" -}}
annotations:
  cert-manager.io/inject-ca-from: {{ .Release.Namespace }}/trainer-kai-webhook
{{- end -}}
{{- end }}

{{- /* Which namespaces take part, by their label. */}}
{{- define "trainer-kai.inject" -}}
- key: trainer-kai.dev/inject
  operator: {{ ternary "In" "NotIn" .Values.optIn }}
  values: [{{ ternary "enabled" "disabled" .Values.optIn }}]
{{- end }}

{{- define "trainer-kai.apiServerPorts" -}}
{{- range .Values.networkPolicy.apiServerPorts }}
- port: {{ . }}
{{- end }}
{{- end }}

{{- /* Which pods may read metrics; probes of the kubelet come from the node. */}}
{{- define "trainer-kai.healthSources" -}}
{{- if .Values.networkPolicy.healthFrom }}
from:
{{- toYaml .Values.networkPolicy.healthFrom | nindent 0 }}
{{- else if eq .Values.queueAccess "closed" }}
from:
- namespaceSelector:
    matchLabels: {trainer-kai.dev/monitoring: "true"}
{{- end }}
{{- end }}
