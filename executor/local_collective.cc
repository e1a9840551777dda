#include "executor/local_collective.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "absl/strings/str_cat.h"
#include "ops/float16.h"

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

// Integers are added and multiplied as unsigned, so that overflow wraps around.
template <typename T>
using Arithmetic = typename std::conditional_t<std::is_integral_v<T>, std::make_unsigned<T>,
                                               std::common_type<T>>::type;

// The type in which elements of type T are reduced: half precision is rounded once, at the end.
template <typename T>
using Accumulator =
    std::conditional_t<std::is_same_v<T, Float16> || std::is_same_v<T, BFloat16>, float, T>;

template <typename T>
void Fold(Reduction reduction, Accumulator<T>* acc, const T* elements, int64_t n) {
  using Acc = Accumulator<T>;
  using A = Arithmetic<Acc>;
  const auto x = [elements](int64_t i) { return static_cast<Acc>(elements[i]); };
  switch (reduction) {
    case Reduction::kSum:
    case Reduction::kAvg:
      for (int64_t i = 0; i < n; ++i) acc[i] = static_cast<Acc>(A(acc[i]) + A(x(i)));
      return;
    case Reduction::kProd:
      for (int64_t i = 0; i < n; ++i) acc[i] = static_cast<Acc>(A(acc[i]) * A(x(i)));
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
void Reduce(Reduction reduction, absl::Span<const void* const> in, Range range,
            const Write& write) {
  const int nranks = static_cast<int>(in.size());
  using Acc = Accumulator<T>;
  Acc acc[kBlock];
  [[maybe_unused]] T result[kBlock];
  for (int64_t begin = range.begin; begin < range.end; begin += kBlock) {
    const int64_t n = std::min(kBlock, range.end - begin);
    std::copy_n(static_cast<const T*>(in[0]) + begin, n, acc);
    for (int r = 1; r < nranks; ++r) {
      Fold(reduction, acc, static_cast<const T*>(in[r]) + begin, n);
    }
    if (reduction == Reduction::kAvg) {
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
  const int nranks = static_cast<int>(in.size());
  const Range range = PartOf(desc.count, part, num_parts);
  const auto copy_to = [&](int rank, const T* acc, Range block, int64_t shift) {
    if (block.begin >= block.end) return;
    std::memcpy(static_cast<T*>(out[rank]) + block.begin - shift, acc,
                (block.end - block.begin) * sizeof(T));
  };
  switch (desc.kind) {
    case CollectiveKind::kAllReduce:
      Reduce<T>(desc.reduction, in, range, [&](const T* acc, Range block) {
        for (int r = 0; r < nranks; ++r) copy_to(r, acc, block, 0);
      });
      return;
    case CollectiveKind::kReduce:
      Reduce<T>(desc.reduction, in, range, [&](const T* acc, Range block) {
        for (int r = 0; r < nranks; ++r) {
          if (r == desc.root) {
            copy_to(r, acc, block, 0);
          } else if (out[r] != in[r]) {
            copy_to(r, static_cast<const T*>(in[r]) + block.begin, block, 0);
          }
        }
      });
      return;
    case CollectiveKind::kReduceScatter: {
      const int64_t share = desc.count / nranks;
      Reduce<T>(desc.reduction, in, range, [&](const T* acc, Range block) {
        for (int r = 0; r < nranks; ++r) {
          const Range mine{std::max(block.begin, r * share), std::min(block.end, (r + 1) * share)};
          copy_to(r, acc + (mine.begin - block.begin), mine, r * share);
        }
      });
      return;
    }
    case CollectiveKind::kAllGather:
    case CollectiveKind::kBroadcast:
      return;
  }
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

bool IsReducible(DType dtype) {
  return dtype == DType::kFloat32 || dtype == DType::kFloat64 || dtype == DType::kFloat16 ||
         dtype == DType::kBFloat16 || dtype == DType::kInt32 || dtype == DType::kInt64;
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
  if (!Copies(desc.kind) && !IsReducible(desc.dtype)) {
    return absl::UnimplementedError(absl::StrCat("ranks in one process cannot reduce ",
                                                 DTypeName(desc.dtype),
                                                 ": only fp32, fp64, fp16, bf16, int32 and int64"));
  }
  return absl::OkStatus();
}

void RunLocalCollective(const CollectiveDesc& desc, absl::Span<const void* const> in,
                        absl::Span<void* const> out, int part, int num_parts) {
  if (Copies(desc.kind)) return RunCopying(desc, in, out, part, num_parts);
  switch (desc.dtype) {
    case DType::kFloat32:
      return RunReducing<float>(desc, in, out, part, num_parts);
    case DType::kFloat64:
      return RunReducing<double>(desc, in, out, part, num_parts);
    case DType::kFloat16:
      return RunReducing<Float16>(desc, in, out, part, num_parts);
    case DType::kBFloat16:
      return RunReducing<BFloat16>(desc, in, out, part, num_parts);
    case DType::kInt32:
      return RunReducing<int32_t>(desc, in, out, part, num_parts);
    case DType::kInt64:
      return RunReducing<int64_t>(desc, in, out, part, num_parts);
    default:
      return;  // refused by CheckLocalCollective
  }
}

}  // namespace weft
