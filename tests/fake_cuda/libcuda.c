// A stand-in for libcuda that runs nothing and checks much: objects live and die in order, memory is not freed under a
// running launch, captures obey the driver's rules. A broken rule aborts the process with a message.
//
// FAKE_CUDA_CC: compute capability, two digits (90). FAKE_CUDA_MEMORY: bytes of the device. FAKE_CUDA_COUNT: devices.
// FAKE_CUDA_THREADS: what a kernel's registers allow a block (512).
// FAKE_CUDA_FAIL: NAME:N:STATUS, the N-th call of NAME (from 1) returns STATUS.
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef int Status;
enum { OK = 0, INVALID_VALUE = 1, OUT_OF_MEMORY = 2, NO_DEVICE = 100, INVALID_CONTEXT = 201, INVALID_PTX = 218,
       NOT_FOUND = 500, CAPTURE_UNSUPPORTED = 900, CAPTURE_INVALIDATED = 901 };

typedef struct Graph Graph;
typedef struct { int kind; void *function; Graph *child; int n_dependencies; } Node; // kind 0: kernel, 4: child graph
struct Graph { int n_nodes; Node *nodes[256]; };
typedef struct { int pending, capturing, invalidated; pthread_t thread; Graph *graph; } Stream;
typedef struct { char *image; } Module;
typedef struct { Module *module; char name[128]; int shared; } Function;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static Stream *streams[256];
static int n_streams, live, retained;
static size_t used;
static __thread int current;

static void broken(const char *rule) {
    fprintf(stderr, "fake driver: broken rule: %s\n", rule);
    abort();
}

static long number(const char *name, long otherwise) {
    const char *text = getenv(name);
    return text ? atol(text) : otherwise;
}

// The status that FAKE_CUDA_FAIL asks for.
static Status injected(const char *name) {
    static int calls;
    const char *wish = getenv("FAKE_CUDA_FAIL");
    size_t length = strlen(name);
    if (!wish || strncmp(wish, name, length) || wish[length] != ':') return OK;
    int nth, status;
    if (sscanf(wish + length, ":%d:%d", &nth, &status) != 2) broken("FAKE_CUDA_FAIL is NAME:N:STATUS");
    return ++calls == nth ? status : OK;
}

static Stream *capture_of_this_thread(void) {
    for (int i = 0; i < n_streams; i++)
        if (streams[i]->capturing && pthread_equal(streams[i]->thread, pthread_self())) return streams[i];
    return NULL;
}

// What every call in a context starts with; `unsafe` calls are those that a capture of this thread forbids.
static Status begin(const char *name, int unsafe) {
    if (!current) return INVALID_CONTEXT;
    Stream *capture = capture_of_this_thread();
    if (unsafe && capture) {
        capture->invalidated = 1;
        return CAPTURE_UNSUPPORTED;
    }
    return injected(name);
}
#define BEGIN(unsafe) \
    pthread_mutex_lock(&lock); \
    Status status = begin(__func__, unsafe)
#define END \
    pthread_mutex_unlock(&lock); \
    return status

static void nothing_runs(const char *what) {
    for (int i = 0; i < n_streams; i++)
        if (streams[i]->pending) broken(what);
}

Status cuDriverGetVersion(int *version) { *version = 12080; return OK; }
Status cuInit(unsigned flags) { (void)flags; return number("FAKE_CUDA_COUNT", 1) ? OK : NO_DEVICE; }
Status cuGetErrorName(unsigned status, const char **text) {
    switch (status) {
    case INVALID_CONTEXT: *text = "CUDA_ERROR_INVALID_CONTEXT"; return OK;
    case INVALID_PTX: *text = "CUDA_ERROR_INVALID_PTX"; return OK;
    case CAPTURE_UNSUPPORTED: *text = "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED"; return OK;
    case CAPTURE_INVALIDATED: *text = "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED"; return OK;
    case 719: *text = "CUDA_ERROR_LAUNCH_FAILED"; return OK;
    default: *text = NULL; return INVALID_VALUE;
    }
}
Status cuGetErrorString(unsigned status, const char **text) { *text = "text of the status"; (void)status; return OK; }
Status cuDeviceGetCount(int *count) { *count = number("FAKE_CUDA_COUNT", 1); return OK; }
Status cuDeviceGet(int *device, int index) { *device = index; return OK; }
Status cuDeviceGetName(char *name, int length, int device) {
    snprintf(name, length, "Fake GPU %d", device);
    return OK;
}
Status cuDeviceTotalMem_v2(size_t *bytes, int device) {
    (void)device;
    *bytes = number("FAKE_CUDA_MEMORY", 1 << 20);
    return OK;
}
Status cuDeviceGetAttribute(int *value, int attribute, int device) {
    (void)device;
    long cc = number("FAKE_CUDA_CC", 90);
    *value = attribute == 75 ? cc / 10 : attribute == 76 ? cc % 10 : attribute == 97 ? 232448 : 132;
    return OK;
}
Status cuDevicePrimaryCtxRetain(void **context, int device) {
    (void)device;
    retained++;
    *context = &retained;
    return OK;
}
Status cuDevicePrimaryCtxRelease_v2(int device) {
    (void)device;
    if (--retained == 0 && (live || used)) broken("the context went before what was made in it");
    return OK;
}
Status cuCtxSetCurrent(void *context) { current = context != NULL; return OK; }

