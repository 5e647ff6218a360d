//! Converts the report of a node's agent into the placer's problem, or into the reason why no plan
//! can be made from it.

use albacore_api::{Isolation, NodePlacement, NodePlacementStatus, PodPlacement};
use albacore_placer::{NodeProblem, PlaceableServer};
use albacore_plan::{
    Enforcement, MainThread, PlacementMethod, SubjectPolicy, masks_hash, parse_mapping_text,
};
use albacore_solver::{Mapping, Slot};
use albacore_topology::{CpuId, CpuSet, Topology, decode_run_length, parse_topology_text};
use albacore_values::sentence;
use k8s_openapi::jiff::Timestamp;

use crate::limits::{NODE_FIXED_THREADS_MAX, REPORT_AGE_MAX};

/// A node for which plans can be made.
#[derive(Debug)]
pub struct NodeView {
    pub name: String,
    pub machine: Topology,
    pub pods: Vec<PodView>,
    obstacle_cpus: Vec<CpuId>,
    /// Why its agent does not write masks, according to its report.
    pub not_enforcing: Option<String>,
}

/// A placed pod of a node.
#[derive(Debug)]
pub struct PodView {
    /// Name in the report: `namespace/name`.
    pub name: String,
    pub placement: PodPlacement,
    pub cpuset: CpuSet,
    /// `None` if the placement is left to the kernel.
    pub plan: Option<PlanView>,
}

/// The plan of a pod that is in force.
#[derive(Clone, Debug)]
pub struct PlanView {
    pub mapping: Mapping,
    /// Position among the pods that are planned jointly.
    order: Option<i32>,
    pub policy: SubjectPolicy,
    /// Whether the hash of these masks equals the plan hash that the agent reports.
    pub is_confirmed: bool,
}

impl NodeView {
    /// Parses a report.
    ///
    /// # Errors
    /// A sentence that says why nothing can be planned.
    pub fn of(report: &NodePlacement, now: Timestamp) -> Result<Self, String> {
        let name = report.metadata.name.clone().unwrap_or_default();
        let Some(status) = &report.status else {
            return Err("unknown: its agent has not reported yet".to_owned());
        };
        refuse_old(status, now)?;
        let machine = machine_of(status)?;
        let hash = machine.hash64();
        let mut pods = Vec::new();
        for placement in &status.pods {
            let is_placed = placement.plan.is_some() || placement.cpuset.is_some();
            if is_placed {
                pods.push(PodView::of(placement, hash)?);
            }
        }
        let fixed = status.fixed_threads.as_deref().unwrap_or_default();
        let fixed = decode_run_length(fixed, NODE_FIXED_THREADS_MAX)
            .map_err(|e| format!("fixedThreads of its report: {}", sentence(&e)))?;
        let fixed = fixed.into_iter().filter_map(|cpu| u16::try_from(cpu).ok());
        let mut conditions = status.conditions.iter();
        let enforcing = conditions.find(|c| c.type_ == "Enforcing" && c.status == "False");
        Ok(Self {
            name,
            machine,
            pods,
            obstacle_cpus: fixed.map(CpuId).collect(),
            not_enforcing: enforcing.map(|c| format!("{}: {}", c.reason, c.message)),
        })
    }

    /// The CPUs shared by pods without exclusive CPUs, and the assumption made to determine them.
    pub fn shared_pool(&self) -> (CpuSet, Option<String>) {
        let is_shared = |pod: &&PodView| pod.placement.isolation != Isolation::Exclusive;
        let mut pools: Vec<&CpuSet> = self
            .pods
            .iter()
            .filter(is_shared)
            .map(|p| &p.cpuset)
            .collect();
        pools.sort_by_key(|pool| std::cmp::Reverse(pool.len()));
        let Some(largest) = pools.first() else {
            let taken = self
                .pods
                .iter()
                .fold(CpuSet::new(), |all, p| all.union(&p.cpuset));
            let pool = self.machine.cpuset().difference(&taken);
            let text = "no pod in the report shows which cpus the kubelet shares between pods: all \
                        but those of pods with exclusive cpus are assumed";
            return (pool, Some(text.to_owned()));
        };
        let differ = pools.iter().any(|pool| pool != largest);
        let text = format!(
            "pods that share cpus have different cpusets: the largest, {largest}, is assumed"
        );
        ((*largest).clone(), differ.then_some(text))
    }

    /// Whether the kubelet assigns exclusive CPUs: true if a reported pod has some.
    pub fn has_exclusive_pods(&self) -> bool {
        let mut pods = self.pods.iter();
        pods.any(|pod| pod.placement.isolation == Isolation::Exclusive)
    }

    /// The pods that are planned jointly, in the order of the placer, as indexes of `pods`.
    pub fn servers(&self) -> Vec<usize> {
        let order = |at: usize| self.pods[at].plan.as_ref().and_then(|plan| plan.order);
        let mut servers: Vec<usize> = (0..self.pods.len())
            .filter(|&at| order(at).is_some())
            .collect();
        servers.sort_by_key(|&at| order(at));
        servers
    }

