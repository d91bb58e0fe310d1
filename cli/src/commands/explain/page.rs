//! Writes the page for a browser: the graph of a plan's kernels with their times, in one self-contained file.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

use eutectic::{
    Compiler, Graph, Planned,
    engine::{
        backend::{Place, Step},
        ir::{lang::Source, text},
        lowering::unjoined::Reason,
    },
    report::Numbers,
};
use serde_json::{Value, json};

use super::{
    args::Args,
    explanation::{Explanation, Gains, Read, Without, in_words},
};
use crate::{
    fault::Fault,
    output,
    profile::{self, KernelStep},
    program::ProgramArgs,
    report::Size,
    table::{prose, several},
    timing::progress,
    values::NamedTensors,
};

/// The text of the page. The data replaces the placeholder [`DATA`].
const PAGE: &str = include_str!("page.html");
const DATA: &str = "/*data*/";

/// The number of runs before the timed ones.
const WARMUP: usize = 3;

/// Writes the page.
///
/// # Errors
/// If the program cannot be compiled or run, or if the file cannot be written.
pub(super) fn write(
    args: &Args,
    path: &Path,
    (compiler, graph, planned): (&Compiler, &Graph, &Planned),
    explained: &[Explanation],
    gains: &Gains,
) -> Result<(), Fault> {
    let (steps, source) = measure(args, compiler, graph, planned)?;
    let page = Page { compiler, planned, explained, gains, steps: &steps };
    let roof = Roof::of(compiler)?;
    let measured: f64 = steps.iter().map(KernelStep::seconds).sum();
    let data = json!({
        "title": args.job.program.model.to_string_lossy(),
        "device": compiler.backend().describe(),
        "weights": source,
        "graph": Size::of(graph),
        "runs": args.iters,
        "predicted_s": planned.seconds(),
        "measured_s": (args.iters > 0).then_some(measured),
        "arena_bytes": planned.lowered.program.arena_bytes,
        "load_kernels": planned.lowered.program.load.len(),
        "roof": { "flops": roof.flops, "bytes": roof.bytes },
        "kernels": page.kernels(),
        "inputs": ports(&planned.lowered.program.inputs),
        "outputs": ports(&planned.lowered.program.outputs),
        "edges": page.edges(),
        "rules": page.rules(),
    });
    // `</script>` in the data would end the script element.
    let text = PAGE.replace(DATA, &data.to_string().replace('<', "\\u003c"));
    output::write(path, &[text.as_bytes()])?;
    if output::is_standard(path) {
        return Ok(());
    }
    println!("{}", prose(format!("{}: {}; open it in a browser", path.display(), several(steps.len(), "kernel"))));
    Ok(())
}

/// Measures the kernels of a run. Also returns the source of the parameters: random numbers stand for a model's files
/// if these are not given.
fn measure(
    args: &Args,
    compiler: &Compiler,
    graph: &Graph,
    planned: &Planned,
) -> Result<(Vec<KernelStep>, String), Fault> {
    if args.iters == 0 {
        return Ok((profile::steps(compiler, planned), "none: nothing was run".into()));
    }
    let program = &args.job.program;
    let random = program.random || program.published().is_some() && program.weights.is_none();
    let program = ProgramArgs { random, ..program.clone() };
    let (params, source) = program.params(graph)?;
    let inputs = program.inputs(graph, NamedTensors::new())?;
    let mut session = {
        let _bar = progress("compiling", None);
        let mut session = compiler.build(planned)?;
        session.load_named(|name| params.get(name).cloned())?;
        session
    };
    Ok((profile::measured(compiler, planned, &mut session, &inputs, [WARMUP, args.iters])?, source))
}

fn ports(ports: &[(String, eutectic::Type)]) -> Vec<Value> {
    ports.iter().map(|(name, ty)| json!({ "name": name, "type": ty.to_string() })).collect()
}

/// The peak rates of the machine according to its cost model: that of a large matrix product, and that of the sum of
/// two large tensors.
struct Roof {
    /// Floating-point operations per second.
    flops: f64,
    /// Bytes per second.
    bytes: f64,
}

