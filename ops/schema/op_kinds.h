// What single op types do, where no trait and no algebra says it.
#ifndef WEFT_OPS_SCHEMA_OP_KINDS_H_
#define WEFT_OPS_SCHEMA_OP_KINDS_H_

#include <cstddef>

#include "absl/strings/match.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "absl/types/span.h"
#include "proto/program.h"

namespace weft {

// Takes one of several values, or gives one of several variables its value, by input Mask.
inline bool SelectsByMask(absl::string_view type) {
  return type == "select_input" || type == "select_output";
}

// Adds up, or averages, along attribute dim.
inline bool SumsAlongDims(absl::string_view type) { return type == "reduce_sum"; }
inline bool AveragesAlongDims(absl::string_view type) { return type == "reduce_mean"; }

// Joins tensors along a new axis.
inline bool Stacks(absl::string_view type) { return type == "stack"; }

// The dims of a tensor, or its number of elements.
inline bool ReadsDims(absl::string_view type) { return type == "shape" || type == "size"; }

// The dims of a tensor; the numbers from Start to End, by Step.
inline bool ListsDims(absl::string_view type) { return type == "shape"; }
inline bool CountsUp(absl::string_view type) { return type == "range"; }

// Outputs have memory, but no values: their elements are whatever memory holds.
inline bool GivesNoValues(absl::string_view type) { return type == "empty"; }

// Fills input X in place, by its dims: "uniform_random_inplace", "pd_op.full_", ...
inline bool FillsInPlace(absl::string_view type) {
  type = absl::StripSuffix(type.substr(type.find('.') + 1), "_");
  for (absl::string_view fill :
       {"cauchy", "exponential", "fill", "full", "gaussian_inplace", "gaussian_random_inplace",
        "geometric", "log_normal", "uniform_inplace", "uniform_random_inplace"}) {
    if (type == fill) return true;
  }
  return false;
}

// Takes dims from input X or Input (fill_any_like, ...), fills it, or writes a part of it and keeps
// the rest: its elements may be without values. `i`: of an argument.
inline bool ReadsWithoutValues(const Op& op, size_t i) {
  const absl::string_view type = op.type();
  if (!ReadsDims(type) && !absl::EndsWith(type, "_like") && type != "set_value" &&
      !FillsInPlace(type)) {
    return false;
  }
  if (op.input_args().size() == 1) return i == 0;
  for (absl::string_view slot : {"X", "x", "Input", "input"}) {
    const absl::Span<const Symbol> args = op.Input(slot);
    if (!args.empty() && args.data() == &op.args()[i]) return true;
  }
  return false;
}

inline bool FillsConstant(absl::string_view type) { return type == "fill_constant"; }

// Outputs Q, with orthonormal columns, and R of a matrix that is their product.
inline bool FactorsOrthonormally(absl::string_view type) { return type == "qr"; }

// Elements of input Input, by starts and ends.
inline bool Slices(absl::string_view type) { return type == "slice" || type == "strided_slice"; }

// Functions of all elements of a tensor, such as its norm, whatever its dims.
inline bool NeedsAllElements(absl::string_view type) {
  return type == "clip_by_norm" || type == "lamb" || type == "lars_momentum";
}

// The sum of the squares of all elements.
inline bool SumsSquares(absl::string_view type) { return type == "squared_l2_norm"; }
// Along some dimensions, or all of them.
inline bool SumsElements(absl::string_view type) { return type == "reduce_sum"; }

// Divides gradients by a loss scale, and says whether an element of any is not finite. If so, the
// gradients are not said.
inline bool UnscalesGradients(absl::string_view type) { return type == "check_finite_and_unscale"; }

// Makes gradients zero if one of them was not finite, and chooses the next loss scale.
inline bool UpdatesLossScale(absl::string_view type) { return type == "update_loss_scaling"; }

// Between two ranks.
inline bool IsSendOrReceive(absl::string_view type) {
  return type == "send" || type == "recv" || type == "send_v2" || type == "recv_v2";
}

// Draws the seed of other ops.
inline bool DrawsSeed(absl::string_view type) { return type == "seed"; }

// An update p - rate g without states: a factor of the rate does what the same factor of g does.
inline bool IsProductWithRate(absl::string_view type) { return type == "sgd"; }

}  // namespace weft

#endif  // WEFT_OPS_SCHEMA_OP_KINDS_H_
