//! What a request's message would become in memory, looked at before it is decoded.
//!
//! Two bytes can stand for an empty tensor, which is 200 bytes decoded: 64 MiB of them would be
//! gigabytes. One walk over the fields, without recursion and without keeping anything, counts what
//! grows and refuses what is too much; what is left is at most a few times as large as its message.

use super::super::limits::{DIMENSIONS_MAX, PARAMETERS_MAX, TENSORS_MAX, TYPED_INTEGER_BYTES_MAX};
use super::super::refused::Refused;

/// Refuses the message of a `ModelInferRequest` that would grow.
pub(super) fn weigh(message: &[u8]) -> Result<(), Refused> {
    let mut few = [
        Few::new("parameters", PARAMETERS_MAX),
        Few::new("inputs", TENSORS_MAX),
        Few::new("outputs", TENSORS_MAX),
        Few::new("raw_input_contents", TENSORS_MAX),
    ];
    for field in Fields(message) {
        let (number, bytes) = field?;
        let Some(few) = usize::from(number)
            .checked_sub(4)
            .and_then(|at| few.get_mut(at))
        else {
            continue;
        };
        few.count(1)?;
        match number {
            5 => input(bytes)?,
            6 => parameters(bytes, 2)?,
            _ => {}
        }
    }
    Ok(())
}

/// One tensor: dimensions, parameters, contents.
fn input(tensor: &[u8]) -> Result<(), Refused> {
    // Packed, a dimension has one byte at least; the exact number is checked where it has a
    // meaning.
    let mut shape = Few::new("bytes of dimensions", 10 * DIMENSIONS_MAX);
    parameters(tensor, 4)?;
    for field in Fields(tensor) {
        match field? {
            (3, bytes) => shape.count(bytes.len().max(1))?,
            (5, bytes) => contents(bytes)?,
            _ => {}
        }
    }
    Ok(())
}

/// Typed values: integers and booleans of variable length grow, text is not taken at all.
fn contents(contents: &[u8]) -> Result<(), Refused> {
    let mut integers = Few::new(
        "typed integers (send raw_input_contents)",
        TYPED_INTEGER_BYTES_MAX,
    );
    for field in Fields(contents) {
        match field? {
            (1..=5, bytes) => integers.count(bytes.len().max(1))?,
            (8, _) => {
                return Err(Refused::invalid(
                    "input \"input\" has bytes_contents: trees take numbers, not BYTES",
                ));
            }
            _ => {}
        }
    }
    Ok(())
}

/// A map of parameters.
fn parameters(message: &[u8], number: u8) -> Result<(), Refused> {
    let mut few = Few::new("parameters", PARAMETERS_MAX);
    for field in Fields(message) {
        if field?.0 == number {
            few.count(1)?;
        }
    }
    Ok(())
}

/// A count with a bound.
struct Few {
    name: &'static str,
    most: usize,
    count: usize,
}

impl Few {
    fn new(name: &'static str, most: usize) -> Self {
        Self {
            name,
            most,
            count: 0,
        }
    }

    fn count(&mut self, more: usize) -> Result<(), Refused> {
        self.count += more;
        if self.count <= self.most {
            return Ok(());
        }
        Err(Refused::invalid(format!(
            "the request has more than {} {}",
            self.most, self.name
        )))
    }
}

/// The fields of a message: number (255 for any that is larger) and bytes, none for numbers.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn varint(&mut self) -> Option<u64> {
        let mut value = 0;
        for place in 0..10 {
            let (&byte, rest) = self.0.split_first()?;
            self.0 = rest;
            value |= u64::from(byte & 0x7f).checked_shl(7 * place)?;
            if byte < 0x80 {
                return Some(value);
            }
        }
        None
    }

    fn take(&mut self, bytes: u64) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(usize::try_from(bytes).ok()?)?;
        self.0 = rest;
        Some(taken)
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
            _ => return None, // groups are older than this protocol
        };
        Some((number, bytes))
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = Result<(u8, &'a [u8]), Refused>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let field = self.field();
        if field.is_none() {
            self.0 = &[]; // nothing that follows can be trusted
        }
        Some(field.ok_or_else(|| {
            Refused::invalid("the message of the call is not a protobuf message that can be read")
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

    fn said(request: &ModelInferRequest) -> String {
        let refused = weigh(&request.encode_to_vec()).unwrap_err();
        refused.message.into_owned()
    }

    #[test]
    fn what_grows_is_counted() {
        let many = |inputs: usize| ModelInferRequest {
            inputs: vec![InferInputTensor::default(); inputs],
            ..Default::default()
        };
        assert!(weigh(&many(TENSORS_MAX).encode_to_vec()).is_ok());
        assert!(said(&many(TENSORS_MAX + 1)).contains("16 inputs"));
        let outputs = ModelInferRequest {
            outputs: vec![InferRequestedOutputTensor::default(); TENSORS_MAX + 1],
            ..Default::default()
        };
        assert!(said(&outputs).contains("16 outputs"));
        let raw = ModelInferRequest {
            raw_input_contents: vec![Bytes::new(); TENSORS_MAX + 1],
            ..Default::default()
        };
        assert!(said(&raw).contains("16 raw_input_contents"));
        let named = |count: usize| {
            let named = (0..count).map(|at| (at.to_string(), InferParameter::default()));
            named.collect()
        };
        let parameters = ModelInferRequest {
            parameters: named(PARAMETERS_MAX + 1),
            ..Default::default()
        };
        assert!(said(&parameters).contains("64 parameters"));
        let tensor = |tensor: InferInputTensor| ModelInferRequest {
            inputs: vec![tensor],
            ..Default::default()
        };
        assert!(
            said(&tensor(InferInputTensor {
                parameters: named(PARAMETERS_MAX + 1),
                ..Default::default()
            }))
            .contains("64 parameters")
        );
        assert!(
            said(&tensor(InferInputTensor {
                shape: vec![1; 1000],
                ..Default::default()
            }))
            .contains("bytes of dimensions")
        );
        assert!(
            said(&tensor(InferInputTensor {
                contents: Some(InferTensorContents {
                    bytes_contents: vec![Vec::new()],
                    ..Default::default()
                }),
                ..Default::default()
            }))
            .contains("BYTES")
        );
        let integers = InferTensorContents {
            int64_contents: vec![1; TYPED_INTEGER_BYTES_MAX + 1],
            ..Default::default()
        };
        assert!(
            said(&tensor(InferInputTensor {
                contents: Some(integers),
                ..Default::default()
            }))
            .contains("raw_input_contents")
        );
    }

    #[test]
    fn what_is_not_protobuf_is_refused() {
        for bytes in [
            &b"\xff"[..],
            b"\x2a\x05a",
            b"\x0b",
            b"\x09\x00",
            b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff",
            b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
        ] {
            assert!(weigh(bytes).is_err(), "{bytes:?}");
        }
    }
}
