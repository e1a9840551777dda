#include "transpiler/verifier/structure/uninitialized_reads.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/types/optional.h"
#include "ops/analysis/core/block_names.h"
#include "ops/analysis/core/unguarded_reads.h"
#include "ops/schema/buffer_slices.h"
#include "ops/schema/communication_ops.h"
#include "ops/schema/feed_ops.h"
#include "ops/schema/op_kinds.h"
#include "ops/schema/op_schema.h"
#include "proto/all_ops.h"
#include "proto/op_role.h"
#include "transpiler/verifier/structure/arguments.h"

namespace weft {
namespace {

class UninitializedReads {
 public:
  UninitializedReads(const Program& program, ProgramRef ref, absl::optional<int> rank,
                     Findings* findings)
      : program_(program),
        rank_(rank),
        report_(ref, findings),
        signatures_(program.num_signatures()),
        is_run_(program.num_blocks(), false),
        is_loop_body_(program.num_blocks(), false) {
    FillStates();
  }

  // Ops of blocks that no op runs read nothing.
  void Check() {
    CheckBlock(0);
    for (const UnguardedRead& read : FindUnguardedReads(program_)) ReportUnguarded(read);
  }

  // These variables of the root block begin without values, as this text and `whose` say.
  // `may_be_loaded`: from a file, before the program runs.
  void BeginWithoutValues(const std::map<std::string, std::string>& without,
                          absl::string_view whose, bool may_be_loaded) {
    for (const auto& [name, why] : without) {
      const Symbol symbol = program_.FindSymbol(name);
      if (!symbol.valid()) continue;
      TakeValue(&root_[symbol.value()]);
      without_[symbol] = absl::StrCat(whose, why);
      if (may_be_loaded) may_be_loaded_.insert(symbol);
    }
  }

  // Persistable variables of the root block that end without values, and why.
  std::map<std::string, std::string> EndingWithoutValues() const {
    std::map<std::string, std::string> without;
    for (const auto& [name, why] : without_) {
      const VarId var = program_.block(0).FindVar(name);
      if (!var.valid() || !program_.var(var).persistable()) continue;
      if ((root_[name.value()] & kHasValue) == 0) without[std::string(program_.name(name))] = why;
    }
    return without;
  }

 private:
  // Bits of a variable.
  using State = uint8_t;
  enum : State {
    kDeclared = 1,
    kHasValue = 2,  // by now
    kAlways = 4,    // has a value from the start and never loses it
    kFused = 8,     // a fused buffer: see fused_
    kTaken = 16,    // lost its value: see taken_by_ and without_
  };

  struct Fused {
    std::vector<std::pair<Symbol, State*>> slices;
    bool is_written = false;  // as a whole
  };

  // Shared by all ops of a signature.
  struct SignatureInfo {
    enum class Kind : uint8_t { kPlain, kSync, kBuffer, kHoldsBlocks, kEmpty };
    bool is_set = false;
    bool is_branch = false;
    Kind kind = Kind::kPlain;
    const OpSchema* schema = nullptr;
  };

  void FillStates() {
    root_.assign(program_.symbols().size(), 0);
    if (program_.num_blocks() > 1) inner_.assign(program_.var_id_limit(), 0);
    for (const Var& var : AllVars(program_)) {
      const bool is_tensor =
          var.type() == pb::VarType::LOD_TENSOR || var.type() == pb::VarType::SELECTED_ROWS;
      data_is_marked_ = data_is_marked_ || var.need_check_feed();
      State state = kDeclared;
      if (var.persistable() || !is_tensor) state |= kHasValue | kAlways;
      if (var.need_check_feed()) state |= kHasValue;
      (var.block() == 0 ? root_[var.name_symbol().value()] : inner_[var.id().value()]) = state;
    }
    empty_ = program_.FindSymbol(kEmptyVarName);
    if (empty_.valid()) root_[empty_.value()] = kDeclared | kHasValue | kAlways;
  }

  const SignatureInfo& InfoOf(const Op& op) {
    SignatureInfo& info = signatures_[op.signature_id()];
    if (info.is_set) return info;
    info.is_set = true;
    const std::vector<OpSignature::Attr>& attrs = op.signature().attrs;
    const bool has_blocks = std::any_of(attrs.begin(), attrs.end(), [](const auto& attr) {
      return attr.type == pb::BLOCK || attr.type == pb::BLOCKS;
    });
    if (has_blocks) info.kind = SignatureInfo::Kind::kHoldsBlocks;
    info.schema = FindOpSchema(op.type());
    if (IsFeed(op.type())) data_is_marked_ = true;
    if (info.schema == nullptr) return info;
    info.is_branch = info.schema->Has(Trait::kBranch);
    if (GivesNoValues(op.type())) info.kind = SignatureInfo::Kind::kEmpty;
    if (info.schema->Has(Trait::kStreamSync)) info.kind = SignatureInfo::Kind::kSync;
    if (info.schema->Has(Trait::kAlias)) info.kind = SignatureInfo::Kind::kBuffer;
    return info;
  }

