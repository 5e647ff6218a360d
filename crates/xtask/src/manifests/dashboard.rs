//! The Grafana dashboard: a table of panels, from which the JSON for Grafana is generated.
//!
//! Panels refer to metrics of `crates/serving/server`, `crates/kubernetes/cluster`,
//! `crates/kubernetes/agent` and `crates/kubernetes/params`; a test checks each of them against the
//! running programs.

use anyhow::Result;
use serde_json::{Value, json};

/// Panels per row.
const COLUMNS: usize = 3;

/// Grafana's grid has 24 columns.
const WIDTH: usize = 24 / COLUMNS;
const HEIGHT: usize = 8;

/// A row with a heading.
struct Row {
    title: &'static str,
    panels: &'static [Panel],
}

/// A time series chart. `SERVERS` is replaced by the selector of the chosen deployments' pods,
/// `CONTROLLER` by that of the controller.
struct Panel {
    title: &'static str,
    about: &'static str,
    /// Name of the unit in Grafana.
    unit: &'static str,
    queries: &'static [(&'static str, &'static str)],
}

const SERVERS: &str = r#"namespace=~"$namespace", service=~"$deployment""#;
const CONTROLLER: &str = r#"job=~".*albacore-controller""#;

const SERVICE: Row = Row {
    title: "Service",
    panels: &[
        Panel {
            title: "Goodput",
            about: "Replies within the latency objective, per second.",
            unit: "reqps",
            queries: &[(
                "sum by (service, model) (rate(albacore_answered_total{SERVERS}[$__rate_interval])) - \
                 sum by (service, model) (rate(albacore_late_total{SERVERS}[$__rate_interval]))",
                "{{service}} {{model}}",
            )],
        },
        Panel {
            title: "Bad requests",
            about: "Late, shed and failed requests per second. Late: answered after the objective. Shed: refused at \
                    admission. Failed: accepted and not answered.",
            unit: "reqps",
            queries: &[
                (
                    "sum(rate(albacore_late_total{SERVERS}[$__rate_interval]))",
                    "late",
                ),
                (
                    "sum(rate(albacore_shed_total{SERVERS}[$__rate_interval]))",
                    "shed",
                ),
                (
                    "sum(rate(albacore_failed_total{SERVERS}[$__rate_interval]))",
                    "failed",
                ),
            ],
        },
        Panel {
            title: "Bad share by model and kind",
            about: "Late, shed and failed requests of all of a model, by the costliest output that they ask for. \
                    Unread: refused before the body was read.",
            unit: "percentunit",
            queries: &[(
                "sum by (service, model, kind) \
                 (rate(albacore_outcomes_total{SERVERS, outcome!=\"good\"}[$__rate_interval])) / \
                 ignoring (kind) group_left sum by (service, model) \
                 (rate(albacore_outcomes_total{SERVERS}[$__rate_interval]))",
                "{{service}} {{model}} {{kind}}",
            )],
        },
        Panel {
            title: "Latency",
            about: "From a request's arrival to its reply, in the server.",
            unit: "s",
            queries: &[
                (
                    "histogram_quantile(0.5, sum by (le, model) \
                     (rate(albacore_total_duration_seconds_bucket{SERVERS}[$__rate_interval])))",
                    "p50 {{model}}",
                ),
                (
                    "histogram_quantile(0.99, sum by (le, model) \
                     (rate(albacore_total_duration_seconds_bucket{SERVERS}[$__rate_interval])))",
                    "p99 {{model}}",
                ),
            ],
        },
        Panel {
            title: "Load factor",
            about: "Pods needed for the current load, divided by existing pods. Above 1: too few.",
            unit: "none",
            queries: &[(
                "avg by (service) (albacore_load_factor{SERVERS})",
                "{{service}}",
            )],
        },
        Panel {
            title: "Replies by code",
            about: "Infer calls by protocol and code, refused ones included.",
            unit: "reqps",
            queries: &[(
                "sum by (protocol, code) (rate(albacore_requests_total{SERVERS}[$__rate_interval]))",
                "{{protocol}} {{code}}",
            )],
        },
        Panel {
            title: "Rows",
            about: "Rows submitted per second.",
            unit: "rowsps",
            queries: &[(
                "sum by (service, model) (rate(albacore_rows_total{SERVERS}[$__rate_interval]))",
                "{{service}} {{model}}",
            )],
        },
    ],
};

