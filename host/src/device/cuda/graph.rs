//! Graphs as the driver has them: captured, composed, instantiated.

use std::marker::PhantomData;
use std::sync::Arc;

use cust::sys::{CUDA_KERNEL_NODE_PARAMS, CUgraph, CUgraphExec, CUgraphNode};

use super::module::CudaModule;
use super::stream::{self, CudaStream};
use super::{CudaDevice, StreamHandle, sys};
use crate::device::ShapedLaunch;
use crate::error::DeviceError;

/// A graph that was captured, with the module that its functions are of.
pub(crate) struct CapturedGraph {
    graph: Graph,
    module: Arc<CudaModule>,
}

/// A graph of child graphs, ready to be launched. It keeps the modules of its functions.
pub(crate) struct ExecutableGraph {
    exec: CUgraphExec,
    _graph: Graph,
    children: Vec<(CUgraphNode, Arc<CudaModule>)>,
    device: Arc<CudaDevice>,
}
// SAFETY: the driver's handles may be used from any thread. Its graph objects are not synchronised inside, so there is no
// `Sync`: one thread at a time reaches the value, and each launch has returned before another thread can.
unsafe impl Send for ExecutableGraph {}

/// A graph object.
struct Graph {
    raw: CUgraph,
    device: Arc<CudaDevice>,
}
// SAFETY: the driver's handles may be used from any thread, and without `Sync` one thread at a time uses this one.
unsafe impl Send for Graph {}

/// A capture under way on this thread. Dropping it ends the capture, whatever became of it.
struct Capture {
    stream: StreamHandle,
    device: Arc<CudaDevice>,
    under_way: bool,
    /// A capture in thread-local mode must end on the thread that began it, so the value is not `Send`.
    this_thread: PhantomData<*const ()>,
}

impl CapturedGraph {
    /// Captures these launches, with functions of `module`, which are loaded before the capture begins.
    ///
    /// Thread-local mode: other threads may use the driver meanwhile, and this one does nothing but launch. A capture that
    /// fails is ended and leaves the context usable.
    #[track_caller]
    pub(crate) fn capture(
        device: &Arc<CudaDevice>,
        module: Arc<CudaModule>,
        launches: &[ShapedLaunch],
    ) -> Result<Self, DeviceError> {
        let _entered = device.enter()?;
        module.prepare(launches)?;
        let mut capture = Capture::begin(device)?;
        let launched = launches.iter().try_for_each(|(shape, launch)| module.launch(capture.stream, *shape, launch));
        let ended = capture.end();
        launched?;
        Ok(Self { graph: ended?, module })
    }
}

impl Capture {
    #[track_caller]
    fn begin(device: &Arc<CudaDevice>) -> Result<Self, DeviceError> {
        let _entered = device.enter()?;
        let stream = stream::create()?;
        let mut capture = Self { stream, device: device.clone(), under_way: false, this_thread: PhantomData };
        // SAFETY: the stream is new, so nothing captures it.
        let status = unsafe { sys::cuStreamBeginCapture_v2(stream.0, sys::CAPTURE_THREAD_LOCAL) };
        status.check("cuStreamBeginCapture_v2", || "beginning a capture".into())?;
        capture.under_way = true;
        Ok(capture)
    }

    #[track_caller]
    fn end(&mut self) -> Result<Graph, DeviceError> {
        self.under_way = false;
        let _entered = self.device.enter_to_drop()?;
        let mut raw = std::ptr::null_mut();
        // SAFETY: the capture was begun on this stream and this thread (`this_thread` keeps `Capture` from being `Send`),
        // and is ended once.
        let status = unsafe { sys::cuStreamEndCapture(self.stream.0, &mut raw) };
        let graph = (!raw.is_null()).then(|| Graph { raw, device: self.device.clone() });
        status.check("cuStreamEndCapture", || {
            "ending a capture; a call that a capture forbids was made during it by this thread".into()
        })?;
        graph.ok_or_else(|| DeviceError::Graph("the driver returned no graph from a capture that succeeded".into()))
    }
}

impl Drop for Capture {
    fn drop(&mut self) {
        if self.under_way {
            // A panic is passing: the graph, if there is one, is dropped, and the panic is what gets reported.
            let _ = self.end();
        }
        self.device.drop_with(|| self.stream.destroy());
    }
}

