//! Tables in `text/csv`: with a header line, as MLflow's clients send them, or without, as clients
//! of SageMaker's XGBoost container do.
//!
//! The first line is a row if all its fields are numbers, otherwise the header; if a column name is
//! a number, the parameter `header` of the content type decides. Fields may be quoted (RFC 4180);
//! lines end with LF or CR LF. Missing values are those of `pandas.read_csv`.

use std::borrow::Cow;

use albacore_engine::{CategoryTable, ModelInfo};

use crate::categories::{self, REMEDY};
use crate::excerpt::excerpt;
use crate::row_writer::RowWriter;
use crate::table::{Params, RowsKey, Table, Values};
use crate::{ColumnOrder, InvalidRows};

/// Missing values of `pandas.read_csv`, besides the empty field.
const MISSING: [&str; 18] = [
    "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN", "<NA>",
    "N/A", "NA", "NULL", "NaN", "None", "n/a", "nan", "null",
];

/// The lines that contain rows; blank lines are skipped.
#[derive(Clone, Debug)]
pub(crate) struct Lines<'a> {
    text: &'a str,
    /// Number of lines before the text.
    before: usize,
}

impl<'a> Lines<'a> {
    pub(crate) fn bytes(&self) -> usize {
        self.text.len()
    }

    /// Iterates over the lines with their line numbers, from 1.
    fn rows(&self) -> impl Iterator<Item = (usize, &'a str)> + use<'a> {
        let numbered = (self.before + 1..).zip(self.text.lines());
        numbered.filter(|(_, line)| !line.trim_ascii().is_empty())
    }
}

impl<'a> Table<'a> {
    /// Parses a `text/csv` body. `has_header` is the parameter of the content type: whether the
    /// first line contains names.
    ///
    /// # Errors
    /// The body is not UTF-8 or has no rows, or a column name in the header is invalid.
    pub fn from_csv(
        model: &ModelInfo,
        body: &'a [u8],
        has_header: Option<bool>,
    ) -> Result<Self, InvalidRows> {
        let key = RowsKey::Csv;
        let text = std::str::from_utf8(body).map_err(|error| {
            key.invalid(&format!("is not UTF-8 after {} bytes", error.valid_up_to()))
        })?;
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let all = Lines { text, before: 0 };
        let Some((number, first)) = all.rows().next() else {
            return Err(key.invalid("is empty: send at least one row"));
        };
        let names = fields(first).map_err(|problem| line_error(number, problem))?;
        let is_row = || names.iter().all(|field| is_value(field));
        let has_header = has_header.unwrap_or_else(|| !is_row());
        let (lines, order) = match has_header {
            false if names.len() != model.features => {
                return Err(line_error(
                    number,
                    &wrong_count(names.len(), model.features),
                ));
            }
            false => (all, None),
            true => {
                let order = ColumnOrder::find(model, &names);
                let order = order.map_err(|error| {
                    InvalidRows::new(format!("the first line of the text/csv body: {error}"))
                })?;
                (lines_after(text, number), order)
            }
        };
        let rows = lines.rows().count();
        Self::new(
            model,
            key,
            rows,
            Values::Csv(lines, order),
            Params::default(),
        )
    }
}

/// Returns the lines after line `number`.
fn lines_after(text: &str, number: usize) -> Lines<'_> {
    let mut rest = text;
    for _ in 0..number {
        rest = rest.split_once('\n').map_or("", |(_, rest)| rest);
    }
    Lines {
        text: rest,
        before: number,
    }
}

/// Writes the rows of `lines` in the model's order.
pub(crate) fn write(
    writer: RowWriter<'_>,
    model: &ModelInfo,
    lines: &Lines<'_>,
    order: Option<&ColumnOrder>,
) -> Result<(), InvalidRows> {
    let tables = &model.columns.categories;
    let lines = OrderedLines {
        lines,
        features: model.features,
        order,
    };
    if tables.is_empty() {
        return lines.write(writer, |writer, _, field| put_number(writer, field.trim()));
    }
    lines.write(writer, |writer, column, field| match tables.get(&column) {
        Some(table) => put_category(writer, table, field),
        None => put_number(writer, field.trim()),
    })
}

/// Lines with their column order, if it differs from the model's.
struct OrderedLines<'a> {
    lines: &'a Lines<'a>,
    features: usize,
    order: Option<&'a ColumnOrder>,
}

