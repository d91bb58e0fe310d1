//! Infers the dimensions of a program from the arrays that the user gives.

use eutectic::{
    Dim, Shape,
    engine::{
        ir::lang::sexp::did_you_mean,
        models::{builtin::Builtin, onnx},
    },
};

use crate::{
    fault::{Fault, input},
    program::{ProgramArgs, onnx_fault},
    values::NamedTensors,
};

/// The largest number of elements of an array that may decide shapes.
const MOST_OF_SHAPES: usize = 64;

impl ProgramArgs {
    /// Sets each dimension without a number to the extent that an array for an input or a parameter has there.
    ///
    /// # Errors
    /// If the model cannot be read, or two arrays contradict each other.
    pub fn infer(&mut self, given: &NamedTensors) -> Result<(), Fault> {
        if let Some(builtin) = self.builtin() {
            self.infer_built_in(builtin, given);
            return Ok(());
        }
        if self.vision().is_some() {
            let pixels = given.get("pixels").filter(|pixels| pixels.dims().len() == 4);
            self.batch = self.batch.or(pixels.map(|pixels| pixels.dims()[0]));
            return Ok(());
        }
        let params = self.given_params()?;
        self.decide(given)?;
        if given.is_empty() && params.is_empty() {
            return Ok(());
        }
        let ports = self.ports()?;
        // A misspelt name is reported first. Otherwise the error would be about dimensions without a number.
        if let Some(name) = given.keys().find(|name| !ports.iter().any(|(port, _)| port == *name)) {
            let dims = |shape: &Option<Shape>| shape.as_ref().map_or(String::new(), ToString::to_string);
            let ports: Vec<_> = ports.iter().map(|(port, shape)| (port.as_str(), dims(shape))).collect();
            return Err(no_input(name, &ports));
        }
        let given: NamedTensors = given.clone().into_iter().chain(params).collect();
        let mut found: Vec<(String, i64, String)> = Vec::new();
        for (name, shape) in ports.iter().filter_map(|(name, shape)| Some((name.clone(), shape.as_ref()?))) {
            let Some(value) = given.get(&name).filter(|value| value.dims().len() == shape.rank()) else { continue };
            for (dim, &extent) in shape.iter().zip(value.dims()) {
                let Some((symbol, number)) = solve(dim, extent) else { continue };
                match found.iter().find(|(known, _, _)| *known == symbol) {
                    Some((_, other, by)) if *other != number => {
                        let problem = format!("`{symbol}` is {other} in `{by}`, but {number} in `{name}`");
                        return Err(input(problem, "give arrays whose extents agree"));
                    }
                    Some(_) => {}
                    None => found.push((symbol, number, name.clone())),
                }
            }
        }
        for (symbol, number, _) in found {
            if !self.shape.iter().any(|(name, _)| *name == symbol) {
                self.shape.push((symbol, Dim::Known(number)));
            }
        }
        Ok(())
    }

    fn infer_built_in(&mut self, builtin: &Builtin, given: &NamedTensors) {
        let Some([batch, seq]) = given.get("ids").and_then(|ids| <[usize; 2]>::try_from(ids.dims()).ok()) else {
            return;
        };
        if self.extents(builtin) != (batch, seq) {
            self.batch = self.batch.or(Some(batch));
            self.seq = self.seq.or(Some(seq));
        }
    }

    /// Keeps the arrays that the import of an ONNX file needs: those for inputs with a default, and those that may
    /// decide shapes.
    fn decide(&mut self, given: &NamedTensors) -> Result<(), Fault> {
        if given.is_empty() || !self.is_onnx() {
            return Ok(());
        }
        let model = onnx::Model::open(&self.model).map_err(onnx_fault)?;
        self.decided.given =
            model.defaults().map(|(name, _)| name.to_string()).filter(|name| given.contains_key(name)).collect();
        let known = given.iter().filter(|(_, value)| value.count() <= MOST_OF_SHAPES);
        self.decided.known = known.map(|(name, value)| (name.clone(), value.clone())).collect();
        Ok(())
    }

    /// Returns the names of a file's inputs and parameters. Also returns the shape of each one whose dimensions may
    /// lack numbers.
    fn ports(&self) -> Result<Vec<(String, Option<Shape>)>, Fault> {
        if self.is_onnx() {
            let model = onnx::Model::open(&self.model).map_err(onnx_fault)?;
            let shape = |(name, port): (&str, Result<&onnx::ModelPort, &str>)| {
                (name.to_string(), port.ok().and_then(|port| port.shape.clone()))
            };
            return Ok(model.inputs().chain(model.defaults()).map(shape).collect());
        }
        let graph = self.parsed()?;
        let open = graph.symbols();
        let ports = graph.named("input").chain(graph.named("param"));
        let is_open = |dim: &Dim| dim.symbols().iter().all(|symbol| open.contains(&symbol.name));
        let shape = |(name, id)| {
            let shape: Option<&Shape> = graph.shape(id);
            (String::from(name), shape.filter(|shape| shape.iter().all(is_open)).cloned())
        };
        Ok(ports.map(shape).collect())
    }
}

/// Returns the error about a value for an input that the model does not have.
pub fn no_input(name: &str, inputs: &[(&str, impl std::fmt::Display)]) -> Fault {
    let guess = did_you_mean(name, inputs.iter().map(|(name, _)| *name)).map_or(String::new(), |g| g + " ");
    let all: Vec<_> = inputs.iter().map(|(name, ty)| format!("{name} {ty}")).collect();
    input(format!("there is no input named `{name}`"), format!("{guess}the inputs are {}", all.join(", ")))
}

/// Finds the number for a dimension's only symbol at which the dimension has the given extent. Returns the symbol and
/// the number.
pub fn solve(dim: &Dim, extent: usize) -> Option<(String, i64)> {
    let symbols = dim.symbols();
    let [symbol] = &symbols[..] else { return None };
    let name = symbol.name.to_string();
    let at = |number: i64| dim.bind(&|of| (of == name).then_some(Dim::Known(number))).known();
    let extent = i64::try_from(extent).ok()?;
    // The dimension is a polynomial. The values at 0 and 1 determine it if it is linear; otherwise the last check
    // fails.
    let (zero, one) = (at(0)?, at(1)?);
    let slope = one.checked_sub(zero).filter(|slope| *slope != 0)?;
    let number = extent.checked_sub(zero)?.checked_div(slope)?;
    (number >= 0 && at(number) == Some(extent)).then_some((name, number))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_symbol_of_an_extent_is_found() {
        let b = Dim::symbol("B");
        assert_eq!(solve(&b, 7), Some(("B".into(), 7)));
        assert_eq!(solve(&(&b * &Dim::Known(2)), 6), Some(("B".into(), 3)));
        assert_eq!(solve(&(&b * &Dim::Known(2)), 7), None);
        assert_eq!(solve(&(&b * &b), 9), None);
        assert_eq!(solve(&(&b * &Dim::symbol("C")), 9), None);
        assert_eq!(solve(&Dim::Known(3), 3), None);
    }
}
