//! Checks that a device computes both sides of every rule, including the backend's own rules.

use eutectic::{RuleSet, engine::rewrites::Probe, rules_of};
use eutectic_checker::{Checker, Options};

use crate::{
    device::Device,
    suite::{Check, checks},
};

pub(super) const CHECKS: &[(&str, Check)] = checks![both_sides_are_computed];

fn both_sides_are_computed(device: &Device) {
    let own = rules_of(&**device.backend()).and_then(|own| Ok(RuleSet::embedded()?.and(own)?));
    let probes: Vec<Probe> = own.unwrap_or_else(|e| panic!("{e}")).probes().collect();
    let options =
        Options { cases: Some(22), backend_cases: 4, backends: vec![device.compiler()], ..Options::default() };
    let reports =
        Checker::new(options).and_then(|checker| checker.check_all(&probes)).unwrap_or_else(|e| panic!("{e}"));
    let wrong: String = reports.iter().map(|r| r.explain(&format!("eutectic rules check '{}'", r.rule))).collect();
    assert!(wrong.is_empty(), "{wrong}");
    for report in &reports {
        (0..report.ran).for_each(|_| device.judge());
        if let Some((count, why)) = &report.refused {
            (0..*count).for_each(|_| device.refuse(|| why.clone()));
        }
    }
}
