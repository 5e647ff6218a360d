//! Classification outputs: the largest numbers of each row with their indexes, in Triton's format.

use std::cmp::Ordering;

use albacore_engine::{ClassRule, ElementType, Kind, ModelInfo, OutputInfo};
use albacore_rows::labels::{numbers, push_text};

use crate::limits::CLASS_BYTES;

/// The classes of all rows: a tensor of type BYTES and shape `[rows, count]`.
///
/// A row of several dimensions is flattened; a scalar is a list of one number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Classification {
    count: usize,
    texts: Vec<String>,
}

impl Classification {
    /// Classes per row of an output: the numbers in a row, at most `limit`.
    #[must_use]
    pub fn count(output: &OutputInfo, limit: usize) -> usize {
        limit.min(output.row_shape.iter().product())
    }

    /// Maximum size of a row of `count` classes, over all formats.
    #[must_use]
    pub fn row_bytes(model: &ModelInfo, output: &OutputInfo, count: usize) -> usize {
        let labels = labels(model, output);
        // A character of a label can take six characters in JSON (`\u0000`).
        let label = labels.iter().map(|label| 6 * label.len() + 1).max();
        count.saturating_mul(CLASS_BYTES + label.unwrap_or_default())
    }

    /// Selects the `limit` largest numbers in each row of `values`, which are rows of `output`.
    #[must_use]
    pub fn new(model: &ModelInfo, output: &OutputInfo, limit: usize, values: &[u8]) -> Self {
        let (count, labels) = (Self::count(output, limit), labels(model, output));
        let mut texts = Vec::new();
        for row in values.chunks_exact(output.row_bytes().max(1)) {
            let numbers = numbers(output.element, row);
            for index in largest(&numbers, count) {
                texts.push(text(output.element, numbers[index], index, &labels));
            }
        }
        Self { count, texts }
    }

    /// Classes per row.
    #[must_use]
    pub const fn row_classes(&self) -> usize {
        self.count
    }

    /// `value:index` or `value:index:label`, row by row.
    #[must_use]
    pub fn texts(&self) -> &[String] {
        &self.texts
    }

    /// Serializes the texts as binary BYTES: each follows its length in four bytes.
    #[must_use]
    pub fn packed(&self) -> Vec<u8> {
        let mut packed = Vec::with_capacity(self.texts.iter().map(|text| text.len() + 4).sum());
        for text in &self.texts {
            push_text(&mut packed, text);
        }
        packed
    }
}

/// The label for each number of an output; empty if the numbers have no labels. The only function
/// that decides which text follows the index of a class.
fn labels(model: &ModelInfo, output: &OutputInfo) -> Vec<String> {
    let numbers: usize = output.row_shape.iter().product();
    let is_by_class = matches!(output.kind, Kind::Value | Kind::Margin);
    let fits = |rule, count| is_by_class && rule == ClassRule::Largest && count == numbers;
    if let Some(class_names) = &model.class_names {
        let names =
            fits(class_names.rule, class_names.names.len()).then(|| class_names.names.clone());
        return names.unwrap_or_default();
    }
    let classes = model.classes.as_ref();
    let classes = classes.filter(|classes| fits(classes.rule, classes.labels.len()));
    let labels = classes.map(|classes| classes.labels.as_slice());
    let plain = |label: &String| serde_json::from_str(label).unwrap_or_else(|_| label.clone());
    labels.unwrap_or_default().iter().map(plain).collect()
}

/// Indexes of the `count` largest numbers in descending order; ties by index, NaN last.
fn largest(numbers: &[f64], count: usize) -> Vec<usize> {
    let before = |&left: &usize, &right: &usize| {
        let (a, b) = (numbers[left], numbers[right]);
        let by_value = b.partial_cmp(&a).unwrap_or(Ordering::Equal);
        let order = a.is_nan().cmp(&b.is_nan()).then(by_value);
        order.then(left.cmp(&right))
    };
    let mut indexes: Vec<usize> = (0..numbers.len()).collect();
    if count < indexes.len() {
        indexes.select_nth_unstable_by(count, before);
        indexes.truncate(count);
    }
    indexes.sort_unstable_by(before);
    indexes
}

