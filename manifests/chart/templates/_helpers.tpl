{{- define "steelyard.labels" -}}
app.kubernetes.io/name: steelyard
app.kubernetes.io/part-of: steelyard
{{- end }}

{{- define "steelyard.selector" -}}
app.kubernetes.io/name: steelyard
app.kubernetes.io/component: control-plane
{{- end }}
