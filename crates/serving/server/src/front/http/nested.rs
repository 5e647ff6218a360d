//! Results as JSON with one entry per row: KServe's V1 protocol, MLflow, SageMaker, Vertex AI.

use albacore_engine::{ClassRule, ElementType, ModelClasses, ModelInfo, OutputInfo, Reply};
use albacore_rows::labels::numbers;

use super::super::validate::RequestedOutput;
use super::reply;

/// Formats the body of a reply: a list with one entry per row, under `key`.
pub(super) fn print(
    key: &str,
    model: &ModelInfo,
    outputs: &[RequestedOutput],
    reply: &Reply,
) -> Vec<u8> {
    let found = outputs.first().and_then(|requested| {
        let kind = requested.kind;
        Some((model.output(kind)?, reply.output(kind)?))
    });
    let mut body = Vec::new();
    body.extend_from_slice(format!("{{\"{key}\":[").as_bytes());
    if let Some((output, values)) = found {
        body.reserve(4 * values.len());
        print_rows(&mut body, Frame::Predictions, output, values);
    }
    body.extend_from_slice(b"]}");
    body
}

/// The structure around the entries of a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Frame {
    /// A JSON list under `predictions`.
    Predictions,
    /// One line per row.
    Lines,
}

impl Frame {
    pub(super) fn begin(self) -> Vec<u8> {
        match self {
            Self::Predictions => b"{\"predictions\":[".to_vec(),
            Self::Lines => Vec::new(),
        }
    }

    pub(super) fn end(self, body: &mut Vec<u8>) {
        match self {
            Self::Predictions => body.extend_from_slice(b"]}"),
            Self::Lines => body.push(b'\n'),
        }
    }

    fn separator(self) -> u8 {
        match self {
            Self::Predictions => b',',
            Self::Lines => b'\n',
        }
    }
}

/// Prints the value of each row.
pub(super) fn print_rows(body: &mut Vec<u8>, frame: Frame, output: &OutputInfo, values: &[u8]) {
    each_row(body, frame, output, values, |body, row| {
        match (frame, &output.row_shape[..]) {
            // Lines have no brackets.
            (Frame::Lines, [_]) => reply::print_values(body, output.element, row),
            (_, shape) => print_nested(body, output.element, shape, row),
        }
    });
}

/// Prints the probabilities of both classes of each row; the value is that of the second class.
pub(super) fn print_pairs(body: &mut Vec<u8>, frame: Frame, output: &OutputInfo, values: &[u8]) {
    each_row(body, frame, output, values, |body, row| {
        let first = match output.element {
            ElementType::F64 => {
                let second = row.try_into().map_or(f64::NAN, f64::from_le_bytes);
                (1.0 - second).to_le_bytes().to_vec()
            }
            ElementType::F32 | ElementType::I32 => {
                let second = row.try_into().map_or(f32::NAN, f32::from_le_bytes);
                (1.0 - second).to_le_bytes().to_vec()
            }
        };
        let pair = [&first[..], row].concat();
        match frame {
            Frame::Lines => reply::print_values(body, output.element, &pair),
            Frame::Predictions => print_nested(body, output.element, &[2], &pair),
        }
    });
}

/// Prints the class of each row.
pub(super) fn print_classes(
    body: &mut Vec<u8>,
    frame: Frame,
    output: &OutputInfo,
    classes: &ModelClasses,
    values: &[u8],
) {
    let label = |body: &mut Vec<u8>, class: usize| match classes.labels.get(class) {
        Some(label) => body.extend_from_slice(label.as_bytes()),
        None => body.extend_from_slice(class.to_string().as_bytes()),
    };
    each_row(body, frame, output, values, |body, row| {
        let numbers = numbers(output.element, row);
        match classes.rule {
            ClassRule::EachAboveHalf => {
                let each = numbers
                    .iter()
                    .map(|&value| if value > 0.5 { "1" } else { "0" });
                let each = each.collect::<Vec<_>>().join(",");
                let text = match frame {
                    Frame::Predictions => format!("[{each}]"),
                    Frame::Lines => each,
                };
                body.extend_from_slice(text.as_bytes());
            }
            rule => label(body, rule.class_of(&numbers)),
        }
    });
}

fn each_row(
    body: &mut Vec<u8>,
    frame: Frame,
    output: &OutputInfo,
    values: &[u8],
    mut print: impl FnMut(&mut Vec<u8>, &[u8]),
) {
    for (index, row) in values.chunks_exact(output.row_bytes().max(1)).enumerate() {
        if index > 0 {
            body.push(frame.separator());
        }
        print(body, row);
    }
}

/// Prints values of this shape, which has at most three dimensions.
fn print_nested(body: &mut Vec<u8>, element: ElementType, shape: &[usize], values: &[u8]) {
    let Some((&length, inner)) = shape.split_first() else {
        return reply::print_values(body, element, values);
    };
    body.push(b'[');
    if inner.is_empty() {
        reply::print_values(body, element, values);
        return body.push(b']');
    }
    let part_bytes = (values.len() / length.max(1)).max(1);
    for (index, part) in values.chunks_exact(part_bytes).enumerate() {
        if index > 0 {
            body.push(b',');
        }
        print_nested(body, element, inner, part);
    }
    body.push(b']');
}

#[cfg(test)]
mod tests;
