//! Distinguishes workers from arbiters, wrappers and helpers by the shape of the process tree.
//!
//! Problem: a pre-fork server is a tree such as `sh - tini - gunicorn - {gunicorn, gunicorn,
//! resource tracker}`, where each worker may have helper children of its own. Only the workers are
//! placed. The arbiter must not be pinned: masks are inherited, so its workers would share its cpu.
//!
//! Approach: walk down from the root. Children of one process are *similar* if their command lines
//! are equal except for digits (`worker 1`, `worker 2`). The first process with two or more similar
//! children is the arbiter, and these children are the workers. A process whose only such child is
//! similar to itself is also an arbiter (a fork without exec: a server with one worker left). Any
//! other process with children is a wrapper, and the walk continues in its largest subtree. A
//! process without children at the end of the walk is a non-forking server, if only one worker was
//! requested and it is old enough to have forked. If several were requested, it is a master that
//! has not forked yet, however long it imports: its workers would inherit its mask, and a runtime
//! that counts the cpus of that mask would permanently start too few threads. Because the walk
//! starts at the root, helpers of workers are never mistaken for workers. An arbiter, once found,
//! remains the arbiter, and workers are the children similar to the previous workers, so that
//! temporarily few live workers change nothing; only a larger group that persists replaces them.
//! (Between fork and exec, a child is similar to its parent, not to the workers.)
//!
//! Limitation: a server whose workers have dissimilar command lines is not recognized; this results
//! in the warning "found 1 of W workers".

use std::collections::BTreeMap;

use crate::limits::{GROUP_AGE_MICROS, NON_FORKING_AGE_MICROS, WRAPPERS_MAX};
use crate::{
    Micros, Observation, Pid, PlanHistory, Process, ProcessId, ServerKind, parse_thread_name,
};

/// Role of a process in placement.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Role {
    /// Forks the workers, or wraps the process that does. Never pinned.
    Arbiter,
    Worker,
    /// A descendant of a worker. Never pinned, but its mask is restored if it inherited a pin.
    Helper,
    /// Any other process in the tree: not modified.
    Other,
}

/// The roles of the processes of one observation.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Roles {
    roles: BTreeMap<Pid, Role>,
    /// The parent process of the workers, if any.
    pub arbiter: Option<ProcessId>,
    /// The common command line of the workers, without digits.
    pub(crate) command_pattern: Option<String>,
}

impl Roles {
    /// The role of a process of the observation.
    pub fn of(&self, process: &Process) -> Role {
        self.roles
            .get(&process.id.pid)
            .copied()
            .unwrap_or(Role::Other)
    }

    /// Overrides the role of a process, to simulate a planner bug in tests of the lint.
    #[cfg(test)]
    pub(crate) fn set(&mut self, process: &Process, role: Role) {
        self.roles.insert(process.id.pid, role);
    }
}

/// Finds the roles if the policy requests `requested` workers; `before` contains earlier findings.
pub fn find_roles(observation: &Observation, requested: u16, before: &PlanHistory) -> Roles {
    match observation.server_kind {
        ServerKind::Named => find_named(observation),
        ServerKind::PreFork => find_forked(observation, requested, before),
    }
}

fn find_named(observation: &Observation) -> Roles {
    let mut found = Roles::default();
    for (i, process) in observation.processes.iter().enumerate() {
        let is_named = process
            .threads
            .iter()
            .any(|t| parse_thread_name(&t.comm).is_some());
        let role = match found.roles.get(&process.parent) {
            _ if i == 0 => Role::Arbiter,
            Some(Role::Worker | Role::Helper) => Role::Helper,
            _ if is_named => Role::Worker,
            _ => Role::Other,
        };
        found.roles.insert(process.id.pid, role);
    }
    found.arbiter = observation.processes.first().map(|root| root.id);
    found
}