/// Formats a number, as the shortest text that parses to the same value, with its index and label.
fn text(element: ElementType, number: f64, index: usize, labels: &[String]) -> String {
    let number = match element {
        ElementType::F32 => format!("{:?}", number as f32),
        ElementType::F64 => format!("{number:?}"),
        ElementType::I32 => format!("{number}"),
    };
    match labels.get(index) {
        Some(label) => format!("{number}:{index}:{label}"),
        None => format!("{number}:{index}"),
    }
}

#[cfg(test)]
mod tests {
    use albacore_engine::{ClassNames, ModelClasses};

    use super::*;

    fn output(kind: Kind, element: ElementType, row_shape: &[usize]) -> OutputInfo {
        OutputInfo {
            kind,
            element,
            row_shape: row_shape.to_vec(),
        }
    }

    fn classify(model: &ModelInfo, values: &[f32], row_shape: &[usize], k: usize) -> Vec<String> {
        let output = output(Kind::Value, ElementType::F32, row_shape);
        let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
        let classes = Classification::new(model, &output, k, &bytes);
        let rows = values.len() / row_shape.iter().product::<usize>();
        assert_eq!(classes.texts().len(), rows * classes.row_classes());
        classes.texts().to_vec()
    }

    #[test]
    fn the_largest_come_first_and_of_equal_ones_the_first() {
        let none = ModelInfo::default();
        let rows = [0.25, 0.5, 0.25, 1e-9, 0.0, f32::NAN];
        assert_eq!(
            classify(&none, &rows, &[3], 2),
            ["0.5:1", "0.25:0", "1e-9:0", "0.0:1"]
        );
        let all = ["0.5:1", "0.25:0", "0.25:2", "1e-9:0", "0.0:1", "NaN:2"];
        assert_eq!(classify(&none, &rows, &[3], usize::MAX), all);
        // A row of two dimensions is flattened; a scalar is a list of one number.
        assert_eq!(
            classify(&none, &[1.0, 4.0, 3.0, 2.0], &[2, 2], 1),
            ["4.0:1"]
        );
        assert_eq!(classify(&none, &[0.1, 0.7], &[], 5), ["0.1:0", "0.7:0"]);
    }

    #[test]
    fn labels_follow_where_each_class_has_a_number() {
        let mut model = ModelInfo {
            classes: Some(ModelClasses {
                rule: ClassRule::Largest,
                labels: vec!["\"a:b\"".to_owned(), "7".to_owned()],
            }),
            ..ModelInfo::default()
        };
        assert_eq!(
            classify(&model, &[0.1, 0.9], &[2], 2),
            ["0.9:1:7", "0.1:0:a:b"]
        );
        assert_eq!(classify(&model, &[0.1, 0.9, 0.0], &[3], 1), ["0.9:1"]);
        model.class_names = Some(ClassNames {
            rule: ClassRule::Largest,
            names: vec!["legit".to_owned(), "fraud".to_owned()],
        });
        assert_eq!(classify(&model, &[0.1, 0.9], &[2], 1), ["0.9:1:fraud"]);
        model.class_names = None;
        if let Some(classes) = &mut model.classes {
            classes.rule = ClassRule::AboveHalf;
        }
        assert_eq!(classify(&model, &[0.1, 0.9], &[2], 1), ["0.9:1"]);
    }

    #[test]
    fn integers_have_no_point_and_texts_are_packed_after_their_length() {
        let output = output(Kind::Leaf, ElementType::I32, &[2]);
        let values = [3_i32, -7].map(i32::to_le_bytes).concat();
        let classes = Classification::new(&ModelInfo::default(), &output, 1, &values);
        assert_eq!(classes.texts(), ["3:0"]);
        assert_eq!(classes.packed(), b"\x03\0\0\x003:0");
        let longest = format!("{:?}:4294967295", -f64::MIN_POSITIVE);
        assert!(longest.len() + 8 <= CLASS_BYTES);
    }
}
