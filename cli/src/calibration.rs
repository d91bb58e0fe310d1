//! Files of measured costs: their text, and a calibration when a device is first used.

use std::{
    collections::BTreeMap,
    fs,
    io::{self, Write},
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant, SystemTime},
};

use eutectic::{
    Backend, Error, Listed, Setup, calibrate,
    engine::backend::{
        costs::{MeasuredBy, Provenance},
        file_name,
        fit::{Fitted, off},
    },
};

use crate::{
    output::{self, OutputFile},
    table::{seconds, several},
};

/// The limit on the time of a calibration.
const LIMIT: Duration = Duration::from_secs(1);

/// Opens a backend. If its costs would come from the folder of tuned costs, and the folder has no file for the device,
/// this calibrates the device and writes the file. All later commands, and the Python and C interfaces, read that file.
///
/// # Errors
/// If the backend cannot be opened. A failed calibration only causes a warning, because the backend's own costs are
/// usable.
pub fn open(listed: &Listed, setup: &Setup) -> Result<Arc<dyn Backend>, Error> {
    let backend = listed.open(setup)?;
    let Some(path) = missing(&*backend, setup) else { return Ok(backend) };
    let start = Instant::now();
    match calibrated(listed, &*backend, &path) {
        Ok(Some(told)) => {
            output::note(&format!(
                "{told} in {}; `eutectic tune` fits all of them",
                seconds(start.elapsed().as_secs_f64())
            ));
            listed.open(setup)
        }
        Ok(None) => Ok(backend),
        Err(why) => {
            output::warn(&format!("cannot calibrate costs because {why}; `--costs default` skips the calibration"));
            Ok(backend)
        }
    }
}

/// Returns the path of the device's file if costs would be read from it, it is missing, and it can be written. A
/// calibration that cannot be kept would cost each process a second.
fn missing(backend: &dyn Backend, setup: &Setup) -> Option<PathBuf> {
    let folder = setup.tuned.as_ref().filter(|_| setup.costs.is_none() && backend.calibrates())?;
    let path = folder.join(file_name(backend.name(), &backend.device()));
    (!path.exists() && fs::create_dir_all(folder).is_ok() && OutputFile::new(&path).is_ok()).then_some(path)
}

/// Calibrates a backend and writes its costs. Returns a description for the user, or `None` if the machine is too busy
/// to measure.
fn calibrated(listed: &Listed, backend: &dyn Backend, path: &Path) -> Result<Option<String>, Error> {
    let Some(calibration) = calibrate(listed, LIMIT)? else { return Ok(None) };
    let (fitted, measured) = (&calibration.fitted, &calibration.measured);
    let factor = |predicted: &[f64]| off(predicted.iter().copied().zip(measured.iter().map(|m| m.seconds))).exp();
    let text = described(backend, fitted, measured.len(), MeasuredBy::Calibration);
    // If the file is not written, the next process calibrates again.
    if let Err(e) = write(path, &text) {
        output::warn(&format!("cannot keep costs because {} cannot be written: {e}", path.display()));
    }
    Ok(Some(format!(
        "costs of {} were calibrated by {} (predictions off by {:.2}, {:.2} before)",
        backend.device(),
        several(measured.len(), "kernel"),
        factor(&fitted.after),
        factor(&fitted.before),
    )))
}

fn write(path: &Path, text: &str) -> io::Result<()> {
    let mut file = OutputFile::new(path)?;
    file.write_all(text.as_bytes())?;
    file.done()
}

/// Returns the text of a file of costs: a comment, the device on which they were measured, and the coefficients.
pub fn described(backend: &dyn Backend, fitted: &Fitted, kernels: usize, by: MeasuredBy) -> String {
    let provenance = Provenance {
        backend: backend.name().into(),
        device: backend.device(),
        date: humantime::format_rfc3339_seconds(SystemTime::now()).to_string().chars().take(10).collect(),
        kernels,
        by,
    };
    // In TOML, values at the top level must precede all tables.
    let (top, tables) = fitted.file.split_at(fitted.file.find("\n[").map_or(fitted.file.len(), |at| at + 1));
    let device = toml::to_string(&BTreeMap::from([("device", provenance)])).unwrap_or_default();
    let by = match by {
        MeasuredBy::Tune => "`eutectic tune`",
        MeasuredBy::Calibration => "a calibration at the first use of this device",
    };
    format!("# Fitted by {by} to {}.\n\n{top}\n{device}\n{tables}", several(kernels, "kernel"))
}
