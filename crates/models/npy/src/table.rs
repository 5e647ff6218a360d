//! A table of floats from a file, an array into a file.

use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::path::Path;

use crate::header::Header;
use crate::limits::FILE_BYTES_MAX;

/// Why a file is not a table of floats.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NpyError {
    /// The file cannot be opened or read.
    #[error("cannot read it")]
    Io(#[from] io::Error),
    /// The file does not begin as .npy files do.
    #[error("not an .npy file: write the rows with numpy.save")]
    NotNpy,
    /// The header is not one that numpy writes for a plain array.
    #[error("damaged .npy header: {0}")]
    Header(String),
    /// Elements that are no floats.
    #[error("the elements have type {0:?}: float32 or float64 is needed (x.astype(numpy.float32))")]
    NotFloats(String),
    #[error("the array has shape {0}: rows x features is needed (x.reshape(-1, features))")]
    NotATable(String),
    /// The file ends too early.
    #[error("truncated: the shape promises {promised} elements, the file holds {held}")]
    Truncated {
        /// Rows x columns.
        promised: usize,
        /// Whole elements in the file.
        held: usize,
    },
    /// The file goes on after the last element.
    #[error("bytes follow the last of {0} elements: the file holds more than one array")]
    TooLong(usize),
    /// Larger than this program reads.
    #[error("{0} elements are more than this program reads: split the rows over several files")]
    TooLarge(String),
}

/// Elements, row by row.
#[derive(Debug, PartialEq)]
pub enum Floats {
    F32(Vec<f32>),
    F64(Vec<f64>),
}

/// rows x columns floats.
#[derive(Debug, PartialEq)]
pub struct Table {
    /// Number of rows.
    pub rows: usize,
    pub columns: usize,
    /// Row by row.
    pub floats: Floats,
}

/// Reads a table of float32 or float64 in either byte order and either array order.
///
/// # Errors
/// The file cannot be read, or is not such a table.
pub fn read_table(path: &Path) -> Result<Table, NpyError> {
    parse_table(BufReader::new(File::open(path)?))
}

/// Reads an array of numbers, one for each row, or a table as [`read_table`] does.
///
/// # Errors
/// As `read_table`, for other shapes.
pub fn read_numbers(path: &Path) -> Result<Table, NpyError> {
    parse(BufReader::new(File::open(path)?), |shape| match *shape {
        [rows] => Some((rows, 1)),
        [rows, columns] => Some((rows, columns)),
        _ => None,
    })
}

fn parse_table(reader: impl Read) -> Result<Table, NpyError> {
    parse(reader, |shape| match *shape {
        [rows, columns] => Some((rows, columns)),
        _ => None,
    })
}

/// `table` makes rows and columns of a shape.
fn parse(
    mut reader: impl Read,
    table: fn(&[usize]) -> Option<(usize, usize)>,
) -> Result<Table, NpyError> {
    let Header {
        descr,
        is_fortran,
        shape,
    } = Header::read(&mut reader)?;
    let Some((rows, columns)) = table(&shape) else {
        return Err(NpyError::NotATable(shape_text(&shape)));
    };
    let size = match descr.as_str() {
        "<f4" | ">f4" => 4,
        "<f8" | ">f8" => 8,
        _ => return Err(NpyError::NotFloats(descr)),
    };
    let count = rows
        .checked_mul(columns)
        .filter(|&n| n as u64 <= FILE_BYTES_MAX / size);
    let count = count.ok_or_else(|| NpyError::TooLarge(format!("{rows} x {columns}")))?;
    let mut floats = match descr.as_str() {
        "<f4" => Floats::F32(read_elements(&mut reader, count, f32::from_le_bytes)?),
        ">f4" => Floats::F32(read_elements(&mut reader, count, f32::from_be_bytes)?),
        "<f8" => Floats::F64(read_elements(&mut reader, count, f64::from_le_bytes)?),
        _ => Floats::F64(read_elements(&mut reader, count, f64::from_be_bytes)?),
    };
    if reader.read(&mut [0])? > 0 {
        return Err(NpyError::TooLong(count));
    }
    if is_fortran {
        floats = match floats {
            Floats::F32(by_column) => Floats::F32(rows_from_columns(&by_column, rows, columns)),
            Floats::F64(by_column) => Floats::F64(rows_from_columns(&by_column, rows, columns)),
        };
    }
    Ok(Table {
        rows,
        columns,
        floats,
    })
}

/// `count` elements of `N` bytes. Memory grows with what the file really holds, not with what it
/// promises.
fn read_elements<const N: usize, T>(
    reader: &mut impl Read,
    count: usize,
    decode: fn([u8; N]) -> T,
) -> Result<Vec<T>, NpyError> {
    const PIECE: usize = 64 * 1024;
    let mut elements = Vec::new();
    let mut bytes = Vec::with_capacity(PIECE * N);
    // bound: every turn reads at least one element of the count or ends.
    while elements.len() < count {
        let wanted = PIECE.min(count - elements.len()) * N;
        bytes.clear();
        reader
            .by_ref()
            .take(wanted as u64)
            .read_to_end(&mut bytes)?;
        let (whole, _) = bytes.as_chunks::<N>();
        elements.extend(whole.iter().map(|&element| decode(element)));
        if bytes.len() < wanted {
            return Err(NpyError::Truncated {
                promised: count,
                held: elements.len(),
            });
        }
    }
    Ok(elements)
}

fn rows_from_columns<T: Copy>(by_column: &[T], rows: usize, columns: usize) -> Vec<T> {
    let row = |r: usize| (0..columns).map(move |c| by_column[c * rows + r]);
    (0..rows).flat_map(row).collect()
}

/// A type of element that results have.
pub trait Element: Copy {
    /// numpy's name for it.
    const DESCR: &'static str;

    /// Appends its bytes, lowest first.
    fn put(self, bytes: &mut Vec<u8>);
}

impl Element for f32 {
    const DESCR: &'static str = "<f4";

    fn put(self, bytes: &mut Vec<u8>) {
        bytes.extend(self.to_le_bytes());
    }
}

impl Element for f64 {
    const DESCR: &'static str = "<f8";

    fn put(self, bytes: &mut Vec<u8>) {
        bytes.extend(self.to_le_bytes());
    }
}

impl Element for i32 {
    const DESCR: &'static str = "<i4";

    fn put(self, bytes: &mut Vec<u8>) {
        bytes.extend(self.to_le_bytes());
    }
}

/// Writes `elements`, in row-major order, as an array of this shape.
///
/// # Errors
/// The file cannot be written.
pub fn write<T: Element>(path: &Path, shape: &[usize], elements: &[T]) -> io::Result<()> {
    let mut writer = BufWriter::new(File::create(path)?);
    writer.write_all(&Header::bytes(T::DESCR, &shape_text(shape)))?;
    let mut bytes = Vec::new();
    for piece in elements.chunks(64 * 1024) {
        bytes.clear();
        piece.iter().for_each(|element| element.put(&mut bytes));
        writer.write_all(&bytes)?;
    }
    writer.flush()
}

/// As Python writes a tuple: `(3,)`, `(3, 4)`.
fn shape_text(shape: &[usize]) -> String {
    match shape {
        [one] => format!("({one},)"),
        _ => {
            let axes: Vec<String> = shape.iter().map(ToString::to_string).collect();
            format!("({})", axes.join(", "))
        }
    }
}

#[cfg(test)]
mod tests;
