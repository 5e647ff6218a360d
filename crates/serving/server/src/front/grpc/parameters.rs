//! Parameters of requests and of their tensors.

use std::collections::HashMap;

use albacore_extensions::RegionSlice;
use albacore_proto::inference::InferParameter;
use albacore_proto::inference::infer_parameter::ParameterChoice;
use albacore_proto::inference::model_infer_request::InferInputTensor;

use super::super::validate::RegionParameters;

pub(super) type ParameterMap = HashMap<String, InferParameter>;

/// Names of tensor parameters.
pub(super) const CLASSIFICATION: &str = "classification";
const REGION: &str = "shared_memory_region";

/// Returns a parameter; the inner value is `None` if it is not an integer.
pub(super) fn whole_number(parameters: &ParameterMap, name: &str) -> Option<Option<u64>> {
    let parameter = parameters.get(name)?;
    Some(match parameter.parameter_choice.as_ref() {
        Some(&ParameterChoice::Int64Param(number)) => u64::try_from(number).ok(),
        Some(&ParameterChoice::Uint64Param(number)) => Some(number),
        _ => None,
    })
}

/// The shared memory region named by the parameters of a tensor.
pub(super) fn region(parameters: &ParameterMap) -> RegionParameters<'_> {
    let region = parameters.get(REGION);
    let region = region.map(|region| match &region.parameter_choice {
        Some(ParameterChoice::StringParam(name)) => name.as_str(),
        // No region has an empty name: the lookup fails.
        _ => "",
    });
    RegionParameters {
        region,
        byte_size: whole_number(parameters, "shared_memory_byte_size").flatten(),
        // No region is that large: the lookup fails.
        offset: whole_number(parameters, "shared_memory_offset").map(|at| at.unwrap_or(u64::MAX)),
    }
}

pub(super) fn is_shared(input: &InferInputTensor) -> bool {
    input.parameters.contains_key(REGION)
}

/// Parameters of an output in shared memory.
pub(super) fn region_parameters(slice: &RegionSlice) -> ParameterMap {
    let number = |number| ParameterChoice::Int64Param(i64::try_from(number).unwrap_or(i64::MAX));
    let parameters = [
        (
            REGION,
            ParameterChoice::StringParam(slice.region().to_owned()),
        ),
        ("shared_memory_byte_size", number(slice.len() as u64)),
        ("shared_memory_offset", number(slice.offset())),
    ];
    let parameters = parameters.into_iter().map(|(name, choice)| {
        let parameter_choice = Some(choice);
        (name.to_owned(), InferParameter { parameter_choice })
    });
    parameters.collect()
}
