//! Remedies for reasons of conditions. The controller appends them to messages, and `albacore
//! explain` prints them.

/// The remedy for a condition or a pod with this `reason`; `None` if its message contains one, or
/// if the problem resolves itself.
pub fn remedy_of(reason: &str) -> Option<&'static str> {
    Some(match reason {
        // A child was rejected.
        "QuotaExceeded" => {
            "raise the ResourceQuota that is named, or ask for less in spec.resources and spec.replicas"
        }
        "NamespaceTerminating" => "the namespace is being deleted: use another one",
        "AdmissionDenied" => {
            "change the spec as the policy or webhook that is named asks, or have it exempt this \
             namespace"
        }
        "MissingPermission" => {
            "give the controller the right that is named: helm upgrade restores its roles, and \
             controller.watchNamespaces must hold this namespace"
        }
        "ChildRefused" => "correct the field that is named, in spec or spec.template",
        "KindNotServed" => {
            "it is tried again each second, for the API server learns of new kinds within half a \
             minute; if it lasts, install the custom resource definitions"
        }
        "WriteFailed" => "it is tried again; if it lasts, see the webhook or the API server's log",
        "SchemaOutdated" => {
            "the custom resource definitions are of another version than the controller: install \
             those of its version"
        }
        // The Deployment cannot create pods.
        "PodsRefused" => {
            "raise the quota or change what the message names; the pods come from spec.replicas, \
             spec.resources and spec.template"
        }
        // A pod does not start.
        "Unschedulable" => {
            "free room on a node, ask for less in spec.resources, correct node selectors in \
             spec.template, or create the volume claim that is named"
        }
        "SchedulingGated" => "have whoever set the scheduling gate of spec.template remove it",
        "ImagePullBackOff" | "InvalidImageName" | "ErrImageNeverPull" => {
            "correct the image in spec.template (or the chart's server.image), or add imagePullSecrets"
        }
        "CreateContainerConfigError" => {
            "create the ConfigMap or Secret that is named, or correct spec.template"
        }
        "CreateContainerError" | "RunContainerError" | "StartError" | "ContainerCannotRun" => {
            "correct command, security context or mounts in spec.template"
        }
        "FailedMount" | "FailedAttachVolume" => {
            "create the ConfigMap, Secret or volume claim that is named, or correct \
             spec.models[].uri or the volumes of spec.template"
        }
        "OOMKilled" => "raise spec.resources.limits.memory, or serve fewer or smaller models",
        "CrashLoopBackOff" | "Error" | "Completed" => {
            "see what the container wrote: kubectl logs --previous"
        }
        "Unhealthy" => {
            "see what the server says: kubectl logs; correct the probes in spec.template"
        }
        "Evicted" => "give the pod requests and limits for what it uses, in spec.resources",
        "TopologyAffinityError" | "SMTAlignmentError" | "UnexpectedAdmissionError" => {
            "ask for cpus that the node's CPU and topology manager can give, in spec.resources"
        }
        "FailedCreatePodSandBox" => "see the container runtime and the network plugin of its node",
        "EventsUnread" => {
            "let the controller list events.k8s.io events: helm upgrade restores its roles"
        }
        // Pods serve with problems.
        "StandbyStartFailed" => {
            "see what the server wrote: kubectl logs; a limit of processes or memory is the usual cause"
        }
        "FrequentRespawns" => {
            "see what the server wrote before workers ended: kubectl logs; at signal 9 raise \
             spec.resources.limits.memory; a server that replaces its workers on purpose \
             (gunicorn's max_requests) should do so more rarely"
        }
        _ => return None,
    })
}
