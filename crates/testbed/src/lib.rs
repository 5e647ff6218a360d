//! A real Kubernetes control plane for tests: etcd and kube-apiserver built from their Go modules, on loopback ports and
//! with certificates of their own. Nothing of the environment (no kubeconfig, no cluster) is read or touched.
//!
//! Development only: tests and benchmarks link it, nothing that is shipped does.
#![forbid(unsafe_code)]

mod certificates;
mod control_plane;
mod error;
mod keeper;
mod kubeconfig;
mod limits;
mod product;
mod program;

pub use certificates::{Authority, Identity};
pub use control_plane::{ControlPlane, Options};
pub use error::TestbedError;
pub use product::product;
pub use program::{Program, programs};
