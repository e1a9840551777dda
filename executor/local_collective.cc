#include "executor/local_collective.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "absl/strings/str_cat.h"
#include "ops/kernel_util.h"
#include "ops/tensor.h"
#include "ops/vectorize.h"

namespace weft {
namespace {

// Elements that are reduced at a time, so that they stay in the L1 cache.
constexpr int64_t kBlock = 1024;

struct Range {
  int64_t begin;
  int64_t end;
};

// Part `part` of [0, count). Parts consist of whole cache lines, if the array is aligned.
Range PartOf(int64_t count, int part, int num_parts) {
  constexpr int64_t kUnit = 64;
  const int64_t num_units = (count + kUnit - 1) / kUnit;
  return {std::min(count, num_units * part / num_parts * kUnit),
          std::min(count, num_units * (part + 1) / num_parts * kUnit)};
}

// The type in which elements of type T are reduced: half precision is rounded once, at the end.
template <typename T>
using Accumulator =
    std::conditional_t<std::is_same_v<T, Float16> || std::is_same_v<T, BFloat16>, float, T>;

// acc = op(a, b), element by element. `acc` may be `a`.
template <typename T, typename A, typename Op>
void Combine(const A* a, const T* b, int64_t n, const Op& op, Accumulator<T>* acc) {
  using Acc = Accumulator<T>;
  WEFT_INDEPENDENT_ITERATIONS
  for (int64_t i = 0; i < n; ++i) acc[i] = op(static_cast<Acc>(a[i]), static_cast<Acc>(b[i]));
}

// Folds elements [begin, begin + n) of all ranks.
template <typename T, typename Op>
void FoldBlock(absl::Span<const void* const> in, int64_t begin, int64_t n, const Op& op,
               Accumulator<T>* acc) {
  const auto elements = [&](size_t r) { return static_cast<const T*>(in[r]) + begin; };
  if (in.size() == 1) {
    std::copy_n(elements(0), n, acc);
    return;
  }
  Combine<T>(elements(0), elements(1), n, op, acc);
  for (size_t r = 2; r < in.size(); ++r) Combine<T>(acc, elements(r), n, op, acc);
}

// Reduces elements [begin, end) of all ranks with `op`, block by block, and passes each block to
// write(result, block).
template <typename T, typename Op, typename Write>
void ReduceWith(const Op& op, bool divides, absl::Span<const void* const> in, Range range,
                const Write& write) {
  using Acc = Accumulator<T>;
  Acc acc[kBlock];
  [[maybe_unused]] T result[kBlock];
  for (int64_t begin = range.begin; begin < range.end; begin += kBlock) {
    const int64_t n = std::min(kBlock, range.end - begin);
    FoldBlock<T>(in, begin, n, op, acc);
    if (divides) {
      for (int64_t i = 0; i < n; ++i) acc[i] /= static_cast<Acc>(in.size());
    }
    if constexpr (std::is_same_v<T, Acc>) {
      write(acc, Range{begin, begin + n});
    } else {
      std::copy_n(acc, n, result);
      write(result, Range{begin, begin + n});
    }
  }
}

template <typename T, typename Write>
void Reduce(const CollectiveDesc& desc, absl::Span<const void* const> in, Range range,
            const Write& write) {
  using Acc = Accumulator<T>;
  const auto reduce_with = [&](const auto& op, bool divides = false) {
    VectorizedFor<T>([&] { ReduceWith<T>(op, divides, in, range, write); });
  };
  switch (desc.reduction) {
    case Reduction::kSum:
    case Reduction::kAvg: {
      const bool divides = desc.reduction == Reduction::kAvg;
      const auto add = [](Acc a, Acc x) { return static_cast<Acc>(Wrapping(a) + Wrapping(x)); };
      if (desc.rounds_each_addition && !std::is_same_v<T, Acc>) {
        return reduce_with(
            [&](Acc a, Acc x) { return static_cast<Acc>(static_cast<T>(add(a, x))); }, divides);
      }
      return reduce_with(add, divides);
    }
    case Reduction::kProd:
      return reduce_with([](Acc a, Acc x) { return static_cast<Acc>(Wrapping(a) * Wrapping(x)); });
    case Reduction::kMax:
      return reduce_with([](Acc a, Acc x) { return (x > a || x != x) ? x : a; });
    case Reduction::kMin:
      return reduce_with([](Acc a, Acc x) { return (x < a || x != x) ? x : a; });
  }
}

template <typename T>
void RunReducing(const CollectiveDesc& desc, absl::Span<const void* const> in,
                 absl::Span<void* const> out, int part, int num_parts) {
  const auto nranks = static_cast<int64_t>(in.size());
  const bool scatters = desc.kind == CollectiveKind::kReduceScatter;
  const int64_t share = scatters ? desc.count / nranks : 0;
  const auto write = [&](const T* result, Range block) {
    for (int64_t r = 0; r < nranks; ++r) {
      const bool keeps_input = desc.kind == CollectiveKind::kReduce && r != desc.root;
      if (keeps_input && out[r] == in[r]) continue;
      const Range mine =
          scatters ? Range{std::max(block.begin, r * share), std::min(block.end, (r + 1) * share)}
                   : block;
      if (mine.begin >= mine.end) continue;
      const T* from = keeps_input ? static_cast<const T*>(in[r]) + mine.begin
                                  : result + (mine.begin - block.begin);
      std::memcpy(static_cast<T*>(out[r]) + (mine.begin - r * share), from,
                  (mine.end - mine.begin) * sizeof(T));
    }
  };
  Reduce<T>(desc, in, PartOf(desc.count, part, num_parts), write);
}

template <typename T>
void RunReducingFor(const CollectiveDesc& desc, absl::Span<const void* const> in, int rank,
                    void* out) {
  const bool scatters = desc.kind == CollectiveKind::kReduceScatter;
  const int64_t share = scatters ? desc.count / static_cast<int64_t>(in.size()) : desc.count;
  const int64_t first = scatters ? rank * share : 0;
  Reduce<T>(desc, in, {first, first + share}, [&](const T* result, Range block) {
    std::memcpy(static_cast<T*>(out) + (block.begin - first), result,
                (block.end - block.begin) * sizeof(T));
  });
}

void Copy(const void* from, size_t bytes, void* to) {
  if (to != from && bytes > 0) std::memcpy(to, from, bytes);
}

void RunCopying(const CollectiveDesc& desc, absl::Span<const void* const> in,
                absl::Span<void* const> out, int part, int num_parts) {
  const size_t size = SizeOf(desc.dtype);
  const Range range = PartOf(desc.count, part, num_parts);
  const size_t begin = range.begin * size;
  const size_t bytes = (range.end - range.begin) * size;
  if (bytes == 0) return;
  const int nranks = static_cast<int>(in.size());
  for (int from = 0; from < nranks; ++from) {
    const bool gathers = desc.kind == CollectiveKind::kAllGather;
    if (!gathers && from != desc.root) continue;
    const char* source = static_cast<const char*>(in[from]) + begin;
    for (int to = 0; to < nranks; ++to) {
      char* target = static_cast<char*>(out[to]) + begin + (gathers ? from * desc.count * size : 0);
      if (target != source) std::memcpy(target, source, bytes);
    }
  }
}

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
         try_type(TypeTag<int32_t>()) || try_type(TypeTag<int64_t>());
}

bool Copies(CollectiveKind kind) {
  return kind == CollectiveKind::kAllGather || kind == CollectiveKind::kBroadcast;
}

}  // namespace

