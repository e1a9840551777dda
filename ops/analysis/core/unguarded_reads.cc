#include "ops/analysis/core/unguarded_reads.h"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <map>
#include <set>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/types/optional.h"
#include "absl/types/span.h"
#include "ops/analysis/core/block_names.h"
#include "ops/analysis/core/op_traits.h"
#include "ops/analysis/core/storage.h"
#include "ops/schema/algebra.h"
#include "ops/schema/device_ops.h"
#include "ops/schema/op_kinds.h"
#include "ops/schema/op_schema.h"
#include "ops/schema/uniform_values.h"
#include "proto/all_ops.h"

namespace weft {
namespace {

// More ways in which a variable may have been written are not kept.
constexpr size_t kMaxAlternatives = 64;
// Nor are longer conjunctions followed.
constexpr size_t kMaxLiterals = 64;

// The slots of loops, of which each has one.
constexpr const char* kStepScopes[] = {"StepScopes", "step_scopes"};

// Ascending literals, all of which hold: 2 i, and 2 i + 1 for its opposite.
using Conditions = std::vector<int>;

Conditions Union(const Conditions& a, const Conditions& b) {
  Conditions both;
  std::set_union(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(both));
  return both;
}

bool Implies(const Conditions& a, const Conditions& b) {
  return std::includes(a.begin(), a.end(), b.begin(), b.end());
}

// The literal in which two differ, if it is one and its opposite.
absl::optional<int> OnlyOpposite(const Conditions& a, const Conditions& b) {
  absl::optional<int> found;
  if (a.size() != b.size()) return found;
  for (size_t i = 0; i < a.size(); ++i) {
    if (a[i] == b[i]) continue;
    if (found.has_value() || (a[i] ^ 1) != b[i]) return absl::nullopt;
    found = a[i];
  }
  return found;
}

class Finder {
 public:
  explicit Finder(const Program& program)
      : program_(program),
        traits_(program),
        storage_(program),
        buffers_(storage_),
        is_entered_(program.num_blocks(), false) {
    for (const Op& op : AllOps(program)) {
      if (op.block() == 0) continue;
      for (Symbol name : op.output_args()) {
        const VarId id = ResolveArgument(program, op.block(), name);
        if (!id.valid()) continue;
        const Var var = program.var(id);
        const bool is_tensor =
            var.type() == pb::VarType::LOD_TENSOR || var.type() == pb::VarType::SELECTED_ROWS;
        if (is_tensor && !var.persistable() && !var.need_check_feed()) states_.try_emplace(id);
      }
    }
  }

  std::vector<UnguardedRead> Find() {
    Walk(0);
    return std::move(reads_);
  }

 private:
  struct State {
    bool is_written = false;             // or nothing is known
    std::vector<Conditions> written_if;  // each
    OpId writer;
  };

  void Walk(int block) {
    if (is_entered_[block]) return;
    is_entered_[block] = true;
    for (const Op& op : BlockOps(program_, block)) Visit(op);
  }

  VarId Resolve(const Op& op, Symbol name) const {
    return ResolveArgument(program_, op.block(), name);
  }

  void Visit(const Op& op) {
    const OpSchema* const schema = traits_.SchemaOf(op);
    const bool is_known = schema != nullptr;
    if (is_known && (schema->Has(Trait::kStreamSync) || GivesNoValues(op.type()))) return;
    if (is_known && schema->Has(Trait::kAlias)) return MakeBuffer(op);
    if (CopiesFrom(op.type()).has_value() && CopyToOtherDevice(op)) return;
    if (is_known && (schema->Has(Trait::kBranch) || schema->Has(Trait::kLoop) ||
                     schema->Has(Trait::kBlockGrad))) {
      return RunBlocks(op, *schema);
    }
    if (SelectsByMask(op.type()) && op.Input("X").size() == 2 && op.Input("Mask").size() == 1) {
      const Conditions second = TruthOf(Resolve(op, op.Input("Mask")[0]));
      const size_t first = op.Input("X").data() - op.args().data();
      Read(op, first, Union(facts_, Not(second)));
      Read(op, first + 1, Union(facts_, second));
      Read(op, op.Input("Mask").data() - op.args().data(), facts_);
    } else {
      for (size_t i = 0; i < op.input_args().size(); ++i) {
        if (!ReadsWithoutValues(op, i)) Read(op, i, facts_);
      }
    }
    const absl::optional<Conditions> truth = TruthOfOutput(op, schema);
    for (int block : op.SubBlocks()) Walk(block);
    for (Symbol name : op.output_args()) Write(Resolve(op, name));
    if (truth.has_value()) truths_[Resolve(op, op.output_args()[0])] = *truth;
  }

