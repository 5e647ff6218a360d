//! Models of random trees. The cost of a batch depends only on their shape.

use albacore_random::SplitMix64;
use serde_json::{Value, json};

pub const FEATURES: u64 = 50;
const SEED: u64 = 7;

/// The size of a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ModelShape {
    pub trees: usize,
    /// Per tree.
    pub leaves: usize,
    pub features: u64,
}

/// Parent of a root node in XGBoost files.
const NO_PARENT: i64 = 2_147_483_647;

/// A tree in XGBoost's layout: one array per node property.
#[derive(Default)]
struct Tree {
    left: Vec<i64>,
    right: Vec<i64>,
    parents: Vec<i64>,
    features: Vec<u64>,
    /// Threshold of an inner node, value of a leaf.
    conditions: Vec<f64>,
    /// Training rows of each node, the weights for SHAP.
    cover: Vec<f64>,
}

impl Tree {
    /// Splits the shallowest leaf until the tree has enough leaves.
    fn grow(random: &mut SplitMix64, shape: ModelShape) -> Self {
        let mut tree = Self::default();
        tree.add_leaf(NO_PARENT);
        for node in 0..shape.leaves - 1 {
            tree.features[node] = random.draw() % shape.features;
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

    fn to_json(&self, id: usize, features: u64) -> Value {
        let nodes = self.left.len();
        let zeros = vec![0; nodes];
        json!({
            "id": id, "left_children": self.left, "right_children": self.right,
            "parents": self.parents, "split_indices": self.features,
            "split_conditions": self.conditions, "sum_hessian": self.cover,
            "base_weights": zeros, "default_left": zeros, "loss_changes": zeros,
            "split_type": zeros, "categories": [], "categories_nodes": [],
            "categories_segments": [], "categories_sizes": [],
            "tree_param": {"num_deleted": "0", "num_feature": features.to_string(),
                "num_nodes": nodes.to_string(), "size_leaf_vector": "1"},
        })
    }
}

/// Uniform in [0, 1).
fn unit(random: &mut SplitMix64) -> f64 {
    (random.draw() >> 11) as f64 / (1_u64 << 53) as f64
}

/// An XGBoost JSON model with `trees` trees of 100 leaves each.
pub fn random_model(trees: usize) -> String {
    random_model_of(ModelShape {
        trees,
        leaves: 100,
        features: FEATURES,
    })
}

/// An XGBoost JSON model of this shape.
pub fn random_model_of(shape: ModelShape) -> String {
    let ModelShape {
        trees: count,
        features,
        ..
    } = shape;
    let mut random = SplitMix64::new(SEED);
    let indices: Vec<usize> = (0..=count).collect();
    let trees = (0..count).map(|id| Tree::grow(&mut random, shape).to_json(id, features));
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
                "num_class": "0", "num_feature": features.to_string(), "num_target": "1"},
            "objective": {"name": "reg:squarederror",
                "reg_loss_param": {"scale_pos_weight": "1"}},
        },
        "version": [2, 1, 0],
    })
    .to_string()
}
