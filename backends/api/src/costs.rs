//! Coefficients of cost models: how a backend declares them, and files that state some of them.
//!
//! A file of costs states coefficients in the units of their [`Quantity`], as numbers (`dram = 2e10`) or with a unit
//! (`dram = "20 GB/s"`). Coefficients that the file leaves out keep their values. The table `[device]` names the device
//! on which they were measured ([`Provenance`]). Backends refuse costs that were measured on another device.

use eutectic_ir::lang::sexp::nearest;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use toml::{Table, Value};

/// The quantity of a coefficient: the unit of its value, and the range of valid values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quantity {
    /// A time in seconds.
    Seconds,
    /// A time in seconds, which may be 0.
    SecondsOrNone,
    /// A size in bytes.
    Bytes,
    /// A rate in bytes per second.
    BytesPerSecond,
    /// A rate in operations per second.
    OpsPerSecond,
    /// A positive number without a unit.
    Count,
    /// A number without a unit, which may be 0.
    CountOrNone,
    /// A fraction from 0 to 1.
    Share,
}

/// A coefficient of a cost model.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Coefficient {
    /// The table of the file that has the coefficient; `None` if it is not in a table.
    pub table: Option<&'static str>,
    /// The coefficient's name in the table.
    pub name: &'static str,
    /// The description of the coefficient. It is printed as a comment in files of costs.
    pub doc: &'static str,
    /// The unit of the value, and the range of valid values.
    pub quantity: Quantity,
    /// The value in the base unit: seconds, bytes, or bytes or operations per second.
    pub value: f64,
}

/// The device on which costs were measured, as table `[device]` of a file states it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Provenance {
    /// The name of the backend.
    pub backend: String,
    /// The device, as [`Backend::device`](crate::Backend::device) names it.
    pub device: String,
    /// The day of the measurement, as `2026-11-30`.
    pub date: String,
    /// The number of measured kernels.
    pub kernels: usize,
    /// The kind of the measurement.
    #[serde(default)]
    pub by: MeasuredBy,
}

/// The kind of a measurement that costs were fitted to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MeasuredBy {
    /// `eutectic tune`: hundreds of kernels, to which each coefficient was fitted.
    #[default]
    Tune,
    /// Calibration at the first use of the device: a dozen programs, to which only rates were fitted.
    Calibration,
}

/// The coefficients of a backend's cost model, and the measurement that they come from.
#[derive(Clone, Debug)]
pub struct CostSheet {
    /// The coefficients, in the order of the file.
    pub coefficients: Vec<Coefficient>,
    /// Lists of ops, each with its table, its name and the ops.
    pub lists: Vec<(&'static str, &'static str, Vec<String>)>,
    /// The measurement that the coefficients come from; `None` for the backend's defaults.
    pub provenance: Option<Provenance>,
}

