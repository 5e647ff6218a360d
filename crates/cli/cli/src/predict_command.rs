//! `albacore predict`: computes predictions of a model for rows. Rows are independent, so threads
//! share them, and the result is the same for any number of threads.

mod npy;
mod options;

use std::fs::File;
use std::io::Read as _;
use std::num::NonZero;
use std::path::Path;
use std::thread;

use albacore_trees::{
    ElementType, Image, Iterations, Kind, Model, OutputMut, PredictScratch, Predictor, Rows,
};
use npyz::AutoSerialize;

use crate::args::{self, PredictArgs};
use crate::limits::{FILE_BYTES_MAX, OUTPUT_ELEMENTS_MAX, PREDICT_THREADS_MAX};
use albacore_command::Failure;

use npy::{Floats, Matrix};
pub(crate) use options::PredictOptions;
use options::ResolvedOptions;

pub(crate) fn run(args: &PredictArgs) -> Result<(), Failure> {
    let threads = threads(args.threads)?;
    check_output_path(&args.output)?;
    let image = compile(&args.model, args.options.iterations())?;
    let predictor = Predictor::open(image.bytes())
        .map_err(|e| Failure::Broken(format!("cannot open a new model image: {e}")))?;
    let table = npy::read_table(&args.data)?;
    if table.columns != predictor.features() {
        return Err(Failure::Failed(format!(
            "{}: rows have {} values, but the model {} takes {} features",
            args.data.display(),
            table.columns,
            args.model.display(),
            predictor.features()
        )));
    }
    let kind = match args.kind {
        args::OutputKind::Value => Kind::Value,
        args::OutputKind::Margin => Kind::Margin,
        args::OutputKind::Contribs => Kind::Contribs,
        args::OutputKind::Interactions => Kind::Interactions,
        args::OutputKind::Leaf => Kind::Leaf,
    };
    let job = Prediction {
        predictor: &predictor,
        kind,
        options: &args.options.read(&predictor, table.rows)?,
        table: &table,
        threads,
        model: &args.model,
    };
    match predictor.output_element(kind) {
        ElementType::F32 => job.write::<f32>(&args.output, |out| OutputMut::F32(out)),
        ElementType::F64 => job.write::<f64>(&args.output, |out| OutputMut::F64(out)),
        ElementType::I32 => job.write::<i32>(&args.output, |out| OutputMut::I32(out)),
    }
}

fn threads(requested: Option<usize>) -> Result<usize, Failure> {
    match requested {
        None => Ok(thread::available_parallelism().map_or(1, NonZero::get)),
        Some(0) => Err(Failure::Usage("--threads 0: must be at least 1".to_owned())),
        Some(n) if n > PREDICT_THREADS_MAX => Err(Failure::Usage(format!(
            "--threads {n}: must be at most {PREDICT_THREADS_MAX}"
        ))),
        Some(n) => Ok(n),
    }
}

/// Checks before the computation whether the output can be written.
fn check_output_path(output: &Path) -> Result<(), Failure> {
    let parent = output
        .parent()
        .filter(|parent| !parent.as_os_str().is_empty());
    let reason = match parent {
        _ if output.is_dir() => "it is a directory: name a file".to_owned(),
        Some(parent) if !parent.is_dir() => {
            format!(
                "the directory {} does not exist: create it",
                parent.display()
            )
        }
        _ => return Ok(()),
    };
    Err(Failure::Failed(format!(
        "cannot write {}: {reason}",
        output.display()
    )))
}

fn compile(path: &Path, chosen: Iterations) -> Result<Image, Failure> {
    let model = read_model(path)?;
    for notice in &model.parts().notices {
        eprintln!("albacore: {}: {notice}", path.display());
    }
    let model = model.with_iterations(chosen);
    let model = model.map_err(|e| Failure::file(path, &e))?;
    if let (Iterations::AsSaved, Some(notice)) =
        (chosen, model.iterations_notice(model.iteration_range()))
    {
        eprintln!("albacore: {}: {notice}", path.display());
    }
    Ok(Image::compile(&model))
}

