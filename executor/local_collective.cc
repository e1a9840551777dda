#include "executor/local_collective.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "absl/strings/str_cat.h"
#include "ops/kernel_util.h"
#include "ops/tensor.h"

namespace weft {
namespace {

// Elements that are reduced at a time, so that they stay in the L1 cache.
constexpr int64_t kBlock = 1024;

struct Range {
  int64_t begin;
  int64_t end;
};

// Part `part` of [0, count), split between blocks.
Range PartOf(int64_t count, int part, int num_parts) {
  const int64_t num_blocks = (count + kBlock - 1) / kBlock;
  return {std::min(count, num_blocks * part / num_parts * kBlock),
          std::min(count, num_blocks * (part + 1) / num_parts * kBlock)};
}

// The type in which elements of type T are reduced: half precision is rounded once, at the end.
template <typename T>
using Accumulator =
    std::conditional_t<std::is_same_v<T, Float16> || std::is_same_v<T, BFloat16>, float, T>;

template <typename T>
void AddRounding(Accumulator<T>* acc, const T* elements, int64_t n) {
  using Acc = Accumulator<T>;
  for (int64_t i = 0; i < n; ++i) {
    acc[i] = static_cast<Acc>(static_cast<T>(acc[i] + static_cast<Acc>(elements[i])));
  }
}

template <typename T>
void Fold(Reduction reduction, Accumulator<T>* acc, const T* elements, int64_t n) {
  using Acc = Accumulator<T>;
  const auto x = [elements](int64_t i) { return static_cast<Acc>(elements[i]); };
  switch (reduction) {
    case Reduction::kSum:
    case Reduction::kAvg:
      for (int64_t i = 0; i < n; ++i) acc[i] = static_cast<Acc>(Wrapping(acc[i]) + Wrapping(x(i)));
      return;
    case Reduction::kProd:
      for (int64_t i = 0; i < n; ++i) acc[i] = static_cast<Acc>(Wrapping(acc[i]) * Wrapping(x(i)));
      return;
    case Reduction::kMax:
      for (int64_t i = 0; i < n; ++i) acc[i] = (x(i) > acc[i] || x(i) != x(i)) ? x(i) : acc[i];
      return;
    case Reduction::kMin:
      for (int64_t i = 0; i < n; ++i) acc[i] = (x(i) < acc[i] || x(i) != x(i)) ? x(i) : acc[i];
      return;
  }
}

// Reduces elements [begin, end) of all ranks, block by block, and passes each block to
// write(result, block).
template <typename T, typename Write>
void Reduce(const CollectiveDesc& desc, absl::Span<const void* const> in, Range range,
            const Write& write) {
  const int nranks = static_cast<int>(in.size());
  using Acc = Accumulator<T>;
  const bool adds = desc.reduction == Reduction::kSum || desc.reduction == Reduction::kAvg;
  const bool rounds = desc.rounds_each_addition && adds && !std::is_same_v<T, Acc>;
  Acc acc[kBlock];
  [[maybe_unused]] T result[kBlock];
  for (int64_t begin = range.begin; begin < range.end; begin += kBlock) {
    const int64_t n = std::min(kBlock, range.end - begin);
    std::copy_n(static_cast<const T*>(in[0]) + begin, n, acc);
    for (int r = 1; r < nranks; ++r) {
      const T* elements = static_cast<const T*>(in[r]) + begin;
      if (rounds) {
        AddRounding(acc, elements, n);
      } else {
        Fold(desc.reduction, acc, elements, n);
      }
    }
    if (desc.reduction == Reduction::kAvg) {
      for (int64_t i = 0; i < n; ++i) acc[i] /= static_cast<Acc>(nranks);
    }
    if constexpr (std::is_same_v<T, Acc>) {
      write(acc, Range{begin, begin + n});
    } else {
      std::copy_n(acc, n, result);
      write(result, Range{begin, begin + n});
    }
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

}  // namespace weft
