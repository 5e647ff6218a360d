//! Tells workers from arbiters, wrappers and helpers by the shape of the process tree.
//!
//! Problem: a pre-fork server is a tree such as `sh - tini - gunicorn - {gunicorn, gunicorn,
//! resource tracker}`, each worker perhaps with helper children of its own. Only the workers are
//! placed. The arbiter must not be: masks are inherited, so a pinned arbiter would spawn
//! workers that share its cpu.
//!
//! Approach: walk down from the root. Children of one process are *like* each other if their
//! command lines agree but for digits (`worker 1`, `worker 2`). The first process with two or more
//! like children is the arbiter, and they are the workers; so is one whose only such child is like
//! itself (a fork without exec: a server with one worker left). Anything else with children is a
//! wrapper, and the walk goes on in its largest subtree. A process without children at the end of
//! the walk is a server that does not fork, if only one worker was asked for and it is old enough
//! to have forked. Where several were asked for it is a master that has not come to forking,
//! however long it imports: its workers would inherit its mask, and a runtime that counts the cpus
//! of that mask would start too few threads for good. Because the walk starts at the top, helpers
//! of workers are never taken for workers. An arbiter once found stays arbiter, and the workers
//! stay those like the workers before, so that a moment with few live workers changes nothing; only
//! a larger group that lasts takes their place. (Between fork and exec a child looks like its
//! parent, not like the workers.)
//!
//! Limits: a server whose workers have nothing in common in their command lines is not recognized;
//! the warning "found 1 of W workers" says so.

use std::collections::BTreeMap;

use crate::limits::{GROUP_AGE_MICROS, LONER_AGE_MICROS, WRAPPERS_MAX};
use crate::{Ledger, Micros, Observation, Pid, Process, ProcessId, ServerKind, parse_thread_name};

/// What a process is to the placement.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Role {
    /// Spawns workers, or wraps the process that does. Never pinned.
    Arbiter,
    Worker,
    /// A descendant of a worker. Never pinned, but given its mask back if it inherited a pin.
    Helper,
    /// Anything else in the tree: not touched.
    Other,
}

/// The roles of the processes of one observation.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Roles {
    roles: BTreeMap<Pid, Role>,
    /// The process whose children the workers are, if there is one.
    pub arbiter: Option<ProcessId>,
    /// What the workers have in common.
    pub(crate) command_shape: Option<String>,
}

impl Roles {
    /// The role of a process of the observation.
    pub fn of(&self, process: &Process) -> Role {
        self.roles
            .get(&process.id.pid)
            .copied()
            .unwrap_or(Role::Other)
    }

    /// Replaces the role of a process: a fault of the planner, for tests of the lint.
    #[cfg(test)]
    pub(crate) fn set(&mut self, process: &Process, role: Role) {
        self.roles.insert(process.id.pid, role);
    }
}

/// Finds the roles where the policy asks for `asked` workers; the ledger holds what was found
/// before.
pub fn find_roles(observation: &Observation, asked: u16, before: &Ledger) -> Roles {
    match observation.server_kind {
        ServerKind::Named => find_named(observation),
        ServerKind::PreFork => find_forked(observation, asked, before),
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

fn find_forked(observation: &Observation, asked: u16, before: &Ledger) -> Roles {
    let tree = ProcessTree::new(observation);
    let mut found = Roles::default();
    let Some(mut here) = observation.processes.first() else {
        return found;
    };
    let mut workers = Vec::new();
    // bound: one level of the tree per turn
    for _ in 0..WRAPPERS_MAX {
        found.roles.insert(here.id.pid, Role::Arbiter);
        let is_known = before.arbiter == Some(here.id);
        let group = tree.worker_group(here, before.command_shape.as_deref().filter(|_| is_known));
        let Some(first) = group.first() else {
            // Nothing was forked: the process serves by itself, or has not come to forking yet.
            let is_old = observation.at.0.saturating_sub(here.born.0) >= LONER_AGE_MICROS;
            if is_known {
                // All its workers are gone at this moment; it is the arbiter all the same.
                found.arbiter = before.arbiter;
                found.command_shape.clone_from(&before.command_shape);
            } else if is_old && asked == 1 {
                workers = vec![here];
            }
            break;
        };
        let is_arbiter = group.len() >= 2 || is_known || same_shape(first, here);
        if is_arbiter {
            found.arbiter = Some(here.id);
            found.command_shape = Some(command_shape(first));
            workers = group;
            break;
        }
        here = tree.largest_child(here).unwrap_or(first);
    }
    for worker in workers {
        // A server that does not fork has no arbiter; an arbiter is never its own worker.
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

/// True if one process is a fork of the other without an exec, or they do the same job.
fn same_shape(a: &Process, b: &Process) -> bool {
    command_shape(a) == command_shape(b)
}

/// What workers of one server have in common: the command line without digits; empty ones (a
/// process that is just ending) equal no other, so they keep their pid.
fn command_shape(process: &Process) -> String {
    if process.cmdline.is_empty() {
        return process.id.pid.0.to_string();
    }
    process
        .cmdline
        .chars()
        .filter(|c| !c.is_ascii_digit())
        .collect()
}

struct ProcessTree<'a> {
    at: Micros,
    children: BTreeMap<Pid, Vec<&'a Process>>,
}

impl<'a> ProcessTree<'a> {
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

    /// The children that are like the workers `before`, unless a larger group has lasted; without
    /// such the largest group, of equal ones that like the parent, else the one spawned first.
    fn worker_group(&self, parent: &Process, before: Option<&str>) -> Vec<&'a Process> {
        let mut groups: BTreeMap<String, Vec<&'a Process>> = BTreeMap::new();
        for &child in self.children(parent) {
            groups.entry(command_shape(child)).or_default().push(child);
        }
        if let Some(known) = before.and_then(|before| groups.get(before)) {
            let is_old = |p: &&&Process| self.at.0.saturating_sub(p.born.0) >= GROUP_AGE_MICROS;
            let lasting = |group: &Vec<&Process>| group.iter().filter(is_old).count();
            if groups.values().all(|group| lasting(group) <= known.len()) {
                return known.clone();
            }
        }
        let own = command_shape(parent);
        let rank = |key: &String, group: &[&Process]| {
            let born = group.iter().map(|p| p.id).min();
            (group.len(), *key == own, std::cmp::Reverse(born))
        };
        let largest = groups
            .into_iter()
            .max_by_key(|(key, group)| rank(key, group));
        largest.map(|(_, group)| group).unwrap_or_default()
    }

    fn largest_child(&self, parent: &Process) -> Option<&'a Process> {
        let born = |p: &Process| std::cmp::Reverse(p.id);
        self.children(parent)
            .iter()
            .copied()
            .max_by_key(|p| (self.size(p, WRAPPERS_MAX), born(p)))
    }

    /// Processes in the subtree, checked `depth` levels deep.
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