Status cuMemGetInfo_v2(size_t *free, size_t *total) {
    *total = number("FAKE_CUDA_MEMORY", 1 << 20);
    *free = *total - used;
    return OK;
}
// Every allocation carries its size in front.
static Status allocate(void **address, size_t bytes) {
    if (!bytes) return INVALID_VALUE;
    if (used + bytes > (size_t)number("FAKE_CUDA_MEMORY", 1 << 20)) return OUT_OF_MEMORY;
    size_t *block = aligned_alloc(256, (256 + bytes + 255) / 256 * 256);
    block[0] = bytes;
    used += bytes;
    *address = (char *)block + 256;
    return OK;
}
static void release(void *address) {
    nothing_runs("memory was freed under a running launch");
    size_t *block = (size_t *)((char *)address - 256);
    used -= block[0];
    free(block);
}
Status cuMemAlloc_v2(void **address, size_t bytes) { BEGIN(1); if (!status) status = allocate(address, bytes); END; }
Status cuMemHostAlloc(void **address, size_t bytes, unsigned flags) {
    BEGIN(1);
    if (!status) status = flags & 2 ? allocate(address, bytes) : INVALID_VALUE;
    END;
}
Status cuMemFree_v2(void *address) { BEGIN(1); if (!status) release(address); END; }
Status cuMemFreeHost(void *address) { BEGIN(1); if (!status) release(address); END; }
Status cuMemHostGetDevicePointer_v2(void **device, void *host, unsigned flags) {
    (void)flags;
    *device = host;
    return OK;
}
static Status copy(void *to, const void *from, size_t bytes, Stream *stream) {
    nothing_runs("a copy did not wait for launches");
    if (stream->capturing) broken("a copy went into a capture");
    memcpy(to, from, bytes);
    stream->pending++;
    return OK;
}
Status cuMemcpyHtoDAsync_v2(void *to, const void *from, size_t n, Stream *s) { BEGIN(0); if (!status) status = copy(to, from, n, s); END; }
Status cuMemcpyDtoHAsync_v2(void *to, const void *from, size_t n, Stream *s) { BEGIN(0); if (!status) status = copy(to, from, n, s); END; }
Status cuMemsetD8Async(void *to, unsigned char value, size_t n, Stream *stream) {
    BEGIN(0);
    if (!status) { memset(to, value, n); stream->pending++; }
    END;
}

Status cuStreamCreate(Stream **stream, unsigned flags) {
    BEGIN(0);
    if (flags != 1) broken("a stream waits for the default stream");
    if (!status) { *stream = calloc(1, sizeof(Stream)); streams[n_streams++] = *stream; live++; }
    END;
}
Status cuStreamSynchronize(Stream *stream) {
    BEGIN(1);
    if (!status && stream->capturing) { stream->invalidated = 1; status = CAPTURE_UNSUPPORTED; }
    if (!status) stream->pending = 0;
    END;
}
Status cuStreamDestroy_v2(Stream *stream) {
    BEGIN(0);
    if (!status) {
        if (stream->capturing) broken("a stream was destroyed while it captured");
        for (int i = 0; i < n_streams; i++) if (streams[i] == stream) streams[i] = streams[--n_streams];
        free(stream);
        live--;
    }
    END;
}
// Neither waits for nor breaks into a whole context: a capture elsewhere would be invalidated.
Status cuCtxSynchronize(void) { broken("the whole context was waited for"); return OK; }

Status cuEventCreate(void **event, unsigned flags) { BEGIN(0); if (!status) { *event = malloc(1); live++; } (void)flags; END; }
Status cuEventRecord(void *event, Stream *stream) { BEGIN(0); (void)event; (void)stream; END; }
Status cuEventSynchronize(void *event) { BEGIN(1); (void)event; END; }
Status cuEventElapsedTime(float *ms, void *start, void *end) { BEGIN(0); (void)start; (void)end; *ms = 1.5f; END; }
Status cuEventDestroy_v2(void *event) { BEGIN(0); if (!status) { free(event); live--; } END; }

