//! Prints programs in a canonical form: equal kernels in equal order give equal text, however they were built.

use std::fmt::Write;

use eutectic_backend::{Body, Buffer, BufferId, Guard, Instr, Kernel, Place, Program, Step, Store, ValueId};
use eutectic_ir::{Attrs, DType, Op, ops::Writes};
use rustc_hash::FxHashMap;

/// Prints the load steps and run steps of a program, each with its kernel. Provenance is left out.
pub fn program(program: &Program) -> String {
    let mut names = Names::default();
    let mut text = String::new();
    for (title, steps) in [("load", &program.load), ("run", &program.run)] {
        for step in steps {
            let _ = writeln!(text, "{title} {}", self::step(program, step, &mut names));
        }
    }
    text
}

/// Prints the kernels of a run. Names of inputs, outputs and parameters and the load program do not affect the text.
pub fn kernels(program: &Program) -> String {
    let mut names = Names { anonymous: true, ..Names::default() };
    let steps = program.run.iter().map(|step| self::step(program, step, &mut names));
    steps.collect::<Vec<_>>().join("\n")
}

/// Names of buffers, in the order in which they are first used.
#[derive(Default)]
struct Names {
    numbers: FxHashMap<BufferId, usize>,
    /// Whether inputs, outputs and parameters are numbered too.
    anonymous: bool,
}

impl Names {
    fn of(&mut self, program: &Program, id: BufferId) -> String {
        let next = self.numbers.len();
        let Buffer { dtype, count, place } = &program.buffers[id];
        match place {
            Place::Input(n) if self.anonymous => format!("in:{n}"),
            Place::Output(n) if self.anonymous => format!("out:{n}"),
            Place::State(n) if self.anonymous => format!("state:{n}"),
            Place::Param(_) if self.anonymous => self.number(id, next, *dtype, *count),
            Place::Input(n) => program.inputs[*n].0.clone(),
            Place::Param(n) => program.params[*n].0.clone(),
            Place::Output(n) => format!("out:{}", program.outputs[*n].0),
            Place::State(n) => program.states[*n].0.clone(),
            Place::Const(value) if *count <= 16 => value.to_string(),
            Place::Const(_) | Place::Loaded(_) | Place::Arena(_) => self.number(id, next, *dtype, *count),
        }
    }

    fn number(&mut self, id: BufferId, next: usize, dtype: DType, count: usize) -> String {
        format!("t{}:{dtype}[{count}]", self.numbers.entry(id).or_insert(next))
    }
}

fn step(program: &Program, step: &Step, names: &mut Names) -> String {
    let kernel = &program.kernels[step.kernel];
    let order = canonical_slots(kernel);
    let buffers: Vec<_> = order.iter().map(|&slot| names.of(program, step.buffers[slot])).collect();
    format!("{}\n{}", buffers.join(" "), self::kernel(kernel))
}

/// Prints a kernel with its slots and values numbered by structure, not by how it was built.
pub fn kernel(kernel: &Kernel) -> String {
    let order = canonical_slots(kernel);
    let slot = |s: usize| order.iter().position(|&o| o == s).unwrap_or(s);
    let (groups, layouts) = (kernel.groups(), kernel.layouts());
    let domain = |body: &Body, layout: &[usize]| domain(body, layout.iter().map(|&g| groups[g]));
    let mut text = format!("  {} {}", kernel.kind(), domain(&kernel.body, layouts[layouts.len() - 1]));
    for (name, attr) in kernel.anchor.def().attrs.iter().zip(&kernel.anchor.attrs) {
        let _ = write!(text, " {name} {attr}");
    }
    text.push('\n');
    for (i, (body, layout)) in kernel.bodies().into_iter().zip(layouts).enumerate() {
        let last = i == kernel.operands().len();
        let roots: Vec<ValueId> =
            if last { kernel.stores.iter().map(|s| s.value).collect() } else { body.results.clone() };
        let mut printer =
            PlanPrinter { body, slot: &slot, keys: keys(body), lines: Vec::new(), numbers: FxHashMap::default() };
        let numbers: Vec<_> = roots.iter().map(|&v| printer.print(v)).collect();
        if last {
            kernel.stores.iter().flat_map(Store::values).for_each(|v| _ = printer.print(v));
        }
        if !last {
            let _ = writeln!(text, "    operand {i} over {}", domain(body, layout));
        }
        for line in &printer.lines {
            let _ = writeln!(text, "    {line}");
        }
        for (root, number) in numbers.iter().enumerate() {
            let _ = match kernel.stores.get(root).filter(|_| last) {
                Some(store) => {
                    let value = |v: ValueId| format!("v{}", printer.numbers.get(&v).copied().unwrap_or(v));
                    let guards: String = store.guards.iter().map(|g| format!(" if {}", guard(g, &value))).collect();
                    let slot = slot(store.slot);
                    let how = match store.writes {
                        Writes::Apart => String::new(),
                        Writes::InOrder => ", in order".into(),
                        Writes::Combined(how) => format!(", combined by {}", how.def().name),
                    };
                    writeln!(text, "    store v{number} at s{slot}[{}]{guards}{how}", store.at.text(&value))
                }
                None => writeln!(text, "    give v{number}"),
            };
        }
    }
    text
}

/// Prints extents with a bar between groups of axes. An extent that varies is printed with its maximum.
fn domain(body: &Body, groups: impl Iterator<Item = usize>) -> String {
    let mut extents = body.domain.iter().enumerate().map(|(axis, extent)| {
        let length = body.lengths.iter().find(|(of, _)| *of == axis);
        length.map_or_else(|| extent.to_string(), |(_, length)| format!("{length} to {extent}"))
    });
    let text = |group: usize| extents.by_ref().take(group).collect::<Vec<_>>().join(", ");
    format!("[{}]", groups.map(text).collect::<Vec<_>>().join(" | ").trim())
}

