// Sums of a parameter over a window of steps.
#include <string>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "ops/schema/batch_rule_functions.h"
#include "ops/schema/extra/families.h"
#include "ops/schema/infer_functions.h"

namespace weft {
namespace {

absl::Status InferAverage(InferContext& context) {
  for (const char* name : {"sum_1", "sum_2", "sum_3"}) {
    WEFT_RETURN_IF_ERROR(SameType("param", absl::StrCat("in_", name))(context));
    const TensorType* sum = context.Input(absl::StrCat("in_", name));
    if (sum != nullptr) context.SetOutput(absl::StrCat("out_", name), *sum);
  }
  for (const char* name : {"num_accumulates", "num_updates", "old_num_accumulates"}) {
    const std::string slot = absl::StrCat("in_", name);
    const TensorType* number = context.Input(slot);
    if (number == nullptr) continue;
    if (number->dtype != DType::kInt64) return context.InputError(slot, "int64");
    WEFT_RETURN_IF_ERROR(CheckElements(context, slot, 1));
    context.SetOutput(absl::StrCat("out_", name), *number);
  }
  return absl::OkStatus();
}

}  // namespace

void AddModelAverageSchemas(OpSchemaTable* schemas) {
  // Sums of a parameter over steps; the parameter stays as it is.
  schemas->Add(
      OpSchema("average_accumulates",
               "in_num_accumulates, in_num_updates, in_old_num_accumulates, in_sum_1, in_sum_2, "
               "in_sum_3, param -> out_num_accumulates=in_num_accumulates, "
               "out_num_updates=in_num_updates, out_old_num_accumulates=in_old_num_accumulates, "
               "out_sum_1=in_sum_1, out_sum_2=in_sum_2, out_sum_3=in_sum_3")
          .Attr("average_window", 0.0f)
          .RequiredAttr("max_average_window", int64_t{0})
          .Attr("min_average_window", int64_t{10000})
          .Infer(InferAverage)
          .Batch(batch::Unrelated(batch::kOfParameters))
          .Pir("average_accumulates_(param, in_sum_1, in_sum_2, in_sum_3, in_num_accumulates, "
               "in_old_num_accumulates, in_num_updates)"));
}

}  // namespace weft
