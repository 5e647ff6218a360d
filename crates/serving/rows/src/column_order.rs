//! Where the columns of a model are in the rows of a request that names its columns.
//!
//! A model without names calls its columns by their numbers, "0", "1" and so on, as pandas does;
//! LightGBM's own `Column_0` have these names, too.

use std::collections::HashMap;

use albacore_engine::ModelInfo;

use crate::InvalidRows;
use crate::excerpt::{excerpt, some_names};

/// For each column of a model its place in the rows of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ColumnOrder {
    sources: Vec<usize>,
}

impl ColumnOrder {
    /// Finds the columns of `model` among `names`; `None` if they are in the model's order.
    ///
    /// # Errors
    /// A name is unknown, comes twice or is missing.
    pub fn find(model: &ModelInfo, names: &[impl AsRef<str>]) -> Result<Option<Self>, InvalidRows> {
        let columns = Columns::of(model);
        if columns.are_in_order(names) {
            return Ok(None);
        }
        let places = columns.places();
        let mut sources = vec![None; model.features];
        let mut unknown = Vec::new();
        for (source, name) in names.iter().enumerate() {
            let name = name.as_ref();
            match places.get(name) {
                None => unknown.push(name),
                Some(&place) if sources[place].is_some() => {
                    let name = excerpt(name);
                    return Err(columns.refusal(&format!("column {name:?} comes twice")));
                }
                Some(&place) => sources[place] = Some(source),
            }
        }
        if !unknown.is_empty() {
            return Err(columns.unknown(&unknown));
        }
        let missing = (0..model.features).filter(|&place| sources[place].is_none());
        let missing: Vec<String> = missing.map(|place| columns.name(place)).collect();
        if !missing.is_empty() {
            let names = some_names(missing.iter().map(String::as_str));
            let are = if missing.len() == 1 { "is" } else { "are" };
            return Err(columns.refusal(&format!(
                "column {names} {are} missing: send null where a value is not known"
            )));
        }
        Ok(Some(Self {
            sources: sources.into_iter().flatten().collect(),
        }))
    }

    /// By column of the model: the place in a row of the request.
    #[must_use]
    pub fn sources(&self) -> &[usize] {
        &self.sources
    }

    /// Puts rows whose values have `element_bytes` into the model's order.
    pub fn apply(&self, element_bytes: usize, memory: &mut [u8]) {
        let row_bytes = self.sources.len() * element_bytes;
        let mut before = vec![0; row_bytes];
        for row in memory.chunks_exact_mut(row_bytes.max(1)) {
            before.copy_from_slice(row);
            let values = row.chunks_exact_mut(element_bytes.max(1));
            for (value, &source) in values.zip(&self.sources) {
                value.copy_from_slice(&before[source * element_bytes..][..element_bytes]);
            }
        }
    }
}

/// The columns of a model by their names.
struct Columns<'a> {
    model: &'a ModelInfo,
    names: &'a [String],
    /// Whether numbers are names.
    is_numbered: bool,
}

impl<'a> Columns<'a> {
    fn of(model: &'a ModelInfo) -> Self {
        let names = &model.columns.names[..];
        let is_default = |(place, name): (usize, &String)| {
            let number = name.strip_prefix("Column_");
            number.is_some_and(|number| number.parse() == Ok(place))
        };
        Self {
            model,
            names,
            is_numbered: names.iter().enumerate().all(is_default),
        }
    }

    fn name(&self, place: usize) -> String {
        let own = self.names.get(place).cloned();
        own.unwrap_or_else(|| place.to_string())
    }

    fn are_in_order(&self, names: &[impl AsRef<str>]) -> bool {
        let is_here = |(place, name): (usize, &str)| {
            self.names.get(place).is_some_and(|own| own == name)
                || self.is_numbered && is_number(name, place)
        };
        let names_as_text = names.iter().map(AsRef::as_ref);
        names.len() == self.model.features && names_as_text.enumerate().all(is_here)
    }

