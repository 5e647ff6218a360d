{{/* Names, labels and images. */}}

{{- define "albacore.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride -}}
{{- else -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- if contains $name .Release.Name -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Labels that select the pods of a component: (list $ component). They never change. */}}
{{- define "albacore.selector" -}}
{{- $root := index . 0 -}}
app.kubernetes.io/name: {{ default $root.Chart.Name $root.Values.nameOverride }}
app.kubernetes.io/instance: {{ $root.Release.Name }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end -}}

{{/* Labels of every object: (list $ component more-labels). What the chart says wins over what a
     value says. */}}
{{- define "albacore.labels" -}}
{{- $root := index . 0 -}}
{{- $labels := dict
  "helm.sh/chart" (printf "%s-%s" $root.Chart.Name $root.Chart.Version | replace "+" "_")
  "app.kubernetes.io/part-of" "albacore"
  "app.kubernetes.io/version" $root.Chart.AppVersion
  "app.kubernetes.io/managed-by" $root.Release.Service -}}
{{- $more := dict -}}
{{- if gt (len .) 2 -}}{{- $more = index . 2 -}}{{- end -}}
{{- toYaml (merge $labels (include "albacore.selector" . | fromYaml) $more $root.Values.labels) -}}
{{- end -}}

{{/* Labels of pods: (list $ component values-of-the-component). Without versions: an upgrade
     restarts what it changes. */}}
{{- define "albacore.podLabels" -}}
{{- $labels := dict "app.kubernetes.io/part-of" "albacore" -}}
{{- toYaml (merge $labels (include "albacore.selector" . | fromYaml) (index . 2).podLabels (index . 0).Values.labels) -}}
{{- end -}}

{{/* registry/repository:tag or registry/repository@digest: (list $ image). */}}
{{- define "albacore.image" -}}
{{- $root := index . 0 -}}
{{- $image := index . 1 -}}
{{- $name := printf "%s/%s" $root.Values.image.registry $image.repository -}}
{{- if $image.digest -}}
{{- printf "%s@%s" $name $image.digest -}}
{{- else -}}
{{- printf "%s:%s" $name (default $root.Chart.AppVersion $image.tag) -}}
{{- end -}}
{{- end -}}

{{- define "albacore.controller.account" -}}
{{- default (printf "%s-controller" (include "albacore.fullname" .)) .Values.controller.serviceAccount.name -}}
{{- end -}}

{{- define "albacore.agent.account" -}}
{{- default (printf "%s-agent" (include "albacore.fullname" .)) .Values.agent.serviceAccount.name -}}
{{- end -}}

{{/* Where servers reach the params of their node. */}}
{{- define "albacore.params.url" -}}
{{- $address := .Values.params.service.clusterIP -}}
{{- if contains ":" $address -}}
http://[{{ $address }}]:8082
{{- else if $address -}}
http://{{ $address }}:8082
{{- else -}}
http://{{ include "albacore.fullname" . }}-params.{{ .Values.agent.namespace.name }}.svc:8082
{{- end -}}
{{- end -}}
