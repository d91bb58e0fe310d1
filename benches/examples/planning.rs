//! Measures the planning of ONNX models: processor time, wall time of each stage, the work of the search, and the
//! predicted cost of the plan.
//!
//! `cargo run --release -p eutectic-benches --example planning -- [--backend cpu|vulkan|h200] [--costs FILE]
//! [--precision f16] FILE…`. The backend `h200` plans as CUDA does on an H200, without such a device. `--plans DIR`
//! writes the kernels of each plan to a file, so that two versions can be compared.

use std::{collections::BTreeMap, fs, path::Path, sync::Arc};

use cpu_time::ProcessTime;
use eutectic::{
    Backend, Compiler, Listed, Setup,
    engine::{
        lowering::print,
        models::onnx::Model,
        rewrites::{Choice, Precision},
    },
    packs,
};
use eutectic_cuda::Absent;

/// Plans a model, and prints the measurements as a line.
fn run(compiler: &Compiler, file: &Path, plans: Option<&Path>) -> Result<(), Box<dyn std::error::Error>> {
    let graph = Model::open(file)?.import(&BTreeMap::new())?.graph;
    let start = ProcessTime::now();
    let planned = compiler.plan(&graph)?;
    let total = start.elapsed();
    let folder = file.parent().and_then(Path::file_name).unwrap_or_default().to_string_lossy().into_owned();
    let name = format!("{folder}/{}", file.file_stem().unwrap_or_default().to_string_lossy());
    let times = planned.times;
    let [rewrite, plan, lower] = [times.rewrite, times.plan, times.lower].map(|time| time.as_secs_f64());
    let blocks = &planned.blocks;
    let sum =
        |of: fn(&eutectic::engine::lowering::Searched) -> u64| blocks.iter().map(|b| of(&b.searched)).sum::<u64>();
    println!(
        "{name:40} {:6.3} s (rewrite {rewrite:.3}, search {plan:.3}, lower {lower:.3}); {:3} blocks, {:6} classes, {:7} plans, {:9} work{}; {:4} kernels, predicted {:.2} us",
        total.as_secs_f64(),
        blocks.len(),
        blocks.iter().map(|block| block.classes.classes.len()).sum::<usize>(),
        sum(|searched| searched.tried as u64),
        sum(|searched| searched.work),
        if blocks.iter().any(|block| block.searched.cut_short) { " (all of it)" } else { "" },
        planned.lowered.program.run.len(),
        planned.seconds() * 1e6,
    );
    if let Some(plans) = plans {
        fs::write(plans.join(name.replace('/', ".")), print::program(&planned.lowered.program))?;
    }
    Ok(())
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut words: Vec<String> = std::env::args().skip(1).collect();
    let mut option = |name: &str| {
        let at = words.iter().position(|word| word == name)?;
        words.remove(at);
        (at < words.len()).then(|| words.remove(at))
    };
    let backend = option("--backend").unwrap_or_else(|| "cpu".into());
    let name = option("--precision").unwrap_or_else(|| "f32".into());
    let precision = Precision::ALL.into_iter().find(|p| p.name() == name).ok_or("--precision: f32, tf32, f16, bf16")?;
    let costs = option("--costs").map(fs::read_to_string).transpose()?;
    let plans = option("--plans");
    let backend: Arc<dyn Backend> = match &*backend {
        "h200" => Arc::new(Absent::h200()),
        name => Listed::named(name)?.open(&Setup {
            threads: Some(std::num::NonZeroUsize::MIN),
            costs,
            ..Setup::default()
        })?,
    };
    let rules = packs(&*backend)?.choose(&Choice { precision, ..Choice::default() })?;
    let compiler = Compiler::from_arc(backend, rules);
    for word in &words {
        run(&compiler, Path::new(word), plans.as_deref().map(Path::new)).unwrap_or_else(|e| println!("{word}: {e}"));
    }
    Ok(())
}
