//! Control flow that is inlined while a graph is built: a branch becomes a selection between two bodies, and a loop
//! becomes copies of its body.
//!
//! A body is a separate graph. Its inputs are its arguments in order, and its outputs are its results. Branches and
//! loops within a body were inlined when the body was built. A parameter of a body is the surrounding graph's
//! parameter of the same name, if there is one. Rules remove branches and steps that a constant condition excludes
//! (`simplify/where-…`).

use super::{Graph, GraphError, NodeId};
use crate::{Attr, Class, DType, Op, Type, ops::Leaf};

impl Graph {
    /// Adds the nodes of a body. `given` has a value for each input of the body, in order. Returns the body's
    /// outputs.
    ///
    /// # Errors
    /// If the given values differ from the inputs in number or type. If a parameter has another type than the graph's
    /// parameter of the same name.
    pub fn inline(&mut self, body: &Graph, given: &[NodeId]) -> Result<Vec<NodeId>, GraphError> {
        self.known(&body.name, given)?;
        self.room(&body.name, body.len())?;
        if let Some((name, _)) = body.named("state").next() {
            let problem = format!("it has the state {name}");
            return Err(self.refuse(
                body,
                problem,
                "only a whole program has states; pass the state's value to the body, and update the state outside",
            ));
        }
        let wanted: Vec<(&str, NodeId)> = body.named("input").collect();
        if wanted.len() != given.len() {
            let names: Vec<_> = wanted.iter().map(|(name, _)| *name).collect();
            let problem =
                format!("it has {} inputs ({}), but {} values are given", names.len(), names.join(", "), given.len());
            return Err(self.refuse(body, problem, "give a value for each input, in their order"));
        }
        for ((name, id), value) in wanted.iter().zip(given) {
            if body.ty(*id) != self.ty(*value) {
                let problem = format!(
                    "its input {name} has type {}, but the given value has type {}",
                    body.ty(*id),
                    self.ty(*value)
                );
                return Err(self.refuse(body, problem, "the types must be equal; `expand` or `cast` first"));
            }
        }
        let mut given = given.iter();
        let mut new: Vec<NodeId> = Vec::with_capacity(body.len());
        for (_, node) in body.nodes() {
            let id = match (node.op.def().class, node.attrs.first().and_then(Attr::word)) {
                (Class::Leaf(Leaf::Input), _) => *given.next().expect("there is a value for each input"),
                (Class::Leaf(Leaf::Param), Some(name)) => self.parameter(name, &node.ty)?,
                _ => {
                    let operands: Vec<NodeId> = node.operands.iter().map(|o| new[o.0 as usize]).collect();
                    self.again(node.op, &node.attrs, &operands)?
                }
            };
            new.push(id);
        }
        Ok(body.outputs().iter().map(|(_, id)| new[id.0 as usize]).collect())
    }

    /// Returns the parameter of this name: the existing one, or a new one.
    ///
    /// # Errors
    /// If the name belongs to an input or a state, or to a parameter of another type.
    pub fn parameter(&mut self, name: &str, ty: &Type) -> Result<NodeId, GraphError> {
        let known = self.named("param").find(|(n, _)| *n == name).map(|(_, id)| id);
        match known {
            Some(id) if self.ty(id) == ty => Ok(id),
            Some(id) => {
                let problem = format!("the parameter {name} has type {} elsewhere and {ty} here", self.ty(id));
                Err(self.refuse_at(
                    "param",
                    problem,
                    "parameters of the same name are one parameter; rename one of them",
                ))
            }
            None => self.param(name, ty.clone()),
        }
    }

    /// Returns the outputs of `then` where the predicate holds, and otherwise those of `otherwise`. Both bodies are
    /// computed, with the arguments `given`. The predicate is one truth value, or one number, which holds if it is
    /// not 0.
    ///
    /// # Errors
    /// If the predicate has more than one element, a body does not accept the arguments, or the bodies' results differ
    /// in number or type.
    pub fn branch(
        &mut self,
        predicate: NodeId,
        then: &Graph,
        otherwise: &Graph,
        given: &[NodeId],
    ) -> Result<Vec<NodeId>, GraphError> {
        let predicate = self.truth(predicate, "the predicate of a branch")?;
        let a = self.inline(then, given)?;
        let b = self.inline(otherwise, given)?;
        if a.len() != b.len() {
            let problem = format!("`{}` has {} results, but `{}` has {}", then.name, a.len(), otherwise.name, b.len());
            return Err(self.refuse_at("if", problem, "both branches must return the same number of values"));
        }
        let pairs = a.into_iter().zip(b).enumerate();
        let results = pairs.map(|(at, (a, b))| {
            if self.ty(a) != self.ty(b) {
                let types = format!("{} in `{}`, {} in `{}`", self.ty(a), then.name, self.ty(b), otherwise.name);
                let help = "both branches must return the same types; `cast` or `expand` in one of them";
                return Err(self.refuse_at("if", format!("result {at} is {types}"), help));
            }
            self.select(predicate, a, b)
        });
        results.collect()
    }

