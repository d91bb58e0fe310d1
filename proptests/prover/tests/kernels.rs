//! Tests that kernels of plans are proved to compute their e-nodes, and that planted faults in kernels are detected.

#[path = "../../../lowering/tests/support/roofline.rs"]
mod roofline;

use eutectic_backend::{Guard, Instr};
use eutectic_ir::{
    Attr, Op,
    index::{ANYTHING, Atom, Index},
    lang::Source,
    ops::{Reduction, Writes},
    text,
};
use eutectic_lowering::{
    PlannedBlock, SearchOptions, Space,
    build::{self, KernelOfClasses, Positions},
    search,
};
use eutectic_prover::plans::{Validity, of_kernel, validate};
use eutectic_rewrites::{Choice, Options, RuleSet, optimize};
use roofline::Roofline;

/// Programs whose kernels have products, attention, rows, views, selections, ids, scans, ranks, and partial writes.
const PROGRAMS: &[&str] = &[
    r#"(graph "layer"
  (input x f32[2 6 24]) (param w f32[24 24]) (param b f32[24]) (param v f32[24 48]) (param g f32[24]) (const half f32[] { 0.5 })
  (let q (transpose (reshape (add (matmul x w) b) :shape [2 6 4 6]) :perm [0 2 1 3]))
  (let k (transpose (reshape (matmul x w) :shape [2 6 4 6]) :perm [0 2 1 3]))
  (let s (softmax (mul (matmul q (transpose k :perm [0 1 3 2])) half) :axis -1))
  (let y (reshape (transpose (matmul s k) :perm [0 2 1 3]) :shape [2 6 24]))
  (let n (layernorm (add x y) g b :eps 1e-5))
  (output o (act (matmul n v) :kind gelu-erf)))"#,
    r#"(graph "views"
  (input x f32[5 7]) (input y f32[5 3]) (input ids i64[4])
  (const some f32[] { 1.5 }) (const two f32[] { 2.0 }) (const part f32[] { 0.25 }) (const three f32[] { 3.0 })
  (output a (slice (pad (concat x y :axis -1) :axis 0 :before 1 :after 2 :value 0.5) :axis -1 :at 2 :len 6 :step 1))
  (output b (exp (gather (transpose x :perm [1 0]) ids :axis 0)))
  (output c (div (sub x some) (add (reduce-max (abs x) :axes [-1] :keep true) two)))
  (output d (where (lt x part) (neg x) (mul x three))))"#,
    r#"(graph "conv"
  (input x f32[1 3 8 8]) (param w f32[4 3 3 3]) (param b f32[4])
  (output o (act (conv x w b :stride [1 1] :dilation [1 1] :before [1 1] :after [1 1] :groups 1) :kind relu)))"#,
    r#"(graph "rows"
  (input x f32[5 7]) (input y f32[5 7])
  (output a (scan-sum (mul x y) :axis -1 :reverse false :exclusive true))
  (output b (scan-max x :axis -1 :reverse true :exclusive false))
  (output c (scan-linear x y :axis -1 :reverse false :exclusive false))
  (output d (ranking (neg x) :most 3 :descending true)))"#,
    r#"(graph "top"
  (input x f32[5 7]) (const nothing f32[] { 0.0 })
  (let rank (reshape (ranking x :most 3 :descending true) :shape [5 7 1]))
  (output top (scatter (expand nothing :shape [5 3 1]) (reshape x :shape [5 7 1]) rank)))"#,
    r#"(graph "writes"
  (state x f32[2 9 3]) (state y f32[2 9 3]) (input u f32[2 4 3]) (input ids i64[2 4 3])
  (let v (exp u))
  (let last (scatter x v ids))
  (let sum (scatter-sum y (neg u) ids))
  (update x last) (update y sum) (output a last) (output b sum))"#,
    r#"(graph "step"
  (dim cached :least 1 :most 32) (dim tokens :least 1 :most 8)
  (input x f32[tokens 12]) (input at i64[]) (param w f32[12 12])
  (let k (transpose (reshape (matmul x w) :shape [tokens 2 6]) :perm [-2 -3 -1]))
  (state keys f32[2 cached 6])
  (let all (update-slice keys k at :axis -2))
  (update keys all)
  (output y (reduce-max all :axes [-1])))"#,
];

fn planned(program: &str) -> PlannedBlock {
    let graph = text::parse(&Source::new("program", program)).unwrap();
    let rules = RuleSet::embedded().unwrap().choose(&Choice::default()).unwrap();
    let classes = optimize(&graph, &rules, &Options::default()).unwrap().classes;
    let searched = search(&Space::new(&classes, &Roofline), &SearchOptions::default()).unwrap();
    PlannedBlock { classes, searched }
}

