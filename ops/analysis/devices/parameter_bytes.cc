#include "ops/analysis/devices/parameter_bytes.h"

#include <algorithm>
#include <vector>

#include "absl/types/optional.h"
#include "absl/types/span.h"
#include "ops/analysis/core/storage.h"
#include "ops/analysis/core/updates.h"
#include "ops/analysis/devices/device_placement.h"
#include "ops/schema/algebra.h"
#include "ops/schema/op_schema.h"
#include "ops/schema/tensor_type.h"

namespace weft {
namespace {

class Counter {
 public:
  explicit Counter(const ProgramFacts& facts)
      : facts_(facts),
        program_(facts.program()),
        placement_(facts.Get<DevicePlacement>()),
        is_counted_(program_.var_id_limit(), false) {}

  ParameterBytes Count() {
    for (const ParamUpdate& update : facts_.Get(FindUpdates)) {
      const Op op = program_.op(update.op);
      for (Symbol param : op.Input("Param")) AddParameter(op, param);
      Add(op, update.master);
      for (Symbol state : update.states) Add(op, state);
      for (Symbol gradient : op.Input("Grad")) Add(op, gradient);
    }
    // Forwards from parameters, and backwards from the gradients that updates take.
    std::vector<OpId> ops(program_.block(0).ops().begin(), program_.block(0).ops().end());
    AddCopies(ops);
    std::reverse(ops.begin(), ops.end());
    AddCopies(ops);
    return counted_;
  }

 private:
  VarId Find(const Op& op, Symbol name) const {
    return name.valid() ? program_.block(op.block()).Resolve(name) : VarId();
  }

  void AddParameter(const Op& op, Symbol name) {
    const VarId var = Find(op, name);
    if (!var.valid() || is_counted_[var.value()]) return;
    const absl::optional<TensorType> type = DeclaredType(program_.var(var));
    if (type.has_value()) counted_.elements += std::max<int64_t>(NumElements(type->dims), 0);
    Add(var);
  }

  void Add(const Op& op, Symbol name) { Add(Find(op, name)); }

  void Add(VarId var) {
    if (!var.valid() || is_counted_[var.value()]) return;
    is_counted_[var.value()] = true;
    const absl::optional<TensorType> type = DeclaredType(program_.var(var));
    if (!type.has_value() || type->kind != TensorType::Kind::kDense) return;
    counted_.bytes[static_cast<int>(placement_.MemoryOf(var))] +=
        std::max<int64_t>(NumElements(type->dims), 0) * static_cast<int64_t>(SizeOf(type->dtype));
  }

  // Variables that are copied or cast to those that count, or from them, also as slices of buffers.
  void AddCopies(const std::vector<OpId>& ops) {
    CurrentBuffers buffers(facts_.Get<Storage>());
    for (OpId id : ops) buffers.Pass(id);
    const auto parts_of = [&](const Symbol& name) {
      const Storage::Buffer* const buffer = buffers.Named(0, name);
      return buffer == nullptr ? absl::MakeConstSpan(&name, 1) : buffer->parts;
    };
    for (OpId id : ops) {
      const Op op = program_.op(id);
      if (op.args().size() != 2 || !(CopiesFrom(op.type()).has_value() || IsCast(op))) continue;
      const absl::Span<const Symbol> from = parts_of(op.input_args()[0]);
      const absl::Span<const Symbol> to = parts_of(op.output_args()[0]);
      for (size_t i = 0; i < from.size() && i < to.size(); ++i) {
        AddCopy(Find(op, from[i]), Find(op, to[i]));
      }
    }
  }

  static bool IsCast(const Op& op) {
    return AlgebraOf(op, FindOpSchema(op.type())) == Algebra::kCast;
  }

  void AddCopy(VarId from, VarId to) {
    if (!from.valid() || !to.valid()) return;
    if (is_counted_[from.value()]) Add(to);
    if (is_counted_[to.value()]) Add(from);
  }

  const ProgramFacts& facts_;
  const Program& program_;
  const DevicePlacement& placement_;
  std::vector<bool> is_counted_;  // by VarId
  ParameterBytes counted_;
};

}  // namespace

ParameterBytes FindParameterBytes(const ProgramFacts& facts) { return Counter(facts).Count(); }

}  // namespace weft
