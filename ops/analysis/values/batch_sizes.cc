// Which inputs are sizes, as far as the ops before say so.
#include "absl/algorithm/container.h"
#include "ops/analysis/values/batch_interpreter.h"
#include "ops/schema/op_kinds.h"

namespace weft {
namespace {

// Ops between the one that makes a size and the one that reads it.
constexpr int kMaxCopies = 8;

bool IsNotNegative(const Op& constant) {
  return constant.Input("ValueTensor").empty() && constant.FloatAttr("value").value_or(0) >= 0 &&
         constant.StringAttr("str_value").value_or("").empty();
}

}  // namespace

bool BatchInterpreter::HasNoNegativeSizes(const Op& op) const {
  const absl::string_view slot = OpenSizeSlot(op.type());
  return !slot.empty() &&
         absl::c_all_of(op.Input(slot), [&](Symbol name) { return ReadsSize(op, name); });
}

bool BatchInterpreter::ReadsSize(const Op& op, Symbol name) const {
  Op reader = op;
  for (int i = 0; i <= kMaxCopies; ++i) {
    const OpId writer = WriterOf(Resolve(name));
    if (!writer.valid()) return false;
    const Op made_by = program_.op(writer);
    // Another block may not run, and a later op has written over what was read.
    if (made_by.block() != block() || made_by.position() >= reader.position()) return false;
    const absl::string_view type = made_by.type();
    if (ReadsDims(type)) return true;
    if (FillsConstant(type)) return IsNotNegative(made_by);
    const Algebra algebra = AlgebraOf(made_by, FindOpSchema(type));
    const bool is_slice = Slices(type);
    if (!is_slice && algebra != Algebra::kCopy && algebra != Algebra::kCast &&
        algebra != Algebra::kReshape) {
      return false;
    }
    const absl::Span<const Symbol> in = made_by.Input(is_slice ? "Input" : "X");
    if (in.size() != 1) return false;
    name = in[0];
    reader = made_by;
  }
  return false;
}

}  // namespace weft
