//! A backend that computes kernels point by point in `f64`. It defines the meaning of a kernel description, and is the
//! smallest example of a backend.

use std::{any::Any, collections::HashMap, sync::Arc};

use eutectic_backend::{
    AnchorCall, Backend, BackendError, Body, Buffer, Cost, DTypes, DeviceBuffer, Executable, Guard, Input, Instr,
    Kernel, Limits, Loaded, Memory, Output, Place, Port, Program, Refusal, RowLimits, Session, Step, Store, ValueId,
    extents::Placement,
};
use eutectic_ir::{
    Attrs, DType, Op, Tensor, Type,
    attr::Number,
    index::Index,
    ops::{
        Ids, OutOfRange, Reduction, Writes,
        eval::{Element, Eval, OpCall, Value},
    },
};

/// A backend that supports every kernel and computes slowly.
pub struct Naive;

impl Backend for Naive {
    fn name(&self) -> &str {
        "naive"
    }

    fn describe(&self) -> String {
        "point by point, in f64".into()
    }

    fn supports(&self, _: &Kernel) -> Result<(), Vec<String>> {
        Ok(())
    }

    fn limits(&self) -> Limits {
        Limits { in_order: true, combined: DTypes::ALL, rows: RowLimits::ANY, ..Limits::default() }
    }

    /// Returns a second for each launch, a microsecond for each element of a slot, and 10 ns for each instruction at
    /// each point. Because launches are expensive, plans fuse as many ops as possible.
    fn cost(&self, kernel: &Kernel) -> Cost {
        let elements: usize = kernel.slots.iter().map(|s| s.1).sum();
        let points: usize = kernel.bodies().iter().map(|b| b.domain.iter().product::<usize>() * b.instrs.len()).sum();
        Cost {
            seconds: 1.0 + 1e-6 * elements as f64 + 1e-8 * points as f64,
            flops: points as f64,
            bytes: elements as f64,
        }
    }

    fn compile(&self, program: &Program) -> Result<Arc<dyn Executable>, BackendError> {
        let problems: Vec<_> = program.problems().into_iter().map(Refusal::from).collect();
        if !problems.is_empty() {
            return Err(BackendError::Unsupported { backend: self.name().into(), problems });
        }
        Ok(Arc::new(Code(program.clone())))
    }
}

type Elements = Vec<Element<f64>>;

/// The contents of each buffer of a program.
type Contents = Vec<Elements>;

struct Code(Program);

struct Parameters {
    code: Arc<Code>,
    /// The contents of each buffer. Buffers other than constants, parameters and results of the load program are zeros.
    contents: Contents,
}

struct Run {
    parameters: Arc<Parameters>,
    contents: Contents,
    lengths: Vec<usize>,
}

impl Executable for Code {
    fn load(self: Arc<Self>, params: &[Tensor]) -> Result<Arc<dyn Loaded>, BackendError> {
        let contents = self.0.buffers.iter().map(|b| match &b.place {
            Place::Const(value) => elements(value.dtype(), value.dims(), value.bytes()),
            Place::Param(n) => elements(b.dtype, &[b.count], params[*n].bytes()),
            _ => elements(b.dtype, &[b.count], &vec![0; b.count * b.dtype.size()]),
        });
        let mut contents: Contents = contents.collect();
        steps(&self.0, &self.0.load, &self.0.most(), &mut contents)?;
        Ok(Arc::new(Parameters { code: self, contents }))
    }
}

impl Loaded for Parameters {
    fn replace(self: Arc<Self>, params: &[(usize, Tensor)]) -> Result<Arc<dyn Loaded>, BackendError> {
        let program = &self.code.0;
        let mut contents = self.contents.clone();
        for (buffer, contents) in program.buffers.iter().zip(&mut contents) {
            if let Place::Param(n) = buffer.place
                && let Some((_, param)) = params.iter().find(|(of, _)| *of == n)
            {
                *contents = elements(buffer.dtype, &[buffer.count], param.bytes());
            }
        }
        steps(program, &program.load, &program.most(), &mut contents)?;
        Ok(Arc::new(Parameters { code: self.code.clone(), contents }))
    }

