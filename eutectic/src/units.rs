//! The parts of a graph that are planned each by itself: all of it, or the stages between its loops and the bodies of these.

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

/// A graph in parts without loops.
pub(crate) struct PlanUnits<'g> {
    /// The parts.
    pub graphs: Vec<Cow<'g, Graph>>,
    pub tree: UnitTree<'g>,
}

pub(crate) enum UnitTree<'g> {
    /// A part.
    Whole(usize),
    /// Stages, and what runs between them.
    Cut(Box<CutGraph<'g>>),
}

/// A graph with loops.
pub(crate) struct CutGraph<'g> {
    pub graph: Cow<'g, Graph>,
    /// Where it is cut.
    pub staged: Staged,
    /// The part of each stage that computes something.
    pub stages: Vec<Option<usize>>,
    /// The bodies of its loops.
    pub bodies: Vec<UnitTree<'g>>,
}

impl<'g> PlanUnits<'g> {
    /// Of a graph.
    ///
    /// # Errors
    /// When a graph with loops has extents at run time.
    pub fn of(graph: &'g Graph) -> Result<PlanUnits<'g>, Error> {
        let mut graphs = Vec::new();
        let tree = UnitTree::of(Cow::Borrowed(graph), &mut graphs)?;
        Ok(PlanUnits { graphs, tree })
    }

    /// The program: that of the only part, or those of all of them linked. Each part has its outlined form; `blocks` are the planned
    /// ones of all parts, one after the other.
    ///
    /// # Errors
    /// As [`lower`] and [`link`].
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

    /// The program of this part of the tree; each piece is taken once.
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

/// The outlined forms of all parts as one. Ids are those of the parts.
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
