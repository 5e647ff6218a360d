//! Simulation of the rest of a large cluster, except the API server and the controller: nodes,
//! pods, servers, agents, and the controller of Deployments.
//!
//! Writes through the API server would consume CPU time of the measured system. Therefore
//! everything that exists before the controller starts, and the renewals of the agents, is written
//! to etcd in the form in which the API server would store it; the API server reports it to watches
//! like any other change. Only the status of Deployments, which others write during the run, is
//! written through the API server.

mod etcd;
mod objects;
mod roles;
mod servers;

pub(crate) use etcd::Etcd;
pub(crate) use objects::Fleet;
pub(crate) use roles::Roles;
pub(crate) use servers::Servers;