fn find_forked(observation: &Observation, requested: u16, before: &PlanHistory) -> Roles {
    let tree = ChildProcesses::new(observation);
    let mut found = Roles::default();
    let Some(mut here) = observation.processes.first() else {
        return found;
    };
    let mut workers = Vec::new();
    // bound: one level of the tree per iteration
    for _ in 0..WRAPPERS_MAX {
        found.roles.insert(here.id.pid, Role::Arbiter);
        let is_known = before.arbiter == Some(here.id);
        let group = tree.worker_group(here, before.command_pattern.as_deref().filter(|_| is_known));
        let Some(first) = group.first() else {
            // No children: the process serves requests itself, or has not forked yet.
            let is_old =
                observation.at.0.saturating_sub(here.not_before.0) >= NON_FORKING_AGE_MICROS;
            if is_known {
                // All its workers have exited at this moment; it is still the arbiter.
                found.arbiter = before.arbiter;
                found.command_pattern.clone_from(&before.command_pattern);
            } else if is_old && requested == 1 {
                workers = vec![here];
            }
            break;
        };
        let is_arbiter = group.len() >= 2 || is_known || same_command_pattern(first, here);
        if is_arbiter {
            found.arbiter = Some(here.id);
            found.command_pattern = Some(command_pattern(first));
            workers = group;
            break;
        }
        here = tree.largest_child(here).unwrap_or(first);
    }
    for worker in workers {
        // A non-forking server has no arbiter; an arbiter is never its own worker.
        found.roles.insert(worker.id.pid, Role::Worker);
    }
    for process in observation.processes.iter().skip(1) {
        let above = found.roles.get(&process.parent).copied();
        let role = match above {
            Some(Role::Worker | Role::Helper) => Role::Helper,
            _ => Role::Other,
        };
        found.roles.entry(process.id.pid).or_insert(role);
    }
    found
}

/// True if the processes have similar command lines, e.g. after a fork without exec.
fn same_command_pattern(a: &Process, b: &Process) -> bool {
    command_pattern(a) == command_pattern(b)
}

/// The command line without digits, which is common to the workers of one server. A process with an
/// empty one (it is exiting) is similar to no other, so its pid is used.
fn command_pattern(process: &Process) -> String {
    if process.cmdline.is_empty() {
        return process.id.pid.0.to_string();
    }
    process
        .cmdline
        .chars()
        .filter(|c| !c.is_ascii_digit())
        .collect()
}

struct ChildProcesses<'a> {
    at: Micros,
    children: BTreeMap<Pid, Vec<&'a Process>>,
}

impl<'a> ChildProcesses<'a> {
    fn new(observation: &'a Observation) -> Self {
        let mut children: BTreeMap<Pid, Vec<&'a Process>> = BTreeMap::new();
        for process in observation.processes.iter().skip(1) {
            children.entry(process.parent).or_default().push(process);
        }
        Self {
            at: observation.at,
            children,
        }
    }

    fn children(&self, process: &Process) -> &[&'a Process] {
        self.children
            .get(&process.id.pid)
            .map_or(&[], Vec::as_slice)
    }

    /// The children similar to the previous workers (`before`), unless a larger group persists;
    /// otherwise the largest group. Ties are broken in favor of the group similar to the parent,
    /// then of the oldest.
    fn worker_group(&self, parent: &Process, before: Option<&str>) -> Vec<&'a Process> {
        let mut groups: BTreeMap<String, Vec<&'a Process>> = BTreeMap::new();
        for &child in self.children(parent) {
            groups
                .entry(command_pattern(child))
                .or_default()
                .push(child);
        }
        if let Some(known) = before.and_then(|before| groups.get(before)) {
            let is_old =
                |p: &&&Process| self.at.0.saturating_sub(p.not_before.0) >= GROUP_AGE_MICROS;
            let lasting = |group: &Vec<&Process>| group.iter().filter(is_old).count();
            if groups.values().all(|group| lasting(group) <= known.len()) {
                return known.clone();
            }
        }
        let own = command_pattern(parent);
        let rank = |key: &String, group: &[&Process]| {
            let oldest = group.iter().map(|p| p.id).min();
            (group.len(), *key == own, std::cmp::Reverse(oldest))
        };
        let largest = groups
            .into_iter()
            .max_by_key(|(key, group)| rank(key, group));
        largest.map(|(_, group)| group).unwrap_or_default()
    }

    fn largest_child(&self, parent: &Process) -> Option<&'a Process> {
        let oldest = |p: &Process| std::cmp::Reverse(p.id);
        self.children(parent)
            .iter()
            .copied()
            .max_by_key(|p| (self.size(p, WRAPPERS_MAX), oldest(p)))
    }

    /// Number of processes in the subtree, down to `depth` levels.
    fn size(&self, process: &Process, depth: usize) -> usize {
        if depth == 0 {
            return 1;
        }
        1 + self
            .children(process)
            .iter()
            .map(|child| self.size(child, depth - 1))
            .sum::<usize>()
    }
}

#[cfg(test)]
mod tests;
