//! Converts binary tensors (packed, little-endian) and typed protobuf lists to rows.

use albacore_proto::inference::InferTensorContents;

use crate::InvalidRows;
use crate::datatype::Datatype;
use crate::row_writer::RowWriter;

/// Writes the values of a binary tensor to `memory`. The number of values must match the memory.
/// `FP32` and `FP64` values are copied unchanged.
pub fn write_bytes(
    datatype: Datatype,
    tensor: &[u8],
    memory: &mut [u8],
) -> Result<(), InvalidRows> {
    let values = tensor.len() / datatype.bytes();
    let room = memory.len() / datatype.element().bytes();
    if values != room || !tensor.len().is_multiple_of(datatype.bytes()) {
        let (have, need) = (tensor.len(), room * datatype.bytes());
        return Err(InvalidRows::new(format!(
            "input \"input\" ({}) has {have} bytes of data where its shape needs {need}",
            datatype.name()
        )));
    }
    let mut writer = RowWriter::new(datatype, memory);
    match datatype {
        Datatype::Fp32 | Datatype::Fp64 => memory.copy_from_slice(tensor),
        Datatype::Fp16 => each(tensor, |b| {
            writer.put_f32(f32_of_fp16(u16::from_le_bytes(b)))
        }),
        Datatype::Bf16 => {
            each(tensor, |b| {
                writer.put_f32(f32::from_bits(u32::from(u16::from_le_bytes(b)) << 16))
            });
        }
        Datatype::Uint8 => each(tensor, |[b]| writer.put_f32(f32::from(b))),
        Datatype::Int8 => each(tensor, |b| writer.put_f32(f32::from(i8::from_le_bytes(b)))),
        Datatype::Uint16 => each(tensor, |b| writer.put_f32(f32::from(u16::from_le_bytes(b)))),
        Datatype::Int16 => each(tensor, |b| writer.put_f32(f32::from(i16::from_le_bytes(b)))),
        Datatype::Uint32 => each(tensor, |b| writer.put_f64(f64::from(u32::from_le_bytes(b)))),
        Datatype::Int32 => each(tensor, |b| writer.put_f64(f64::from(i32::from_le_bytes(b)))),
        Datatype::Bool => return try_each(tensor, |[b]| writer.put_integer(i128::from(b))),
        Datatype::Uint64 => {
            return try_each(tensor, |b| writer.put_integer(u64::from_le_bytes(b).into()));
        }
        Datatype::Int64 => {
            return try_each(tensor, |b| writer.put_integer(i64::from_le_bytes(b).into()));
        }
    }
    Ok(())
}

/// Writes the list of `contents` for `datatype` to `memory`; the other lists must be empty.
pub fn write_contents(
    datatype: Datatype,
    contents: &InferTensorContents,
    memory: &mut [u8],
) -> Result<(), InvalidRows> {
    let room = memory.len() / datatype.element().bytes();
    let (list, values) = list_of(datatype, contents)?;
    let given = value_count(contents);
    if values != room || given != values {
        return Err(InvalidRows::new(format!(
            "input \"input\" ({}) has {values} values in {list} where its shape needs {room}, \
             and {} values in other lists",
            datatype.name(),
            given - values
        )));
    }
    let mut writer = RowWriter::new(datatype, memory);
    match datatype {
        Datatype::Fp32 => contents
            .fp32_contents
            .iter()
            .for_each(|&v| writer.put_f32(v)),
        Datatype::Fp64 => contents
            .fp64_contents
            .iter()
            .for_each(|&v| writer.put_f64(v)),
        Datatype::Bool => {
            contents
                .bool_contents
                .iter()
                .for_each(|&v| writer.put_f32(f32::from(u8::from(v))));
        }
        Datatype::Int8 | Datatype::Int16 | Datatype::Int32 => {
            return contents
                .int_contents
                .iter()
                .try_for_each(|&v| writer.put_integer(v.into()));
        }
        Datatype::Int64 => {
            return contents
                .int64_contents
                .iter()
                .try_for_each(|&v| writer.put_integer(v.into()));
        }
        Datatype::Uint8 | Datatype::Uint16 | Datatype::Uint32 => {
            return contents
                .uint_contents
                .iter()
                .try_for_each(|&v| writer.put_integer(v.into()));
        }
        Datatype::Uint64 => {
            return contents
                .uint64_contents
                .iter()
                .try_for_each(|&v| writer.put_integer(v.into()));
        }
        Datatype::Fp16 | Datatype::Bf16 => {} // rejected by list_of
    }
    Ok(())
}

/// Number of values in all lists.
pub(crate) fn value_count(contents: &InferTensorContents) -> usize {
    contents.bool_contents.len()
        + contents.int_contents.len()
        + contents.int64_contents.len()
        + contents.uint_contents.len()
        + contents.uint64_contents.len()
        + contents.fp32_contents.len()
        + contents.fp64_contents.len()
        + contents.bytes_contents.len()
}