  // The state of the variable that a block sees under the name; null if there is none, and for
  // kEmptyVarName.
  State* Find(int block, Symbol name) {
    if (name == empty_) return nullptr;
    if (block == 0) return (root_[name.value()] & kDeclared) != 0 ? &root_[name.value()] : nullptr;
    const VarId var = ResolveArgument(program_, block, name);
    if (!var.valid()) return nullptr;
    return program_.var(var).block() == 0 ? &root_[name.value()] : &inner_[var.value()];
  }

  void CheckBlock(int block) {
    is_run_[block] = true;
    for (const Op& op : BlockOps(program_, block)) {
      const SignatureInfo& info = InfoOf(op);
      switch (info.kind) {
        case SignatureInfo::Kind::kPlain:
          if (block == 0 && CheckPlainRootOp(op)) break;
          for (size_t i = 0; i < op.input_args().size(); ++i) Read(op, i);
          for (Symbol name : op.output_args()) Write(op, name);
          break;
        case SignatureInfo::Kind::kSync:
          break;
        case SignatureInfo::Kind::kBuffer:
          MakeBuffer(op);
          break;
        case SignatureInfo::Kind::kHoldsBlocks:
          RunBlocks(op, info);
          break;
        case SignatureInfo::Kind::kEmpty:
          for (size_t i = 0; i < op.input_args().size(); ++i) Read(op, i);
          for (Symbol name : op.output_args()) MakeEmpty(op, name);
          break;
      }
    }
  }

  static void TakeValue(State* state) {
    *state &= static_cast<State>(~(kHasValue | kAlways));
    *state |= kTaken;
  }

  void MakeEmpty(const Op& op, Symbol name) {
    State* const state = Find(op.block(), name);
    if (state == nullptr) return;
    TakeValue(state);
    without_[name] = absl::StrCat(op.DebugName(), " gives it memory without values");
    may_be_loaded_.erase(name);
  }

  // The fast path for nearly all ops. False if there may be a finding or a buffer.
  bool CheckPlainRootOp(const Op& op) {
    constexpr State kFine = kDeclared | kHasValue;
    const absl::Span<const Symbol> args = op.args();
    const size_t num_inputs = op.signature().num_input_args;
    for (size_t i = 0; i < num_inputs; ++i) {
      if ((root_[args[i].value()] & kFine) != kFine) return false;
    }
    for (size_t i = num_inputs; i < args.size(); ++i) {
      State& state = root_[args[i].value()];
      if ((state & (kDeclared | kFused)) != kDeclared) return false;
      state |= kHasValue;
    }
    return true;
  }

  // The op reads its i-th argument.
  void Read(const Op& op, size_t i) {
    const Symbol name = op.args()[i];
    State* const state = Find(op.block(), name);
    if (state == nullptr || (*state & kHasValue) != 0) return;
    Symbol missing = name;
    if ((*state & kFused) != 0) {
      missing = FirstSliceWithoutValue(*state, fused_.at(state));
      if (!missing.valid()) return;
    }
    if (without_.count(name) > 0 && (ReadsWithoutValues(op, i) || Receives(op))) return;
    // One report per variable.
    *state |= kHasValue;
    ReportRead(op, i, missing, *state);
  }

  // Whether the rank that runs the program gets the value of another one.
  bool Receives(const Op& op) const {
    const CollectiveOp* const collective = FindCollectiveOp(op);
    // Roots of groups of ranks count otherwise.
    return rank_.has_value() && collective != nullptr && !op.HasAttr(kGroupRanksAttr) &&
           collective->kind == CollectiveKind::kBroadcast &&
           op.IntAttr(collective->root_attr).value_or(0) != *rank_;
  }

  // The first slice without a value. If there is none, the buffer has a value.
  Symbol FirstSliceWithoutValue(State& buffer, const Fused& fused) {
    for (const auto& [name, state] : fused.slices) {
      if ((*state & kHasValue) == 0) return name;
    }
    buffer |= kHasValue;
    return Symbol();
  }

