//! Limits the decoded size of a message before it is decoded.
//!
//! Two bytes can encode an empty tensor, which takes 200 bytes decoded: 64 MiB of them would take
//! gigabytes. One pass over the fields, without recursion or allocation, counts the fields that
//! take more memory decoded than encoded, and rejects too many; an accepted message is at most a
//! few times as large decoded.

use super::super::limits::{
    DIMENSIONS_MAX, PARAMETERS_MAX, TENSORS_MAX, TYPED_INTEGER_BYTES_MAX, TYPED_TEXTS_MAX,
};
use super::super::request_error::RequestError;
use albacore_rows::limits::COLUMNS_MAX;

/// Rejects a `ModelInferRequest` whose decoded size would be too large.
pub(super) fn check_decoded_size(message: &[u8]) -> Result<(), RequestError> {
    let mut counts = [
        BoundedCount::new("parameters", PARAMETERS_MAX),
        BoundedCount::new("inputs", COLUMNS_MAX),
        BoundedCount::new("outputs", TENSORS_MAX),
        BoundedCount::new("raw_input_contents", COLUMNS_MAX),
    ];
    // In the order used by `check_contents`.
    let mut typed = [
        BoundedCount::new(
            "typed integers (send raw_input_contents)",
            TYPED_INTEGER_BYTES_MAX,
        ),
        BoundedCount::new("bytes_contents (send raw_input_contents)", TYPED_TEXTS_MAX),
    ];
    for field in MessageFields(message) {
        let (number, bytes) = field?;
        let Some(count) = usize::from(number)
            .checked_sub(4)
            .and_then(|at| counts.get_mut(at))
        else {
            continue;
        };
        count.add(1)?;
        match number {
            5 => check_input(bytes, &mut typed)?,
            6 => check_parameters(bytes, 2)?,
            _ => {}
        }
    }
    Ok(())
}

/// Checks one input tensor: dimensions, parameters, contents.
fn check_input(tensor: &[u8], typed: &mut [BoundedCount; 2]) -> Result<(), RequestError> {
    // A dimension is a varint of 1 to 10 bytes; the exact number is checked after decoding.
    let mut shape = BoundedCount::new("bytes of dimensions", 10 * DIMENSIONS_MAX);
    check_parameters(tensor, 4)?;
    for field in MessageFields(tensor) {
        match field? {
            (3, bytes) => shape.add(bytes.len().max(1))?,
            (5, bytes) => check_contents(bytes, typed)?,
            _ => {}
        }
    }
    Ok(())
}

/// Checks typed values. Varint integers and Booleans are larger decoded, and so are short texts.
fn check_contents(contents: &[u8], typed: &mut [BoundedCount; 2]) -> Result<(), RequestError> {
    for field in MessageFields(contents) {
        match field? {
            (1..=5, bytes) => typed[0].add(bytes.len().max(1))?,
            (8, _) => typed[1].add(1)?,
            _ => {}
        }
    }
    Ok(())
}

/// Checks the map of parameters in field `number`.
fn check_parameters(message: &[u8], number: u8) -> Result<(), RequestError> {
    let mut count = BoundedCount::new("parameters", PARAMETERS_MAX);
    for field in MessageFields(message) {
        if field?.0 == number {
            count.add(1)?;
        }
    }
    Ok(())
}

/// A count with a limit.
struct BoundedCount {
    name: &'static str,
    most: usize,
    count: usize,
}

impl BoundedCount {
    fn new(name: &'static str, most: usize) -> Self {
        Self {
            name,
            most,
            count: 0,
        }
    }

    fn add(&mut self, more: usize) -> Result<(), RequestError> {
        self.count += more;
        if self.count <= self.most {
            return Ok(());
        }
        Err(RequestError::invalid(format!(
            "the request has more than {} {}",
            self.most, self.name
        )))
    }
}

/// Iterates over the fields of a message: the field number (255 for all larger numbers), and the
/// bytes of a length-delimited field.
struct MessageFields<'a>(&'a [u8]);

impl<'a> MessageFields<'a> {
    fn varint(&mut self) -> Option<u64> {
        let mut value = 0;
        for index in 0..10 {
            let (&byte, rest) = self.0.split_first()?;
            self.0 = rest;
            value |= u64::from(byte & 0x7f).checked_shl(7 * index)?;
            if byte < 0x80 {
                return Some(value);
            }
        }
        None
    }

