//! The parts of a graph that are planned separately: the whole graph, or the stages between its loops and the bodies of
//! the loops.

use std::borrow::Cow;

use eutectic_backend::{Backend, Limits};
use eutectic_ir::{
    Graph,
    outline::{BlockCall, Outlined},
};
use eutectic_lowering::{
    Lowered, PlannedBlock,
    link::{LinkUnit, link},
    lower,
    stages::{Staged, has_loops, stages},
};

use crate::Error;

/// A graph that is divided into parts without loops.
pub(crate) struct PlanUnits<'g> {
    /// The graphs of the parts. A [`UnitTree`] refers to them by index.
    pub graphs: Vec<Cow<'g, Graph>>,
    pub tree: UnitTree<'g>,
}

pub(crate) enum UnitTree<'g> {
    /// A graph without loops: one part, by its index.
    Whole(usize),
    /// A graph with loops: stages, with loops between them.
    Cut(Box<CutGraph<'g>>),
}

/// A graph with loops.
pub(crate) struct CutGraph<'g> {
    pub graph: Cow<'g, Graph>,
    /// The stages and the loops.
    pub staged: Staged,
    /// For each stage, the index of its part, or `None` if the stage computes nothing.
    pub stages: Vec<Option<usize>>,
    /// The bodies of the loops.
    pub bodies: Vec<UnitTree<'g>>,
}

impl<'g> PlanUnits<'g> {
    /// Divides a graph into parts.
    ///
    /// # Errors
    /// If a graph with loops has run-time extents.
    pub fn of(graph: &'g Graph) -> Result<PlanUnits<'g>, Error> {
        let mut graphs = Vec::new();
        let tree = UnitTree::of(Cow::Borrowed(graph), &mut graphs)?;
        Ok(PlanUnits { graphs, tree })
    }

    /// Lowers the only part, or lowers all parts and links their programs. `outlined` has one entry for each part.
    /// `blocks` are the planned blocks of all parts, in order.
    ///
    /// # Errors
    /// See [`lower`] and [`link`].
    pub fn lower(
        &self,
        outlined: &[Outlined],
        blocks: &[PlannedBlock],
        backend: &dyn Backend,
    ) -> Result<Lowered, Error> {
        let (mut block, mut call) = (0, 0);
        let mut pieces = Vec::new();
        for (graph, outlined) in self.graphs.iter().zip(outlined) {
            let of_part = &blocks[block..block + outlined.blocks.len()];
            let lowered = lower(graph, outlined, of_part, backend)?;
            pieces.push(Some(LinkUnit { lowered, calls: call }));
            (block, call) = (block + outlined.blocks.len(), call + outlined.calls.len());
        }
        Ok(self.tree.link(&mut pieces, &backend.limits())?.lowered)
    }
}

impl<'g> UnitTree<'g> {
    fn of(graph: Cow<'g, Graph>, graphs: &mut Vec<Cow<'g, Graph>>) -> Result<UnitTree<'g>, Error> {
        if !has_loops(&graph) {
            graphs.push(graph);
            return Ok(UnitTree::Whole(graphs.len() - 1));
        }
        let staged = stages(&graph)?;
        let mut parts = Vec::new();
        for stage in &staged.stages {
            parts.push(stage.results().next().is_some().then(|| {
                graphs.push(Cow::Owned(stage.clone()));
                graphs.len() - 1
            }));
        }
        let bodies = staged.loops.iter().map(|of| UnitTree::of(Cow::Owned(of.body.clone()), graphs));
        let bodies = bodies.collect::<Result<_, _>>()?;
        Ok(UnitTree::Cut(Box::new(CutGraph { graph, staged, stages: parts, bodies })))
    }

    /// Links the programs of this subtree. Each program is taken from `pieces` once.
    fn link(&self, pieces: &mut [Option<LinkUnit>], limits: &Limits) -> Result<LinkUnit, Error> {
        match self {
            UnitTree::Whole(part) => Ok(pieces[*part].take().expect("each part is in one place of the tree")),
            UnitTree::Cut(cut) => {
                let CutGraph { graph, staged, stages, bodies } = &**cut;
                let bodies = bodies.iter().map(|body| body.link(pieces, limits)).collect::<Result<Vec<_>, _>>()?;
                let stages: Vec<_> = stages.iter().map(|stage| stage.and_then(|part| pieces[part].take())).collect();
                let lowered = link(graph, staged, &stages, &bodies, limits)?;
                Ok(LinkUnit { lowered, calls: 0 })
            }
        }
    }
}

/// Concatenates the outlined forms of all parts. Node ids still refer to the graph of their part.
pub(crate) fn joined(outlined: Vec<Outlined>) -> Outlined {
    let mut all = Outlined { blocks: Vec::new(), calls: Vec::new(), cuts: Vec::new() };
    for part in outlined {
        let before = all.blocks.len();
        all.calls.extend(part.calls.into_iter().map(|call| BlockCall { block: before + call.block, ..call }));
        all.blocks.extend(part.blocks);
        all.cuts.extend(part.cuts);
    }
    all
}