impl ExecutableGraph {
    /// Composes the children, of which each waits for the earlier ones that `dependencies` lists for it, and
    /// instantiates the whole. The driver clones the children.
    #[track_caller]
    pub(crate) fn compose(
        device: &Arc<CudaDevice>,
        children: &[CapturedGraph],
        dependencies: &[Vec<usize>],
    ) -> Result<Self, DeviceError> {
        let _entered = device.enter()?;
        let mut raw = std::ptr::null_mut();
        // SAFETY: the pointer is valid for writing.
        unsafe { sys::cuGraphCreate(&mut raw, 0) }.check("cuGraphCreate", || "making the parent graph".into())?;
        let graph = Graph { raw, device: device.clone() };
        let mut nodes: Vec<(CUgraphNode, Arc<CudaModule>)> = Vec::with_capacity(children.len());
        for (index, child) in children.iter().enumerate() {
            let earlier: Vec<CUgraphNode> = dependencies[index].iter().map(|&earlier| nodes[earlier].0).collect();
            let mut node = std::ptr::null_mut();
            // SAFETY:
            // - both graphs are alive: `graph` and `child` own them;
            // - `earlier` holds nodes of this very graph, each once;
            // - the child holds kernel nodes alone, none that allocates: `Capture` records nothing else.
            let status = unsafe {
                sys::cuGraphAddChildGraphNode(&mut node, graph.raw, earlier.as_ptr(), earlier.len(), child.graph.raw)
            };
            status.check("cuGraphAddChildGraphNode", || format!("adding child graph {index}"))?;
            nodes.push((node, child.module.clone()));
        }
        let mut exec = std::ptr::null_mut();
        // SAFETY: the pointer is valid for writing, the graph alive.
        let status = unsafe { sys::cuGraphInstantiateWithFlags(&mut exec, graph.raw, 0) };
        status.check("cuGraphInstantiateWithFlags", || format!("instantiating a graph of {} children", nodes.len()))?;
        let executable = Self { exec, _graph: graph, children: nodes, device: device.clone() };
        // SAFETY: graph and stream are alive. Without this the first launch would upload.
        let status = unsafe { sys::cuGraphUpload(exec, device.transfer.0) };
        status.check("cuGraphUpload", || "uploading the graph".into())?;
        device.transfer.synchronize(|| "waiting for the graph's upload".into())?;
        Ok(executable)
    }

    /// The device that the graph was composed on.
    pub(crate) fn device_id(&self) -> u64 {
        self.device.id()
    }

    /// Launches the graph: one call of the driver.
    #[track_caller]
    pub(crate) fn launch(&self, stream: &CudaStream) -> Result<(), DeviceError> {
        let _entered = self.device.enter()?;
        // SAFETY: graph and stream are alive and of one context; memory and modules that the graph reaches are kept by
        // its owner and freed only after all streams were waited for.
        let status = unsafe { sys::cuGraphLaunch(self.exec, stream.handle().0) };
        status.check("cuGraphLaunch", || "launching the step graph".into())?;
        stream.last().set_graph(self.children.len());
        Ok(())
    }

    /// For each child the module that was loaded for it, and the module of each of its kernel nodes, as the driver tells it.
    #[track_caller]
    pub(crate) fn modules(&self) -> Result<Vec<(usize, Vec<usize>)>, DeviceError> {
        let _entered = self.device.enter()?;
        self.children.iter().map(|(node, module)| Ok((module.id(), node_modules(*node)?))).collect()
    }
}

/// The modules of the kernel nodes of the graph inside the child-graph node `node`.
fn node_modules(node: CUgraphNode) -> Result<Vec<usize>, DeviceError> {
    let purpose = || "reading a graph's nodes".to_owned();
    let mut graph = std::ptr::null_mut();
    // SAFETY: `node` is a child-graph node of a graph that is alive.
    unsafe { sys::cuGraphChildGraphNodeGetGraph(node, &mut graph) }.check("cuGraphChildGraphNodeGetGraph", purpose)?;
    let mut n_nodes = 0;
    // SAFETY: with no array the driver only writes the number of nodes.
    unsafe { sys::cuGraphGetNodes(graph, std::ptr::null_mut(), &mut n_nodes) }.check("cuGraphGetNodes", purpose)?;
    let mut nodes: Vec<CUgraphNode> = vec![std::ptr::null_mut(); n_nodes];
    // SAFETY: the array has room for `n_nodes`.
    unsafe { sys::cuGraphGetNodes(graph, nodes.as_mut_ptr(), &mut n_nodes) }.check("cuGraphGetNodes", purpose)?;
    let mut modules = Vec::with_capacity(n_nodes);
    for node in nodes {
        let mut kind = 0;
        // SAFETY: the node was just listed.
        unsafe { sys::cuGraphNodeGetType(node, &mut kind) }.check("cuGraphNodeGetType", purpose)?;
        if kind != sys::NODE_TYPE_KERNEL {
            return Err(DeviceError::Graph(format!("a child graph holds a node of type {kind}, not a kernel")));
        }
        // SAFETY: all-zero is a valid value of this plain C struct.
        let mut parameters: CUDA_KERNEL_NODE_PARAMS = unsafe { std::mem::zeroed() };
        // SAFETY: a kernel node, by the test above; the struct is the one that this symbol's version fills.
        unsafe { sys::cuGraphKernelNodeGetParams(node, &mut parameters) }
            .check("cuGraphKernelNodeGetParams", purpose)?;
        let mut module = std::ptr::null_mut();
        // SAFETY: the function is of a module that the graph's owner keeps loaded.
        unsafe { sys::cuFuncGetModule(&mut module, parameters.func) }.check("cuFuncGetModule", purpose)?;
        modules.push(module as usize);
    }
    Ok(modules)
}

impl Drop for ExecutableGraph {
    fn drop(&mut self) {
        self.device.drop_with(|| {
            self.device.wait_for_launches()?;
            // SAFETY: instantiated in `compose`, destroyed once, and no launch of it still runs.
            let status = unsafe { sys::cuGraphExecDestroy(self.exec) };
            status.check("cuGraphExecDestroy", || "destroying an executable graph".into())
        });
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        self.device.drop_with(|| {
            // SAFETY: made by a capture or by `cuGraphCreate`, destroyed once.
            unsafe { sys::cuGraphDestroy(self.raw) }.check("cuGraphDestroy", || "destroying a graph".into())
        });
    }
}
