//! Tests decoding with states. A decoder that reads one token at a time gives the results of a program of the whole
//! sequence.

use eutectic::{DType, Dim, Graph, Session, Tensor, engine::models::llama::LlamaConfig};
use eutectic_ir::interp::interpret;

use crate::{
    device::Device,
    suite::{Check, checks},
};

pub(super) const CHECKS: &[(&str, Check)] = checks![
    token_by_token_is_the_whole_sequence,
    one_program_serves_every_length_of_the_caches,
    a_fork_goes_on_by_itself,
];

const TOKENS: usize = 24;

const DECODER: LlamaConfig = LlamaConfig {
    layers: 3,
    heads: 6,
    groups: 2,
    depth: 16,
    inner: 72,
    words: 50,
    positions: 64,
    tied: true,
    theta: 1e4,
};

/// Returns the value of a parameter. It depends only on the name and the extents.
fn param(graph: &Graph, name: &str) -> Option<Tensor> {
    if let Some((_, table)) = DECODER.rotation().into_iter().find(|(n, _)| *n == name) {
        return Some(table);
    }
    let (_, id) = graph.named("param").find(|(n, _)| *n == name)?;
    let dims = graph.ty(id).dims()?;
    let mut random =
        fastrand::Rng::with_seed(name.bytes().fold(7, |h, b| (h ^ u64::from(b)).wrapping_mul(0x0100_01b3)));
    let [middle, spread] = if name.ends_with("norm") { [1.0, 0.2] } else { [0.0, 3.0 / (dims[0] as f64).sqrt()] };
    let count = dims.iter().product::<usize>();
    Some(Tensor::from_f64(DType::F32, &dims, (0..count).map(|_| middle + spread * (random.f64() - 0.5))))
}

fn session(device: &Device, graph: &Graph) -> Session {
    let mut session = device.compiler().compile(graph).unwrap_or_else(|e| panic!("{e}"));
    session.load_named(|name| param(graph, name)).unwrap_or_else(|e| panic!("{e}"));
    session
}

fn ids() -> Vec<i64> {
    (0..TOKENS as i64).map(|i| (i * i * 7 + i * 3 + 5) % DECODER.words as i64).collect()
}

/// Returns the logits of all tokens, which the interpreter computes from the whole sequence.
fn expected() -> Vec<f64> {
    let graph = DECODER.whole(TOKENS).expect("the sizes fit");
    let given = |name: &str| match name {
        "ids" => Some(Tensor::from_i64(DType::I64, &[TOKENS], ids())),
        name => param(&graph, name),
    };
    interpret::<f64>(&graph, &given).expect("the graph is valid")[0].to_tensor().to_f64()
}

fn near(got: &[f64], want: &[f64], what: &str) {
    assert_eq!(got.len(), want.len(), "{what}");
    let is_near = |got: f64, want: f64| (got - want).abs() < 2e-4 * (1.0 + want.abs());
    let off = got.iter().zip(want).find(|(got, want)| !is_near(**got, **want));
    assert!(off.is_none(), "{what}: {off:?}");
}

fn step(session: &mut Session, id: i64, at: usize) -> Vec<f64> {
    let inputs = [Tensor::from_i64(DType::I64, &[1], [id]), Tensor::from_i64(DType::I64, &[], [at as i64])];
    session.run(&inputs).unwrap_or_else(|e| panic!("{e}")).remove(0).to_f64()
}

fn token_by_token_is_the_whole_sequence(device: &Device) {
    let want = expected();
    let whole = DECODER.whole(TOKENS).expect("the sizes fit");
    let ids = ids();
    let input = Tensor::from_i64(DType::I64, &[TOKENS], ids.iter().copied());
    near(&session(device, &whole).run(&[input]).unwrap_or_else(|e| panic!("{e}"))[0].to_f64(), &want, "all tokens");
    device.judge();
    let mut session = session(device, &DECODER.step(DECODER.positions, true).expect("the sizes fit"));
    for (at, (id, want)) in ids.iter().zip(want.chunks(DECODER.words)).enumerate() {
        near(&step(&mut session, *id, at), want, &format!("token {at}"));
        device.judge();
    }
}

fn one_program_serves_every_length_of_the_caches(device: &Device) {
    let graph = DECODER.step(Dim::between("S", 1, DECODER.positions as i64), false).expect("the sizes fit");
    let mut session = match device.compiler().compile(&graph) {
        Ok(session) => session,
        Err(error) => return device.refuse(|| error.to_string().lines().nth(1).unwrap_or_default().trim().into()),
    };
    session.load_named(|name| param(&graph, name)).unwrap_or_else(|e| panic!("{e}"));
    for (at, (id, want)) in ids().into_iter().zip(expected().chunks(DECODER.words)).enumerate() {
        session.set_length("S", at + 1).unwrap_or_else(|e| panic!("{e}"));
        near(&step(&mut session, id, at), want, &format!("token {at}"));
        device.judge();
    }
}

fn a_fork_goes_on_by_itself(device: &Device) {
    let mut session = session(device, &DECODER.step(DECODER.positions, true).expect("the sizes fit"));
    (0..5).for_each(|at| drop(step(&mut session, 3 * at as i64, at)));
    let mut twin = session.fork().unwrap_or_else(|e| panic!("{e}"));
    let one = step(&mut session, 7, 5);
    // The fork decodes other tokens, and then the same token at the same position.
    step(&mut twin, 30, 5);
    step(&mut twin, 31, 6);
    assert!(step(&mut twin, 7, 5) == one, "the fork has other logits");
    // The host can read rows of a cache.
    let keys = session.state("2.keys").unwrap_or_else(|e| panic!("{e}"));
    let rows = session.read_rows(keys, 1, 4..6).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(rows.dims(), [DECODER.groups, 2, DECODER.depth]);
    assert!(rows.to_f64().iter().any(|x| *x != 0.0), "the rows are zeros");
    device.judge();
}