/// Name and length of the list that contains values of `datatype`.
fn list_of(
    datatype: Datatype,
    contents: &InferTensorContents,
) -> Result<(&'static str, usize), InvalidRows> {
    Ok(match datatype {
        Datatype::Bool => ("bool_contents", contents.bool_contents.len()),
        Datatype::Int8 | Datatype::Int16 | Datatype::Int32 => {
            ("int_contents", contents.int_contents.len())
        }
        Datatype::Int64 => ("int64_contents", contents.int64_contents.len()),
        Datatype::Uint8 | Datatype::Uint16 | Datatype::Uint32 => {
            ("uint_contents", contents.uint_contents.len())
        }
        Datatype::Uint64 => ("uint64_contents", contents.uint64_contents.len()),
        Datatype::Fp32 => ("fp32_contents", contents.fp32_contents.len()),
        Datatype::Fp64 => ("fp64_contents", contents.fp64_contents.len()),
        Datatype::Fp16 | Datatype::Bf16 => {
            return Err(InvalidRows::new(format!(
                "input \"input\": {} has no typed contents; send raw_input_contents",
                datatype.name()
            )));
        }
    })
}

fn each<const N: usize>(tensor: &[u8], mut put: impl FnMut([u8; N])) {
    tensor
        .as_chunks::<N>()
        .0
        .iter()
        .for_each(|&bytes| put(bytes));
}

fn try_each<const N: usize>(
    tensor: &[u8],
    mut put: impl FnMut([u8; N]) -> Result<(), InvalidRows>,
) -> Result<(), InvalidRows> {
    tensor
        .as_chunks::<N>()
        .0
        .iter()
        .try_for_each(|&bytes| put(bytes))
}

/// Converts a binary16 exactly. NaN keeps the upper bits of its payload.
fn f32_of_fp16(bits: u16) -> f32 {
    let sign = u32::from(bits & 0x8000) << 16;
    let exponent = u32::from(bits >> 10 & 0x1f);
    let fraction = u32::from(bits & 0x3ff);
    match exponent {
        // Subnormal: fraction x 2^-24, both exact.
        0 => {
            let magnitude = fraction as f32 / 16_777_216.0;
            f32::from_bits(magnitude.to_bits() | sign)
        }
        31 => f32::from_bits(sign | 0x7f80_0000 | fraction << 13),
        _ => f32::from_bits(sign | (exponent + 112) << 23 | fraction << 13),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn rows(datatype: Datatype, tensor: &[u8], values: usize) -> Result<Vec<f64>, InvalidRows> {
        let mut memory = vec![0; values * datatype.element().bytes()];
        write_bytes(datatype, tensor, &mut memory)?;
        Ok(match datatype.element().bytes() {
            4 => memory
                .as_chunks()
                .0
                .iter()
                .map(|&b| f32::from_le_bytes(b).into())
                .collect(),
            _ => memory
                .as_chunks()
                .0
                .iter()
                .map(|&b| f64::from_le_bytes(b))
                .collect(),
        })
    }

    #[test]
    fn every_binary16_is_widened_exactly() {
        assert_eq!(
            rows(Datatype::Fp16, &[0x00, 0x3c, 0x01, 0x00], 2).unwrap(),
            [1.0, 5.960_464_477_539_063e-8]
        );
        assert_eq!(
            rows(Datatype::Fp16, &[0xff, 0x7b, 0x00, 0xfc], 2).unwrap(),
            [65504.0, f64::NEG_INFINITY]
        );
        for bits in 0..=u16::MAX {
            let (exponent, fraction) = (i32::from(bits >> 10 & 31), f64::from(bits & 1023));
            let sign = if bits >> 15 == 1 { -1.0 } else { 1.0 };
            let want = match exponent {
                0 => sign * fraction * 2f64.powi(-24),
                31 if fraction == 0.0 => sign * f64::INFINITY,
                31 => f64::NAN,
                _ => sign * (1024.0 + fraction) * 2f64.powi(exponent - 25),
            };
            let got = f64::from(f32_of_fp16(bits));
            assert!(
                got.to_bits() == want.to_bits() || got.is_nan() && want.is_nan(),
                "{bits:#x}"
            );
        }
    }

    #[test]
    fn integers_are_widened_exactly_or_refused() {
        assert_eq!(
            rows(Datatype::Int8, &[0x80, 0x7f], 2).unwrap(),
            [-128.0, 127.0]
        );
        assert_eq!(
            rows(Datatype::Uint32, &[255; 4], 1).unwrap(),
            [4_294_967_295.0]
        );
        let exact = (1_i64 << 53).to_le_bytes();
        assert_eq!(
            rows(Datatype::Int64, &exact, 1).unwrap(),
            [9_007_199_254_740_992.0]
        );
        let inexact = rows(Datatype::Int64, &((1_i64 << 53) + 1).to_le_bytes(), 1).unwrap_err();
        assert!(inexact.message.contains("9007199254740993"), "{inexact}");
        assert!(
            rows(Datatype::Bool, &[0, 1, 2], 3)
                .unwrap_err()
                .message
                .contains("value 2")
        );
    }

    proptest! {
        #[test]
        fn any_bytes_fill_all_of_the_memory_or_are_refused(
            tensor in prop::collection::vec(any::<u8>(), 0..64),
            values in 0_usize..16,
            kind in 0_usize..13,
        ) {
            let datatype = Datatype::NAMES[kind].0;
            let fits = tensor.len() == values * datatype.bytes();
            let filled = rows(datatype, &tensor, values);
            if !fits {
                prop_assert!(filled.is_err());
            } else if !matches!(datatype, Datatype::Bool | Datatype::Int64 | Datatype::Uint64) {
                prop_assert_eq!(filled.unwrap().len(), values);
            }
        }
    }
}
