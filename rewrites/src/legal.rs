//! The forms of ops that kernels compute, if these are narrower than the ops' signatures.

use eutectic_ir::{
    Op,
    lang::{Signature, Source},
};

/// Returns the signature of an op's legal forms; `None` if every form is legal.
pub(crate) fn legal_signature(op: Op) -> Option<Signature> {
    let def = op.def();
    let attrs: Vec<_> = def.attrs.iter().map(|a| a.name).collect();
    let source = Source::new(format!("<legal form of {}>", def.name), def.legal);
    if def.legal.is_empty() { None } else { Signature::parse(&source, &attrs).ok() }
}
