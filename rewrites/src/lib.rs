//! Rewriting: rules as data, an e-graph, and the engine that saturates it.
//!
//! Only this crate uses `egg`. It reads rule files, types every rule, and searches and applies rules in phases. The
//! result is the saturated e-graph as plain data ([`eutectic_ir::eclasses::EClasses`]).
//!
//! ```text
//! *.rules ── parse ── rule: types, guards ── pattern (left), recipe (right) ── RuleSet
//!                                                                                │
//! Graph ── legal ── egraph ── engine, phase by phase: match → guard → apply → congruence ── classes ── EClasses
//!                                  ↑                                │
//!                                  └── until nothing changes, or a limit is met
//! ```
//!
#![doc = include_str!("../LANGUAGE.md")]
//!
//! # Why egg's e-graph, and neither its patterns nor its `Runner`
//!
//! The e-graph, its hash-consing, congruence and analysis are egg's. Searching, applying and scheduling are ours, each
//! for one reason:
//! - *Attributes are in an e-node's head.* An `egg::Pattern` binds classes, so that `:axis`, `:perm` and `:eps` would
//!   each be a leaf child with its own class. Here they are checked in the head, and rules compute with them.
//! - *A match is more than a substitution.* The guard solves for dims and attributes (`(* 2 H)`, `broadcast`,
//!   `permute`) from the types of the matched classes and from the matched e-nodes. An `egg::Subst` holds only classes.
//! - *Several roots and groups.* `egg::MultiPattern` joins roots by product, which grows quadratically. Here they are
//!   joined at shared subterms, and a group takes the maximal set of members at once.
//! - *Limits are counts.* `egg::Runner` also stops by the clock, and its `BackoffScheduler` bans rules by their number
//!   of matches. The result then depends on the machine, or on rules that do not fire. Here rules run in phases, and
//!   `once` rules run on the initial e-graph of their phase. [`EngineLimits::applications`] bounds each rule at each
//!   node of the program, independently of other rules.
//! - *Extraction is by plans of kernels* (the crate `eutectic-lowering`). The cost of an e-node depends on the ops with
//!   which it is fused, so that `egg::Extractor`'s cost of a tree is meaningless.
//!
//! egg's own tools still work on these rules. [`interop`] converts each single rule to egg's `Searcher` and `Applier`,
//! so that egg's `Runner`, schedulers and extractors work on this e-graph. A test saturates random programs both ways and
//! compares the classes, nodes and costs. Groups and `once` rules are not single matches, so egg has no
//! counterpart for them.
//!
//! # From Rust
//!
//! ```
//! use eutectic_ir::{DType, Graph, Type};
//! use eutectic_rewrites::{Choice, Options, RuleSet, optimize};
//!
//! let mut graph = Graph::new("twice negated");
//! let x = graph.input("x", Type::tensor(DType::F32, &[2, 3]))?;
//! let y = graph.apply("neg", &[x], &[])?;
//! let y = graph.apply("neg", &[y], &[])?;
//! graph.output("y", y)?;
//! let rules = RuleSet::embedded()?.choose(&Choice::default())?;
//! let rewritten = optimize(&graph, &rules, &Options::default())?;
//! let output = &rewritten.classes.classes[rewritten.classes.outputs[0]];
//! assert!(output.nodes.iter().any(|n| n.op.name() == "input"));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod apply;
mod built;
mod check;
mod circles;
mod classes;
mod declare;
mod definition;
mod device;
mod egraph;
mod engine;
pub mod expr;
mod forms;
pub mod glob;
mod guard;
mod instance;
mod instantiate;
pub mod interop;
mod left;
mod legal;
mod lint;
mod load;
mod log;
mod optimize;
mod own_ops;
mod pack;
mod parse;
mod pattern;
mod phase;
mod proof;
mod recipe;
pub mod rule;
mod ruleset;
mod sample;
mod term_types;
mod terms;
mod verdict;
mod why;

/// The documentation of the rule language in Markdown: rules, declared ops, and errors.
pub const LANGUAGE: &str = include_str!("../LANGUAGE.md");

pub use circles::circles;
pub use definition::defining_rule;
pub use device::{Device, LIMITS, LimitGuard};
pub use engine::{EngineLimits, PhaseReport, RuleStatistics, Stop};
pub use instance::{Probe, Sides, Unmatched};
pub use lint::{Lint, lint};
pub use optimize::{Applied, Observed, Options, RewriteError, Rewritten, optimize};
pub use own_ops::{OpClash, graph_types, read_graph};
pub use pack::{
    EXTENSION as PACK_EXTENSION, LANGUAGE_VERSION, MANIFEST, Manifest, Mutants, Pack, PackFile, Stamp, is_pack_file,
};
pub use parse::{CONTRACTS, RULE_PARTS, TOP_FORMS, declarations::KINDS, op_form::OP_PARTS};
pub use phase::{OwnPhase, Phase};
pub use proof::{Claim, FILE as PROOFS, Proof, Proofs};
pub use rule::{Contract, Rule};
pub use ruleset::{Choice, Fp, LoadError, Precision, RuleSet};
pub use sample::{Choices, Sample, draw};
pub use term_types::term_types;
pub use why::{NearMiss, Why, why};
