#include "ops/cpu/quirks.h"

#include <string>

#include "absl/container/flat_hash_map.h"
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

struct Quirk {
  absl::string_view type;
  Applies applies;
  absl::string_view how;
};

const Quirk kQuirks[] = {
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
    {"searchsorted", Always, "puts -inf at the end"},
    {"spectral_norm_grad", Always, "multiplies the gradient element by element"},
    {"trace",
     [](const Op& op) { return op.IntAttr("axis1").value_or(0) > op.IntAttr("axis2").value_or(1); },
     "swaps axis1 and axis2"},
    {"triangular_solve_grad",
     [](const Op& op) { return IsTrue(op, "unitriangular") && !IsTrue(op, "upper"); },
     "gives the diagonal a gradient"},
    {"yolov3_loss_grad", Always, "gives the gradient of the last of several boxes in a cell"},
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
      ops.push_back({op.id(), quirk->how});
      break;
    }
  }
  return ops;
}

}  // namespace weft