impl Roof {
    fn of(compiler: &Compiler) -> Result<Roof, Fault> {
        const PRODUCT: &str =
            "(graph \"product\" (input a f32[1024 1024]) (input b f32[1024 1024]) (output y (matmul a b)))";
        const SUM: &str = "(graph \"sum\" (input a f32[16777216]) (input b f32[16777216]) (output y (add a b)))";
        let cost = |graph: &str| {
            let graph = text::parse(&Source::new("roofline", graph)).map_err(|e| Fault::Run(e.into()))?;
            let costs = compiler.plan(&graph)?.step_costs();
            let slowest = costs.into_iter().flatten().max_by(|a, b| a.seconds.total_cmp(&b.seconds));
            slowest.ok_or_else(|| Fault::run("a product has no kernel"))
        };
        let (product, sum) = (cost(PRODUCT)?, cost(SUM)?);
        Ok(Roof { flops: product.flops / product.seconds, bytes: sum.bytes / sum.seconds })
    }
}

struct Page<'a> {
    compiler: &'a Compiler,
    planned: &'a Planned,
    explained: &'a [Explanation],
    gains: &'a Gains,
    steps: &'a [KernelStep],
}

impl Page<'_> {
    fn kernels(&self) -> Vec<Value> {
        let numbers = Numbers::of(self.planned);
        let program = &self.planned.lowered.program;
        let describe = |(number, (step, run)): (usize, (&KernelStep, &Step))| {
            let mut value = step.json(number);
            let kernel = &program.kernels[run.kernel];
            let more = json!({
                "kind": kernel.kind(),
                "call": step.of.map(|(call, _)| call),
                "layer": step.of.and_then(|(call, _)| self.layer_of(call, &step.origin)),
                "weights": self.weights(run),
                "details": step.of.and_then(|(call, at)| self.details(&numbers, call, at)),
            });
            if let (Some(value), Some(more)) = (value.as_object_mut(), more.as_object()) {
                value.extend(more.clone());
            }
            value
        };
        (1..).zip(self.steps.iter().zip(&program.run)).map(describe).collect()
    }

    /// Returns the layer of a kernel, as a module path. If the kernels of a call are in several numbered modules, the
    /// layer is the numbered module of this kernel, or `None` if it is in none. Otherwise it is the module of the call.
    fn layer_of(&self, call: usize, origin: &str) -> Option<String> {
        let part = self.layer(call);
        let known = if part.is_empty() { 0 } else { part.split('.').count() };
        let numbered = |origin: &str| {
            let path: Vec<&str> = origin.split('.').collect();
            let at = (known..path.len()).find(|at| path[*at].parse::<usize>().is_ok())?;
            Some(path[..=at].join("."))
        };
        let of_call = self.steps.iter().filter(|step| step.of.is_some_and(|(of, _)| of == call));
        let parts: BTreeSet<String> = of_call.filter_map(|step| numbered(&step.origin)).collect();
        if parts.len() > 1 { numbered(origin) } else { Some(part) }
    }

    /// Returns the module that a call computes: the longest common prefix of the origins of its kernels.
    fn layer(&self, call: usize) -> String {
        let of_call = self.steps.iter().filter(|step| step.of.is_some_and(|(of, _)| of == call));
        let mut paths = of_call.map(|step| step.origin.split('.').collect::<Vec<_>>());
        let first = paths.next().unwrap_or_default();
        let common = paths.fold(first, |common, path| {
            common.into_iter().zip(path).take_while(|(a, b)| a == b).map(|(a, _)| a).collect()
        });
        common.join(".")
    }

    /// Returns the bytes that a step reads from parameters, constants, and results of the load program.
    fn weights(&self, step: &Step) -> usize {
        let program = &self.planned.lowered.program;
        let kept = step.buffers.iter().map(|&buffer| &program.buffers[buffer]);
        let kept = kept.filter(|b| matches!(b.place, Place::Param(_) | Place::Loaded(_) | Place::Const(_)));
        kept.map(|b| b.count * b.dtype.size()).sum()
    }

    /// Returns the explanation of a kernel for the page.
    fn details(&self, numbers: &Numbers, call: usize, at: usize) -> Option<Value> {
        let block = self.planned.outlined.calls[call].block;
        let Explanation { report, steps, reads, .. } = self.explained.iter().find(|e| e.of == (block, at))?;
        // The explanation has the origins of the block's first call. They are replaced by those of this call.
        let names = &self.planned.outlined.calls[call].origins;
        let here = |origin: &str| {
            let known = names.iter().find(|(from, _)| from.path() == origin);
            known.map_or_else(|| origin.to_string(), |(_, to)| to.path().to_string())
        };
        let ops: Vec<_> = report
            .fused
            .iter()
            .map(|f| json!({ "op": f.op.name(), "origin": here(f.origin.path()), "gain_s": f.gain }))
            .collect();
        let rules: Vec<_> = steps
            .iter()
            .map(|s| json!({ "rule": s.rule, "name": s.base, "origin": here(&s.origin), "times": s.times }))
            .collect();
        let read = |r: &Read| {
            let joined = if let Reason::Dearer(seconds) = r.why { Some(seconds) } else { None };
            json!({ "kernel": numbers.get(call, r.from), "name": r.name, "between": r.between, "joined_s": joined,
                    "why": in_words(&r.why) })
        };
        Some(json!({
            "ops": ops, "rules": rules, "reads": reads.iter().map(read).collect::<Vec<_>>(), "stores": report.stores,
            "anchor": report.anchor.name(), "anchor_origin": here(report.origin.path()),
        }))
    }

    /// Returns the edges of the graph, from a kernel or an input to a kernel, or from a kernel to an output.
    fn edges(&self) -> Vec<Value> {
        let program = &self.planned.lowered.program;
        let mut writer: BTreeMap<usize, usize> = BTreeMap::new();
        let mut edges = Vec::new();
        for (step, number) in program.run.iter().zip(1..) {
            let stores = program.kernels[step.kernel].stores.len();
            let (reads, writes) = step.buffers.split_at(step.buffers.len() - stores);
            for &read in reads {
                let buffer = &program.buffers[read];
                let from = match (writer.get(&read), &buffer.place) {
                    (Some(from), _) => json!({ "kernel": from }),
                    (None, Place::Input(n)) => json!({ "input": program.inputs[*n].0 }),
                    (None, _) => continue,
                };
                let bytes = buffer.count * buffer.dtype.size();
                edges.push(json!({ "from": from, "to": { "kernel": number }, "bytes": bytes }));
            }
            for &write in writes {
                writer.insert(write, number);
                if let Place::Output(n) = program.buffers[write].place {
                    let to = json!({ "output": program.outputs[n].0 });
                    edges.push(json!({ "from": { "kernel": number }, "to": to, "bytes": 0 }));
                }
            }
        }
        edges
    }

    /// Returns the rules that led to the kernels, with their texts and gains.
    fn rules(&self) -> Vec<Value> {
        let mut times: BTreeMap<&str, usize> = BTreeMap::new();
        for step in self.explained.iter().flat_map(|e| &e.steps) {
            *times.entry(&step.base).or_default() += step.times;
        }
        let describe = |(name, times): (&str, usize)| {
            let rule = self.compiler.rules().get(name);
            let gain = self.gains.get(name);
            json!({
                "name": name, "times": times,
                "doc": rule.map(|rule| rule.doc.clone()),
                "text": rule.map(|rule| rule.source.text[rule.span.clone()].to_string()),
                "contract": rule.map(|rule| rule.contract.to_string()),
                "proof": rule.map(crate::commands::rules::shown),
                "gain_s": gain.and_then(|gain| if let Without::Longer(seconds) = gain { Some(*seconds) } else { None }),
                "needed": gain.and_then(|gain| if let Without::Nothing(why) = gain { Some(why) } else { None }),
            })
        };
        times.into_iter().map(describe).collect()
    }
}
