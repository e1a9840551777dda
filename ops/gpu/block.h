// The threads that compute a row together, and reports of bad values: for .cu files only.
#ifndef WEFT_OPS_GPU_BLOCK_H_
#define WEFT_OPS_GPU_BLOCK_H_

#include <cstdint>
#include <cstdio>
#ifdef __CUDACC__
#define WEFT_DEVICE __device__
#else
#include <stdexcept>
#include <string>
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
  // visit(i), in all threads and in ascending order, for the i of [begin, end) that match.
  template <typename Matches, typename Visit>
  __device__ void ForEachMatch(int64_t begin, int64_t end, Matches matches, Visit visit) const {
    __shared__ bool found[kThreads];
    for (int64_t first = begin; first < end; first += blockDim.x) {
      const int64_t i = first + threadIdx.x;
      const bool is_match = i < end && matches(i);
      found[threadIdx.x] = is_match;
      if (__syncthreads_or(is_match) == 0) continue;
      for (int k = 0; k < blockDim.x; ++k) {
        if (found[k]) visit(first + k);
      }
      __syncthreads();
    }
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
  template <typename Matches, typename Visit>
  void ForEachMatch(int64_t begin, int64_t end, Matches matches, Visit visit) const {
    for (int64_t i = begin; i < end; ++i) {
      if (matches(i)) visit(i);
    }
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

// Ends the step with an error unless `value`, element `position` of the slot, is in [low, high).
// The device prints it and stops: the host learns of it by the error of its next call.
WEFT_DEVICE inline void RequireInRange(const char* slot, int64_t value, int64_t low, int64_t high,
                                       int64_t position) {
  if (value >= low && value < high) return;
#ifdef __CUDACC__
  printf("input %s: %lld at position %lld is not in [%lld, %lld)\n", slot,
         static_cast<long long>(value), static_cast<long long>(position),
         static_cast<long long>(low), static_cast<long long>(high));
  __trap();
#else
  throw std::out_of_range("input " + std::string(slot) + ": " + std::to_string(value) +
                          " at position " + std::to_string(position) + " is not in [" +
                          std::to_string(low) + ", " + std::to_string(high) + ")");
#endif
}

// The same unless `value`, an element of the slot by which integers are divided, is other than 0.
WEFT_DEVICE inline void RequireDivisor(const char* slot, int64_t value) {
  if (value != 0) return;
#ifdef __CUDACC__
  printf("input %s: division by zero\n", slot);
  __trap();
#else
  throw std::out_of_range("input " + std::string(slot) + ": division by zero");
#endif
}

}  // namespace weft::gpu

#endif  // WEFT_OPS_GPU_BLOCK_H_
