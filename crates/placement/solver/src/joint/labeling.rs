//! Ranks for the peers of each tenant, with as few threads renamed as possible.
//!
//! **Problem.** Peers are placed but have no ranks: ranks 1..T-1 are needed such that no worker has
//! one twice and at most ceil(W/C) threads of a tenant with equal rank share a cpu (rule 2); a peer
//! that stays should keep its rank, else it counts as moved. **Approach.** The edge coloring of
//! [`Peers`], tenant by tenant. **Limits.** Few peers are renamed, not always the fewest.

use crate::rank_coloring::Peers;

use super::instance::{NO_CPU, Tenant};

/// The position of every slot of a tenant, worker by worker, rank by rank, from the positions of
/// its threads: worker by worker, the main first.
pub(super) fn label(tenant: &Tenant, threads: &[u16]) -> Vec<u16> {
    let mut places = threads.to_vec();
    if keeps_rank_cap(tenant, threads) && threads == tenant.current_cpus {
        return places;
    }
    if tenant.threads > 1 {
        let peers: Vec<(u16, u16)> = places
            .chunks(tenant.threads)
            .zip(0u16..)
            .flat_map(|(row, worker)| row[1..].iter().map(move |&cpu| (worker, cpu)))
            .collect();
        let peers = Peers {
            workers: tenant.workers,
            threads: tenant.threads,
            cpus: tenant.allows.len(),
            rank_cap: tenant.rank_cap.into(),
            edges: &peers,
            preferred: &preferred_ranks(tenant, &places),
        };
        let colored = peers.ranks();
        for (worker, row) in places.chunks_mut(tenant.threads).enumerate() {
            let peers = row[1..].to_vec();
            let colors = &colored[worker * (tenant.threads - 1)..];
            for (&cpu, &color) in peers.iter().zip(colors) {
                row[1 + usize::from(color)] = cpu;
            }
        }
    }
    if !tenant.is_running {
        let mut rows: Vec<&[u16]> = places.chunks(tenant.threads).collect();
        rows.sort_unstable();
        places = rows.concat();
    }
    places
}

/// Whether ranks in this order keep rule (2).
pub(super) fn keeps_rank_cap(tenant: &Tenant, places: &[u16]) -> bool {
    let cpus = tenant.allows.len();
    let mut held = vec![0u16; cpus * tenant.threads];
    places.iter().enumerate().all(|(slot, &cpu)| {
        let held = &mut held[slot % tenant.threads * cpus + usize::from(cpu)];
        *held += 1;
        *held <= tenant.rank_cap
    })
}

/// The rank, less 1, of each peer that stays.
fn preferred_ranks(tenant: &Tenant, places: &[u16]) -> Vec<Option<u16>> {
    let mut preferred = Vec::with_capacity(places.len());
    let rows = places
        .chunks(tenant.threads)
        .zip(tenant.current_cpus.chunks(tenant.threads));
    for (row, current_cpus) in rows {
        let mut current_cpus = current_cpus[1..].to_vec();
        for &cpu in &row[1..] {
            let same = current_cpus
                .iter()
                .position(|&current_cpu| current_cpu == cpu && current_cpu != NO_CPU);
            if let Some(rank) = same {
                current_cpus[rank] = NO_CPU;
            }
            preferred.push(same.map(|rank| rank as u16));
        }
    }
    preferred
}
