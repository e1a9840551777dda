// Sparsified gradients: selections of large elements, and the way back to tensors.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "base/status_macros.h"
#include "ops/cpu/extra/families.h"
#include "ops/op_kernel.h"
#include "ops/schema/extra/packed_shapes.h"

namespace weft {
namespace {

// A tensor of those that the op reads one after the other.
struct Segment {
  const float* elements;
  int64_t size;
};
using Segments = absl::Span<const Segment>;

// Magnitudes as integers of the same order. All NaNs are one, and larger than infinity.
constexpr uint32_t kNanMagnitude = 0x7f800001;
inline uint32_t Magnitude(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  return std::min(bits & 0x7fffffffU, kNanMagnitude);
}

// The elements above a limit, and the first ones that equal it.
struct Selection {
  uint32_t limit = 0;
  int64_t equal = 0;  // how many of those
  int64_t count = 0;  // of all
};

// Counts elements by bits [shift, shift + kRadixBits) of their magnitudes, if the bits above are
// `high`.
constexpr int kRadixBits = 11;
constexpr uint32_t kRadixBins = 1U << kRadixBits;
void CountBits(Segments segments, int shift, uint32_t high, std::vector<int64_t>* counts) {
  counts->assign(kRadixBins, 0);
  for (const Segment& segment : segments) {
    for (int64_t i = 0; i < segment.size; ++i) {
      const uint32_t bits = Magnitude(segment.elements[i]) >> shift;
      if (bits >> kRadixBits == high) ++(*counts)[bits % kRadixBins];
    }
  }
}

// The k largest magnitudes; of equal ones the first. Finds the smallest of them from its highest
// bits on. O(elements).
Selection TopK(Segments segments, int64_t k) {
  Selection selection{kNanMagnitude, 0, k};
  if (k == 0) return selection;
  std::vector<int64_t> counts;
  uint32_t high = 0;
  int64_t missing = k;  // among the elements with these high bits
  for (const int shift : {2 * kRadixBits, kRadixBits, 0}) {
    CountBits(segments, shift, high, &counts);
    uint32_t bin = kRadixBins - 1;
    for (; counts[bin] < missing; --bin) missing -= counts[bin];
    high = high << kRadixBits | bin;
  }
  selection.limit = high;
  selection.equal = missing;
  return selection;
}

// Magnitudes of at least the threshold, but no zeros.
Selection AtLeast(Segments segments, float threshold) {
  Selection selection;
  selection.limit = std::max(Magnitude(threshold), 1U);
  for (const Segment& segment : segments) {
    for (int64_t i = 0; i < segment.size; ++i) {
      selection.count += Magnitude(segment.elements[i]) >= selection.limit ? 1 : 0;
    }
  }
  selection.equal = selection.count;
  return selection;
}

// Out = the selected elements of X + Residual as rows, by ascending index; ResidualOut = the
// others, and zeros in the place of these. Without Residual, Out = elements of X. `select` makes
// the Selection from the Segments.
template <typename Select>
absl::StatusOr<Kernel> Sparsify(OpKernel op, Select select) {
  const In xs = op.in("X"), residuals = op.in("Residual");
  const Out out = op.out("Out"), rests = op.out("ResidualOut");
  const bool corrects = residuals.count() > 0;
  if ((corrects && residuals.count() != xs.count()) || rests.count() != residuals.count()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "inputs Residual, outputs ResidualOut: expected ", xs.count(),
        " of each as of X, or none, found ", residuals.count(), " and ", rests.count()));
  }
  return op.MakeForRows(
      [=, segments = std::vector<Segment>()](const KernelContext& ctx) mutable -> absl::Status {
        segments.clear();
        int64_t elements = 0;
        for (int i = 0; i < xs.count(); ++i) {
          const Tensor& x = xs(ctx, i);
          if (x.is_rows()) return absl::InvalidArgumentError("input X: expected a dense tensor");
          WEFT_RETURN_IF_ERROR(CheckDType("X", x, DType::kFloat32));
          elements += x.size();
          if (!corrects) {
            segments.push_back({x.data<float>(), x.size()});
            continue;
          }
          const Tensor& residual = residuals(ctx, i);
          Tensor* const rest = rests.get(ctx, i);
          if (rest == nullptr || residual.is_rows()) {
            return absl::InvalidArgumentError("output ResidualOut: expected a dense variable");
          }
          WEFT_RETURN_IF_ERROR(CheckDType("Residual", residual, DType::kFloat32));
          WEFT_RETURN_IF_ERROR(CheckDims("Residual", residual, x.dims()));
          rest->Resize(DType::kFloat32, x.dims());
          const float *from = x.data<float>(), *kept = residual.data<float>();
          float* const to = rest->data<float>();
          for (int64_t e = 0; e < x.size(); ++e) to[e] = from[e] + kept[e];
          segments.push_back({to, x.size()});
        }
        WEFT_ASSIGN_OR_RETURN(Selection selection, select(Segments(segments), elements));
        out(ctx).ResizeRows(DType::kFloat32, {elements, 1}, selection.count);
        auto row = out(ctx).mutable_rows().begin();
        float* value = out(ctx).data<float>();
        int64_t first = 0;
        for (size_t p = 0; p < segments.size(); ++p) {
          float* const rest = corrects ? rests(ctx, static_cast<int>(p)).data<float>() : nullptr;
          for (int64_t e = 0; e < segments[p].size; ++e) {
            const uint32_t magnitude = Magnitude(segments[p].elements[e]);
            if (magnitude < selection.limit) continue;
            if (magnitude == selection.limit && --selection.equal < 0) continue;
            *row++ = first + e;
            *value++ = segments[p].elements[e];
            if (corrects) rest[e] = 0;
          }
          first += segments[p].size;
        }
        return absl::OkStatus();
      });
}