    fn session(self: Arc<Self>) -> Result<Box<dyn Session>, BackendError> {
        let lengths = self.code.0.most();
        Ok(Box::new(Run { contents: self.contents.clone(), parameters: self, lengths }))
    }

    fn bytes(&self) -> usize {
        let kept = |b: &&Buffer| matches!(b.place, Place::Const(_) | Place::Param(_) | Place::Loaded(_));
        self.code.0.buffers.iter().filter(kept).map(|b| b.count * b.dtype.size()).sum()
    }
}

impl Session for Run {
    fn loaded(&self) -> Arc<dyn Loaded> {
        self.parameters.clone()
    }

    fn adopt(&mut self, loaded: Arc<dyn Loaded>) -> Result<(), BackendError> {
        let other = BackendError::Device(
            "cannot adopt these parameters because they belong to another backend's program".into(),
        );
        self.parameters = (loaded as Arc<dyn Any + Send + Sync>).downcast().map_err(|_| other)?;
        for (n, buffer) in self.parameters.code.0.buffers.iter().enumerate() {
            if !matches!(buffer.place, Place::State(_)) {
                self.contents[n] = self.parameters.contents[n].clone();
            }
        }
        Ok(())
    }

    fn fork(&mut self) -> Result<Box<dyn Session>, BackendError> {
        let (parameters, contents) = (self.parameters.clone(), self.contents.clone());
        Ok(Box::new(Run { parameters, contents, lengths: self.lengths.clone() }))
    }

    fn set_lengths(&mut self, lengths: &[usize]) -> Result<(), BackendError> {
        self.parameters.code.0.check_lengths(lengths)?;
        self.lengths = lengths.to_vec();
        Ok(())
    }

    fn buffer(&self, _: usize, _: Memory) -> Result<Box<dyn DeviceBuffer>, BackendError> {
        Err(BackendError::Device("cannot bind buffers because the naive backend has none".into()))
    }

    fn bind(
        &mut self,
        _: Port,
        buffer: Option<Box<dyn DeviceBuffer>>,
    ) -> Result<Option<Box<dyn DeviceBuffer>>, BackendError> {
        match buffer {
            Some(_) => Err(BackendError::Device("cannot bind buffers because the naive backend has none".into())),
            None => Ok(None),
        }
    }

    fn write(&mut self, port: Port, at: usize, from: &[u8]) -> Result<(), BackendError> {
        let (buffer, mut bytes) = self.bytes(port);
        bytes[at..at + from.len()].copy_from_slice(from);
        let Buffer { dtype, count, .. } = self.parameters.code.0.buffers[buffer];
        self.contents[buffer] = elements(dtype, &[count], &bytes);
        Ok(())
    }

    fn read(&mut self, port: Port, at: usize, to: &mut [u8]) -> Result<(), BackendError> {
        to.copy_from_slice(&self.bytes(port).1[at..at + to.len()]);
        Ok(())
    }

