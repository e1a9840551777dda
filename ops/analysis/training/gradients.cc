#include "ops/analysis/training/gradients.h"

#include <algorithm>
#include <cstdint>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "base/status_macros.h"
#include "ops/analysis/core/op_traits.h"
#include "proto/all_ops.h"

namespace weft {
namespace {

absl::StatusOr<Symbol> Declared(const Program& program, const Op& op, absl::string_view role,
                                const std::string& name) {
  const VarId var = program.block(op.block()).Resolve(name);
  if (!var.valid()) {
    return absl::InvalidArgumentError(absl::StrCat(
        op.DebugName(), ": attribute op_role_var: ", role, " ", name, " is not declared"));
  }
  return program.var(var).name_symbol();
}

void Prefetch(absl::string_view bytes) {
  constexpr size_t kCacheLine = 64;
  for (size_t i = 0; i < bytes.size(); i += kCacheLine) __builtin_prefetch(bytes.data() + i);
}

// The variables of the root block that an op reads and writes: its arguments, and those of the ops
// in its sub-blocks.
class Touched {
 public:
  explicit Touched(const Program& program) : program_(program) {}

  // The spans are valid until the next call.
  void Find(const Op& op) {
    reads_ = op.input_args();
    writes_ = op.output_args();
    const std::vector<int> sub_blocks = op.SubBlocks();
    if (sub_blocks.empty()) return;
    seen_.clear();
    all_reads_.assign(reads_.begin(), reads_.end());
    all_writes_.assign(writes_.begin(), writes_.end());
    for (int block : sub_blocks) Collect(block);
    reads_ = all_reads_;
    writes_ = all_writes_;
  }
  absl::Span<const Symbol> reads() const { return reads_; }
  absl::Span<const Symbol> writes() const { return writes_; }

 private:
  void Collect(int block) {
    // Once each: the number of ways into a block may be exponential in the size of the program.
    if (!seen_.insert(block).second) return;
    for (const Op& op : BlockOps(program_, block)) {
      Collect(block, op.input_args(), &all_reads_);
      Collect(block, op.output_args(), &all_writes_);
      for (int sub : op.SubBlocks()) Collect(sub);
    }
  }
  // A block may declare another variable of this name.
  void Collect(int block, absl::Span<const Symbol> args, std::vector<Symbol>* symbols) {
    for (Symbol symbol : args) {
      const VarId var = program_.block(block).Resolve(symbol);
      if (var.valid() && program_.var(var).block() == 0) symbols->push_back(symbol);
    }
  }

  const Program& program_;
  absl::Span<const Symbol> reads_, writes_;
  std::vector<Symbol> all_reads_, all_writes_;
  std::set<int> seen_;  // blocks that were collected for this op
};

// The state of a gradient variable during the walk over the block.
struct State {
  bool pending = false;  // written and not yet used
  bool ever_written = false;
  bool is_touched = false;
  bool is_made_anew = false;      // the first op that touches it writes it, and reads nothing of it
  bool read_in_backward = false;  // since the last write
  OpId last_backward;
  OpId last_user;  // not part of backward
  int num_users = 0;
};

class Analyzer {
 public:
  Analyzer(const Program& program, std::vector<GradientPair> pairs)
      : program_(program), index_(program.symbols().size(), -1) {
    result_.pairs = std::move(pairs);
    states_.resize(result_.pairs.size());
    for (size_t i = 0; i < result_.pairs.size(); ++i) {
      index_[result_.pairs[i].grad.value()] = static_cast<int>(i);
    }
  }

  GradientAnalysis Run(const std::set<std::string>& distributed_params) {
    Touched touched(program_);
    OpTraits traits(program_);
    for (const Op& op : BlockOps(program_, 0)) {
      touched.Find(op);
      // A block may not run, and a buffer keeps what its members hold.
      const bool makes = op.SubBlocks().empty() && !traits.Has(op, Trait::kAlias) &&
                         !traits.Has(op, Trait::kKeepsOutputs);
      for (Symbol symbol : touched.reads()) Touch(symbol, /*makes=*/false);
      for (Symbol symbol : touched.writes()) Touch(symbol, makes);
      if (IsBackward(op)) {
        VisitBackward(op.id(), touched);
      } else {
        for (Symbol symbol : touched.reads()) Use(symbol, op.id());
        for (Symbol symbol : touched.writes()) Use(symbol, op.id());
      }
    }
    Finish();
    SkipDistributed(distributed_params);
    PlaceAccumulated();
    SortByCompletion();
    return std::move(result_);
  }

