//! Models of random trees of 100 leaves. Only the shape decides what a batch costs.
//!
//! 1,000 trees are more than a core's caches hold, so that a row of SHAP values alone reads all of
//! them: there batching pays.

use albacore_random::SplitMix64;
use serde_json::{Value, json};

const LEAVES: usize = 100;
pub(crate) const FEATURES: u64 = 50;
const SEED: u64 = 7;

/// The parent of a root, in files of XGBoost.
const NO_PARENT: i64 = 2_147_483_647;

/// A tree as XGBoost writes it: a list for each property of nodes.
#[derive(Default)]
struct Tree {
    left: Vec<i64>,
    right: Vec<i64>,
    parents: Vec<i64>,
    features: Vec<u64>,
    /// Of an inner node its threshold, of a leaf its value.
    conditions: Vec<f64>,
    /// Training rows of each node: the weights of SHAP.
    cover: Vec<f64>,
}

impl Tree {
    /// Splits the shallowest leaf until there are enough.
    fn grow(random: &mut SplitMix64) -> Self {
        let mut tree = Self::default();
        tree.add_leaf(NO_PARENT);
        for node in 0..LEAVES - 1 {
            tree.features[node] = random.draw() % FEATURES;
            tree.conditions[node] = unit(random) * 4.0 - 2.0;
            tree.left[node] = tree.add_leaf(node as i64);
            tree.right[node] = tree.add_leaf(node as i64);
        }
        for node in (0..tree.left.len()).rev() {
            match usize::try_from(tree.left[node]) {
                Ok(left) => tree.cover[node] = tree.cover[left] + tree.cover[left + 1],
                Err(_) => {
                    tree.conditions[node] = unit(random) * 0.02 - 0.01;
                    tree.cover[node] = 10.0 + unit(random) * 90.0;
                }
            }
        }
        tree
    }

    fn add_leaf(&mut self, parent: i64) -> i64 {
        self.left.push(-1);
        self.right.push(-1);
        self.parents.push(parent);
        self.features.push(0);
        self.conditions.push(0.0);
        self.cover.push(0.0);
        self.left.len() as i64 - 1
    }

    fn to_json(&self, id: usize) -> Value {
        let nodes = self.left.len();
        let zeros = vec![0; nodes];
        json!({
            "id": id, "left_children": self.left, "right_children": self.right,
            "parents": self.parents, "split_indices": self.features,
            "split_conditions": self.conditions, "sum_hessian": self.cover,
            "base_weights": zeros, "default_left": zeros, "loss_changes": zeros,
            "split_type": zeros, "categories": [], "categories_nodes": [],
            "categories_segments": [], "categories_sizes": [],
            "tree_param": {"num_deleted": "0", "num_feature": FEATURES.to_string(),
                "num_nodes": nodes.to_string(), "size_leaf_vector": "1"},
        })
    }
}

/// From 0 to 1.
fn unit(random: &mut SplitMix64) -> f64 {
    (random.draw() >> 11) as f64 / (1_u64 << 53) as f64
}

/// The model as an XGBoost JSON file.
pub(crate) fn random_model(trees: usize) -> String {
    let mut random = SplitMix64::new(SEED);
    let indices: Vec<usize> = (0..=trees).collect();
    let count = trees;
    let trees = (0..count).map(|id| Tree::grow(&mut random).to_json(id));
    let trees: Vec<Value> = trees.collect();
    let model = json!({
        "gbtree_model_param": {"num_parallel_tree": "1", "num_trees": count.to_string()},
        "iteration_indptr": indices, "tree_info": vec![0; count], "trees": trees,
    });
    json!({
        "learner": {
            "attributes": {}, "feature_names": [], "feature_types": [],
            "gradient_booster": {"model": model, "name": "gbtree"},
            "learner_model_param": {"base_score": "5E-1", "boost_from_average": "1",
                "num_class": "0", "num_feature": FEATURES.to_string(), "num_target": "1"},
            "objective": {"name": "reg:squarederror",
                "reg_loss_param": {"scale_pos_weight": "1"}},
        },
        "version": [2, 1, 0],
    })
    .to_string()
}
