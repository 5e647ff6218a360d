//! Problems that limit the agent, each with a stable code and a sentence. Every cause is observed
//! directly, not inferred.

use std::process::Command;

use albacore_os::{
    HostRoot, Kubepods, KubepodsError, MaskRestoration, Pid, Pinning, SchedExt, is_read_only,
    probe_mask_restoration, probe_pinning, read_hidepid, read_sched_ext, read_stat,
};
use albacore_plan::Enforcement;

use crate::desired::{KillSwitch, NODE_ANNOTATION, NodeRules};
use crate::facts::{Health, MaskRestorationState, Reason};
use crate::placer_stats::{FILES_EXHAUSTED, PlacerStats};

/// Results of the probes run once at startup.
#[derive(Clone, Debug)]
pub(crate) struct SelfTest {
    has_sys_nice: bool,
    has_read_only_cgroups: bool,
    mask_restoration: Option<MaskRestoration>,
}

impl SelfTest {
    /// Probes this process and the kernel; takes some milliseconds.
    pub(crate) fn run(host: &HostRoot, enforcement: Enforcement) -> Self {
        let enforces = enforcement == Enforcement::Enforce && host.is_live();
        Self {
            has_sys_nice: probe_pinning(host) == Pinning::Permitted,
            has_read_only_cgroups: is_read_only(&host.cgroup).unwrap_or(false),
            mask_restoration: enforces.then(|| probe_mask_restoration(host, sleeper())),
        }
    }

    /// The possible enforcement: `Observe` without the capability to write masks, otherwise `flag`.
    pub(crate) fn enforcement(&self, host: &HostRoot, flag: Enforcement) -> Enforcement {
        match self.has_sys_nice && host.is_live() {
            true => flag,
            false => Enforcement::Observe,
        }
    }

    fn mask_restoration_state(&self) -> Option<MaskRestorationState> {
        let found = self.mask_restoration.as_ref()?;
        Some(mask_restoration_state(found, self.has_read_only_cgroups))
    }
}

/// A process that sleeps. It runs this program, because the container image contains no other.
fn sleeper() -> Command {
    let mut command = Command::new("/proc/self/exe");
    command.arg("idle");
    command
}

/// The agent's current health.
pub(crate) fn health(
    host: &HostRoot,
    test: &SelfTest,
    rules: NodeRules,
    stats: &PlacerStats,
) -> Health {
    let failure = stats.failure.as_ref();
    let exhausted = failure.filter(|failure| failure.category == FILES_EXHAUSTED);
    if let Some(failure) = exhausted {
        // The other checks would fail because of missing file descriptors and report a wrong cause.
        return Health {
            not_enforcing: not_enforcing(host, test, rules, false),
            degraded: vec![Reason::new("FilesExhausted", &failure.message)],
            mask_restoration_state: test.mask_restoration_state(),
        };
    }
    let is_sched_ext = matches!(read_sched_ext(host), Ok(SchedExt::Enabled));
    let mut degraded = node_problems(host);
    if rules.kill_switch == KillSwitch::Invalid {
        degraded.push(Reason::new(
            "SwitchNotUnderstood",
            format!(
                "the node's annotation {NODE_ANNOTATION} is neither Observe nor None; treated as \
                 Observe"
            ),
        ));
    }
    if rules.enforcement == Enforcement::Enforce && !test.has_sys_nice {
        degraded.push(Reason::new("NoSysNice", NO_SYS_NICE));
    }
    if is_sched_ext {
        degraded.push(Reason::new("ForeignScheduler", FOREIGN_SCHEDULER));
    }
    degraded.extend(placer_problems(stats));
    Health {
        not_enforcing: not_enforcing(host, test, rules, is_sched_ext),
        degraded,
        mask_restoration_state: test.mask_restoration_state(),
    }
}

/// Resources of the node that cannot be read.
fn node_problems(host: &HostRoot) -> Vec<Reason> {
    let hidden = hidden_processes(host).map(|text| Reason::new("HiddenProcesses", text));
    let cgroups = match Kubepods::find(host) {
        Ok(_) => None,
        Err(KubepodsError::NoKubelet { .. }) => Some(Reason::new(
            "NoKubelet",
            "the cgroup tree has no kubepods: mount the cgroup tree of the node",
        )),
        Err(error) => Some(Reason::new("CgroupsUnreadable", error.to_string())),
    };
    hidden.into_iter().chain(cgroups).collect()
}

