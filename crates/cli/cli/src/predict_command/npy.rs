//! Reads tables of floats from NumPy's `.npy` files and writes arrays to such files with the crate
//! npyz.
//!
//! npyz parses every Python literal by recursion, allocates the length stated in the header and
//! multiplies axes without a check. The header is therefore first read and bounded here; memory for
//! the elements grows with the bytes of the file, not with the sizes in its header.

use std::fs::File;
use std::io::{self, BufReader, BufWriter, ErrorKind, Read, Write as _};
use std::path::Path;

use albacore_command::Failure;
use npyz::{AutoSerialize, Deserialize, NpyFile, NpyHeader, Order, WriterBuilder as _};

use crate::limits::{
    FILE_BYTES_MAX, NPY_HEADER_BYTES_MAX, NPY_HEADER_DIGITS_MAX, NPY_HEADER_NESTING_MAX,
};

const NOT_NPY: &str = "not an .npy file: write the rows with numpy.save";

/// Elements in row-major order.
#[derive(Debug, PartialEq)]
pub(super) enum Floats {
    F32(Vec<f32>),
    F64(Vec<f64>),
}

/// A matrix of rows x columns floats.
#[derive(Debug, PartialEq)]
pub(super) struct Matrix {
    pub(super) rows: usize,
    pub(super) columns: usize,
    pub(super) floats: Floats,
}

/// Reads a table of float32 or float64 in either byte order and either array order.
pub(super) fn read_table(path: &Path) -> Result<Matrix, Failure> {
    read(path, |shape| match *shape {
        [rows, columns] => Some((rows, columns)),
        _ => None,
    })
}

/// Reads an array of one float per row, or a table like [`read_table`].
pub(super) fn read_vector_or_table(path: &Path) -> Result<Matrix, Failure> {
    read(path, |shape| match *shape {
        [rows] => Some((rows, 1)),
        [rows, columns] => Some((rows, columns)),
        _ => None,
    })
}

/// Writes `elements`, in row-major order, as an array of this shape.
pub(super) fn write<T: AutoSerialize + Copy>(
    path: &Path,
    shape: &[usize],
    elements: &[T],
) -> io::Result<()> {
    let shape: Vec<u64> = shape.iter().map(|&axis| axis as u64).collect();
    let mut file = BufWriter::new(File::create(path)?);
    let options = npyz::WriteOptions::new().default_dtype().shape(&shape);
    let mut writer = options.writer(&mut file).begin_nd()?;
    writer.extend(elements.iter().copied())?;
    writer.finish()?;
    file.flush()
}

/// Returns the rows and columns of a shape, if it is accepted as a table.
type TableShape = fn(&[u64]) -> Option<(u64, u64)>;

fn read(path: &Path, table_shape: TableShape) -> Result<Matrix, Failure> {
    let file = File::open(path).map_err(|e| Failure::file(path, &e))?;
    parse(BufReader::new(file), table_shape)
        .map_err(|reason| Failure::Failed(format!("{}: {reason}", path.display())))
}

fn parse(mut reader: impl Read, table_shape: TableShape) -> Result<Matrix, String> {
    let header = read_header(&mut reader)?;
    let Some((rows, columns)) = table_shape(header.shape()) else {
        let shape = header.shape();
        return Err(format!(
            "the array has shape {shape:?}: expected rows x features (x.reshape(-1, features))"
        ));
    };
    let descr = header.dtype().descr();
    let size = match descr.as_str() {
        "'<f4'" | "'>f4'" => 4,
        "'<f8'" | "'>f8'" => 8,
        _ => {
            return Err(format!(
                "the elements have type {descr}: expected float32 or float64 \
                 (x.astype(numpy.float32))"
            ));
        }
    };
    if header.len() > FILE_BYTES_MAX / size {
        return Err(too_large(&format!("{rows} x {columns}")));
    }
    // Both are at most the number of elements, unless there are no elements.
    let (rows, columns) = (rows as usize, columns as usize);
    let is_fortran = header.order() == Order::Fortran;
    let floats = match size {
        4 => Floats::F32(read_elements(header, &mut reader)?),
        _ => Floats::F64(read_elements(header, &mut reader)?),
    };
    Ok(Matrix {
        rows,
        columns,
        floats: match floats {
            Floats::F32(x) if is_fortran => Floats::F32(rows_from_columns(&x, rows, columns)),
            Floats::F64(x) if is_fortran => Floats::F64(rows_from_columns(&x, rows, columns)),
            in_row_order => in_row_order,
        },
    })
}

