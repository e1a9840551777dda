// Max pooling by windows of about equal size whose places are drawn.
#include <algorithm>
#include <cstdint>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "ops/schema/batch_rule_functions.h"
#include "ops/schema/extra/families.h"
#include "ops/schema/infer_functions.h"
#include "ops/schema/windows.h"

namespace weft {
namespace {

// Also checks the inputs of the gradient op.
OpSchema::InferFn InferFractionalPool(size_t space) {
  return IfKnown("x", [=](InferContext& context, const TensorType& x) -> absl::Status {
    if (x.dims.size() != space + 2) {
      return context.InputError("x", absl::StrCat(NumberWord(space + 2), " dimensions"));
    }
    WEFT_ASSIGN_OR_RETURN(const std::vector<int64_t> sizes,
                          ReadPositive(context.attrs(), "output_size", space));
    const std::vector<int64_t> windows = context.attrs().Ints("kernel_size");
    if (windows.size() != space || *std::min_element(windows.begin(), windows.end()) < 0) {
      return context.AttrError("kernel_size",
                               absl::StrCat(NumberWord(space), " numbers, 0 for none"),
                               DimsToString(windows));
    }
    TensorType out = x;
    for (size_t i = 0; i < space; ++i) {
      int64_t& size = out.dims[2 + i];
      const int64_t least = std::max(sizes[i], AddDim(sizes[i] - 1, windows[i]));
      if (size != -1 && size < least) {
        return context.InputError("x", absl::StrCat("a dimension ", 2 + i, " of at least ", least,
                                                    " for ", sizes[i], " windows"));
      }
      size = sizes[i];
    }
    const TensorType mask = {DType::kInt32, out.dims};
    const TensorType* found = context.Input("mask");
    if (found != nullptr && !DimsFit(found->dims, mask.dims)) {
      return context.InputError("mask", absl::StrCat(ToString(mask), " that x is pooled to"));
    }
    found = context.Input("out@GRAD");
    if (found != nullptr && (found->dtype != out.dtype || !DimsFit(found->dims, out.dims))) {
      return context.InputError("out@GRAD", absl::StrCat(ToString(out), " that x is pooled to"));
    }
    context.SetOutput("out", out);
    context.SetOutput("mask", mask);
    return absl::OkStatus();
  });
}

void AddFractionalPool(OpSchemaTable* schemas, const char* type, size_t space) {
  OpSchema op = OpSchema(type, "x -> mask, out")
                    .Attr("kernel_size", std::vector<int32_t>(space, 0))
                    .RequiredAttr("output_size", std::vector<int32_t>())
                    .Attr("random_u", 0.0f, range::FromUpTo(0, 1))
                    .Attr("return_mask", false)
                    .With(Trait::kSideEffect)
                    .Infer(InferFractionalPool(space))
                    .Batch({batch::FractionalPool, Powers::kOwn})
                    .Pir("-> out, mask");
  schemas->Add(GradSchema(op, absl::StrCat(type, "_grad"),
                          {{"mask", "x"}, {"out"}, {"x"}, /*optional=*/false},
                          InOrder({op.infer(), GradsLikeInputs()})));
  schemas->Add(std::move(op));
}

}  // namespace

void AddFractionalPoolSchemas(OpSchemaTable* schemas) {
  AddFractionalPool(schemas, "fractional_max_pool2d", 2);
  AddFractionalPool(schemas, "fractional_max_pool3d", 3);
}

}  // namespace weft