const BATCHING: Row = Row {
    title: "Batching",
    panels: &[
        Panel {
            title: "Rows of a batch",
            about: "Mean size of the batches that workers run.",
            unit: "none",
            queries: &[(
                "sum by (service, model) (rate(albacore_batch_rows_sum{SERVERS}[$__rate_interval])) / \
                 sum by (service, model) (rate(albacore_batch_rows_count{SERVERS}[$__rate_interval]))",
                "{{service}} {{model}}",
            )],
        },
        Panel {
            title: "Waiting and computing, p99",
            about: "Time from submission to dispatch, and time in the compute threads.",
            unit: "s",
            queries: &[
                (
                    "histogram_quantile(0.99, sum by (le) \
                     (rate(albacore_queue_duration_seconds_bucket{SERVERS}[$__rate_interval])))",
                    "waiting",
                ),
                (
                    "histogram_quantile(0.99, sum by (le) \
                     (rate(albacore_compute_duration_seconds_bucket{SERVERS}[$__rate_interval])))",
                    "computing",
                ),
            ],
        },
        Panel {
            title: "Queue",
            about: "Rows reserved or waiting for a worker, as a share of the bound at which requests are shed.",
            unit: "percentunit",
            queries: &[(
                "max by (service, pod) (albacore_queue_rows{SERVERS} / albacore_queue_rows_max{SERVERS})",
                "{{pod}}",
            )],
        },
    ],
};

const WORKERS: Row = Row {
    title: "Workers",
    panels: &[
        Panel {
            title: "Workers",
            about: "Worker processes that are up and that run a batch, of those configured.",
            unit: "none",
            queries: &[
                ("sum(albacore_workers{SERVERS})", "configured"),
                ("sum(albacore_workers_ready{SERVERS})", "up"),
                ("sum(albacore_workers_busy{SERVERS})", "busy"),
            ],
        },
        Panel {
            title: "Worker exits",
            about: "Workers restarted after an exit, and the batches that ran again because of it. No request is lost.",
            unit: "none",
            queries: &[
                (
                    "sum by (pod) (increase(albacore_worker_restarts_total{SERVERS}[$__rate_interval]))",
                    "workers {{pod}}",
                ),
                (
                    "sum by (pod) (increase(albacore_replayed_batches_total{SERVERS}[$__rate_interval]))",
                    "batches {{pod}}",
                ),
            ],
        },
        Panel {
            title: "Shared memory",
            about: "Shared memory for rows and results: used and total.",
            unit: "bytes",
            queries: &[
                (
                    "sum by (pod) (albacore_arena_used_bytes{SERVERS})",
                    "used {{pod}}",
                ),
                (
                    "sum by (pod) (albacore_arena_bytes{SERVERS})",
                    "all {{pod}}",
                ),
            ],
        },
    ],
};

const OPERATOR: Row = Row {
    title: "Controller",
    panels: &[
        Panel {
            title: "Requests to the API server",
            about: "By verb and code. A settled cluster shows no writes.",
            unit: "reqps",
            queries: &[(
                "sum by (verb, code) (rate(albacore_kube_requests_total{CONTROLLER}[$__rate_interval]))",
                "{{verb}} {{code}}",
            )],
        },
        Panel {
            title: "Reconciles",
            about: "Deployments that wait in the queue, and those that were queued again.",
            unit: "none",
            queries: &[
                (
                    "sum by (name) (albacore_queue_waiting{CONTROLLER})",
                    "waiting {{name}}",
                ),
                (
                    "sum by (name) (rate(albacore_queue_worked_again_total{CONTROLLER}[$__rate_interval]))",
                    "again/s {{name}}",
                ),
            ],
        },
        Panel {
            title: "Leader and watches",
            about: "The holder of the lease (1), and objects that do not fit their type.",
            unit: "none",
            queries: &[
                (
                    "max by (pod) (albacore_leading{CONTROLLER})",
                    "leading {{pod}}",
                ),
                (
                    "max by (name) (albacore_watched_malformed_objects{CONTROLLER})",
                    "malformed {{name}}",
                ),
            ],
        },
    ],
};

