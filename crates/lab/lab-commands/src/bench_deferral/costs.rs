//! Costs of batches on the live path: from the dispatch into a worker's ring to the collected
//! result.

use std::time::Duration;

use albacore_bench::ModelShape;
use albacore_command::{Failure, print};
use albacore_load::{InferRequest, Load, Request, Shape, WireFormat, drive};
use albacore_random::SplitMix64;

use super::{MODEL, ModelFile};
use crate::local_server::LocalServer;

/// Rows of the measured batches.
const ROWS: [usize; 7] = [1, 2, 4, 8, 16, 32, 64];

const KINDS: [&str; 4] = ["output", "contribs", "interactions", "leaf"];

/// Runs per size, and their duration. The shortest mean counts: other load on the machine can only
/// increase it.
const RUNS: usize = 6;
const LENGTH: Duration = Duration::from_millis(15);

/// Batch time (microseconds) above which larger batches are not measured.
const LONGEST: f64 = 100_000.0;

const SHAPES: [ModelShape; 4] = [
    ModelShape {
        trees: 100,
        leaves: 100,
        features: 50,
    },
    ModelShape {
        trees: 1000,
        leaves: 100,
        features: 50,
    },
    ModelShape {
        trees: 1000,
        leaves: 100,
        features: 500,
    },
    ModelShape {
        trees: 3000,
        leaves: 100,
        features: 50,
    },
];

/// Prints the cost per row by batch size, and the line fitted to the costs of batches.
pub(super) fn print_costs(server: Option<&std::path::Path>) -> Result<(), Failure> {
    print("us per row by rows of the batch              kind           T")?;
    for rows in ROWS {
        print(&format!(" {rows:8}"))?;
    }
    print("    alpha     beta  beta/alpha\n")?;
    for shape in SHAPES {
        let model = ModelFile::create(shape)?;
        for threads in [1, 2] {
            let arguments = [
                "--workers".to_owned(),
                "1".to_owned(),
                "--threads".to_owned(),
                threads.to_string(),
                "--model".to_owned(),
                model.argument(),
            ];
            let server = LocalServer::start(server, &arguments)?;
            for kind in KINDS {
                let mut line = format!(
                    "{:5} trees of {:4} leaves, {:4} features  {kind:13} {threads:2}",
                    shape.trees, shape.leaves, shape.features
                );
                let mut costs = Vec::new();
                for rows in ROWS {
                    if costs.last().is_some_and(|&(_, cost)| cost > LONGEST / 2.0) {
                        line += "        -";
                        continue;
                    }
                    let cost = batch_cost(&server, shape, kind, rows)?;
                    line += &format!(" {:8.1}", cost / rows as f64);
                    costs.push((rows as f64, cost));
                }
                let (alpha, beta) = line_through(&costs);
                print(&format!(
                    "{line} {alpha:8.1} {beta:8.1} {:8.1}\n",
                    beta / alpha
                ))?;
            }
        }
    }
    Ok(())
}

/// Cost in microseconds of a batch with this number of rows, one batch at a time.
fn batch_cost(
    server: &LocalServer,
    shape: ModelShape,
    kind: &str,
    rows: usize,
) -> Result<f64, Failure> {
    let requests = requests(server, shape.features as usize, kind, rows);
    let run = |length: Duration| {
        let load = Load {
            requests: requests.clone(),
            shape: Shape::Closed(length),
            connections: 1,
        };
        drive(load).map_err(|e| Failure::Failed(format!("the load generator: {e}")))
    };
    let mut shortest = f64::INFINITY;
    for _ in 0..RUNS {
        let before = server.work_totals()?;
        run(LENGTH)?;
        let worked = server.work_totals()?.since(before);
        shortest = shortest.min(worked.seconds * 1e6 / worked.batches.max(1.0));
    }
    Ok(shortest)
}

/// Distinct requests with this number of rows.
pub(super) fn requests(
    server: &LocalServer,
    features: usize,
    kind: &str,
    rows: usize,
) -> Vec<Request> {
    let mut random = SplitMix64::new(rows as u64);
    let requests = (0..32).map(|_| {
        let values = (0..rows * features).map(|_| (random.draw() % 4001) as f32 / 1000.0 - 2.0);
        let values: Vec<f32> = values.collect();
        let call = InferRequest {
            model: MODEL,
            input: "input",
            output: Some(kind),
            values: &values,
            features,
        };
        call.request(WireFormat::Binary, server.http)
    });
    requests.collect()
}

/// Least-squares line of relative errors, as in the server.
fn line_through(costs: &[(f64, f64)]) -> (f64, f64) {
    let mut sums = [0.0; 5];
    for &(rows, cost) in costs {
        let weight = 1.0 / (cost * cost);
        let terms = [1.0, rows, rows * rows, cost, rows * cost];
        for (sum, term) in sums.iter_mut().zip(terms) {
            *sum += weight * term;
        }
    }
    let [one, x, xx, y, xy] = sums;
    let alpha = (one * xy - x * y) / (one * xx - x * x);
    (alpha, (y - alpha * x) / one)
}
