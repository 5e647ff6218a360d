//! Real nodes for tests: kubelet, containerd and kube-proxy with a control plane, in separate
//! namespaces or on an emulated machine.

mod configuration;
mod emulated;
mod files;
mod host;
mod task;

use std::net::Ipv4Addr;
use std::time::Duration;

use crate::limits::{GUEST_TIME_MAX, READY_TIME_MAX};
use crate::test_network::{GUEST_ADDRESS, TestNetwork};
use crate::{ControlPlane, Options, TestbedError};
pub use host::Host;
pub use task::Task;

/// Number of a node in the network: 0 shares the network of the control plane.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct NodeNumber(u8);

impl NodeNumber {
    fn address(self) -> Ipv4Addr {
        let [a, b, c, first] = TestNetwork::ADDRESS.octets();
        match self.0 {
            0 => TestNetwork::ADDRESS,
            number => Ipv4Addr::new(a, b, c, first.saturating_add(10).saturating_add(number)),
        }
    }

    /// Address range of its pods.
    fn pods(self) -> String {
        format!("10.244.{}.0/24", self.0)
    }
}

/// Machine of a node.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Machine {
    /// The host, with its cpus and its kernel.
    #[default]
    Here,
    /// A machine of 8 cpus, with SMT, 2 NUMA nodes, cgroup v2 and Linux 6.1, emulated by QEMU:
    /// about ten times slower.
    Emulated,
}

impl Machine {
    fn address(self, number: NodeNumber) -> Ipv4Addr {
        match self {
            Self::Here => number.address(),
            Self::Emulated => GUEST_ADDRESS,
        }
    }

    /// Time for its programs to become ready.
    fn patience(self) -> Duration {
        match self {
            Self::Here => READY_TIME_MAX,
            Self::Emulated => GUEST_TIME_MAX,
        }
    }
}

/// Options of a node.
#[derive(Clone, Debug)]
pub struct NodeOptions {
    pub machine: Machine,
    pub name: String,
    /// `none` or `static`.
    pub cpu_manager_policy: String,
    /// CPU time reserved for the system, as a quantity of Kubernetes.
    pub reserved_cpu: String,
    /// Seccomp profiles (JSON) that pods can reference by `localhostProfile`.
    pub seccomp_profiles: Vec<(String, String)>,
    /// Additional flags of kube-controller-manager.
    pub manager: Vec<String>,
}

impl Default for NodeOptions {
    fn default() -> Self {
        Self {
            machine: Machine::Here,
            name: "node0".into(),
            cpu_manager_policy: "static".into(),
            reserved_cpu: "500m".into(),
            seccomp_profiles: Vec::new(),
            manager: Vec::new(),
        }
    }
}

/// A control plane with a node. Both are removed on drop, or when the test that created them ends.
#[derive(Debug)]
pub struct Node {
    plane: ControlPlane,
    // Dropped after the plane, which runs in its network.
    host: Host,
}

impl std::ops::Deref for Node {
    type Target = Host;

    fn deref(&self) -> &Host {
        &self.host
    }
}

impl Node {
    /// Starts a control plane with a scheduler and one node, and waits until the node is ready.
    ///
    /// # Errors
    /// A requirement is missing on this machine, or the node is not ready in time.
    pub fn start(options: &NodeOptions) -> Result<Self, TestbedError> {
        let network = TestNetwork::new()?;
        let mut plane = ControlPlane::start_in(
            &network,
            &Options {
                controller_manager: true,
                manager: options.manager.clone(),
                ..Options::default()
            },
        )?;
        plane.start_scheduler()?;
        let host = Host::start(network, &plane, NodeNumber(0), options)?;
        Ok(Self { plane, host })
    }

    /// Starts another node of this control plane, in a separate network that a veth pair connects
    /// with this one, and waits until it is ready. `number` is 1 to 200, different for each node;
    /// `options.name` is unique.
    ///
    /// # Errors
    /// A requirement is missing on this machine, or the node is not ready in time.
    pub fn join(&self, number: u8, options: &NodeOptions) -> Result<Host, TestbedError> {
        let own = NodeNumber(number);
        let pods = own.pods();
        let network = TestNetwork::connected(self.host.network(), number, own.address(), &pods)?;
        Host::start(network, &self.plane, own, options)
    }

    /// Disconnects the node that joined as `number`: all its packets are lost, as after a power
    /// failure of the machine.
    ///
    /// # Errors
    /// There is no such node.
    pub fn disconnect(&self, number: u8) -> Result<(), TestbedError> {
        self.host.network().disconnect(number)
    }

    pub fn plane(&self) -> &ControlPlane {
        &self.plane
    }

    pub fn plane_mut(&mut self) -> &mut ControlPlane {
        &mut self.plane
    }
}
