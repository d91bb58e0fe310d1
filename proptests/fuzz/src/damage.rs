//! Damages files within their structure.

use std::io::{Cursor, Read, Write};

use fastrand::Rng;
use zip::{CompressionMethod, ZipArchive, ZipWriter, write::SimpleFileOptions};

use crate::readers::Form;

/// Numbers at which arithmetic often fails.
const NUMBERS: [i64; 14] =
    [0, 1, -1, 2, 127, 255, 256, 65_536, i32::MAX as i64, 1 << 32, 1 << 40, 1 << 62, i64::MAX, i64::MIN];

/// Words that replace a word of a text: numbers, and values of other kinds.
const WORDS: [&str; 22] = [
    "0",
    "1",
    "-1",
    "2",
    "65536",
    "4294967296",
    "9223372036854775807",
    "-9223372036854775808",
    "18446744073709551616",
    "1e308",
    "1e-320",
    "nan",
    "-inf",
    "0.1",
    "\"\"",
    "null",
    "true",
    "[]",
    "{}",
    "()",
    "...",
    "?x",
];

/// The maximal depth of nested messages in which fields are damaged.
const DEPTH: usize = 12;

/// Returns a file of a corpus, damaged in one to four ways.
///
/// # Panics
/// If the corpus is empty.
pub fn damaged(form: Form, corpus: &[Vec<u8>], random: &mut Rng) -> Vec<u8> {
    let mut file = corpus[random.usize(..corpus.len())].clone();
    for _ in 0..random.usize(1..5) {
        let other = &corpus[random.usize(..corpus.len())];
        // One in six ways ignores the form of the file, and damages bytes.
        let form = if random.u8(..6) == 0 { Form::Bytes } else { form };
        file = match form {
            Form::Bytes => bytes(file, other, random),
            Form::Text => text(&file, other, random),
            Form::Fields => fields(&file, other, random, DEPTH),
            Form::Headed => headed(&file, other, random),
            Form::Array => array(&file, other, random),
            Form::Archive => archive(&file, random),
        };
    }
    file
}

/// Returns a range within a length. It is mostly short, and empty only if the length is 0.
fn range(length: usize, random: &mut Rng) -> std::ops::Range<usize> {
    if length == 0 {
        return 0..0;
    }
    let at = random.usize(..length);
    let most = if random.u8(..8) == 0 { length - at } else { (length - at).min(16) };
    at..at + random.usize(..most) + 1
}

fn bytes(mut file: Vec<u8>, other: &[u8], random: &mut Rng) -> Vec<u8> {
    if file.is_empty() {
        return other.to_vec();
    }
    let at = random.usize(..file.len());
    let part = range(file.len(), random);
    match random.u8(..9) {
        0 => file[at] ^= 1 << random.u8(..8),
        1 => file[at] = random.u8(..),
        2 => drop(file.drain(part)),
        3 => drop(file.splice(at..at, file[part].to_vec())),
        4 => drop(file.splice(part, other[range(other.len(), random)].iter().copied())),
        5 => file.truncate(at),
        6 => file.extend_from_slice(&other[range(other.len(), random)]),
        _ => {
            let number = NUMBERS[random.usize(..NUMBERS.len())].wrapping_add(random.i64(-2..3));
            let width = 1_usize << random.u32(..4);
            let mut number = number.to_le_bytes();
            if random.bool() {
                number[..width].reverse();
            }
            for (byte, new) in file[at..].iter_mut().zip(&number[..width]) {
                *byte = *new;
            }
        }
    }
    file
}

/// Returns the words, strings, brackets and other characters of a text, and the blanks between them.
fn tokens(text: &str) -> Vec<&str> {
    let word = |c: char| c.is_alphanumeric() || "_.?-+/".contains(c);
    let mut found = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let end = match first {
            '"' => rest[1..].find('"').map_or(rest.len(), |end| end + 2),
            c if word(c) => rest.find(|c| !word(c)).unwrap_or(rest.len()),
            c if c.is_whitespace() => rest.find(|c: char| !c.is_whitespace()).unwrap_or(rest.len()),
            c => c.len_utf8(),
        };
        found.push(&rest[..end]);
        rest = &rest[end..];
    }
    found
}

