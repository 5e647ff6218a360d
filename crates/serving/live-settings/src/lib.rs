//! The settings and models in force, which change while the server runs.
//!
//! `config_watcher` watches the settings file and loads models; `effective_config` joins the
//! settings with the parameters of the params stream; `model_status` is what became of them;
//! `model_control` are calls that load and unload models;
//! `events` are what the server prints. `cli_models` are the models of a server without a settings
//! file. `mlflow` compiles the models of MLflow's folders, too. `handover` is what a front leaves
//! to the next one, through the supervisor, whose messages `control` receives.
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
