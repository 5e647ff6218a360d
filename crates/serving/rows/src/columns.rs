//! Columnar requests, with one tensor per column: MLServer's pandas codec, and `inputs` of MLflow.
//! Each column is deserialized into a buffer and then scattered over the rows.

use std::fmt;
use std::sync::Arc;

use albacore_engine::{CategoryTable, ElementType, ModelInfo};
use albacore_proto::inference::InferTensorContents;

use crate::categories::{self, LENGTH_BYTES, REMEDY};
use crate::column_order::put_nan;
use crate::datatype::Datatype;
use crate::excerpt::excerpt;
use crate::labels::BYTES;
use crate::row_writer::RowWriter;
use crate::{ColumnOrder, InvalidRows, binary_values, json_values};

/// A column as declared in the Open Inference Protocol.
#[derive(Clone, Copy, Debug)]
pub struct DeclaredColumn<'a> {
    pub name: &'a str,
    pub datatype: &'a str,
    /// `[rows]` or `[rows, 1]`.
    pub shape: &'a [i64],
}

/// Whether the only input of a request is a single column rather than rows of all columns: it has
/// texts, or the request declares MLServer's pandas codec.
#[must_use]
pub fn is_column(datatype: &str, shape: &[i64], is_pandas: bool) -> bool {
    match shape {
        [_] => is_pandas || datatype == BYTES,
        [_, 1] => datatype == BYTES,
        _ => false,
    }
}

/// Type of the values in a column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ColumnKind {
    Numbers(Datatype),
    /// Texts of categories (`BYTES`), which are converted to codes.
    Categories(Arc<CategoryTable>),
}

impl From<Datatype> for ColumnKind {
    fn from(datatype: Datatype) -> Self {
        Self::Numbers(datatype)
    }
}

impl ColumnKind {
    fn from_declared(
        model: &ModelInfo,
        column: &DeclaredColumn<'_>,
        index: usize,
    ) -> Result<Self, InvalidRows> {
        if let Some(datatype) = Datatype::from_name(column.datatype) {
            return Ok(Self::Numbers(datatype));
        }
        let name = excerpt(column.name);
        if column.datatype == BYTES {
            let table = model.columns.categories.get(&index);
            let table = table.map(|table| Self::Categories(Arc::clone(table)));
            return table.ok_or_else(|| {
                InvalidRows::new(format!(
                    "column {name:?} has datatype {BYTES:?}, but the model has no categories for \
                     it: {REMEDY}"
                ))
            });
        }
        let names = Datatype::NAMES.map(|(_, name)| name);
        Err(InvalidRows::new(format!(
            "column {name:?} has datatype {:?}; supported are {} {BYTES}",
            excerpt(column.datatype),
            names.join(" ")
        )))
    }

    /// The type of the values in engine rows.
    #[must_use]
    pub fn element(&self) -> ElementType {
        match self {
            Self::Numbers(datatype) => datatype.element(),
            Self::Categories(_) => ElementType::F32,
        }
    }

    /// Size of a binary tensor with this number of values.
    #[must_use]
    pub fn binary_size(&self, values: usize) -> BinarySize {
        match self {
            Self::Numbers(datatype) => BinarySize::Exact(values.saturating_mul(datatype.bytes())),
            Self::Categories(_) => BinarySize::AtLeast(values.saturating_mul(LENGTH_BYTES)),
        }
    }

    /// Writes the values of a JSON list to `memory`, whose size is that of the expected values.
    ///
    /// # Errors
    /// A value is invalid, or the number of values is wrong.
    pub fn write_json(&self, text: &str, memory: &mut [u8]) -> Result<(), InvalidRows> {
        match self {
            Self::Numbers(datatype) => {
                json_values::write_json(RowWriter::new(*datatype, memory), 1, text)
            }
            Self::Categories(table) => categories::write_json(table, text, memory),
        }
    }

    /// Writes the values of a binary tensor, like [`Self::write_json`].
    ///
    /// # Errors
    /// As [`Self::write_json`].
    pub fn write_bytes(&self, tensor: &[u8], memory: &mut [u8]) -> Result<(), InvalidRows> {
        match self {
            Self::Numbers(datatype) => binary_values::write_bytes(*datatype, tensor, memory),
            Self::Categories(table) => categories::write_bytes(table, tensor, memory),
        }
    }

    /// Writes the values of typed gRPC contents, like [`Self::write_json`].
    ///
    /// # Errors
    /// As [`Self::write_json`].
    pub fn write_contents(
        &self,
        contents: &InferTensorContents,
        memory: &mut [u8],
    ) -> Result<(), InvalidRows> {
        match self {
            Self::Numbers(datatype) => binary_values::write_contents(*datatype, contents, memory),
            Self::Categories(table) => categories::write_contents(table, contents, memory),
        }
    }
}

/// Size of a binary tensor according to its shape.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BinarySize {
    Exact(usize),
    /// Texts: their lengths are only known from the data.
    AtLeast(usize),
}

impl BinarySize {
    #[must_use]
    pub fn admits(self, bytes: usize) -> bool {
        match self {
            Self::Exact(need) => bytes == need,
            Self::AtLeast(need) => bytes >= need,
        }
    }
}

