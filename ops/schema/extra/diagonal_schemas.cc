// Diagonals of matrices.
#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "ops/schema/batch_rule_functions.h"
#include "ops/schema/extra/families.h"
#include "ops/schema/infer_functions.h"

namespace weft {
namespace {

int64_t DiagonalSize(int64_t rows, int64_t columns, int64_t offset) {
  if (rows == -1 || columns == -1) return -1;
  const int64_t row = std::max<int64_t>(-offset, 0), column = std::max<int64_t>(offset, 0);
  return std::max<int64_t>(0, std::min(rows - row, columns - column));
}

absl::StatusOr<Dims> DiagDims(const InferContext& context, const Dims& x) {
  const int64_t offset = context.attrs().Int("offset");
  if (x.size() == 2) return Dims{DiagonalSize(x[0], x[1], offset)};
  if (x.size() > 1) return context.InputError("X", "one or two dimensions");
  const int64_t size = AddDim(x.empty() ? 1 : x[0], std::abs(offset));
  return Dims{size, size};
}

absl::StatusOr<Dims> TraceDims(const InferContext& context, const Dims& x) {
  WEFT_ASSIGN_OR_RETURN(const int a, ResolveAxis(context, "axis1", x.size()));
  WEFT_ASSIGN_OR_RETURN(const int b, ResolveAxis(context, "axis2", x.size()));
  if (a == b) return context.AttrError("axis2", "another axis than axis1", absl::StrCat(b));
  Dims dims;
  for (size_t d = 0; d < x.size(); ++d) {
    if (static_cast<int>(d) != a && static_cast<int>(d) != b) dims.push_back(x[d]);
  }
  return dims;
}

// The dimensions that trace leaves, and the diagonal.
absl::StatusOr<Dims> DiagonalDims(const InferContext& context, const Dims& x) {
  WEFT_ASSIGN_OR_RETURN(Dims dims, TraceDims(context, x));
  const OpAttrs& attrs = context.attrs();
  WEFT_ASSIGN_OR_RETURN(const int a, ResolveAxis(context, "axis1", x.size()));
  WEFT_ASSIGN_OR_RETURN(const int b, ResolveAxis(context, "axis2", x.size()));
  const int64_t offset = attrs.Int("offset");
  const int64_t rows = x[a] + std::min<int64_t>(offset, 0);
  const int64_t columns = x[b] - std::max<int64_t>(offset, 0);
  const bool known = x[a] != -1 && x[b] != -1;
  dims.push_back(known ? std::max<int64_t>(0, std::min(rows, columns)) : -1);
  return dims;
}

// Matrices in two new dimensions, dim1 and dim2, with the last dimension on a diagonal.
absl::StatusOr<Dims> DiagEmbedDims(const InferContext& context, const Dims& x) {
  if (x.empty()) return context.InputError("Input", "at least one dimension");
  const OpAttrs& attrs = context.attrs();
  const size_t rank = x.size() + 1;
  WEFT_ASSIGN_OR_RETURN(const int a, ResolveAxis(context, "dim1", rank));
  WEFT_ASSIGN_OR_RETURN(const int b, ResolveAxis(context, "dim2", rank));
  if (a == b) return context.AttrError("dim2", "another dimension than dim1", absl::StrCat(b));
  const int64_t offset = attrs.Int("offset");
  if (offset < -kMaxElements || offset > kMaxElements) {
    return context.AttrError("offset", "a number of columns", absl::StrCat(offset));
  }
  Dims dims(x.begin(), x.end() - 1);
  const int64_t size = x.back() == -1 ? -1 : AddDim(x.back(), std::abs(offset));
  dims.insert(dims.begin() + std::min(a, b), size);
  dims.insert(dims.begin() + std::max(a, b), size);
  return dims;
}

}  // namespace

void AddDiagonalSchemas(OpSchemaTable* schemas) {
  AddWithGrad(schemas,
              OpSchema("diag_v2", "X -> Out")
                  .Attr("offset", 0)
                  .Attr("padding_value", 0.0f)
                  .Infer(OutDims(DiagDims))
                  .Batch(batch::Unrelated(batch::kNotNeeded))
                  .Pir("diag"),
              GradOfX());
  schemas->Add(OpSchema("diag_embed", "Input -> Out")
                   .Attr("dim1", -2)
                   .Attr("dim2", -1)
                   .Attr("offset", 0)
                   .Infer(OutDims(DiagEmbedDims, "Input"))
                   .Batch({batch::DiagEmbed, Powers::kFirst})
                   .Pir("(input)"));
  AddWithGrad(schemas,
              OpSchema("diagonal", "Input -> Out")
                  .Attr("axis1", 0)
                  .Attr("axis2", 1)
                  .Attr("offset", 0)
                  .Infer(OutDims(DiagonalDims, "Input"))
                  .Batch({batch::Diagonal, Powers::kFirst})
                  .Pir(),
              {{"Input"}, {"Out"}, {"Input"}});
  AddWithGrad(schemas,
              OpSchema("trace", "Input -> Out")
                  .Attr("axis1", -2)
                  .Attr("axis2", -1)
                  .Attr("offset", 0)
                  .Infer(OutDims(TraceDims, "Input"))
                  .Batch({batch::Diagonal, Powers::kFirst})
                  .Pir(),
              {{"Input"}, {"Out"}, {"Input"}});
}

}  // namespace weft
