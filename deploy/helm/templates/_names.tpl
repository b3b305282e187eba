{{- define "cellserver.name" -}}
{{- if contains "cellserver" .Release.Name }}{{ .Release.Name | trunc 52 | trimSuffix "-" }}{{ else }}{{ printf "%s-cellserver" .Release.Name | trunc 52 | trimSuffix "-" }}{{ end -}}
{{- end }}

{{- define "cellserver.selector" -}}
app.kubernetes.io/name: cellserver
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "cellserver.labels" -}}
{{ include "cellserver.selector" . }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}
