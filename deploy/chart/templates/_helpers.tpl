{{- define "pith.name" -}}
{{- if contains "pith" .Release.Name }}{{ .Release.Name | trunc 50 | trimSuffix "-" }}{{ else }}{{ printf "%s-pith" .Release.Name | trunc 50 | trimSuffix "-" }}{{ end }}
{{- end }}

{{- define "pith.selector" -}}
app.kubernetes.io/name: pith
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "pith.labels" -}}
{{ include "pith.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{- define "pith.image" -}}
{{- if .Values.image.digest }}{{ .Values.image.repository }}@{{ .Values.image.digest }}{{ else }}{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}{{ end }}
{{- end }}

{{- define "pith.serviceAccount" -}}
{{- .Values.serviceAccount.name | default (ternary (include "pith.name" .) "default" .Values.serviceAccount.create) }}
{{- end }}

{{/* The configuration with what the manifests decide. */}}
{{- define "pith.config" -}}
{{- $ours := dict
  "state_dir" "/opt/pith/var"
  "server" (dict "host" "0.0.0.0" "port" 8000)
  "ops" (dict "host" "0.0.0.0" "port" 9464)
  "billing" (dict "spool_path" "/opt/pith/var/spool.db") }}
{{- if eq .Values.mode "ray" }}
{{- $ours = merge (dict "ray" (dict "address" "auto") "server" (dict "ingress_replicas" (int .Values.replicas))) $ours }}
{{- end }}
{{- /* All pods serve the same models, so they run one another's batches wherever they share the files. */}}
{{- $default := dict "batches" (dict "deployment" (include "pith.name" .)) }}
{{- mergeOverwrite (merge (deepCopy .Values.config) $default) $ours | toYaml }}
{{- end }}

{{/* What Ray reads once, when it is imported and when its processes start: as serve/cluster/ray_insides/ray_serve.py sets it. */}}
{{- define "pith.rayEnvironment" -}}
- {name: RAY_USAGE_STATS_ENABLED, value: "0"}
- {name: RAY_enable_worker_prestart, value: "0"}
- {name: RAY_prestart_worker_first_driver, value: "0"}
- {name: RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO, value: "0"}
- {name: RAY_worker_niceness, value: "0"}
- {name: RAY_SERVE_RUN_USER_CODE_IN_SEPARATE_THREAD, value: "0"}
- {name: RAY_SERVE_RUN_ROUTER_IN_SEPARATE_LOOP, value: "0"}
- {name: RAY_SERVE_REQUEST_PATH_LOG_BUFFER_SIZE, value: "1000"}
- {name: RAY_SERVE_CONTROL_LOOP_INTERVAL_S, value: "0.25"}
- {name: RAY_SERVE_METRICS_EXPORT_INTERVAL_MS, value: "1000"}
- {name: RAY_SERVE_LOG_TO_STDERR, value: "0"}
- {name: RAY_SERVE_FORCE_STOP_UNHEALTHY_REPLICAS, value: "1"}
- {name: RAYLLM_ENABLE_REQUEST_PROMPT_LOGS, value: "0"}
- {name: RAYLLM_ENABLE_WORKER_PROCESS_SETUP_HOOK, value: "0"}
- {name: VLLM_NO_USAGE_STATS, value: "1"}
- {name: VLLM_LOGGING_LEVEL, value: ERROR}
{{- end }}

{{- define "pith.environment" -}}
- {name: HOME, value: /tmp}
- {name: XDG_CACHE_HOME, value: /opt/pith/var/cache}
- {name: HF_HOME, value: /models}
- name: PGPASSWORD
  valueFrom: {secretKeyRef: {name: {{ .Values.existingSecret }}, key: postgres-password, optional: true}}
- name: HF_TOKEN
  valueFrom: {secretKeyRef: {name: {{ .Values.existingSecret }}, key: hf-token, optional: true}}
{{- end }}

{{- define "pith.podSecurity" -}}
runAsNonRoot: true
runAsUser: 10001
runAsGroup: 10001
fsGroup: 10001
fsGroupChangePolicy: OnRootMismatch
seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- define "pith.containerSecurity" -}}
readOnlyRootFilesystem: true
allowPrivilegeEscalation: false
capabilities: {drop: [ALL]}
{{- end }}

{{/* pith wants its pepper to be its own file with mode 0600, which a mounted Secret cannot be. */}}
{{- define "pith.pepper" -}}
- name: pepper
  image: {{ include "pith.image" . }}
  imagePullPolicy: {{ .Values.image.pullPolicy }}
  command: [install, -m, "600", /run/secrets/pith/pepper, /opt/pith/var/pepper]
  securityContext: {{- include "pith.containerSecurity" . | nindent 4 }}
  resources:
    requests: {cpu: 10m, memory: 16Mi}
    limits: {memory: 64Mi}
  volumeMounts:
    - {name: state, mountPath: /opt/pith/var}
    - {name: secrets, mountPath: /run/secrets/pith, readOnly: true}
{{- end }}

{{/* All that a container may write: the rest of its root is read-only. */}}
{{- define "pith.mounts" -}}
- {name: state, mountPath: /opt/pith/var}
{{- if .Values.persistence.files.enabled }}
- {name: files, mountPath: /opt/pith/var/files}
{{- end }}
- {name: models, mountPath: /models}
- {name: tmp, mountPath: /tmp}
- {name: shared-memory, mountPath: /dev/shm}
- {name: config, mountPath: /etc/pith, readOnly: true}
{{- end }}

{{- define "pith.volumes" -}}
- name: config
  configMap: {name: {{ include "pith.name" . }}}
- name: secrets
  secret:
    secretName: {{ .Values.existingSecret }}
    defaultMode: 0440
    items: [{key: pepper, path: pepper}]
- name: tmp
  emptyDir: {}
- name: shared-memory
  emptyDir: {medium: Memory, sizeLimit: {{ .Values.sharedMemory }}}
{{- with .Values.persistence.files }}
{{- if .enabled }}
- name: files
  persistentVolumeClaim: {claimName: {{ .existingClaim | default (printf "%s-files" (include "pith.name" $)) }}}
{{- end }}
{{- end }}
- name: models
  {{- if .Values.persistence.models.enabled }}
  persistentVolumeClaim: {claimName: {{ .Values.persistence.models.existingClaim | default (printf "%s-models" (include "pith.name" .)) }}}
  {{- else }}
  emptyDir: {}
  {{- end }}
{{- end }}

{{/* Where pods are put: of the component in .component. */}}
{{- define "pith.placement" -}}
{{- with .root.Values.runtimeClassName }}
runtimeClassName: {{ . }}
{{- end }}
{{- with .root.Values.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .root.Values.tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .root.Values.affinity }}
affinity: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .root.Values.topologySpread }}
{{- if .enabled }}
topologySpreadConstraints:
  - maxSkew: 1
    topologyKey: {{ .topologyKey }}
    whenUnsatisfiable: {{ .whenUnsatisfiable }}
    labelSelector:
      matchLabels:
        {{- include "pith.selector" $.root | nindent 8 }}
        app.kubernetes.io/component: {{ $.component }}
{{- end }}
{{- end }}
{{- end }}

{{- define "pith.component" -}}
{{- if eq .Values.mode "ray" }}worker{{ else }}server{{ end }}
{{- end }}