impl fmt::Display for BinarySize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exact(need) => write!(f, "{need}"),
            Self::AtLeast(need) => write!(f, "at least {need}"),
        }
    }
}

/// Columns that match those of a model; their values are not checked yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ColumnTensors {
    /// Number of rows, at least one.
    pub rows: usize,
    /// Number of columns of the model.
    features: usize,
    /// One for each column, in the order of the request.
    kinds: Vec<ColumnKind>,
    /// `None` if the columns are in the model's order.
    order: Option<ColumnOrder>,
}

impl ColumnTensors {
    /// Checks names, types and shapes.
    ///
    /// # Errors
    /// A name is unknown, a duplicate or missing; a type is unknown; the columns differ in their
    /// number of rows.
    pub fn check(model: &ModelInfo, columns: &[DeclaredColumn<'_>]) -> Result<Self, InvalidRows> {
        let names: Vec<&str> = columns.iter().map(|column| column.name).collect();
        let order = ColumnOrder::find(model, &names).map_err(|error| {
            let of_texts = match columns.iter().any(|column| column.datatype == BYTES) {
                true => " (required for BYTES)",
                false => "",
            };
            InvalidRows::new(format!(
                "{error}; the request has {} inputs, one for each column{of_texts}; or send all \
                 columns as one input of numbers, of shape [rows, {}]",
                names.len(),
                model.features
            ))
        })?;
        let model_columns = order.as_ref().map(ColumnOrder::columns);
        let mut kinds = Vec::with_capacity(columns.len());
        let mut rows = None;
        for (position, column) in columns.iter().enumerate() {
            let name = excerpt(column.name);
            let index = model_columns
                .as_ref()
                .map_or(position, |columns| columns[position]);
            kinds.push(ColumnKind::from_declared(model, column, index)?);
            let column_rows = match *column.shape {
                [rows] | [rows, 1] => usize::try_from(rows).ok().filter(|&rows| rows > 0),
                _ => None,
            };
            let column_rows = column_rows.ok_or_else(|| {
                InvalidRows::new(format!(
                    "column {name:?} has shape {:?}; a column has [rows] or [rows, 1] with at \
                     least one row",
                    &column.shape[..column.shape.len().min(8)]
                ))
            })?;
            let first = *rows.get_or_insert(column_rows);
            if first != column_rows {
                return Err(InvalidRows::new(format!(
                    "column {name:?} has {column_rows} rows where the first column has {first}"
                )));
            }
        }
        Ok(Self {
            rows: rows.unwrap_or_default(),
            features: model.features,
            kinds,
            order,
        })
    }

    /// The value types of the columns, in the order of the request.
    #[must_use]
    pub fn kinds(&self) -> &[ColumnKind] {
        &self.kinds
    }

    /// The row type that can represent every value of the columns.
    #[must_use]
    pub fn row_datatype(&self) -> Datatype {
        let is_wide = |kind: &ColumnKind| kind.element() == ElementType::F64;
        match self.kinds.iter().any(is_wide) {
            true => Datatype::Fp64,
            false => Datatype::Fp32,
        }
    }

    /// Writes the rows to `memory`. `read` writes the values of one column, given its position in
    /// the request, to a buffer of their size.
    ///
    /// # Errors
    /// The error of `read`.
    pub fn write(
        &self,
        memory: &mut [u8],
        mut read: impl FnMut(usize, &ColumnKind, &mut [u8]) -> Result<(), InvalidRows>,
    ) -> Result<(), InvalidRows> {
        let element = self.row_datatype().element();
        write_columns(self.features, element, memory, |index, buffer| {
            let source = match &self.order {
                None => Some(index),
                Some(order) => order.sources()[index],
            };
            let Some(source) = source else {
                return Ok(None);
            };
            let kind = &self.kinds[source];
            buffer.resize(self.rows * kind.element().bytes(), 0);
            read(source, kind, buffer)?;
            Ok(Some(kind.element()))
        })
    }
}

/// Writes columns to the rows in `memory`, which have `features` values of type `element`.
///
/// `read` fills a buffer with the values of a model column, given its number, and returns their
/// type; `None` if the column is missing.
pub(crate) fn write_columns(
    features: usize,
    element: ElementType,
    memory: &mut [u8],
    mut read: impl FnMut(usize, &mut Vec<u8>) -> Result<Option<ElementType>, InvalidRows>,
) -> Result<(), InvalidRows> {
    let mut buffer = Vec::new();
    let row_bytes = (features * element.bytes()).max(1);
    for index in 0..features {
        buffer.clear();
        let column_element = read(index, &mut buffer)?;
        let cells = memory
            .chunks_exact_mut(row_bytes)
            .map(|row| &mut row[index * element.bytes()..][..element.bytes()]);
        let Some(column_element) = column_element else {
            cells.for_each(|cell| put_nan(element, cell));
            continue;
        };
        let values = buffer.chunks_exact(column_element.bytes());
        for (cell, value) in cells.zip(values) {
            match (column_element, element) {
                (ElementType::F32, ElementType::F64) => {
                    let value = value.try_into().map_or(0.0, f32::from_le_bytes);
                    cell.copy_from_slice(&f64::from(value).to_le_bytes());
                }
                // The row type is the widest type of the columns: no narrowing is needed.
                _ => cell.copy_from_slice(value),
            }
        }
    }
    Ok(())
}