Status cuModuleLoadDataEx(Module **module, const char *image, unsigned n, int *options, void **values) {
    BEGIN(1);
    if (!status && strstr(image, "NOT PTX")) {
        for (unsigned i = 0; i < n; i++)
            if (options[i] == 5) strcpy(values[i], "ptxas fatal: line 1: not PTX at all");
        status = INVALID_PTX;
    }
    if (!status) { *module = malloc(sizeof(Module)); (*module)->image = strdup(image); live++; }
    END;
}
Status cuModuleUnload(Module *module) {
    BEGIN(1);
    if (!status) {
        nothing_runs("a module was unloaded under a running launch");
        free(module->image);
        free(module);
        live--;
    }
    END;
}
// Functions are never freed, as they have no owner but their module.
Status cuModuleGetFunction(Function **function, Module *module, const char *name) {
    BEGIN(0);
    char entry[160];
    snprintf(entry, sizeof entry, ".entry %s(", name);
    if (!status && !strstr(module->image, entry)) status = NOT_FOUND;
    if (!status) {
        *function = calloc(1, sizeof(Function));
        (*function)->module = module;
        (*function)->shared = 48 * 1024;
    }
    END;
}
Status cuFuncGetAttribute(int *value, int attribute, Function *function) {
    (void)function;
    *value = attribute == 0 ? (int)number("FAKE_CUDA_THREADS", 512) : 0;
    return OK;
}
Status cuFuncSetAttribute(Function *function, int attribute, int value) {
    BEGIN(0);
    if (!status) status = attribute == 8 && value <= 227 * 1024 ? OK : INVALID_VALUE;
    if (!status) function->shared = value;
    END;
}
Status cuFuncGetModule(Module **module, Function *function) { *module = function->module; return OK; }

static void add(Graph *graph, int kind, void *function, Graph *child, int n_dependencies) {
    Node *node = malloc(sizeof(Node));
    *node = (Node){kind, function, child, n_dependencies};
    graph->nodes[graph->n_nodes++] = node;
}
Status cuLaunchKernel(Function *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                      unsigned shared, Stream *stream, void **parameters, void **extra) {
    BEGIN(0);
    if (!gx || !gy || !gz || !bx || !by || !bz || !parameters || extra) broken("a launch was not checked");
    if (!status && (int)shared > function->shared) status = INVALID_VALUE;
    if (!status && stream->invalidated) status = CAPTURE_INVALIDATED;
    if (!status) {
        if (stream->capturing) add(stream->graph, 0, function, NULL, stream->graph->n_nodes > 0);
        else stream->pending++;
    }
    END;
}

Status cuStreamBeginCapture_v2(Stream *stream, int mode) {
    BEGIN(0);
    if (mode != 1) broken("a capture is not thread-local");
    if (!status) {
        stream->capturing = 1;
        stream->thread = pthread_self();
        stream->graph = calloc(1, sizeof(Graph));
        live++;
    }
    END;
}
Status cuStreamEndCapture(Stream *stream, Graph **graph) {
    BEGIN(0);
    if (!stream->capturing) broken("a capture was ended that was not begun");
    if (!pthread_equal(stream->thread, pthread_self())) broken("a capture was ended by another thread");
    stream->capturing = 0;
    if (stream->invalidated || status) {
        free(stream->graph);
        live--;
        *graph = NULL;
        stream->invalidated = 0;
        status = status ? status : CAPTURE_INVALIDATED;
    } else {
        *graph = stream->graph;
    }
    END;
}
Status cuGraphCreate(Graph **graph, unsigned flags) {
    BEGIN(0);
    (void)flags;
    if (!status) { *graph = calloc(1, sizeof(Graph)); live++; }
    END;
}
Status cuGraphDestroy(Graph *graph) { BEGIN(0); if (!status) { free(graph); live--; } END; }
Status cuGraphAddChildGraphNode(Node **node, Graph *graph, Node **dependencies, size_t n, Graph *child) {
    BEGIN(0);
    if (!status) {
        for (size_t i = 0; i < n; i++) {
            int known = 0;
            for (int j = 0; j < graph->n_nodes; j++) known |= graph->nodes[j] == dependencies[i];
            if (!known) broken("a dependency is no node of the graph");
        }
        Graph *clone = malloc(sizeof(Graph)); // the driver clones a child
        *clone = *child;
        add(graph, 4, NULL, clone, n);
        *node = graph->nodes[graph->n_nodes - 1];
    }
    END;
}
Status cuGraphChildGraphNodeGetGraph(Node *node, Graph **graph) { *graph = node->child; return OK; }
Status cuGraphGetNodes(Graph *graph, Node **nodes, size_t *n) {
    *n = graph->n_nodes;
    if (nodes) memcpy(nodes, graph->nodes, *n * sizeof(Node *));
    return OK;
}
Status cuGraphNodeGetType(Node *node, int *kind) { *kind = node->kind; return OK; }
Status cuGraphKernelNodeGetParams(Node *node, void **parameters) { parameters[0] = node->function; return OK; }
Status cuGraphInstantiateWithFlags(void **exec, Graph *graph, unsigned long long flags) {
    BEGIN(1);
    (void)graph;
    if (flags) status = INVALID_VALUE;
    if (!status) { *exec = malloc(1); live++; }
    END;
}
Status cuGraphExecDestroy(void *exec) {
    BEGIN(0);
    if (!status) { nothing_runs("a graph was destroyed while it ran"); free(exec); live--; }
    END;
}
Status cuGraphUpload(void *exec, Stream *stream) { BEGIN(0); (void)exec; if (!status) stream->pending++; END; }
Status cuGraphLaunch(void *exec, Stream *stream) { BEGIN(0); (void)exec; if (!status) stream->pending++; END; }
