//! Disjoint sets of cpus that share a domain, with dense numbers, for both parsers.

/// Sets of the cpu positions (not ids) `0..n`, merged by union-find with path halving.
pub(crate) struct DisjointSets {
    parent: Vec<usize>,
}

impl DisjointSets {
    /// `n` sets of one cpu each.
    pub(crate) fn singletons(n: usize) -> Self {
        Self {
            parent: (0..n).collect(),
        }
    }

    /// One set for all cpus with equal keys.
    pub(crate) fn by_key<K: Ord>(keys: impl IntoIterator<Item = K>) -> Self {
        let mut first = std::collections::BTreeMap::new();
        let parent = keys
            .into_iter()
            .enumerate()
            .map(|(i, key)| *first.entry(key).or_insert(i))
            .collect();
        Self { parent }
    }

    /// Merges the sets of `a` and `b`; the lower position becomes the root.
    pub(crate) fn join(&mut self, a: usize, b: usize) {
        let (a, b) = (self.root(a), self.root(b));
        self.parent[a.max(b)] = a.min(b);
    }

    /// Merges sets so that every set of `inner` is contained in one set of this.
    pub(crate) fn merge_over(&mut self, inner: &mut Self) {
        for i in 0..self.parent.len() {
            let root = inner.root(i);
            self.join(i, root);
        }
    }

    /// Splits each set at the boundaries of the sets of `outer`.
    pub(crate) fn split_at(mut self, outer: &mut Self) -> Self {
        let parts = (0..self.parent.len()).map(|i| (self.root(i), outer.root(i)));
        Self::by_key(parts.collect::<Vec<_>>())
    }

    /// The lowest position in the set of `i`.
    pub(crate) fn root(&mut self, mut i: usize) -> usize {
        // bound: every step moves to a lower position.
        while self.parent[i] != i {
            self.parent[i] = self.parent[self.parent[i]];
            i = self.parent[i];
        }
        i
    }

    /// The number of each cpu's set, from 0 in order of the lowest positions of the sets.
    pub(crate) fn numbers(&mut self) -> Vec<u32> {
        let mut numbers = vec![0; self.parent.len()];
        let mut next = 0;
        for i in 0..numbers.len() {
            let root = self.root(i);
            if root == i {
                numbers[i] = next;
                next += 1;
            } else {
                numbers[i] = numbers[root];
            }
        }
        numbers
    }
}

#[cfg(test)]
mod tests {
    use super::DisjointSets;

    #[test]
    fn groups_are_numbered_by_their_lowest_cpu() {
        let mut domains = DisjointSets::singletons(6);
        domains.join(5, 1);
        domains.join(2, 4);
        domains.join(4, 5);
        assert_eq!(domains.numbers(), [0, 1, 1, 2, 1, 1]);
    }

    #[test]
    fn merge_over_joins_the_sets_of_the_inner_domain() {
        let mut inner = DisjointSets::by_key([0, 0, 1, 1]);
        let mut outer = DisjointSets::by_key(["a", "b", "b", "c"]);
        outer.merge_over(&mut inner);
        assert_eq!(outer.numbers(), [0, 0, 0, 0]);
    }
}