    /// Returns the carried values after `body` ran while `condition` held, at most `most` times. Both bodies get the
    /// carried values followed by `captured`, which stay constant. `body` returns new carried values.
    ///
    /// All `most` steps are computed. After the condition first fails, the carried values stay unchanged. The body
    /// then gets the initial values, because it may fail (divide by zero) on the final ones.
    ///
    /// # Errors
    /// If there is no carried value, the condition is not one truth value or number, a body does not accept its
    /// arguments, or the body's results differ from the carried values in number or type.
    pub fn repeat(
        &mut self,
        condition: &Graph,
        body: &Graph,
        start: &[NodeId],
        captured: &[NodeId],
        most: usize,
    ) -> Result<Vec<NodeId>, GraphError> {
        if start.is_empty() {
            return Err(self.refuse_at(
                "while",
                "the loop carries no value".into(),
                "give the loop a value to start with",
            ));
        }
        self.known("while", start)?;
        self.room("while", most.saturating_mul(body.len().saturating_add(condition.len())))?;
        let mut carried = start.to_vec();
        let mut active: Option<NodeId> = None;
        for _ in 0..most {
            let given = [carried.as_slice(), captured].concat();
            let [holds] = self.inline(condition, &given)?[..] else {
                let problem = format!("`{}` has {} results", condition.name, condition.outputs().len());
                return Err(self.refuse_at("while", problem, "return one truth value from the condition"));
            };
            let holds = self.truth(holds, "the condition of a loop")?;
            let (now, inputs) = match active {
                None => (holds, given),
                Some(before) => {
                    let now = self.and(before, holds)?;
                    let gated = carried.iter().zip(start).map(|(c, s)| self.select(now, *c, *s));
                    let mut gated = gated.collect::<Result<Vec<_>, _>>()?;
                    gated.extend(captured);
                    (now, gated)
                }
            };
            let next = self.inline(body, &inputs)?;
            self.carries(body, &next, &carried)?;
            let values = next.into_iter().zip(&carried).map(|(next, last)| self.select(now, next, *last));
            carried = values.collect::<Result<_, _>>()?;
            active = Some(now);
        }
        Ok(carried)
    }

    /// Checks that a loop's body returns one value for each carried value, of the same type.
    fn carries(&self, body: &Graph, next: &[NodeId], carried: &[NodeId]) -> Result<(), GraphError> {
        if next.len() != carried.len() {
            let problem =
                format!("`{}` has {} results, but {} values are carried", body.name, next.len(), carried.len());
            return Err(self.refuse_at("while", problem, "make the body return one value for each carried value"));
        }
        let differs = next.iter().zip(carried).position(|(a, b)| self.ty(*a) != self.ty(*b));
        differs.map_or(Ok(()), |at| {
            let (is, was) = (self.ty(next[at]), self.ty(carried[at]));
            let problem = format!("result {at} of `{}` has type {is}, but the carried value has type {was}", body.name);
            Err(self.refuse_at("while", problem, "the body must keep the type of each carried value"))
        })
    }

    /// Returns a value of one element as a truth value of rank 0. A number is true if it is not 0.
    fn truth(&mut self, value: NodeId, what: &str) -> Result<NodeId, GraphError> {
        self.known("if", &[value])?;
        let ty = self.ty(value).clone();
        let one = ty.as_tensor().filter(|(_, shape)| shape.iter().all(|d| d.known() == Some(1)));
        let Some((dtype, shape)) = one else {
            let help = "reduce it to one truth value";
            return Err(self.refuse_at("if", format!("{what} is {ty}, not one element"), help));
        };
        let flat = match shape.rank() {
            0 => value,
            _ => self.reshape(value, Default::default())?,
        };
        if dtype == DType::Bool {
            return Ok(flat);
        }
        let zero = self.scalar(0.0, flat)?;
        self.ne(flat, zero)
    }

    /// Adds a node of another graph to this one.
    fn again(&mut self, op: Op, attrs: &[Attr], operands: &[NodeId]) -> Result<NodeId, GraphError> {
        let named: Vec<(&str, Attr)> = op.def().attrs.iter().map(|a| a.name).zip(attrs.iter().cloned()).collect();
        self.apply(op, operands, &named)
    }

    fn refuse(&self, body: &Graph, problem: String, help: &str) -> GraphError {
        GraphError { help: help.into(), ..self.refuse_at(&format!("body `{}`", body.name), problem, "") }
    }

    pub(super) fn refuse_at(&self, op: &str, problem: String, help: &str) -> GraphError {
        GraphError { op: op.into(), operands: String::new(), origin: self.origin(), problem, help: help.into() }
    }
}
