//! Assigns ranks and worker indices to the placed threads of a tenant.

use crate::labeling::Threads;

use super::instance::Tenant;

/// The position of every slot of a tenant, ordered by worker and rank, from the positions of its
/// threads, ordered by worker with the main first.
pub(super) fn label(tenant: &Tenant, places: &[u16]) -> Vec<u16> {
    if keeps_rank_cap(tenant, places) && places == tenant.current_cpus {
        return places.to_vec();
    }
    let threads = Threads {
        threads: tenant.threads,
        cpus: tenant.allows.len(),
        rank_cap: tenant.rank_cap.into(),
        places,
        current: &tenant.current_cpus,
    };
    let ranked = threads.ranked();
    if tenant.is_running {
        return ranked;
    }
    let mut rows: Vec<&[u16]> = ranked.chunks(tenant.threads).collect();
    rows.sort_unstable();
    rows.concat()
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
