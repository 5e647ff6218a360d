//! Triton's calls for system shared memory: their messages over both protocols.

use std::collections::HashMap;

use albacore_proto::inference::system_shared_memory_status_response::RegionStatus as Message;
use albacore_proto::inference::{
    SystemSharedMemoryRegisterRequest, SystemSharedMemoryStatusResponse,
};
use serde::Deserialize;
use serde_json::Value;

use crate::regions::{RegionError, RegionStatus};

/// The region that a call registers.
#[must_use]
pub fn region_of_message(message: SystemSharedMemoryRegisterRequest) -> RegionStatus {
    let SystemSharedMemoryRegisterRequest {
        name,
        key,
        offset,
        byte_size,
    } = message;
    RegionStatus {
        name,
        key,
        offset,
        bytes: byte_size,
    }
}

/// The answer over gRPC to a question for regions.
#[must_use]
pub fn regions_message(regions: Vec<RegionStatus>) -> SystemSharedMemoryStatusResponse {
    let regions = regions.into_iter().map(|region| {
        let message = Message {
            name: region.name.clone(),
            key: region.key,
            offset: region.offset,
            byte_size: region.bytes,
        };
        (region.name, message)
    });
    SystemSharedMemoryStatusResponse {
        regions: regions.collect::<HashMap<_, _>>(),
    }
}

/// The region that a body registers under `name`.
///
/// # Errors
/// The body is not an object of a key, an offset and a size.
pub fn region_of_json(name: String, body: &[u8]) -> Result<RegionStatus, RegionError> {
    #[derive(Deserialize)]
    struct Body {
        key: String,
        #[serde(default)]
        offset: u64,
        byte_size: u64,
    }
    let body: Body = serde_json::from_slice(body).map_err(RegionError::Body)?;
    Ok(RegionStatus {
        name,
        key: body.key,
        offset: body.offset,
        bytes: body.byte_size,
    })
}

/// The list of regions as HTTP has it.
#[must_use]
pub fn regions_json(regions: &[RegionStatus]) -> Value {
    let regions = regions.iter().map(|region| {
        serde_json::json!({
            "name": region.name,
            "key": region.key,
            "offset": region.offset,
            "byte_size": region.bytes,
        })
    });
    regions.collect()
}
