//! Rows that a request sends as columns, a tensor each: MLServer's codec of pandas, and `inputs` of
//! MLflow. A column is read as a tensor of its own and then spread over the rows.

use albacore_engine::{ElementType, ModelInfo};

use crate::column_order::put_nan;
use crate::datatype::Datatype;
use crate::excerpt::excerpt;
use crate::{ColumnOrder, InvalidRows};

/// A column as the Open Inference Protocol declares it.
#[derive(Clone, Copy, Debug)]
pub struct DeclaredColumn<'a> {
    pub name: &'a str,
    pub datatype: &'a str,
    /// `[rows]` or `[rows, 1]`.
    pub shape: &'a [i64],
}

/// Columns that are those of a model, whose values are not checked yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ColumnTensors {
    /// At least one.
    pub rows: usize,
    /// Columns of the model.
    features: usize,
    /// In the order of the request.
    datatypes: Vec<Datatype>,
    /// `None` if they are in the model's order.
    order: Option<ColumnOrder>,
}

impl ColumnTensors {
    /// Checks names, types and shapes.
    ///
    /// # Errors
    /// A name is unknown, comes twice or is missing; a type is unknown; the columns do not have
    /// the same number of rows.
    pub fn check(model: &ModelInfo, columns: &[DeclaredColumn<'_>]) -> Result<Self, InvalidRows> {
        let names: Vec<&str> = columns.iter().map(|column| column.name).collect();
        let order = ColumnOrder::find(model, &names).map_err(|error| {
            InvalidRows::new(format!(
                "{error}; the request has {} inputs, one for each column, or send all columns as \
                 one input of shape [rows, {}]",
                names.len(),
                model.features
            ))
        })?;
        let mut datatypes = Vec::with_capacity(columns.len());
        let mut rows = None;
        for column in columns {
            let name = excerpt(column.name);
            let datatype = Datatype::from_name(column.datatype).ok_or_else(|| {
                let names = Datatype::NAMES.map(|(_, name)| name);
                InvalidRows::new(format!(
                    "column {name:?} has datatype {:?}; it takes {}",
                    excerpt(column.datatype),
                    names.join(" ")
                ))
            })?;
            datatypes.push(datatype);
            let own = match *column.shape {
                [rows] | [rows, 1] => usize::try_from(rows).ok().filter(|&rows| rows > 0),
                _ => None,
            };
            let own = own.ok_or_else(|| {
                InvalidRows::new(format!(
                    "column {name:?} has shape {:?}; a column has [rows] or [rows, 1] with at \
                     least one row",
                    &column.shape[..column.shape.len().min(8)]
                ))
            })?;
            let first = *rows.get_or_insert(own);
            if first != own {
                return Err(InvalidRows::new(format!(
                    "column {name:?} has {own} rows where the first column has {first}"
                )));
            }
        }
        Ok(Self {
            rows: rows.unwrap_or_default(),
            features: model.features,
            datatypes,
            order,
        })
    }

    /// The type of the column at this place in the request.
    #[must_use]
    pub fn datatype(&self, place: usize) -> Datatype {
        self.datatypes.get(place).copied().unwrap_or(Datatype::Fp32)
    }

    /// A type whose rows hold every value of the columns.
    #[must_use]
    pub fn row_datatype(&self) -> Datatype {
        let is_wide = |datatype: &Datatype| datatype.element() == ElementType::F64;
        match self.datatypes.iter().any(is_wide) {
            true => Datatype::Fp64,
            false => Datatype::Fp32,
        }
    }

    /// Writes the rows to `memory`. `read` writes the values of the column at a place in the
    /// request, of a type, into memory for them.
    ///
    /// # Errors
    /// That of `read`.
    pub fn write(
        &self,
        memory: &mut [u8],
        mut read: impl FnMut(usize, Datatype, &mut [u8]) -> Result<(), InvalidRows>,
    ) -> Result<(), InvalidRows> {
        let element = self.row_datatype().element();
        write_columns(self.features, element, memory, |place, column| {
            let source = match &self.order {
                None => Some(place),
                Some(order) => order.sources()[place],
            };
            let Some(source) = source else {
                return Ok(None);
            };
            let datatype = self.datatype(source);
            column.resize(self.rows * datatype.element().bytes(), 0);
            read(source, datatype, column)?;
            Ok(Some(datatype.element()))
        })
    }
}

/// Writes the columns of rows with `features` values to `memory`, whose values have type `element`.
///
/// `read` fills a buffer with the values of a column of the model, by its number, and returns
/// their type; `None` for a column that is missing.
pub(crate) fn write_columns(
    features: usize,
    element: ElementType,
    memory: &mut [u8],
    mut read: impl FnMut(usize, &mut Vec<u8>) -> Result<Option<ElementType>, InvalidRows>,
) -> Result<(), InvalidRows> {
    let mut column = Vec::new();
    let row_bytes = (features * element.bytes()).max(1);
    for place in 0..features {
        column.clear();
        let own = read(place, &mut column)?;
        let cells = memory
            .chunks_exact_mut(row_bytes)
            .map(|row| &mut row[place * element.bytes()..][..element.bytes()]);
        let Some(own) = own else {
            cells.for_each(|cell| put_nan(element, cell));
            continue;
        };
        let values = column.chunks_exact(own.bytes());
        for (cell, value) in cells.zip(values) {
            match (own, element) {
                (ElementType::F32, ElementType::F64) => {
                    let value = value.try_into().map_or(0.0, f32::from_le_bytes);
                    cell.copy_from_slice(&f64::from(value).to_le_bytes());
                }
                // The rows have the widest type of their columns.
                _ => cell.copy_from_slice(value),
            }
        }
    }
    Ok(())
}
