//! Remedies for reasons of conditions. The controller appends them to messages, and `albacore
//! explain` prints them.

/// The remedy for a condition or a pod with this `reason`; `None` if its message contains one, or
/// if the problem resolves itself.
pub fn remedy_of(reason: &str) -> Option<&'static str> {
    Some(match reason {
        // A child was rejected.
        "QuotaExceeded" => {
            "raise the ResourceQuota in the message, or lower spec.resources or spec.replicas"
        }
        "NamespaceTerminating" => "the namespace is being deleted: use another one",
        "AdmissionDenied" => {
            "change the spec as the policy or webhook requires, or exempt this namespace from it"
        }
        "MissingPermission" => {
            "grant the controller the permission in the message: helm upgrade restores its roles, \
             and controller.watchNamespaces must include this namespace"
        }
        "ChildRefused" => "correct the field in the message, in spec or spec.template",
        "KindNotServed" => {
            "it is retried every second, because the API server discovers new kinds within half a \
             minute; if the error persists, install the custom resource definitions"
        }
        "WriteFailed" => "it is retried; if it still fails, see the webhook's or API server's log",
        "SchemaOutdated" => {
            "the custom resource definitions and the controller have different versions: install \
             the definitions of the controller's version"
        }
        // The Deployment cannot create pods.
        "PodsRefused" => {
            "raise the quota or correct the field in the message; the pods are made from \
             spec.replicas, spec.resources and spec.template"
        }
        // A pod does not start.
        "Unschedulable" => {
            "free resources on a node, lower spec.resources, correct node selectors in \
             spec.template, or create the volume claim in the message"
        }
        "SchedulingGated" => "remove the gate from spec.template or wait until its controller does",
        "ImagePullBackOff" | "InvalidImageName" | "ErrImageNeverPull" => {
            "correct the image in spec.template (or the chart's server.image), or add imagePullSecrets"
        }
        "CreateContainerConfigError" => {
            "create the ConfigMap or Secret in the message, or correct spec.template"
        }
        "CreateContainerError" | "RunContainerError" | "StartError" | "ContainerCannotRun" => {
            "correct command, security context or mounts in spec.template"
        }
        "FailedMount" | "FailedAttachVolume" => {
            "create the ConfigMap, Secret or volume claim in the message, or correct \
             spec.models[].uri or the volumes of spec.template"
        }
        "OOMKilled" => "raise spec.resources.limits.memory, or serve fewer or smaller models",
        "CrashLoopBackOff" | "Error" | "Completed" => {
            "see the log of the container: kubectl logs --previous"
        }
        "Unhealthy" => {
            "see the log of the server: kubectl logs; correct the probes in spec.template"
        }
        "Evicted" => "set requests and limits in spec.resources to what the pod uses",
        "TopologyAffinityError" | "SMTAlignmentError" | "UnexpectedAdmissionError" => {
            "request cpus in spec.resources that the node's CPU and topology managers can allocate"
        }
        "FailedCreatePodSandBox" => "check the container runtime and network plugin of the node",
        "EventsUnread" => {
            "allow the controller to list events.k8s.io events: helm upgrade restores its roles"
        }
        // Pods serve with problems.
        "StandbyStartFailed" => {
            "see the log of the server: kubectl logs; often a limit of processes or memory"
        }
        "FrequentRespawns" => {
            "see the log of the server before workers ended: kubectl logs; at signal 9 raise \
             spec.resources.limits.memory; a server that replaces its workers on purpose \
             (gunicorn's max_requests) should do so less often"
        }
        _ => return None,
    })
}
