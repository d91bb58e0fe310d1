//! The arguments of `explain`.

use std::path::PathBuf;

use crate::{args::CommonArgs, values::whole};

const EXAMPLES: &str = "\
Examples:
  # every kernel of the plan
  eutectic explain demo
  # the third kernel
  eutectic explain demo 3
  # the kernels of the model's parts named so
  eutectic explain minilm '*attention*' --random
  # the kernels around an op
  eutectic explain minilm matmul --random
  # a page for a browser: the graph of kernels, measured
  eutectic explain demo --html plan.html
  eutectic explain model.graph --rules DIR --format json

For each kernel: what it costs; the rules that led from the program as written to what the kernel computes, in the order \
in which they were applied, and what the whole plan costs without each; the ops fused into it, each with what storing its \
result instead would cost; and the kernels whose results it reads, with what one kernel for both would cost.";

/// Explains the kernels of a program's plan
#[derive(clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub struct Args {
    #[command(flatten)]
    pub job: CommonArgs,
    /// The number, module path or op of a kernel, or a glob
    #[arg(help_heading = None, default_value = "*", value_name = "KERNEL|GLOB")]
    pub glob: String,
    /// Skips the gain of each rule, which takes another plan of the program without the rule
    #[arg(help_heading = None, long)]
    pub quick: bool,
    /// Writes a self-contained page for a browser instead: the graph of all kernels, with measured times
    #[arg(help_heading = None, long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// The number of timed runs for the page (0 for none)
    #[arg(help_heading = None, long, value_name = "N", default_value_t = 20, value_parser = whole::<usize>)]
    pub iters: usize,
}
