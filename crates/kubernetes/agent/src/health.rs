//! What keeps the agent from its work, each with a word and a sentence of its own. Found out by
//! looking, never by guess.

use std::process::Command;

use albacore_os::{
    HostRoot, Kubepods, KubepodsError, Pid, Pinning, SchedExt, UserMasks, is_read_only,
    probe_pinning, probe_user_masks_by, read_hidepid, read_sched_ext, read_stat,
};
use albacore_plan::Enforcement;

use crate::facts::Health;
use crate::journal::Journal;
use crate::wish::{NODE_ANNOTATION, NodeRules, Switch};

/// What was found out once, at the start.
#[derive(Clone, Debug)]
pub(crate) struct SelfTest {
    has_sys_nice: bool,
    has_read_only_cgroups: bool,
    user_masks: Option<UserMasks>,
}

impl SelfTest {
    /// Looks at this process and tries the kernel. Takes some milliseconds.
    pub(crate) fn run(host: &HostRoot, enforcement: Enforcement) -> Self {
        let enforces = enforcement == Enforcement::Enforce && host.is_live();
        Self {
            has_sys_nice: probe_pinning(host) == Pinning::Permitted,
            has_read_only_cgroups: is_read_only(&host.cgroup).unwrap_or(false),
            user_masks: enforces.then(|| probe_user_masks_by(host, sleeper())),
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

/// This program, asleep: its image holds no other.
fn sleeper() -> Command {
    let mut command = Command::new("/proc/self/exe");
    command.arg("idle");
    command
}

/// How the node stands now.
pub(crate) fn health(
    host: &HostRoot,
    test: &SelfTest,
    flag: Enforcement,
    rules: NodeRules,
    journal: &Journal,
) -> Health {
    if let Some(("files_exhausted", text)) = &journal.trouble {
        // Nothing can be read, so what the looks below would find is not so.
        return Health {
            idle: idle(host, test, flag, rules, false),
            ills: vec![("FilesExhausted", text.clone())],
            memory: test
                .user_masks
                .as_ref()
                .map(|found| memory(found, test.has_read_only_cgroups)),
        };
    }
    let scheduler = read_sched_ext(host);
    let mut ills = Vec::new();
    let mut ill = |word: &'static str, text: String| ills.push((word, text));
    if let Some(text) = hidden(host) {
        ill("HiddenProcesses", text);
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
    if let Some(text) = &journal.deaf {
        ill("BirthsPolled", text.clone());
    }
    if let Some(text) = &journal.refused {
        ill("WriteRefused", text.clone());
    }
    if let Some((category, text)) = &journal.trouble {
        let word = word_of(category);
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
        memory: test
            .user_masks
            .as_ref()
            .map(|found| memory(found, test.has_read_only_cgroups)),
    }
}

/// The stable word for what the placer cannot do.
fn word_of(category: &str) -> &'static str {
    match category {
        "invariant" => "BrokenInvariant",
        "not_permitted" => "WriteRefused",
        "empty_cpuset" => "CpusetEmpty",
        "problem" => "Unsolvable",
        _ => "PlacerFailed",
    }
}

/// Why processes of others cannot be seen. Looked at, not concluded: an option that hides them
/// spares a group, and this process may be in it.
fn hidden(host: &HostRoot) -> Option<String> {
    read_stat(host, Pid(1)).err()?;
    let proc = host.proc.display();
    Some(match read_hidepid(host) {
        Ok(Some(option)) => {
            format!("{proc} is mounted with {option}: others' threads are hidden")
        }
        _ => format!("process 1 is not visible in {proc}: it is not that of the node"),
    })
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

fn memory(found: &UserMasks, is_read_only: bool) -> (&'static str, &'static str, String) {
    match found {
        UserMasks::Remembered => {
            let text = "a mask comes back when its cpus do";
            ("True", "Tried", text.to_owned())
        }
        UserMasks::Forgotten => {
            let text = "any change of a cpuset wipes its masks: they are written again";
            ("False", "Tried", text.to_owned())
        }
        // Either way every mask is read and none is taken for remembered.
        UserMasks::Unknown { .. } if is_read_only => {
            let text = "the cgroups are mounted read-only: what the kernel does was not tried";
            ("Unknown", "ReadOnlyCgroups", text.to_owned())
        }
        UserMasks::Unknown { reason } => ("Unknown", "NotTried", reason.clone()),
    }
}

#[cfg(test)]
mod tests;