  void ReportRead(const Op& op, size_t i, Symbol missing, State state) {
    const Symbol name = op.args()[i];
    const bool is_known = InfoOf(op).schema != nullptr;
    const bool is_taken = (state & kTaken) != 0;
    const bool may_be_data = missing == name && !is_taken && MayBeData(op, name);
    if (may_be_data && !data_is_marked_) return;
    const auto empty = without_.find(name);
    const bool is_empty = is_taken && empty != without_.end();
    const OpId buffer = is_taken && !is_empty ? taken_by_.at(name) : OpId();
    std::string message = absl::StrCat(op.DebugName(), " ", SlotOfArgument(op, i), ": variable ",
                                       absl::CEscape(program_.name(name)), " has no value");
    if (missing != name) {
      absl::StrAppend(&message, ": no op has written its slice ",
                      absl::CEscape(program_.name(missing)));
    } else if (is_empty) {
      absl::StrAppend(&message, ": ", empty->second, ", and no op writes it after that");
    } else if (is_taken) {
      absl::StrAppend(&message, ": ", program_.op(buffer).DebugName(),
                      " gives it new memory, and no op writes it after that");
    } else {
      absl::StrAppend(&message, IsMade(name) ? ": it is only written later" : ": no op writes it",
                      ", and it is neither persistable nor a feed variable");
    }
    const bool is_possible = may_be_data || !is_known || may_be_loaded_.count(name) > 0;
    report_.Add(is_possible ? "W107" : "W106", op.id(), program_.name(missing), std::move(message),
                buffer);
  }

  void ReportUnguarded(const UnguardedRead& read) {
    const Op reader = program_.op(read.op);
    const absl::string_view name = program_.var(read.var).name();
    report_.Add("W107", read.op, name,
                absl::StrCat(reader.DebugName(), " ", SlotOfArgument(reader, read.arg),
                             ": variable ", absl::CEscape(name), " may have no value, or the ",
                             "value of an earlier step: ", program_.op(read.writer).DebugName(),
                             " writes it in a block that may not run, and ", reader.DebugName(),
                             " does not run on the same condition"),
                read.writer);
  }

  // Whether the variable may be an unmarked feed variable: see uninitialized_reads.h.
  bool MayBeData(const Op& op, Symbol name) {
    return !IsBackward(op) && !IsOptimize(op) && !IsMade(name) &&
           !program_.FindSymbol(absl::StrCat(program_.name(name), kGradSuffix)).valid();
  }

  // Whether an op writes a variable of that name without reading it.
  bool IsMade(Symbol name) {
    if (is_made_.empty()) FindMade();
    return is_made_[name.value()];
  }

  void FindMade() {
    is_made_.resize(program_.symbols().size(), false);
    std::vector<OpId> read_by(program_.symbols().size());
    for (const Op& op : AllOps(program_)) {
      if (InfoOf(op).kind == SignatureInfo::Kind::kSync) continue;
      for (Symbol input : op.input_args()) read_by[input.value()] = op.id();
      for (Symbol output : op.output_args()) {
        if (read_by[output.value()] != op.id()) is_made_[output.value()] = true;
      }
    }
  }

  void Write(const Op& op, Symbol name) {
    State* const state = Find(op.block(), name);
    if (state == nullptr) return;
    *state |= kHasValue;
    if ((*state & kFused) == 0) return;
    Fused& fused = fused_.at(state);
    if (fused.is_written) return;
    fused.is_written = true;
    for (const auto& slice : fused.slices) *slice.second |= kHasValue;
  }

  // Slices get new memory, which has values if it is filled.
  void MakeBuffer(const Op& op) {
    const MadeBuffer made = MadeBufferOf(op);
    const bool fills = made.copies || made.constant.has_value();
    if (made.copies) {
      for (size_t i = 0; i < op.input_args().size(); ++i) Read(op, i);
    }
    Fused fused;
    for (Symbol name : made.parts) {
      State* const state = Find(op.block(), name);
      if (state == nullptr) continue;
      fused.slices.push_back({name, state});
      if (fills) {
        *state |= kHasValue;
      } else if ((*state & kAlways) == 0 && !made.keeps) {
        if ((*state & kHasValue) != 0) {
          *state |= kTaken;
          taken_by_[name] = op.id();
          without_.erase(name);
        }
        *state &= static_cast<State>(~kHasValue);
      }
    }
    State* const state = made.name.valid() ? Find(op.block(), made.name) : nullptr;
    if (state == nullptr) return;
    *state |= kFused;
    if (fills) {
      *state |= kHasValue;
    } else if ((*state & kAlways) == 0) {
      *state &= static_cast<State>(~kHasValue);
    }
    fused_[state] = std::move(fused);
  }

  // The op lists what its blocks read and write, but the ops of the blocks are checked instead.
  void RunBlocks(const Op& op, const SignatureInfo& info) {
    for (size_t i = 0; i < op.input_args().size(); ++i) {
      const std::string slot = SlotOfArgument(op, i);
      if (slot == "input Cond" || slot == "input Condition") Read(op, i);
    }
    for (int block : op.SubBlocks()) {
      if (!info.is_branch) WriteAll(block);
      WriteSteps(op, block);
      if (!is_run_[block]) CheckBlock(block);
    }
    if (info.is_branch) return;
    for (Symbol name : op.output_args()) Write(op, name);
  }

