//! Columns of a model's rows, as described by its file and its configuration.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// Known properties of a model's columns.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Columns {
    /// Name of each column; empty if the file has none.
    pub names: Vec<String>,
    /// Type of each column, as named by the training library; empty if the file has none.
    pub types: Vec<String>,
    /// Categories of the columns that accept text, by column number.
    pub categories: BTreeMap<usize, Arc<CategoryTable>>,
}

impl Columns {
    /// Whether columns may also be addressed by number: the file has no names, or LightGBM's
    /// default names.
    #[must_use]
    pub fn are_numbered(&self) -> bool {
        let is_default = |(index, name): (usize, &String)| {
            let number = name.strip_prefix("Column_");
            number.is_some_and(|number| number.parse() == Ok(index))
        };
        self.names.iter().enumerate().all(is_default)
    }

    /// Name of a column; its number if the file has no names.
    #[must_use]
    pub fn name(&self, index: usize) -> String {
        let own = self.names.get(index).cloned();
        own.unwrap_or_else(|| index.to_string())
    }
}

/// Maps category names of a column to the codes used by the trees.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CategoryTable {
    codes: HashMap<Arc<str>, u32>,
    texts: Vec<Arc<str>>,
    unknown: UnknownCategory,
}

/// Handling of a text that is not a category.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnknownCategory {
    /// Rejected, as in XGBoost.
    Refused,
    /// A missing value, as in LightGBM.
    Missing,
}

impl CategoryTable {
    /// The code of each text is its index.
    #[must_use]
    pub fn new(texts: impl IntoIterator<Item = String>, unknown: UnknownCategory) -> Self {
        let texts: Vec<Arc<str>> = texts.into_iter().map(Arc::from).collect();
        Self {
            // Files and configurations have far fewer than 2^32.
            codes: (0..)
                .zip(&texts)
                .map(|(code, it)| (Arc::clone(it), code))
                .collect(),
            texts,
            unknown,
        }
    }

    /// The code of this text in the trees.
    #[must_use]
    pub fn code(&self, text: &str) -> Option<u32> {
        self.codes.get(text).copied()
    }

    /// The categories, by code.
    #[must_use]
    pub fn texts(&self) -> &[Arc<str>] {
        &self.texts
    }

    /// Handling of other texts.
    #[must_use]
    pub fn unknown(&self) -> UnknownCategory {
        self.unknown
    }
}