/// Reads a model from its file.
pub(crate) fn read_model(path: &Path) -> Result<Model, Failure> {
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(|e| Failure::file(path, &e))?;
    // One byte more than the limit, to detect files that are too long.
    let read = file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes);
    read.map_err(|e| Failure::file(path, &e))?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        let what = format!("longer than {FILE_BYTES_MAX} bytes: not a model");
        return Err(Failure::Failed(format!("{}: {what}", path.display())));
    }
    Model::parse(&bytes).map_err(|e| Failure::file(path, &e))
}

/// A prediction of all rows.
struct Prediction<'a> {
    predictor: &'a Predictor<'a>,
    kind: Kind,
    options: &'a ResolvedOptions,
    table: &'a Matrix,
    threads: usize,
    model: &'a Path,
}

impl Prediction<'_> {
    fn write<T: AutoSerialize + Copy + Default + Send>(
        &self,
        output: &Path,
        wrap: for<'x> fn(&'x mut [T]) -> OutputMut<'x>,
    ) -> Result<(), Failure> {
        let elements = self.predict(wrap)?;
        let mut shape = vec![self.table.rows];
        match self.kind {
            Kind::Leaf => shape.push(self.options.trees),
            kind => shape.extend(self.predictor.output_row_shape(kind)),
        }
        npy::write(output, &shape, &elements)
            .map_err(|e| Failure::Failed(format!("cannot write {}: {e}", output.display())))
    }

    fn predict<T: Clone + Default + Send>(
        &self,
        wrap: for<'x> fn(&'x mut [T]) -> OutputMut<'x>,
    ) -> Result<Vec<T>, Failure> {
        let rows = self.table.rows;
        let width = match self.kind {
            Kind::Leaf => self.options.trees,
            kind => self.predictor.output_width(kind),
        };
        let count = rows
            .checked_mul(width)
            .filter(|&n| n <= OUTPUT_ELEMENTS_MAX);
        let mut out = Vec::new();
        if count.is_none_or(|n| out.try_reserve_exact(n).is_err()) {
            let what = "do not fit in memory: split the rows over several files";
            return Err(Failure::Failed(format!(
                "{rows} rows x {width} results {what}"
            )));
        }
        out.resize(count.unwrap_or(0), T::default());
        let share = rows.div_ceil(self.threads).max(1);
        let done: Vec<Result<(), Failure>> = thread::scope(|scope| {
            let spawned: Vec<_> = out
                .chunks_mut((share * width).max(1))
                .enumerate()
                .map(|(i, piece)| {
                    let first = i * share;
                    let last = rows.min(first + share);
                    let work = move || self.predict_rows(first, last, wrap(piece));
                    thread::Builder::new().spawn_scoped(scope, work)
                })
                .collect();
            let join = |spawned: std::io::Result<thread::ScopedJoinHandle<'_, _>>| match spawned {
                Ok(handle) => handle.join().unwrap_or_else(|_| {
                    Err(Failure::Broken("a predicting thread panicked".to_owned()))
                }),
                Err(e) => Err(Failure::Failed(format!("cannot start a thread: {e}"))),
            };
            spawned.into_iter().map(join).collect()
        });
        done.into_iter().collect::<Result<(), _>>().map(|()| out)
    }

    fn predict_rows(&self, first: usize, last: usize, out: OutputMut<'_>) -> Result<(), Failure> {
        let values = first * self.table.columns..last * self.table.columns;
        let rows = match &self.table.floats {
            Floats::F32(all) => Rows::F32(&all[values]),
            Floats::F64(all) => Rows::F64(&all[values]),
        };
        let mut scratch = PredictScratch::default();
        let options = self.options.options(first..last, self.predictor.groups());
        let (predictor, kind) = (self.predictor, self.kind);
        let predicted = match self.options.is_approximate {
            true => predictor.predict_approx(kind, rows, &options, out, &mut scratch),
            false => predictor.predict_with(kind, rows, &options, out, &mut scratch),
        };
        predicted.map_err(|e| Failure::file(self.model, &e))
    }
}