  // What may not be there in one memory is copied to the other all the same, and read there where
  // it may be. False: another copy, which reads.
  bool CopyToOtherDevice(const Op& op) {
    if (!facts_.empty() || op.input_args().size() != 1 || op.output_args().size() != 1)
      return false;
    const VarId from = Resolve(op, op.input_args()[0]), to = Resolve(op, op.output_args()[0]);
    const auto found = states_.find(from);
    if (found == states_.end() || !to.valid() || to == from) return false;
    if (program_.var(to).persistable() || program_.var(to).need_check_feed()) return false;
    const State state = found->second;  // states_ may move
    Forget(to);
    states_[to] = state;
    return true;
  }

  void MakeBuffer(const Op& op) {
    const Storage::Buffer& buffer = *storage_.MadeBy(op.id());
    for (size_t i = 0; buffer.copies && i < op.input_args().size(); ++i) Read(op, i, facts_);
    buffers_.Make(&buffer);
    const auto made = states_.find(buffer.var);
    if (made != states_.end()) WriteIf(facts_, &made->second);
    if (!buffer.copies && !buffer.constant.has_value()) return;
    for (VarId part : buffer.part_vars) Write(part);
  }

  void RunBlocks(const Op& op, const OpSchema& schema) {
    Conditions runs;
    for (size_t i = 0; i < op.input_args().size(); ++i) {
      const VarId var = Resolve(op, op.input_args()[i]);
      const auto is_in = [&](absl::string_view slot) {
        const absl::Span<const Symbol> names = op.Input(slot);
        const Symbol* const at = op.args().data() + i;
        return at >= names.begin() && at < names.end();
      };
      if (is_in("Cond") || is_in("Condition")) Read(op, i, facts_);
      if (is_in("Cond")) {
        const bool is_scalar = op.BoolAttr("is_scalar_condition").value_or(false);
        runs = Union(runs, is_scalar ? TruthOf(var) : Conditions{FilledOf(var)});
      }
      for (const char* slot : kStepScopes) {
        if (is_in(slot)) runs = {StepsOf(var)};
      }
    }
    if (schema.Has(Trait::kLoop) && !schema.Has(Trait::kBlockGrad)) {
      absl::Span<const Symbol> scopes;
      for (const char* slot : kStepScopes) scopes = scopes.empty() ? op.Output(slot) : scopes;
      runs = {scopes.empty() ? 2 * num_conditions_++ : StepsOf(Resolve(op, scopes[0]))};
      for (int block : op.SubBlocks()) ForgetWrittenIn(block, /*keeps_own=*/false);
    }
    const Conditions outside = std::exchange(facts_, Union(facts_, runs));
    const OpId around = std::exchange(runs_, op.id());
    for (int block : op.SubBlocks()) {
      Walk(block);
      // It may not have run. Gradients of the block read its own variables only if it has.
      ForgetWrittenIn(block, /*keeps_own=*/true);
    }
    runs_ = around;
    facts_ = outside;
    if (!schema.Has(Trait::kBlockGrad)) return;
    for (Symbol name : op.output_args()) Write(Resolve(op, name));
  }

  // --- Conditions --------------------------------------------------------------------------------

  // That the variable, as it is now, is true.
  const Conditions& TruthOf(VarId var) {
    if (!var.valid()) truths_.erase(var);  // not declared: never the same
    const auto [it, is_new] = truths_.try_emplace(var);
    if (is_new) it->second = {2 * num_conditions_++};
    return it->second;
  }
  // That it is not empty.
  int FilledOf(VarId var) { return LiteralIn(&filled_, var); }
  // That the loop of these scopes runs.
  int StepsOf(VarId scopes) { return LiteralIn(&steps_, scopes); }
  int LiteralIn(absl::flat_hash_map<VarId, int>* literals, VarId var) {
    const auto [it, is_new] = literals->try_emplace(var, 2 * num_conditions_);
    if (is_new) ++num_conditions_;
    return it->second;
  }

  Conditions Not(const Conditions& conditions) {
    const auto found = opposites_.find(conditions);
    if (found != opposites_.end()) return found->second;
    if (conditions.size() == 1) return {conditions[0] ^ 1};
    Conditions opposite = {2 * num_conditions_++};
    opposites_[opposite] = conditions;
    opposites_[conditions] = opposite;
    return opposite;
  }