/// Declares a struct of coefficients. Each field is an `f64` with its documentation and its [`Quantity`]. Optional
/// sections add further fields: structs of coefficients that are `tables` of the file, structs whose coefficients are
/// `flattened` into the same level of the file, and `others`, which have no coefficients.
#[macro_export]
macro_rules! cost_table {
    (
        $(#[$meta:meta])*
        pub struct $name:ident { $($(#[doc = $doc:literal])+ $field:ident: $quantity:ident,)* }
        $(tables { $($(#[$table_meta:meta])* $table:ident: $table_type:ty,)* })?
        $(flattened { $($(#[$flat_meta:meta])* $flat:ident: $flat_type:ty,)* })?
        $(others { $($(#[$other_meta:meta])* $other:ident: $other_type:ty,)* })?
    ) => {
        $(#[$meta])*
        pub struct $name {
            $($(#[doc = $doc])+ pub $field: f64,)*
            $($($(#[$table_meta])* pub $table: $table_type,)*)?
            $($($(#[$flat_meta])* #[serde(flatten)] pub $flat: $flat_type,)*)?
            $($($(#[$other_meta])* pub $other: $other_type,)*)?
        }

        impl $name {
            /// Returns the declarations of the struct's coefficients, with their values.
            pub fn coefficients(&self) -> Vec<$crate::costs::Coefficient> {
                #[allow(unused_mut, reason = "structs without further ones add nothing")]
                let mut all = vec![$($crate::costs::Coefficient {
                    table: None,
                    name: stringify!($field),
                    doc: concat!($($doc),+),
                    quantity: $crate::costs::Quantity::$quantity,
                    value: self.$field,
                },)*];
                $($(all.extend(self.$flat.coefficients());)*)?
                $($(all.extend($crate::costs::of_table(stringify!($table), self.$table.coefficients()));)*)?
                all
            }
        }
    };
}

/// Returns the coefficients of a table of the file.
#[doc(hidden)]
pub fn of_table(table: &'static str, coefficients: Vec<Coefficient>) -> impl Iterator<Item = Coefficient> {
    coefficients.into_iter().map(move |coefficient| Coefficient { table: Some(table), ..coefficient })
}

impl Coefficient {
    /// Returns the coefficient's name in messages, with its table: `memory.dram`.
    pub fn path(&self) -> String {
        self.table.map_or_else(|| self.name.into(), |table| format!("{table}.{}", self.name))
    }
}

/// The decimal prefixes of units with their exponents of 10. Of several with one exponent, the first is printed.
const PREFIXES: [(&str, i32); 12] = [
    ("p", -12),
    ("n", -9),
    ("µ", -6),
    ("μ", -6),
    ("u", -6),
    ("m", -3),
    ("", 0),
    ("k", 3),
    ("M", 6),
    ("G", 9),
    ("T", 12),
    ("P", 15),
];
/// The binary prefixes of sizes in bytes.
const BINARY: [(&str, f64); 3] = [("Ki", 1024.0), ("Mi", 1_048_576.0), ("Gi", 1_073_741_824.0)];

impl Quantity {
    /// Returns the names of the quantity's unit, starting with the one to print; empty for numbers without a unit.
    pub const fn units(self) -> &'static [&'static str] {
        match self {
            Quantity::Seconds | Quantity::SecondsOrNone => &["s"],
            Quantity::Bytes => &["B"],
            Quantity::BytesPerSecond => &["B/s"],
            Quantity::OpsPerSecond => &["op/s", "FLOP/s"],
            Quantity::Count | Quantity::CountOrNone | Quantity::Share => &[],
        }
    }

    /// Checks that the quantity can have this value.
    ///
    /// # Errors
    /// The reason why it cannot, and the valid values.
    pub fn check(self, x: f64) -> Result<(), String> {
        let zero = matches!(self, Quantity::SecondsOrNone | Quantity::CountOrNone);
        match self {
            Quantity::Share if (0.0..=1.0).contains(&x) => Ok(()),
            Quantity::Share => {
                Err(format!("cannot take {x} as a share because it is not in 0..=1; write a number between 0 and 1"))
            }
            _ if x > 0.0 && x.is_finite() || zero && x == 0.0 => Ok(()),
            _ => Err(format!(
                "cannot take {x} as a coefficient because it must be positive and finite; write a positive number"
            )),
        }
    }

    /// Parses a number with a unit, and returns it in the base unit: 1e-4 for `100 µs`.
    ///
    /// # Errors
    /// If the text has no number, or the unit of another quantity.
    pub fn read(self, text: &str) -> Result<f64, String> {
        let trimmed = text.trim();
        let is_of_number = |(at, c): (usize, char)| {
            c.is_ascii_digit()
                || ".+-".contains(c)
                || c == 'e' && trimmed[at + 1..].starts_with(|c: char| "+-0123456789".contains(c))
        };
        let split = trimmed.char_indices().find(|&at| !is_of_number(at)).map_or(trimmed.len(), |(at, _)| at);
        let (number, unit) = (&trimmed[..split], trimmed[split..].trim());
        let (digits, exponent) = number.split_once('e').unwrap_or((number, "0"));
        let scaled = |shift: i32| {
            // The prefix is added to the exponent before parsing, because multiplying afterwards would round twice.
            let exponent = exponent.parse::<i32>().ok()?.checked_add(shift)?;
            format!("{digits}e{exponent}").parse::<f64>().ok()
        };
        let binary = || {
            let is_size = self.units().iter().any(|unit| unit.starts_with('B'));
            let (_, factor) = BINARY
                .iter()
                .filter(|_| is_size)
                .find(|(prefix, _)| unit.strip_prefix(prefix).is_some_and(|base| self.units().contains(&base)))?;
            Some(scaled(0)? * factor)
        };
        let number = self.shift(unit).and_then(scaled).or_else(binary);
        number.ok_or_else(|| format!("cannot read \"{text}\" as a number {}", self.wanted()))
    }

    /// Returns the exponent of 10 of a unit with a decimal prefix; `None` if the quantity has no such unit.
    fn shift(self, unit: &str) -> Option<i32> {
        match self {
            Quantity::Share if unit == "%" => Some(-2),
            Quantity::Share | Quantity::Count | Quantity::CountOrNone => unit.is_empty().then_some(0),
            _ => self.units().iter().find_map(|base| {
                let prefix = unit.strip_suffix(base)?;
                PREFIXES.iter().find(|(known, _)| *known == prefix).map(|(_, exponent)| *exponent)
            }),
        }
    }

    fn wanted(self) -> &'static str {
        match self {
            Quantity::Seconds | Quantity::SecondsOrNone => "of seconds; write one as in \"1.5 µs\"",
            Quantity::Bytes => "of bytes; write one as in \"32 MiB\"",
            Quantity::BytesPerSecond => "of bytes per second; write one as in \"20 GB/s\"",
            Quantity::OpsPerSecond => "of operations per second; write one as in \"2 TFLOP/s\"",
            Quantity::Count | Quantity::CountOrNone => "without a unit; write one as in 4.0",
            Quantity::Share => "from 0 to 1; write one as in \"85 %\"",
        }
    }

    /// Formats a number for a file, without loss and in the largest unit in which it is at least 1.
    pub fn print(self, x: f64) -> String {
        let scientific = format!("{x:e}");
        let parts = scientific.split_once('e').and_then(|(digits, e)| Some((digits, e.parse::<i32>().ok()?)));
        let (Some(unit), Some((digits, exponent)), true) = (self.units().first(), parts, x > 0.0) else {
            return format!("{x:?}");
        };
        let Some((prefix, power)) =
            PREFIXES.iter().rev().find(|(prefix, e)| *e <= exponent && *prefix != "u" && *prefix != "μ")
        else {
            return scientific;
        };
        let digits: String = digits.chars().filter(|c| *c != '.').collect();
        let whole = usize::try_from(exponent - power).unwrap_or(0) + 1;
        let digits = format!("{digits:0<whole$}");
        let (whole, rest) = digits.split_at(whole);
        let point = if rest.is_empty() { "" } else { "." };
        format!("\"{whole}{point}{rest} {prefix}{unit}\"")
    }
}

/// Returns the `defaults` with the coefficients that a file's text states. `declared` are the coefficients of the
/// defaults.
///
/// # Errors
/// If the text is not TOML, names an unknown coefficient, or states an invalid value. The error lists all of them.
pub fn read<C: Serialize + DeserializeOwned>(defaults: &C, declared: &[Coefficient], text: &str) -> Result<C, String> {
    let mut given: Table = toml::from_str(text).map_err(|e| e.to_string())?;
    given.remove(DEVICE);
    let mut costs = Table::try_from(defaults).map_err(|e| e.to_string())?;
    let mut problems = Vec::new();
    for (name, value) in given {
        match (costs.get_mut(&name), value) {
            (Some(Value::Table(table)), Value::Table(inner)) => {
                for (field, value) in inner {
                    problems.extend(set(table, declared, Some(&name), (&field, value)).err());
                }
            }
            (_, value) => problems.extend(set(&mut costs, declared, None, (&name, value)).err()),
        }
    }
    if problems.is_empty() { C::deserialize(costs).map_err(|e| e.to_string()) } else { Err(problems.join("\n")) }
}

fn set(
    into: &mut Table,
    declared: &[Coefficient],
    table: Option<&str>,
    (name, value): (&str, Value),
) -> Result<(), String> {
    let path = table.map_or_else(|| name.into(), |table| format!("{table}.{name}"));
    let said = |why: String| format!("{path}: {why}");
    let value = match (declared.iter().find(|c| c.table == table && c.name == name), value) {
        (Some(coefficient), value) => {
            let number = match &value {
                Value::Float(x) => *x,
                Value::Integer(n) => *n as f64,
                Value::String(text) => coefficient.quantity.read(text).map_err(said)?,
                _ => return Err(said(format!("cannot read {value} as a number {}", coefficient.quantity.wanted()))),
            };
            coefficient.quantity.check(number).map_err(said)?;
            Value::Float(number)
        }
        // A list of names. The backend checks the names.
        (None, value @ Value::Array(_)) if into.get(name).is_some_and(Value::is_array) => value,
        (None, _) => {
            let names: Vec<String> = declared.iter().map(Coefficient::path).collect();
            let near = nearest(&path, names.iter().map(String::as_str)).map(|near| format!("; did you mean `{near}`?"));
            let near = near.unwrap_or_else(|| "; `eutectic costs` prints all".into());
            return Err(format!("{path}: there is no such coefficient{near}"));
        }
    };
    into.insert(name.into(), value);
    Ok(())
}

/// The name of the table that names the device.
const DEVICE: &str = "device";

/// Returns the device on which a file's costs were measured; `None` if the file names no device.
///
/// # Errors
/// If the text is not TOML, or the table `[device]` is not a valid [`Provenance`].
pub fn provenance(text: &str) -> Result<Option<Provenance>, String> {
    let file: Table = toml::from_str(text).map_err(|e| e.to_string())?;
    let device = file.get(DEVICE).cloned();
    device.map(|table| Provenance::deserialize(table).map_err(|e| format!("[device]: {}", e.message()))).transpose()
}

/// Returns a file's text without the table `[device]`.
///
/// # Errors
/// If the text is not TOML.
pub fn without_device(text: &str) -> Result<String, String> {
    let mut file: Table = toml::from_str(text).map_err(|e| e.to_string())?;
    file.remove(DEVICE);
    toml::to_string(&file).map_err(|e| e.to_string())
}

/// Returns the text of a file of costs: each coefficient after a comment that describes it, and the device on which the
/// coefficients were measured.
pub fn print(sheet: &CostSheet) -> String {
    let line = |c: &&Coefficient| format!("# {}\n{} = {}\n", c.doc.trim(), c.name, c.quantity.print(c.value));
    let of = |table: Option<&str>| sheet.coefficients.iter().filter(|c| c.table == table).collect::<Vec<_>>();
    let list = |(_, name, ops): &(&str, &str, Vec<String>)| format!("{name} = {ops:?}\n");
    let lists_of = |table: &str| sheet.lists.iter().filter(|list| list.0 == table).map(list).collect::<String>();
    let named = sheet.coefficients.iter().filter_map(|c| c.table);
    let mut tables: Vec<&str> = named.chain(sheet.lists.iter().map(|list| list.0)).collect();
    tables.dedup();
    // Keys without a table come before all tables.
    let mut parts = vec![of(None).iter().map(line).collect::<String>()];
    let device = sheet.provenance.as_ref().and_then(|provenance| toml::to_string(provenance).ok());
    parts.extend(device.map(|device| format!("[{DEVICE}]\n{device}")));
    let table = |t: &&str| format!("[{t}]\n{}{}", of(Some(*t)).iter().map(line).collect::<String>(), lists_of(t));
    parts.extend(tables.iter().map(table));
    parts.retain(|part| !part.is_empty());
    parts.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    cost_table! {
        /// Costs of a test.
        #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
        pub struct Costs {
            /// The time of the launch of a kernel.
            launch: SecondsOrNone,
            /// Of each further
            /// thread.
            thread: Share,
        }
        tables {
            /// The costs of memory.
            memory: MemoryCosts,
        }
        others {
            /// Ops that are dear.
            dear: Vec<String>,
        }
    }

    cost_table! {
        /// Memory of a test.
        #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
        pub struct MemoryCosts {
            /// The rate of loads from memory.
            dram: BytesPerSecond,
            /// The size of the cache.
            cache: Bytes,
        }
    }

    fn costs() -> Costs {
        let memory = MemoryCosts { dram: 2e10, cache: 1e6 };
        Costs { launch: 1.8e-7, thread: 0.85, memory, dear: vec!["exp".into()] }
    }

    fn read_over(text: &str) -> Result<Costs, String> {
        read(&costs(), &costs().coefficients(), text)
    }

    #[test]
    fn files_state_some_coefficients_with_units() {
        let text = "launch = \"100 µs\"\nthread = \"50 %\"\ndear = [\"sin\"]\n[memory]\ndram = \"1.5 TB/s\"\ncache = \"32 MiB\"";
        let read = read_over(text).unwrap();
        assert_eq!((read.launch, read.thread, read.dear), (1e-4, 0.5, vec!["sin".to_string()]));
        assert_eq!(read.memory, MemoryCosts { dram: 1.5e12, cache: 33_554_432.0 });
        assert_eq!(read_over("").unwrap(), costs());
        let rate = |text: &str| Quantity::OpsPerSecond.read(text);
        assert_eq!((rate("2 TFLOP/s"), rate("1.5e3 Gop/s"), rate("7 op/s")), (Ok(2e12), Ok(1.5e12), Ok(7.0)));
        for text in ["", "s", "1e", "1 e9 op/s", "1 Kop/s", "1 Kiop/s", "2", "--1 op/s", "1 op/s op/s"] {
            assert!(rate(text).is_err(), "{text}");
        }
        assert_eq!(read_over("launch = 0\n[memory]\ndram = 3").unwrap().memory.dram, 3.0);
    }

    #[test]
    fn all_problems_of_a_file_are_said_at_once() {
        let text = "lunch = 1.0\nthread = 1.5\n[memory]\ndram = \"3 ms\"\ncache = true\n[other]\nx = 1";
        let told = read_over(text).unwrap_err();
        for part in [
            "lunch: there is no such coefficient; did you mean `launch`?",
            "thread: cannot take 1.5 as a share",
            "memory.dram: cannot read \"3 ms\" as a number of bytes per second",
            "memory.cache: cannot read true",
            "other: there is no such coefficient",
        ] {
            assert!(told.contains(part), "{part} in {told}");
        }
        assert_eq!(told.lines().count(), 5, "{told}");
        assert!(read_over("launch = 1 2").unwrap_err().contains("line 1"));
    }

    #[test]
    fn printed_files_give_the_same_costs() {
        let mut odd = costs();
        odd.launch = 0.0;
        odd.memory.dram = 0.1 + 0.2;
        odd.memory.cache = 1.0 / 3.0e7;
        let mut changed = costs();
        changed.launch = 1.382_727_272_727_272_7e-7;
        for costs in [costs(), odd, changed] {
            let device = Provenance {
                backend: "cpu".into(),
                device: "a \"processor\"".into(),
                date: "2026-11-30".into(),
                kernels: 404,
                by: MeasuredBy::Tune,
            };
            for provenance in [None, Some(device)] {
                let lists = Vec::new();
                let sheet = CostSheet { coefficients: costs.coefficients(), lists, provenance: provenance.clone() };
                let text = print(&sheet);
                assert_eq!(read_over(&text).unwrap(), costs, "{text}");
                assert_eq!(super::provenance(&text).unwrap(), provenance, "{text}");
            }
        }
        assert_eq!(Quantity::Seconds.print(1.8e-7), "\"180 ns\"");
        assert_eq!(Quantity::BytesPerSecond.print(2e10), "\"20 GB/s\"");
        assert_eq!((Quantity::Seconds.print(1e-20), Quantity::Count.print(4.0)), ("1e-20".into(), "4.0".into()));
        assert_eq!(costs().coefficients()[1].doc.trim(), "Of each further thread.");
    }
}
