//! What a run is to the queue: one submission, a dispatch for each launch, and barriers only where steps meet in memory.

use eutectic::{Compiler, Graph, Tensor};
use eutectic_backend::{
    Backend, BackendError,
    hazards::{barriers, hazards},
};
use eutectic_ir::{DType, lang::Source, text::parse};
use eutectic_vulkan::{VulkanOptions, on};

/// Two chains that do not meet before their sum.
const TEXT: &str = "(graph \"chains\" (input x f32[32 48]) (input z f32[32 48]) (param v f32[48 64]) (param w f32[48 64]) \
    (output y (add (softmax (matmul x v) :axis -1) (softmax (matmul z w) :axis -1))))";

#[test]
fn a_run_is_one_submission_with_the_barriers_that_hazards_ask_for() {
    let device = match on(&VulkanOptions { cache: None, ..VulkanOptions::default() }) {
        Ok(device) => device,
        Err(BackendError::Missing { what, .. }) => return println!("left out: {what}"),
        Err(error) => panic!("{error}"),
    };
    let graph: Graph = parse(&Source::new("chains", TEXT.to_string())).unwrap_or_else(|e| panic!("{e:?}"));
    let planner = on(&VulkanOptions { cache: None, ..VulkanOptions::default() }).unwrap_or_else(|e| panic!("{e}"));
    let compiler = Compiler::new(planner).expect("rules");
    let program = compiler.plan(&graph).expect("a plan").lowered.program;
    let tensor =
        |dims: &[usize]| Tensor::from_f64(DType::F32, dims, (0..dims[0] * dims[1]).map(|i| (i % 17) as f64 / 17.0));
    let params: Vec<Tensor> = program.params.iter().map(|_| tensor(&[48, 64])).collect();
    let executable = device.compile(&program).unwrap_or_else(|e| panic!("{e}"));
    let mut session = executable.load(&params).and_then(|loaded| loaded.session()).unwrap_or_else(|e| panic!("{e}"));
    let x = tensor(&[32, 48]);
    let inputs: Vec<&[u8]> = program.inputs.iter().map(|_| x.bytes()).collect();
    let mut out = vec![0; 32 * 64 * 4];
    session.run(&inputs, &mut [&mut out]).unwrap_or_else(|e| panic!("{e}"));
    let before = device.device().counted();
    session.run(&inputs, &mut [&mut out]).unwrap_or_else(|e| panic!("{e}"));
    let after = device.device().counted();
    assert_eq!(after.submits - before.submits, 1, "copies and kernels go together");
    let stand = barriers(&hazards(program.run.iter().map(|step| program.touched(step))));
    let between = stand.iter().filter(|stands| **stands).count();
    // Launches of one kernel, such as adding parts of a depth, wait for each other; so do kernels with memory of their own, which they share.
    let launches = after.dispatches - before.dispatches;
    assert!(launches >= program.run.len());
    let most = between + 2 * (launches - program.run.len());
    let got = after.barriers - before.barriers;
    assert!((between..=most).contains(&got), "{got} barriers, hazards ask for {between}, at most {most}");
}