 private:
  void Touch(Symbol symbol, bool makes) {
    const int i = index_[symbol.value()];
    if (i < 0 || states_[i].is_touched) return;
    states_[i].is_touched = true;
    states_[i].is_made_anew = makes;
  }

  void VisitBackward(OpId id, const Touched& touched) {
    for (Symbol symbol : touched.reads()) {
      const int i = index_[symbol.value()];
      if (i < 0 || !states_[i].pending) continue;
      states_[i].read_in_backward = true;
      states_[i].last_backward = id;
    }
    for (Symbol symbol : touched.writes()) {
      const int i = index_[symbol.value()];
      if (i < 0) continue;
      State& state = states_[i];
      state.pending = state.ever_written = true;
      state.read_in_backward = false;
      state.last_backward = id;
    }
  }

  void Use(Symbol symbol, OpId by) {
    const int i = index_[symbol.value()];
    if (i < 0) return;
    if (states_[i].last_user != by) ++states_[i].num_users;
    states_[i].last_user = by;
    if (!states_[i].pending) return;
    states_[i].pending = false;
    Emit(i, by);
  }

  void Emit(int i, OpId first_use) {
    const GradientPair& pair = result_.pairs[i];
    result_.gradients.push_back({pair.param, pair.grad, states_[i].last_backward, first_use, 0});
  }

  // Gradients that no op outside of backward uses: complete ones, or parts of others.
  void Finish() {
    for (size_t i = 0; i < states_.size(); ++i) {
      const GradientPair& pair = result_.pairs[i];
      if (!states_[i].ever_written) {
        result_.skipped.push_back({pair.param, pair.grad, "no op of backward writes it"});
      } else if (states_[i].pending && states_[i].read_in_backward) {
        result_.skipped.push_back({pair.param, pair.grad,
                                   absl::StrCat("only backward uses it, last in ",
                                                program_.op(states_[i].last_backward).DebugName(),
                                                ": it is a part of another gradient")});
      } else if (states_[i].pending) {
        Emit(static_cast<int>(i), OpId());
      }
    }
  }

  void SkipDistributed(const std::set<std::string>& distributed_params) {
    if (distributed_params.empty()) return;
    const auto kept = std::stable_partition(
        result_.gradients.begin(), result_.gradients.end(), [&](const Gradient& gradient) {
          return distributed_params.count(std::string(program_.name(gradient.param))) == 0;
        });
    for (auto it = kept; it != result_.gradients.end(); ++it) {
      result_.skipped.push_back({it->param, it->grad, "its parameter is distributed"});
    }
    result_.gradients.erase(kept, result_.gradients.end());
  }

  // Moves gradients that are accumulated over several steps to the block that uses them up.
  void PlaceAccumulated() {
    std::vector<Gradient> placed;
    std::set<int> blocks;
    OpTraits traits(program_);
    for (Gradient& gradient : result_.gradients) {
      if (!program_.var(program_.block(0).Resolve(gradient.grad)).persistable()) continue;
      const State& state = states_[index_[gradient.grad.value()]];
      if (state.is_made_anew) continue;  // persistable to be fetched
      const bool has_user = gradient.first_use.valid() && state.num_users == 1;
      if (!has_user || !traits.Has(program_.op(gradient.first_use), Trait::kBranch)) {
        CallUnclear(gradient, "expected one conditional op that uses it");
        continue;
      }
      const std::vector<int> sub_blocks = program_.op(gradient.first_use).SubBlocks();
      if (sub_blocks.size() != 1) {
        CallUnclear(gradient, "the op that uses it does not have one sub-block");
        continue;
      }
      gradient.block = sub_blocks[0];
      gradient.first_use = OpId();
      blocks.insert(gradient.block);
    }
    for (int block : blocks) FindUsesInBlock(block);
    const auto is_unclear = [&](const Gradient& gradient) {
      return unclear_.count(gradient.grad.value()) > 0;
    };
    result_.gradients.erase(
        std::remove_if(result_.gradients.begin(), result_.gradients.end(), is_unclear),
        result_.gradients.end());
  }

  void CallUnclear(const Gradient& gradient, std::string why) {
    if (!unclear_.insert(gradient.grad.value()).second) return;
    result_.unclear.push_back({gradient.param, gradient.grad, std::move(why)});
  }

