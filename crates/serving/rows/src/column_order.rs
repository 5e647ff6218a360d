//! Where the columns of a model are in the rows of a request that names its columns.
//!
//! A model without names calls its columns by their numbers, "0", "1" and so on, as pandas does;
//! LightGBM's own `Column_0` have these names, too. Columns that a request lacks are refused, or are
//! NaN where the settings of the model say so.

use std::collections::HashMap;

use albacore_engine::{ElementType, ModelInfo};

use crate::InvalidRows;
use crate::excerpt::{excerpt, some_names};

/// For each column of a model its place in the rows of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ColumnOrder {
    /// `None` for a column that the request lacks.
    sources: Vec<Option<usize>>,
    /// Columns of the request.
    width: usize,
}

impl ColumnOrder {
    /// Finds the columns of `model` among `names`; `None` if they are in the model's order.
    ///
    /// # Errors
    /// A name is unknown or comes twice; one is missing, or all are where some may be.
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
        let may_be_missing = model.missing_is_nan && !names.is_empty();
        if !missing.is_empty() && !may_be_missing {
            let names = some_names(missing.iter().map(String::as_str));
            let are = if missing.len() == 1 { "is" } else { "are" };
            return Err(columns.refusal(&format!(
                "column {names} {are} missing: send null where a value is not known"
            )));
        }
        Ok(Some(Self {
            sources,
            width: names.len(),
        }))
    }

    /// By column of the model: the place in a row of the request; `None` if it is missing.
    #[must_use]
    pub fn sources(&self) -> &[Option<usize>] {
        &self.sources
    }

    /// Columns of the request: at least one, at most those of the model.
    #[must_use]
    pub fn width(&self) -> usize {
        self.width
    }

    /// Has `write` write the rows of the request into the first bytes of `memory`, then puts them
    /// into the model's order. Values have type `element`.
    ///
    /// # Errors
    /// That of `write`.
    pub fn write<E>(
        &self,
        element: ElementType,
        memory: &mut [u8],
        write: impl FnOnce(&mut [u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let bytes = element.bytes();
        let rows = memory.len() / (self.sources.len() * bytes).max(1);
        write(&mut memory[..rows * self.width * bytes])?;
        self.spread(element, memory);
        Ok(())
    }

    /// Spreads rows at the beginning of `memory` over all of it, the last one first: no row is
    /// written over one that is still to be read.
    fn spread(&self, element: ElementType, memory: &mut [u8]) {
        let bytes = element.bytes();
        let (from, to) = (self.width * bytes, self.sources.len() * bytes);
        let mut before = vec![0; from];
        for row in (0..memory.len() / to.max(1)).rev() {
            before.copy_from_slice(&memory[row * from..][..from]);
            let values = memory[row * to..][..to].chunks_exact_mut(bytes);
            for (value, source) in values.zip(&self.sources) {
                match source {
                    Some(source) => value.copy_from_slice(&before[source * bytes..][..bytes]),
                    None => put_nan(element, value),
                }
            }
        }
    }
}

/// Writes a missing value.
pub(crate) fn put_nan(element: ElementType, cell: &mut [u8]) {
    match element {
        ElementType::F64 => cell.copy_from_slice(&f64::NAN.to_le_bytes()),
        ElementType::F32 | ElementType::I32 => cell.copy_from_slice(&f32::NAN.to_le_bytes()),
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
            let places = [1, 2, 0].map(Some);
            assert_eq!(find(&["2", "0", "1"]).unwrap().sources(), places);
        }
    }

    #[test]
    fn a_misspelled_name_and_no_name_are_refused_where_columns_may_be_missing() {
        let own = ModelInfo {
            missing_is_nan: true,
            ..model(&["age", "amount", "c"], 3)
        };
        for (request, part) in [
            (&["age", "amuont"][..], "column \"amuont\" is unknown"),
            (&["age", "age"], "column \"age\" comes twice"),
            (&["x"], "column \"x\" is unknown"),
            (&[], "are missing"),
        ] {
            let said = ColumnOrder::find(&own, request).unwrap_err().to_string();
            assert!(said.contains(part), "{said}");
        }
    }

    /// The rows of a request with these values.
    fn rows_of(order: &ColumnOrder, values: &[f32], all: usize) -> Vec<f32> {
        let mut memory = vec![0; 4 * all];
        let written = order.write(ElementType::F32, &mut memory, |memory| {
            let bytes: Vec<u8> = values
                .iter()
                .flat_map(|value| value.to_le_bytes())
                .collect();
            memory.copy_from_slice(&bytes);
            Ok::<(), ()>(())
        });
        written.unwrap();
        let values = memory.as_chunks().0.iter();
        values.map(|&bytes| f32::from_le_bytes(bytes)).collect()
    }

    proptest! {
        #[test]
        fn any_order_is_found(order in Just((0..9_usize).collect::<Vec<_>>()).prop_shuffle()) {
            let names: Vec<String> = (0..9).map(|place| format!("n{place}")).collect();
            let own: Vec<&str> = names.iter().map(String::as_str).collect();
            let request: Vec<&str> = order.iter().map(|&place| own[place]).collect();
            let found = ColumnOrder::find(&model(&own, 9), &request).unwrap();
            let sources = found.map_or((0..9).map(Some).collect(), |it| it.sources().to_vec());
            for (place, source) in sources.into_iter().enumerate() {
                prop_assert_eq!(request[source.unwrap()], own[place]);
            }
            let Some(found) = ColumnOrder::find(&model(&own, 9), &request).unwrap() else {
                return Ok(());
            };
            let values: Vec<f32> = order.iter().chain(&order).map(|&place| place as f32).collect();
            let rows = rows_of(&found, &values, 18);
            prop_assert_eq!(rows, (0..9).map(|it| it as f32).collect::<Vec<_>>().repeat(2));
        }

        #[test]
        fn any_columns_may_be_missing_but_all(
            order in Just((0..9_usize).collect::<Vec<_>>()).prop_shuffle(),
            width in 1_usize..9,
            rows in 1_usize..5,
        ) {
            let names: Vec<String> = (0..9).map(|place| format!("n{place}")).collect();
            let own: Vec<&str> = names.iter().map(String::as_str).collect();
            let model = ModelInfo { missing_is_nan: true, ..model(&own, 9) };
            let kept = &order[..width];
            let request: Vec<&str> = kept.iter().map(|&place| own[place]).collect();
            let found = ColumnOrder::find(&model, &request).unwrap().unwrap();
            prop_assert_eq!(found.width(), width);
            let value = |row: usize, place: usize| (100 * row + place) as f32;
            let of_row = |row: usize| kept.iter().map(move |&place| value(row, place));
            let values: Vec<f32> = (0..rows).flat_map(of_row).collect();
            let got = rows_of(&found, &values, 9 * rows);
            for (at, got) in got.into_iter().enumerate() {
                let (row, place) = (at / 9, at % 9);
                let is_right = match kept.contains(&place) {
                    true => got == value(row, place),
                    false => got.is_nan(),
                };
                prop_assert!(is_right, "{row} {place} {got}");
            }
        }
    }
}
