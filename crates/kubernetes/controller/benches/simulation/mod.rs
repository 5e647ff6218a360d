//! The rest of a large cluster, beside the API server and the controller: nodes, pods, servers,
//! agents, and the controller of Deployments.
//!
//! What a test writes through the API server takes cpu from what is measured, so everything that
//! exists before the controller starts, and what agents renew, is put into etcd as the API server
//! would store it; the API server reports it to watches like any other change. Only the status of
//! Deployments, which others write meanwhile, goes through the API server.

mod etcd;
mod objects;
mod roles;
mod servers;

pub(crate) use etcd::Etcd;
pub(crate) use objects::Fleet;
pub(crate) use roles::Roles;
pub(crate) use servers::Servers;
