//! The custom resources of Albacore: their types, their schema, the rules that a spec must satisfy,
//! and the conversion of a spec for the planner and for one machine. Contains no client.
#![forbid(unsafe_code)]

mod categories;
mod condition_state;
mod container;
mod counted;
mod deployment;
mod iterations;
pub mod limits;
mod local_deployment;
mod missing_columns;
mod model_batching;
mod model_threads;
mod node_placement;
mod notices;
mod output;
mod place_annotation;
mod pod_files;
mod pod_problem;
mod policy;
mod quantity;
mod read;
mod remedy;
mod restart;
mod rules;
mod schema;
mod server_image;
mod server_settings;
mod status;
mod timespan;
mod uri;
mod versions;
mod violation;

pub use condition_state::ConditionState;
pub use container::thread_counts;
pub use counted::counted;
pub use deployment::{
    Autoscaling, Batching, BatchingPolicy, BatchingPreference, EnforcementPolicy, Front,
    InferenceDeployment, InferenceDeploymentSpec, LoadReportPolicy, MainThreadPolicy, ModelSpec,
    PlacementMode, PlacementPolicy, PlacementSpec, Queue, SloSpec, Trial, TrialArm,
};
pub use iterations::{IterationRangeSpec, IterationsSpec, NamedIterations};
pub use local_deployment::{BuiltInServer, LocalDeployment, OwnServer, Server, for_one_machine};
pub use missing_columns::MissingColumns;
pub use model_batching::ModelBatchingSpec;
pub use model_threads::{ModelThreads, NamedThreads};
pub use node_placement::{
    AnnotatedPod, CountSource, Drift, DriftCause, FrontPlacement, Isolation, NodePlacement,
    NodePlacementStatus, PodMapping, PodPlacement, SpawnBucket,
};
pub use output::OutputSpec;
pub use place_annotation::{PLACE_ANNOTATION, PlaceAnnotation, PlaceAnnotationError};
pub use pod_files::MODELS_FOLDER;
pub use pod_problem::PodProblem;
pub use policy::{policy_of, policy_of_annotation, trial_of};
pub use quantity::cpus as cpus_of_quantity;
pub use read::{ReadError, read_deployment, read_for_one_machine};
pub use remedy::remedy_of;
pub use restart::restarting_fields;
pub use rules::{SERVER_CONTAINER, validate};
pub use schema::{inference_deployment_crd, node_placement_crd};
pub use server_image::{SERVER_IMAGE_ANNOTATION, server_image_of};
pub use server_settings::settings_of;
pub use status::{
    BatchingStatus, InferenceDeploymentStatus, LatencyModel, ModelStatus, ServerLimit,
    TrafficStatus, Utilization, WorkerCounts,
};
pub use timespan::{Timespan, TimespanError};
pub use uri::{ModelPlace, ModelUri, UriError};
pub use violation::Violation;
