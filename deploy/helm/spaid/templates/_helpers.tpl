{{- define "spaid.name" -}}
{{- if contains "spaid" .Release.Name }}{{ .Release.Name | trunc 50 | trimSuffix "-" }}{{ else }}{{ printf "%s-spaid" (.Release.Name | trunc 44 | trimSuffix "-") }}{{ end }}
{{- end }}

{{/* Of a fleet another one: Kubernetes lets no service become headless. */}}
{{- define "spaid.service" -}}
{{ include "spaid.name" . }}{{ if eq .Values.mode "fleet" }}-fleet{{ end }}
{{- end }}

{{- define "spaid.selector" -}}
app.kubernetes.io/name: spaid
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "spaid.labels" -}}
{{ include "spaid.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
{{- end }}

{{- define "spaid.image" -}}
{{- $tag := .Values.image.tag | default (ternary "cpu" "cuda" (eq .Values.gpu.mode "none")) -}}
{{- .Values.image.repository }}{{ if .Values.image.digest }}@{{ .Values.image.digest }}{{ else }}:{{ $tag }}{{ end }}
{{- end }}

{{- define "spaid.tlsSecret" -}}
{{- .Values.tls.secret | default (ternary (printf "%s-tls" (include "spaid.name" .)) "" (ne .Values.tls.certManager.issuer "")) }}
{{- end }}

{{/* Of 100Gi or 512Mi, mebibytes. */}}
{{- define "spaid.mebibytes" -}}
{{- mul (regexFind "^[0-9]+" .) (ternary 1024 1 (hasSuffix "Gi" .)) }}
{{- end }}

{{/* What a drain may take, and then a server and a job that do not stop; to write what is not in the volume yet. */}}
{{- define "spaid.terminationSeconds" -}}
{{- add .Values.drain.graceSeconds .Values.drain.deadlineSeconds 60 (ternary 20 0 (ne .Values.spill.size "")) 10 }}
{{- end }}

{{/* Labels of the release's series: by what Kubernetes calls its pods, and not those of a release `spaid-two`. */}}
{{- define "spaid.series" -}}
{{- $pods := get (dict "deployment" "[a-z0-9]{6,10}-[a-z0-9]{5}" "fleet" "[0-9]+" "daemonset" "[a-z0-9]{5}") .Values.mode -}}
namespace="{{ .Release.Namespace }}",pod=~"{{ include "spaid.name" . }}-{{ $pods }}"
{{- end }}

{{- define "spaid.serviceAccount" -}}
{{- .Values.serviceAccount.name | default (ternary (include "spaid.name" .) "default" .Values.serviceAccount.create) }}
{{- end }}

{{/* Ends where values contradict each other, with the cure. */}}
{{- define "spaid.check" -}}
{{- with .Values }}
{{- if and (not .insecure) (not (or .tls.secret .tls.certManager.issuer)) }}
{{- fail "tls: name a secret (tls.secret) or an issuer (tls.certManager.issuer); or set insecure: true, on a network that is trusted" }}
{{- end }}
{{- if and .tls.secret .tls.certManager.issuer }}
{{- fail "tls: tls.secret and tls.certManager.issuer exclude each other; leave one of them empty" }}
{{- end }}
{{- if and (not .insecure) (not (or .tokens.secret .tls.clientCertificates)) }}
{{- fail "tokens: name a secret (tokens.secret), or ask for certificates (tls.clientCertificates: true); or set insecure: true" }}
{{- end }}
{{- if and .tls.clientCertificates (not (or .tls.secret .tls.certManager.issuer)) }}
{{- fail "tls.clientCertificates: needs tls.secret or tls.certManager.issuer" }}
{{- end }}
{{- if and (ne .mode "fleet") (ne (int .replicas) 1) }}
{{- fail (printf "replicas: %v in mode %s, whose daemons do not know each other's handles; set mode: fleet" .replicas .mode) }}
{{- end }}
{{- if and (ne .mode "fleet") (ne .autoscaling.mode "none") }}
{{- fail (printf "autoscaling.mode: %s in mode %s; only a fleet scales: set mode: fleet" .autoscaling.mode .mode) }}
{{- end }}
{{- if and (ne .autoscaling.mode "none") (lt (int .autoscaling.maxReplicas) (int .replicas)) }}
{{- fail (printf "autoscaling.maxReplicas: %v is under replicas, %v, the least" .autoscaling.maxReplicas .replicas) }}
{{- end }}
{{- if and (eq .autoscaling.mode "hpa") (not .monitoring.prometheusRule) }}
{{- fail "autoscaling.mode: hpa asks for a series that the rules record; set monitoring.prometheusRule: true" }}
{{- end }}
{{- if and (gt (int .gpu.sharedBy) 1) (not .gpu.memory) }}
{{- fail "gpu.sharedBy: pods that share a GPU have no memory of their own; say what the whole GPU has (gpu.memory: 80Gi)" }}
{{- end }}
{{- if and .spill.size (eq .mode "daemonset") }}
{{- fail "spill.size: a daemonset has no volumes of its own; leave it empty, or set mode: fleet" }}
{{- end }}
{{- if and .spill.existingClaim (or (ne .mode "deployment") (not .spill.size)) }}
{{- fail "spill.existingClaim: is for mode deployment, and needs spill.size, of which the daemon takes nine tenths" }}
{{- end }}
{{- end }}
{{- end }}

{{- define "spaid.args" -}}
- --address=0.0.0.0:7433
{{- if include "spaid.tlsSecret" . }}
- --tls-cert=/etc/spaid/tls/tls.crt
- --tls-key=/etc/spaid/tls/tls.key
{{- if .Values.tls.clientCertificates }}
- --tls-client-ca=/etc/spaid/tls/ca.crt
{{- end }}
{{- else }}
- --insecure
{{- if or .Values.tokens.secret .Values.tokens.adminSecret }}
- --tokens-in-clear
{{- end }}
{{- end }}
{{- if .Values.tokens.secret }}
- --tokens=/etc/spaid/tokens/tokens
{{- end }}
{{- if .Values.tokens.adminSecret }}
- --admin-tokens=/etc/spaid/admin-tokens/tokens
{{- end }}
# Plain HTTP: the network policy says who reaches it.
- --ops-address=0.0.0.0:7434
- --ops-insecure
{{- if eq .Values.gpu.mode "none" }}
- --devices=cpu
{{- else }}
# By name: a pod without the GPU that it asked for does not start.
- --devices=cpu{{ range until (int .Values.gpu.count) }},gpu:{{ . }}{{ end }}
- --on-device-loss={{ .Values.onDeviceLoss }}
{{- if .Values.gpu.memory }}
- --device-memory={{ div (mul (include "spaid.mebibytes" .Values.gpu.memory) 95) (mul 100 .Values.gpu.sharedBy) }}MiB
{{- end }}
{{- end }}
- --threads=$(SPAID_THREADS)
- --drain-grace={{ .Values.drain.graceSeconds }}s
- --drain-deadline={{ .Values.drain.deadlineSeconds }}s
{{- if .Values.spill.size }}
- --spill-dir=/var/spill/own
- --spill-bytes={{ div (mul (include "spaid.mebibytes" .Values.spill.size) 9) 10 }}MiB
{{- end }}
{{- if eq .Values.mode "daemonset" }}
- --local-socket=/run/spaid/local
{{- with .Values.localSocket.uids }}
- --local-uids={{ range $i, $uid := . }}{{ if $i }},{{ end }}{{ int $uid }}{{ end }}
{{- end }}
{{- if .Values.localSocket.tenants }}
- --local-tenants={{ $first := true }}{{ range $uid, $tenant := .Values.localSocket.tenants }}{{ if not $first }},{{ end }}{{ $first = false }}{{ $uid }}:{{ $tenant }}{{ end }}
{{- end }}
{{- end }}
{{- range $flag, $value := .Values.limits }}
- --{{ $flag }}={{ if kindIs "float64" $value }}{{ int64 $value }}{{ else }}{{ $value }}{{ end }}
{{- end }}
{{- range .Values.extraArgs }}
- {{ . | quote }}
{{- end }}
{{- end }}

{{- define "spaid.claim" -}}
accessModes: [ReadWriteOnce]
{{- with .Values.spill.storageClassName }}
storageClassName: {{ . }}
{{- end }}
resources:
  requests:
    storage: {{ .Values.spill.size }}
{{- end }}