    fn execute(
        &mut self,
        inputs: &[Input<'_>],
        outputs: &mut [Output<'_>],
        times: Option<&mut Vec<f64>>,
    ) -> Result<(), BackendError> {
        for (n, input) in inputs.iter().enumerate() {
            if let Input::Host(bytes) = input {
                let (place, mut memory) = (self.placement(Port::Input(n)), self.bytes(Port::Input(n)).1);
                place.spread(bytes, &mut memory);
                self.write(Port::Input(n), 0, &memory)?;
            }
        }
        let wanted: Vec<_> = outputs.iter().map(|output| !matches!(output, Output::Unwanted)).collect();
        self.submit(&wanted)?;
        for (n, output) in outputs.iter_mut().enumerate() {
            if let Output::Host(bytes) = output {
                self.placement(Port::Output(n)).gather(&self.bytes(Port::Output(n)).1, bytes);
            }
        }
        if let Some(times) = times {
            times.extend(vec![0.0; self.parameters.code.0.run.len()]);
        }
        Ok(())
    }

    /// Runs the program before it returns, so [`Session::wait`] does nothing.
    fn submit(&mut self, wanted: &[bool]) -> Result<(), BackendError> {
        let program = &self.parameters.code.0;
        let wanted = [wanted, &[true]].concat();
        let needed = program.needed_for();
        let is_needed = |step: usize| needed[step].iter().zip(&wanted).any(|(needed, wanted)| *needed && *wanted);
        let run: Vec<_> = (0..program.run.len()).filter(|&n| is_needed(n)).map(|n| program.run[n].clone()).collect();
        steps(program, &run, &self.lengths, &mut self.contents)
    }

    fn wait(&mut self) -> Result<(), BackendError> {
        Ok(())
    }
}

impl Run {
    /// Returns the placement of a port's tensor in the port's memory, at the current lengths.
    fn placement(&self, port: Port) -> Placement {
        let program = &self.parameters.code.0;
        let (_, ty) = match port {
            Port::Input(n) => &program.inputs[n],
            Port::Output(n) => &program.outputs[n],
            Port::State(n) => &program.states[n],
        };
        Placement::new(ty, &program.lengths(&self.lengths)).expect("all extents have lengths")
    }

    /// Returns the number of a port's buffer, and its contents as bytes.
    fn bytes(&self, port: Port) -> (usize, Vec<u8>) {
        let is_port = |b: &Buffer| match (&b.place, port) {
            (Place::Input(n), Port::Input(of)) => *n == of,
            (Place::Output(n), Port::Output(of)) => *n == of,
            (Place::State(n), Port::State(of)) => *n == of,
            _ => false,
        };
        let buffers = &self.parameters.code.0.buffers;
        let at = buffers.iter().position(is_port).expect("ports have buffers");
        let value = Value::from_elements(buffers[at].dtype, &[buffers[at].count], self.contents[at].iter().copied());
        (at, value.to_tensor().bytes().to_vec())
    }
}

fn elements(dtype: DType, dims: &[usize], bytes: &[u8]) -> Elements {
    let tensor = Tensor::new(dtype, dims, bytes.to_vec()).expect("the facade has checked the sizes");
    let value = Value::from_tensor(&tensor);
    (0..value.count()).map(|at| value.get(at)).collect()
}

fn steps(program: &Program, steps: &[Step], lengths: &[usize], contents: &mut Contents) -> Result<(), BackendError> {
    // A buffer that is part of another one has its own copy of the contents. The copy is loaded from the whole buffer
    // before a kernel, and written back after it.
    let part = |buffer: usize| {
        program.parts.get(&buffer).map(|part| (part.of, part.at..part.at + program.buffers[buffer].count))
    };
    for step in steps {
        for &buffer in &step.buffers {
            if let Some((whole, range)) = part(buffer) {
                contents[buffer] = contents[whole][range].to_vec();
            }
        }
        let kernel = &program.kernels[step.kernel].at(&program.lengths(lengths));
        let slots: Vec<&Elements> = step.buffers.iter().map(|&b| &contents[b]).collect();
        let stored = run_kernel(kernel, &slots, step)?;
        for (store, values) in kernel.stores.iter().zip(stored) {
            let buffer = step.buffers[store.slot];
            if let Some((whole, range)) = part(buffer) {
                contents[whole][range].copy_from_slice(&values);
            }
            contents[buffer] = values;
        }
    }
    Ok(())
}

/// Runs a kernel, and returns the new contents of each store's buffer.
fn run_kernel(kernel: &Kernel, slots: &[&Elements], step: &Step) -> Result<Vec<Elements>, BackendError> {
    let operands = kernel.operands().into_iter().map(|body| {
        let mut eval = Evaluator::new(body, slots, step, 0, &[]);
        points(&body.domain).map(|point| Ok(number(eval.value(body.results[0], &point)?))).collect()
    });
    let operands: Vec<Vec<f64>> = operands.collect::<Result<_, BackendError>>()?;
    let (def, dtypes) = (kernel.anchor.def(), kernel.anchor.dtypes().unwrap_or_default());
    let (extents, attrs) = (kernel.extents(), &kernel.anchor.attrs);
    let call = AnchorCall { operands: &operands, dtypes: &dtypes, extents: &extents, attrs };
    let anchor = (def.eval)(&call).into_iter().next().unwrap_or_default();
    let row_axes = kernel.row_axes().unwrap_or(0);
    let mut eval = Evaluator::new(&kernel.body, slots, step, row_axes, &anchor);
    // Elements that no point writes keep their values.
    let mut stored: Vec<Elements> = kernel.stores.iter().map(|s| slots[s.slot].clone()).collect();
    // Values that are constant along a row are stored even if the row is empty.
    let (outer, row) = kernel.body.domain.split_at(kernel.body.domain.len() - row_axes);
    let is_empty = row.contains(&0);
    let along_row = |store: &Store| {
        let mut axes = outer.len()..kernel.body.domain.len();
        kernel.slots[store.slot].1 == 0 || axes.any(|axis| store.at.mentions(axis))
    };
    let domain = if is_empty { [outer, &vec![1; row.len()]].concat() } else { kernel.body.domain.clone() };
    for point in points(&domain) {
        for (store, values) in kernel.stores.iter().zip(&mut stored) {
            if is_empty && along_row(store) {
                continue;
            }
            if eval.hold(&store.guards, &point)? {
                let at = eval.at(&store.at, &point)? as usize;
                let (value, dtype) = (eval.value(store.value, &point)?, kernel.slots[store.slot].0);
                values[at] = match store.writes {
                    Writes::Apart | Writes::InOrder => value.store(dtype),
                    Writes::Combined(how) => combined(how, [values[at], value], dtype),
                };
            }
        }
    }
    Ok(stored)
}

fn points(domain: &[usize]) -> impl Iterator<Item = Vec<usize>> + use<> {
    let domain = domain.to_vec();
    (0..domain.iter().product::<usize>()).map(move |mut flat| {
        let mut point = vec![0; domain.len()];
        for (axis, extent) in domain.iter().enumerate().rev() {
            point[axis] = flat % extent;
            flat /= extent;
        }
        point
    })
}

fn number(element: Element<f64>) -> f64 {
    match element {
        Element::Real(x) => x,
        Element::Int(n) => n.unwrap_or_default() as f64,
    }
}

struct Evaluator<'a> {
    body: &'a Body,
    slots: &'a [&'a Elements],
    step: &'a Step,
    row_axes: usize,
    anchor: &'a [f64],
    /// The computed results of row operations. The key is the instruction, and the coordinates of the row.
    rows: HashMap<(ValueId, Vec<usize>), Value<f64>>,
}

