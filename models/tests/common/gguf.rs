//! Writes GGUF files of version 3 for tests, with any metadata and tensors.

/// A GGUF file that is being built.
#[derive(Clone, Default)]
pub struct Writer {
    metadata: Vec<(String, u32, Vec<u8>)>,
    tensors: Vec<(String, Vec<u64>, u32, Vec<u8>)>,
}

fn text(text: &str) -> Vec<u8> {
    [&(text.len() as u64).to_le_bytes()[..], text.as_bytes()].concat()
}

impl Writer {
    /// Adds a metadata value. `kind` is the number of its kind.
    pub fn value(mut self, key: &str, kind: u32, bytes: Vec<u8>) -> Writer {
        self.metadata.push((key.into(), kind, bytes));
        self
    }

    pub fn u32(self, key: &str, value: u32) -> Writer {
        self.value(key, 4, value.to_le_bytes().into())
    }

    pub fn flag(self, key: &str, value: bool) -> Writer {
        self.value(key, 7, vec![value.into()])
    }

    pub fn text(self, key: &str, value: &str) -> Writer {
        self.value(key, 8, text(value))
    }

    pub fn texts(self, key: &str, values: &[&str]) -> Writer {
        let head = [&8_u32.to_le_bytes()[..], &(values.len() as u64).to_le_bytes()].concat();
        self.value(key, 9, [head, values.iter().flat_map(|value| text(value)).collect()].concat())
    }

    /// Adds a metadata value that is an array of `f32`.
    pub fn numbers(self, key: &str, values: &[f32]) -> Writer {
        let head = [&6_u32.to_le_bytes()[..], &(values.len() as u64).to_le_bytes()].concat();
        self.value(key, 9, [head, values.iter().flat_map(|x| x.to_le_bytes()).collect()].concat())
    }

    pub fn integers(self, key: &str, values: &[i32]) -> Writer {
        let head = [&5_u32.to_le_bytes()[..], &(values.len() as u64).to_le_bytes()].concat();
        self.value(key, 9, [head, values.iter().flat_map(|x| x.to_le_bytes()).collect()].concat())
    }

    /// Adds a tensor. `format` is the number of its format, and the innermost of `dims` comes first.
    pub fn tensor(mut self, name: &str, dims: &[u64], format: u32, bytes: Vec<u8>) -> Writer {
        self.tensors.push((name.into(), dims.into(), format, bytes));
        self
    }

    pub fn bytes(&self) -> Vec<u8> {
        let mut file = b"GGUF\x03\0\0\0".to_vec();
        file.extend((self.tensors.len() as u64).to_le_bytes());
        file.extend((self.metadata.len() as u64).to_le_bytes());
        for (key, kind, bytes) in &self.metadata {
            file.extend([text(key), kind.to_le_bytes().into(), bytes.clone()].concat());
        }
        let mut at = 0_u64;
        for (name, dims, format, bytes) in &self.tensors {
            file.extend([text(name), (dims.len() as u32).to_le_bytes().into()].concat());
            file.extend(dims.iter().flat_map(|n| n.to_le_bytes()));
            file.extend([&format.to_le_bytes()[..], &at.to_le_bytes()].concat());
            at += (bytes.len() as u64).next_multiple_of(32);
        }
        for (.., bytes) in &self.tensors {
            file.resize(file.len().next_multiple_of(32), 0);
            file.extend(bytes);
        }
        file
    }
}
