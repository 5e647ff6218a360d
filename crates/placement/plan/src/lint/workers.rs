//! Finds the worker processes, independently of the planner's code.
//!
//! Implements the rules documented in `roles` a second time, deliberately in a different way: the
//! planner assigns a role to every process while walking down the tree; this module selects the
//! processes that satisfy the definition of a worker. A bug in either of them results in a rejected
//! plan.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use crate::limits::{GROUP_AGE_MICROS, NON_FORKING_AGE_MICROS, WRAPPERS_MAX};
use crate::{Observation, Pid, PlanHistory, Process, ProcessId, ServerKind, parse_thread_name};

/// The worker processes of an observation, if the policy requests `requested` workers and `history`
/// is the state before the plan.
pub(super) fn find(
    observation: &Observation,
    requested: u16,
    history: &PlanHistory,
) -> BTreeSet<ProcessId> {
    let tree = ProcessIndex::of(observation);
    let workers = match observation.server_kind {
        ServerKind::Named => tree.named_workers(),
        ServerKind::PreFork => tree.forked_workers(requested, history),
    };
    workers.into_iter().map(|process| process.id).collect()
}

/// The observed processes, also indexed by pid.
struct ProcessIndex<'a> {
    observation: &'a Observation,
    by_pid: BTreeMap<Pid, &'a Process>,
}

impl<'a> ProcessIndex<'a> {
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

    /// All processes except the root.
    fn descendants(&self) -> impl Iterator<Item = &'a Process> {
        self.observation.processes.iter().skip(1)
    }

    fn children(&self, parent: &Process) -> Vec<&'a Process> {
        let pid = parent.id.pid;
        self.descendants().filter(|p| p.parent == pid).collect()
    }

    /// The chain of parents up to the root, nearest first.
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
        self.observation.at.0.saturating_sub(process.not_before.0)
    }

    /// The topmost processes below the root with a thread named after a slot.
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

    /// The workers of a pre-fork server: the group of similar children of its arbiter, which is the
    /// first process with such a group on the path of largest subtrees.
    fn forked_workers(&self, requested: u16, history: &PlanHistory) -> Vec<&'a Process> {
        let mut path = self.root();
        // bound: one level of the tree per iteration
        for _ in 0..WRAPPERS_MAX {
            let Some(here) = path else { break };
            let is_known = history.arbiter() == Some(here.id);
            let children = self.children(here);
            if children.is_empty() {
                let is_old = self.age_micros(here) >= NON_FORKING_AGE_MICROS;
                let serves_alone = requested == 1 && is_old && !is_known;
                return if serves_alone { vec![here] } else { Vec::new() };
            }
            let known = history.command_pattern.as_deref().filter(|_| is_known);
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

    /// The children that are workers if `parent` is the arbiter: those with the command of the
    /// previous workers, unless another group has been larger for some time; otherwise the largest
    /// group. Ties are broken in favor of a fork without exec, then of the oldest.
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

    /// Number of processes in a subtree, up to the maximum depth of wrappers.
    fn subtree_size(&self, top: &Process) -> usize {
        let is_below = |process: &&Process| {
            let mut above = self.ancestors(process).into_iter().take(WRAPPERS_MAX);
            above.any(|ancestor| ancestor.id == top.id)
        };
        1 + self.descendants().filter(is_below).count()
    }
}

/// The command line without digits, because workers of one server differ only in numbers.
fn without_digits(process: &Process) -> impl Iterator<Item = char> {
    process.cmdline.chars().filter(|c| !c.is_ascii_digit())
}

/// True if two processes run the same command. A process that is exiting has no command line and
/// equals only itself.
fn same_command(a: &Process, b: &Process) -> bool {
    match a.cmdline.is_empty() || b.cmdline.is_empty() {
        true => a.id.pid == b.id.pid,
        false => without_digits(a).eq(without_digits(b)),
    }
}

/// True if a process runs the command recorded in the history for earlier workers.
fn has_command(process: &Process, pattern: &str) -> bool {
    match process.cmdline.is_empty() {
        true => process.id.pid.0.to_string() == pattern,
        false => without_digits(process).eq(pattern.chars()),
    }
}
