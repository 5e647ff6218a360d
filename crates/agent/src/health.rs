//! What keeps the agent from its work, each with a word and a sentence of its own. Found out by looking, never by guess.

use albacore_os::{
    HostRoot, Kubepods, KubepodsError, Pid, SchedExt, UserMasks, probe_user_masks, read_sched_ext,
    read_stat,
};
use albacore_plan::Enforcement;

use crate::facts::Health;
use crate::journal::Journal;
use crate::wish::{NODE_ANNOTATION, NodeRules, Switch};

/// The bit of CAP_SYS_NICE.
const SYS_NICE_BIT: u32 = 23;

/// What was found out once, at the start.
#[derive(Clone, Debug)]
pub(crate) struct SelfTest {
    has_sys_nice: bool,
    user_masks: Option<UserMasks>,
}

impl SelfTest {
    /// Looks at this process and tries the kernel. Takes some milliseconds.
    pub(crate) fn run(host: &HostRoot, enforcement: Enforcement) -> Self {
        let enforces = enforcement == Enforcement::Enforce && host.is_live();
        Self {
            has_sys_nice: has_capability(SYS_NICE_BIT),
            user_masks: enforces.then(|| probe_user_masks(host)),
        }
    }

    /// What the flag comes to: without the right to write, nothing is tried.
    pub(crate) fn enforcement(&self, host: &HostRoot, flag: Enforcement) -> Enforcement {
        match self.has_sys_nice && host.is_live() {
            true => flag,
            false => Enforcement::Observe,
        }
    }
}

/// Whether this process has a capability in force.
fn has_capability(bit: u32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let set = line.and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok());
    set.is_some_and(|set| set & (1 << bit) != 0)
}

/// How the node stands now.
pub(crate) fn health(
    host: &HostRoot,
    test: &SelfTest,
    flag: Enforcement,
    rules: NodeRules,
    journal: &Journal,
) -> Health {
    let scheduler = read_sched_ext(host);
    let mut ills = Vec::new();
    let mut ill = |word: &'static str, text: String| ills.push((word, text));
    if read_stat(host, Pid(1)).is_err() {
        let proc = host.proc.display();
        ill(
            "HiddenProcesses",
            format!(
                "process 1 is not visible in {proc}: it is mounted with hidepid, or is not the node's"
            ),
        );
    }
    match Kubepods::find(host) {
        Ok(_) => {}
        Err(KubepodsError::NoKubelet { .. }) => ill(
            "NoKubelet",
            "the cgroup tree has no kubepods: mount that of the node".to_owned(),
        ),
        Err(error) => ill("CgroupsUnreadable", error.to_string()),
    }
    if rules.switch == Switch::Unknown {
        ill(
            "SwitchNotUnderstood",
            format!(
                "the node's annotation {NODE_ANNOTATION} is neither Observe nor None; taken as Observe"
            ),
        );
    }
    if flag == Enforcement::Enforce && !test.has_sys_nice {
        ill("NoSysNice", no_sys_nice());
    }
    if let Ok(SchedExt::Enabled) = scheduler {
        ill("ForeignScheduler", foreign_scheduler());
    }
    if let Some(text) = &journal.refused {
        ill("WriteRefused", text.clone());
    }
    if let Some((category, text)) = &journal.trouble {
        let word = match *category {
            "files_exhausted" => "FilesExhausted",
            "invariant" => "BrokenInvariant",
            "not_permitted" => "WriteRefused",
            "empty_cpuset" => "CpusetEmpty",
            "problem" => "Unsolvable",
            _ => "PlacerFailed",
        };
        ill(word, text.clone());
    }
    Health {
        idle: idle(
            host,
            test,
            flag,
            rules,
            matches!(scheduler, Ok(SchedExt::Enabled)),
        ),
        ills,
        memory: test.user_masks.as_ref().map(memory),
    }
}

fn no_sys_nice() -> String {
    "this process has no CAP_SYS_NICE: masks of others cannot be written".to_owned()
}

fn foreign_scheduler() -> String {
    "a sched_ext scheduler is active: masks are not written, it may starve threads that have one"
        .to_owned()
}

/// Why no mask is written; what a human decided first.
fn idle(
    host: &HostRoot,
    test: &SelfTest,
    flag: Enforcement,
    rules: NodeRules,
    is_foreign: bool,
) -> Option<(&'static str, String)> {
    match rules.switch {
        Switch::Absent => {}
        Switch::None => {
            let text =
                format!("the node's annotation {NODE_ANNOTATION} is None: masks were given back");
            return Some(("KillSwitch", text));
        }
        Switch::Observe | Switch::Unknown => {
            let text = format!("the node's annotation {NODE_ANNOTATION} holds the agent back");
            return Some(("KillSwitch", text));
        }
    }
    if flag == Enforcement::Observe {
        return Some(("Observe", "started with --enforcement Observe".to_owned()));
    }
    if !host.is_live() {
        let proc = host.proc.display();
        let text =
            format!("pids of {proc} cannot be named from here: run in the node's pid namespace");
        return Some(("OtherPidNamespace", text));
    }
    if !test.has_sys_nice {
        return Some(("NoSysNice", no_sys_nice()));
    }
    is_foreign.then(|| ("SchedExt", foreign_scheduler()))
}

fn memory(found: &UserMasks) -> (&'static str, &'static str, String) {
    match found {
        UserMasks::Remembered => {
            let text = "a mask comes back when its cpus do";
            ("True", "Tried", text.to_owned())
        }
        UserMasks::Forgotten => {
            let text = "any change of a cpuset wipes its masks: they are written again";
            ("False", "Tried", text.to_owned())
        }
        UserMasks::Unknown { reason } => ("Unknown", "NotTried", reason.clone()),
    }
}

#[cfg(test)]
mod tests;
