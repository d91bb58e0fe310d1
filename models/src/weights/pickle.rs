//! Reads the part of Python's pickle format that `torch.save` uses: dictionaries, tensors, strings and numbers
//! (<https://docs.python.org/3/library/pickletools.html>). Nothing is executed. Other objects in a pickle are errors.

use std::{collections::HashMap, rc::Rc};

/// A value of a pickle.
#[derive(Clone, Debug)]
pub(super) enum PickleValue {
    /// A value that contains no tensor: `None`, a Boolean, a float, bytes or a list.
    Other,
    Int(i64),
    Text(Rc<str>),
    Tuple(Rc<[PickleValue]>),
    /// An index into the machine's dictionaries. Opcodes add items to a dictionary after they have created it.
    Dict(usize),
    /// A qualified name of a Python object, such as `torch._utils._rebuild_tensor_v2`. The name is only compared;
    /// nothing is imported.
    Global(Rc<str>),
    Storage(Rc<Storage>),
    Tensor(Rc<TensorView>),
}

/// The elements of one or several tensors: a file in the archive.
#[derive(Debug)]
pub(super) struct Storage {
    /// The name of the element type, such as `Float`.
    pub kind: String,
    /// The name of the file in the archive.
    pub key: String,
}

/// A tensor as a view of a storage. Offset and strides count elements.
#[derive(Debug)]
pub(super) struct TensorView {
    pub storage: Rc<Storage>,
    pub offset: usize,
    pub dims: Vec<usize>,
    pub strides: Vec<usize>,
}

/// The limit on the nesting of dictionaries. Checkpoints of models are far below it.
const DEEPEST: usize = 64;

/// Returns the tensors of a pickle by name. A name joins the keys of nested dictionaries with dots.
pub(super) fn tensors(bytes: &[u8]) -> Result<Vec<(String, Rc<TensorView>)>, String> {
    let mut machine =
        PickleMachine { bytes, at: 0, stack: Vec::new(), marks: Vec::new(), memo: HashMap::new(), dicts: Vec::new() };
    let root = machine.run().map_err(|e| format!("its pickle, at byte {}: {e}", machine.at))?;
    let mut found = Vec::new();
    let mut seen = vec![false; machine.dicts.len()];
    machine.collect(&root, String::new(), 0, &mut seen, &mut found)?;
    Ok(found)
}

struct PickleMachine<'a> {
    bytes: &'a [u8],
    at: usize,
    stack: Vec<PickleValue>,
    marks: Vec<usize>,
    memo: HashMap<u32, PickleValue>,
    dicts: Vec<Vec<(PickleValue, PickleValue)>>,
}

type Done<T> = Result<T, String>;

