//! Interactions between the nodes of one bundle, before they are added to the features' cells.

use crate::layout::bundles::LANES;
use crate::layout::ensemble::EnsembleView;

/// Interaction of each node of a bundle with each node above it, per lane.
#[derive(Clone, Debug, Default)]
pub(super) struct PairTerms {
    /// Maximum number of levels above a node.
    depth: usize,
    /// Number of levels above each node.
    levels: Vec<u32>,
    /// The node above, for each node and level.
    upper: Vec<u32>,
    /// The interaction in each lane, for each node and level.
    terms: Vec<[f64; LANES]>,
    /// The split feature of each node and lane.
    split_features: Vec<[u32; LANES]>,
}

impl PairTerms {
    /// Reserves memory for the pairs of a bundle.
    pub(super) fn reserve(&mut self, nodes: usize, depth: usize) {
        self.depth = depth;
        self.levels.clear();
        self.levels.resize(nodes, 0);
        if self.upper.len() < nodes * depth {
            self.upper.resize(nodes * depth, 0);
            self.terms.resize(nodes * depth, [0.0; LANES]);
        }
    }

    /// Returns the interaction of a node with the node `upper` at a level above it.
    #[inline(always)]
    pub(super) fn terms_mut(&mut self, node: usize, level: usize, upper: u32) -> &mut [f64; LANES] {
        let at = node * self.depth + level;
        self.levels[node] = level as u32 + 1;
        self.upper[at] = upper;
        &mut self.terms[at]
    }

    /// Adds the pairs of a bundle to the cells of their features: groups x (split features + 1) x
    /// (split features + 1), in the row of the lower node's feature and the column of the upper
    /// one's.
    pub(super) fn add_to(&mut self, view: &EnsembleView<'_>, bundle: usize, cells: &mut [f64]) {
        let count = view.binned.split_features.len();
        let columns = count + 1;
        // A lane without a split at a node adds to the extra cells after those of the features.
        self.split_features.clear();
        self.split_features
            .resize(self.levels.len(), [count as u32; LANES]);
        let mut groups = [0; LANES];
        let slots = self.split_features.as_flattened_mut();
        for (group, entries) in view.scatter_of(bundle) {
            for entry in entries {
                slots[entry.slot] = entry.split_feature as u32;
                groups[entry.slot % LANES] = group * columns * columns;
            }
        }
        for (node, (&levels, lower)) in self.levels.iter().zip(&self.split_features).enumerate() {
            let rows: [usize; LANES] =
                std::array::from_fn(|lane| groups[lane] + lower[lane] as usize * columns);
            let pairs = node * self.depth..node * self.depth + levels as usize;
            for (&upper, terms) in self.upper[pairs.clone()].iter().zip(&self.terms[pairs]) {
                let upper = &self.split_features[upper as usize];
                for lane in 0..LANES {
                    cells[rows[lane] + upper[lane] as usize] += terms[lane];
                }
            }
        }
    }
}
