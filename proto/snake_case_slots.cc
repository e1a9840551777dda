#include "proto/snake_case_slots.h"

#include <string>

namespace weft {
namespace {

struct Names {
  absl::string_view snake, camel;
};
constexpr Names kSlots[] = {{"param", "Param"},
                            {"grad", "Grad"},
                            {"learning_rate", "LearningRate"},
                            {"master_param", "MasterParam"},
                            {"param_out", "ParamOut"},
                            {"master_param_out", "MasterParamOut"},
                            {"moment1", "Moment1"},
                            {"moment2", "Moment2"},
                            {"moment1_out", "Moment1Out"},
                            {"moment2_out", "Moment2Out"},
                            {"beta1_pow", "Beta1Pow"},
                            {"beta2_pow", "Beta2Pow"},
                            {"beta1_pow_out", "Beta1PowOut"},
                            {"beta2_pow_out", "Beta2PowOut"},
                            {"momentum_decay_pow", "MomentumDecayPow"},
                            {"momentum_decay_pow_out", "MomentumDecayPowOut"},
                            {"mu_product", "MuProduct"},
                            {"mu_product_out", "MuProductOut"},
                            {"rho", "Rho"},
                            {"rho_out", "RhoOut"},
                            {"prev", "Prev"},
                            {"prev_out", "PrevOut"},
                            {"learning_rate_out", "LearningRateOut"},
                            {"learning_rate_range", "LearningRateRange"},
                            {"etas", "Etas"},
                            {"d", "D"},
                            {"d_out", "DOut"},
                            {"y", "Y"},
                            {"y_out", "YOut"},
                            {"n", "N"}};

absl::string_view SnakeCaseSlot(absl::string_view slot) {
  for (const Names& names : kSlots) {
    if (names.camel == slot) return names.snake;
  }
  return slot;
}

void Rename(pb::OpDesc* op, absl::string_view (*rename)(absl::string_view)) {
  if (!HasSnakeCaseSlots(op->type())) return;
  for (auto* const slots : {op->mutable_inputs(), op->mutable_outputs()}) {
    for (pb::OpDesc::Var& slot : *slots) {
      if (slot.has_parameter()) slot.set_parameter(std::string(rename(slot.parameter())));
    }
  }
}

}  // namespace

bool HasSnakeCaseSlots(absl::string_view type) {
  return type == "asgd" || type == "nadam" || type == "radam" || type == "rprop";
}

absl::string_view CamelCaseSlot(absl::string_view slot) {
  for (const Names& names : kSlots) {
    if (names.snake == slot) return names.camel;
  }
  return slot;
}

void ToCamelCaseSlots(pb::OpDesc* op) { Rename(op, CamelCaseSlot); }
void ToSnakeCaseSlots(pb::OpDesc* op) { Rename(op, SnakeCaseSlot); }

}  // namespace weft
