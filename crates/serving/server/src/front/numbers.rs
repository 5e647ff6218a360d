//! The `data` of a JSON tensor, read straight into rows.
//!
//! Nobody has checked that the text is JSON: what is not is refused. Flat (`[1, 2, 3, 4]`) and
//! nested (`[[1, 2], [3, 4]]`) data are the same row-major values. `null` is a missing value,
//! because JSON cannot spell NaN. Nothing recurses and nothing is kept: time is linear in the text,
//! memory constant.

use super::cell::Cells;
use super::datatype::Datatype;
use super::refused::Refused;
use albacore_proto::array::{Reader, is_number};

/// Fills `memory` (rows of `features` values) from the text of a JSON array.
pub(super) fn fill_from_json(
    datatype: Datatype,
    features: usize,
    text: &str,
    memory: &mut [u8],
) -> Result<(), Refused> {
    if matches!(datatype, Datatype::Fp16 | Datatype::Bf16) {
        let name = datatype.name();
        return Err(Refused::invalid(format!(
            "input \"input\": {name} has no JSON form; send it as binary data"
        )));
    }
    let rows = memory.len() / (features * datatype.element().bytes()).max(1);
    let mut cells = Cells::new(datatype, memory);
    let mut reader = Reader::new(text);
    if !reader.take(b'[') {
        return Err(Refused::invalid("input \"input\": data is not an array"));
    }
    if reader.peek() == Some(b'[') {
        nested(&mut reader, &mut cells, Shape { rows, features })?;
    } else {
        values(&mut reader, &mut cells)?;
        let (have, need) = (cells.written(), rows * features);
        if have != need {
            return Err(Refused::invalid(format!(
                "input \"input\" has {have} values of data where its shape [{rows}, {features}] \
                 needs {need}"
            )));
        }
    }
    if reader.peek().is_some() {
        return Err(Refused::invalid(
            "input \"input\": something follows the array of data",
        ));
    }
    Ok(())
}

/// The shape that a request declared.
#[derive(Clone, Copy)]
struct Shape {
    rows: usize,
    features: usize,
}

/// Rows of values, each in brackets of its own, after the first bracket.
fn nested(
    reader: &mut Reader<'_>,
    cells: &mut Cells<'_>,
    Shape { rows, features }: Shape,
) -> Result<(), Refused> {
    for row in 0.. {
        if !reader.take(b'[') {
            return Err(cells.refused("a row is not an array though the first one is"));
        }
        if row == rows {
            return Err(Refused::invalid(format!(
                "input \"input\" has more rows of data than the {rows} of its shape"
            )));
        }
        let before = cells.written();
        values(reader, cells)?;
        let values = cells.written() - before;
        if values != features {
            return Err(Refused::invalid(format!(
                "row {row} of input \"input\" has {values} values, not {features}"
            )));
        }
        if reader.take(b']') {
            if row + 1 != rows {
                let have = row + 1;
                return Err(Refused::invalid(format!(
                    "input \"input\" has {have} rows of data where its shape says {rows}"
                )));
            }
            return Ok(());
        }
        if !reader.take(b',') {
            return Err(cells.refused("the array of data is cut off"));
        }
    }
    Ok(())
}

/// Reads values up to and over the closing bracket. Those beyond the memory are counted, not
/// written.
fn values(reader: &mut Reader<'_>, cells: &mut Cells<'_>) -> Result<(), Refused> {
    if reader.take(b']') {
        return Ok(());
    }
    let is_short = cells.datatype() == Datatype::Fp32;
    loop {
        // bound: each turn consumes at least one byte of the text or ends
        match is_short.then(|| reader.short_f32()).flatten() {
            Some(value) => cells.put_f32(value),
            None => put(reader.token(), cells)?,
        }
        if reader.take(b']') {
            return Ok(());
        }
        if !reader.take(b',') {
            return Err(cells.refused("the array of data is cut off"));
        }
    }
}

/// Writes one value, if it is spelled as JSON spells it.
fn put(token: &str, cells: &mut Cells<'_>) -> Result<(), Refused> {
    let parsed = match (cells.datatype(), token.as_bytes().first()) {
        (_, Some(b'n')) if token == "null" => {
            cells.put_f32(f32::NAN);
            return Ok(());
        }
        (_, Some(b'-' | b'0'..=b'9')) if !is_number(token) => None,
        (Datatype::Fp32, Some(b'-' | b'0'..=b'9')) => token
            .parse()
            .ok()
            .filter(|value: &f32| value.is_finite())
            .map(|v| cells.put_f32(v)),
        (Datatype::Fp64, Some(b'-' | b'0'..=b'9')) => token
            .parse()
            .ok()
            .filter(|value: &f64| value.is_finite())
            .map(|v| cells.put_f64(v)),
        (Datatype::Bool, Some(b't')) if token == "true" => return cells.put_integer(1),
        (Datatype::Bool, Some(b'f')) if token == "false" => return cells.put_integer(0),
        (_, Some(b'-' | b'0'..=b'9')) => match integer(token) {
            Some(value) => return cells.put_integer(value),
            None => None,
        },
        _ => None,
    };
    parsed.ok_or_else(|| {
        let shown: String = token.chars().take(32).collect();
        cells.refused(&format!(
            "`{shown}` is not a {} number",
            cells.datatype().name()
        ))
    })
}

/// A whole number, also in the spellings `3.0` and `3e2`.
fn integer(token: &str) -> Option<i128> {
    token.parse().ok().or_else(|| {
        let value: f64 = token.parse().ok()?;
        (value.fract() == 0.0 && value.abs() < 9.3e18).then_some(value as i128)
    })
}

#[cfg(test)]
mod tests;