impl<'a> Evaluator<'a> {
    fn new(body: &'a Body, slots: &'a [&'a Elements], step: &'a Step, row_axes: usize, anchor: &'a [f64]) -> Self {
        Evaluator { body, slots, step, row_axes, anchor, rows: HashMap::new() }
    }

    fn value(&mut self, id: ValueId, point: &[usize]) -> Result<Element<f64>, BackendError> {
        match &self.body.instrs[id] {
            Instr::Anchor { dtype } => {
                let flat = point.iter().zip(&self.body.domain).fold(0, |flat, (p, d)| flat * d + p);
                Ok(Element::Real(self.anchor[flat]).store(*dtype))
            }
            Instr::Load(load) => {
                // If a guard does not hold, the loaded value is not used.
                let at = if self.hold(&load.guards, point)? { self.at(&load.at, point)? } else { 0 };
                Ok(self.slots[load.slot][at as usize])
            }
            Instr::Constant { value, dtype } => Ok(constant(*value, *dtype)),
            Instr::Coordinate { index, dtype } => Ok(constant((self.at(index, point)? as f64).into(), *dtype)),
            Instr::Within { arg, extent, from_end, guards, check, dtype } => {
                let element = self.value(*arg, point)?;
                let Element::Int(Some(id)) = element else { unreachable!("ids are integers") };
                let ids = Ids { extent: extent.capacity().unwrap_or(0), from_end: *from_end };
                match ids.place(id) {
                    Some(at) => Ok(Element::Int(Some(at)).store(*dtype)),
                    None if self.hold(guards, point)? => {
                        let origin = self.step.origin_of_check(*check).clone();
                        Err(BackendError::IndexOutOfRange { problem: OutOfRange { id, ids }, origin })
                    }
                    None => Ok(Element::Int(Some(0))),
                }
            }
            Instr::Map { op, attrs, args, dtype } => {
                let args = args.iter().map(|&a| self.value(a, point)).collect::<Result<Vec<_>, _>>()?;
                let Eval::Elements(eval) = op.def().eval else { return Err(BackendError::Device(format!("`{op}`"))) };
                Ok((eval.exact)(&args, attrs, *dtype).store(*dtype))
            }
            Instr::Row { op, attrs, args, dtype } => self.row(id, (*op, attrs), args, *dtype, point),
            Instr::Select { pieces, fill, dtype } => {
                for (guards, value) in pieces {
                    if self.hold(guards, point)? {
                        return self.value(*value, point);
                    }
                }
                Ok(constant(*fill, *dtype))
            }
        }
    }

    /// Evaluates an index map at a point.
    fn at(&mut self, index: &Index, point: &[usize]) -> Result<i64, BackendError> {
        let mut read = HashMap::new();
        for value in index.values() {
            read.insert(value, number(self.value(value, point)?) as i64);
        }
        Ok(index.eval(point, &|v| read[&v]))
    }

    fn hold(&mut self, guards: &[Guard], point: &[usize]) -> Result<bool, BackendError> {
        for (index, range) in guards {
            if !range.contains(&self.at(index, point)?) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Returns the result of a row operation at a point. Evaluates the op on the whole row by its reference.
    fn row(
        &mut self,
        id: ValueId,
        (op, attrs): (Op, &Attrs),
        args: &[ValueId],
        dtype: DType,
        point: &[usize],
    ) -> Result<Element<f64>, BackendError> {
        let (outer, inner) = point.split_at(point.len() - self.row_axes);
        let row = &self.body.domain[outer.len()..];
        let is_per_row = self.body.instrs[id].is_per_row();
        let at = if is_per_row { 0 } else { inner.iter().zip(row).fold(0, |flat, (p, d)| flat * d + p) };
        let key = (id, outer.to_vec());
        if let Some(done) = self.rows.get(&key) {
            return Ok(done.get(at));
        }
        let Eval::Tensors(eval) = op.def().eval else { return Err(BackendError::Device(format!("`{op}`"))) };
        let count = row.iter().product();
        let mut operands = Vec::new();
        for &arg in args {
            let elements = points(row).map(|inner| self.value(arg, &[outer, &inner].concat()));
            let elements = elements.collect::<Result<Vec<_>, _>>()?;
            operands.push(Value::from_elements(self.body.instrs[arg].dtype(), &[count], elements.into_iter()));
        }
        let operands: Vec<_> = operands.iter().collect();
        let result = Type::tensor(dtype, &[if is_per_row { 1 } else { count }]);
        let mut results = (eval.exact)(&OpCall { operands: &operands, attrs, result: &result });
        let values = results.pop().ok_or_else(|| BackendError::Device(format!("`{op}` has no result")))?;
        Ok(self.rows.entry(key).or_insert(values).get(at))
    }
}

/// Combines two elements of a type by the op of a reduction.
fn combined(how: Reduction, elements: [Element<f64>; 2], dtype: DType) -> Element<f64> {
    let Eval::Elements(eval) = how.op().def().eval else { unreachable!("two elements are combined by a pointwise op") };
    (eval.exact)(&elements.map(|element| element.store(dtype)), &[], dtype).store(dtype)
}

fn constant(x: Number, dtype: DType) -> Element<f64> {
    if dtype.is_float() { Element::Real(x.get()).store(dtype) } else { Element::Int(Some(x.int())) }
}