#[test]
fn kernels_are_proved_for_every_element() {
    let mut open = Vec::new();
    for program in PROGRAMS {
        open.extend(validate(&planned(program)).into_iter().filter(|k| matches!(k.validity, Validity::Open(_))));
    }
    assert!(open.is_empty(), "{open:#?}");
}

/// Returns copies of an index map with one fault each.
fn wrong_maps(index: &Index) -> Vec<Index> {
    let mut all = vec![index.plus(&Index::constant(1))];
    for (n, (atom, c)) in index.terms.iter().enumerate() {
        let term = |atom: Atom, c: i64| {
            let mut changed = index.clone();
            changed.terms[n] = (atom, c);
            changed
        };
        all.push(term(atom.clone(), c + 1));
        match atom {
            Atom::Div(of, by) => all.push(term(Atom::Div(of.clone(), by + 1), *c)),
            Atom::Mod(of, by) => all.push(term(Atom::Mod(of.clone(), by + 1), *c)),
            _ => {}
        }
    }
    all
}

fn wrong_guards(guards: &[Guard]) -> Vec<Vec<Guard>> {
    let change = |n: usize, change: &dyn Fn(&mut Guard)| {
        let mut all = guards.to_vec();
        change(&mut all[n]);
        all
    };
    (0..guards.len())
        .flat_map(|n| {
            let (start, end) = (guards[n].1.start > ANYTHING.start, guards[n].1.end < ANYTHING.end);
            [
                start.then(|| change(n, &|guard| guard.1.start += 1)),
                end.then(|| change(n, &|guard| guard.1.end -= 1)),
                Some(change(n, &|guard| {
                    guard.0 = guard.0.plus(&Index::constant(1));
                })),
            ]
        })
        .flatten()
        .collect()
}

/// Ops with their faulty replacements.
const OTHERS: &[(&str, &str)] = &[
    ("add", "sub"),
    ("sub", "add"),
    ("mul", "add"),
    ("div", "mul"),
    ("max", "min"),
    ("exp", "sqrt"),
    ("neg", "abs"),
    ("abs", "neg"),
    ("reduce-sum", "reduce-max"),
    ("reduce-max", "reduce-sum"),
    ("lt", "le"),
    ("rsqrt", "sqrt"),
];

/// Returns the piece of a selection that is chosen at each point of a domain.
fn chosen(pieces: &[(Vec<Guard>, usize)], domain: &[usize]) -> Vec<Option<usize>> {
    let point = |mut flat: usize| {
        let mut point = vec![0; domain.len()];
        for (axis, extent) in domain.iter().enumerate().rev() {
            point[axis] = flat % extent;
            flat /= extent;
        }
        point
    };
    let holds =
        |guards: &[Guard], at: &[usize]| guards.iter().all(|(index, range)| range.contains(&index.eval(at, &|_| 0)));
    let points = (0..domain.iter().product()).map(point);
    points.map(|at| pieces.iter().position(|(guards, _)| holds(guards, &at))).collect()
}

/// Returns copies of an instruction with one fault each. Each fault changes the result at some point.
fn wrong_instructions(instr: &Instr, domain: &[usize]) -> Vec<Instr> {
    let mut all = Vec::new();
    let other = |op: Op| OTHERS.iter().find(|(of, _)| *of == op.name()).and_then(|(_, other)| Op::named(other));
    match instr {
        Instr::Load(load) => {
            all.extend(wrong_maps(&load.at).into_iter().map(|at| {
                let mut load = load.clone();
                load.at = at;
                Instr::Load(load)
            }));
        }
        Instr::Constant { value, dtype } if dtype.is_float() => {
            all.push(Instr::Constant { value: (value.get() * 1.5 + 1.0).into(), dtype: *dtype });
        }
        Instr::Coordinate { index, dtype } => {
            all.extend(wrong_maps(index).into_iter().map(|index| Instr::Coordinate { index, dtype: *dtype }));
        }
        Instr::Map { op, attrs, args, dtype } => {
            if let Some(op) = other(*op) {
                all.push(Instr::Map { op, attrs: attrs.clone(), args: args.clone(), dtype: *dtype });
            }
            if matches!(op.name(), "sub" | "div" | "lt") && args[0] != args[1] {
                let args = vec![args[1], args[0]];
                all.push(Instr::Map { op: *op, attrs: attrs.clone(), args, dtype: *dtype });
            }
        }
        Instr::Row { op, attrs, args, dtype } => {
            if let Some(op) = other(*op) {
                all.push(Instr::Row { op, attrs: attrs.clone(), args: args.clone(), dtype: *dtype });
            }
        }
        Instr::Select { pieces, fill, dtype } => {
            let right = chosen(pieces, domain);
            if right.contains(&None) {
                all.push(Instr::Select { pieces: pieces.clone(), fill: (fill.get() + 1.0).into(), dtype: *dtype });
            }
            for (n, (guards, _)) in pieces.iter().enumerate() {
                for guards in wrong_guards(guards) {
                    let mut pieces = pieces.clone();
                    pieces[n].0 = guards;
                    if chosen(&pieces, domain) != right {
                        all.push(Instr::Select { pieces, fill: *fill, dtype: *dtype });
                    }
                }
            }
        }
        _ => {}
    }
    all
}

