{{/* What the pods of all components share. */}}

{{/* Where a pod may run and what may pull its images: (list $ values-of-the-component). */}}
{{- define "albacore.pod" -}}
{{- $root := index . 0 -}}
{{- $component := index . 1 -}}
{{- with $root.Values.image.pullSecrets }}
imagePullSecrets:
{{- range . }}
- name: {{ . }}
{{- end }}
{{- end }}
{{- with $component.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with $component.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $component.tolerations }}
tolerations: {{- toYaml . | nindent 0 }}
{{- end }}
{{- with $component.affinity }}
affinity: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* Security of a container as PodSecurity "restricted" wants it. */}}
{{- define "albacore.restricted" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
capabilities:
  drop: [ALL]
seccompProfile:
  type: RuntimeDefault
{{- end -}}

{{/* Egress to the API server. A policy cannot name it: its ports, and its addresses where they are
     known. */}}
{{- define "albacore.toApiServer" -}}
- ports:
  {{- range .Values.networkPolicy.apiServer.ports }}
  - {protocol: TCP, port: {{ . }}}
  {{- end }}
  {{- with .Values.networkPolicy.apiServer.cidrs }}
  to:
  {{- range . }}
  - ipBlock: {cidr: {{ . | quote }}}
  {{- end }}
  {{- end }}
{{- end -}}

{{/* Ingress to metrics: port. */}}
{{- define "albacore.fromMetrics" -}}
{{- $root := index . 0 -}}
- ports:
  - {protocol: TCP, port: {{ index . 1 }}}
  from:
  {{- if $root.Values.networkPolicy.metricsFrom }}
  {{- toYaml $root.Values.networkPolicy.metricsFrom | nindent 2 }}
  {{- else }}
  - namespaceSelector: {}
  {{- end }}
{{- end -}}
