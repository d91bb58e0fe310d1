//! Plan files: the result of a plan search, which can be kept, compared, and run without a search.

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

/// The version of the format of plan files.
const FORM: u32 = 1;

/// The contents of a plan file.
#[derive(Serialize, Deserialize)]
pub struct PlanFile {
    /// The version of the format, [`FORM`].
    eutectic_plan: u32,
    /// The model. This and the device are for people who read the file.
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

/// Returns the lines of a program's kernels in canonical form.
fn printed(planned: &Planned) -> Vec<String> {
    print::program(&planned.lowered.program).lines().map(String::from).collect()
}

/// Returns an error about a plan file. The help names the command that writes one.
fn wrong(path: &Path, problem: &dyn std::fmt::Display) -> Fault {
    input(format!("--plan {}: {problem}", path.display()), "`eutectic bench MODEL --save-plan FILE` writes such a file")
}

/// The plan of one block.
#[derive(Serialize, Deserialize)]
struct BlockPlan {
    /// The fingerprint of the block's e-graph, in hexadecimal.
    fingerprint: String,
    /// The index of the chosen e-node of each e-class.
    choice: Vec<usize>,
    /// The indices of the e-classes whose values are stored.
    stored: Vec<usize>,
    /// Pairs of e-classes: the kernel of the second one also stores the value of the first one.
    host: Vec<[usize; 2]>,
}

impl PlanFile {
    /// Returns the contents of the file for a plan.
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

    /// Writes the plan file.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn write(&self, path: &Path) -> Result<(), Fault> {
        let text = serde_json::to_string_pretty(self).map_err(Fault::run)?;
        output::write(path, &[text.as_bytes()])
    }

    /// Reads a plan file.
    ///
    /// # Errors
    /// If the file cannot be read, or if it is not a plan.
    pub fn read(path: &Path) -> Result<PlanFile, Fault> {
        let text = files::read_text(path).map_err(|e| wrong(path, &e))?;
        let file: PlanFile = serde_json::from_str(&text).map_err(|e| wrong(path, &format!("it is not a plan: {e}")))?;
        if file.eutectic_plan != FORM {
            return Err(wrong(
                path,
                &format!("it has format {}, but this version reads format {FORM}", file.eutectic_plan),
            ));
        }
        Ok(PlanFile { path: path.into(), ..file })
    }

    /// Compiles a graph with the plan of the file.
    ///
    /// # Errors
    /// If the plan is for another graph, other rules or another backend, or if its kernels are not those that its
    /// choices give.
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
        // The choices determine the kernels that run, so the listed kernels are only checked.
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
