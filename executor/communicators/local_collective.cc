#include "executor/communicators/local_collective.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "absl/strings/str_cat.h"
#include "executor/communicators/collective_parts.h"
#include "ops/tensor.h"
#include "ops/vectorize.h"

namespace weft {
namespace {

// Elements that are reduced at a time, so that they stay in the L1 cache.
constexpr int64_t kBlock = 1024;

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
void ReduceWith(const Op& op, bool divides, absl::Span<const void* const> in, ElementRange range,
                const Write& write) {
  using Acc = Accumulator<T>;
  Acc acc[kBlock];
  [[maybe_unused]] T result[kBlock];
  for (int64_t begin = range.begin; begin < range.end; begin += kBlock) {
    const int64_t n = std::min(kBlock, range.end - begin);
    FoldBlock<T>(in, begin, n, op, acc);
    if (divides) {
      const int nranks = static_cast<int>(in.size());
      for (int64_t i = 0; i < n; ++i) acc[i] = MeanOf(acc[i], nranks);
    }
    if constexpr (std::is_same_v<T, Acc>) {
      write(acc, ElementRange{begin, begin + n});
    } else {
      std::copy_n(acc, n, result);
      write(result, ElementRange{begin, begin + n});
    }
  }
}

template <typename T, typename Write>
void Reduce(const CollectiveDesc& desc, absl::Span<const void* const> in, ElementRange range,
            const Write& write) {
  using Acc = Accumulator<T>;
  ForReduction<Acc>(desc.reduction, [&](auto reduction, bool divides) {
    using Function = decltype(reduction);
    const auto reduce_with = [&](const auto& op) {
      VectorizedFor<T>([&] { ReduceWith<T>(op, divides, in, range, write); });
    };
    if (desc.rounds_each_addition && Function::kAdds && !std::is_same_v<T, Acc>) {
      return reduce_with(
          [](Acc a, Acc x) { return static_cast<Acc>(static_cast<T>(Function::Join(a, x))); });
    }
    reduce_with([](Acc a, Acc x) { return Function::Join(a, x); });
  });
}

template <typename T>
void RunReducing(const CollectiveDesc& desc, absl::Span<const void* const> in,
                 absl::Span<void* const> out, int part, int num_parts) {
  const auto nranks = static_cast<int64_t>(in.size());
  const bool scatters = desc.kind == CollectiveKind::kReduceScatter;
  const int64_t share = scatters ? desc.count / nranks : 0;
  const auto write = [&](const T* result, ElementRange block) {
    for (int64_t r = 0; r < nranks; ++r) {
      const bool keeps_input = desc.kind == CollectiveKind::kReduce && r != desc.root;
      if (keeps_input && out[r] == in[r]) continue;
      const ElementRange mine = scatters ? ElementRange{std::max(block.begin, r * share),
                                                        std::min(block.end, (r + 1) * share)}
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
  Reduce<T>(desc, in, {first, first + share}, [&](const T* result, ElementRange block) {
    std::memcpy(static_cast<T*>(out) + (block.begin - first), result,
                (block.end - block.begin) * sizeof(T));
  });
}

void Copy(const void* from, size_t bytes, void* to) {
  if (to != from && bytes > 0) std::memcpy(to, from, bytes);
}

}  // namespace

absl::Status CheckLocalCollective(const CollectiveDesc& desc, int nranks) {
  if (HasRoot(desc.kind) && (desc.root < 0 || desc.root >= nranks)) {
    return absl::InvalidArgumentError(
        absl::StrCat("root ", desc.root, " is none of the ", nranks, " ranks"));
  }
  if (desc.kind == CollectiveKind::kSend && (desc.peer < 0 || desc.peer >= nranks)) {
    return absl::InvalidArgumentError(
        absl::StrCat("peer ", desc.peer, " is none of the ", nranks, " ranks"));
  }
  if (SplitsInput(desc.kind) && desc.count % nranks != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(desc.count, " elements cannot be split evenly over ", nranks, " ranks"));
  }
  if (Reduces(desc.kind) && !ForReducible(desc.dtype, [](auto) {})) {
    return absl::UnimplementedError(absl::StrCat("ranks in one process cannot reduce ",
                                                 DTypeName(desc.dtype),
                                                 ": only fp32, fp64, fp16, bf16, int8, "
                                                 "uint8, int32 and int64"));
  }
  return absl::OkStatus();
}

void RunLocalCollective(const CollectiveDesc& desc, absl::Span<const void* const> in,
                        absl::Span<void* const> out, int part, int num_parts) {
  if (!Reduces(desc.kind)) {
    return ForCopies(desc, in, out, part, num_parts, [](const char* from, size_t bytes, char* to) {
      std::memcpy(to, from, bytes);
    });
  }
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
  } else if (desc.kind == CollectiveKind::kAllToAll) {
    const size_t share = bytes / in.size();
    for (size_t r = 0; r < in.size(); ++r) {
      Copy(static_cast<const char*>(in[r]) + rank * share, share,
           static_cast<char*>(out) + r * share);
    }
  } else if (desc.kind == CollectiveKind::kBroadcast ||
             (desc.kind == CollectiveKind::kSend && desc.peer == rank)) {
    Copy(in[desc.root], bytes, out);
  } else if (desc.kind == CollectiveKind::kSend) {
    return;
  } else if (desc.kind == CollectiveKind::kReduce && desc.root != rank) {
    Copy(in[rank], bytes, out);
  } else {
    ForReducible(desc.dtype, [&](auto tag) {
      RunReducingFor<typename decltype(tag)::type>(desc, in, rank, out);
    });
  }
}

}  // namespace weft