absl::Status CheckLocalCollective(const CollectiveDesc& desc, int nranks) {
  const bool has_root =
      desc.kind == CollectiveKind::kBroadcast || desc.kind == CollectiveKind::kReduce;
  if (has_root && (desc.root < 0 || desc.root >= nranks)) {
    return absl::InvalidArgumentError(
        absl::StrCat("root ", desc.root, " is none of the ", nranks, " ranks"));
  }
  if (desc.kind == CollectiveKind::kReduceScatter && desc.count % nranks != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(desc.count, " elements cannot be split evenly over ", nranks, " ranks"));
  }
  if (!Copies(desc.kind) && !ForReducible(desc.dtype, [](auto) {})) {
    return absl::UnimplementedError(absl::StrCat("ranks in one process cannot reduce ",
                                                 DTypeName(desc.dtype),
                                                 ": only fp32, fp64, fp16, bf16, int32 and int64"));
  }
  return absl::OkStatus();
}

void RunLocalCollective(const CollectiveDesc& desc, absl::Span<const void* const> in,
                        absl::Span<void* const> out, int part, int num_parts) {
  if (Copies(desc.kind)) return RunCopying(desc, in, out, part, num_parts);
  // CheckLocalCollective has refused other types.
  ForReducible(desc.dtype, [&](auto tag) {
    RunReducing<typename decltype(tag)::type>(desc, in, out, part, num_parts);
  });
}

void RunLocalCollectiveFor(const CollectiveDesc& desc, absl::Span<const void* const> in, int rank,
                           void* out) {
  const size_t bytes = desc.count * SizeOf(desc.dtype);
  if (desc.kind == CollectiveKind::kAllGather) {
    for (size_t r = 0; r < in.size(); ++r) Copy(in[r], bytes, static_cast<char*>(out) + r * bytes);
  } else if (desc.kind == CollectiveKind::kBroadcast) {
    Copy(in[desc.root], bytes, out);
  } else if (desc.kind == CollectiveKind::kReduce && desc.root != rank) {
    Copy(in[rank], bytes, out);
  } else {
    ForReducible(desc.dtype, [&](auto tag) {
      RunReducingFor<typename decltype(tag)::type>(desc, in, rank, out);
    });
  }
}

}  // namespace weft