const NODES: Row = Row {
    title: "Nodes",
    panels: &[
        Panel {
            title: "Threads on their cpu",
            about: "Threads that have a planned cpu, and those that were read back on it.",
            unit: "none",
            queries: &[
                ("sum(albacore_agent_threads_planned)", "planned"),
                ("sum(albacore_agent_threads_verified)", "verified"),
            ],
        },
        Panel {
            title: "Drift",
            about: "Masks that were verified and later found changed, per second, and worker processes that replaced another one.",
            unit: "none",
            queries: &[
                (
                    "sum by (instance) (rate(albacore_agent_drifts_total[$__rate_interval]))",
                    "drifts {{instance}}",
                ),
                (
                    "sum by (instance) (rate(albacore_agent_respawns_total[$__rate_interval]))",
                    "respawns {{instance}}",
                ),
            ],
        },
        Panel {
            title: "Degraded nodes",
            about: "Nodes whose agent cannot do all of its work, by reason; agents that write masks.",
            unit: "none",
            queries: &[
                ("sum by (reason) (albacore_agent_degraded)", "{{reason}}"),
                ("sum(albacore_agent_enforcing)", "enforcing"),
            ],
        },
        Panel {
            title: "Activity of the agents",
            about: "Masks written and mappings solved, per second. A settled node shows none.",
            unit: "none",
            queries: &[
                (
                    "sum by (instance) (rate(albacore_agent_pins_total[$__rate_interval]))",
                    "masks {{instance}}",
                ),
                (
                    "sum by (instance) (rate(albacore_agent_solves_total[$__rate_interval]))",
                    "mappings {{instance}}",
                ),
            ],
        },
        Panel {
            title: "Cost of the agents",
            about: "Cpu time that an agent uses, as a share of one core.",
            unit: "percentunit",
            queries: &[(
                "sum by (instance) (rate(albacore_agent_cpu_micros_total[$__rate_interval])) / 1e6",
                "{{instance}}",
            )],
        },
        Panel {
            title: "Parameters",
            about: "Servers that follow the parameters of their node, and messages sent to them per second.",
            unit: "none",
            queries: &[
                ("sum(albacore_params_streams)", "servers"),
                (
                    "sum(rate(albacore_params_messages_sent_total[$__rate_interval]))",
                    "messages/s",
                ),
            ],
        },
    ],
};

/// The content of the dashboard's file.
pub(super) fn text() -> Result<String> {
    let mut text = serde_json::to_string_pretty(&dashboard())?;
    text.push('\n');
    Ok(text)
}

fn dashboard() -> Value {
    let mut panels = Vec::new();
    let mut top = 0;
    for row in [SERVICE, BATCHING, WORKERS, OPERATOR, NODES] {
        let id = panels.len() + 1;
        panels.push(json!({
            "id": id, "type": "row", "title": row.title, "collapsed": false, "panels": [],
            "gridPos": {"x": 0, "y": top, "w": 24, "h": 1},
        }));
        top += 1;
        for (index, panel) in row.panels.iter().enumerate() {
            let (x, y) = (index % COLUMNS * WIDTH, top + index / COLUMNS * HEIGHT);
            let id = panels.len() + 1;
            panels.push(chart(panel, id, x, y));
        }
        top += row.panels.len().div_ceil(COLUMNS) * HEIGHT;
    }
    json!({
        "uid": "albacore",
        "title": "Albacore",
        "description": "CPU inference: what is served in time, how it is batched, who serves it, where threads run.",
        "tags": ["albacore", "inference"],
        "schemaVersion": 39,
        "editable": true,
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {"list": [
            {"name": "datasource", "type": "datasource", "query": "prometheus", "label": "Data source"},
            variable("namespace", "label_values(albacore_workers, namespace)"),
            variable("deployment", "label_values(albacore_workers{namespace=~\"$namespace\"}, service)"),
        ]},
        "panels": panels,
    })
}

fn source() -> Value {
    json!({"type": "prometheus", "uid": "${datasource}"})
}

fn variable(name: &str, query: &str) -> Value {
    json!({
        "name": name, "type": "query", "datasource": source(), "query": query, "refresh": 2, "sort": 1,
        "multi": true, "includeAll": true, "current": {"text": "All", "value": "$__all"},
    })
}

fn chart(panel: &Panel, id: usize, x: usize, y: usize) -> Value {
    let target = |(index, (query, legend)): (usize, &(&str, &str))| {
        let query = query
            .replace("SERVERS", SERVERS)
            .replace("CONTROLLER", CONTROLLER);
        let letters = ["A", "B", "C", "D"];
        json!({"refId": letters[index % letters.len()], "datasource": source(), "expr": query, "legendFormat": legend})
    };
    let targets: Vec<Value> = panel.queries.iter().enumerate().map(target).collect();
    json!({
        "id": id, "type": "timeseries", "title": panel.title, "description": panel.about,
        "datasource": source(),
        "gridPos": {"x": x, "y": y, "w": WIDTH, "h": HEIGHT},
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
        "options": {"legend": {"displayMode": "list", "placement": "bottom"}, "tooltip": {"mode": "multi"}},
        "targets": targets,
    })
}
