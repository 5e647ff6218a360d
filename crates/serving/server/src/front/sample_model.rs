//! A small model for tests and fuzz targets.

use albacore_engine::{ElementType, Kind, ModelInfo, OutputInfo};

/// Model `m` with rows of `features` values: a value, and four numbers of kind `other`.
pub(super) fn sample_model(features: usize, other: Kind) -> ModelInfo {
    let output = |kind, row_shape: &[usize]| OutputInfo {
        kind,
        element: ElementType::F32,
        row_shape: row_shape.to_vec(),
    };
    ModelInfo {
        name: "m".to_owned(),
        platform: "xgboost_ubj".to_owned(),
        features,
        outputs: vec![output(Kind::Value, &[]), output(other, &[4])],
        ..ModelInfo::default()
    }
}
