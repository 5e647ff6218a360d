//! A tournament tree: the minimum of a fixed number of keys that change one at a time.
//!
//! A complete binary tree in one vector: leaves are the keys, an inner node is the minimum of its
//! children. A change costs at most one step per level, the minimum is read in O(1), and nothing
//! allocates.

/// Keys of the indices 0, 1, ...; [`u64::MAX`] for an absent key.
#[derive(Clone, Debug)]
pub(super) struct Tournament {
    /// Node 1 is the root, the children of node n are 2n and 2n + 1; the second half are the
    /// leaves.
    nodes: Vec<u64>,
    leaves: usize,
}

/// Value of an absent key.
pub(super) const ABSENT: u64 = u64::MAX;

impl Tournament {
    pub(super) fn new(count: usize) -> Self {
        let leaves = count.max(1).next_power_of_two();
        Self {
            nodes: vec![ABSENT; 2 * leaves],
            leaves,
        }
    }

    /// Grows the tree to at least `count` leaves.
    pub(super) fn grow_to(&mut self, count: usize) {
        if count > self.leaves {
            let mut larger = Self::new(count);
            for index in 0..self.leaves {
                larger.set(index, self.get(index));
            }
            *self = larger;
        }
    }

    pub(super) fn get(&self, index: usize) -> u64 {
        self.nodes[self.leaves + index]
    }

    pub(super) fn set(&mut self, index: usize, key: u64) {
        let mut node = self.leaves + index;
        if self.nodes[node] == key {
            return;
        }
        self.nodes[node] = key;
        while node > 1 {
            node /= 2;
            let smaller = self.nodes[2 * node].min(self.nodes[2 * node + 1]);
            if self.nodes[node] == smaller {
                return;
            }
            self.nodes[node] = smaller;
        }
    }

    pub(super) fn min(&self) -> u64 {
        self.nodes[1]
    }

    /// The lowest index whose key is at most `bound`, which must be below [`ABSENT`].
    pub(super) fn first_at_most(&self, bound: u64) -> Option<usize> {
        if self.nodes[1] > bound {
            return None;
        }
        let mut node = 1;
        while node < self.leaves {
            node *= 2;
            if self.nodes[node] > bound {
                node += 1;
            }
        }
        Some(node - self.leaves)
    }

    /// The lowest index of the smallest key.
    pub(super) fn first_min(&self) -> Option<usize> {
        match self.min() {
            ABSENT => None,
            key => self.first_at_most(key),
        }
    }

    /// The lowest index of the smallest key that is at least `bound`.
    pub(super) fn first_min_from(&self, bound: u64) -> Option<usize> {
        if self.min() >= bound {
            return self.first_min();
        }
        // Only at the instant at which a candidate has just expired: scans all keys.
        let keys = self.nodes[self.leaves..].iter().enumerate();
        let valid = keys.filter(|&(_, &key)| key >= bound && key != ABSENT);
        valid.min_by_key(|&(_, key)| *key).map(|(index, _)| index)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_equal_those_of_a_linear_search() {
        for count in [1, 2, 3, 7, 8, 9, 33] {
            let mut keys = vec![ABSENT; count];
            let mut tree = Tournament::new(count);
            let mut state = 12_345_u64;
            for _ in 0..2000 {
                state = state
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1);
                let (index, key) = ((state >> 33) as usize % count, (state >> 40) % 20);
                let key = if key == 19 { ABSENT } else { key };
                keys[index] = key;
                tree.set(index, key);
                let bound = (state >> 50) % 20;
                assert_eq!(Some(tree.min()), keys.iter().copied().min());
                assert_eq!(
                    tree.first_at_most(bound),
                    keys.iter().position(|&k| k <= bound)
                );
                let from = (0..count)
                    .filter(|&i| keys[i] >= bound && keys[i] != ABSENT)
                    .min_by_key(|&i| keys[i]);
                assert_eq!(tree.first_min_from(bound), from);
            }
            tree.grow_to(100);
            tree.set(99, 0);
            assert_eq!(
                tree.first_min_from(0),
                keys.iter().position(|&k| k == 0).or(Some(99))
            );
        }
    }
}
