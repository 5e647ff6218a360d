//! The columns of a model's rows as its file names them, compared with the names that a request
//! gives.
//!
//! Another order is refused and not put right: a client that names its columns wants to hear that
//! they are not where it believes, and rows are copied into shared memory as they come.

use thiserror::Error;

/// Characters of a name that a message repeats.
const NAME_CHARS_MAX: usize = 64;

/// What a model's file says of its columns.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Columns {
    /// A name for each column; empty if the file has none.
    pub names: Vec<String>,
    /// A type for each column in the words of the training library; empty if the file has none.
    pub types: Vec<String>,
}

/// The columns of a request are not those of the model.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ColumnError {
    /// The model's file names no columns.
    #[error(
        "the model's file has no feature names to compare with: send rows without names, or train \
         with named columns"
    )]
    NoNames,
    /// A column has another name.
    #[error("column {column} is {found:?}, where the model has {expected:?}{hint}")]
    Differs {
        /// Counted from 0.
        column: usize,
        /// The request's name, shortened.
        found: String,
        /// The model's name, shortened.
        expected: String,
        /// Where the model has the request's name.
        hint: String,
    },
    /// The names end before the model's do.
    #[error("column {column}, {expected:?}, is missing: the model has {columns} columns")]
    Missing {
        /// Counted from 0.
        column: usize,
        /// The model's name, shortened.
        expected: String,
        /// Columns of the model.
        columns: usize,
    },
    /// There are more names than the model has.
    #[error("column {column}, {found:?}, is one too many: the model has {column} columns")]
    Extra {
        /// Counted from 0.
        column: usize,
        /// The request's name, shortened.
        found: String,
    },
}

impl Columns {
    /// Compares the names that a request gives with those of the model: all of them, in its order.
    ///
    /// # Errors
    /// The first column that differs.
    pub fn check(
        &self,
        names: impl IntoIterator<Item = impl AsRef<str>>,
    ) -> Result<(), ColumnError> {
        if self.names.is_empty() {
            return Err(ColumnError::NoNames);
        }
        let mut column = 0;
        for found in names {
            let found = found.as_ref();
            let Some(expected) = self.names.get(column) else {
                let found = brief(found);
                return Err(ColumnError::Extra { column, found });
            };
            if found != expected {
                let place = self.names.iter().position(|name| name == found);
                let hint = place.map_or_else(String::new, |place| {
                    format!(
                        "; {:?} is its column {place}: send the columns in its order",
                        brief(found)
                    )
                });
                return Err(ColumnError::Differs {
                    column,
                    found: brief(found),
                    expected: brief(expected),
                    hint,
                });
            }
            column += 1;
        }
        match self.names.get(column) {
            None => Ok(()),
            Some(expected) => Err(ColumnError::Missing {
                column,
                expected: brief(expected),
                columns: self.names.len(),
            }),
        }
    }
}

fn brief(name: &str) -> String {
    name.chars().take(NAME_CHARS_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_column_that_differs_is_named_with_what_is_expected() {
        let columns = Columns {
            names: ["age", "amount", "country"].map(str::to_owned).to_vec(),
            types: Vec::new(),
        };
        let check = |names: &[&str]| columns.check(names.iter().copied());
        assert_eq!(check(&["age", "amount", "country"]), Ok(()));
        for (names, message) in [
            (
                &["age", "amout", "country"][..],
                r#"column 1 is "amout", where the model has "amount""#,
            ),
            (
                &["age", "country", "amount"],
                r#"column 1 is "country", where the model has "amount"; "country" is its column 2: send the columns in its order"#,
            ),
            (
                &["age", "amount"],
                r#"column 2, "country", is missing: the model has 3 columns"#,
            ),
            (
                &[],
                r#"column 0, "age", is missing: the model has 3 columns"#,
            ),
            (
                &["age", "amount", "country", "x"],
                r#"column 3, "x", is one too many: the model has 3 columns"#,
            ),
            (
                &["Age", "amount", "country"],
                r#"column 0 is "Age", where the model has "age""#,
            ),
        ] {
            let error = check(names).expect_err("other columns");
            assert_eq!(error.to_string(), message);
        }
        let nameless = Columns::default().check(["age"]);
        assert_eq!(nameless, Err(ColumnError::NoNames));
        let long = "x".repeat(1000);
        let error = columns.check([long.as_str()]).expect_err("another name");
        assert!(error.to_string().len() < 200);
    }
}
