//! `albacore bench engine`: a process that measures the tree engine on commands from standard
//! input, so that it can be compared with another engine in the same run. Its help describes the
//! commands. Timed calls quantize, predict and transform; compilation is excluded.

use std::fs;
use std::io::{self, BufRead as _};
use std::path::Path;
use std::time::{Duration, Instant};

use albacore_trees::{
    Image, Kernel, Kind, Library, Model, OutputMut, PredictScratch, Predictor, Rows,
};

use albacore_command::{Failure, print};

/// Maximum number of calls of a command: the time of each is kept, 8 MiB.
const BENCH_CALLS_MAX: usize = 1 << 20;

/// Maximum number of elements of a result, as for `albacore predict`.
const OUTPUT_ELEMENTS_MAX: usize = 1 << 32;

/// Maximum size of an input file, in bytes: a larger one is more likely a mistake than data.
const FILE_BYTES_MAX: u64 = 16 << 30;

/// A loaded model and its rows.
struct Loaded {
    image: Image,
    rows: Vec<f32>,
    columns: usize,
}

/// Executes commands until the end of standard input.
pub(crate) fn run(kernel: Option<&str>) -> Result<(), Failure> {
    let kernel = kernel.map(kernel_of).transpose()?;
    let mut loaded = None;
    for line in io::stdin().lock().lines() {
        let line = line.map_err(|e| Failure::Failed(format!("standard input: {e}")))?;
        let words: Vec<&str> = line.split_whitespace().collect();
        let answer = match (&words[..], &loaded) {
            ([], _) => continue,
            (["load", model, data, columns, threads], _) => {
                load(Path::new(model), Path::new(data), columns, threads).map(|it| {
                    loaded = Some(it);
                    "ok".to_owned()
                })
            }
            (["check", kind, rows, file], Some(loaded)) => {
                loaded.check(kernel, kind, rows, Path::new(file))
            }
            (["run", kind, batch, time, calls], Some(loaded)) => {
                loaded.run(kernel, kind, [batch, time, calls])
            }
            (["check" | "run", ..], None) => Err("no model is loaded".to_owned()),
            _ => Err(format!(
                "unknown command: {line}; see albacore bench engine --help"
            )),
        };
        let answer = answer.unwrap_or_else(|reason| format!("error {reason}"));
        print(&format!("{answer}\n"))?;
    }
    Ok(())
}

fn kernel_of(name: &str) -> Result<Kernel, Failure> {
    let found = Kernel::ALL.into_iter().find(|kernel| kernel.name() == name);
    found.ok_or_else(|| {
        let names = Kernel::ALL.map(Kernel::name).join(", ");
        Failure::Usage(format!("--kernel {name}: expected one of {names}"))
    })
}

fn number(name: &str, text: &str) -> Result<usize, String> {
    text.parse()
        .map_err(|_| format!("{name} {text}: expected a number"))
}

fn load(model: &Path, data: &Path, columns: &str, threads: &str) -> Result<Loaded, String> {
    if number("THREADS", threads)? != 1 {
        return Err(format!("THREADS {threads}: only 1 is supported"));
    }
    let columns = number("COLS", columns)?;
    let of_model = |error: &dyn std::fmt::Display| format!("{}: {error}", model.display());
    let bytes = fs::read(model).map_err(|error| of_model(&error))?;
    let model = Model::parse(&bytes).map_err(|error| of_model(&error))?;
    let features = model.parts().features;
    if features != columns {
        return Err(format!("COLS {columns}: the model has {features} features"));
    }
    let of_data = |e: io::Error| format!("{}: {e}", data.display());
    if fs::metadata(data).map_err(of_data)?.len() > FILE_BYTES_MAX {
        return Err(format!(
            "{}: longer than {FILE_BYTES_MAX} bytes",
            data.display()
        ));
    }
    let bytes = fs::read(data).map_err(of_data)?;
    let (values, rest) = bytes.as_chunks::<4>();
    let rows: Vec<f32> = values.iter().map(|&it| f32::from_le_bytes(it)).collect();
    if rows.is_empty() || !rest.is_empty() || !rows.len().is_multiple_of(columns) {
        return Err(format!("{}: not rows of {columns} float32", data.display()));
    }
    Ok(Loaded {
        image: Image::compile(&model),
        rows,
        columns,
    })
}

fn kind_of(name: &str) -> Result<Kind, String> {
    match name {
        "predict" => Ok(Kind::Value),
        "contribs" => Ok(Kind::Contribs),
        "interactions" => Ok(Kind::Interactions),
        _ => Err(format!(
            "KIND {name}: expected predict, contribs or interactions"
        )),
    }
}

/// Output buffers for a number of rows.
struct Outputs {
    singles: Vec<f32>,
    doubles: Vec<f64>,
    scratch: PredictScratch,
}

