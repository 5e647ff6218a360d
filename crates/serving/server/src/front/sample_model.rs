//! A small model for tests and fuzz targets.

use albacore_engine::{CategoryTable, Columns, ElementType, Kind, ModelInfo, OutputInfo};

/// Model `m` with `features` columns and two outputs: the value, and four numbers of kind `other`.
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

/// The model of the fuzz targets: three features, the second with categories; two outputs.
pub(super) fn fuzzed_model() -> ModelInfo {
    let names = ["a", "b", "c"].map(str::to_owned);
    let table = CategoryTable::new(names.clone(), albacore_engine::UnknownCategory::Refused);
    ModelInfo {
        columns: Columns {
            names: names.to_vec(),
            types: Vec::new(),
            categories: [(1, table.into())].into(),
        },
        ..sample_model(3, Kind::Leaf)
    }
}

/// Memory for rows of the fuzzed model, as allocated by the engine; `None` for sizes that no fuzz
/// input can have.
pub(super) fn fuzzed_memory(rows: usize, element: ElementType) -> Option<Vec<u8>> {
    let bytes = rows.checked_mul(3 * element.bytes())?;
    (bytes <= 1 << 24).then(|| vec![0xa5; bytes])
}
