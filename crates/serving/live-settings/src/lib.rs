//! Effective settings and models of a running server, which can change while it runs.
//!
//! `config_watcher` watches the settings file and loads models; `effective_config` merges the
//! settings with the parameters of the params stream; `model_status` contains the resulting status;
//! `model_control` handles API calls that load and unload models; `events` are printed by the
//! server. `cli_models` are the models of a server without a settings file. `mlflow` compiles
//! models, including those of MLflow folders. `handover` transfers state from a front to its
//! successor through the supervisor, whose messages `control` receives.
#![forbid(unsafe_code)]

pub mod cli_models;
pub mod config_watcher;
pub mod control;
pub mod effective_config;
pub mod events;
pub mod handover;
pub mod limits;
mod mlflow;
pub mod model_control;
pub mod model_status;