    /// The problem of the node with these servers, and with the cpusets of new containers.
    pub fn problem(
        &self,
        servers: Vec<PlaceableServer>,
        new_containers: &[CpuSet],
    ) -> NodeProblem<'_> {
        let pods = self.pods.iter();
        let mut containers: Vec<CpuSet> = pods.map(|pod| pod.cpuset.clone()).collect();
        containers.extend_from_slice(new_containers);
        NodeProblem {
            machine: &self.machine,
            servers,
            obstacle_cpus: self.obstacle_cpus.clone(),
            known: containers.iter().fold(CpuSet::new(), |all, c| all.union(c)),
            containers,
        }
    }

    /// A pod as a server of the problem, with its mapping in force.
    pub fn server(&self, at: usize) -> Option<PlaceableServer> {
        let pod = self.pods.get(at)?;
        let plan = pod.plan.as_ref()?;
        Some(PlaceableServer {
            policy: plan.policy.clone(),
            cpuset: pod.cpuset.clone(),
            current: Some(plan.mapping.clone()),
            is_warm: true,
        })
    }
}

impl PodView {
    fn of(placement: &PodPlacement, machine: u64) -> Result<Self, String> {
        let name = &placement.pod;
        let wrong = |what: &str, error: &dyn std::error::Error| {
            format!("{what} of pod {name} in its report: {}", sentence(error))
        };
        let cpuset = placement.cpuset.as_deref().unwrap_or_default();
        let cpuset: CpuSet = cpuset.parse().map_err(|e| wrong("cpuset", &e))?;
        let plan = match (&placement.mapping, &placement.plan) {
            (None, None) => None,
            (None, Some(_)) => {
                return Err(format!(
                    "its report leaves out the mapping of pod {name}: with those of all pods it \
                     would be too large; `albacore-agent dump` on the node shows them"
                ));
            }
            (Some(_), _) if cpuset.is_empty() => {
                return Err(format!(
                    "its report does not say which cpus pod {name} may use"
                ));
            }
            (Some(published), plan) => {
                let mapping = parse_mapping_text(&published.cpus);
                let mapping = mapping.map_err(|e| wrong("mapping", &e))?;
                let distances = match published.distances.as_deref() {
                    None => Default::default(),
                    Some(text) => text
                        .parse()
                        .map_err(|e: albacore_topology::DistancesError| wrong("distances", &e))?,
                };
                let policy = SubjectPolicy {
                    workers: u16::try_from(mapping.cpus.len()).unwrap_or(u16::MAX)
                        / mapping.threads.max(1),
                    threads: mapping.threads,
                    mode: published.mode.into(),
                    placement: PlacementMethod::Tuna,
                    enforcement: Enforcement::Enforce,
                    main_thread: MainThread::Pinned,
                    distances,
                    is_pool_size_known: true,
                };
                Some(PlanView {
                    is_confirmed: is_hash_of(plan.as_deref(), &mapping, machine),
                    mapping,
                    order: published.order,
                    policy,
                })
            }
        };
        Ok(Self {
            name: name.clone(),
            placement: placement.clone(),
            cpuset,
            plan,
        })
    }
}

/// Whether the agent's hash matches a mapping in which main threads are pinned either to one CPU
/// each, or to all CPUs of their worker.
fn is_hash_of(reported: Option<&str>, mapping: &Mapping, machine: u64) -> bool {
    let of_worker = |slot: Slot| -> CpuSet {
        let all = mapping
            .iter()
            .filter(|(other, _)| other.worker == slot.worker);
        all.map(|(_, cpu)| cpu).collect()
    };
    [false, true].into_iter().any(|is_worker_set| {
        let masks: Vec<(Slot, CpuSet)> = mapping
            .iter()
            .map(|(slot, cpu)| match is_worker_set && slot.rank.0 == 0 {
                true => (slot, of_worker(slot)),
                false => (slot, [cpu].into_iter().collect()),
            })
            .collect();
        let hash = masks_hash(machine, masks.iter().map(|(slot, mask)| (*slot, mask)));
        hash.map(|hash| format!("{hash:08x}")).as_deref() == reported
    })
}

fn refuse_old(status: &NodePlacementStatus, now: Timestamp) -> Result<(), String> {
    let Some(verified) = &status.last_verification_time else {
        return Err("unknown: its agent has not read masks back yet".to_owned());
    };
    let age = now.duration_since(verified.0);
    if age > REPORT_AGE_MAX {
        return Err(format!(
            "unknown: its agent reported last {} s ago, and does so every 30 to 40 s while it runs",
            age.as_secs()
        ));
    }
    Ok(())
}

fn machine_of(status: &NodePlacementStatus) -> Result<Topology, String> {
    let Some(text) = &status.cpu_topology else {
        let mut conditions = status.conditions.iter();
        let omitted = conditions.find(|c| c.type_ == "TopologyOmitted");
        return Err(match omitted {
            Some(condition) => condition.message.clone(),
            None => "its agent publishes no topology: it is of an older version; upgrade Albacore"
                .to_owned(),
        });
    };
    let machine = parse_topology_text(text)
        .map_err(|e| format!("cpuTopology of its report: {}", sentence(&e)))?;
    let hash = machine.hash_hex();
    match &status.topology {
        Some(reported) if *reported != hash => Err(format!(
            "cpuTopology of its report has the hash {hash}, but topology is {reported}: use the \
             albacore of the agent's version"
        )),
        _ => Ok(machine),
    }
}

#[cfg(test)]
mod tests;
