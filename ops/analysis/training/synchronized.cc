#include "ops/analysis/training/synchronized.h"

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/container/flat_hash_map.h"
#include "absl/functional/function_ref.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "ops/analysis/core/op_traits.h"
#include "ops/analysis/core/storage.h"
#include "ops/analysis/training/data_variables.h"
#include "ops/schema/algebra.h"
#include "ops/schema/communication_ops.h"
#include "proto/all_ops.h"
#include "proto/averaging_schedule.h"

namespace weft {
namespace {

bool IsLinear(Algebra algebra) {
  switch (algebra) {
    case Algebra::kSum:
    case Algebra::kAdd:
    case Algebra::kSubtract:
    case Algebra::kScale:
    case Algebra::kCopy:
    case Algebra::kCast:
    case Algebra::kReshape:
      return true;
    default:
      return false;
  }
}

// Sets of variables, as classes of Storage.
class SynchronizedFinder {
 public:
  SynchronizedFinder(const ProgramFacts& facts, const Setting& setting)
      : facts_(facts),
        setting_(setting),
        program_(facts.program()),
        storage_(facts.Get<Storage>()),
        traits_(facts.Get<OpTraits>()) {}

  absl::flat_hash_set<VarId> Find() {
    FindParametersAndReaders();
    FindOwn();
    const Classes linear = Reached(parameters_, [&](const Op& op) {
      return IsLinear(AlgebraOf(op)) && !HasAny(own_, op, op.input_args());
    });
    Classes reduced;
    for (const Op& op : AllOps(program_)) {
      const CollectiveOp* const collective = FindCollectiveOp(op);
      if (collective == nullptr || collective->kind != CollectiveKind::kAllReduce) continue;
      if (HasAny(linear, op, collective->Inputs(op))) Insert(op, collective->Outputs(op), &reduced);
    }
    const Classes made = Reached(reduced, [&](const Op& op) {
      const Algebra algebra = AlgebraOf(op);
      const bool is_made =
          IsLinear(algebra) || algebra == Algebra::kMultiply || algebra == Algebra::kDivide;
      return is_made && !HasAny(own_, op, op.input_args());
    });
    absl::flat_hash_set<VarId> found;
    for (VarId var : program_.block(0).vars()) {
      if (made.contains(ClassOf(var))) found.insert(var);
    }
    return found;
  }

 private:
  using Classes = absl::flat_hash_set<uint64_t>;

  void FindParametersAndReaders() {
    for (const Var& var : AllVars(program_)) {
      if (var.is_parameter()) parameters_.insert(ClassOf(var.id()));
    }
    for (const Op& op : AllOps(program_)) {
      for (absl::string_view slot : {"Param", "MasterParam"}) {
        Insert(op, op.Input(slot), &parameters_);
      }
      for (Symbol in : ReadBy(op)) readers_[storage_.ClassOf(op.block(), in)].push_back(op.id());
    }
  }

  // Branches and loops read whether they run. What else they list, their blocks read.
  static absl::Span<const Symbol> ReadBy(const Op& op) {
    if (op.SubBlocks().empty()) return op.input_args();
    for (absl::string_view slot : {"Cond", "Condition"}) {
      if (!op.Input(slot).empty()) return op.Input(slot);
    }
    return op.input_args();
  }

  // What ranks compute from their batches, or draw, but for the parameters: these they average.
  void FindOwn() {
    Classes start;
    for (VarId var : facts_.Get(FindData)) {
      const auto layout = setting_.feeds.find(std::string(program_.var(var).name()));
      const bool is_whole = layout != setting_.feeds.end() && !layout->second.axis.has_value();
      if (!is_whole) start.insert(ClassOf(var));
    }
    for (const Op& op : AllOps(program_)) {
      if (AlgebraOf(op) == Algebra::kRandom) Insert(op, op.output_args(), &start);
    }
    for (uint64_t parameter : parameters_) start.erase(parameter);
    own_ = Reached(
        std::move(start), [](const Op&) { return true; }, &parameters_);
  }

  // `start`, and what ops that `pass` make of it, but for `without`.
  Classes Reached(Classes start, absl::FunctionRef<bool(const Op&)> pass,
                  const Classes* without = nullptr) const {
    std::vector<uint64_t> todo(start.begin(), start.end());
    Classes reached = std::move(start);
    while (!todo.empty()) {
      const auto readers = readers_.find(todo.back());
      todo.pop_back();
      if (readers == readers_.end()) continue;
      for (OpId id : readers->second) {
        const Op op = program_.op(id);
        // Ops that wait leave what they list as it is.
        if (traits_.Has(op, Trait::kStreamSync) || !pass(op)) continue;
        for (Symbol out : op.output_args()) {
          const uint64_t made = storage_.ClassOf(op.block(), out);
          if (without != nullptr && without->contains(made)) continue;
          if (reached.insert(made).second) todo.push_back(made);
        }
      }
    }
    return reached;
  }

  Algebra AlgebraOf(const Op& op) const { return weft::AlgebraOf(op, traits_.SchemaOf(op)); }
  uint64_t ClassOf(VarId id) const {
    const Var var = program_.var(id);
    return storage_.ClassOf(var.block(), var.name_symbol());
  }
  bool HasAny(const Classes& classes, const Op& op, absl::Span<const Symbol> names) const {
    return absl::c_any_of(
        names, [&](Symbol name) { return classes.contains(storage_.ClassOf(op.block(), name)); });
  }
  void Insert(const Op& op, absl::Span<const Symbol> names, Classes* classes) const {
    for (Symbol name : names) classes->insert(storage_.ClassOf(op.block(), name));
  }

  const ProgramFacts& facts_;
  const Setting& setting_;
  const Program& program_;
  const Storage& storage_;
  const OpTraits& traits_;
  Classes parameters_, own_;
  absl::flat_hash_map<uint64_t, std::vector<OpId>> readers_;
};

}  // namespace

absl::flat_hash_set<VarId> FindSynchronized(const ProgramFacts& facts, const Setting& setting) {
  const bool is_claimed = setting.averaging.has_value() &&
                          (setting.averaging->delay > 0 || setting.averaging->mix > 0 ||
                           setting.averaging->sent != AveragingSchedule::Sent::kNative);
  if (!is_claimed) return {};
  return SynchronizedFinder(facts, setting).Find();
}

}  // namespace weft
