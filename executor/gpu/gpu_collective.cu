#include <cstdint>

#include "absl/strings/str_cat.h"
#include "executor/communicators/collective_parts.h"
#include "executor/gpu/gpu_collective.h"
#include "ops/gpu/launch.h"

namespace weft {
namespace {

// Pointers to the buffers of all ranks are arguments of a kernel.
constexpr int kMaxRanksOfGpu = 64;

// Element `begin` + i of the results of all ranks. Reads all inputs before it writes: outputs may
// be inputs.
template <typename T, typename Function>
struct ReduceElement {
  const T* in[kMaxRanksOfGpu];
  T* out[kMaxRanksOfGpu];
  int nranks;
  int64_t begin;
  bool rounds, divides;
  int64_t share;    // of a rank, of a reduce-scatter; else 0
  int only_target;  // the only rank that gets the result; -1: all do

  WEFT_DEVICE void operator()(int64_t k) const {
    using Acc = Accumulator<T>;
    const int64_t i = begin + k;
    auto acc = static_cast<Acc>(in[0][i]);
    for (int r = 1; r < nranks; ++r) {
      acc = Function::Join(acc, static_cast<Acc>(in[r][i]));
      if (rounds) acc = static_cast<Acc>(static_cast<T>(acc));
    }
    if (divides) acc = MeanOf(acc, nranks);
    const auto result = static_cast<T>(acc);
    if (share > 0) {
      const int64_t r = i / share;
      out[r][i - r * share] = result;
      return;
    }
    for (int r = 0; r < nranks; ++r) {
      out[r][i] = only_target < 0 || only_target == r ? result : in[r][i];
    }
  }
};

template <typename T>
absl::Status Reduce(const KernelContext& ctx, const CollectiveDesc& desc,
                    absl::Span<const void* const> in, absl::Span<void* const> out,
                    ElementRange range) {
  using Acc = Accumulator<T>;
  absl::Status status;
  ForReduction<Acc>(desc.reduction, [&](auto join, bool divides) {
    ReduceElement<T, decltype(join)> reduce;
    reduce.nranks = static_cast<int>(in.size());
    for (int r = 0; r < reduce.nranks; ++r) {
      reduce.in[r] = static_cast<const T*>(in[r]);
      reduce.out[r] = static_cast<T*>(out[r]);
    }
    reduce.begin = range.begin;
    reduce.rounds = desc.rounds_each_addition && decltype(join)::kAdds;
    reduce.divides = divides;
    reduce.share =
        desc.kind == CollectiveKind::kReduceScatter ? desc.count / reduce.nranks : int64_t{0};
    reduce.only_target = desc.kind == CollectiveKind::kReduce ? desc.root : -1;
    status.Update(ForEach(ctx, range.end - range.begin, reduce));
  });
  return status;
}

}  // namespace

absl::Status RunGpuCollective(const CollectiveDesc& desc, absl::Span<const void* const> in,
                              absl::Span<void* const> out, int part, int num_parts, void* stream) {
  if (in.size() > kMaxRanksOfGpu) {
    return absl::UnimplementedError(
        absl::StrCat("expected at most ", kMaxRanksOfGpu, " ranks on one GPU, found ", in.size()));
  }
  KernelContext ctx;
  ctx.stream = stream;
  absl::Status status;
  if (Reduces(desc.kind)) {
    const ElementRange range = PartOf(desc.count, part, num_parts);
    ForReducible(desc.dtype, [&](auto tag) {
      status.Update(Reduce<typename decltype(tag)::type>(ctx, desc, in, out, range));
    });
  } else {
    ForCopies(desc, in, out, part, num_parts, [&](const char* from, size_t bytes, char* to) {
      status.Update(Copy(ctx, from, bytes, to));
    });
  }
  return status;
}

}  // namespace weft
