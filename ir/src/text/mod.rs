//! The text form of graphs: S-expressions, from which the same graph can be read again.
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
//! A statement is one of
//!
//! - `(input NAME TYPE)`, `(param NAME TYPE)` or `(state NAME TYPE)`;
//! - `(const NAME TYPE { elements })`, where `...` after the last element repeats it up to the size of the type;
//! - `(let NAME value)`, which names a value in this text only. Printing replaces such names by numbers;
//! - `(output NAME value)`;
//! - `(update STATE value)`, which sets the value of a state at the end of a run;
//! - `(dim NAME :most N)`, which declares an extent at run time;
//! - `(sub NAME statement …)`, which defines a body.
//!
//! Each statement may end in `:origin PART`, the model part of all nodes that it makes. A value is a name or an
//! application `(op value … :attribute …)`.
//!
//! Before the graph, a file may declare ops: `(op pack/name …)`. The rule language defines them, so the crate
//! `eutectic-rewrites` reads such files (`eutectic_rewrites::read_graph`).
//!
//! `(dim NAME :most N)` declares an extent at run time, of any length up to N. Its least length is 0, or the number
//! after `:least`. The compiled program serves all of these lengths ([`crate::Dim::between`]). Later dimensions with
//! this name refer to it. Dimensions with other names must be bound to numbers before compilation.
//!
//! `(sub NAME statement …)` defines a body: a separate graph. A value that uses the body passes one argument for each
//! input, in order. Three more forms of values use bodies:
//!
//! - `(if PREDICATE THEN ELSE value …)` passes the values to both bodies ([`crate::Graph::branch`]);
//! - `(while CONDITION BODY value … :most N)` carries the first values, one for each output of the body, and keeps
//!   further values constant ([`crate::Graph::repeat`]);
//! - `(loop value … :body NAME :times N :carried C :scanned S :while W)` is an op that contains its body. `get` takes
//!   one of its results.
//!
//! The reader inlines `if` and `while`, so that they are printed as other ops. `(let (a b …) …)` names several
//! results.
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

pub use parse::{STATEMENTS, parse, parse_form, types};
pub use print::{Style, print};
