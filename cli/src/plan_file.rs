//! Plans as files: the result of a search, to keep, compare, and run without a search.

use std::path::{Path, PathBuf};

use eutectic::{
    Compiler, Graph, Planned, Session,
    engine::lowering::{Plan, print},
};
use serde::{Deserialize, Serialize};

use crate::{
    fault::{Fault, input},
    files, output,
};

/// The version of the file's form.
const FORM: u32 = 1;

/// A plan in a file.
#[derive(Serialize, Deserialize)]
pub struct PlanFile {
    /// [`FORM`].
    eutectic_plan: u32,
    /// The model and the device, for readers.
    model: String,
    device: String,
    predicted_s: f64,
    /// The kernels, in the canonical form of `opt --print plan`. Equal plans have equal text.
    kernels: Vec<String>,
    blocks: Vec<BlockPlan>,
    /// The path of the file.
    #[serde(skip)]
    path: PathBuf,
}

/// Returns the kernels of a program as text, line by line.
fn printed(planned: &Planned) -> Vec<String> {
    print::program(&planned.lowered.program).lines().map(String::from).collect()
}

/// Returns an error about a file, with the command that writes a valid one.
fn wrong(path: &Path, problem: &dyn std::fmt::Display) -> Fault {
    input(format!("--plan {}: {problem}", path.display()), "`eutectic bench MODEL --save-plan FILE` writes such a file")
}

/// The plan of a block.
#[derive(Serialize, Deserialize)]
struct BlockPlan {
    /// The fingerprint of the block's e-graph.
    fingerprint: String,
    /// The chosen e-node of each class.
    choice: Vec<usize>,
    /// The classes whose values are stored.
    stored: Vec<usize>,
    /// Classes that the kernel of another class stores, with that class.
    host: Vec<[usize; 2]>,
}

impl PlanFile {
    /// Returns the plan of a program.
    pub fn of(planned: &Planned, model: &str, device: String) -> PlanFile {
        let blocks = planned.blocks.iter().zip(planned.fingerprints()).map(|(block, fingerprint)| {
            let Plan { choice, stored, host } = &block.searched.plan;
            let stored = (0..stored.len()).filter(|&class| stored[class]);
            let guests = host.iter().enumerate().filter(|(class, host)| *class != **host);
            BlockPlan {
                fingerprint: format!("{fingerprint:016x}"),
                choice: choice.clone(),
                stored: stored.collect(),
                host: guests.map(|(class, &host)| [class, host]).collect(),
            }
        });
        PlanFile {
            eutectic_plan: FORM,
            model: model.into(),
            device,
            predicted_s: planned.seconds(),
            kernels: printed(planned),
            blocks: blocks.collect(),
            path: PathBuf::new(),
        }
    }

    /// Writes the file.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn write(&self, path: &Path) -> Result<(), Fault> {
        let text = serde_json::to_string_pretty(self).map_err(Fault::run)?;
        output::write(path, &[text.as_bytes()])
    }

    /// Reads a file.
    ///
    /// # Errors
    /// If it cannot be read or is not a plan.
    pub fn read(path: &Path) -> Result<PlanFile, Fault> {
        let text = files::read_text(path).map_err(|e| wrong(path, &e))?;
        let file: PlanFile = serde_json::from_str(&text).map_err(|e| wrong(path, &format!("it is not a plan: {e}")))?;
        if file.eutectic_plan != FORM {
            return Err(wrong(
                path,
                &format!("it has form {}, and this version reads form {FORM}", file.eutectic_plan),
            ));
        }
        Ok(PlanFile { path: path.into(), ..file })
    }

    /// Compiles a graph by the plan.
    ///
    /// # Errors
    /// If the plan belongs to another graph, other rules or another backend, or its kernels do not agree with its
    /// choices.
    pub fn compile(&self, compiler: &Compiler, graph: &Graph) -> Result<(Planned, Session), Fault> {
        let plan = |block: &BlockPlan| {
            let count = block.choice.len();
            let (mut stored, mut host) = (vec![false; count], (0..count).collect::<Vec<_>>());
            for &class in &block.stored {
                *stored.get_mut(class)? = true;
            }
            for &[class, by] in &block.host {
                *host.get_mut(class)? = by;
            }
            Some(Plan { choice: block.choice.clone(), stored, host })
        };
        let damaged = || wrong(&self.path, &"it names classes that do not exist");
        let plans = self.blocks.iter().map(plan).collect::<Option<Vec<_>>>().ok_or_else(damaged)?;
        let fingerprints = self.blocks.iter().map(|block| u64::from_str_radix(&block.fingerprint, 16));
        let fingerprints = fingerprints.collect::<Result<Vec<_>, _>>().map_err(|_| damaged())?;
        let (planned, session) = compiler.compile_by(graph, &plans, &fingerprints)?;
        // The choices are executed, so the listed kernels must agree with them.
        let made = printed(&planned);
        match (0..made.len().max(self.kernels.len())).find(|&at| made.get(at) != self.kernels.get(at)) {
            None => Ok((planned, session)),
            Some(at) => {
                let line = |of: &[String]| of.get(at).map_or("at its end".into(), |line| format!("`{}`", line.trim()));
                let (says, gives) = (line(&self.kernels), line(&made));
                Err(wrong(
                    &self.path,
                    &format!("line {} of its kernels is {says}, but its choices give {gives}", at + 1),
                ))
            }
        }
    }
}
