//! `cats` of XGBoost 3.1 and newer: the categories of each column of the training data, by number.
//!
//! `enc` has an object for each column: empty lists if it has no categories; `offsets` and
//! `values`, the concatenated bytes of the names with their offsets; or only `values`, numbers.
//! `feature_segments` contains the cumulative number of categories per column.
//!
//! XGBoost before 3.4 counts the characters of a pandas string instead of its bytes, so names
//! outside of ASCII are cut at wrong offsets, and some of the pieces are valid UTF-8. Columns with
//! such names are treated as columns without a table. For newer versions, which may have loaded and
//! saved an older file, this applies only to columns with names that are not valid UTF-8.

use super::version::XgboostVersion;
use crate::categories::{ColumnCategories, check_count};
use crate::error::{ModelError, ModelResult};
use crate::limits::{CATEGORY_BYTES_MAX, CATEGORY_NAMES_MAX, FEATURES_MAX};
use crate::value_reader::{ValueReader, put_once, required};

/// Category tables of a file.
#[derive(Default)]
pub(super) struct CategoryTables {
    /// Number of columns with an entry.
    entries: usize,
    /// Number of names over all columns.
    count: usize,
    columns: Vec<ColumnTable>,
    segments: Option<Vec<i32>>,
}

/// Categories of a column that has any.
struct ColumnTable {
    column: usize,
    count: usize,
    names: TableNames,
}

/// Category names of a table.
enum TableNames {
    Ascii(Vec<String>),
    /// At least one name is outside of ASCII.
    Utf8(Vec<String>),
    Damaged,
}

impl CategoryTables {
    pub(super) fn read<S: ValueReader>(source: &mut S) -> ModelResult<Self> {
        let mut tables = Self::default();
        let mut is_entered = false;
        source.object(&mut |source, key| match key {
            "enc" if is_entered => Err(ModelError::inconsistent("", "the key appears twice")),
            "enc" => {
                is_entered = true;
                source.array(&mut |source, index| tables.read_entry(source, index))
            }
            "feature_segments" => {
                put_once(&mut tables.segments, source.integers(FEATURES_MAX + 1)?)
            }
            _ => source.skip(),
        })?;
        Ok(tables)
    }

    /// Reads the entry of a column.
    fn read_entry<S: ValueReader>(&mut self, source: &mut S, column: usize) -> ModelResult<()> {
        if column >= FEATURES_MAX {
            return Err(ModelError::too_large(format!("{column} features")));
        }
        let (mut offsets, mut values) = (None, None);
        source.object(&mut |source, key| match key {
            "offsets" => put_once(&mut offsets, source.integers(CATEGORY_NAMES_MAX + 1)?),
            "values" => put_once(&mut values, source.wide_integers(CATEGORY_BYTES_MAX)?),
            _ => source.skip(),
        })?;
        self.entries = column + 1;
        let values = required(values, "values")?;
        let (count, names) = match offsets {
            Some(offsets) => names_of(&offsets, &values)?,
            None => {
                check_count(self.count + values.len())?;
                let names = values.iter().map(i64::to_string).collect();
                (values.len(), TableNames::Ascii(names))
            }
        };
        if count > 0 {
            self.columns.push(ColumnTable {
                column,
                count,
                names,
            });
        }
        self.count += count;
        check_count(self.count)
    }

    /// Returns the categories by column, read by the rules of the version; notices list columns
    /// whose names it corrupted.
    pub(super) fn finish(
        self,
        version: XgboostVersion,
        features: usize,
        notices: &mut Vec<String>,
    ) -> ModelResult<Vec<ColumnCategories>> {
        if self.entries == 0 {
            return Ok(Vec::new());
        }
        if self.entries != features {
            let reason = format!("{} entries for {features} features", self.entries);
            return Err(ModelError::inconsistent("enc", reason));
        }
        let segments = required(self.segments.as_deref(), "feature_segments")?;
        check_segments(segments, &self.columns, features)
            .map_err(|reason| ModelError::inconsistent("feature_segments", reason))?;
        let mut categories = Vec::with_capacity(self.columns.len());
        for ColumnTable { column, names, .. } in self.columns {
            match names {
                TableNames::Ascii(names) => categories.push(ColumnCategories {
                    column,
                    texts: names,
                }),
                TableNames::Utf8(names) if !version.cuts_categories_by_chars() => {
                    categories.push(ColumnCategories {
                        column,
                        texts: names,
                    });
                }
                TableNames::Utf8(_) | TableNames::Damaged => notices.push(format!(
                    "column {column} has categories outside of ASCII, which XGBoost before 3.4 \
                     writes incompletely: strings are refused in this column until \"categories\" \
                     of the model lists them; category numbers are accepted"
                )),
            }
        }
        Ok(categories)
    }
}

/// Splits `bytes` into names; returns their number and the names.
fn names_of(offsets: &[i32], bytes: &[i64]) -> ModelResult<(usize, TableNames)> {
    let invalid = |reason: String| ModelError::inconsistent("offsets", reason);
    let Some((&first, &last)) = offsets.first().zip(offsets.last()) else {
        return match bytes {
            [] => Ok((0, TableNames::Ascii(Vec::new()))),
            _ => Err(invalid(format!(
                "the list is empty, but there are {} bytes of values",
                bytes.len()
            ))),
        };
    };
    if first != 0 || !offsets.is_sorted() || usize::try_from(last) != Ok(bytes.len()) {
        let reason = format!(
            "not an ascending list from 0 to {}, the number of bytes",
            bytes.len()
        );
        return Err(invalid(reason));
    }
    // Bytes are written as signed 8-bit numbers.
    let outside = bytes.iter().find(|byte| !(-128..256).contains(*byte));
    if let Some(outside) = outside {
        let reason = format!("{outside} is not a byte");
        return Err(ModelError::inconsistent("values", reason));
    }
    let count = offsets.len() - 1;
    let text = |ends: &[i32]| {
        let bytes = &bytes[ends[0] as usize..ends[1] as usize];
        String::from_utf8(bytes.iter().map(|&byte| byte as u8).collect())
    };
    let Ok(names) = offsets.windows(2).map(text).collect::<Result<Vec<_>, _>>() else {
        return Ok((count, TableNames::Damaged));
    };
    match names.iter().all(|text| text.is_ascii()) {
        true => Ok((count, TableNames::Ascii(names))),
        false => Ok((count, TableNames::Utf8(names))),
    }
}

/// Checks that the segments match the columns.
fn check_segments(
    segments: &[i32],
    columns: &[ColumnTable],
    features: usize,
) -> Result<(), String> {
    if segments.len() != features + 1 || segments[0] != 0 {
        let length = segments.len();
        return Err(format!(
            "{length} numbers for {features} features: one more is expected, the first 0"
        ));
    }
    let mut columns = columns.iter().peekable();
    for (column, ends) in segments.windows(2).enumerate() {
        let own = columns.next_if(|it| it.column == column);
        let count = own.map_or(0, |it| it.count);
        let given = i64::from(ends[1]) - i64::from(ends[0]);
        if usize::try_from(given) != Ok(count) {
            return Err(format!(
                "{given} categories for column {column}, which has {count}"
            ));
        }
    }
    Ok(())
}
