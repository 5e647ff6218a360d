//! The columns of a model's rows as its file and its settings describe them.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// What is known of a model's columns.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Columns {
    /// A name for each column; empty if the file has none.
    pub names: Vec<String>,
    /// A type for each column in the words of the training library; empty if the file has none.
    pub types: Vec<String>,
    /// The categories of columns that may be sent as texts, by the number of the column.
    pub categories: BTreeMap<usize, Arc<CategoryTable>>,
}

impl Columns {
    /// Whether columns are also called by their numbers: the file has no names, or LightGBM's own.
    #[must_use]
    pub fn are_numbered(&self) -> bool {
        let is_default = |(place, name): (usize, &String)| {
            let number = name.strip_prefix("Column_");
            number.is_some_and(|number| number.parse() == Ok(place))
        };
        self.names.iter().enumerate().all(is_default)
    }

    /// The name of a column: its number if the file has none.
    #[must_use]
    pub fn name(&self, place: usize) -> String {
        let own = self.names.get(place).cloned();
        own.unwrap_or_else(|| place.to_string())
    }
}

/// The texts in place of which the trees have numbers in a column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CategoryTable {
    codes: HashMap<Arc<str>, u32>,
    texts: Vec<Arc<str>>,
    unknown: UnknownCategory,
}

/// What a text is that is none of the categories.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnknownCategory {
    /// Refused, as XGBoost does.
    Refused,
    /// A missing value, as in LightGBM.
    Missing,
}

impl CategoryTable {
    /// The code of each text is its place.
    #[must_use]
    pub fn new(texts: impl IntoIterator<Item = String>, unknown: UnknownCategory) -> Self {
        let texts: Vec<Arc<str>> = texts.into_iter().map(Arc::from).collect();
        Self {
            // Files and settings have far fewer than 2^32.
            codes: (0..)
                .zip(&texts)
                .map(|(code, it)| (Arc::clone(it), code))
                .collect(),
            texts,
            unknown,
        }
    }

    /// The number that the trees have for this text.
    #[must_use]
    pub fn code(&self, text: &str) -> Option<u32> {
        self.codes.get(text).copied()
    }

    /// The categories, by code.
    #[must_use]
    pub fn texts(&self) -> &[Arc<str>] {
        &self.texts
    }

    /// What other texts are.
    #[must_use]
    pub fn unknown(&self) -> UnknownCategory {
        self.unknown
    }
}
