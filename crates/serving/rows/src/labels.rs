//! Labels: user-defined names of the classes of a model, one for each row of a reply.

use albacore_engine::{ClassNames, ElementType, OutputInfo};

/// The name of the tensor of labels.
pub const LABEL: &str = "label";

/// The data type of texts in the protocol.
pub const BYTES: &str = "BYTES";

/// Returns the labels of the rows in `values` as a binary tensor of texts: each label follows its
/// length in bytes as a `u32`.
#[must_use]
pub fn label_bytes(classes: &ClassNames, output: &OutputInfo, values: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for row in values.chunks_exact(output.row_bytes().max(1)) {
        let class = classes.rule.class_of(&numbers(output.element, row));
        let name = classes.names.get(class).map_or("", String::as_str);
        push_text(&mut bytes, name);
    }
    bytes
}

/// Appends a text to a binary tensor, prefixed by its length in bytes.
pub fn push_text(bytes: &mut Vec<u8>, text: &str) {
    // Names and numbers are much shorter than 2^32 bytes.
    let length = u32::try_from(text.len()).unwrap_or_default();
    bytes.extend_from_slice(&length.to_le_bytes());
    bytes.extend_from_slice(text.as_bytes());
}

/// Iterates over the texts of a binary tensor; stops at a truncated one.
pub fn texts(mut bytes: &[u8]) -> impl Iterator<Item = &str> {
    std::iter::from_fn(move || {
        let (length, rest) = bytes.split_first_chunk()?;
        let length = usize::try_from(u32::from_le_bytes(*length)).ok()?;
        let (text, rest) = rest.split_at_checked(length)?;
        bytes = rest;
        std::str::from_utf8(text).ok()
    })
}

/// Maximum size of the label of a row, including its length prefix.
#[must_use]
pub fn row_bytes_max(classes: &ClassNames) -> usize {
    let longest = classes.names.iter().map(String::len).max();
    4 + longest.unwrap_or_default()
}

/// Returns the numbers in a row as binary64, which is exact.
#[must_use]
pub fn numbers(element: ElementType, row: &[u8]) -> Vec<f64> {
    match element {
        ElementType::F64 => {
            let values = row.as_chunks().0.iter();
            values.map(|&bytes| f64::from_le_bytes(bytes)).collect()
        }
        ElementType::F32 => {
            let values = row.as_chunks().0.iter();
            values
                .map(|&bytes| f32::from_le_bytes(bytes).into())
                .collect()
        }
        ElementType::I32 => {
            let values = row.as_chunks().0.iter();
            values
                .map(|&bytes| i32::from_le_bytes(bytes).into())
                .collect()
        }
    }
}

#[cfg(test)]
mod tests {
    use albacore_engine::{ClassRule, Kind};

    use super::*;

    fn labels(rule: ClassRule, row_shape: &[usize], values: &[f64]) -> Vec<String> {
        let names = ["a", "\u{e9}", "long"].map(str::to_owned).to_vec();
        let classes = ClassNames { rule, names };
        let output = OutputInfo {
            kind: Kind::Value,
            element: ElementType::F64,
            row_shape: row_shape.to_vec(),
        };
        let values: Vec<u8> = values.iter().flat_map(|it| it.to_le_bytes()).collect();
        let bytes = label_bytes(&classes, &output, &values);
        assert!(bytes.len() <= row_bytes_max(&classes) * values.len() / output.row_bytes());
        texts(&bytes).map(str::to_owned).collect()
    }

    #[test]
    fn labels_are_those_of_the_class_that_the_value_means() {
        // As in the training libraries, the comparison is strict: one half is not above one half.
        let values = [0.0, 0.5, 0.500_001, f64::NAN];
        assert_eq!(
            labels(ClassRule::AboveHalf, &[], &values),
            ["a", "a", "\u{e9}", "a"]
        );
        let values = [0.2, 0.5, 0.3, 0.4, 0.2, 0.4, 0.1, 0.1, 0.8];
        assert_eq!(
            labels(ClassRule::Largest, &[3], &values),
            ["\u{e9}", "a", "long"]
        );
        assert_eq!(labels(ClassRule::Given, &[], &[2.0, 0.0]), ["long", "a"]);
    }
}
