//! Files of measured costs: the texts that `tune` writes, and a calibration at the first use of a device.

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

/// The time that a calibration may take.
const LIMIT: Duration = Duration::from_secs(1);

/// Opens a backend. If its costs come from the folder of tuned costs, and that has no file of the device, the device is calibrated and
/// the file is written: for all later commands, Python and C.
///
/// # Errors
/// When the backend cannot be opened. A calibration that fails is a warning, for the backend's own costs remain.
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
            output::warn(&format!("cannot calibrate costs because {why}; `--costs default` leaves it out"));
            Ok(backend)
        }
    }
}

/// Returns the file of the device if costs are read from it, it is not there, and it can be written: a calibration that cannot be kept
/// would cost a second in each process.
fn missing(backend: &dyn Backend, setup: &Setup) -> Option<PathBuf> {
    let folder = setup.tuned.as_ref().filter(|_| setup.costs.is_none() && backend.calibrates())?;
    let path = folder.join(file_name(backend.name(), &backend.device()));
    (!path.exists() && fs::create_dir_all(folder).is_ok() && OutputFile::new(&path).is_ok()).then_some(path)
}

/// Calibrates a backend, writes its costs, and returns a sentence about them; `None` where the machine is too busy.
fn calibrated(listed: &Listed, backend: &dyn Backend, path: &Path) -> Result<Option<String>, Error> {
    let Some(calibration) = calibrate(listed, LIMIT)? else { return Ok(None) };
    let (fitted, measured) = (&calibration.fitted, &calibration.measured);
    let factor = |predicted: &[f64]| off(predicted.iter().copied().zip(measured.iter().map(|m| m.seconds))).exp();
    let text = described(backend, fitted, measured.len(), MeasuredBy::Calibration);
    // Without the file, the next process calibrates again.
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

/// Returns the text of a file of costs: the coefficients after the device that they were measured on.
pub fn described(backend: &dyn Backend, fitted: &Fitted, kernels: usize, by: MeasuredBy) -> String {
    let provenance = Provenance {
        backend: backend.name().into(),
        device: backend.device(),
        date: humantime::format_rfc3339_seconds(SystemTime::now()).to_string().chars().take(10).collect(),
        kernels,
        by,
    };
    // The top of a file comes before all tables.
    let (top, tables) = fitted.file.split_at(fitted.file.find("\n[").map_or(fitted.file.len(), |at| at + 1));
    let device = toml::to_string(&BTreeMap::from([("device", provenance)])).unwrap_or_default();
    let by = match by {
        MeasuredBy::Tune => "`eutectic tune`",
        MeasuredBy::Calibration => "a calibration at the first use of this device",
    };
    format!("# Fitted by {by} to {}.\n\n{top}\n{device}\n{tables}", several(kernels, "kernel"))
}
