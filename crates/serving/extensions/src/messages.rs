//! Messages of Triton's system shared memory calls, for both protocols.

use std::collections::HashMap;

use albacore_proto::inference::system_shared_memory_status_response::RegionStatus as Message;
use albacore_proto::inference::{
    SystemSharedMemoryRegisterRequest, SystemSharedMemoryStatusResponse,
};
use serde::Deserialize;
use serde_json::Value;

use crate::regions::{RegionError, RegionStatus};

/// Converts a registration message to the region to register.
#[must_use]
pub fn region_from_message(message: SystemSharedMemoryRegisterRequest) -> RegionStatus {
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

/// Returns the gRPC response to a status call.
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

/// Parses the body of a registration of region `name`.
///
/// # Errors
/// The body is not a JSON object with `key`, `offset` and `byte_size`.
pub fn region_from_json(name: String, body: &[u8]) -> Result<RegionStatus, RegionError> {
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

/// Returns the HTTP response to a status call.
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