impl PickleMachine<'_> {
    fn run(&mut self) -> Done<PickleValue> {
        loop {
            let op = self.byte()?;
            match op {
                // The opcodes for the protocol version and for frames carry no data.
                0x80 => self.skip(1)?,
                0x95 => self.skip(8)?,
                b'.' => return self.pop(),
                b'(' => self.marks.push(self.stack.len()),
                b'0' => drop(self.pop()?),
                b'N' | 0x88 | 0x89 | b']' => self.stack.push(PickleValue::Other),
                b'G' => {
                    self.skip(8)?;
                    self.stack.push(PickleValue::Other);
                }
                b'K' => self.number::<1>(|b| i64::from(b[0]))?,
                b'M' => self.number::<2>(|b| i64::from(u16::from_le_bytes(b)))?,
                b'J' => self.number::<4>(|b| i64::from(i32::from_le_bytes(b)))?,
                0x8a => self.long()?,
                b'X' => self.text::<4>()?,
                0x8c => self.text::<1>()?,
                // Bytes, and the strings of Python 2.
                b'C' | b'U' => self.blob::<1>()?,
                b'B' | b'T' => self.blob::<4>()?,
                b'c' => {
                    let (module, name) = (self.line()?, self.line()?);
                    self.stack.push(PickleValue::Global(format!("{module}.{name}").into()));
                }
                0x93 => {
                    let (name, module) = (self.pop()?, self.pop()?);
                    let (PickleValue::Text(module), PickleValue::Text(name)) = (module, name) else {
                        return Err("it has a global without a name".into());
                    };
                    self.stack.push(PickleValue::Global(format!("{module}.{name}").into()));
                }
                b')' => self.stack.push(PickleValue::Tuple(Rc::new([]))),
                0x85..=0x87 => self.tuple(usize::from(op) - 0x84)?,
                b't' => {
                    let items = self.since_mark()?;
                    self.stack.push(PickleValue::Tuple(items.into()));
                }
                b'}' => self.dict(Vec::new()),
                b'd' => {
                    let items = self.since_mark()?;
                    self.dict(pairs(items)?);
                }
                // The reader ignores the elements of lists.
                b'a' => drop(self.pop()?),
                b'e' => drop(self.since_mark()?),
                b's' => {
                    let (value, key) = (self.pop()?, self.pop()?);
                    self.fill(vec![(key, value)])?;
                }
                b'u' => {
                    let items = self.since_mark()?;
                    self.fill(pairs(items)?)?;
                }
                b'q' => {
                    let name = u32::from(self.byte()?);
                    self.remember(name)?;
                }
                b'r' => {
                    let name = u32::from_le_bytes(self.take()?);
                    self.remember(name)?;
                }
                0x94 => self.remember(u32::try_from(self.memo.len()).map_err(|_| "it has too many values")?)?,
                b'h' => {
                    let name = u32::from(self.byte()?);
                    self.recall(name)?;
                }
                b'j' => {
                    let name = u32::from_le_bytes(self.take()?);
                    self.recall(name)?;
                }
                b'Q' => self.persistent()?,
                b'R' => self.call()?,
                // Opcode `b` sets attributes of an object. Those of dictionaries, such as `_metadata`, are ignored.
                b'b' => match (self.pop()?, self.stack.last()) {
                    (_, Some(PickleValue::Dict(_))) => {}
                    _ => return Err("the state of an object is not a dictionary".into()),
                },
                op => return Err(format!("it has the opcode {op:#04x}, which checkpoints of tensors do not use")),
            }
        }
    }

    fn take<const N: usize>(&mut self) -> Done<[u8; N]> {
        let bytes = self.bytes.get(self.at..).and_then(|rest| rest.first_chunk()).ok_or("it ends too early")?;
        self.at += N;
        Ok(*bytes)
    }

    fn byte(&mut self) -> Done<u8> {
        self.take::<1>().map(|[byte]| byte)
    }

    fn slice(&mut self, length: usize) -> Done<&[u8]> {
        let end = self.at.checked_add(length).filter(|end| *end <= self.bytes.len()).ok_or("it ends too early")?;
        let slice = &self.bytes[self.at..end];
        self.at = end;
        Ok(slice)
    }

    fn skip(&mut self, length: usize) -> Done<()> {
        self.slice(length).map(|_| ())
    }

    /// Reads a little-endian length of N bytes.
    fn length<const N: usize>(&mut self) -> Done<usize> {
        let bytes: [u8; N] = self.take()?;
        Ok(bytes.iter().rev().fold(0, |n, byte| n << 8 | usize::from(*byte)))
    }

    fn number<const N: usize>(&mut self, value: impl FnOnce([u8; N]) -> i64) -> Done<()> {
        let bytes = self.take()?;
        self.stack.push(PickleValue::Int(value(bytes)));
        Ok(())
    }

    /// Reads a two's complement number of any length. A number of more than 8 bytes becomes
    /// [`PickleValue::Other`], because it cannot be an extent or an offset.
    fn long(&mut self) -> Done<()> {
        let length = self.length::<1>()?;
        let bytes = self.slice(length)?;
        let fill = if bytes.last().is_some_and(|b| *b >= 0x80) { 0xff } else { 0 };
        let mut word = [fill; 8];
        let value = match bytes.len() {
            0..=8 => {
                word[..bytes.len()].copy_from_slice(bytes);
                PickleValue::Int(i64::from_le_bytes(word))
            }
            _ => PickleValue::Other,
        };
        self.stack.push(value);
        Ok(())
    }

    fn text<const N: usize>(&mut self) -> Done<()> {
        let length = self.length::<N>()?;
        let text = std::str::from_utf8(self.slice(length)?).map_err(|e| e.to_string())?;
        let text = PickleValue::Text(text.into());
        self.stack.push(text);
        Ok(())
    }

    fn blob<const N: usize>(&mut self) -> Done<()> {
        let length = self.length::<N>()?;
        self.skip(length)?;
        self.stack.push(PickleValue::Other);
        Ok(())
    }

    fn line(&mut self) -> Done<String> {
        let rest = &self.bytes[self.at..];
        let length = rest.iter().position(|b| *b == b'\n').ok_or("it ends too early")?;
        self.at += length + 1;
        String::from_utf8(rest[..length].to_vec()).map_err(|e| e.to_string())
    }

    fn pop(&mut self) -> Done<PickleValue> {
        let floor = self.marks.last().copied().unwrap_or(0);
        (self.stack.len() > floor).then(|| self.stack.pop()).flatten().ok_or("its stack lacks a value".into())
    }

    fn since_mark(&mut self) -> Done<Vec<PickleValue>> {
        let mark = self.marks.pop().filter(|mark| *mark <= self.stack.len()).ok_or("its stack lacks a mark")?;
        Ok(self.stack.split_off(mark))
    }

    fn tuple(&mut self, length: usize) -> Done<()> {
        let mut items = Vec::new();
        for _ in 0..length {
            items.push(self.pop()?);
        }
        items.reverse();
        self.stack.push(PickleValue::Tuple(items.into()));
        Ok(())
    }

    fn dict(&mut self, items: Vec<(PickleValue, PickleValue)>) {
        self.stack.push(PickleValue::Dict(self.dicts.len()));
        self.dicts.push(items);
    }

    fn fill(&mut self, items: Vec<(PickleValue, PickleValue)>) -> Done<()> {
        let Some(PickleValue::Dict(n)) = self.stack.last() else {
            return Err("it adds items to an object that is not a dictionary".into());
        };
        self.dicts[*n].extend(items);
        Ok(())
    }

    fn remember(&mut self, name: u32) -> Done<()> {
        let value = self.stack.last().ok_or("its stack lacks a value")?.clone();
        self.memo.insert(name, value);
        Ok(())
    }

    fn recall(&mut self, name: u32) -> Done<()> {
        let value = self.memo.get(&name).ok_or("its stack lacks a value")?.clone();
        self.stack.push(value);
        Ok(())
    }

    /// Reads a reference to a storage outside of the pickle: ('storage', type, file, device, number of elements).
    fn persistent(&mut self) -> Done<()> {
        let id = self.pop()?;
        let PickleValue::Tuple(parts) = &id else { return Err("it refers to an object that is not a storage".into()) };
        let (Some(PickleValue::Global(kind)), Some(PickleValue::Text(key))) = (parts.get(1), parts.get(2)) else {
            return Err("it refers to an object that is not a storage".into());
        };
        let plain = kind.strip_prefix("torch.").and_then(|kind| kind.strip_suffix("Storage"));
        let kind = plain.filter(|kind| !kind.contains('.')).ok_or_else(|| unknown(kind))?.to_string();
        self.stack.push(PickleValue::Storage(Rc::new(Storage { kind, key: key.to_string() })));
        Ok(())
    }

    /// Evaluates a function call. Only the few functions are known that `torch.save` writes for tensors and
    /// dictionaries; their results are built as data.
    fn call(&mut self) -> Done<()> {
        let (arguments, function) = (self.pop()?, self.pop()?);
        let (PickleValue::Tuple(arguments), PickleValue::Global(function)) = (&arguments, &function) else {
            return Err("it calls an object that is not a function".into());
        };
        match (&**function, &**arguments) {
            ("collections.OrderedDict", []) => self.dict(Vec::new()),
            ("torch._utils._rebuild_parameter", [PickleValue::Tensor(tensor), ..]) => {
                self.stack.push(PickleValue::Tensor(tensor.clone()))
            }
            (
                "torch._utils._rebuild_tensor_v2",
                [
                    PickleValue::Storage(storage),
                    PickleValue::Int(offset),
                    PickleValue::Tuple(dims),
                    PickleValue::Tuple(strides),
                    ..,
                ],
            ) => {
                let extents = |of: &[PickleValue]| of.iter().map(extent).collect::<Option<Vec<_>>>();
                let parts = extents(dims).zip(extents(strides)).zip(usize::try_from(*offset).ok());
                let ((dims, strides), offset) =
                    parts.filter(|((d, s), _)| d.len() == s.len()).ok_or("it has a tensor without a shape")?;
                self.stack.push(PickleValue::Tensor(Rc::new(TensorView {
                    storage: storage.clone(),
                    offset,
                    dims,
                    strides,
                })));
            }
            (name, _) => return Err(unknown(name)),
        }
        Ok(())
    }

    /// Collects the tensors of a dictionary and of nested ones. Visits each dictionary once, because a pickle may be
    /// cyclic.
    fn collect(
        &self,
        value: &PickleValue,
        path: String,
        depth: usize,
        seen: &mut [bool],
        found: &mut Vec<(String, Rc<TensorView>)>,
    ) -> Done<()> {
        match value {
            PickleValue::Tensor(view) => found.push((path, view.clone())),
            PickleValue::Dict(n) if !std::mem::replace(&mut seen[*n], true) => {
                if depth == DEEPEST {
                    return Err(format!("its dictionaries are nested more than {DEEPEST} deep"));
                }
                for (key, value) in &self.dicts[*n] {
                    let key = match key {
                        PickleValue::Text(key) => key.to_string(),
                        PickleValue::Int(n) => n.to_string(),
                        _ => continue,
                    };
                    let path = if path.is_empty() { key } else { format!("{path}.{key}") };
                    self.collect(value, path, depth + 1, seen, found)?;
                }
            }
            _ => {}
        }
        Ok(())
    }
}

fn extent(value: &PickleValue) -> Option<usize> {
    match value {
        PickleValue::Int(n) => usize::try_from(*n).ok(),
        _ => None,
    }
}

fn pairs(items: Vec<PickleValue>) -> Done<Vec<(PickleValue, PickleValue)>> {
    if !items.len().is_multiple_of(2) {
        return Err("it has a key without a value".into());
    }
    let mut items = items.into_iter();
    Ok(std::iter::from_fn(|| items.next().zip(items.next())).collect())
}

fn unknown(name: &str) -> String {
    format!(
        "it asks for `{name}`, and only tensors and dictionaries of them are read; save the model's state_dict() instead"
    )
}
