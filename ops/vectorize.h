// Loops compiled for the vector units of the machine that runs them.
//
// One binary holds each loop twice: for AVX2, and for the baseline of the build. The machine
// decides which one runs. Without fused multiply-add both give the same bits, with one exception:
// exp, tanh, erf and their kin become calls of libmvec, glibc's vector math library. Its results
// differ from those of libm by up to 4 units in the last place, and between the two kinds of
// machines as well. What is left at the end of an array, less than a vector, uses libm. So equal
// arrays give equal bits, wherever they lie, but equal elements at different places may not.
//
// Tests choose the loops of the other kind of machine with use_baseline_loops.
#ifndef WEFT_OPS_VECTORIZE_H_
#define WEFT_OPS_VECTORIZE_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "ops/float16.h"
#include "ops/threads.h"

#if defined(__GNUC__) && defined(__x86_64__) && !defined(__CUDACC__)
#define WEFT_HAS_AVX2_LOOPS 1
#else
#define WEFT_HAS_AVX2_LOOPS 0
#endif

#if defined(__GNUC__) && !defined(__clang__)
#define WEFT_INDEPENDENT_ITERATIONS _Pragma("GCC ivdep")
#else
#define WEFT_INDEPENDENT_ITERATIONS
#endif

// Other compilers than gcc call libm. So does nvcc, whose headers declare these functions for
// devices too. Before 2.35, libmvec has a few of them only.
#if WEFT_HAS_AVX2_LOOPS && !defined(__clang__) && defined(__GLIBC_PREREQ)
#if __GLIBC_PREREQ(2, 35)
#define WEFT_VECTOR_FUNCTION __attribute__((simd("notinbranch")))
// Declares that these functions have vector variants, as <math.h> does under -ffast-math alone.
#define WEFT_VECTOR_MATH(name) WEFT_VECTOR_FUNCTION float name(float) noexcept;
extern "C" {
WEFT_VECTOR_MATH(acosf)
WEFT_VECTOR_MATH(acoshf)
WEFT_VECTOR_MATH(asinf)
WEFT_VECTOR_MATH(asinhf)
WEFT_VECTOR_MATH(atanf)
WEFT_VECTOR_MATH(atanhf)
WEFT_VECTOR_MATH(cosf)
WEFT_VECTOR_MATH(coshf)
WEFT_VECTOR_MATH(erff)
WEFT_VECTOR_MATH(expf)
WEFT_VECTOR_MATH(expm1f)
WEFT_VECTOR_MATH(logf)
WEFT_VECTOR_MATH(log10f)
WEFT_VECTOR_MATH(log1pf)
WEFT_VECTOR_MATH(log2f)
WEFT_VECTOR_MATH(sinf)
WEFT_VECTOR_MATH(sinhf)
WEFT_VECTOR_MATH(tanf)
WEFT_VECTOR_MATH(tanhf)
WEFT_VECTOR_FUNCTION float powf(float, float) noexcept;
WEFT_VECTOR_FUNCTION float atan2f(float, float) noexcept;
}
#undef WEFT_VECTOR_MATH
#undef WEFT_VECTOR_FUNCTION
#endif
#endif

namespace weft {

// Whether loops run as compiled for the baseline, whatever the machine has. For tests, which set it
// before the first loop runs.
inline bool use_baseline_loops = false;

// Whether loops run as compiled for AVX2.
inline bool RunsAvx2Loops() {
#if WEFT_HAS_AVX2_LOOPS
  return !use_baseline_loops && __builtin_cpu_supports("avx2");
#else
  return false;
#endif
}

namespace vectorize_internal {

#if WEFT_HAS_AVX2_LOOPS
template <typename F>
[[gnu::target("avx2"), gnu::flatten]] void RunWithAvx2(const F& f) {
  f();
}
#endif

template <typename F>
[[gnu::flatten]] void Run(const F& f) {
  f();
}

}  // namespace vectorize_internal

// Calls f(), compiled for the machine together with all that it calls and the compiler sees.
template <typename F>
void Vectorized(const F& f) {
#if WEFT_HAS_AVX2_LOOPS
  if (RunsAvx2Loops()) return vectorize_internal::RunWithAvx2(f);
#endif
  vectorize_internal::Run(f);
}

// Vectorized(f) if T is float or BFloat16, else f(): programs seldom compute much in other types,
// and compiling loops twice takes long.
template <typename T, typename F>
void VectorizedFor(const F& f) {
  if constexpr (std::is_same_v<T, float> || std::is_same_v<T, BFloat16>) {
    Vectorized(f);
  } else {
    f();
  }
}

// Calls f(i) for i in [0, n), in any order. A call may read element i of an array that it writes,
// but no element that another call writes. Vectorized for T. Long loops run on the threads of the
// rank (ops/threads.h).
template <typename T, typename F>
void ForEach(int64_t n, F f) {
  const auto part = [&f](int64_t begin, int64_t end) {
    VectorizedFor<T>([&f, begin, end] {
      const F local = f;  // not aliased by what it writes
      WEFT_INDEPENDENT_ITERATIONS
      for (int64_t i = begin; i < end; ++i) local(i);
    });
  };
  if (n >= kMinParallelSize && KernelThreads() > 1) return ForEachPart(n, part);
  part(0, n);
}

// The sums of each of the numbers f(i) for i in [0, n): f returns a std::array<Sum, count>. Each is
// the sum of 16 sums of every 16th number, which is faster than one sum. All are of type Sum. float
// is faster than double where f computes in float, and loses little of about a thousand numbers of
// the same sign. T, and what a call may read and write, as for ForEach; the order does not depend
// on T.
template <typename T, size_t count, typename Sum = double, typename F>
std::array<double, count> SumsOf(int64_t n, F f) {
  std::array<double, count> totals;
  VectorizedFor<T>([n, &f, &totals] {
    constexpr int kSums = 16;
    const F local = f;
    Sum sums[count][kSums] = {};
    int64_t i = 0;
    for (; i + kSums <= n; i += kSums) {
      WEFT_INDEPENDENT_ITERATIONS
      for (int k = 0; k < kSums; ++k) {
        const std::array<Sum, count> numbers = local(i + k);
        for (size_t s = 0; s < count; ++s) sums[s][k] += numbers[s];
      }
    }
    const int64_t rest = n - i;
    for (int64_t k = 0; k < rest; ++k) {
      const std::array<Sum, count> numbers = local(i + k);
      for (size_t s = 0; s < count; ++s) sums[s][k] += numbers[s];
    }
    for (size_t s = 0; s < count; ++s) {
      for (int step = kSums / 2; step > 0; step /= 2) {
        for (int k = 0; k < step; ++k) sums[s][k] += sums[s][k + step];
      }
      totals[s] = sums[s][0];
    }
  });
  return totals;
}

// The sum of the numbers f(i), likewise.
template <typename T, typename F>
double SumOf(int64_t n, F f) {
  return SumsOf<T, 1>(
      n, [f](int64_t i) { return std::array<double, 1>{static_cast<double>(f(i))}; })[0];
}

}  // namespace weft

#endif  // WEFT_OPS_VECTORIZE_H_
