//! A real Kubernetes control plane for tests: etcd and kube-apiserver built from their Go modules,
//! on loopback ports and with their own certificates. It neither reads nor changes the environment
//! (no kubeconfig, no cluster).
//!
//! A [`Node`] is a control plane with a real node: kubelet, containerd and kube-proxy in separate
//! namespaces or on an emulated machine.
#![forbid(unsafe_code)]

mod api_proxy;
mod certificates;
mod control_plane;
mod error;
mod guest;
mod image;
mod kubeconfig;
mod limits;
mod node;
mod product;
mod program;
mod spawner;
pub mod supervisor;
mod test_network;

pub use certificates::{Authority, Identity};
pub use control_plane::{ControlPlane, Options};
pub use error::TestbedError;
pub use guest::{Guest, Size};
pub use image::Image;
pub use node::{Host, Machine, Node, NodeOptions, Task};
pub use product::{product, product_of};
pub use program::{Program, program_folder, programs};
pub use supervisor::PodMasks;
pub use test_network::TestNetwork;
