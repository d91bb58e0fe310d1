//! The shipped rules give no reason for doubt: what `rules lint` says of them.

use eutectic::{Compiler, Cpu, CpuOptions, RuleSet};
use eutectic_checker::worth;
use eutectic_rewrites::{Choice, Lint, circles, lint};

#[test]
fn nothing_is_suspicious_about_the_shipped_rules() {
    // Those of other precisions run where these are asked for, and never together.
    let rules = RuleSet::embedded().unwrap().choose(&Choice::default()).unwrap();
    // What parallel loops gain depends on the machine.
    for threads in [1, 2, 16] {
        let cpu = Compiler::new(Cpu::new(CpuOptions { threads, ..CpuOptions::default() })).unwrap();
        let mut found: Vec<Lint> = worth::lint(&rules, &[cpu.with_rules(rules.clone())]).unwrap();
        if threads == 1 {
            found.extend(lint(&rules));
            found.extend(circles(&rules));
        }
        assert!(found.is_empty(), "{threads} threads: {found:#?}");
    }
}
