//! Parses the `data` of a JSON tensor directly into rows.
//!
//! Invalid JSON is rejected here; the text is not validated before. Flat (`[1, 2, 3, 4]`)
//! and nested (`[[1, 2], [3, 4]]`) data are the same row-major values. `null` is a missing value,
//! because JSON has no NaN. No recursion and no allocation: linear time in the length of the text,
//! constant memory.

use crate::InvalidRows;
use crate::datatype::Datatype;
use crate::row_writer::RowWriter;
use albacore_proto::array::{Reader, is_number};

/// Fills the memory of `writer` (rows of `features` values) from the text of a JSON array.
pub fn write_json(
    mut writer: RowWriter<'_>,
    features: usize,
    text: &str,
) -> Result<(), InvalidRows> {
    let (input, datatype) = (writer.input(), writer.datatype());
    if matches!(datatype, Datatype::Fp16 | Datatype::Bf16) {
        let name = datatype.name();
        return Err(InvalidRows::new(format!(
            "{input}: {name} has no JSON form; send it as binary data"
        )));
    }
    let rows = writer.room() / features.max(1);
    let mut reader = Reader::new(text);
    if !reader.take(b'[') {
        let message = format!("{input}: data is not an array");
        return Err(InvalidRows::new(message));
    }
    if reader.peek() == Some(b'[') {
        parse_nested(&mut reader, &mut writer, Shape { rows, features })?;
    } else {
        parse_values(&mut reader, &mut writer)?;
        let (have, need) = (writer.written(), rows * features);
        if have != need {
            return Err(InvalidRows::new(format!(
                "{input} has {have} values of data where its shape [{rows}, {features}] needs \
                 {need}"
            )));
        }
    }
    if reader.peek().is_some() {
        let message = format!("{input}: unexpected text after the array of data");
        return Err(InvalidRows::new(message));
    }
    Ok(())
}

/// The shape declared in the request.
#[derive(Clone, Copy)]
struct Shape {
    rows: usize,
    features: usize,
}

/// Parses nested rows (one array per row), after the opening bracket of the outer array.
fn parse_nested(
    reader: &mut Reader<'_>,
    writer: &mut RowWriter<'_>,
    Shape { rows, features }: Shape,
) -> Result<(), InvalidRows> {
    for row in 0.. {
        if !reader.take(b'[') {
            return Err(writer.error("a row is not an array though the first one is"));
        }
        if row == rows {
            return Err(InvalidRows::new(format!(
                "{} has more rows of data than the {rows} of its shape",
                writer.input()
            )));
        }
        let before = writer.written();
        parse_values(reader, writer)?;
        let values = writer.written() - before;
        if values != features {
            return Err(InvalidRows::new(format!(
                "row {row} of {} has {values} values, not {features}",
                writer.input()
            )));
        }
        if reader.take(b']') {
            if row + 1 != rows {
                let have = row + 1;
                return Err(InvalidRows::new(format!(
                    "{} has {have} rows of data where its shape says {rows}",
                    writer.input()
                )));
            }
            return Ok(());
        }
        if !reader.take(b',') {
            return Err(writer.error("the array of data is malformed"));
        }
    }
    Ok(())
}

/// Parses values up to and including the closing bracket. Values beyond the end of the memory are
/// counted, but not written.
fn parse_values(reader: &mut Reader<'_>, writer: &mut RowWriter<'_>) -> Result<(), InvalidRows> {
    if reader.take(b']') {
        return Ok(());
    }
    let is_short = writer.datatype() == Datatype::Fp32;
    loop {
        // bound: each pass consumes at least one byte of the text or ends
        match is_short.then(|| reader.short_f32()).flatten() {
            Some(value) => writer.put_f32(value),
            None => {
                let token = reader.token();
                if !put_number(token, writer)? {
                    put_category(reader, token, writer)?;
                }
            }
        }
        if reader.take(b']') {
            return Ok(());
        }
        if !reader.take(b',') {
            return Err(writer.error("the array of data is malformed"));
        }
    }
}

/// Writes the code of the category whose text begins with `token`; rejects any other token.
fn put_category(
    reader: &mut Reader<'_>,
    token: &str,
    writer: &mut RowWriter<'_>,
) -> Result<(), InvalidRows> {
    match token.starts_with('"') {
        true => writer.put_category(reader.rest_of_string(token)),
        false => Err(not_a_number_error(token, writer)),
    }
}

/// Writes one value: a JSON number, a JSON literal or the text of a category.
pub(crate) fn write_value(token: &str, writer: &mut RowWriter<'_>) -> Result<(), InvalidRows> {
    match put_number(token, writer)? {
        true => Ok(()),
        false if token.starts_with('"') => writer.put_category(token),
        false => Err(not_a_number_error(token, writer)),
    }
}

fn not_a_number_error(token: &str, writer: &RowWriter<'_>) -> InvalidRows {
    let shown: String = token.chars().take(32).collect();
    let name = writer.datatype().name();
    writer.error(&format!("`{shown}` is not a {name} number"))
}

/// Writes one JSON number or literal; returns false for any other token.
fn put_number(token: &str, writer: &mut RowWriter<'_>) -> Result<bool, InvalidRows> {
    let parsed = match (writer.datatype(), token.as_bytes().first()) {
        (_, Some(b'n')) if token == "null" => {
            writer.put_f32(f32::NAN);
            return Ok(true);
        }
        (_, Some(b'-' | b'0'..=b'9')) if !is_number(token) => None,
        (Datatype::Fp32, Some(b'-' | b'0'..=b'9')) => token
            .parse()
            .ok()
            .filter(|value: &f32| value.is_finite())
            .map(|v| writer.put_f32(v)),
        (Datatype::Fp64, Some(b'-' | b'0'..=b'9')) => token
            .parse()
            .ok()
            .filter(|value: &f64| value.is_finite())
            .map(|v| writer.put_f64(v)),
        (Datatype::Bool, Some(b't')) if token == "true" => {
            return writer.put_integer(1).map(|()| true);
        }
        (Datatype::Bool, Some(b'f')) if token == "false" => {
            return writer.put_integer(0).map(|()| true);
        }
        (_, Some(b'-' | b'0'..=b'9')) => match parse_integer(token) {
            Some(value) => return writer.put_integer(value).map(|()| true),
            None => None,
        },
        _ => None,
    };
    Ok(parsed.is_some())
}

/// Parses an integer, also in the forms `3.0` and `3e2`.
fn parse_integer(token: &str) -> Option<i128> {
    token.parse().ok().or_else(|| {
        let value: f64 = token.parse().ok()?;
        (value.fract() == 0.0 && value.abs() < 9.3e18).then_some(value as i128)
    })
}

#[cfg(test)]
mod tests;