    fn take(&mut self, bytes: u64) -> Option<&'a [u8]> {
        let (head, rest) = self.0.split_at_checked(usize::try_from(bytes).ok()?)?;
        self.0 = rest;
        Some(head)
    }

    fn field(&mut self) -> Option<(u8, &'a [u8])> {
        let key = self.varint()?;
        let number = u8::try_from(key >> 3).unwrap_or(u8::MAX);
        let bytes = match key & 7 {
            0 => self.varint().map(|_| &[][..])?,
            1 => self.take(8).map(|_| &[][..])?,
            2 => {
                let length = self.varint()?;
                self.take(length)?
            }
            5 => self.take(4).map(|_| &[][..])?,
            _ => return None, // groups are not part of proto3
        };
        Some((number, bytes))
    }
}

impl<'a> Iterator for MessageFields<'a> {
    type Item = Result<(u8, &'a [u8]), RequestError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let field = self.field();
        if field.is_none() {
            self.0 = &[]; // the position of the next field is unknown
        }
        Some(field.ok_or_else(|| {
            RequestError::invalid("the message of the call is not a valid protobuf message")
        }))
    }
}

#[cfg(test)]
mod tests {
    use albacore_proto::inference::model_infer_request::{
        InferInputTensor, InferRequestedOutputTensor,
    };
    use albacore_proto::inference::{InferParameter, InferTensorContents, ModelInferRequest};
    use prost::Message as _;
    use prost::bytes::Bytes;

    use super::*;

    fn error(request: &ModelInferRequest) -> String {
        let error = check_decoded_size(&request.encode_to_vec()).unwrap_err();
        error.message.into_owned()
    }

    #[test]
    fn fields_that_grow_are_counted() {
        let many = |inputs: usize| ModelInferRequest {
            inputs: vec![InferInputTensor::default(); inputs],
            ..Default::default()
        };
        assert!(check_decoded_size(&many(COLUMNS_MAX).encode_to_vec()).is_ok());
        assert!(error(&many(COLUMNS_MAX + 1)).contains("65536 inputs"));
        let outputs = ModelInferRequest {
            outputs: vec![InferRequestedOutputTensor::default(); TENSORS_MAX + 1],
            ..Default::default()
        };
        assert!(error(&outputs).contains("16 outputs"));
        let raw = ModelInferRequest {
            raw_input_contents: vec![Bytes::new(); COLUMNS_MAX + 1],
            ..Default::default()
        };
        assert!(error(&raw).contains("65536 raw_input_contents"));
        let named = |count: usize| {
            let named = (0..count).map(|at| (at.to_string(), InferParameter::default()));
            named.collect()
        };
        let parameters = ModelInferRequest {
            parameters: named(PARAMETERS_MAX + 1),
            ..Default::default()
        };
        assert!(error(&parameters).contains("64 parameters"));
        let tensor = |tensor: InferInputTensor| ModelInferRequest {
            inputs: vec![tensor],
            ..Default::default()
        };
        assert!(
            error(&tensor(InferInputTensor {
                parameters: named(PARAMETERS_MAX + 1),
                ..Default::default()
            }))
            .contains("64 parameters")
        );
        assert!(
            error(&tensor(InferInputTensor {
                shape: vec![1; 1000],
                ..Default::default()
            }))
            .contains("bytes of dimensions")
        );
        assert!(
            error(&tensor(InferInputTensor {
                contents: Some(InferTensorContents {
                    bytes_contents: vec![Vec::new(); TYPED_TEXTS_MAX + 1],
                    ..Default::default()
                }),
                ..Default::default()
            }))
            .contains("1048576 bytes_contents")
        );
        let integers = InferTensorContents {
            int64_contents: vec![1; TYPED_INTEGER_BYTES_MAX + 1],
            ..Default::default()
        };
        assert!(
            error(&tensor(InferInputTensor {
                contents: Some(integers),
                ..Default::default()
            }))
            .contains("raw_input_contents")
        );
    }

    #[test]
    fn invalid_protobuf_is_refused() {
        for bytes in [
            &b"\xff"[..],
            b"\x2a\x05a",
            b"\x0b",
            b"\x09\x00",
            b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff",
            b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
        ] {
            assert!(check_decoded_size(bytes).is_err(), "{bytes:?}");
        }
    }
}
