//! Virtual times of flows that compete for the same time.
//!
//! The tag of a flow is its received service divided by its weight. The virtual time is the least
//! tag of the flows that remain backlogged. A flow that becomes backlogged is raised to it: it
//! accrues no credit for time that it did not use, and no debt for time that no other flow wanted.

use crate::Nanos;

/// Worker time divided by weight, in [`SCALE`]ths of a nanosecond.
pub(super) type Tag = u128;

pub(super) const SCALE: Tag = 1 << 20;

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Flow {
    pub(super) tag: Tag,
    /// Whether it waits for a worker.
    pub(super) is_backlogged: bool,
}

impl Flow {
    /// The service that it received beyond the virtual time.
    pub(super) fn lead(&self, virtual_time: Tag, weight: u32) -> Nanos {
        let lead = self.tag.saturating_sub(virtual_time) * Tag::from(weight) / SCALE;
        Nanos(u64::try_from(lead).unwrap_or(u64::MAX))
    }
}

/// Advances the virtual time of the `members`, and admits flows that become backlogged.
pub(super) fn update_flows(
    flows: &mut [Flow],
    members: impl Iterator<Item = usize> + Clone,
    virtual_time: &mut Tag,
    is_backlogged: impl Fn(usize) -> bool,
) {
    let stay = members
        .clone()
        .filter(|&at| flows[at].is_backlogged && is_backlogged(at));
    let least = stay.map(|at| flows[at].tag).min();
    // If no flow remained backlogged, none was treated unfairly: all start from the largest tag.
    let all = || members.clone().map(|at| flows[at].tag).max();
    *virtual_time = (*virtual_time).max(least.or_else(all).unwrap_or(0));
    for at in members {
        let flow = &mut flows[at];
        let is_backlogged_now = is_backlogged(at);
        if is_backlogged_now && !flow.is_backlogged {
            flow.tag = flow.tag.max(*virtual_time);
        }
        flow.is_backlogged = is_backlogged_now;
    }
}
