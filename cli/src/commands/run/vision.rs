//! `run` of models that take images: computes embeddings, and masks for points.

use std::{
    io::{Write, stdout},
    path::{Path, PathBuf},
};

use eutectic::{
    DType, Graph, Tensor,
    engine::models::{
        sam::{self, Label, Prompts},
        vision::VisionModel,
    },
};

use super::{
    args::Args,
    picture::SeenImage,
    results::{output_files, print_results},
    verify,
};
use crate::{
    fault::{Fault, input},
    format::Format,
    npy,
    program::Opened,
    timing::progress,
    values::NamedTensors,
};

/// Runs a model that takes images.
///
/// # Errors
/// If arguments or files are invalid, or if the program cannot be compiled or run.
pub fn run(args: &Args) -> Result<(), Fault> {
    let program = &args.job.program;
    if !args.texts.is_empty() {
        let help = "give --image FILE, or --input pixels=@FILE.npy";
        return Err(input(format!("--text does not apply to {}, which takes images", program.model.display()), help));
    }
    let opened = program.opened()?.expect("`run` has checked that the model takes images");
    let files = Files::of(&args.results)?;
    let seen = see(args, &opened)?;
    if !files.pictures.is_empty() && seen.is_none() {
        return Err(input(
            "cannot write a picture (--out) because there is no image",
            "add --image FILE, or write a .npy file",
        ));
    }
    let (graph, ignored) = graph(args, &opened)?;
    let (params, source) = program.image_params(&opened, &graph, ignored)?;
    let mut given = args.inputs.read()?;
    if let Some(seen) = &seen
        && given.insert("pixels".into(), seen.prepared.pixels.clone()).is_some()
    {
        return Err(input("--image and --input pixels set the same input", "give one of them"));
    }
    given.extend(prompt(args, seen.as_ref()));
    let inputs = program.inputs(&graph, given)?;
    if args.verify {
        if !args.results.is_empty() {
            return Err(input("--verify does not write pictures", "leave out --out, or --verify"));
        }
        return verify::run(args, &args.job.compile.compiler()?, &graph, &(params, source), &inputs);
    }
    let outputs = output_files(args, graph.outputs())?;
    let bar = progress("compiling and running", None);
    let mut session = args.job.compile.compiler()?.compile(&graph)?;
    session.load_named(|name| params.get(name).cloned())?;
    let results = session.run_named(|name| inputs.get(name).cloned())?;
    drop(bar);

    let named: Vec<(&str, &Tensor)> = graph.outputs().iter().map(|(name, _)| name.as_str()).zip(&results).collect();
    for (at, path) in outputs.into_iter().chain(files.arrays.into_iter().map(|path| (0, path))) {
        npy::write(&path, &results[at])?;
    }
    let masks = named.iter().find(|(name, _)| *name == "masks").zip(named.iter().find(|(name, _)| *name == "scores"));
    let best = masks.map(|((_, masks), (_, scores))| PointMask::best(masks, scores, seen.as_ref()));
    if let Some(seen) = &seen {
        for path in &files.pictures {
            draw(path, seen, best.as_ref(), embedding(&opened.model, &named)?)?;
        }
    }
    print_results(args, &named, &inputs, &source)?;
    if let (Some(best), Format::Table) = (best, args.job.format) {
        writeln!(stdout().lock(), "{best}")?;
    }
    Ok(())
}

/// The files of `--out`, by format.
struct Files {
    arrays: Vec<PathBuf>,
    pictures: Vec<PathBuf>,
}

impl Files {
    fn of(paths: &[PathBuf]) -> Result<Files, Fault> {
        let ends = |path: &Path, with: &str| path.extension().is_some_and(|e| e.eq_ignore_ascii_case(with));
        if let Some(path) = paths.iter().find(|path| !ends(path, "npy") && !ends(path, "png")) {
            let problem =
                format!("--out {}: the extension selects the format, and this one is unknown", path.display());
            return Err(input(problem, "name a .npy file for numbers, or a .png file for a picture"));
        }
        let (arrays, pictures) = paths.iter().cloned().partition(|path| ends(path, "npy"));
        Ok(Files { arrays, pictures })
    }
}

/// Reads and prepares the image, if one is given. Checks that points are inside of it.
fn see(args: &Args, opened: &Opened) -> Result<Option<SeenImage>, Fault> {
    let Some(path) = &args.image else { return Ok(None) };
    let Some((preprocessing, sides)) = opened.model.preprocessing() else {
        let problem = format!("--image does not apply to {}, which takes no pixels", args.job.program.model.display());
        return Err(input(problem, "give its inputs as arrays, --input NAME=@FILE.npy"));
    };
    if args.job.program.images() != 1 {
        return Err(input("--image gives one image, but --batch needs more", "leave out --batch"));
    }
    let seen = SeenImage::open(path, &preprocessing, sides)?;
    let (width, height) = seen.size();
    let outside = |p: &&[f64; 2]| !(0.0..f64::from(width)).contains(&p[0]) || !(0.0..f64::from(height)).contains(&p[1]);
    if let Some([x, y]) = args.points.iter().find(outside) {
        let help = format!("x is from 0 to {}, y from 0 to {}", width - 1, height - 1);
        return Err(input(
            format!("--point {x},{y} is outside of {}, which is {width}x{height}", path.display()),
            help,
        ));
    }
    Ok(Some(seen))
}

