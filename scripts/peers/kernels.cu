// CUDA C++ peers of onegraph's kernels, at the sizes of `tests/benches/kernels`.
//   nvcc -O3 -gencode=arch=compute_90a,code=sm_90a -o peers scripts/peers/kernels.cu -lcublas && ./peers peers.jsonl
// Each key has the same algorithm as the Rust kernel ("same design") and, where there is one, what else a CUDA programmer
// would write; products are cuBLAS's, with a pass of their own for what follows them. Two times each, medians by events:
//   graph  = a replay of a graph of 20 dependent passes over rotating buffers, divided by 20 (launch gaps are inside it)
//   single = one pass on a stream between two events
// A second argument names one subject (gather, trees, scan, small, products) to time besides the copy.
// The file gets a JSON line a variant; `kernels --peers FILE` puts the best of each key beside the Rust kernel.
#include <cuda_runtime.h>
#include <cuda_bf16.h>
#include <cublas_v2.h>
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>
#define CHECK(x) do { cudaError_t e_ = (x); if (e_ != cudaSuccess) { fprintf(stderr, "%s:%d %s: %s\n", __FILE__, __LINE__, #x, cudaGetErrorString(e_)); exit(1); } } while (0)

#define CHECK_BLAS(x) do { cublasStatus_t s_ = (x); if (s_ != CUBLAS_STATUS_SUCCESS) { fprintf(stderr, "%s:%d %s: %s\n", __FILE__, __LINE__, #x, cublasGetStatusString(s_)); exit(1); } } while (0)

constexpr int BATCH = 8192, SETS = 20, WIDTH = 400, STRIDE = 448;
typedef unsigned long long u64;

__host__ __device__ inline uint32_t hash32(uint32_t x) { x ^= x >> 16; x *= 0x7feb352du; x ^= x >> 15; x *= 0x846ca68bu; x ^= x >> 16; return x; }
__host__ __device__ inline float unit(uint32_t x) { return (hash32(x) >> 8) * (1.0f / 16777216.0f); }
static int blocks(size_t n, int threads) { return (int)((n + threads - 1) / threads); }

// ---------------------------------------------------------------- inputs
__global__ void fill_unit(float* p, size_t n, uint32_t seed) {
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n; i += (size_t)gridDim.x * blockDim.x) p[i] = unit((uint32_t)i * 2654435761u + seed);
}
__global__ void fill_index(uint32_t* p, size_t n, uint32_t seed, uint32_t below) {
    size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
    if (i < n) p[i] = hash32((uint32_t)i * 747796405u + seed) % below;
}
__global__ void fill_error(__nv_bfloat16* p, size_t n) { size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; if (i < n) p[i] = __float2bfloat16((i % 997) / 250.0f); }

// ---------------------------------------------------------------- copy
__global__ void __launch_bounds__(256) copy_vec4x4(const float4* __restrict__ s, float4* __restrict__ d, size_t n4) {
    size_t i = blockIdx.x * (size_t)1024 + threadIdx.x;
    if (i + 768 >= n4) { for (; i < n4; i += 256) d[i] = __ldg(s + i); return; }
    float4 v[4];
#pragma unroll
    for (int k = 0; k < 4; k++) v[k] = __ldg(s + i + 256 * k);
#pragma unroll
    for (int k = 0; k < 4; k++) d[i + 256 * k] = v[k];
}

