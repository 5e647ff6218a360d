{{/* Rights of the controller in the namespaces that it looks at. It never reads secrets and never
     enters a pod. */}}
{{- define "albacore.controller.rules" -}}
- apiGroups: [albacore.dev]
  resources: [inferencedeployments]
  verbs: [list, watch]
- apiGroups: [albacore.dev]
  resources: [inferencedeployments/status]
  verbs: [patch]
# Owner references that block deletion need it where OwnerReferencesPermissionEnforcement is on.
- apiGroups: [albacore.dev]
  resources: [inferencedeployments/finalizers]
  verbs: [update]
# Children. Server-side apply is `patch`, and `create` where there is nothing yet.
- apiGroups: [""]
  resources: [configmaps, services, serviceaccounts]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [apps]
  resources: [deployments]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [policy]
  resources: [poddisruptionbudgets]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [networking.k8s.io]
  resources: [networkpolicies]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [monitoring.coreos.com]
  resources: [servicemonitors]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [""]
  resources: [pods]
  verbs: [list, watch]
# Labels and deletion costs of pods that get no requests, with batching.prefer: IdleWorkers.
- apiGroups: [""]
  resources: [pods]
  verbs: [patch]
# Events of pods that do not start: nothing else says what they lack.
- apiGroups: [events.k8s.io]
  resources: [events]
  verbs: [create, patch, list]
{{- end -}}
