{{- define "helix.fullname" -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride -}}
{{- else if contains $name .Release.Name -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "helix.selector" -}}
app.kubernetes.io/name: {{ default .Chart.Name .Values.nameOverride }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "helix.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
{{ include "helix.selector" . }}
{{- end -}}

{{- define "helix.image" -}}
{{- $image := .Values.image -}}
{{- if not $image.repository -}}
{{- fail "image.repository is not set: build workers/Dockerfile, or an image of your own from it, push it, and give its name without a tag: --set image.repository=REGISTRY/NAME" -}}
{{- end -}}
{{- if $image.digest -}}
{{ $image.repository }}@{{ $image.digest }}
{{- else -}}
{{ $image.repository }}:{{ default .Chart.AppVersion $image.tag }}
{{- end -}}
{{- end -}}

{{- define "helix.account" -}}
{{- if .Values.serviceAccount.create -}}
{{ default (include "helix.fullname" .) .Values.serviceAccount.name }}
{{- else -}}
{{ default "default" .Values.serviceAccount.name }}
{{- end -}}
{{- end -}}

{{/* A value as a variable: Helm reads numbers as floats, and would print 1048576 as 1.048576e+06. */}}
{{- define "helix.text" -}}
{{- if and (kindIs "float64" .) (eq . (floor .)) -}}
{{ printf "%.0f" . }}
{{- else -}}
{{ toString . }}
{{- end -}}
{{- end -}}

{{/* A duration of the settings (30, 1.5s, 200ms, 10m, 24h, 7d) in whole seconds, rounded up. */}}
{{- define "helix.seconds" -}}
{{- $text := include "helix.text" . | trim -}}
{{- $unit := regexFind "(ms|s|m|h|d)$" $text | default "s" -}}
{{- $factor := get (dict "ms" 0.001 "s" 1.0 "m" 60.0 "h" 3600.0 "d" 86400.0) $unit -}}
{{ mulf (regexFind "^[0-9.]+" $text | float64) $factor | ceil | int64 }}
{{- end -}}

{{/* Refuses variables that part of the pods would not have, or that the chart itself would not see. */}}
{{- define "helix.checkVariables" -}}
{{- range .Values.env -}}
{{- if and (hasPrefix "HELIX_" .name) (not (hasPrefix "HELIX_APP_" .name)) (ne .name "HELIX_AGENTS") -}}
{{- fail (printf "%s is in env, which only session workers have: maintenance and migrations would go by other settings; set settings.%s, put it into the Secret of existingSecret, or into commonEnv" .name .name) -}}
{{- end -}}
{{- end -}}
{{- range .Values.commonEnv -}}
{{- if has .name (list "HELIX_HEALTH_PORT" "HELIX_METRICS_PROMETHEUS" "HELIX_METRICS_OTLP" "HELIX_TEMPORAL_ADDRESS" "HELIX_TEMPORAL_NAMESPACE" "HELIX_S3_ENDPOINT" "HELIX_BUILD_ID") -}}
{{- fail (printf "%s is in commonEnv, where this chart does not see it: set settings.%s" .name .name) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Refuses a build that nobody makes current, or that is not the one which the controller goes by. */}}
{{- define "helix.checkVersion" -}}
{{- $build := .Values.settings.HELIX_BUILD_ID -}}
{{- $versions := .Values.sessions.workerDeployment -}}
{{- if and $build $versions.enabled -}}
{{- fail "settings.HELIX_BUILD_ID is set beside sessions.workerDeployment: the controller gives each version its build id; take it out of settings" -}}
{{- end -}}
{{- if and $build (not $versions.enabled) (not $versions.byHand) -}}
{{- fail "settings.HELIX_BUILD_ID is set and sessions.workerDeployment.enabled is not: new pods would be ready and get no work until somebody makes their version current, and Kubernetes would remove the old ones meanwhile; enable sessions.workerDeployment, or install a release of this chart for each build, make its version current yourself (temporal worker deployment set-current-version), and set sessions.workerDeployment.byHand to true" -}}
{{- end -}}
{{- end -}}

{{/* The port of an address, which is a URL or host:port; nothing where it names none, or this very pod. */}}
{{- define "helix.portOf" -}}
{{- $text := . -}}
{{- $rest := regexReplaceAll "^[a-z0-9+.-]+://" $text "" | splitList "/" | first -}}
{{- $host := regexReplaceAll ":[0-9]+$" $rest "" -}}
{{- $port := regexFind ":[0-9]+$" $rest | trimPrefix ":" -}}
{{- if not (has $host (list "localhost" "127.0.0.1" "[::1]")) -}}
{{- if $port -}}{{ $port }}
{{- else if hasPrefix "https:" $text -}}443
{{- else if hasPrefix "http:" $text -}}80
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Refuses a policy that lets nothing out to an address which the workers are given. */}}
{{- define "helix.checkEgress" -}}
{{- $open := list -}}
{{- range $name, $rule := .Values.networkPolicy.egress -}}
{{- range (default dict $rule).ports -}}{{- $open = append $open (include "helix.text" .) -}}{{- end -}}
{{- end -}}
{{- $named := dict -}}
{{- range $name := list "HELIX_TEMPORAL_ADDRESS" "HELIX_S3_ENDPOINT" "HELIX_METRICS_OTLP" -}}
{{- with index $.Values.settings $name -}}
{{- $_ := set $named (printf "settings.%s" $name) . -}}
{{- end -}}
{{- end -}}
{{- range concat .Values.env .Values.commonEnv -}}
{{- if and (hasPrefix "OTEL_EXPORTER_OTLP_" .name) (hasSuffix "ENDPOINT" .name) .value -}}
{{- $_ := set $named .name .value -}}
{{- end -}}
{{- end -}}
{{- range $name, $address := $named -}}
{{- $port := include "helix.portOf" $address -}}
{{- if and $port (not (has $port $open)) -}}
{{- fail (printf "networkPolicy.egress lets nothing out to port %s of %s (%s): add an entry to it, such as networkPolicy.egress.more: {ports: [%s]}" $port $name $address $port) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Seconds that the longest model call or tool may take; what is not set is the settings' default. */}}
{{- define "helix.longestStep" -}}
{{- $settings := .root.Values.settings -}}
{{- range concat .root.Values.env .root.Values.commonEnv -}}
{{- if has .name (list "HELIX_TIMEOUT_MODEL_START_TO_CLOSE" "HELIX_TIMEOUT_TOOL_START_TO_CLOSE") -}}
{{- fail (printf "%s is in env or commonEnv, where the time that Kubernetes waits for a worker does not follow it: set settings.%s" .name .name) -}}
{{- end -}}
{{- end -}}
{{- $model := include "helix.seconds" (default 600 $settings.HELIX_TIMEOUT_MODEL_START_TO_CLOSE) -}}
{{- $tool := include "helix.seconds" (default 300 $settings.HELIX_TIMEOUT_TOOL_START_TO_CLOSE) -}}
{{- $own := include "helix.seconds" (default 0 .own.longestStep) -}}
{{ max (int64 $model) (int64 $tool) (int64 $own) }}
{{- end -}}

{{/* A worker drains for as long as its longest step may take, then closes its stores. */}}
{{- define "helix.grace" -}}
{{- $longest := include "helix.longestStep" . | int64 -}}
{{- $least := add $longest 30 -}}
{{- $given := int64 .own.terminationGracePeriodSeconds -}}
{{- if and $given (lt $given $least) -}}
{{- fail (printf "%s.terminationGracePeriodSeconds is %d and the longest step may take %d s: a worker that is killed before it ends has its model call made, and paid for, again; set at least %d, or shorten settings.HELIX_TIMEOUT_MODEL_START_TO_CLOSE" .component $given $longest $least) -}}
{{- end -}}
{{ default $least $given }}
{{- end -}}

{{- define "helix.healthPort" -}}
{{ include "helix.text" (required "settings.HELIX_HEALTH_PORT is not set: probes need a port" .Values.settings.HELIX_HEALTH_PORT) }}
{{- end -}}

{{/* Where workers serve metrics; nothing if they do not. */}}
{{- define "helix.metricsPort" -}}
{{- if .Values.metrics.port -}}
{{ include "helix.text" .Values.metrics.port }}
{{- else if .Values.settings.HELIX_METRICS_PROMETHEUS -}}
{{ regexFind "[0-9]+$" (include "helix.text" .Values.settings.HELIX_METRICS_PROMETHEUS) }}
{{- end -}}
{{- end -}}

{{- define "helix.probe" -}}
httpGet:
  path: {{ .path }}
  port: health
{{ toYaml .probe }}
{{- end -}}

{{/* What a ConfigMap with the settings holds. */}}
{{- define "helix.settings" -}}
{{- range $name, $value := .Values.settings }}
{{ $name }}: {{ include "helix.text" $value | quote }}
{{- end }}
{{- end -}}

{{- define "helix.secretRef" -}}
{{- if .Values.existingSecret -}}
- secretRef:
    name: {{ .Values.existingSecret }}
{{- end -}}
{{- end -}}

{{/* The pods of one kind of worker: root, component, own (its values), and args. */}}
{{- define "helix.podTemplate" -}}
{{- $root := .root -}}
{{- $own := .own -}}
{{- include "helix.checkVariables" $root -}}
metadata:
  labels:
    {{- include "helix.selector" $root | nindent 4 }}
    app.kubernetes.io/component: {{ .component }}
    {{- with $root.Values.podLabels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  annotations:
    # A worker reads its settings once: others are others' pods.
    helix-temporal/settings: {{ toJson $root.Values.settings | sha256sum | trunc 16 }}
    {{- with $root.Values.podAnnotations }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
spec:
  serviceAccountName: {{ include "helix.account" $root }}
  automountServiceAccountToken: false
  # Variables of services named helix… would look like settings.
  enableServiceLinks: false
  terminationGracePeriodSeconds: {{ include "helix.grace" . }}
  {{- with $root.Values.imagePullSecrets }}
  imagePullSecrets:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  securityContext:
    {{- toYaml $root.Values.podSecurityContext | nindent 4 }}
  {{- with $own.priorityClassName }}
  priorityClassName: {{ . }}
  {{- end }}
  {{- with $own.nodeSelector }}
  nodeSelector:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with $own.affinity }}
  affinity:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with $own.tolerations }}
  tolerations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with $own.topologySpreadConstraints }}
  topologySpreadConstraints:
    {{- $labels := include "helix.selector" $root | fromYaml | merge (dict "app.kubernetes.io/component" $.component) }}
    {{- range . }}
    - {{- merge (dict) . (dict "labelSelector" (dict "matchLabels" $labels)) | toYaml | nindent 6 }}
    {{- end }}
  {{- end }}
  containers:
    - name: {{ .component }}
      image: {{ include "helix.image" $root | quote }}
      imagePullPolicy: {{ $root.Values.image.pullPolicy }}
      {{- with $own.command }}
      command:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with .args }}
      args:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- $env := list }}
      {{- if eq .component "sessions" }}
      {{- with join "," $own.agents }}
      {{- $env = append $env (dict "name" "HELIX_AGENTS" "value" .) }}
      {{- end }}
      {{- $env = concat $env $root.Values.env }}
      {{- end }}
      {{- with concat $env $root.Values.commonEnv }}
      env:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      envFrom:
        - configMapRef:
            name: {{ include "helix.fullname" $root }}
        {{- with include "helix.secretRef" $root }}
        {{- . | nindent 8 }}
        {{- end }}
        {{- if eq .component "sessions" }}
        {{- with $root.Values.envFrom }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
        {{- end }}
      ports:
        - name: health
          containerPort: {{ include "helix.healthPort" $root }}
        {{- with include "helix.metricsPort" $root }}
        - name: metrics
          containerPort: {{ . }}
        {{- end }}
      startupProbe:
        {{- include "helix.probe" (dict "path" "/livez" "probe" $root.Values.probes.startup) | nindent 8 }}
      livenessProbe:
        {{- include "helix.probe" (dict "path" "/livez" "probe" $root.Values.probes.liveness) | nindent 8 }}
      readinessProbe:
        {{- include "helix.probe" (dict "path" "/readyz" "probe" $root.Values.probes.readiness) | nindent 8 }}
      securityContext:
        {{- toYaml $root.Values.securityContext | nindent 8 }}
      resources:
        {{- toYaml $own.resources | nindent 8 }}
      volumeMounts:
        - name: tmp
          mountPath: /tmp
        {{- with $own.volumeMounts }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
  volumes:
    - name: tmp
      emptyDir: {}
    {{- with $own.volumes }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
{{- end -}}

{{/* What an autoscaler does, without the kind and name of what it scales. */}}
{{- define "helix.autoscaling" -}}
{{- $scaling := .Values.sessions.autoscaling -}}
{{- if not (or $scaling.cpu $scaling.slots.enabled) -}}
{{- fail "sessions.autoscaling is enabled and measures nothing: set sessions.autoscaling.cpu, or enable sessions.autoscaling.slots" -}}
{{- end -}}
{{- if gt (int $scaling.minReplicas) (int $scaling.maxReplicas) -}}
{{- fail (printf "sessions.autoscaling.minReplicas is %d and maxReplicas %d: at most maxReplicas expected" (int $scaling.minReplicas) (int $scaling.maxReplicas)) -}}
{{- end -}}
minReplicas: {{ $scaling.minReplicas }}
maxReplicas: {{ $scaling.maxReplicas }}
metrics:
  {{- with $scaling.cpu }}
  - type: Resource
    resource:
      name: cpu
      target: { type: Utilization, averageUtilization: {{ . }} }
  {{- end }}
  {{- if $scaling.slots.enabled }}
  - type: Pods
    pods:
      metric:
        name: {{ $scaling.slots.metric }}
        {{- with $scaling.slots.labels }}
        selector:
          matchLabels:
            {{- toYaml . | nindent 12 }}
        {{- end }}
      target: { type: AverageValue, averageValue: {{ $scaling.slots.average | quote }} }
  {{- end }}
behavior:
  {{- toYaml $scaling.behavior | nindent 2 }}
{{- end -}}