// ---------------------------------------------------------------- gather_f32_rows_padded
__global__ void gather_element(const float* __restrict__ src, const uint32_t* __restrict__ idx, float* __restrict__ dst, size_t n, int width, int stride) {
    size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
    if (i >= n * stride) return;
    size_t r = i / stride; int c = i % stride;
    dst[i] = c < width ? src[(size_t)idx[r] * width + c] : 0.0f;
}
__global__ void gather_vec4(const float4* __restrict__ src, const uint32_t* __restrict__ idx, float4* __restrict__ dst, size_t n, int width4, int stride4) {
    size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
    if (i >= n * stride4) return;
    size_t r = i / stride4; int c = i % stride4;
    dst[i] = c < width4 ? __ldg(&src[(size_t)idx[r] * width4 + c]) : make_float4(0, 0, 0, 0);
}
// A warp a row, every load of the row in flight before the first store. STREAM marks the source as not to be kept.
template <bool STREAM> __global__ void __launch_bounds__(256) gather_warp(const float4* __restrict__ src, const uint32_t* __restrict__ idx, float4* __restrict__ dst, size_t n, int width4, int stride4) {
    size_t r = (blockIdx.x * (size_t)blockDim.x + threadIdx.x) >> 5; int lane = threadIdx.x & 31;
    if (r >= n) return;
    const float4* s = src + (size_t)idx[r] * width4;
    float4* d = dst + r * stride4;
    for (int first = lane; first < stride4; first += 128) {
        float4 v[4];
#pragma unroll
        for (int k = 0; k < 4; k++) { int c = first + 32 * k; v[k] = c >= width4 ? make_float4(0, 0, 0, 0) : STREAM ? __ldcs(s + c) : __ldg(s + c); }
#pragma unroll
        for (int k = 0; k < 4; k++) { int c = first + 32 * k; if (c < stride4) d[c] = v[k]; }
    }
}

// ---------------------------------------------------------------- sum tree of 2^k leaves at [2^k, 2^(k+1))
__device__ inline float priority(__nv_bfloat16 td) { return __powf(fabsf(__bfloat162float(td)) + 1e-6f, 0.6f); }
__device__ inline float accurate_priority(__nv_bfloat16 td) { return powf(fabsf(__bfloat162float(td)) + 1e-6f, 0.6f); }