/// Returns the range from a token to the bracket that closes it, or the token alone if it opens no bracket.
fn part(tokens: &[&str], from: usize) -> std::ops::Range<usize> {
    let mut depth = 0_usize;
    for (at, token) in tokens.iter().enumerate().skip(from) {
        match *token {
            "(" | "[" | "{" => depth += 1,
            ")" | "]" | "}" => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth == 0 {
            return from..at + 1;
        }
    }
    from..tokens.len()
}

fn text(file: &[u8], other: &[u8], random: &mut Rng) -> Vec<u8> {
    let (file, other) = (String::from_utf8_lossy(file), String::from_utf8_lossy(other));
    let (mut own, other) = (tokens(&file), tokens(&other));
    if own.is_empty() || other.is_empty() {
        return other.concat().into_bytes();
    }
    // Blanks are not replaced.
    let mut place = |of: &[&str]| {
        let tries = (0..8).map(|_| random.usize(..of.len())).collect::<Vec<_>>();
        tries.iter().copied().find(|at| !of[*at].trim().is_empty()).unwrap_or(tries[0])
    };
    let (at, to, from) = (place(&own), place(&own), place(&other));
    let (own_part, other_part) = (part(&own, at), part(&other, from));
    match random.u8(..9) {
        0 => own[at] = WORDS[random.usize(..WORDS.len())],
        1 => own[at] = other[from],
        2 => own.swap(at, to),
        3 => drop(own.drain(own_part)),
        4 => {
            let copy = own[own_part].to_vec();
            own.splice(to..to, copy);
        }
        5 => drop(own.splice(own_part, other[other_part].iter().copied())),
        6 => drop(own.splice(at..at, other[other_part].iter().copied())),
        7 => own[at] = own[to],
        _ => own[at] = "",
    }
    own.concat().into_bytes()
}

/// A field of a protocol buffer: its key, and its value as it is stored, without the length prefix of bytes.
struct Field<'b> {
    key: u64,
    value: &'b [u8],
}

fn varint(bytes: &[u8]) -> Option<(u64, usize)> {
    let mut value = 0_u64;
    for (at, byte) in bytes.iter().enumerate().take(10) {
        value |= u64::from(byte & 127).checked_shl(7 * at as u32).unwrap_or(0);
        if byte & 128 == 0 {
            return Some((value, at + 1));
        }
    }
    None
}

fn put_varint(mut value: u64, to: &mut Vec<u8>) {
    while value > 127 {
        to.push(value as u8 | 128);
        value >>= 7;
    }
    to.push(value as u8);
}

/// Returns the fields of a message, or `None` if the bytes are not a message.
fn split(mut bytes: &[u8]) -> Option<Vec<Field<'_>>> {
    let mut found = Vec::new();
    while !bytes.is_empty() {
        let (key, used) = varint(bytes)?;
        bytes = &bytes[used..];
        let (skipped, length) = match key & 7 {
            0 => (0, varint(bytes)?.1),
            1 => (0, 8),
            2 => {
                let (length, used) = varint(bytes)?;
                (used, usize::try_from(length).ok()?)
            }
            5 => (0, 4),
            _ => return None,
        };
        let value = bytes.get(skipped..skipped.checked_add(length)?)?;
        found.push(Field { key, value });
        bytes = &bytes[skipped + length..];
    }
    (!found.is_empty()).then_some(found)
}

fn put(key: u64, value: &[u8], to: &mut Vec<u8>) {
    put_varint(key, to);
    if key & 7 == 2 {
        put_varint(value.len() as u64, to);
    }
    to.extend_from_slice(value);
}

fn fields(file: &[u8], other: &[u8], random: &mut Rng, depth: usize) -> Vec<u8> {
    let Some(own) = split(file) else { return bytes(file.to_vec(), other, random) };
    let at = random.usize(..own.len());
    let (mut out, nested) = (Vec::new(), own[at].key & 7 == 2);
    if nested && depth > 0 && random.u8(..4) > 0 {
        // Damages the contents of the field. Its counterpart is a field of the same number in the other file, if there
        // is one.
        let others = split(other).unwrap_or_default();
        let same: Vec<&Field<'_>> = others.iter().filter(|field| field.key == own[at].key).collect();
        let other = if same.is_empty() { other } else { same[random.usize(..same.len())].value };
        for (n, field) in own.iter().enumerate() {
            match n == at {
                true => put(field.key, &fields(field.value, other, random, depth - 1), &mut out),
                false => put(field.key, field.value, &mut out),
            }
        }
        return out;
    }
    let others = split(other).unwrap_or_default();
    let way = random.u8(..7);
    for (n, field) in own.iter().enumerate() {
        if n != at {
            put(field.key, field.value, &mut out);
            continue;
        }
        match (way, field.key & 7) {
            (0, _) => {}
            (1, _) => (0..random.usize(2..5)).for_each(|_| put(field.key, field.value, &mut out)),
            (2, _) if !others.is_empty() => {
                let other = &others[random.usize(..others.len())];
                put(other.key, other.value, &mut out);
            }
            (3, _) => put(field.key ^ (8 << random.u32(..4)), field.value, &mut out),
            (_, 0) => {
                let mut number = Vec::new();
                put_varint(NUMBERS[random.usize(..NUMBERS.len())].wrapping_add(random.i64(-2..3)) as u64, &mut number);
                put(field.key, &number, &mut out);
            }
            (4, 2) if own.len() > 1 => put(field.key, own[random.usize(..own.len())].value, &mut out),
            (_, 2) => put(field.key, &bytes(field.value.to_vec(), other, random), &mut out),
            _ => put(field.key, &random.u64(..).to_le_bytes()[..field.value.len()], &mut out),
        }
    }
    out
}