impl Outputs {
    fn new(predictor: &Predictor<'_>, kind: Kind, rows: usize) -> Result<Self, String> {
        let count = rows.checked_mul(predictor.output_width(kind));
        let count = count.filter(|&it| it <= OUTPUT_ELEMENTS_MAX);
        let count = count.ok_or("the outputs are too large")?;
        let is_single = predictor.library() == Library::Xgboost;
        Ok(Self {
            singles: vec![0.0; if is_single { count } else { 0 }],
            doubles: vec![0.0; if is_single { 0 } else { count }],
            scratch: PredictScratch::default(),
        })
    }

    fn predict(
        &mut self,
        predictor: &Predictor<'_>,
        kind: Kind,
        rows: &[f32],
    ) -> Result<(), String> {
        let out = match predictor.library() {
            Library::Xgboost => OutputMut::F32(&mut self.singles),
            Library::Lightgbm | Library::Sklearn => OutputMut::F64(&mut self.doubles),
        };
        predictor
            .predict(kind, Rows::F32(rows), out, &mut self.scratch)
            .map_err(|e| e.to_string())
    }
}

impl Loaded {
    fn predictor(&self, kernel: Option<Kernel>) -> Result<Predictor<'_>, String> {
        let predictor = Predictor::open(self.image.bytes()).map_err(|e| e.to_string())?;
        match kernel {
            None => {
                let start = Instant::now();
                let mut clock = || u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX);
                Ok(predictor.tuned(&mut clock))
            }
            Some(kernel) => predictor.with_kernel(kernel).ok_or_else(|| {
                format!("kernel {kernel} is not supported by this cpu or for this model")
            }),
        }
    }

    fn check(
        &self,
        kernel: Option<Kernel>,
        kind: &str,
        rows: &str,
        file: &Path,
    ) -> Result<String, String> {
        let (kind, rows) = (kind_of(kind)?, number("N", rows)?);
        let values = rows
            .checked_mul(self.columns)
            .and_then(|end| self.rows.get(..end));
        let values = values.ok_or_else(|| format!("N {rows}: more rows than the data has"))?;
        let predictor = self.predictor(kernel)?;
        let mut outputs = Outputs::new(&predictor, kind, rows)?;
        outputs.predict(&predictor, kind, values)?;
        let singles = outputs.singles.iter().copied();
        let all = singles.chain(outputs.doubles.iter().map(|&x| x as f32));
        let bytes: Vec<u8> = all.flat_map(f32::to_le_bytes).collect();
        fs::write(file, bytes).map_err(|e| format!("{}: {e}", file.display()))?;
        Ok("ok".to_owned())
    }

    fn run(
        &self,
        kernel: Option<Kernel>,
        kind: &str,
        [batch, time, calls]: [&str; 3],
    ) -> Result<String, String> {
        let (kind, batch) = (kind_of(kind)?, number("BATCH", batch)?);
        let time = Duration::from_millis(number("TARGET_MS", time)? as u64);
        let calls = number("MIN_CALLS", calls)?.clamp(1, BENCH_CALLS_MAX);
        let rows = self.rows.len() / self.columns;
        if batch == 0 || batch > rows {
            return Err(format!(
                "BATCH {batch} is out of range: expected 1 to {rows}, the rows of the data"
            ));
        }
        let predictor = self.predictor(kernel)?;
        let mut outputs = Outputs::new(&predictor, kind, batch)?;
        // The rows are stored twice, so that a window never wraps.
        let data = [&self.rows[..], &self.rows[..batch * self.columns]].concat();
        let mut times = Vec::new();
        outputs.predict(&predictor, kind, &data[..batch * self.columns])?;
        let (start, cpu) = (Instant::now(), cpu_time()?);
        let mut first = 0;
        // bound: BENCH_CALLS_MAX.
        while times.len() < BENCH_CALLS_MAX && (times.len() < calls || start.elapsed() < time) {
            let window = &data[first * self.columns..][..batch * self.columns];
            let before = Instant::now();
            outputs.predict(&predictor, kind, window)?;
            times.push(before.elapsed().as_nanos() as f64 / batch as f64);
            first = (first + batch) % rows;
        }
        let cpu = (cpu_time()? - cpu) / (times.len() * batch) as f64;
        times.sort_by(f64::total_cmp);
        let mean = times.iter().sum::<f64>() / times.len() as f64;
        let (min, med) = (times[0], times[times.len() / 2]);
        let calls = times.len();
        Ok(format!(
            "{{\"med\": {med:.1}, \"min\": {min:.1}, \"mean\": {mean:.1}, \"cpu\": {cpu:.1}, \"calls\": {calls}}}"
        ))
    }
}

/// CPU time of this thread, in nanoseconds.
fn cpu_time() -> Result<f64, String> {
    let path = "/proc/self/schedstat";
    let text = fs::read_to_string(path).map_err(|e| format!("{path}: {e}"))?;
    let first = text
        .split_whitespace()
        .next()
        .and_then(|it| it.parse().ok());
    first.ok_or_else(|| format!("{path}: expected a number"))
}
