//! A new pod of a deployment: its policy, with threads limited by its CPU quota, and its resource
//! requests.

use albacore_api::{InferenceDeployment, SERVER_CONTAINER, cpus_of_quantity, policy_of};
use albacore_placer::threads_within_quota;
use albacore_plan::SubjectPolicy;
use k8s_openapi::api::core::v1::{Container, ResourceRequirements};

/// What a new pod of a deployment needs: its policy and its cpus.
#[derive(Clone, Debug)]
pub struct PodRequirements {
    /// Policy with the threads that the CPU quota can run.
    pub policy: SubjectPolicy,
    pub threads_requested: u16,
    /// CPUs requested by all its containers.
    pub requested: f64,
    /// Whole CPUs that a kubelet with the static CPU manager policy assigns exclusively to the
    /// server.
    pub exclusive: Option<u32>,
}

impl PodRequirements {
    /// The new pod of a valid deployment.
    pub fn of(deployment: &InferenceDeployment) -> Self {
        let spec = &deployment.spec;
        let requested = policy_of(spec);
        let template = spec.template.as_ref().and_then(|t| t.spec.as_ref());
        let containers = template.map_or(&[][..], |pod| &pod.containers);
        let is_server = |c: &&Container| c.name == SERVER_CONTAINER;
        // The container in the template overrides spec.resources.
        let own = containers
            .iter()
            .find(is_server)
            .and_then(|c| c.resources.as_ref());
        let server = Resources::of([spec.resources.as_ref(), own]);
        let others = containers.iter().filter(|c| !is_server(c));
        let others: Vec<Resources> = others
            .map(|c| Resources::of([c.resources.as_ref(), None]))
            .collect();
        let is_guaranteed = others.iter().chain([&server]).all(Resources::is_guaranteed);
        let whole = server
            .limit
            .filter(|cpus| *cpus >= 1.0 && cpus.fract() == 0.0);
        let millicpus = server.limit.map(|cpus| (cpus * 1_000.0).round() as u32);
        let threads = threads_within_quota(requested.workers, requested.threads, millicpus);
        Self {
            threads_requested: requested.threads,
            policy: SubjectPolicy {
                threads,
                ..requested
            },
            requested: others
                .iter()
                .chain([&server])
                .filter_map(|r| r.request)
                .sum(),
            exclusive: whole.filter(|_| is_guaranteed).map(|cpus| cpus as u32),
        }
    }
}

/// CPU resources of a container.
#[derive(Default, Debug)]
struct Resources {
    /// The request, or the limit if no request is set.
    request: Option<f64>,
    limit: Option<f64>,
    has_equal_memory: bool,
}

impl Resources {
    /// Merges requirements; later ones override earlier ones per resource.
    fn of(all: [Option<&ResourceRequirements>; 2]) -> Self {
        let value = |is_limit: bool, name: &str| {
            let lists = all.iter().flatten().rev();
            let mut values = lists.filter_map(|requirements| {
                let list = if is_limit {
                    &requirements.limits
                } else {
                    &requirements.requests
                };
                list.as_ref()?.get(name)
            });
            values.next().map(|quantity| quantity.0.as_str())
        };
        let cpus = |is_limit: bool| value(is_limit, "cpu").and_then(cpus_of_quantity);
        // Memory quantities use the same format as CPU quantities.
        let memory = |is_limit: bool| value(is_limit, "memory").and_then(cpus_of_quantity);
        let limit = cpus(true);
        Self {
            request: cpus(false).or(limit),
            limit,
            has_equal_memory: memory(true)
                .is_some_and(|most| memory(false).unwrap_or(most) == most),
        }
    }

    /// Whether it permits the QoS class Guaranteed for its pod.
    fn is_guaranteed(&self) -> bool {
        self.limit.is_some() && self.request == self.limit && self.has_equal_memory
    }
}

#[cfg(test)]
mod tests {
    use albacore_api::read_deployment;
    use serde_json::{Value, json};

    use super::*;

    fn requirements(spec: &Value) -> PodRequirements {
        let mut object = json!({"apiVersion": "albacore.dev/v1beta1", "kind": "InferenceDeployment",
            "metadata": {"name": "fraud"}, "spec": {"workers": 2, "threads": 4,
                "models": [{"name": "m", "uri": "pvc://a/m.ubj"}]}});
        for (field, value) in spec.as_object().unwrap() {
            object["spec"][field] = value.clone();
        }
        PodRequirements::of(&read_deployment(&object.to_string(), "f").unwrap())
    }

    #[test]
    fn a_limit_of_cpus_leaves_fewer_threads_and_whole_ones_may_be_exclusive() {
        let free = requirements(&json!({}));
        assert_eq!(
            (free.policy.threads, free.requested, free.exclusive),
            (4, 0.0, None)
        );
        let of = |limits: Value, requests: Value| {
            let it = requirements(&json!({"resources": {"limits": limits, "requests": requests}}));
            (
                it.policy.threads,
                it.threads_requested,
                it.requested,
                it.exclusive,
            )
        };
        let memory = "1Gi";
        assert_eq!(
            of(json!({"cpu": "4", "memory": memory}), json!({})),
            (2, 4, 4.0, Some(4))
        );
        assert_eq!(
            of(
                json!({"cpu": "4", "memory": memory}),
                json!({"memory": "1024Mi"})
            )
            .3,
            Some(4)
        );
        assert_eq!(
            of(json!({"cpu": "4"}), json!({})).3,
            None,
            "no memory: Burstable"
        );
        assert_eq!(
            of(json!({"cpu": "4", "memory": memory}), json!({"cpu": "3"})),
            (2, 4, 3.0, None)
        );
        assert_eq!(
            of(json!({"cpu": "4500m", "memory": memory}), json!({})),
            (2, 4, 4.5, None)
        );
        let sidecar = json!({"template": {"spec": {"containers": [
            {"name": "server", "resources": {"limits": {"cpu": "8", "memory": memory}}},
            {"name": "proxy", "image": "x", "resources": {"requests": {"cpu": "250m"}}}]}}});
        let it = requirements(&sidecar);
        assert_eq!(
            (it.policy.threads, it.requested, it.exclusive),
            (4, 8.25, None)
        );
    }
}