/// Returns a file with a damaged header, whose stated length is right.
fn headed(file: &[u8], other: &[u8], random: &mut Rng) -> Vec<u8> {
    let header = |file: &[u8]| {
        let length = usize::try_from(u64::from_le_bytes(*file.first_chunk()?)).ok()?;
        Some(file.get(8..8_usize.checked_add(length)?)?.to_vec())
    };
    let (Some(own), Some(other)) = (header(file), header(other)) else { return bytes(file.to_vec(), other, random) };
    let damaged = text(&own, &other, random);
    [&(damaged.len() as u64).to_le_bytes(), &damaged[..], &file[8 + own.len()..]].concat()
}

/// Returns an array file with a damaged header, whose stated length is right.
fn array(file: &[u8], other: &[u8], random: &mut Rng) -> Vec<u8> {
    let header = |file: &[u8]| {
        let length = usize::from(u16::from_le_bytes(*file.get(8..)?.first_chunk()?));
        Some(file.get(10..10 + length)?.to_vec())
    };
    let (Some(own), Some(other)) = (header(file), header(other)) else { return bytes(file.to_vec(), other, random) };
    let damaged = text(&own, &other, random);
    let Ok(length) = u16::try_from(damaged.len()) else { return bytes(file.to_vec(), &other, random) };
    [&file[..8], &length.to_le_bytes(), &damaged, &file[10 + own.len()..]].concat()
}

/// Returns an archive with damaged files, whose directory and checksums are right.
fn archive(file: &[u8], random: &mut Rng) -> Vec<u8> {
    repacked(file, random).unwrap_or_else(|| bytes(file.to_vec(), file, random))
}

fn repacked(file: &[u8], random: &mut Rng) -> Option<Vec<u8>> {
    let mut archive = ZipArchive::new(Cursor::new(file)).ok()?;
    let mut files: Vec<(String, Vec<u8>)> = Vec::new();
    for at in 0..archive.len() {
        let mut entry = archive.by_index(at).ok()?;
        let (name, mut content) = (entry.name().ok()?.to_string(), Vec::new());
        entry.read_to_end(&mut content).ok()?;
        files.push((name, content));
    }
    let count = files.len();
    if count == 0 {
        return None;
    }
    let (at, other) = (random.usize(..count), random.usize(..count));
    match random.u8(..8) {
        0 => drop(files.remove(at)),
        1 => files[at].0 = files[other].0.replace("data", ""),
        2 => files[at].1 = files[other].1.clone(),
        _ => files[at].1 = bytes(std::mem::take(&mut files[at].1), file, random),
    }
    let mut zip = ZipWriter::new(Cursor::new(Vec::new()));
    let stored = SimpleFileOptions::default().compression_method(CompressionMethod::Stored);
    for (name, content) in files {
        // The writer refuses two files of one name.
        if zip.start_file(name, stored).is_ok() {
            zip.write_all(&content).ok()?;
        }
    }
    Some(zip.finish().ok()?.into_inner())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn undamaged_parts_of_a_file_are_kept() {
        let message = [vec![8, 150, 1], vec![18, 2, b'h', b'i'], vec![29, 0, 0, 128, 63]].concat();
        let mut again = Vec::new();
        split(&message).unwrap().iter().for_each(|field| put(field.key, field.value, &mut again));
        assert_eq!(again, message);
        let text = "(rule a/b ;; c\n \"d e\" ?f 0.5)";
        assert_eq!(tokens(text).concat(), text);
        assert_eq!(part(&tokens(text), 0), 0..tokens(text).len());
    }
}
