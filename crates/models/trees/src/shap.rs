//! SHAP values (contributions) and SHAP interaction values, path-dependent.
//!
//! **Definition.** The values of TreeSHAP (Lundberg, Erion, Lee: Consistent Individualized Feature
//! Attribution for Tree Ensembles, 2018, arXiv:1802.03888), as computed by XGBoost's
//! `pred_contribs` and LightGBM's `pred_contrib`: Shapley values of a game in which a split on a
//! feature outside of the coalition sends the row to both children, weighted by their shares of the
//! training data.
//!
//! **Algorithm.** Not that of the paper, which maintains a table of subset sizes along the path. A
//! Shapley value is an integral over the probability t with which every feature participates (Owen:
//! Multilinear Extensions of Games, 1972). For a tree the integrand is a polynomial in t whose
//! degree is below the number of features on a path, so a few Gauss-Legendre points are exact.
//! Linear TreeShap (Yu et al. 2022, arXiv:2209.08192) uses the same polynomial. The row-independent
//! part is computed when the model is compiled, as in Fast TreeSHAP v2 (Yang 2021,
//! arXiv:2109.09847).
//!
//! Suggested reading order:
//! * `sweep`: the formulas, and one row through one tree in plain code;
//! * `quadrature`: why so few points are exact;
//! * `contributions`: the formulas as three constants per split, for vectors;
//! * `one_row`: **SHAP values of one row**, eight trees in the lanes of a vector;
//! * `many_rows`, with `row_descent` and `row_terms`: one tree, rows in the lanes;
//! * `interactions`, with `pair_terms`: interaction values of one row, by `one_row`;
//! * `scalar`: contributions and interactions of any model, by `sweep`.

pub(crate) mod contributions;
pub(crate) mod interactions;
pub(crate) mod many_rows;
mod one_row;
mod pair_terms;
pub(crate) mod quadrature;
mod row_descent;
mod row_terms;
pub(crate) mod scalar;
mod scratch;
mod sweep;

pub(crate) use scratch::ShapScratch;

#[cfg(test)]
mod tests;