/// Reads the header after bounding its length, its nesting and its numbers; afterwards, the reader
/// is at the first element.
fn read_header(reader: &mut impl Read) -> Result<NpyHeader, String> {
    let mut header = vec![0; 10];
    fill(reader, &mut header)?;
    if !header.starts_with(b"\x93NUMPY") {
        return Err(NOT_NPY.to_owned());
    }
    // Version 1 stores the length in two bytes, later versions in four.
    if header[6] != 1 {
        header.resize(12, 0);
        fill(reader, &mut header[10..])?;
    }
    let start = header.len();
    let bytes = header[8..].iter().rev();
    let length = bytes.fold(0, |length, &byte| length << 8 | usize::from(byte));
    if length > NPY_HEADER_BYTES_MAX {
        return Err(format!(
            "damaged .npy header: {length} bytes long, more than {NPY_HEADER_BYTES_MAX}"
        ));
    }
    header.resize(start + length, 0);
    fill(reader, &mut header[start..])?;
    let text = &header[start..];
    if text.iter().filter(|byte| b"([{".contains(byte)).count() > NPY_HEADER_NESTING_MAX {
        return Err("damaged .npy header, or structured elements".to_owned());
    }
    if text.iter().filter(|byte| byte.is_ascii_digit()).count() > NPY_HEADER_DIGITS_MAX {
        return Err(too_large("the array's"));
    }
    NpyHeader::from_reader(header.as_slice()).map_err(|e| {
        let reason = e.to_string();
        format!(
            "damaged .npy header: {}",
            reason.lines().next().unwrap_or_default()
        )
    })
}

fn too_large(elements: &str) -> String {
    format!(
        "{elements} elements exceed the limit of this program: split the rows over several files"
    )
}

/// Fills a buffer; a file that ends too early is not an `.npy` file.
fn fill(reader: &mut impl Read, bytes: &mut [u8]) -> Result<(), String> {
    reader.read_exact(bytes).map_err(|e| match e.kind() {
        ErrorKind::UnexpectedEof => NOT_NPY.to_owned(),
        _ => cannot_read(&e),
    })
}

fn cannot_read(error: &io::Error) -> String {
    format!("cannot read it: {error}")
}

fn read_elements<T: Deserialize>(
    header: NpyHeader,
    reader: &mut impl Read,
) -> Result<Vec<T>, String> {
    let promised = header.len();
    let file = NpyFile::with_header(header, &mut *reader);
    let mut elements = Vec::new();
    for element in file.data().map_err(|e| e.to_string())? {
        match element {
            Ok(element) => elements.push(element),
            Err(e) if e.kind() == ErrorKind::UnexpectedEof => {
                let held = elements.len();
                return Err(format!(
                    "truncated: the shape has {promised} elements, the file contains {held}"
                ));
            }
            Err(e) => return Err(cannot_read(&e)),
        }
    }
    match reader.read(&mut [0]) {
        Ok(0) => Ok(elements),
        Ok(_) => Err(format!(
            "bytes follow the last of {promised} elements: the file holds more than one array"
        )),
        Err(e) => Err(cannot_read(&e)),
    }
}

fn rows_from_columns<T: Copy>(by_column: &[T], rows: usize, columns: usize) -> Vec<T> {
    if by_column.is_empty() {
        // Without columns, the number of rows is unbounded.
        return Vec::new();
    }
    let row = |r: usize| (0..columns).map(move |c| by_column[c * rows + r]);
    (0..rows).flat_map(row).collect()
}

#[cfg(test)]
mod tests;
