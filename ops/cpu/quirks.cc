#include "ops/cpu/quirks.h"

#include <cstdint>
#include <string>

#include "absl/algorithm/container.h"
#include "absl/container/flat_hash_map.h"
#include "absl/types/optional.h"
#include "absl/types/span.h"
#include "ops/schema/op_schema.h"
#include "ops/schema/tensor_type.h"
#include "proto/all_ops.h"

namespace weft {
namespace {

// Whether attributes and types of an op let the quirk show.
using Applies = bool (*)(const Op& op);

bool Always(const Op&) { return true; }

// A gradient of some rows of a table.
bool HasRows(const Op& op) {
  const Block block = op.program().block(op.block());
  for (Symbol in : op.Input("Grad")) {
    const VarId var = block.Resolve(in);
    if (var.valid() && op.program().var(var).type() == pb::VarType::SELECTED_ROWS) return true;
  }
  return false;
}

bool IsOne(const Op& op, absl::string_view attr) { return op.FloatAttr(attr).value_or(1) == 1; }

bool IsTrue(const Op& op, absl::string_view attr) { return op.BoolAttr(attr).value_or(false); }

// Mended in Paddle 3.1.
bool TakesBatchForSize(const Op& op) {
  const absl::optional<std::vector<int64_t>> shape = op.IntsAttr("target_shape");
  return IsBefore(op.program().version(), 3'001'000) && shape.has_value() &&
         absl::c_linear_search(*shape, -1);
}

// Mended in Paddle 3.1.
bool GathersBehindRows(const Op& op) {
  const bool may_have_axis = op.IntAttr("axis").value_or(0) != 0 || !op.Input("Axis").empty();
  return IsBefore(op.program().version(), 3'001'000) && may_have_axis;
}

bool IsOfPaddle1(const Op& op) { return IsBefore(op.program().version(), kPaddle2); }
bool IsOfPaddle3(const Op& op) { return op.program().version() >= kPaddle3; }

// Whether the padding of an average follows from the sizes, and counts.
bool CountsSamePadding(const Op& op) {
  return op.StringAttr("pooling_type") == "avg" && op.StringAttr("padding_algorithm") == "SAME" &&
         !op.BoolAttr("exclusive").value_or(true);
}

// The declared type of the first argument of a slot.
absl::optional<TensorType> TypeOf(const Op& op, absl::string_view slot) {
  const absl::Span<const Symbol> args = op.Input(slot);
  if (args.empty()) return absl::nullopt;
  const VarId var = op.program().block(op.block()).Resolve(args[0]);
  return var.valid() ? DeclaredType(op.program().var(var)) : absl::nullopt;
}

// Whether powers of one element are those of a parameter of several.
bool HasOnePower(const Op& op) {
  const absl::optional<TensorType> power = TypeOf(op, "Beta2Pow"), param = TypeOf(op, "Param");
  return power.has_value() && param.has_value() && NumElements(power->dims) == 1 &&
         NumElements(param->dims) > 1;
}

// Whether it puts means of integers.
bool PutsIntegerMeans(const Op& op) {
  const absl::optional<TensorType> type = TypeOf(op, "Input");
  return IsOfPaddle3(op) && op.StringAttr("Reduce") == "mean" && type.has_value() &&
         !IsFloating(type->dtype);
}

struct Quirk {
  absl::string_view type;
  Applies applies;
  absl::string_view how;
  bool is_reproduced = true;
};

const Quirk kQuirks[] = {
    {"adadelta", IsOfPaddle1, "takes the mean of squared updates of the next step"},
    {"adam", HasRows, "takes the powers of beta of the next step"},
    {"adamw", HasRows, "takes the powers of beta of the next step"},
    {"adamw", [](const Op& op) { return !IsOne(op, "lr_ratio"); },
     "has lr_ratio in the decay only"},
    {"cast", [](const Op& op) { return op.IntAttr("out_dtype") == pb::VarType::FP16; },
     "cuts digits off"},
    {"cholesky_solve_grad", Always, "takes the other triangle of the factor for a part of it"},
    {"data_norm_grad", [](const Op& op) { return op.IntAttr("slot_dim").value_or(-1) > 0; },
     "gives empty slots the gradient of full ones"},
    {"determinant_grad", Always, "is 0 for all matrices if one is singular"},
    {"gumbel_softmax_grad", [](const Op& op) { return !IsOne(op, "temperature"); },
     "does not divide by the temperature"},
    {"hierarchical_sigmoid", Always, "has log 2 too much for nodes of short paths"},
    {"lars_momentum", Always, "takes the plain learning rate where the weight decay is 0"},
    {"momentum", HasRows, "loses rows that are not in order"},
    {"momentum", [](const Op& op) { return !IsOne(op, "rescale_grad"); }, "ignores rescale_grad"},
    {"merged_momentum", [](const Op& op) { return !IsOne(op, "rescale_grad"); },
     "ignores rescale_grad"},
    {"pool2d",
     [](const Op& op) { return IsTrue(op, "adaptive") && op.StringAttr("pooling_type") == "max"; },
     "ignores adaptive"},
    {"pool3d",
     [](const Op& op) { return IsTrue(op, "adaptive") && op.StringAttr("pooling_type") == "max"; },
     "ignores adaptive"},
    {"put_along_axis_grad",
     [](const Op& op) {
       const std::string reduce = op.StringAttr("Reduce").value_or("assign");
       return (reduce == "amin" || reduce == "amax") && !op.BoolAttr("Include_self").value_or(true);
     },
     "counts an equal element of Input that does not count"},
    {"put_along_axis_grad",
     [](const Op& op) {
       const std::string reduce = op.StringAttr("Reduce").value_or("assign");
       return reduce == "mul" || reduce == "multiply";
     },
     "is not a number where an element is 0"},
    {"reduce_prod_grad", Always, "is not a number where an element is 0"},
    {"roi_align", Always, "is not a number in regions without extent"},
    {"roi_align_grad", [](const Op& op) { return IsTrue(op, "aligned"); },
     "widens regions that are narrower than an element"},
    {"sigmoid_cross_entropy_with_logits",
     [](const Op& op) { return !op.Input("pos_weight").empty(); },
     "weights only a part of the positive term"},
    {"scatter_grad",
     [](const Op& op) { return IsOfPaddle1(op) && op.BoolAttr("overwrite").value_or(true); },
     "gives X a gradient where Updates replace it"},
    {"searchsorted", Always, "puts -inf at the end"},
    {"softmax_with_cross_entropy_grad",
     [](const Op& op) {
       return IsOfPaddle1(op) && !IsTrue(op, "soft_label") &&
              op.IntAttr("ignore_index").value_or(-100) >= 0;
     },
     "gives ignored labels a gradient"},
    {"spectral_norm_grad", Always, "multiplies the gradient element by element"},
    {"trace",
     [](const Op& op) { return op.IntAttr("axis1").value_or(0) > op.IntAttr("axis2").value_or(1); },
     "swaps axis1 and axis2"},
    {"triangular_solve_grad",
     [](const Op& op) { return IsTrue(op, "unitriangular") && !IsTrue(op, "upper"); },
     "gives the diagonal a gradient"},
    {"yolov3_loss_grad", Always, "gives the gradient of the last of several boxes in a cell"},
    {"expand_as_v2_grad", TakesBatchForSize, "takes -1 of target_shape for a size", false},
    {"gather_grad", GathersBehindRows, "gives all rows the gradient of the first", false},
    {"group_norm_grad", [](const Op& op) { return op.Input("Scale").empty(); },
     "leaves out the mean of the gradient", false},
    {"masked_fill_grad", Always, "gives value a gradient that is 0 or arbitrary", false},
    {"nadam", HasOnePower, "reads powers and products beyond their end", false},
    {"radam", HasOnePower, "reads powers and products beyond their end", false},
    {"deformable_conv_grad", IsOfPaddle1, "is 0 where im2col_step exceeds the batch", false},
    {"deformable_conv_v1_grad", IsOfPaddle1, "is 0 where im2col_step exceeds the batch", false},
    {"pad_constant_like_grad", IsOfPaddle1, "takes elements of other rows", false},
    {"pool2d", CountsSamePadding, "counts only a part of the padding at the end", false},
    {"pool3d", CountsSamePadding, "counts only a part of the padding at the end", false},
    {"put_along_axis", PutsIntegerMeans, "rounds means down", false},
    {"sigmoid_cross_entropy_with_logits_grad", IsOfPaddle3, "is 1 less where the logit is 0",
     false},
    {"unique",
     [](const Op& op) {
       const absl::optional<std::vector<int64_t>> axis = op.IntsAttr("axis");
       return axis.has_value() && !axis->empty() && (*axis)[0] >= 2;
     },
     "sorts layers by other dimensions first", false},
};

}  // namespace

std::vector<QuirkyOp> FindQuirkyOps(const Program& program) {
  absl::flat_hash_map<Symbol, std::vector<const Quirk*>> by_type;
  for (const Quirk& quirk : kQuirks) {
    const Symbol type = program.FindSymbol(quirk.type);
    if (type.valid()) by_type[type].push_back(&quirk);
  }
  std::vector<QuirkyOp> ops;
  if (by_type.empty()) return ops;
  for (const Op& op : AllOps(program)) {
    const auto found = by_type.find(op.type_symbol());
    if (found == by_type.end()) continue;
    for (const Quirk* quirk : found->second) {
      if (!quirk->applies(op)) continue;
      ops.push_back({op.id(), quirk->how, quirk->is_reproduced});
      break;
    }
  }
  return ops;
}

}  // namespace weft