/// Returns copies of a kernel with one fault each, and a description of the fault.
fn wrong_kernels(built: &KernelOfClasses) -> Vec<(String, KernelOfClasses)> {
    let mut all = Vec::new();
    for (b, body) in built.kernel.bodies().into_iter().enumerate() {
        for (i, instr) in body.instrs.iter().enumerate() {
            for wrong in wrong_instructions(instr, &body.domain) {
                let mut changed = built.clone();
                let bodies = &mut changed.kernel;
                let of =
                    if b < bodies.anchor.operands.len() { &mut bodies.anchor.operands[b] } else { &mut bodies.body };
                let what = format!("body {b}: {instr:?} is {wrong:?}");
                of.instrs[i] = wrong;
                all.push((what, changed));
            }
        }
    }
    if !built.kernel.body.lengths.is_empty() {
        let mut changed = built.clone();
        changed.kernel.body.lengths.clear();
        all.push(("every run has all points".into(), changed));
    }
    for (n, store) in built.kernel.stores.iter().enumerate() {
        for at in wrong_maps(&store.at) {
            let mut changed = built.clone();
            let what = format!("store {n}: {:?} is {at:?}", store.at);
            changed.kernel.stores[n].at = at;
            all.push((what, changed));
        }
    }
    for (n, store) in built.kernel.stores.iter().enumerate() {
        let others =
            [Writes::Apart, Writes::InOrder, Writes::Combined(Reduction::Sum), Writes::Combined(Reduction::Max)];
        // Writes to distinct places may also be in order.
        let same =
            |writes: &Writes| *writes == store.writes || (store.writes, *writes) == (Writes::Apart, Writes::InOrder);
        for writes in others.into_iter().filter(|writes| !same(writes)) {
            let mut changed = built.clone();
            changed.kernel.stores[n].writes = writes;
            all.push((format!("store {n}: {:?} is {writes:?}", store.writes), changed));
        }
        for guards in wrong_guards(&store.guards) {
            let mut changed = built.clone();
            let what = format!("store {n}: {:?} is {guards:?}", store.guards);
            changed.kernel.stores[n].guards = guards;
            all.push((what, changed));
        }
    }
    for (n, attr) in built.kernel.anchor.attrs.iter().enumerate() {
        if let Some(x) = attr.float().filter(|x| *x != 0.0) {
            let mut changed = built.clone();
            changed.kernel.anchor.attrs[n] = Attr::from(x * 2.0);
            all.push((format!("attribute {n} of the anchor is twice as large"), changed));
        }
    }
    if built.kernel.anchor.operands.len() == 2 {
        let mut changed = built.clone();
        changed.kernel.anchor.operands.swap(0, 1);
        all.push(("the operands change places".into(), changed));
    }
    all
}

#[test]
fn faults_that_are_planted_in_kernels_are_found() {
    let (mut planted, mut unseen) = (0, Vec::new());
    for program in PROGRAMS {
        let block = planned(program);
        for (parts, _) in &block.searched.priced.kernels {
            let built =
                build::kernel(&block.classes, &block.searched.plan, parts, &Positions::default(), usize::MAX).unwrap();
            for (what, wrong) in wrong_kernels(&built) {
                planted += 1;
                if let Validity::Valid(_) = of_kernel(&block, &wrong) {
                    unseen.push(what);
                }
            }
        }
    }
    println!("{} of {planted} planted faults are found; the others:\n{}", planted - unseen.len(), unseen.join("\n"));
    assert!(planted > 100 && unseen.len() * 100 <= planted, "{} of {planted}: {}", unseen.len(), unseen.join("\n"));
}
