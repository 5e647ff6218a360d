//! Ranks for the peers of each party, with as few threads renamed as can be.
//!
//! **Problem.** Peers are placed but have no ranks: ranks 1..T-1 are needed such that no worker has
//! one twice and at most ceil(W/C) threads of a party with equal rank share a cpu (rule 2); a peer
//! that stays shall keep its rank, else it counts as moved. **Approach.** The edge coloring of
//! [`Peers`], party by party. **Limits.** Few peers are renamed, not always the fewest.

use albacore_mapping::Peers;

use super::site::{NOWHERE, Party};

/// The position of every slot of a party, worker by worker, rank by rank, from the positions of its
/// threads: worker by worker, the main first.
pub(super) fn label(party: &Party, threads: &[u16]) -> Vec<u16> {
    let mut places = threads.to_vec();
    if keeps_rank_cap(party, threads) && threads == party.homes {
        return places;
    }
    if party.threads > 1 {
        let peers: Vec<(u16, u16)> = places
            .chunks(party.threads)
            .zip(0u16..)
            .flat_map(|(row, worker)| row[1..].iter().map(move |&cpu| (worker, cpu)))
            .collect();
        let peers = Peers {
            workers: party.workers,
            threads: party.threads,
            cpus: party.allows.len(),
            rank_cap: party.rank_cap.into(),
            places: &peers,
            wishes: &wishes(party, &places),
        };
        let colored = peers.ranks();
        for (worker, row) in places.chunks_mut(party.threads).enumerate() {
            let peers = row[1..].to_vec();
            let colors = &colored[worker * (party.threads - 1)..];
            for (&cpu, &color) in peers.iter().zip(colors) {
                row[1 + usize::from(color)] = cpu;
            }
        }
    }
    if !party.is_running {
        let mut rows: Vec<&[u16]> = places.chunks(party.threads).collect();
        rows.sort_unstable();
        places = rows.concat();
    }
    places
}

/// Whether ranks in this order keep rule (2).
pub(super) fn keeps_rank_cap(party: &Party, places: &[u16]) -> bool {
    let cpus = party.allows.len();
    let mut held = vec![0u16; cpus * party.threads];
    places.iter().enumerate().all(|(slot, &cpu)| {
        let held = &mut held[slot % party.threads * cpus + usize::from(cpu)];
        *held += 1;
        *held <= party.rank_cap
    })
}

/// The rank, less 1, of each peer that stays.
fn wishes(party: &Party, places: &[u16]) -> Vec<Option<u16>> {
    let mut wishes = Vec::with_capacity(places.len());
    let rows = places
        .chunks(party.threads)
        .zip(party.homes.chunks(party.threads));
    for (row, homes) in rows {
        let mut homes = homes[1..].to_vec();
        for &cpu in &row[1..] {
            let same = homes
                .iter()
                .position(|&home| home == cpu && home != NOWHERE);
            if let Some(rank) = same {
                homes[rank] = NOWHERE;
            }
            wishes.push(same.map(|rank| rank as u16));
        }
    }
    wishes
}
