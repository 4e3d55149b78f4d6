{{- /* The names of objects: "steelyard" for a release of that name. */}}
{{- define "steelyard.fullname" -}}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 50 | trimSuffix "-" }}
{{- else if contains "steelyard" .Release.Name }}
{{- .Release.Name | trunc 50 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-steelyard" .Release.Name | trunc 50 | trimSuffix "-" }}
{{- end }}
{{- end }}

{{- define "steelyard.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
app.kubernetes.io/name: steelyard
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/part-of: steelyard
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "steelyard.selector" -}}
app.kubernetes.io/name: steelyard
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: control-plane
{{- end }}

{{- define "steelyard.image" -}}
{{- with .Values.image }}
{{- if .digest }}{{ .repository }}@{{ .digest }}{{ else }}{{ .repository }}:{{ .tag | default $.Chart.AppVersion }}{{ end }}
{{- end }}
{{- end }}

{{- /* What replicas share begins with it: two releases in a namespace, or with one Redis, have nothing in common. */}}
{{- define "steelyard.prefix" -}}
{{- (.Values.config.replicas | default dict).prefix | default (include "steelyard.fullname" .) }}
{{- end }}

{{- /* The configuration, with that prefix where it is not the default, and the Service by which replicas find each other. */}}
{{- define "steelyard.config" -}}
{{- $config := deepCopy .Values.config }}
{{- $prefix := include "steelyard.prefix" . }}
{{- if or (hasKey $config "replicas") (ne $prefix "steelyard") }}
{{- $replicas := merge (dict "prefix" $prefix) ($config.replicas | default dict) }}
{{- if not (or (eq ($replicas.lease | default "") "none") $replicas.peers $replicas.service) }}
{{- $_ := set $replicas "service" (printf "%s-xds" (include "steelyard.fullname" .)) }}
{{- end }}
{{- $_ := set $config "replicas" $replicas }}
{{- end }}
{{- toYaml $config }}
{{- end }}

{{- /* Who signs: an authority of the chart, or the issuer that certManager.issuerRef names. */}}
{{- define "steelyard.issuer" -}}
{{- $own := dict "name" (include "steelyard.fullname" .) "kind" "Issuer" "group" "cert-manager.io" }}
{{- toJson (.Values.certManager.issuerRef | default $own) }}
{{- end }}

{{- /* The rules of what the section kubernetes of the configuration acts on, by Role. */}}
{{- define "steelyard.acting" -}}
{{- $kubernetes := .Values.config.kubernetes | default dict }}
{{- $wedged := $kubernetes.wedged | default dict }}
{{- $leases := "- {apiGroups: [coordination.k8s.io], resources: [leases], verbs: [get, create, update]}" }}
{{- if $wedged.event }}
pod-event:
- {apiGroups: [""], resources: [events], verbs: [create]}
{{- end }}
{{- if $wedged.condition }}
pod-condition:
- {apiGroups: [""], resources: [pods/status], verbs: [patch]}
{{- end }}
{{- if $wedged.evict }}
pod-eviction:
- {apiGroups: [""], resources: [pods/eviction], verbs: [create]}
{{ $leases }}
{{- end }}
{{- if $kubernetes.deletion_cost }}
pod-deletion-cost:
- {apiGroups: [""], resources: [pods], verbs: [patch]}
{{ $leases }}
{{- end }}
{{- end }}