// Same design: marked leaves, groups of 128, one block for the top.
__device__ inline int n_stages(int k) { return k <= 13 ? 0 : (k - 13 + 6) / 7; }
__device__ inline size_t owner_entry(int k, int stage, uint32_t slot) {
    size_t start = 1;
    for (int s = 0; s < stage; s++) start += (size_t)1 << (k - 7 * (s + 1));
    return start + (slot >> (7 * (stage + 1)));
}
__global__ void update_leaves(const uint32_t* __restrict__ idx, const __nv_bfloat16* __restrict__ td, uint32_t* tree, u64* owners, uint32_t* max_priority, int n, int k) {
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    uint32_t bits = 0;
    if (row < n && isfinite(__bfloat162float(td[row]))) {
        uint32_t slot = idx[row];
        bits = __float_as_uint(accurate_priority(td[row]));
        atomicMax(&tree[(1u << k) + slot], bits | 0x80000000u);
        u64 ballot = owners[0] << 32 | (row + 1);
        for (int s = 0; s < n_stages(k); s++) atomicMax(&owners[owner_entry(k, s, slot)], ballot);
    }
    uint32_t highest = __reduce_max_sync(~0u, bits);
    if (highest && !(row & 31)) atomicMax(max_priority, highest);
}
__device__ inline void sum_group(float* tree, size_t first, int levels, int lane, bool leaves) {
    int lanes = 1 << (levels - 2);
    bool works = lane < lanes;
    size_t at = first + 4 * lane;
    float sum = 0;
    if (works) {
        float4 v = *(float4*)&tree[at];
        if (leaves) {
            float4 c = make_float4(fabsf(v.x), fabsf(v.y), fabsf(v.z), fabsf(v.w));
            if (signbit(v.x) || signbit(v.y) || signbit(v.z) || signbit(v.w)) *(float4*)&tree[at] = c;
            v = c;
        }
        float2 p = make_float2(v.x + v.y, v.z + v.w);
        sum = p.x + p.y;
        *(float2*)&tree[at / 2] = p;
        tree[at / 4] = sum;
    }
    for (int d = 1; d < lanes; d *= 2) {
        sum += __shfl_xor_sync(~0u, sum, d);
        if (works && !(lane & (2 * d - 1))) tree[at / 4 / (2 * d)] = sum;
    }
}
__global__ void __launch_bounds__(128) update_groups(const uint32_t* __restrict__ idx, const u64* __restrict__ owners, float* tree, int n, int k, int stage) {
    int row = (blockIdx.x * blockDim.x + threadIdx.x) >> 5, lane = threadIdx.x & 31;
    if (row >= n) return;
    uint32_t slot = idx[row];
    if (owners[owner_entry(k, stage, slot)] == (owners[0] << 32 | (row + 1))) sum_group(tree, ((((size_t)1 << k) + slot) >> (7 * stage)) & ~(size_t)127, 7, lane, stage == 0);
}
__global__ void __launch_bounds__(128) build_groups(float* tree, int k, int stage) {
    size_t group = (blockIdx.x * (size_t)blockDim.x + threadIdx.x) >> 5; int lane = threadIdx.x & 31;
    if (group < ((size_t)1 << (k - 7 * (stage + 1)))) sum_group(tree, (((size_t)1 << k) >> (7 * stage)) + group * 128, 7, lane, stage == 0);
}
__global__ void __launch_bounds__(1024) top(float* tree, u64* owners, int k) {
    int warp = threadIdx.x >> 5, lane = threadIdx.x & 31, q = k - 7 * n_stages(k);
    size_t n = (size_t)1 << q;
    bool leaves = n_stages(k) == 0;
    if (q > 7) {
        for (size_t first = n + warp * 128; first < 2 * n; first += 4096) sum_group(tree, first, 7, lane, leaves);
        __syncthreads();
        if (warp == 0) sum_group(tree, n >> 7, q - 7, lane, false);
    } else if (warp == 0) sum_group(tree, n, q, lane, leaves);
    if (threadIdx.x == 0) owners[0]++;
}
// A kernel a level.
__global__ void leaf_clear(float* tree, const uint32_t* __restrict__ idx, int n, int k) { int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) tree[(1u << k) + idx[i]] = 0.0f; }
__global__ void leaf_max(float* tree, const uint32_t* __restrict__ idx, const __nv_bfloat16* __restrict__ td, int n, int k) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) atomicMax((int*)&tree[(1u << k) + idx[i]], __float_as_int(priority(td[i])));
}
__global__ void level_sum(float* tree, const uint32_t* __restrict__ idx, int n, int k, int shift) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    uint32_t j = ((1u << k) + idx[i]) >> shift;
    float2 c = *(const float2*)&tree[2 * (size_t)j];
    tree[j] = c.x + c.y;
}
// The walk down: one level, given the two sums.
__device__ inline bool descend(float2 c, double& u, size_t& j, float& p) {
    bool right = u >= c.x && c.y > 0.0f;
    if (right) u -= c.x;
    p = right ? c.y : c.x;
    j = 2 * j + right;
    return right;
}
__global__ void sample_level(const float* __restrict__ tree, uint32_t* __restrict__ idx, float* __restrict__ pri, int n, int k, uint32_t seed) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    double u = (i + (double)unit(i * 2246822519u + seed)) * ((double)tree[1] / n);
    size_t j = 1; float p = 0;
    for (int l = 0; l < k; l++) descend(__ldg((const float2*)&tree[2 * j]), u, j, p);
    idx[i] = j - ((size_t)1 << k); pri[i] = p;
}
// Same design: three levels a load.
__global__ void sample_three(const float* __restrict__ tree, uint32_t* __restrict__ idx, float* __restrict__ pri, int n, int k, uint32_t seed) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    double u = (i + (double)unit(i * 2246822519u + seed)) * ((double)tree[1] / n);
    size_t j = 1; float p = 0;
    int l = k;
    for (; l >= 3; l -= 3) {
        float4 a = __ldg((const float4*)&tree[8 * j]), b = __ldg((const float4*)&tree[8 * j + 4]);
        float2 pa = make_float2(a.x + a.y, a.z + a.w), pb = make_float2(b.x + b.y, b.z + b.w);
        bool right = descend(make_float2(pa.x + pa.y, pb.x + pb.y), u, j, p);
        float2 q = right ? pb : pa; float4 v = right ? b : a;
        right = descend(q, u, j, p);
        descend(right ? make_float2(v.z, v.w) : make_float2(v.x, v.y), u, j, p);
    }
    for (; l > 0; l--) descend(__ldg((const float2*)&tree[2 * j]), u, j, p);
    idx[i] = j - ((size_t)1 << k); pri[i] = p;
}

