// Elements chosen by indices, indices of a sharded table, and segments.
#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "base/status_macros.h"
#include "ops/cpu/extra/families.h"
#include "ops/cpu/indices.h"
#include "ops/op_kernel.h"

namespace weft {
namespace {

// Out[t, b, k] = the id at step t of the path that ends in beam k of the last step: Parents has the
// beam of the step before.
absl::StatusOr<Kernel> GatherTree(OpKernel op) {
  const In ids = op.in("Ids"), parents = op.in("Parents");
  const Out out = op.out("Out");
  return op.Make(Indices(ids), [=](const KernelContext& ctx, auto zero) -> absl::Status {
    using T = decltype(zero);
    const int64_t steps = ids(ctx).dim(0), batch = ids(ctx).dim(1), beams = ids(ctx).dim(2);
    WEFT_ASSIGN_OR_RETURN(const auto from, ReadIndices("Parents", parents(ctx), beams));
    const T* numbers = ids.data<T>(ctx);
    T* to = out.data<T>(ctx);
    for (int64_t b = 0; b < batch; ++b) {
      for (int64_t k = 0; k < beams; ++k) {
        int64_t beam = k;
        for (int64_t t = steps; t-- > 0;) {
          const int64_t row = (t * batch + b) * beams;
          to[row + k] = numbers[row + beam];
          beam = from[row + beam];
        }
      }
    }
    return absl::OkStatus();
  });
}

// Row i of Out = row i of X[Ids[i]].
absl::StatusOr<Kernel> Multiplex(OpKernel op) {
  const In ids = op.in("Ids"), x = op.in("X");
  const Out out = op.out("Out");
  return op.Make(RawElements{x}, [=](const KernelContext& ctx, auto zero) -> absl::Status {
    using T = decltype(zero);
    WEFT_ASSIGN_OR_RETURN(const auto which, ReadIndices("Ids", ids(ctx), x.count()));
    const int64_t width = CountAfter(x(ctx).dims(), 0);
    T* to = out.elements<T>(ctx);
    for (size_t row = 0; row < which.size(); ++row) {
      const T* from = x.elements<T>(ctx, static_cast<int>(which[row]));
      to = std::copy_n(from + row * width, width, to);
    }
    return absl::OkStatus();
  });
}

// X@GRAD[Ids[r]][r] = Out@GRAD[r], 0 elsewhere.
absl::StatusOr<Kernel> MultiplexGrad(OpKernel op) {
  op.Ignore({"X"});
  const In ids = op.in("Ids"), dout = op.in("Out@GRAD");
  const Out dx = op.out("X@GRAD");
  return op.Make(Floats(dout), [=](const KernelContext& ctx, auto zero) -> absl::Status {
    using T = decltype(zero);
    WEFT_ASSIGN_OR_RETURN(const auto which, ReadIndices("Ids", ids(ctx), dx.count()));
    const int64_t width = CountAfter(dout(ctx).dims(), 0);
    for (int i = 0; i < dx.count(); ++i) {
      Tensor* const gradient = dx.get(ctx, i);
      if (gradient == nullptr) continue;
      T* const to = gradient->data<T>();
      std::fill_n(to, gradient->size(), T(0));
      for (size_t row = 0; row < which.size(); ++row) {
        if (which[row] != i) continue;
        std::copy_n(dout.data<T>(ctx) + row * width, width, to + row * width);
      }
    }
    return absl::OkStatus();
  });
}

// The rows of one shard, of a table of index_num rows over nshards: their local indices from 0, and
// ignore_value for rows of other shards.
absl::StatusOr<Kernel> ShardIndex(OpKernel op) {
  const In x = op.in("X");
  const Out out = op.out("Out");
  const int64_t size = op.attrs().Int("index_num"), shards = op.attrs().Int("nshards");
  const int64_t shard = op.attrs().Int("shard_id"), ignored = op.attrs().Int("ignore_value");
  const int64_t width = (size + shards - 1) / shards;
  return op.InPlace(out, x).Make(
      Indices(x), [=](const KernelContext& ctx, auto zero) -> absl::Status {
        using T = decltype(zero);
        WEFT_ASSIGN_OR_RETURN(const auto indices, ReadIndices("X", x(ctx), size));
        for (size_t i = 0; i < indices.size(); ++i) {
          out.data<T>(ctx)[i] =
              static_cast<T>(indices[i] / width == shard ? indices[i] % width : ignored);
        }
        return absl::OkStatus();
      });
}

enum class Pooling { kSum, kMean, kMax, kMin };

absl::StatusOr<Pooling> ReadPooling(const OpAttrs& attrs) {
  const std::string& name = attrs.String("pooltype");
  if (name == "SUM") return Pooling::kSum;
  if (name == "MEAN") return Pooling::kMean;
  if (name == "MAX") return Pooling::kMax;
  if (name == "MIN") return Pooling::kMin;
  return absl::InternalError("attribute pooltype: no pooling for " + name);
}

// The rows of a segment: from `begin` to `end` - 1, and its id.
struct Segment {
  int64_t begin, end, number;
};

// The non-empty segments. InvalidArgument if ids are negative or descend.
absl::StatusOr<std::vector<Segment>> ReadSegments(const Tensor& ids) {
  std::vector<Segment> segments;
  WEFT_RETURN_IF_ERROR(
      (ForElementType<int64_t, int32_t>("input SegmentIds", ids, [&](auto tag) -> absl::Status {
        const auto* numbers = ids.data<typename decltype(tag)::type>();
        for (int64_t i = 0; i < ids.size(); ++i) {
          const int64_t before = segments.empty() ? 0 : segments.back().number;
          if (numbers[i] < before || numbers[i] >= kMaxElements) {
            return absl::InvalidArgumentError(absl::StrCat("input SegmentIds: ", numbers[i],
                                                           " at position ", i, " is not in [",
                                                           before, ", ", kMaxElements, ")"));
          }
          if (segments.empty() || numbers[i] != before) segments.push_back({i, i, numbers[i]});
          segments.back().end = i + 1;
        }
        return absl::OkStatus();
      })));
  return segments;
}

// Out = one row per id up to the last one, 0 if X has no row of it. SummedIds = the number of rows
// per id, for means.
absl::StatusOr<Kernel> SegmentPool(OpKernel op) {
  const In x = op.in("X"), ids = op.in("SegmentIds");
  const Out out = op.out("Out"), sizes = op.out("SummedIds");
  WEFT_ASSIGN_OR_RETURN(const Pooling pooling, ReadPooling(op.attrs()));
  return op.Make(Floats(x), [=](const KernelContext& ctx, auto zero) -> absl::Status {
    using T = decltype(zero);
    WEFT_ASSIGN_OR_RETURN(const std::vector<Segment> segments, ReadSegments(ids(ctx)));
    Dims dims = x(ctx).dims();
    const int64_t width = NumElements(absl::MakeConstSpan(dims).subspan(1));
    dims[0] = segments.empty() ? 0 : segments.back().number + 1;
    if (dims[0] > kMaxElements / std::max<int64_t>(width, 1)) {
      return absl::InvalidArgumentError(
          absl::StrCat("input SegmentIds: no tensor has ", dims[0], " rows of ", width));
    }
    out(ctx).Resize(x(ctx).dtype(), dims);
    std::fill_n(out.data<T>(ctx), out(ctx).size(), T(0));
    T* counts = nullptr;
    if (Tensor* tensor = sizes.get(ctx)) {
      tensor->Resize(x(ctx).dtype(), {dims[0], 1});
      counts = tensor->data<T>();
      std::fill_n(counts, dims[0], T(0));
    }
    for (const Segment& segment : segments) {
      const int64_t count = segment.end - segment.begin;
      if (counts != nullptr) counts[segment.number] = static_cast<T>(count);
      for (int64_t k = 0; k < width; ++k) {
        const T* from = x.data<T>(ctx) + segment.begin * width + k;
        double sum = 0;
        T largest = *from, smallest = *from;
        for (int64_t i = 0; i < count; ++i) {
          const T value = from[i * width];
          sum += value;
          largest = std::max(largest, value);
          smallest = std::min(smallest, value);
        }
        out.data<T>(ctx)[segment.number * width + k] =
            pooling == Pooling::kMax ? largest
            : pooling == Pooling::kMin
                ? smallest
                : static_cast<T>(pooling == Pooling::kMean ? sum / count : sum);
      }
    }
    return absl::OkStatus();
  });
}

// X@GRAD = Out@GRAD of the segment: divided by its number of rows for means, only where X = Out for
// maxima and minima.
absl::StatusOr<Kernel> SegmentPoolGrad(OpKernel op) {
  op.Ignore({"SummedIds"});
  const In x = op.in("X"), ids = op.in("SegmentIds"), out = op.in("Out"), dout = op.in("Out@GRAD");
  const Out dx = op.out("X@GRAD");
  WEFT_ASSIGN_OR_RETURN(const Pooling pooling, ReadPooling(op.attrs()));
  return op.Make(Floats(x), [=](const KernelContext& ctx, auto zero) -> absl::Status {
    using T = decltype(zero);
    WEFT_ASSIGN_OR_RETURN(const std::vector<Segment> segments, ReadSegments(ids(ctx)));
    const int64_t width = NumElements(absl::MakeConstSpan(x(ctx).dims()).subspan(1));
    const int64_t size = segments.empty() ? 0 : (segments.back().number + 1) * width;
    WEFT_RETURN_IF_ERROR(CheckSize("Out", out(ctx), size));
    WEFT_RETURN_IF_ERROR(CheckSize("Out@GRAD", dout(ctx), size));
    const bool chooses = pooling == Pooling::kMax || pooling == Pooling::kMin;
    for (const Segment& segment : segments) {
      const double divisor = pooling == Pooling::kMean ? segment.end - segment.begin : 1;
      const T* ys = out.data<T>(ctx) + segment.number * width;
      const T* dys = dout.data<T>(ctx) + segment.number * width;
      for (int64_t i = segment.begin; i < segment.end; ++i) {
        const T* xs = x.data<T>(ctx) + i * width;
        for (int64_t k = 0; k < width; ++k) {
          const bool is_kept = !chooses || xs[k] == ys[k];
          dx.data<T>(ctx)[i * width + k] = is_kept ? static_cast<T>(dys[k] / divisor) : T(0);
        }
      }
    }
    return absl::OkStatus();
  });
}

}  // namespace

void AddIndexingKernels(KernelTable* table) {
  table->Add("gather_tree", GatherTree);
  table->Add("multiplex", Multiplex);
  table->Add("multiplex_grad", MultiplexGrad);
  table->Add("shard_index", ShardIndex);
  table->Add("segment_pool", SegmentPool);
  table->Add("segment_pool_grad", SegmentPoolGrad);
}

}  // namespace weft