impl OrderedLines<'_> {
    /// Writes the rows; `put` writes the field of a column, or returns the problem with it.
    fn write(
        &self,
        mut writer: RowWriter<'_>,
        put: impl Fn(&mut RowWriter<'_>, usize, &str) -> Result<(), String>,
    ) -> Result<(), InvalidRows> {
        let (order, features) = (self.order, self.features);
        let width = order.map_or(features, ColumnOrder::width);
        for (number, line) in self.lines.rows() {
            let fields = fields(line).map_err(|problem| line_error(number, problem))?;
            if fields.len() != width {
                let problem = match order {
                    Some(_) => format!(
                        "has {} fields where the first line has {width}",
                        fields.len()
                    ),
                    None => wrong_count(fields.len(), features),
                };
                return Err(line_error(number, &problem));
            }
            for index in 0..features {
                let Some(source) = order.map_or(Some(index), |order| order.sources()[index]) else {
                    writer.put_f32(f32::NAN);
                    continue;
                };
                let field = &fields[source];
                put(&mut writer, index, field).map_err(|problem| {
                    let field = excerpt(field.trim());
                    line_error(
                        number,
                        &format!("field {}, {field:?}, {problem}", source + 1),
                    )
                })?;
            }
        }
        Ok(())
    }
}

fn put_number(writer: &mut RowWriter<'_>, field: &str) -> Result<(), String> {
    let written = match writer.is_narrow() {
        true => parse_f32(field).map(|value| writer.put_f32(value)),
        false => parse_f64(field).map(|value| writer.put_f64(value)),
    };
    written.ok_or_else(|| format!("is not a number; strings need categories: {REMEDY}"))
}

/// Writes the code of a category. A number is a code; it is ambiguous if it is also the text of a
/// category with another code.
fn put_category(
    writer: &mut RowWriter<'_>,
    table: &CategoryTable,
    field: &str,
) -> Result<(), String> {
    let is_numeric = field.starts_with(|c: char| c.is_ascii_digit() || "+-.".contains(c));
    let number = parse_f64(field.trim()).filter(|_| is_numeric);
    match (number, table.code(field)) {
        (Some(number), Some(code)) if number != f64::from(code) => Err(format!(
            "is a category and a number, which would be a code: send it in JSON, where a string \
             is a category, or its code {code}"
        )),
        (_, Some(code)) if !field.is_empty() => {
            writer.put_f32(code as f32); // exact: below 2^24
            Ok(())
        }
        (None, None) if parse_special(field.trim()).is_none() => {
            writer.put_f32(categories::code(table, field)?);
            Ok(())
        }
        _ => put_number(writer, field.trim()),
    }
}

fn wrong_count(fields: usize, features: usize) -> String {
    format!("has {fields} fields where the model has {features} columns")
}

fn line_error(line: usize, problem: &str) -> InvalidRows {
    InvalidRows::new(format!("line {line} of the text/csv body: {problem}"))
}

/// Splits a line into fields.
fn fields(line: &str) -> Result<Vec<Cow<'_, str>>, &'static str> {
    if !line.contains('"') {
        return Ok(line.split(',').map(Cow::Borrowed).collect());
    }
    let mut fields = Vec::new();
    let mut rest = line;
    loop {
        // bound: each pass consumes a field of the line
        let Some(quoted) = rest.strip_prefix('"') else {
            let (field, after) = rest
                .split_once(',')
                .map_or((rest, None), |(f, r)| (f, Some(r)));
            fields.push(Cow::Borrowed(field));
            match after {
                Some(after) => rest = after,
                None => return Ok(fields),
            }
            continue;
        };
        let mut end = 0;
        // Two quotes in a quoted field are one quote.
        while let Some(quote) = quoted[end..].find('"') {
            end += quote;
            if !quoted[end + 1..].starts_with('"') {
                break;
            }
            end += 2;
        }
        if !quoted[end..].starts_with('"') {
            return Err("a quoted field is not closed: fields with line breaks are not supported");
        }
        let field = &quoted[..end];
        fields.push(match field.contains("\"\"") {
            true => Cow::Owned(field.replace("\"\"", "\"")),
            false => Cow::Borrowed(field),
        });
        match quoted[end + 1..].split_at_checked(1) {
            None => return Ok(fields),
            Some((",", after)) => rest = after,
            Some(_) => return Err("a quoted field is not followed by a comma"),
        }
    }
}

/// Whether the field is a number or a missing value, not a column name.
fn is_value(field: &str) -> bool {
    parse_f64(field.trim()).is_some()
}

fn parse_f32(field: &str) -> Option<f32> {
    parse_special(field)
        .map(|value| value as f32)
        .or_else(|| field.parse().ok())
}

fn parse_f64(field: &str) -> Option<f64> {
    parse_special(field).or_else(|| field.parse().ok())
}

/// Returns the value of a boolean or missing field; `None` for other fields.
fn parse_special(field: &str) -> Option<f64> {
    match field {
        "" => Some(f64::NAN),
        "True" | "TRUE" | "true" => Some(1.0),
        "False" | "FALSE" | "false" => Some(0.0),
        _ if field.as_bytes()[0].is_ascii_digit() => None, // most fields
        _ => MISSING.contains(&field).then_some(f64::NAN),
    }
}