absl::StatusOr<Kernel> SparsifyTopK(const KernelSpec& spec) {
  const int64_t k = spec.attrs.Int("k");
  return Sparsify(spec, [k](Segments segments, int64_t elements) -> absl::StatusOr<Selection> {
    if (k >= 0 && k <= elements) return TopK(segments, k);
    return absl::InvalidArgumentError(absl::StrCat("attribute k: expected a number from 0 to ",
                                                   elements, ", the elements of X, found ", k));
  });
}

absl::StatusOr<Kernel> SparsifyThreshold(const KernelSpec& spec) {
  const auto threshold = static_cast<float>(spec.attrs.Float("threshold"));
  return Sparsify(spec, [threshold](Segments segments, int64_t) -> absl::StatusOr<Selection> {
    return AtLeast(segments, threshold);
  });
}

// Out = tensors whose elements, one after the other, are the rows X: rows of the same index add up,
// elements without a row are zero.
absl::StatusOr<Kernel> Densify(OpKernel op) {
  const In x = op.in("X");
  const Out out = op.out("Out");
  WEFT_ASSIGN_OR_RETURN(const std::vector<Dims> shapes, PackedShapes(op.attrs()));
  if (static_cast<int>(shapes.size()) != out.count()) {
    return absl::InvalidArgumentError(
        absl::StrCat("attribute concated_ranks: expected a rank for each of ", out.count(),
                     " variables of Out, found ", shapes.size()));
  }
  std::vector<int64_t> ends;  // of the tensors among all elements
  for (const Dims& dims : shapes) {
    ends.push_back((ends.empty() ? 0 : ends.back()) + NumElements(dims));
  }
  return op.MakeForRows([=](const KernelContext& ctx) -> absl::Status {
    const Tensor& rows = x(ctx);
    const int64_t elements = ends.empty() ? 0 : ends.back();
    WEFT_RETURN_IF_ERROR(CheckRowsOf("X", rows, DType::kFloat32, {elements, 1}));
    for (int i = 0; i < out.count(); ++i) {
      Tensor* const tensor = out.get(ctx, i);
      if (tensor == nullptr) continue;
      tensor->Resize(DType::kFloat32, shapes[i]);
      std::fill_n(tensor->data<float>(), tensor->size(), 0.0F);
    }
    const float* value = rows.data<float>();
    size_t at = 0;  // the tensor of the row; rows are mostly in ascending order
    for (const int64_t row : rows.rows()) {
      const int64_t begin = at == 0 ? 0 : ends[at - 1];
      if (row < begin || row >= ends[at]) {
        at = std::upper_bound(ends.begin(), ends.end(), row) - ends.begin();
      }
      Tensor* const tensor = out.get(ctx, static_cast<int>(at));
      if (tensor != nullptr) tensor->data<float>()[row - (at == 0 ? 0 : ends[at - 1])] += *value;
      ++value;
    }
    return absl::OkStatus();
  });
}

}  // namespace

void AddSparsifyKernels(KernelTable* table) {
  table->AddForRows("sparsify_topk", SparsifyTopK);
  table->AddForRows("sparsify_threshold", SparsifyThreshold);
  table->AddForRows("densify", Densify);
}

}  // namespace weft