/// Returns the slots in the order in which the canonical print first uses them.
fn canonical_slots(kernel: &Kernel) -> Vec<usize> {
    let mut order = Vec::new();
    for (i, body) in kernel.bodies().into_iter().enumerate() {
        let last = i == kernel.operands().len();
        let roots: Vec<ValueId> =
            if last { kernel.stores.iter().flat_map(Store::values).collect() } else { body.results.clone() };
        let keys = keys(body);
        let mut seen = vec![false; body.instrs.len()];
        for root in roots {
            visit(body, &keys, root, &mut seen, &mut |instr| {
                if let Instr::Load(load) = instr
                    && !order.contains(&load.slot)
                {
                    order.push(load.slot);
                }
            });
        }
    }
    order.extend(kernel.stores.iter().map(|s| s.slot));
    let rest: Vec<_> = (0..kernel.slots.len()).filter(|s| !order.contains(s)).collect();
    order.extend(rest);
    order
}

fn visit(body: &Body, keys: &[String], value: ValueId, seen: &mut [bool], f: &mut dyn FnMut(&Instr)) {
    if std::mem::replace(&mut seen[value], true) {
        return;
    }
    for arg in ordered_args(&body.instrs[value], keys) {
        visit(body, keys, arg, seen, f);
    }
    f(&body.instrs[value]);
}

/// Returns the arguments of an instruction. Arguments of a commutative op are sorted by their keys.
fn ordered_args(instr: &Instr, keys: &[String]) -> Vec<ValueId> {
    let mut args = instr.args();
    if let Instr::Map { op, .. } = instr
        && op.def().commutative
    {
        args[..2].sort_by(|a, b| keys[*a].cmp(&keys[*b]));
    }
    args
}

/// Returns for each value a text that does not depend on the numbering of values. Values with equal texts are equal.
fn keys(body: &Body) -> Vec<String> {
    let mut keys: Vec<String> = Vec::with_capacity(body.instrs.len());
    for instr in &body.instrs {
        let args: Vec<_> = ordered_args(instr, &keys).into_iter().map(|a| keys[a].clone()).collect();
        let text = format!("{}({})", head(instr, &|v| format!("<{}>", keys[v]), &|_| 0), args.join(","));
        // A digest keeps the texts of deep expressions short.
        keys.push(if text.len() > 80 { format!("#{:016x}", digest(&text)) } else { text });
    }
    keys
}

fn digest(text: &str) -> u64 {
    use std::hash::{Hash, Hasher};
    let mut hasher = rustc_hash::FxHasher::default();
    text.hash(&mut hasher);
    hasher.finish()
}

/// Returns the text of an instruction without its arguments.
fn head(instr: &Instr, value: &dyn Fn(ValueId) -> String, slot: &dyn Fn(usize) -> usize) -> String {
    match instr {
        Instr::Anchor { dtype } => format!("anchor:{dtype}"),
        Instr::Load(l) => {
            let guards: String = l.guards.iter().map(|g| format!(" if {}", guard(g, value))).collect();
            format!("load:{} s{}[{}]{guards}", l.dtype, slot(l.slot), l.at.text(value))
        }
        Instr::Constant { value, dtype } => format!("{value}:{dtype}"),
        Instr::Coordinate { index, dtype } => format!("coordinate:{dtype} {}", index.text(value)),
        Instr::Within { extent, from_end, guards, dtype, .. } => {
            let guards: String = guards.iter().map(|g| format!(" if {}", guard(g, value))).collect();
            let from = if *from_end { format!("-{extent}") } else { "0".into() };
            format!("within:{dtype} {from}..{extent}{guards}")
        }
        Instr::Map { op, attrs, dtype, .. } => format!("{op}:{dtype}{}", attributes(*op, attrs)),
        Instr::Row { op, attrs, dtype, .. } => match op.row() {
            Some(row) => format!("{}:{dtype}{}", row.name(), (row.details)(attrs)),
            None => format!("{op}:{dtype}{}", attributes(*op, attrs)),
        },
        Instr::Select { pieces, fill, dtype } => {
            let guards: Vec<_> = pieces
                .iter()
                .map(|(g, _)| g.iter().map(|g| guard(g, value)).collect::<Vec<_>>().join(" and "))
                .collect();
            format!("select:{dtype} [{}] else {fill}", guards.join("; "))
        }
    }
}

fn attributes(op: Op, attrs: &Attrs) -> String {
    op.def().attrs.iter().zip(attrs).map(|(def, value)| format!(" :{} {value}", def.name)).collect()
}

fn guard((index, range): &Guard, value: &dyn Fn(ValueId) -> String) -> String {
    format!("{} in {range:?}", index.text(value))
}

struct PlanPrinter<'a> {
    body: &'a Body,
    slot: &'a dyn Fn(usize) -> usize,
    keys: Vec<String>,
    lines: Vec<String>,
    numbers: FxHashMap<ValueId, usize>,
}

impl PlanPrinter<'_> {
    fn print(&mut self, value: ValueId) -> usize {
        if let Some(&number) = self.numbers.get(&value) {
            return number;
        }
        let instr = &self.body.instrs[value];
        let args: Vec<_> = ordered_args(instr, &self.keys).into_iter().map(|a| format!("v{}", self.print(a))).collect();
        let numbers = &self.numbers;
        let head = head(instr, &|v| format!("v{}", numbers.get(&v).copied().unwrap_or(v)), self.slot);
        let number = self.numbers.len();
        self.numbers.insert(value, number);
        let args = if args.is_empty() { String::new() } else { format!(" {}", args.join(" ")) };
        self.lines.push(format!("v{number} = {head}{args}"));
        number
    }
}