  void FindUsesInBlock(int block) {
    std::vector<Gradient*> used_up(program_.symbols().size(), nullptr);
    std::vector<bool> overwritten(program_.symbols().size(), false);
    for (Gradient& gradient : result_.gradients) {
      if (gradient.block == block) used_up[gradient.grad.value()] = &gradient;
    }
    Touched touched(program_);
    for (OpId id : program_.block(block).ops()) {
      touched.Find(program_.op(id));
      const auto note_use = [&](Symbol symbol) {
        Gradient* gradient = used_up[symbol.value()];
        if (gradient != nullptr && !gradient->first_use.valid()) gradient->first_use = id;
      };
      for (Symbol symbol : touched.reads()) note_use(symbol);
      for (Symbol symbol : touched.writes()) {
        note_use(symbol);
        overwritten[symbol.value()] = true;
      }
      for (Symbol symbol : touched.reads()) overwritten[symbol.value()] = false;
    }
    for (Gradient& gradient : result_.gradients) {
      if (gradient.block != block) continue;
      if (!gradient.first_use.valid()) {
        CallUnclear(gradient, "the op that uses it does not touch it");
      } else if (!overwritten[gradient.grad.value()]) {
        CallUnclear(gradient,
                    "not overwritten at the end of the block that uses it, so that the "
                    "sum over the ranks would be accumulated further");
      }
    }
  }

  // By block, then by the op of the root block that completes them; gradients that one op completes
  // stay in the order of the pairs.
  void SortByCompletion() {
    std::stable_sort(result_.gradients.begin(), result_.gradients.end(),
                     [&](const Gradient& a, const Gradient& b) {
                       if (a.block != b.block) return a.block < b.block;
                       const uint32_t pa = program_.op(a.completed_by).position();
                       const uint32_t pb = program_.op(b.completed_by).position();
                       return pa != pb ? pa < pb : index_[a.grad.value()] < index_[b.grad.value()];
                     });
  }

  const Program& program_;
  std::vector<int> index_;      // by symbol: into the pairs; -1: not tracked
  std::vector<State> states_;   // by pair
  std::set<uint32_t> unclear_;  // symbols
  GradientAnalysis result_;
};

absl::Status RefuseSubBlockPairs(const Program& program) {
  for (const Op& op : InnerOps(program)) {
    if (!IsBackward(op) || !op.has_role_vars()) continue;
    return absl::InvalidArgumentError(
        absl::StrCat(op.DebugName(),
                     ": completes a gradient inside a sub-block; expected in the root block, "
                     "where every rank runs it equally often"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<GradientPair>> FindGradientPairs(const Program& program) {
  std::vector<OpId> ops;
  for (const Op& op : BlockOps(program, 0)) {
    if (op.has_role_vars() && IsBackward(op)) ops.push_back(op.id());
  }
  std::vector<GradientPair> pairs;
  std::vector<int> index(program.symbols().size(), -1);  // by symbol: into pairs
  for (size_t i = 0; i < ops.size(); ++i) {
    // Cache misses on these ops, spread over a large file, would take a third of the time.
    constexpr size_t kAhead = 8;
    if (i + kAhead < ops.size()) Prefetch(program.op(ops[i + kAhead]).bytes());
    const OpId id = ops[i];
    const Op op = program.op(id);
    WEFT_ASSIGN_OR_RETURN(const std::vector<ParamGrad> names, ParamGrads(op));
    for (const ParamGrad& name : names) {
      if (name.grad == kEmptyVarName) continue;
      WEFT_ASSIGN_OR_RETURN(const Symbol param, Declared(program, op, "parameter", name.param));
      WEFT_ASSIGN_OR_RETURN(const Symbol grad, Declared(program, op, "gradient", name.grad));
      int& pair = index[grad.value()];
      if (pair < 0) {
        pair = static_cast<int>(pairs.size());
        pairs.push_back({param, grad, id});
      } else if (pairs[pair].param != param) {
        return absl::InvalidArgumentError(
            absl::StrCat(op.DebugName(), ": attribute op_role_var: gradient ", name.grad,
                         " is paired with parameter ", name.param, ", before with ",
                         program.name(pairs[pair].param)));
      }
    }
  }
  return pairs;
}

absl::Status CheckDistributedParams(const Program& program,
                                    const std::set<std::string>& distributed_params) {
  for (const std::string& name : distributed_params) {
    if (!program.block(0).FindVar(name).valid()) {
      return absl::InvalidArgumentError(
          absl::StrCat("distributed parameter ", name, " is not a variable of the program"));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<GradientAnalysis> AnalyzeGradients(const Program& program,
                                                  const std::set<std::string>& distributed_params) {
  WEFT_RETURN_IF_ERROR(CheckDistributedParams(program, distributed_params));
  WEFT_RETURN_IF_ERROR(RefuseSubBlockPairs(program));
  WEFT_ASSIGN_OR_RETURN(std::vector<GradientPair> pairs, FindGradientPairs(program));
  return Analyzer(program, std::move(pairs)).Run(distributed_params);
}

}  // namespace weft
