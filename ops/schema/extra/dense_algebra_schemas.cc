// Inverses, determinants, factors and solutions of matrices in the last two dimensions.
#include <algorithm>
#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/types/optional.h"
#include "ops/schema/batch_rule_functions.h"
#include "ops/schema/extra/families.h"
#include "ops/schema/infer_functions.h"

namespace weft {
namespace {

OpSchema::InferFn Square(const std::string& slot) {
  return IfKnown(slot, [slot](InferContext& context, const TensorType& type) -> absl::Status {
    const size_t rank = type.dims.size();
    if (rank >= 2 && DimFits(type.dims[rank - 2], type.dims[rank - 1])) return absl::OkStatus();
    return context.InputError(slot, "square matrices");
  });
}

// The inputs are matrices. The first and the last one may be vectors.
absl::Status InferMultiDot(InferContext& context) {
  const size_t count = context.NumInputs("X");
  if (count < 2) return context.InputError("X", "at least two matrices");
  TensorType out;
  int64_t columns = -1;
  bool known = true;
  for (size_t i = 0; i < count; ++i) {
    const TensorType* x = context.Input("X", i);
    known = known && x != nullptr;
    if (x == nullptr) {
      columns = -1;
      continue;
    }
    const bool is_vector = x->dims.size() == 1 && (i == 0 || i == count - 1);
    if (x->dims.size() != 2 && !is_vector) return context.InputError("X", i, "a matrix");
    const bool is_row = is_vector && i == 0;
    if (!is_row && !DimFits(x->dims[0], columns)) {
      return context.InputError("X", i, absl::StrCat(columns, " rows"));
    }
    if (i == 0) out.dtype = x->dtype;
    if (known && x->dtype != out.dtype) {
      return context.InputError("X", i, "the element type of the others");
    }
    if (i == 0 && !is_row) out.dims.push_back(x->dims[0]);
    if (i == count - 1 && !is_vector) out.dims.push_back(x->dims[1]);
    columns = is_vector && !is_row ? 1 : x->dims.back();
  }
  if (known) context.SetOutput("Out", out);
  return absl::OkStatus();
}

// The solutions are like the right sides. Dimensions before the last two broadcast.
OpSchema::InferFn SolutionOf(const char* matrix_slot, const char* right_slot,
                             bool may_be_vectors = false) {
  const auto infer = [=](InferContext& context, const TensorType& matrix,
                         const TensorType& right) -> absl::Status {
    const Dims &a = matrix.dims, &b = right.dims;
    const Dims rows(a.begin(), a.end() - 1);
    const bool vectors = may_be_vectors && (b.size() == 1 || DimsFit(b, rows));
    const size_t kept = vectors ? 1 : 2;
    if (b.size() < kept || !DimFits(b[b.size() - kept], a.back())) {
      return context.InputError(right_slot, absl::StrCat(a.back(), " rows"));
    }
    const absl::optional<Dims> batch =
        BroadcastDims(Dims(a.begin(), a.end() - 2), Dims(b.begin(), b.end() - kept));
    if (!batch.has_value()) {
      return context.InputError(
          right_slot, absl::StrCat("dimensions that broadcast with the dimensions of ", matrix_slot,
                                   " ", DimsToString(a)));
    }
    TensorType out = {matrix.dtype, *batch};
    out.dims.insert(out.dims.end(), b.end() - kept, b.end());
    context.SetOutput("Out", out);
    return absl::OkStatus();
  };
  return InOrder({SameDType(matrix_slot, right_slot), Square(matrix_slot),
                  IfKnown(matrix_slot, right_slot, infer)});
}

// X [..., m, n] is Q [..., m, k] times R [..., k, n], with the smaller of m and n for k.
absl::Status InferQr(InferContext& context, const TensorType& x) {
  const std::string& mode = context.attrs().String("mode");
  if (mode != "reduced") return context.AttrError("mode", "reduced", mode);
  const size_t rank = x.dims.size();
  if (rank < 2) return context.InputError("X", "matrices");
  const int64_t rows = x.dims[rank - 2], columns = x.dims[rank - 1];
  const int64_t common = rows < 0 || columns < 0 ? -1 : std::min(rows, columns);
  TensorType q = x, r = x;
  q.dims[rank - 1] = r.dims[rank - 2] = common;
  context.SetOutput("Q", q);
  context.SetOutput("R", r);
  return absl::OkStatus();
}

}  // namespace

void AddDenseAlgebraSchemas(OpSchemaTable* schemas) {
  AddWithGrad(schemas,
              OpSchema("inverse", "Input -> Output")
                  .Infer(InOrder({Square("Input"), OutputsLike("Input")}))
                  .Batch({batch::NotLast("Input", 2)})
                  .Pir(),
              {{"Output"}, {"Output"}, {"Input"}},
              InOrder({Square("Output"), OutputsLike("Output", {"Output@GRAD"})}));
  AddWithGrad(schemas,
              OpSchema("cholesky", "X -> Out")
                  .Attr("upper", false)
                  .Infer(InOrder({Square("X"), OutputsLike("X")}))
                  .Batch({batch::NotLast("X", 2)})
                  .Pir(),
              {{"Out"}, {"Out"}, {"X"}},
              InOrder({Square("Out"), OutputsLike("Out", {"Out@GRAD"})}));
  schemas->Add(OpSchema("qr", "X -> Q, R")
                   .Attr("mode", "reduced")
                   .Infer(IfKnown("X", InferQr))
                   .Batch({batch::NotLast("X", 2)})
                   .Pir());
  // Paddle declares Out to have the dimensions of Input.
  const GradSlots determinant_grad = {{"Input", "Out"}, {"Out"}, {"Input"}};
  AddWithGrad(schemas,
              OpSchema("determinant", "Input -> Out")
                  .Infer(Square("Input"))
                  .Batch({batch::NotLast("Input", 2)})
                  .Pir("det"),
              determinant_grad);
  AddWithGrad(schemas,
              OpSchema("slogdeterminant", "Input -> Out")
                  .Infer(Square("Input"))
                  .Batch(batch::Unrelated(batch::kNotNeeded))
                  .Pir("slogdet"),
              determinant_grad);
  AddWithGrad(schemas,
              OpSchema("multi_dot", "X* -> Out")
                  .Infer(InferMultiDot)
                  .Batch({batch::MultiDot, Powers::kProduct})
                  .Pir(),
              {{"X"}, {"Out"}, {"X"}});
  const GradSlots solution_grad = {{"Out", "X", "Y"}, {"Out"}, {"X", "Y"}};
  AddWithGrad(schemas,
              OpSchema("solve", "X, Y -> Out")
                  .Infer(SolutionOf("X", "Y", /*may_be_vectors=*/true))
                  .Batch({batch::Solve("X", "Y", /*may_be_vectors=*/true)})
                  .Pir(),
              solution_grad);
  AddWithGrad(schemas,
              OpSchema("triangular_solve", "X, Y -> Out")
                  .Attr("transpose", false)
                  .Attr("unitriangular", false)
                  .Attr("upper", true)
                  .Infer(SolutionOf("X", "Y"))
                  .Batch({batch::Solve("X", "Y")})
                  .Pir(),
              solution_grad);
  AddWithGrad(schemas,
              OpSchema("cholesky_solve", "X, Y -> Out")
                  .Attr("upper", false)
                  .Infer(SolutionOf("Y", "X"))
                  .Batch({batch::Solve("Y", "X")})
                  .Pir(),
              solution_grad);
}

}  // namespace weft