  absl::optional<Conditions> TruthOfOutput(const Op& op, const OpSchema* schema) {
    if (op.output_args().size() != 1) return absl::nullopt;
    const auto truth = [&](size_t i) { return TruthOf(Resolve(op, op.input_args()[i])); };
    const size_t num_inputs = op.input_args().size();
    const bool is_filled = FillsConstant(op.type()) && num_inputs == 0;
    if (is_filled && FilledNumber(op).value_or(0) != 0) return Conditions();  // it always holds
    switch (AlgebraOf(op, schema)) {
      case Algebra::kCast:
        if (op.IntAttr("in_dtype") != pb::VarType::BOOL &&
            op.IntAttr("out_dtype") != pb::VarType::BOOL) {
          return absl::nullopt;
        }
        [[fallthrough]];
      case Algebra::kCopy:
        return num_inputs == 1 ? absl::make_optional(truth(0)) : absl::nullopt;
      case Algebra::kNot:
        return num_inputs == 1 ? absl::make_optional(Not(truth(0))) : absl::nullopt;
      case Algebra::kAnd:
        if (num_inputs != 2 || truth(0).size() + truth(1).size() > kMaxLiterals) {
          return absl::nullopt;
        }
        return Union(truth(0), truth(1));
      case Algebra::kOr:
        if (num_inputs != 2) return absl::nullopt;
        return Not(Union(Not(truth(0)), Not(truth(1))));
      default:
        return absl::nullopt;
    }
  }

  void Forget(VarId var) {
    truths_.erase(var);
    filled_.erase(var);
  }

  // In a loop, the iteration before may have written a condition.
  void ForgetWrittenIn(int block, bool keeps_own) {
    std::set<int> walked;
    ForgetWrittenIn(block, keeps_own, &walked);
  }
  void ForgetWrittenIn(int block, bool keeps_own, std::set<int>* walked) {
    if (!walked->insert(block).second) return;
    for (const Op& op : BlockOps(program_, block)) {
      for (Symbol name : op.output_args()) {
        const VarId var = Resolve(op, name);
        const bool is_own = var.valid() && program_.var(var).block() == block;
        if (!keeps_own || !is_own) Forget(var);
      }
      for (int inner : op.SubBlocks()) {
        if (!is_entered_[inner]) ForgetWrittenIn(inner, keeps_own, walked);
      }
    }
  }

  // --- Variables ---------------------------------------------------------------------------------

  absl::Span<const VarId> PartsOf(const VarId& var) const {
    const Storage::Buffer* const buffer = buffers_.Named(var);
    return buffer == nullptr ? absl::Span<const VarId>(&var, 1) : buffer->part_vars;
  }

  void Read(const Op& op, size_t arg, const Conditions& facts) {
    const VarId var = Resolve(op, op.args()[arg]);
    if (!var.valid()) return;
    for (VarId part : PartsOf(var)) ReadPart(op, arg, part, facts);
    // A buffer is none where no op has made it, whatever its parts hold.
    if (buffers_.Named(var) != nullptr) ReadPart(op, arg, var, facts);
  }

  void ReadPart(const Op& op, size_t arg, VarId part, const Conditions& facts) {
    const auto found = states_.find(part);
    if (found == states_.end() || found->second.is_written) return;
    State& state = found->second;
    const bool holds =
        std::any_of(state.written_if.begin(), state.written_if.end(),
                    [&](const Conditions& conditions) { return Implies(facts, conditions); });
    if (holds || state.written_if.empty()) return;  // a loop may read before it writes
    reads_.push_back({op.id(), static_cast<uint32_t>(arg), part, state.writer});
    state.is_written = true;  // reported
  }

  void Write(VarId var) {
    if (!var.valid()) return;
    for (VarId part : PartsOf(var)) {
      Forget(part);
      const auto found = states_.find(part);
      if (found != states_.end()) WriteIf(facts_, &found->second);
    }
  }

  void WriteIf(Conditions added, State* state) {
    std::vector<Conditions>& all = state->written_if;
    state->writer = runs_;
    for (size_t i = 0; i < all.size();) {
      if (Implies(added, all[i])) return;
      const absl::optional<int> opposite = OnlyOpposite(added, all[i]);
      if (!opposite.has_value() && !Implies(all[i], added)) {
        ++i;
        continue;
      }
      all.erase(all.begin() + static_cast<std::ptrdiff_t>(i));
      if (!opposite.has_value()) continue;
      added.erase(std::find(added.begin(), added.end(), *opposite));
      i = 0;
    }
    state->is_written = state->is_written || added.empty();
    if (all.size() < kMaxAlternatives) all.push_back(std::move(added));
  }

  const Program& program_;
  OpTraits traits_;
  const Storage storage_;
  CurrentBuffers buffers_;
  std::vector<bool> is_entered_;              // blocks
  absl::flat_hash_map<VarId, State> states_;  // of what blocks write
  Conditions facts_;                          // that hold in the block
  OpId runs_;                                 // the op that runs it
  int num_conditions_ = 0;
  absl::flat_hash_map<VarId, Conditions> truths_;
  absl::flat_hash_map<VarId, int> filled_, steps_;
  std::map<Conditions, Conditions> opposites_;  // where a condition is no literal
  std::vector<UnguardedRead> reads_;
};

}  // namespace

std::vector<UnguardedRead> FindUnguardedReads(const Program& program) {
  if (program.num_blocks() == 1) return {};
  return Finder(program).Find();
}

}  // namespace weft