    fn places(&self) -> HashMap<std::borrow::Cow<'a, str>, usize> {
        let own = self.names.iter().map(String::as_str).enumerate();
        let numbers = 0..if self.is_numbered {
            self.model.features
        } else {
            0
        };
        let numbers = numbers.map(|place| (place.to_string().into(), place));
        own.map(|(place, name)| (name.into(), place))
            .chain(numbers)
            .collect()
    }

    fn unknown(&self, names: &[&str]) -> InvalidRows {
        let unknown = some_names(names.iter().copied());
        let are = if names.len() == 1 { "is" } else { "are" };
        if self.names.is_empty() {
            return self.refusal(&format!(
                "column {unknown} {are} unknown: the model's file has no names of columns, so \
                 they are called \"0\", \"1\" and so on; send rows without names, or train with \
                 named columns"
            ));
        }
        let own = some_names(self.names.iter().map(String::as_str));
        self.refusal(&format!(
            "column {unknown} {are} unknown; the model has {own}"
        ))
    }

    fn refusal(&self, problem: &str) -> InvalidRows {
        let name = &self.model.name;
        InvalidRows::new(format!("model {name:?}: {problem}"))
    }
}

/// Whether `name` is the number `place` without leading zeros.
fn is_number(name: &str, place: usize) -> bool {
    name.parse() == Ok(place) && (name == "0" || !name.starts_with(['0', '+']))
}

#[cfg(test)]
mod tests {
    use albacore_engine::Columns;
    use proptest::prelude::*;

    use super::*;

    fn model(names: &[&str], features: usize) -> ModelInfo {
        ModelInfo {
            name: "m".to_owned(),
            features,
            columns: Columns {
                names: names.iter().map(|name| (*name).to_owned()).collect(),
                types: Vec::new(),
            },
            ..ModelInfo::default()
        }
    }

    fn refused(names: &[&str], request: &[&str]) -> String {
        let found = ColumnOrder::find(&model(names, 3), request);
        found.unwrap_err().to_string()
    }

    #[test]
    fn wrong_names_are_refused_by_name() {
        let own = ["age", "amount", "c"];
        for (request, part) in [
            (
                &["age", "sum", "c", "x"][..],
                "column \"sum\", \"x\" are unknown; the model has \"age\"",
            ),
            (&["age", "c", "age"], "column \"age\" comes twice"),
            (&["c"], "column \"age\", \"amount\" are missing: send null"),
            (&["age", "amount"], "column \"c\" is missing"),
            (&["0", "1", "2"], "are unknown"),
            (&[], "column \"age\", \"amount\", \"c\" are missing"),
        ] {
            let said = refused(&own, request);
            assert!(
                said.starts_with("model \"m\": ") && said.contains(part),
                "{said}"
            );
        }
        let said = refused(&[], &["age", "1", "2"]);
        assert!(
            said.contains("\"age\" is unknown: the model's file has no names"),
            "{said}"
        );
        assert!(refused(&[], &["00", "1", "2"]).contains("\"00\" is unknown"));
    }

    #[test]
    fn numbers_are_the_names_of_nameless_columns() {
        for names in [&[][..], &["Column_0", "Column_1", "Column_2"]] {
            let find = |request: &[&str]| ColumnOrder::find(&model(names, 3), request).unwrap();
            assert_eq!(find(&["0", "1", "2"]), None);
            assert_eq!(find(&["2", "0", "1"]).unwrap().sources(), [1, 2, 0]);
        }
    }

    proptest! {
        #[test]
        fn any_order_is_found(order in Just((0..9_usize).collect::<Vec<_>>()).prop_shuffle()) {
            let names: Vec<String> = (0..9).map(|place| format!("n{place}")).collect();
            let own: Vec<&str> = names.iter().map(String::as_str).collect();
            let request: Vec<&str> = order.iter().map(|&place| own[place]).collect();
            let found = ColumnOrder::find(&model(&own, 9), &request).unwrap();
            let sources = found.map_or((0..9).collect(), |found| found.sources().to_vec());
            for (place, source) in sources.into_iter().enumerate() {
                prop_assert_eq!(request[source], own[place]);
            }
            let Some(found) = ColumnOrder::find(&model(&own, 9), &request).unwrap() else {
                return Ok(());
            };
            let mut rows: Vec<u8> = order.iter().chain(&order).map(|&place| place as u8).collect();
            found.apply(1, &mut rows);
            prop_assert_eq!(rows, [0, 1, 2, 3, 4, 5, 6, 7, 8].repeat(2));
        }
    }
}