/// Returns the graph for an embedding, or for masks if points are given. Also returns the name patterns of tensors that
/// files may have and the graph does not read.
fn graph(args: &Args, opened: &Opened) -> Result<(Graph, &'static [&'static str]), Fault> {
    let (form, batch) = (args.job.program.form(), args.job.program.images());
    let built = match (&opened.model, args.points.len()) {
        (model, 0) => (model.graph(form, batch), model.ignored()),
        (VisionModel::Sam(config), points) => {
            if batch != 1 {
                return Err(input("--point refers to one image, but --batch needs more", "leave out --batch"));
            }
            let prompts = Prompts { number: 1, points: points + 1, prior: false };
            (sam::segmenter(config, form, batch, prompts), sam::IGNORED_FOR_MASKS)
        }
        _ => {
            let problem =
                format!("--point does not apply to {}, which computes no masks", args.job.program.model.display());
            return Err(input(problem, "`eutectic run sam` does"));
        }
    };
    Ok((built.0.map_err(Fault::input)?, built.1))
}

/// Returns the points as inputs of the model. The last one is labelled as no point, as the model requires. Coordinates
/// are pixels of the image, or of the model's input if no image is given.
fn prompt(args: &Args, seen: Option<&SeenImage>) -> NamedTensors {
    if args.points.is_empty() {
        return NamedTensors::new();
    }
    let number = args.points.len() + 1;
    let points = args.points.iter().map(|p| seen.map_or(*p, |s| s.prepared.point(*p))).chain([[0.0; 2]]);
    let labels = args.points.iter().map(|_| Label::In as i64).chain([Label::None as i64]);
    let points = Tensor::from_f64(DType::F32, &[1, 1, number, 2], points.flatten());
    let labels = Tensor::from_i64(DType::I64, &[1, 1, number], labels);
    NamedTensors::from([("points".into(), points), ("labels".into(), labels)])
}

/// Returns the output that a picture shows if there is no mask.
fn embedding<'a>(model: &VisionModel, results: &[(&str, &'a Tensor)]) -> Result<&'a Tensor, Fault> {
    let wanted = model.pictured();
    let found = results.iter().find(|(name, _)| *name == wanted).map(|(_, value)| *value);
    found.ok_or_else(|| {
        input(
            format!("cannot write a picture (--out) because this model has no output `{wanted}`"),
            "write a .npy file",
        )
    })
}

fn draw(path: &Path, seen: &SeenImage, mask: Option<&PointMask>, embedding: &Tensor) -> Result<(), Fault> {
    if let Some(mask) = mask {
        return seen.write_mask(path, &mask.logits);
    }
    let dims: [usize; 3] = embedding.dims()[1..].try_into().expect("an embedding of an image has four axes");
    seen.write_components(path, &numbers(embedding), dims)
}

fn numbers(tensor: &Tensor) -> Vec<f32> {
    tensor.to_f64().into_iter().map(|x| x as f32).collect()
}

/// The mask for the given points. Of the masks for ambiguous prompts, it is the one with the highest score.
struct PointMask {
    /// The index of the mask, and the number of all masks.
    number: [usize; 2],
    score: f64,
    /// A logit for each pixel of the image, or of the model's output if no image is given.
    logits: Vec<f32>,
}

impl PointMask {
    /// Chooses the mask from masks [1 1 n h w] and their scores [1 1 n].
    fn best(masks: &Tensor, scores: &Tensor, seen: Option<&SeenImage>) -> PointMask {
        let scores = scores.to_f64();
        let best = (1..scores.len()).max_by(|a, b| scores[*a].total_cmp(&scores[*b])).unwrap_or(0);
        let size = [masks.dims()[3], masks.dims()[4]];
        let logits = numbers(masks)[best * size[0] * size[1]..][..size[0] * size[1]].to_vec();
        let logits = seen.map_or(logits.clone(), |seen| seen.prepared.unprepare(&logits, size));
        PointMask { number: [best, scores.len()], score: scores[best], logits }
    }
}

impl std::fmt::Display for PointMask {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let share = self.logits.iter().filter(|x| **x > 0.0).count() as f64 / self.logits.len().max(1) as f64;
        let [number, of] = self.number;
        write!(f, "mask {number} of 0..{of}: score {:.3}, {:.1} % of the image", self.score, 100.0 * share)
    }
}
