//! Categories of a column, as listed in a model file.

use std::collections::HashSet;

use crate::error::{ModelError, ModelResult, excerpt};
use crate::limits::CATEGORY_NAMES_MAX;

/// Names of the categories that the trees of a model refer to by number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ColumnCategories {
    /// Number of the column.
    pub column: usize,
    /// Indexed by category number. Numbers and booleans are formatted as in the file.
    pub texts: Vec<String>,
}

/// Checks the categories of a model with this number of features.
pub(crate) fn check(categories: &[ColumnCategories], features: usize) -> ModelResult<()> {
    let columns = || categories.iter().map(|it| it.column);
    if !columns().is_sorted_by(|a, b| a < b) || columns().any(|column| column >= features) {
        let reason = format!("column numbers are not ascending, or not below {features}");
        return Err(ModelError::inconsistent("categories", reason));
    }
    check_count(categories.iter().map(|it| it.texts.len()).sum())?;
    for ColumnCategories { column, texts } in categories {
        if let Some(text) = repeated(texts) {
            let reason = format!("'{}' appears twice in column {column}", excerpt(text));
            return Err(ModelError::inconsistent("categories", reason));
        }
    }
    Ok(())
}

/// Returns a name that occurs twice.
pub(crate) fn repeated(texts: &[String]) -> Option<&str> {
    let mut known = HashSet::with_capacity(texts.len());
    let mut texts = texts.iter().map(String::as_str);
    texts.find(|text| !known.insert(*text))
}

/// Rejects more names than a file may have.
pub(crate) fn check_count(texts: usize) -> ModelResult<()> {
    match texts <= CATEGORY_NAMES_MAX {
        true => Ok(()),
        false => Err(ModelError::too_large(format!(
            "more than {CATEGORY_NAMES_MAX} categories"
        ))),
    }
}
