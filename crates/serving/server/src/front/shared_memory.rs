//! Triton's calls for system shared memory: their messages over both protocols.

use std::collections::HashMap;

use albacore_extensions::RegionStatus;
use albacore_proto::inference::system_shared_memory_status_response::RegionStatus as Message;
use albacore_proto::inference::{
    SystemSharedMemoryRegisterRequest, SystemSharedMemoryStatusResponse,
};
use serde::{Deserialize, Serialize};

use super::request_error::RequestError;

/// The region that a call registers.
pub(super) fn of_message(message: SystemSharedMemoryRegisterRequest) -> RegionStatus {
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

pub(super) fn message(regions: Vec<RegionStatus>) -> SystemSharedMemoryStatusResponse {
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
pub(super) fn of_json(name: String, body: &[u8]) -> Result<RegionStatus, RequestError> {
    #[derive(Deserialize)]
    struct Body {
        key: String,
        #[serde(default)]
        offset: u64,
        byte_size: u64,
    }
    let body: Body = serde_json::from_slice(body).map_err(|error| {
        RequestError::invalid(format!(
            "the body is not {{\"key\": NAME, \"offset\": BYTES, \"byte_size\": BYTES}}: {error}"
        ))
    })?;
    Ok(RegionStatus {
        name,
        key: body.key,
        offset: body.offset,
        bytes: body.byte_size,
    })
}

/// The list of regions as HTTP has it.
pub(super) fn json(regions: &[RegionStatus]) -> impl Serialize {
    let regions = regions.iter().map(|region| {
        serde_json::json!({
            "name": region.name,
            "key": region.key,
            "offset": region.offset,
            "byte_size": region.bytes,
        })
    });
    regions.collect::<serde_json::Value>()
}
