//! Rewriting: rules as data, an e-graph, and the engine that saturates it.
//!
//! This is the only crate that names `egg`. It reads rule files, types every rule, searches and applies them in
//! phases, and hands the saturated e-graph on as plain data ([`eutectic_ir::eclasses::EClasses`]).
//!
//! # The rule language
//!
//! A rule file (`*.rules`) holds rules and declarations of ops; `;` starts a comment. The `;;` comment right above a rule is its
//! documentation and must be there: state the algebra.
//!
//! ```lisp
//! ;; act(x·w + b) is one kernel with an epilogue instead of three passes over the activation
//! (rule fuse/linear-act
//!   (forall (F float) (?x F[B.. M K]) (?w F[K N]) (?b F[N]) (?a (one-of relu gelu-erf gelu-tanh silu)))
//!   (=> (act (add (matmul ?x ?w) ?b) :kind ?a)
//!       (linear ?x ?w ?b :act ?a))
//!   (eq reassoc))
//! ```
//!
//! `(rule PACK/NAME (forall …) (where …)? (let ?y …)* SIDES (eq …) FLAG*)`. The pack decides the phase:
//! `legalize` | `algebra` | `unfuse`, `templates` | `fold` | every other (`simplify`, `decompose`, `fuse`, …: the main phase).
//! Phases are cumulative: the rules of earlier phases stay active in later ones; in the last, its own run alone.
//!
//! ## `forall`: the variables
//!
//! | Declaration | The variable is |
//! |---|---|
//! | `(F float)`, `(F any)`, `int`, `number`, `signed`, `f32`, …, or several: `(F i8 i32)` | an element type of that class; of the floating ones, `f32` and `f64` are `wide`, `f16` and `bf16` `short` |
//! | `(?x F[B.. M K])` | a tensor. `B..` is a sequence of dims, `M` a dim; neither needs a declaration of its own. `(* 2 H)`, `(+ M 1)`, `(/ D 2)`, `(- A B)` are solved for their one unknown or fail to match |
//! | `(?w F[K N] const)` | a tensor computed from parameters and constants only |
//! | `(?y F[A..] varied)` | a tensor that is not known to be one number everywhere: numbers have rules of their own |
//! | `(?s float)` (or `f32`) | a number: a float attribute; or, standing as an operand on the left, a tensor whose elements are all one known number (seen through expand, reshape and arithmetic on constants); any shape |
//! | `(near ?c 0.70710678)` | such a number, within 4 eps (of its tensor's element type) of the given one; in `reassoc` and `fast` rules only |
//! | `(is ?c 1)` | such a number: the given one, as the element type holds it |
//! | `(?n int)`, `(?ax axis)`, `(?axs axes)`, `(?p perm)`, `(?s shape)`, `(?k bool)`, `(?d dtype)` | an attribute of that kind |
//! | `(?f pointwise 1)` | an op: any of a group that the op table declares ([`eutectic_ir::ops::Group`]: `pointwise`, `monotone`, `odd`, `even`, `reduction`), with so many operands. It stands as an op's name: `(?f ?x)` |
//! | `(?k (one-of none relu))` | a word attribute with one of these values; or, standing as an op's name (`(?k ?x ?y)`), the op: the rule is then one rule per word, named `pack/name[word]` |
//!
//! Every tensor must occur on the left, and what else the right side uses must occur there or be solved by a `where` relation.
//! `rules lint` reports unused declarations.
//!
//! ## Terms
//!
//! - `(op operand … :attribute value …)`. **On the left every attribute of the op must be written** (also those with
//!   defaults); on the right those with a default may be left out. Optional operands that are not written are not there:
//!   `(linear ?x ?w :act none)` matches only linears without a bias.
//! - `(?f operand …)`, where `?f` is declared as a group of ops, matches any of them; the right side applies the op that matched.
//!   Attributes that all ops of the group have alike are written (`(?r ?x :axes [-1] :keep true)` of a `reduction`); where they
//!   differ, `?f` stands for op and attributes together (`cast :to i32`), and none is written. So a new op takes part
//!   without being listed. `explain` names the op as `pack/name[op]`.
//! - `(get 1 ?t)` is short for `(get ?t :index 1)`.
//! - Attribute values on the left: a literal (`:axis -1`, `:kind relu`, `:axes [-1]`, `:perm [-1 -2]`, `:keep true`),
//!   a variable, a dim or expression over dims (`:len H`, `:at (+ H 1)`), a shape (`:shape [B.. M 1]`), an
//!   element-type variable (`:to G`).
//! - Attribute values on the right: all of these, and arithmetic over numbers, number variables, `int`s and dims:
//!   `+ - * / min max neg sqrt rsqrt reciprocal exp log pow floor` (`:at (+ ?a ?b)`, `:scale (/ 1.0 (sqrt D))`). For an integer attribute
//!   the result must be an integer, or the rule does not match. Axes are numbers there too (`:axis (- ?ax 1)`, the axis before; on the left as
//!   well); where that is none of the operand's axes, the rule does not match.
//! - Functions on the right where lists are wanted: `:perm (compose ?p ?q)` (first `?p`, then `?q`; both counted from
//!   the end), `:perm (inverse ?p)`.
//! - A number (`0.5`, `-inf`, `nan`), number variable, dim, or arithmetic on these **as an operand**: on the left a tensor whose
//!   elements all are it (`(div (reduce-sum ?x :axes [-1] :keep true) N)`): the very number, or in `reassoc` and `fast` rules what the
//!   element type holds of one within 4 eps of it, by the eps of `f32` for 16-bit types; on the right a constant of rank 0 with the
//!   element type that the op wants there. What a `reassoc` or `fast` rule computes is the nearest number that the program has already,
//!   if that is within 2 eps: then orders of rounding do not multiply. `(sqrt D)` is arithmetic where all that it is applied to are numbers.
//! - Of the leaves only `iota` may stand in a rule; constants are numbers.
//! - Commutative ops match both ways round. Nothing else is looked through.
//! - Both sides may be in the short (broadcasting) form: `(add ?x ?b)` with `?x F[B.. N]`, `?b F[N]`. The loader puts the
//!   `expand` in on both sides that the legal form has (also for the batch dims of `matmul` and the bias of `attention`),
//!   and turns a reduction with `:keep false` over trailing axes into `reshape` of the one with `:keep true`.
//!   A left side that needs an `expand` for some shapes and none for others (`B..` may be empty) is compiled in each form.
//!   Exception: the pack `legalize`, whose sides are taken as they stand, and whose left side matches only where the root is
//!   **not** in legal form (`Op::is_legal`), so that a legalization never meets its own result.
//!
//! ## Sides
//!
//! - `(=> left right)`. The right may be a variable of the left or a number.
//! - `(roots (=> l r) (=> l r) …)`: several roots, joined through the subterms that they share; each `r` may use the `let`s.
//! - `(group ?y pattern)` with `(=> ?y right)`: takes the maximal sets of nodes that match the pattern and agree in the variables that the
//!   right side does not *splat* (`?w..` = the variable's values in all members). They also agree in the dims and element types that the right
//!   side does not name; of those that it names, each member has its own. At least two members; `right` is built for each.
//!   `(offset ?y)` is the sum of the last extents of the members before this one, `(offset ?y ?ax)` that along another axis. A splatted operand of a binary op is
//!   folded from the left: `(concat ?w.. :axis -1)`.
//! - `(let ?y term)`: names a term of the right.
//!
//! ## `where`: relations
//!
//! `(where (relation arg …) …)`, the relations of [`eutectic_ir::lang::relation`], with dims, shapes in brackets and
//! attribute variables as arguments: `(where (broadcast A B C) (permute A ?p C))`. Each is checked, or solved for what it
//! determines. `(near ?c 0.5)` may stand here too. Of a number variable `(positive ?c)`, `(whole ?c)` (an integer), `(between ?c 0 1)` and
//! `(nonzero ?c)` are guards, and so is `(hides ?c F)`: it stands for −∞ among scores of type F. A `fast` rule says of tensors for which
//! values its sides are equal: `(positive ?x)`, `(between ?x -10 10)`. No match is refused for that (`--fp fast` trusts it); on such values
//! `rules check` asks of the rule what it asks of `reassoc`.
//!
//! `(not (divides 8 K))` holds where the relation does not. It binds nothing. It never holds where the answer depends on an extent at run time.
//!
//! ## Contract and flags
//!
//! `(backend cuda vulkan)`: the rule runs for these backends only; `rules lint` reports unknown backend names.
//!
//! `(eq exact)`, `(eq (ulp n))`, `(eq reassoc)` or `(eq fast)` says what left and right promise each other; `--fp` decides
//! which rules run. `(once)`: applied once to the matches that the phase starts with, never to its own results, and only where the right
//! side is estimated to be cheaper (flops, then elements moved; constant subgraphs are free): for associativity and distribution.
//! `(canonical)`: the right side may be dearer; it is the form that other rules start from. Without it, `rules lint` finds fault
//! with a rule whose right side no backend computes faster.
//!
//! ## What is refused
//!
//! Every error has file, line, column, rule and a caret: syntax, unnamed, duplicate and undocumented rules, unknown ops,
//! attributes and relations, an omitted attribute on the left, a variable or dim on the right that nothing on the left determines,
//! sides of different type on a sample, rules for which no sample type-checks, and self-feeding rules (run on its own right side, the rule
//! does not come to rest).
//!
//! A match whose right side has another type than what it replaces, or none, is refused, and the program stays as it was;
//! `rules why` gives the reason.
//!
//! # Ops of one's own
//!
//! A rule file may declare ops, and so may the file of a graph, before `(graph …)` ([`read_graph`]):
//!
//! ```lisp
//! ;; k·max(x, 0)²
//! (op my/squared-relu (forall (F float) (?x F[A..]) (?k float :default 1.0))
//!   (result F[A..])
//!   (is (mul (mul (act ?x :kind relu) (act ?x :kind relu)) ?k))
//!   (onnx com.example SquaredRelu))
//! ```
//!
//! `(op PACK/NAME (forall …) (where …)? (let ?y …)* (result TYPE) (is TERM) (onnx DOMAIN NAME)*)`. The name has a slash, which no built-in
//! op has. The parts may stand in any order.
//!
//! - `forall` declares element types, operands and attributes. Operands are the tensors, attributes are the other variables; both
//!   keep their order. A variable `?k` is the attribute `:k`. Its kind is one of `float`, `int`, `axis`, `axes`, `perm`, `shape`, `bool`,
//!   `dtype`, `(one-of a b)`. Numbers, axes, truth values and words may have a `:default`.
//! - `result` and `where` are the op's type signature, with the operands' types.
//! - `is` says what the op is made of, in the language of right sides. It may name other declared ops, but not the op itself. Every
//!   variable must be used.
//! - `onnx` lets nodes of ONNX files be this op, also where the reader knows that node. Inputs keep their order, and attributes go by name;
//!   ONNX's names have underscores for hyphens.
//!
//! Such an op is a composite like the built-in ones: a row of the op table, and the `exact` rule `decompose/PACK/NAME`, which defines it. Rules
//! match and make the op by its name, and `explain` names the rule. `--without` leaves it out where a rule file declares the op. The interpreter, the flops and the observed
//! operands follow from the definition. The definition must give the declared result: that is checked on samples when the file is
//! read, and on the operands at hand wherever the op is applied. From Rust, `RuleSet::ops` gives the [`Op`](eutectic_ir::Op) that
//! `Graph::apply` takes.
//!
//! # Why egg's e-graph, and neither its patterns nor its `Runner`
//!
//! The e-graph, its hash-consing, congruence and analysis are egg's. Searching, applying and scheduling are ours, each for one reason:
//! - *Attributes are in an e-node's head.* An `egg::Pattern` binds classes; `:axis`, `:perm` and `:eps` would each be a leaf child with a
//!   class of its own. Here they are checked where the head is, and rules compute with them.
//! - *A match is more than a substitution.* The guard solves for dims and attributes (`(* 2 H)`, `broadcast`, `permute`) from the types of
//!   the matched classes and which of a class's e-nodes matched; an `egg::Subst` holds classes only.
//! - *Several roots and groups.* `egg::MultiPattern` joins roots by product, which grows quadratically; here they are joined through what
//!   they share, and a group takes the maximal set of members at once.
//! - *Limits are counts.* `egg::Runner` also stops by the clock, and its `BackoffScheduler` bans rules by how often they matched: the result
//!   then depends on the machine, or on rules that do not fire. Rules run in phases, `once` rules on what their phase starts with, and each
//!   as often at a node of the program as [`EngineLimits::applications`] says, whatever the others do.
//! - *Extraction is by plans of kernels* (the crate `eutectic-lowering`): what an e-node costs depends on what it is fused with, so
//!   `egg::Extractor`'s cost of a tree says nothing.
//!
//! Rules are egg's all the same where it matters to others: [`interop`] hands each single rule over as egg's `Searcher` and `Applier`, so that its
//! `Runner`, schedulers and extractors work on this e-graph; a test saturates random programs both ways and finds the same classes, nodes
//! and costs. Groups and `once` rules, which are not single matches, have no counterpart there.
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
mod egraph;
mod engine;
pub mod expr;
pub mod glob;
mod guard;
mod instance;
mod instantiate;
pub mod interop;
mod legal;
mod lint;
mod log;
mod optimize;
mod own_ops;
mod parse;
mod pattern;
mod proof;
mod recipe;
pub mod rule;
mod ruleset;
mod sample;
mod terms;
mod verdict;
mod why;

pub use circles::circles;
pub use engine::{EngineLimits, PhaseReport, RuleStatistics, Stop};
pub use instance::{Probe, Sides, Unmatched};
pub use lint::{Lint, lint};
pub use optimize::{Applied, Observed, Options, RewriteError, Rewritten, optimize};
pub use own_ops::{OpClash, read_graph};
pub use proof::{Claim, FILE as PROOFS, Proof, Proofs};
pub use rule::{Contract, Phase, Rule};
pub use ruleset::{Choice, Fp, LoadError, Precision, RuleSet};
pub use sample::{Choices, Sample, draw};
pub use why::{NearMiss, Why, why};