// ---------------------------------------------------------------- sums, two stages
__device__ inline float warp_sum(float x) { for (int d = 16; d; d >>= 1) x += __shfl_xor_sync(~0u, x, d); return x; }
__global__ void __launch_bounds__(256) sum_stretch(const float* __restrict__ x, float* __restrict__ out, size_t n, size_t stretch) {
    __shared__ float part[8];
    size_t end = min(n, (blockIdx.x + 1) * stretch), i = blockIdx.x * stretch + threadIdx.x * 4;
    float4 s = make_float4(0, 0, 0, 0);
    for (; i + 4 <= end; i += 1024) { float4 v = __ldg((const float4*)&x[i]); s.x += v.x; s.y += v.y; s.z += v.z; s.w += v.w; }
    float w = warp_sum((s.x + s.y) + (s.z + s.w));
    if (!(threadIdx.x & 31)) part[threadIdx.x >> 5] = w;
    __syncthreads();
    if (threadIdx.x < 32) { w = warp_sum(threadIdx.x < 8 ? part[threadIdx.x] : 0); if (!threadIdx.x) out[blockIdx.x] = w; }
}

// ---------------------------------------------------------------- running sums in whole units, and searches
__device__ inline u64 units(float p, double scale) { double x = p * scale; u64 w = (u64)x; return w + ((double)w < x); }
__device__ inline u64 warp_running(u64 v, int lane) { for (int d = 1; d < 32; d *= 2) { u64 b = __shfl_up_sync(~0u, v, d); if (lane >= d) v += b; } return v; }
__device__ inline u64 scan_block(u64 v, u64* sums, u64* total) {
    int warp = threadIdx.x >> 5, lane = threadIdx.x & 31;
    u64 in = warp_running(v, lane);
    __syncthreads();
    if (lane == 31) sums[warp] = in;
    __syncthreads();
    u64 up = warp_running(sums[lane], lane);
    *total = __shfl_sync(~0u, up, 31);
    u64 before = __shfl_sync(~0u, up, warp ? warp - 1 : 0);
    return (warp ? before : 0) + in - v;
}
template <bool STORE> __global__ void __launch_bounds__(1024) scan_tile(const float* __restrict__ p, u64* sums, u64* __restrict__ prefix, double scale) {
    __shared__ u64 part[32];
    size_t at = blockIdx.x * (size_t)4096 + threadIdx.x * 4;
    float4 v = __ldg((const float4*)&p[at]);
    u64 e[4] = {units(v.x, scale), units(v.y, scale), units(v.z, scale), units(v.w, scale)}, total;
    u64 s = scan_block(e[0] + e[1] + e[2] + e[3], part, &total);
    if (!STORE) { if (!threadIdx.x) sums[blockIdx.x] = total; return; }
    s += sums[blockIdx.x];
    ulonglong2 a, b;
    a.x = s += e[0]; a.y = s += e[1]; b.x = s += e[2]; b.y = s += e[3];
    *(ulonglong2*)&prefix[at] = a; *(ulonglong2*)&prefix[at + 2] = b;
}
__global__ void __launch_bounds__(1024) scan_sums(u64* sums, int n) {
    __shared__ u64 part[32];
    u64 carried = 0, total;
    for (int start = 0; start < n; start += 1024) {
        int i = start + threadIdx.x;
        u64 before = scan_block(i < n ? sums[i] : 0, part, &total);
        if (i < n) sums[i] = carried + before;
        carried += total;
    }
}
__global__ void scan_search(const float* __restrict__ p, const u64* __restrict__ prefix, long long* __restrict__ idx, float* __restrict__ drawn, int n, size_t slots, uint32_t seed) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    u64 total = prefix[slots - 1], point = min((u64)((i + (double)unit(i * 2246822519u + seed)) * ((double)total / n)), total - 1);
    size_t low = 0, high = slots - 1;
    while (low < high) { size_t m = (low + high) / 2; if (prefix[m] > point) high = m; else low = m + 1; }
    idx[i] = low; drawn[i] = p[low];
}
__global__ void narrow(const long long* __restrict__ a, uint32_t* __restrict__ b, int n) { int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) b[i] = a[i]; }

// ---------------------------------------------------------------- importance weights
__global__ void __launch_bounds__(1024) is_weights(const float* __restrict__ p, const float* __restrict__ beta, float* __restrict__ w, int n) {
    __shared__ float part[32];
    float m = INFINITY;
    for (int i = threadIdx.x; i < n; i += 1024) m = fminf(m, p[i]);
    for (int d = 16; d; d >>= 1) m = fminf(m, __shfl_xor_sync(~0u, m, d));
    if (!(threadIdx.x & 31)) part[threadIdx.x >> 5] = m;
    __syncthreads();
    m = part[threadIdx.x & 31];
    for (int d = 16; d; d >>= 1) m = fminf(m, __shfl_xor_sync(~0u, m, d));
    float b = *beta;
    for (int i = threadIdx.x; i < n; i += 1024) w[i] = powf(m / p[i], b);
}