  // A recurrent op writes the variables of its block that are steps of sequences, and states as
  // they were before the step.
  void WriteSteps(const Op& op, int block) {
    const auto write = [&](Symbol name) {
      const VarId var = name.valid() ? program_.block(block).FindVar(name) : VarId();
      if (var.valid() && block != 0) inner_[var.value()] |= kHasValue;
    };
    const auto states = op.StringsAttr("ex_states");
    if (!states.has_value()) return;
    for (Symbol sequence : op.Input("inputs")) write(sequence);
    for (const std::string& state : *states) write(program_.FindSymbol(state));
  }

  // In a loop, the previous iteration may have written any variable.
  void WriteAll(int block) {
    if (is_loop_body_[block]) return;
    is_loop_body_[block] = true;
    for (const Op& op : BlockOps(program_, block)) {
      const SignatureInfo::Kind kind = InfoOf(op).kind;
      if (kind == SignatureInfo::Kind::kSync || kind == SignatureInfo::Kind::kEmpty) continue;
      if (kind == SignatureInfo::Kind::kHoldsBlocks) {
        for (int sub_block : op.SubBlocks()) WriteAll(sub_block);
      }
      for (Symbol name : op.output_args()) Write(op, name);
    }
  }

  const Program& program_;
  const absl::optional<int> rank_;
  Reporter report_;
  std::vector<SignatureInfo> signatures_;
  Symbol empty_;
  bool data_is_marked_ = false;
  std::vector<bool> is_run_;        // by block
  std::vector<bool> is_loop_body_;  // by block
  std::vector<State> root_;         // of the root's variables, by Symbol
  std::vector<State> inner_;        // of the others, by VarId
  absl::flat_hash_map<const State*, Fused> fused_;
  absl::flat_hash_map<Symbol, OpId> taken_by_;        // buffers
  absl::flat_hash_map<Symbol, std::string> without_;  // why a variable has no value
  absl::flat_hash_set<Symbol> may_be_loaded_;         // of these: a file may give one
  std::vector<bool> is_made_;                         // by Symbol; computed on demand
};

bool HasEmpty(const Program& program) {
  return absl::c_any_of(program.block(0).ops(),
                        [&](OpId id) { return GivesNoValues(program.op(id).type()); });
}

// Reads of what `before`, which runs before `program`, leaves without values.
void CheckReadsAfter(const Program& before, const Program& program, ProgramRef ref,
                     absl::optional<int> rank, Findings* findings) {
  if (!HasEmpty(before)) return;
  Findings of_before, of_program;
  UninitializedReads start(before, ref, rank, &of_before);
  start.Check();
  const std::map<std::string, std::string> without = start.EndingWithoutValues();
  UninitializedReads reads(program, ref, rank, &of_program);
  const bool is_step = &before == &program;
  reads.BeginWithoutValues(without, is_step ? "step before: " : "startup program: ",
                           /*may_be_loaded=*/!is_step);
  reads.Check();
  for (const Finding& found : of_program.all()) {
    if (without.count(found.variable) > 0) findings->Add(found);
  }
}

}  // namespace

void CheckUninitializedReads(const Program& program, ProgramRef ref, Findings* findings,
                             absl::optional<int> rank) {
  UninitializedReads(program, ref, rank, findings).Check();
  if (!ref.is_startup) CheckReadsAfter(program, program, ref, rank, findings);
}

void CheckStartupKeeps(const ConstProgramPair& programs, ProgramRef ref, Findings* findings,
                       absl::optional<int> rank) {
  const Program &main = *programs.main, &startup = *programs.startup;
  Reporter report({ref.rank, /*is_startup=*/true}, findings);
  absl::flat_hash_set<Symbol> seen;
  for (OpId id : startup.block(0).ops()) {
    for (Symbol out : startup.op(id).output_args()) {
      const VarId var = startup.block(0).FindVar(out);
      if (!var.valid() || startup.var(var).persistable() || !seen.insert(out).second) continue;
      const absl::string_view name = startup.name(out);
      const VarId kept = main.block(0).FindVar(name);
      if (!kept.valid() || !main.var(kept).persistable()) continue;
      report.Add("W108", id, name,
                 absl::StrCat(startup.op(id).DebugName(), " initializes variable ", name,
                              ": expected it to be persistable, as in the main program, found a "
                              "variable that is lost when the startup program ends"));
    }
  }
  CheckReadsAfter(startup, main, {ref.rank, /*is_startup=*/false}, rank, findings);
}

}  // namespace weft
