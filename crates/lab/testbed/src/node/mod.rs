//! Real nodes for tests: kubelet, containerd and kube-proxy beside a control plane, in namespaces
//! of their own or on an emulated machine.

mod configuration;
mod emulated;
mod files;
mod host;
mod task;

use std::net::Ipv4Addr;
use std::time::Duration;

use crate::control_plane::Place;
use crate::limits::{GUEST_TIME_MAX, READY_TIME_MAX};
use crate::test_network::{GUEST_ADDRESS, NODE_ADDRESS, TestNetwork};
use crate::{ControlPlane, Options, TestbedError};
pub use host::Host;
pub use task::Task;

/// The place of a node in the network: 0 is beside the control plane.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct NodeNumber(u8);

impl NodeNumber {
    fn address(self) -> Ipv4Addr {
        let [a, b, c, first] = NODE_ADDRESS.octets();
        match self.0 {
            0 => NODE_ADDRESS,
            number => Ipv4Addr::new(a, b, c, first.saturating_add(10).saturating_add(number)),
        }
    }

    /// The addresses of its pods.
    fn pods(self) -> String {
        format!("10.244.{}.0/24", self.0)
    }
}

/// What a node runs on.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Machine {
    /// The machine at hand, with its cpus and its kernel.
    #[default]
    Here,
    /// One of 8 cpus, with SMT, 2 NUMA nodes, cgroup v2 and Linux 6.1, emulated by QEMU: some ten
    /// times slower.
    Emulated,
}

impl Machine {
    fn address(self, number: NodeNumber) -> Ipv4Addr {
        match self {
            Self::Here => number.address(),
            Self::Emulated => GUEST_ADDRESS,
        }
    }

    /// How long its programs may take until they are ready.
    fn patience(self) -> Duration {
        match self {
            Self::Here => READY_TIME_MAX,
            Self::Emulated => GUEST_TIME_MAX,
        }
    }
}

/// What a node is started with.
#[derive(Clone, Debug)]
pub struct NodeOptions {
    /// What it runs on.
    pub machine: Machine,
    pub name: String,
    /// `none` or `static`.
    pub cpu_manager_policy: String,
    /// Cpu time kept from pods, as a quantity of Kubernetes.
    pub reserved_cpu: String,
    /// Seccomp profiles that pods can name as `localhostProfile`, with their JSON.
    pub seccomp_profiles: Vec<(String, String)>,
    /// More flags of kube-controller-manager.
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

/// A control plane with a node beside it. Everything ends with this value, or with the test that
/// made it.
#[derive(Debug)]
pub struct Node {
    plane: ControlPlane,
    // After the plane, which runs in its network.
    host: Host,
}

impl std::ops::Deref for Node {
    type Target = Host;

    fn deref(&self) -> &Host {
        &self.host
    }
}

impl Node {
    /// Starts a control plane with a scheduler and one node, and waits until that is ready.
    ///
    /// # Errors
    /// Something is missing on this machine, or is not ready in time.
    pub fn start(options: &NodeOptions) -> Result<Self, TestbedError> {
        let network = TestNetwork::new()?;
        let place = Place {
            address: NODE_ADDRESS,
            entrance: network.command_prefix(),
            parent: network.folder().to_owned(),
        };
        let mut plane = ControlPlane::start_at(
            place,
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

    /// Starts another node of this control plane, in a network of its own that a cable connects
    /// with this one, and waits until it is ready. `number` is 1 to 200, another one for each node;
    /// `options.name` is unique.
    ///
    /// # Errors
    /// Something is missing on this machine, or is not ready in time.
    pub fn join(&self, number: u8, options: &NodeOptions) -> Result<Host, TestbedError> {
        let own = NodeNumber(number);
        let pods = own.pods();
        let network = TestNetwork::connected(self.host.network(), number, own.address(), &pods)?;
        Host::start(network, &self.plane, own, options)
    }

    /// Cuts the cable of the node that joined as `number`: not a packet passes any more, as where a
    /// machine loses power.
    ///
    /// # Errors
    /// There is no such node.
    pub fn disconnect(&self, number: u8) -> Result<(), TestbedError> {
        self.host.network().disconnect(number)
    }

    /// Its control plane.
    pub fn plane(&self) -> &ControlPlane {
        &self.plane
    }

    /// Its control plane, to be changed.
    pub fn plane_mut(&mut self) -> &mut ControlPlane {
        &mut self.plane
    }
}