// ---------------------------------------------------------------- what follows a product
__global__ void fill_operand(__nv_bfloat16* p, size_t n, uint32_t seed) {
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n; i += (size_t)gridDim.x * blockDim.x) p[i] = __float2bfloat16(2 * unit((uint32_t)i * 2654435761u + seed) - 1);
}
struct __align__(8) Four { __nv_bfloat162 low, high; };
__device__ inline float sigmoid(float x) { return 1 / (1 + __expf(-x)); }
template <class F> __device__ inline Four four(float4 v, F f) { return {__floats2bfloat162_rn(f(v.x), f(v.y)), __floats2bfloat162_rn(f(v.z), f(v.w))}; }
__global__ void silu(float4* __restrict__ c, const float4* __restrict__ bias, Four* __restrict__ d, size_t n4, int width4) {
    size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
    if (i >= n4) return;
    float4 v = c[i], b = __ldg(bias + i % width4);
    v = make_float4(v.x + b.x, v.y + b.y, v.z + b.z, v.w + b.w);
    c[i] = v;
    d[i] = four(v, [](float x) { return x * sigmoid(x); });
}
__global__ void silu_backward(const float4* __restrict__ dy, const float4* __restrict__ at, Four* __restrict__ d, size_t n4) {
    size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
    if (i >= n4) return;
    auto slope = [](float x) { float s = sigmoid(x); return s * (1 + x * (1 - s)); };
    float4 v = dy[i], a = __ldg(at + i);
    d[i] = four(make_float4(v.x * slope(a.x), v.y * slope(a.y), v.z * slope(a.z), v.w * slope(a.w)), [](float x) { return x; });
}

// ---------------------------------------------------------------- timing
static cudaStream_t stream;
static cudaEvent_t start_event, end_event;
static FILE* lines;
static float median(std::vector<float> v) { std::sort(v.begin(), v.end()); return v[v.size() / 2]; }
static float elapsed(std::function<void()> work) {
    float ms;
    CHECK(cudaEventRecord(start_event, stream)); work(); CHECK(cudaEventRecord(end_event, stream)); CHECK(cudaEventSynchronize(end_event));
    CHECK(cudaEventElapsedTime(&ms, start_event, end_event));
    return ms * 1000;
}
static void row(const std::string& key, const char* variant, std::function<void(int)> pass) {
    cudaGraph_t graph; cudaGraphExec_t exec;
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    for (int i = 0; i < SETS; i++) pass(i);
    CHECK(cudaStreamEndCapture(stream, &graph)); CHECK(cudaGraphInstantiate(&exec, graph, 0));
    std::vector<float> replay, single;
    for (int i = 0; i < 3; i++) { CHECK(cudaGraphLaunch(exec, stream)); pass(i); }
    for (int i = 0; i < 21; i++) replay.push_back(elapsed([&] { CHECK(cudaGraphLaunch(exec, stream)); }) / SETS);
    for (int i = 0; i < 21; i++) single.push_back(elapsed([&] { pass(i % SETS); }));
    CHECK(cudaGetLastError());
    printf("%-28s %-28s graph %9.2f us   single %9.2f us\n", key.c_str(), variant, median(replay), median(single));
    fprintf(lines, "{\"key\": \"%s\", \"variant\": \"%s\", \"graph_us\": %.4f, \"single_us\": %.4f}\n", key.c_str(), variant, median(replay), median(single));
    CHECK(cudaGraphExecDestroy(exec)); CHECK(cudaGraphDestroy(graph));
}
template <class T> static T* device_array(size_t n) { T* p; CHECK(cudaMalloc(&p, n * sizeof(T))); CHECK(cudaMemset(p, 0, n * sizeof(T))); return p; }
static float* random_floats(size_t n, uint32_t seed) { float* p = device_array<float>(n); fill_unit<<<4096, 256, 0, stream>>>(p, n, seed); return p; }
static uint32_t* random_indices(size_t n, uint32_t below) { uint32_t* p = device_array<uint32_t>(n); fill_index<<<blocks(n, 256), 256, 0, stream>>>(p, n, 7, below); return p; }