/// Limitations that the placer reported.
fn placer_problems(stats: &PlacerStats) -> impl Iterator<Item = Reason> {
    let polling = stats.polling_reason.as_ref();
    let polling = polling.map(|text| Reason::new("BirthsPolled", text));
    let refusal = stats.write_refusal.as_ref();
    let refusal = refusal.map(|text| Reason::new("WriteRefused", text));
    let distances = stats.distances_problem.as_ref();
    let distances = distances.map(|text| Reason::new("DistancesIgnored", text));
    let failure = stats.failure.as_ref();
    let failure = failure.map(|failure| {
        let code = match failure.category {
            "invariant" => "BrokenInvariant",
            "not_permitted" => "WriteRefused",
            "empty_cpuset" => "CpusetEmpty",
            "problem" => "Unsolvable",
            _ => "PlacerFailed",
        };
        Reason::new(code, &failure.message)
    });
    let of_placer = polling.into_iter().chain(refusal).chain(failure);
    of_placer.chain(distances)
}

/// Why processes of other users cannot be seen. Tested by reading process 1 instead of the mount
/// options, because hidepid exempts a group of which this process may be a member.
fn hidden_processes(host: &HostRoot) -> Option<String> {
    read_stat(host, Pid(1)).err()?;
    let proc = host.proc.display();
    Some(match read_hidepid(host) {
        Ok(Some(option)) => {
            format!("{proc} is mounted with {option}: threads of other users are hidden")
        }
        _ => format!("process 1 is not visible in {proc}: it is not the procfs of the node"),
    })
}

const NO_SYS_NICE: &str =
    "this process has no CAP_SYS_NICE: masks of other processes cannot be written";

const FOREIGN_SCHEDULER: &str =
    "a sched_ext scheduler is active: masks are not written, because it may starve pinned threads";

/// Why no mask is written. A decision of the operator takes precedence over a limitation of the
/// system.
fn not_enforcing(
    host: &HostRoot,
    test: &SelfTest,
    rules: NodeRules,
    is_sched_ext: bool,
) -> Option<Reason> {
    match rules.kill_switch {
        KillSwitch::Absent => {}
        KillSwitch::None => {
            let text =
                format!("the node's annotation {NODE_ANNOTATION} is None: masks were restored");
            return Some(Reason::new("KillSwitch", text));
        }
        KillSwitch::Observe | KillSwitch::Invalid => {
            let text = format!(
                "the node's annotation {NODE_ANNOTATION} does not allow the agent to write masks"
            );
            return Some(Reason::new("KillSwitch", text));
        }
    }
    if rules.enforcement == Enforcement::Observe {
        return Some(Reason::new("Observe", "started with --enforcement Observe"));
    }
    if !host.is_live() {
        let proc = host.proc.display();
        let text = format!(
            "{proc} belongs to another pid namespace: run the agent in the node's pid namespace"
        );
        return Some(Reason::new("OtherPidNamespace", text));
    }
    if !test.has_sys_nice {
        return Some(Reason::new("NoSysNice", NO_SYS_NICE));
    }
    is_sched_ext.then(|| Reason::new("SchedExt", FOREIGN_SCHEDULER))
}

fn mask_restoration_state(found: &MaskRestoration, is_read_only: bool) -> MaskRestorationState {
    let (status, code, text) = match found {
        MaskRestoration::Restored => (
            "True",
            "Tried",
            "the kernel restores a mask when its cpus return",
        ),
        MaskRestoration::Lost => (
            "False",
            "Tried",
            "any change of a cpuset resets its masks: they are written again",
        ),
        // Only informative: every mask is read back after its cpuset changed.
        MaskRestoration::Unknown { .. } if is_read_only => (
            "Unknown",
            "ReadOnlyCgroups",
            "the cgroups are mounted read-only: the behavior of the kernel was not tested",
        ),
        MaskRestoration::Unknown { reason } => ("Unknown", "NotTried", reason.as_str()),
    };
    MaskRestorationState {
        status,
        reason: Reason::new(code, text),
    }
}

#[cfg(test)]
mod tests;
