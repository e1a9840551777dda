// The threads that compute a row together, and reports of bad values: for .cu files only.
#ifndef WEFT_OPS_GPU_BLOCK_H_
#define WEFT_OPS_GPU_BLOCK_H_

#include <cstdint>
#ifdef __CUDACC__
#define WEFT_DEVICE __device__
#else
#include <vector>
#define WEFT_DEVICE
#endif

namespace weft::gpu {

constexpr int kThreads = 256;  // at most, of a block

// As many threads as elements, as a power of 2 within these limits.
inline int ThreadsFor(int64_t width) {
  int threads = 32;
  while (threads < kThreads && threads < width) threads *= 2;
  return threads;
}

struct Plus {
  template <typename A>
  WEFT_DEVICE A operator()(A a, A b) const {
    return a + b;
  }
};

// NaN, if there is one.
struct Larger {
  template <typename A>
  WEFT_DEVICE A operator()(A a, A b) const {
    return b > a || b != b ? b : a;
  }
};

#ifdef __CUDACC__

// Every thread of the block makes each call. All calls but ForMine return when all threads have
// done their part, so that a call may read what the one before wrote.
class Block {
 public:
  // f(i) for i in [0, n), in any order.
  template <typename F>
  __device__ void ForEach(int64_t n, F f) const {
    ForMine(n, f);
    __syncthreads();
  }
  // The same without waiting. A thread gets the same i in each call with this n.
  template <typename F>
  __device__ void ForMine(int64_t n, F f) const {
    for (int64_t i = threadIdx.x; i < n; i += blockDim.x) f(i);
  }
  // f(), in one thread.
  template <typename F>
  __device__ void Once(F f) const {
    if (threadIdx.x == 0) f();
    __syncthreads();
  }
  // `start` and f(0), ..., f(n - 1), joined in an order that n alone determines; for all threads.
  // join(start, a) is a.
  template <typename A, typename F, typename Join>
  __device__ A Reduce(int64_t n, A start, F f, Join join) const {
    __shared__ A parts[kThreads];
    A value = start;
    for (int64_t i = threadIdx.x; i < n; i += blockDim.x) value = join(value, f(i));
    parts[threadIdx.x] = value;
    __syncthreads();
    for (unsigned half = blockDim.x / 2; half > 0; half /= 2) {
      if (threadIdx.x < half)
        parts[threadIdx.x] = join(parts[threadIdx.x], parts[threadIdx.x + half]);
      __syncthreads();
    }
    const A result = parts[0];
    __syncthreads();  // before the next call
    return result;
  }
#else  // on the host

// What the threads do, one after the other. The order of sums is the same.
class Block {
 public:
  explicit Block(int threads) : threads_(threads) {}

  // From the last one to the first, so that a test fails if the order matters.
  template <typename F>
  void ForEach(int64_t n, F f) const {
    for (int64_t i = n; i-- > 0;) f(i);
  }
  template <typename F>
  void ForMine(int64_t n, F f) const {
    ForEach(n, f);
  }
  template <typename F>
  void Once(F f) const {
    f();
  }
  template <typename A, typename F, typename Join>
  A Reduce(int64_t n, A start, F f, Join join) const {
    std::vector<A> parts(threads_, start);
    for (int64_t i = 0; i < n; ++i) parts[i % threads_] = join(parts[i % threads_], f(i));
    for (int half = threads_ / 2; half > 0; half /= 2) {
      for (int i = 0; i < half; ++i) parts[i] = join(parts[i], parts[i + half]);
    }
    return parts[0];
  }
#endif

  template <typename A, typename F>
  WEFT_DEVICE A Sum(int64_t n, F f) const {
    return Reduce(n, A(0), f, Plus());
  }

#ifndef __CUDACC__
 private:
  int threads_;
#endif
};

}  // namespace weft::gpu

#endif  // WEFT_OPS_GPU_BLOCK_H_