static void copies() {
    size_t n = (size_t)1 << 28;
    float *s = random_floats(n, 1), *d = device_array<float>(n);
    row("copy/1GiB", "same design", [&](int) { copy_vec4x4<<<n / 4096, 256, 0, stream>>>((float4*)s, (float4*)d, n / 4); });
    row("copy/1GiB", "cudaMemcpyAsync", [&](int) { CHECK(cudaMemcpyAsync(d, s, n * 4, cudaMemcpyDeviceToDevice, stream)); });
    CHECK(cudaFree(s)); CHECK(cudaFree(d));
}
static void gathers() {
    size_t source_rows = (size_t)1 << 20;
    float* src = random_floats(source_rows * WIDTH, 1);
    for (size_t n : {(size_t)BATCH, (size_t)8 * BATCH, (size_t)16 * BATCH}) {
        uint32_t* idx = random_indices(n * SETS, source_rows);
        float* dst = device_array<float>(n * STRIDE * SETS);
        auto to = [&](int i) { return dst + (size_t)i * n * STRIDE; };
        std::string key = "gather/" + std::to_string(n);
        row(key, "same design", [&](int i) { gather_warp<false><<<blocks(n * 32, 256), 256, 0, stream>>>((float4*)src, idx + i * n, (float4*)to(i), n, WIDTH / 4, STRIDE / 4); });
        row(key, "a warp a row, streaming", [&](int i) { gather_warp<true><<<blocks(n * 32, 256), 256, 0, stream>>>((float4*)src, idx + i * n, (float4*)to(i), n, WIDTH / 4, STRIDE / 4); });
        row(key, "float4 a thread", [&](int i) { gather_vec4<<<blocks(n * STRIDE / 4, 256), 256, 0, stream>>>((float4*)src, idx + i * n, (float4*)to(i), n, WIDTH / 4, STRIDE / 4); });
        row(key, "element a thread", [&](int i) { gather_element<<<blocks(n * STRIDE, 256), 256, 0, stream>>>(src, idx + i * n, to(i), n, WIDTH, STRIDE); });
        CHECK(cudaFree(idx)); CHECK(cudaFree(dst));
    }
    CHECK(cudaFree(src));
}
static void trees(int k) {
    size_t n = (size_t)1 << k;
    int stages = k <= 13 ? 0 : (k - 13 + 6) / 7;
    size_t owners_len = 1;
    for (int s = 0; s < stages; s++) owners_len += n >> (7 * (s + 1));
    float *tree = random_floats(2 * n, 3), *pri = device_array<float>((size_t)BATCH * SETS);
    u64* owners = device_array<u64>(owners_len);
    uint32_t *most = device_array<uint32_t>(1), *picks = random_indices((size_t)BATCH * SETS, n), *drawn = device_array<uint32_t>((size_t)BATCH * SETS);
    __nv_bfloat16* td = device_array<__nv_bfloat16>((size_t)BATCH * SETS);
    fill_error<<<blocks(BATCH * SETS, 256), 256, 0, stream>>>(td, BATCH * SETS);
    auto build = [&] { for (int s = 0; s < stages; s++) build_groups<<<blocks((n >> (7 * (s + 1))) * 32, 128), 128, 0, stream>>>(tree, k, s); top<<<1, 1024, 0, stream>>>(tree, owners, k); };
    build();
    auto update = [&](int i, uint32_t* idx) {
        update_leaves<<<blocks(BATCH, 64), 64, 0, stream>>>(idx + i * BATCH, td + i * BATCH, (uint32_t*)tree, owners, most, BATCH, k);
        for (int s = 0; s < stages; s++) update_groups<<<blocks((size_t)BATCH * 32, 128), 128, 0, stream>>>(idx + i * BATCH, owners, tree, BATCH, k, s);
        top<<<1, 1024, 0, stream>>>(tree, owners, k);
    };
    auto clear_and_max = [&](int i, uint32_t* idx) {
        leaf_clear<<<blocks(BATCH, 256), 256, 0, stream>>>(tree, idx + i * BATCH, BATCH, k);
        leaf_max<<<blocks(BATCH, 256), 256, 0, stream>>>(tree, idx + i * BATCH, td + i * BATCH, BATCH, k);
    };
    auto levels = [&](int i, uint32_t* idx) { clear_and_max(i, idx); for (int l = 1; l <= k; l++) level_sum<<<blocks(BATCH, 256), 256, 0, stream>>>(tree, idx + i * BATCH, BATCH, k, l); };
    auto rebuild = [&](int i, uint32_t* idx) { clear_and_max(i, idx); build(); };
    auto sample = [&](int i) { sample_three<<<blocks(BATCH, 64), 64, 0, stream>>>(tree, drawn + i * BATCH, pri + i * BATCH, BATCH, k, 99 + i); };
    auto plain_sample = [&](int i) { sample_level<<<blocks(BATCH, 64), 64, 0, stream>>>(tree, drawn + i * BATCH, pri + i * BATCH, BATCH, k, 99 + i); };
    std::string at = "/2^" + std::to_string(k);
    row("tree_sample" + at, "same design", sample);
    row("tree_sample" + at, "a level a load", plain_sample);
    row("tree_update" + at, "same design", [&](int i) { update(i, picks); });
    row("tree_update" + at, "a kernel a level", [&](int i) { levels(i, picks); });
    row("tree_update" + at, "full rebuild", [&](int i) { rebuild(i, picks); });
    row("tree_sample_update" + at, "same design", [&](int i) { sample(i); update(i, drawn); });
    row("tree_sample_update" + at, "a kernel a level", [&](int i) { plain_sample(i); levels(i, drawn); });
    row("tree_sample_update" + at, "full rebuild", [&](int i) { plain_sample(i); rebuild(i, drawn); });
    for (void* p : {(void*)tree, (void*)pri, (void*)owners, (void*)most, (void*)picks, (void*)drawn, (void*)td}) CHECK(cudaFree(p));
}
static void scans() {
    size_t n = (size_t)1 << 20;
    float *p = random_floats(n, 1), *drawn = device_array<float>(BATCH);
    u64 *sums = device_array<u64>(n / 4096), *prefix = device_array<u64>(n);
    long long* wide = device_array<long long>(BATCH);
    uint32_t* thin = device_array<uint32_t>(BATCH);
    double scale = 2199023255552.0;   // 2^41: 2^20 priorities under 2 make at most 2^62
    auto prefixes = [&] {
        scan_tile<false><<<n / 4096, 1024, 0, stream>>>(p, sums, prefix, scale);
        scan_sums<<<1, 1024, 0, stream>>>(sums, n / 4096);
        scan_tile<true><<<n / 4096, 1024, 0, stream>>>(p, sums, prefix, scale);
    };
    row("scan_prefix/2^20", "same design", [&](int) { prefixes(); });
    row("scan_sample/2^20", "same design", [&](int i) {
        prefixes();
        scan_search<<<blocks(BATCH, 64), 64, 0, stream>>>(p, prefix, wide, drawn, BATCH, n, 99 + i);
        narrow<<<blocks(BATCH, 64), 64, 0, stream>>>(wide, thin, BATCH);
    });
    for (void* q : {(void*)p, (void*)drawn, (void*)sums, (void*)prefix, (void*)wide, (void*)thin}) CHECK(cudaFree(q));
}
static void small() {
    for (int k : {20, 26}) {
        size_t n = (size_t)1 << k, tiles = n / 1024, parts = std::min<size_t>(tiles, 1024);
        float *x = random_floats(n, 1), *partial = device_array<float>(parts), *out = device_array<float>(1);
        row("reduce_sum/2^" + std::to_string(k), "same design", [&](int) {
            sum_stretch<<<parts, 256, 0, stream>>>(x, partial, n, (tiles + parts - 1) / parts * 1024);
            sum_stretch<<<1, 256, 0, stream>>>(partial, out, parts, 1024); });
        CHECK(cudaFree(x)); CHECK(cudaFree(partial)); CHECK(cudaFree(out));
    }
    float *p = random_floats(BATCH, 1), *w = device_array<float>(BATCH), *beta = random_floats(1, 5);
    row("is_weights/" + std::to_string(BATCH), "same design", [&](int) { is_weights<<<1, 1024, 0, stream>>>(p, beta, w, BATCH); });
}
static void products() {
    const int hidden = 512;
    size_t rows = (size_t)BATCH * hidden, weights = (size_t)hidden * hidden;
    auto operands = [](size_t n, uint32_t seed) { auto* p = device_array<__nv_bfloat16>(n); fill_operand<<<4096, 256, 0, stream>>>(p, n, seed); return p; };
    __nv_bfloat16 *x = operands(rows * SETS, 1), *dy = operands(rows * SETS, 2), *w = operands(weights * SETS, 3);
    float *c = device_array<float>(rows * SETS), *at = random_floats(rows * SETS, 4), *bias = random_floats(hidden, 5), *gradient = device_array<float>(weights);
    Four* d = device_array<Four>(rows / 4 * SETS);
    size_t workspace_bytes = (size_t)32 << 20;
    char* workspace = device_array<char>(workspace_bytes);
    cublasHandle_t blas;
    CHECK_BLAS(cublasCreate(&blas));
    CHECK_BLAS(cublasSetStream(blas, stream));
    // Of our own, so that a capture allocates nothing.
    CHECK_BLAS(cublasSetWorkspace(blas, workspace, workspace_bytes));
    // cuBLAS counts columns first, so that it makes C^T (n x m) = op(B) op(A).
    auto product = [&](cublasOperation_t of_b, cublasOperation_t of_a, int m, int n, int k, const void* a, const void* b, float* out) {
        float one = 1, zero = 0;
        int b_stride = of_b == CUBLAS_OP_T ? k : n, a_stride = of_a == CUBLAS_OP_T ? m : k;
        CHECK_BLAS(cublasGemmEx(blas, of_b, of_a, n, m, k, &one, b, CUDA_R_16BF, b_stride, a, CUDA_R_16BF, a_stride, &zero, out, CUDA_R_32F, n, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT));
    };
    auto nt = [&](int i) { product(CUBLAS_OP_T, CUBLAS_OP_N, BATCH, hidden, hidden, x + i * rows, w + i * weights, c + i * rows); };
    auto nn = [&](int i) { product(CUBLAS_OP_N, CUBLAS_OP_N, BATCH, hidden, hidden, x + i * rows, w + i * weights, c + i * rows); };
    row("nt/8192x512x512", "cuBLAS", nt);
    row("nt_silu/8192x512x512", "cuBLAS and a pass", [&](int i) {
        nt(i);
        silu<<<blocks(rows / 4, 256), 256, 0, stream>>>((float4*)(c + i * rows), (float4*)bias, d + i * rows / 4, rows / 4, hidden / 4);
    });
    row("nn/8192x512x512", "cuBLAS", nn);
    row("nn_silu_backward/8192x512x512", "cuBLAS and a pass", [&](int i) {
        nn(i);
        silu_backward<<<blocks(rows / 4, 256), 256, 0, stream>>>((float4*)(c + i * rows), (float4*)(at + i * rows), d + i * rows / 4, rows / 4);
    });
    row("tn/512x512x8192", "cuBLAS", [&](int i) { product(CUBLAS_OP_N, CUBLAS_OP_T, hidden, hidden, BATCH, dy + i * rows, x + i * rows, gradient); });
    CHECK_BLAS(cublasDestroy(blas));
    for (void* p : {(void*)x, (void*)dy, (void*)w, (void*)c, (void*)at, (void*)bias, (void*)gradient, (void*)d, (void*)workspace}) CHECK(cudaFree(p));
}

int main(int argc, char** argv) {
    if (argc < 2 || argc > 3) { fprintf(stderr, "usage: %s FILE [SUBJECT]\n", argv[0]); return 2; }
    auto wanted = [&](const char* subject) { return argc == 2 || std::string(argv[2]) == subject; };
    if (!(lines = fopen(argv[1], "w"))) { perror(argv[1]); return 1; }
    cudaDeviceProp device; CHECK(cudaGetDeviceProperties(&device, 0));
    printf("# CUDA C++ peers on %s, %d multiprocessors\n", device.name, device.multiProcessorCount);
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking)); CHECK(cudaEventCreate(&start_event)); CHECK(cudaEventCreate(&end_event));
    copies();
    if (wanted("gather")) gathers();
    for (int k = 16; k <= 26 && wanted("trees"); k += 2) trees(k);
    if (wanted("scan")) scans();
    if (wanted("small")) small();
    if (wanted("products")) products();
    return 0;
}
