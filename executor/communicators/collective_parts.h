// What the collectives of ranks that share memory do with elements: on the host
// (executor/communicators/local_collective.h) and on a GPU (executor/gpu/gpu_collective.h).
#ifndef WEFT_EXECUTOR_COMMUNICATORS_COLLECTIVE_PARTS_H_
#define WEFT_EXECUTOR_COMMUNICATORS_COLLECTIVE_PARTS_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "absl/types/span.h"
#include "executor/communicators/communicator.h"
#include "ops/formulas/reduction.h"
#include "ops/host_device.h"
#include "ops/kernel_util.h"
#include "ops/tensor.h"

namespace weft {

struct ElementRange {
  int64_t begin;
  int64_t end;
};

// Part `part` of [0, count). Parts consist of whole cache lines, if the array is aligned.
inline ElementRange PartOf(int64_t count, int part, int num_parts) {
  constexpr int64_t kUnit = 64;
  const int64_t num_units = (count + kUnit - 1) / kUnit;
  return {std::min(count, num_units * part / num_parts * kUnit),
          std::min(count, num_units * (part + 1) / num_parts * kUnit)};
}

// The type in which elements of type T are reduced: half precision is rounded once, at the end.
template <typename T>
using Accumulator =
    std::conditional_t<std::is_same_v<T, Float16> || std::is_same_v<T, BFloat16>, float, T>;

// Calls run(TypeTag<T>()) for the C++ type of `dtype`; false if that type cannot be reduced.
template <typename Run>
bool ForReducible(DType dtype, Run run) {
  const auto try_type = [&](auto tag) {
    const bool is_type = DTypeOf<typename decltype(tag)::type>::value == dtype;
    if (is_type) run(tag);
    return is_type;
  };
  return try_type(TypeTag<float>()) || try_type(TypeTag<double>()) ||
         try_type(TypeTag<Float16>()) || try_type(TypeTag<BFloat16>()) ||
         try_type(TypeTag<int8_t>()) || try_type(TypeTag<uint8_t>()) ||
         try_type(TypeTag<int32_t>()) || try_type(TypeTag<int64_t>());
}

// Calls run(join, divides), where join.Join(a, x) reduces two accumulators of type Acc, and
// `divides` says whether MeanOf follows.
template <typename Acc, typename Run>
void ForReduction(Reduction reduction, Run run) {
  switch (reduction) {
    case Reduction::kSum:
      return run(formulas::Sum<Acc>(), false);
    case Reduction::kAvg:
      return run(formulas::Sum<Acc>(), true);
    case Reduction::kProd:
      return run(formulas::Prod<Acc>(), false);
    case Reduction::kMax:
      return run(formulas::Max<Acc>(), false);
    case Reduction::kMin:
      return run(formulas::Min<Acc>(), false);
  }
}

// Integers are divided with a divisor of 64 bits, which holds every number of ranks.
template <typename Acc>
WEFT_HOST_DEVICE Acc MeanOf(Acc sum, int nranks) {
  using Divisor = std::conditional_t<std::is_integral_v<Acc>, int64_t, Acc>;
  return static_cast<Acc>(sum / static_cast<Divisor>(nranks));
}

// Calls copy(from, bytes, to) for what part `part` of a collective without reduction copies.
template <typename Copy>
void ForCopies(const CollectiveDesc& desc, absl::Span<const void* const> in,
               absl::Span<void* const> out, int part, int num_parts, const Copy& copy) {
  const auto nranks = static_cast<int64_t>(in.size());
  const int64_t size = static_cast<int64_t>(SizeOf(desc.dtype));
  // What one rank has for another.
  const bool scatters = desc.kind == CollectiveKind::kAllToAll;
  const bool gathers = scatters || desc.kind == CollectiveKind::kAllGather;
  const int64_t share = scatters ? desc.count / nranks : desc.count;
  const ElementRange range = PartOf(share, part, num_parts);
  const int64_t begin = range.begin * size, bytes = (range.end - range.begin) * size;
  if (bytes == 0) return;
  for (int64_t from = 0; from < nranks; ++from) {
    if (!gathers && from != desc.root) continue;
    for (int64_t to = 0; to < nranks; ++to) {
      if (desc.kind == CollectiveKind::kSend && to != desc.peer) continue;
      const char* const source =
          static_cast<const char*>(in[from]) + begin + (scatters ? to * share * size : 0);
      char* const target =
          static_cast<char*>(out[to]) + begin + (gathers ? from * share * size : 0);
      if (target != source) copy(source, static_cast<size_t>(bytes), target);
    }
  }
}

}  // namespace weft

#endif  // WEFT_EXECUTOR_COMMUNICATORS_COLLECTIVE_PARTS_H_
