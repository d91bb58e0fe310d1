//! Counts a run's commands: one submission, a dispatch per launch, and barriers only between steps with a hazard.

use eutectic::{
    Graph, Program,
    engine::models::{
        BertOutput, Form,
        bert::{self, BertConfig, bind},
        sam::{self, SamConfig},
    },
};
use eutectic_backend::hazards::{MemoryRange, MemorySpace, barriers, hazards};
use eutectic_gpu::device::Device;
use eutectic_vulkan::Vulkan;

use crate::{CHAINS, Ready, bare, folder, graph, open, planned};

/// Returns the number of dispatches and of barriers of a run.
fn expected(device: &Vulkan, program: &Program) -> [usize; 2] {
    // The launches of each kernel, and their common workspace.
    let launches: Vec<(usize, usize)> = program
        .kernels
        .iter()
        .map(|kernel| {
            let launches = device.print(kernel).expect("it was planned");
            let launches: Vec<_> = launches.iter().filter(|launch| !launch.is_empty()).collect();
            (launches.len(), launches.iter().map(|launch| launch.workspace).max().unwrap_or(0))
        })
        .collect();
    let touched = program.run.iter().map(|step| {
        let mut touched = program.touched(step);
        let space = MemorySpace::Buffer(usize::MAX);
        touched.writes.push(MemoryRange { space, bytes: 0..launches[step.kernel].1 });
        touched
    });
    let between = barriers(&hazards(touched)).into_iter().filter(|stands| *stands).count();
    let dispatches = program.run.iter().map(|step| launches[step.kernel].0).sum::<usize>();
    // A barrier separates the launches of a step.
    let within = program.run.iter().map(|step| launches[step.kernel].0.saturating_sub(1)).sum::<usize>();
    [dispatches, between + within]
}

fn is_counted(name: &str, graph: &Graph) {
    let Some(device) = open(bare()) else { return };
    let program = planned(graph);
    let ready = Ready::new(&device, &program);
    let mut session = ready.session();
    ready.run(&mut *session);
    let before = device.device().counted();
    ready.run(&mut *session);
    let after = device.device().counted();
    assert_eq!(after.submits - before.submits, 1, "{name}: copies and kernels go together");
    let got = [after.dispatches - before.dispatches, after.barriers - before.barriers];
    println!("{name}: {} steps, {} dispatches, {} barriers, one submission", program.run.len(), got[0], got[1]);
    // There are copies from the host, the program, and copies to the host. A barrier precedes each of the three.
    assert_eq!(after.around_copies - before.around_copies, 3, "{name}: barriers around copies");
    assert_eq!(got, expected(device.device(), &program), "{name}: dispatches and barriers");
}

#[test]
fn a_run_is_one_submission_with_the_barriers_that_hazards_ask_for() {
    is_counted("chains", &graph(CHAINS));
    let config = BertConfig::open(folder("models/golden/tiny-bert/config.json")).unwrap_or_else(|e| panic!("{e}"));
    let graph =
        bert::graph("tiny", &config, Form::Composite, &[BertOutput::LastHiddenState]).unwrap_or_else(|e| panic!("{e}"));
    is_counted("tiny BERT", &bind(&graph, &config, 3, 7).unwrap_or_else(|e| panic!("{e}")));
}

#[test]
#[ignore = "takes a minute on lavapipe"]
fn so_are_runs_of_minilm_and_sam() {
    let minilm = BertConfig { layers: 6, hidden: 384, heads: 12, intermediate: 1536, ..BertConfig::base() };
    let graph = bert::graph("minilm", &minilm, Form::Composite, &[BertOutput::SentenceEmbedding])
        .unwrap_or_else(|e| panic!("{e}"));
    is_counted("MiniLM 1×128", &bind(&graph, &minilm, 1, 128).unwrap_or_else(|e| panic!("{e}")));
    let config = SamConfig::open(folder("models/golden/sam/model/config.json")).unwrap_or_else(|e| panic!("{e}"));
    is_counted("tiny SAM", &sam::encoder(&config, Form::Composite, 2).unwrap_or_else(|e| panic!("{e}")));
}
