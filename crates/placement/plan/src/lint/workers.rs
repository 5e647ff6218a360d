//! Which processes are workers, determined without the planner's code.
//!
//! The rules are those that the head of `roles` documents. They are written here a second time, on
//! purpose in another way: the planner assigns a role to every process while it walks the tree
//! down; this module asks which processes satisfy the definition of a worker. A fault in either of
//! them shows as a refused plan.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use crate::limits::{GROUP_AGE_MICROS, LONER_AGE_MICROS, WRAPPERS_MAX};
use crate::{Ledger, Observation, Pid, Process, ProcessId, ServerKind, parse_thread_name};

/// The worker processes of an observation, where the policy asks for `asked` workers and `ledger`
/// is what was known before.
pub(super) fn find(observation: &Observation, asked: u16, ledger: &Ledger) -> BTreeSet<ProcessId> {
    let tree = ProcessTree::of(observation);
    let workers = match observation.server_kind {
        ServerKind::Named => tree.named_workers(),
        ServerKind::PreFork => tree.forked_workers(asked, ledger),
    };
    workers.into_iter().map(|process| process.id).collect()
}

/// The observed processes, and each by its pid.
struct ProcessTree<'a> {
    observation: &'a Observation,
    by_pid: BTreeMap<Pid, &'a Process>,
}

impl<'a> ProcessTree<'a> {
    fn of(observation: &'a Observation) -> Self {
        let processes = observation.processes.iter();
        Self {
            observation,
            by_pid: processes.map(|process| (process.id.pid, process)).collect(),
        }
    }

    fn root(&self) -> Option<&'a Process> {
        self.observation.processes.first()
    }

    /// All processes but the root.
    fn descendants(&self) -> impl Iterator<Item = &'a Process> {
        self.observation.processes.iter().skip(1)
    }

    fn children(&self, parent: &Process) -> Vec<&'a Process> {
        let pid = parent.id.pid;
        self.descendants().filter(|p| p.parent == pid).collect()
    }

    /// The parent, its parent and so on, up to the root.
    fn ancestors(&self, process: &Process) -> Vec<&'a Process> {
        let mut ancestors: Vec<&Process> = Vec::new();
        let mut next = process.parent;
        // bound: no process is listed twice
        while let Some(&parent) = self.by_pid.get(&next)
            && !ancestors.iter().any(|known| known.id == parent.id)
        {
            ancestors.push(parent);
            next = parent.parent;
        }
        ancestors
    }

    fn age_micros(&self, process: &Process) -> u64 {
        self.observation.at.0.saturating_sub(process.born.0)
    }

    /// Below the root, the topmost processes with a thread that is named after a slot.
    fn named_workers(&self) -> Vec<&'a Process> {
        let is_named = |p: &Process| {
            let mut threads = p.threads.iter();
            threads.any(|thread| parse_thread_name(&thread.comm).is_some())
        };
        let is_root = |p: &Process| self.root().is_some_and(|root| root.id == p.id);
        let is_inside_worker = |process: &Process| {
            let mut above = self.ancestors(process).into_iter();
            above.any(|ancestor| !is_root(ancestor) && is_named(ancestor))
        };
        self.descendants()
            .filter(|process| is_named(process) && !is_inside_worker(process))
            .collect()
    }

    /// The workers of a pre-fork server: the group of equal children of its arbiter, which is the
    /// first process on the path of the largest subtrees that has such a group.
    fn forked_workers(&self, asked: u16, ledger: &Ledger) -> Vec<&'a Process> {
        let mut path = self.root();
        // bound: one level of the tree per turn
        for _ in 0..WRAPPERS_MAX {
            let Some(here) = path else { break };
            let is_known = ledger.arbiter() == Some(here.id);
            let children = self.children(here);
            if children.is_empty() {
                let is_old = self.age_micros(here) >= LONER_AGE_MICROS;
                let serves_alone = asked == 1 && is_old && !is_known;
                return if serves_alone { vec![here] } else { Vec::new() };
            }
            let known = ledger.command_shape.as_deref().filter(|_| is_known);
            let group = self.worker_group(here, &children, known);
            if is_known || group.len() > 1 || group.iter().any(|p| same_command(p, here)) {
                return group;
            }
            path = children
                .into_iter()
                .max_by_key(|p| (self.subtree_size(p), Reverse(p.id)));
        }
        Vec::new()
    }

    /// The children that are the workers if their parent is the arbiter: those with the command
    /// that workers had before, while no other group is larger for long; else the largest group.
    /// Among equally large ones a fork without exec comes first, then the oldest.
    fn worker_group(
        &self,
        parent: &Process,
        children: &[&'a Process],
        known: Option<&str>,
    ) -> Vec<&'a Process> {
        let mut groups: Vec<Vec<&'a Process>> = Vec::new();
        for &child in children {
            match groups
                .iter_mut()
                .find(|group| same_command(group[0], child))
            {
                Some(group) => group.push(child),
                None => groups.push(vec![child]),
            }
        }
        let is_known = |group: &&Vec<&Process>| known.is_some_and(|k| has_command(group[0], k));
        if let Some(before) = groups.iter().find(is_known) {
            let is_lasting = |p: &&&Process| self.age_micros(p) >= GROUP_AGE_MICROS;
            let lasting = |group: &Vec<&Process>| group.iter().filter(is_lasting).count();
            if !groups.iter().any(|group| lasting(group) > before.len()) {
                return before.clone();
            }
        }
        let rank = |group: &Vec<&Process>| {
            let oldest = group.iter().map(|p| p.id).min();
            (group.len(), same_command(group[0], parent), Reverse(oldest))
        };
        groups.into_iter().max_by_key(rank).unwrap_or_default()
    }

    /// Processes in a subtree, down to the depth to which wrappers are followed.
    fn subtree_size(&self, top: &Process) -> usize {
        let is_below = |process: &&Process| {
            let mut above = self.ancestors(process).into_iter().take(WRAPPERS_MAX);
            above.any(|ancestor| ancestor.id == top.id)
        };
        1 + self.descendants().filter(is_below).count()
    }
}

/// The command line without digits: workers of one server differ in numbers alone.
fn letters(process: &Process) -> impl Iterator<Item = char> {
    process.cmdline.chars().filter(|c| !c.is_ascii_digit())
}

/// Whether two processes run the same command. A process that is just ending has none: it equals
/// itself alone.
fn same_command(a: &Process, b: &Process) -> bool {
    match a.cmdline.is_empty() || b.cmdline.is_empty() {
        true => a.id.pid == b.id.pid,
        false => letters(a).eq(letters(b)),
    }
}

/// Whether a process runs the command that the ledger remembers of earlier workers.
fn has_command(process: &Process, remembered: &str) -> bool {
    match process.cmdline.is_empty() {
        true => process.id.pid.0.to_string() == remembered,
        false => letters(process).eq(remembered.chars()),
    }
}
