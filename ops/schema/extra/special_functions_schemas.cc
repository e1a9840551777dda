// Bessel and polygamma functions, element by element, and signs of another tensor. Their slots are
// in lower case, as Paddle writes them.
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "ops/schema/extra/families.h"
#include "ops/schema/infer_functions.h"

namespace weft {
namespace {

// Adds an op and its gradient op, which reads `grad_reads` besides out@GRAD.
void AddElementwise(OpSchemaTable* schemas, OpSchema op,
                    const std::vector<std::string>& grad_reads) {
  std::move(op).With(Trait::kElementwise, Trait::kRowSplittable).Infer(OutputsLike("x")).Pir();
  std::vector<std::string> others = grad_reads;
  others.push_back("out@GRAD");
  schemas->Add(GradSchema(op, absl::StrCat(op.type(), "_grad"),
                          {grad_reads, {"out"}, {"x"}, /*optional=*/false},
                          OutputsLike("x", others))
                   .With(Trait::kElementwise, Trait::kRowSplittable));
  schemas->Add(std::move(op));
}

absl::Status InferCopysign(InferContext& context, const TensorType& x, const TensorType& y) {
  const absl::optional<Dims> dims = BroadcastDims(x.dims, y.dims);
  if (!dims.has_value()) {
    return context.InputError(
        "y", absl::StrCat("dimensions that broadcast with ", DimsToString(x.dims), " of x"));
  }
  context.SetOutput("out", {x.dtype, *dims});
  return absl::OkStatus();
}

}  // namespace

void AddSpecialFunctionSchemas(OpSchemaTable* schemas) {
  AddElementwise(schemas, OpSchema("i0", "x -> out"), {"x"});
  for (const char* type : {"i0e", "i1", "i1e"}) {
    AddElementwise(schemas, OpSchema(type, "x -> out"), {"x", "out"});
  }
  AddElementwise(schemas, OpSchema("polygamma", "x -> out").Attr("n", 0, range::AtLeast(0)), {"x"});
  AddWithGrad(schemas,
              OpSchema("copysign", "x, y -> out")
                  .With(Trait::kElementwise, Trait::kRowSplittable, Trait::kBroadcasts)
                  .Infer(InOrder({SameDType("x", "y"), IfKnown("x", "y", InferCopysign)}))
                  .Pir(),
              {{"x", "y"}, {"out"}, {"x", "y"}});
}

}  // namespace weft
