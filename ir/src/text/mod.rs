//! The text form of graphs: S-expressions that read back as the graph that they were printed from.
//!
//! ```
//! use eutectic_ir::{lang::Source, text};
//!
//! let source = Source::new("mlp.graph", r#"
//!     (graph "mlp"
//!       (input x f32[B 128])
//!       (param w f32[128 64])
//!       (const c f32[2] { 0.5 -1.0 })
//!       (let h (add (matmul x w) (concat c (const f32[62] { 0.0 ... }) :axis -1)) :origin encoder.layer.0)
//!       (output y (act h :kind silu)))
//! "#);
//! let graph = text::parse(&source).unwrap();
//! let printed = text::print(&graph, text::Style::default());
//! assert_eq!(text::parse(&Source::new("again", printed)).unwrap(), graph);
//! ```
//!
//! A statement is `(input NAME TYPE)`, `(param NAME TYPE)`, `(state NAME TYPE)`, `(const NAME TYPE { elements })`, `(let NAME value)`,
//! `(output NAME value)` or `(update STATE value)`, which says what a state becomes at the end of a run, each with an optional `:origin` at its end, which holds for all nodes that it makes. A value is
//! a name or an application `(op value … :attribute …)`. The last element of a constant may be followed by `...`: it fills the
//! rest. `let` names are for the text only; printing numbers the values anew.
//!
//! Before the graph, a file may declare ops of its own, `(op pack/name …)`: the crate of rules reads these
//! (`eutectic_rewrites::read_graph`), because it is the rule language that says what they are made of.
//!
//! `(dim NAME :most N)` declares an extent at run time, of any length up to N (from `:least` on): what is compiled serves all of
//! them ([`crate::Dim::between`]). A dimension of that name means it from there on; other names get a number before compilation.
//!
//! `(sub NAME statement …)` is a body: a graph of its own, whose inputs are given in their order where it is named. A value is
//! also `(if PREDICATE THEN ELSE value …)`, both bodies given the values, or `(while CONDITION BODY value … :most N)`, where the
//! first values are carried, as many as the body has outputs, and the others stay; `(let (a b …) …)` names several results.
//! Both are inlined while they are read, and printed so ([`crate::Graph::branch`], [`crate::Graph::repeat`]). The op `loop` keeps its
//! body: `(loop value … :body NAME :times N :carried C :scanned S :while W)`; `get` gives each of its results.
//!
//! ```
//! use eutectic_ir::{lang::Source, text};
//!
//! let source = Source::new("halve.graph", r#"
//!     (graph "halve"
//!       (input x f32[])
//!       (sub large (input y f32[]) (output large (gt y (const f32[] { 1.0 }))))
//!       (sub half (input y f32[]) (output y (mul y (const f32[] { 0.5 }))))
//!       (output y (while large half x :most 4)))
//! "#);
//! let graph = text::parse(&source).unwrap();
//! assert!(graph.nodes().all(|(_, n)| n.op.name() != "while"));
//! ```

mod control;
mod parse;
mod print;

pub use parse::{parse, parse_form};
pub use print::{Style, print};
