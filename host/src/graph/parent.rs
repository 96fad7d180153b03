//! The parent graph.

use super::ChildGraph;
use super::describe::{ChildDescription, Edge, GraphDescription, Hazard, Memories};
use super::order::{Conflict, KernelClaim, Wait, waits};
use crate::device::{Device, Executable, Module, ShapedLaunch, Stream};
use crate::error::DeviceError;

/// Child graphs composed into one, launched by one driver call. It owns everything that was captured: modules, and a
/// share of all memory that the kernels reach. Nothing is allocated or changed after it was composed.
/// One thread at a time may use it: it is `Send`, and not `Sync`.
pub struct ParentGraph {
    // Dropped in this order: the graph before what it reaches.
    executable: Executable,
    children: Vec<Vec<ShapedLaunch>>,
    _modules: Vec<Module>,
    description: GraphDescription,
}

/// The modules behind one child's kernels, as numbers to compare.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChildModules {
    /// The child.
    pub name: String,
    /// The module that was loaded for it.
    pub own: usize,
    /// The module of each of its kernel nodes, as the driver tells it.
    pub of_kernels: Vec<usize>,
}

impl ParentGraph {
    /// Composes `children` and instantiates the whole.
    ///
    /// The list's order is the order of any two children whose kernels reach a common byte that one of them writes;
    /// children without such a conflict may run side by side.
    #[track_caller]
    pub fn compose(device: &Device, children: Vec<ChildGraph>) -> Result<Self, DeviceError> {
        check(device, &children)?;
        let description = describe(&children);
        let mut dependencies = vec![Vec::new(); children.len()];
        description.edges.iter().for_each(|edge| dependencies[edge.to].push(edge.from));
        let (mut recordings, mut launches, mut modules) = (Vec::new(), Vec::new(), Vec::new());
        for child in children {
            recordings.push(child.recorded);
            launches.push(child.launches);
            modules.push(child.module);
        }
        let executable = device.executable(recordings, &dependencies)?;
        Ok(Self { executable, children: launches, _modules: modules, description })
    }

    /// Replays the graph in `stream`. On a GPU this is one call of the driver, `cuGraphLaunch`, and returns at once; on
    /// the CPU everything has run when it returns.
    #[track_caller]
    pub fn launch(&self, stream: &Stream) -> Result<(), DeviceError> {
        self.executable.launch(stream, self.children.iter().flatten())
    }

    /// What the graph is made of.
    pub fn description(&self) -> &GraphDescription {
        &self.description
    }

    /// The modules behind every child's kernels. Empty on the CPU, where kernels have no modules.
    #[track_caller]
    pub fn modules(&self) -> Result<Vec<ChildModules>, DeviceError> {
        let modules = self.executable.modules()?;
        let named = self.description.children.iter().zip(modules);
        Ok(named.map(|(child, (own, of_kernels))| ChildModules { name: child.name.clone(), own, of_kernels }).collect())
    }
}

fn check(device: &Device, children: &[ChildGraph]) -> Result<(), DeviceError> {
    if children.is_empty() {
        return Err(DeviceError::Graph("it has no child".into()));
    }
    for (index, child) in children.iter().enumerate() {
        if !child.device.is(device) {
            return Err(DeviceError::Graph(format!("child `{}` was captured on another device", child.name)));
        }
        if children[..index].iter().any(|earlier| earlier.name == child.name) {
            return Err(DeviceError::Graph(format!("two children are named `{}`", child.name)));
        }
        let is_earlier = |after: &&String| children[..index].iter().any(|earlier| earlier.name == **after);
        if let Some(after) = child.after.iter().find(|after| !is_earlier(after)) {
            let name = &child.name;
            return Err(DeviceError::Graph(format!(
                "`{name}` is to wait for `{after}`, which no child before it is named"
            )));
        }
    }
    Ok(())
}

fn describe(children: &[ChildGraph]) -> GraphDescription {
    let mut memories = Memories::default();
    let mut described = Vec::with_capacity(children.len());
    for child in children {
        described.push(ChildDescription {
            name: child.name.clone(),
            module: child.module.name().into(),
            kernels: child.launches.iter().map(|(shape, launch)| memories.kernel(shape, launch)).collect(),
        });
    }
    let claims: Vec<_> = children.iter().map(|child| child_claims(&child.launches)).collect();
    let place = |name: &String| children.iter().position(|child| child.name == *name);
    let told: Vec<Vec<usize>> = children.iter().map(|child| child.after.iter().filter_map(place).collect()).collect();
    let parameter = |claim: &KernelClaim<'_>| format!("{}.{}", claim.kernel, claim.claim.parameter);
    let edges = waits(&claims, &told).into_iter().map(|Wait { from, to, conflict }| match conflict {
        Some(Conflict { hazard, earlier, later }) => {
            let (from_parameter, to_parameter) = (parameter(earlier), parameter(later));
            Edge { from, to, hazard, from_parameter, to_parameter, memory: Some(memories.index(earlier.claim)) }
        }
        None => {
            let (from_parameter, to_parameter) = (String::new(), String::new());
            Edge { from, to, hazard: Hazard::Nothing, from_parameter, to_parameter, memory: None }
        }
    });
    let edges = edges.collect();
    GraphDescription { children: described, edges, memories: memories.describe() }
}

fn child_claims(launches: &[ShapedLaunch]) -> Vec<KernelClaim<'_>> {
    let mut claims = Vec::new();
    for (_, launch) in launches {
        let kernel = launch.info().name;
        claims.extend(launch.claims().iter().map(|claim| KernelClaim { kernel, claim }));
    }
    claims
}
