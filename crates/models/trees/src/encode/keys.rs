//! Keys of a row, which the walk kernel and one-row SHAP compare; see `layout::binned`.

use albacore_formats::Library;
use albacore_simd::{Simd, SpecialKeys};

use crate::encode::bins::byte_of;
use crate::layout::binned::{BinColumn, KEY_MISSING, KEY_ZERO, SplitFeature, bin_of};
use crate::layout::ensemble::{EnsembleView, flag};
use crate::rows::{Rows, ZERO_MAX};

/// Returns the keys of missing values and of zeros in a plane; values up to magnitude `zero` count
/// as zeros.
fn special_keys(zero: f32, plane: u32) -> SpecialKeys {
    let has = |bits: u8| plane & u32::from(bits) != 0;
    let missing = KEY_MISSING[usize::from(has(flag::DEFAULT_LEFT))];
    let is_nan_missing = has(flag::MISSING_NAN | flag::MISSING_ZERO);
    SpecialKeys {
        zero,
        // NaN counts as 0 if it is not a missing value.
        nan_key: if is_nan_missing { missing } else { KEY_ZERO },
        zero_key: match has(flag::MISSING_ZERO) {
            true => missing,
            false => KEY_ZERO,
        },
    }
}

/// Computes the keys of one row, for a model with walk nodes; `f32s` is reused memory.
pub(crate) fn fill_keys(
    view: &EnsembleView<'_>,
    library: Library,
    row: Rows<'_>,
    simd: Simd,
    keys: &mut [u32],
    f32s: &mut Vec<f32>,
) {
    let form = &view.binned;
    let layout = view.key_layout();
    let width = layout.plane_width();
    let values = match row {
        Rows::F32(x) if layout.is_dense() => x,
        Rows::F32(x) => {
            f32s.clear();
            f32s.extend(form.split_features.iter().map(|words| x[words[0] as usize]));
            f32s
        }
        Rows::F64(x) => {
            f32s.clear();
            f32s.resize(width, 0.0);
            for (index, &words) in form.split_features.iter().enumerate() {
                let split_feature = SplitFeature::from_words(words);
                let key = layout.index(0, index, split_feature.feature) - 1;
                let cuts = split_feature.cuts(form.cuts);
                f32s[key] = match (library, x[split_feature.feature]) {
                    (Library::Xgboost, x) => x as f32,
                    // Before rounding, which could change whether the value counts as zero.
                    (Library::Lightgbm, x) if x.abs() <= ZERO_MAX => 0.0,
                    (Library::Lightgbm | Library::Sklearn, x) => to_f32_between_cuts(x, cuts),
                };
            }
            f32s
        }
    };
    let zero = match (library, row) {
        (Library::Lightgbm, Rows::F32(_)) => ZERO_MAX as f32,
        _ => 0.0,
    };
    keys[0] = 0;
    let (planes, sets) = keys.split_at_mut(layout.categorical_start());
    let planes = planes[1..].chunks_exact_mut(width.max(1));
    for (out, &plane) in planes.zip(form.key_planes) {
        simd.keys(values, special_keys(zero, plane), out);
    }
    if view.has_sets() {
        let columns = form
            .columns
            .iter()
            .map(|&words| BinColumn::from_words(words));
        let columns = columns.filter(|column| column.is_categorical());
        for (key, column) in sets.iter_mut().zip(columns) {
            let feature = form.split_features[column.split_feature as usize][0] as usize;
            let x = row.prepared(library, feature);
            *key = u32::from(byte_of(view, column, x, 0));
        }
    }
}

/// Returns an `f32` between the same two cuts as `x`.
fn to_f32_between_cuts(x: f64, cuts: &[f64]) -> f32 {
    let near = x as f32;
    if f64::from(near) == x || x.is_nan() {
        return near;
    }
    let below = if f64::from(near) < x {
        near
    } else {
        near.next_down()
    };
    match bin_of(cuts, x).checked_sub(1) {
        Some(last) if cuts[last as usize] > f64::from(below) => below.next_up(),
        _ => below,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_f64_between_two_f32s_is_rounded_up_only_across_a_cut() {
        let (one, next) = (1.0_f32, 1.0_f32.next_up());
        let middle = f64::midpoint(1.0, f64::from(next));
        assert_eq!(to_f32_between_cuts(middle, &[]), one);
        assert_eq!(to_f32_between_cuts(middle, &[1.0]), one);
        assert_eq!(to_f32_between_cuts(middle, &[middle]), next);
        assert_eq!(to_f32_between_cuts(middle.next_down(), &[middle]), one);
        assert_eq!(
            to_f32_between_cuts(middle.next_up(), &[0.5, middle, 2.0]),
            next
        );
        assert_eq!(to_f32_between_cuts(-middle, &[]), -next);
        assert_eq!(to_f32_between_cuts(-middle, &[-middle]), -one);
        assert_eq!(to_f32_between_cuts(1e300, &[]), f32::MAX);
        assert_eq!(to_f32_between_cuts(1e300, &[1e300]), f32::INFINITY);
        assert_eq!(to_f32_between_cuts(-1e300, &[]), f32::NEG_INFINITY);
        assert!(to_f32_between_cuts(f64::NAN, &[1.0]).is_nan());
    }
}
