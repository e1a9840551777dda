#include "transpiler/verifier/communication/residuals.h"

#include <cstddef>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/types/optional.h"
#include "absl/types/span.h"
#include "ops/analysis/core/op_traits.h"
#include "ops/schema/algebra.h"
#include "ops/schema/weft_attrs.h"
#include "proto/all_ops.h"

namespace weft {
namespace {

class ResidualChecker {
 public:
  ResidualChecker(const ConstProgramPair& programs, const RankValuesOptions& options,
                  ProgramRef ref, Findings* findings)
      : main_(*programs.main),
        startup_(programs.startup),
        options_(options),
        report_(ref, findings),
        traits_(*programs.main),
        sparsifies_(main_.num_signatures()) {}

  void Check() {
    for (const Op& op : AllOps(main_)) {
      if (Sparsifies(op)) {
        CheckSent(op);
        CheckOp(op);
      } else if (op.type() == kDensifyOp) {
        CheckTensors(op);
      }
    }
    if (!owners_.empty()) FindOtherUses();
  }

 private:
  bool Sparsifies(const Op& op) {
    absl::optional<bool>& known = sparsifies_[op.signature_id()];
    if (!known.has_value()) known = AlgebraOf(op, traits_.SchemaOf(op)) == Algebra::kSparsify;
    return *known;
  }

  void CheckSent(const Op& op) {
    const absl::Span<const Symbol> gradients = op.Input("X");
    absl::flat_hash_set<Symbol> seen;
    for (Symbol gradient : gradients) {
      if (seen.insert(gradient).second) continue;
      report_.Add("W320", op.id(), main_.name(gradient),
                  absl::StrCat(op.DebugName(), " input X: ", main_.name(gradient),
                               " is there twice; expected different gradients"));
    }
    if (op.IntAttr("k").value_or(1) < 1) {
      report_.Add("W320", op.id(), "",
                  absl::StrCat(op.DebugName(), " attribute k: expected at least 1, found ",
                               *op.IntAttr("k"), ": nothing is ever sent"));
    }
    for (Symbol rows : op.Output("Out")) {
      const VarId var = main_.block(op.block()).Resolve(rows);
      if (var.valid()) sent_[var] = op.id();
    }
  }

  // What was made of gradients becomes them again.
  void CheckTensors(const Op& op) {
    const absl::Span<const Symbol> rows = op.Input("X");
    const VarId var = rows.empty() ? VarId() : main_.block(op.block()).Resolve(rows[0]);
    const auto sent = var.valid() ? sent_.find(var) : sent_.end();
    if (sent == sent_.end()) return;  // rows of another origin
    const Op by = main_.op(sent->second);
    if (by.Input("X") == op.Output("Out")) return;
    const auto names = [&](absl::Span<const Symbol> symbols) {
      return absl::StrJoin(symbols, ", ", [&](std::string* out, Symbol name) {
        absl::StrAppend(out, main_.name(name));
      });
    };
    report_.Add(
        "W320", op.id(), main_.name(rows[0]),
        absl::StrCat(op.DebugName(), " output Out: expected ", names(by.Input("X")), ", of which ",
                     by.DebugName(), " makes the rows, found ", names(op.Output("Out"))),
        by.id());
  }

  void CheckOp(const Op& op) {
    const absl::Span<const Symbol> in = op.Input("Residual"), out = op.Output("ResidualOut");
    for (size_t i = 0; i < in.size(); ++i) {
      if (i >= out.size() || in[i] != out[i]) {
        Report(op, in[i],
               absl::StrCat("is not written back: ResidualOut is ",
                            i < out.size() ? main_.name(out[i]) : "missing"));
      }
      const VarId var = main_.block(op.block()).Resolve(in[i]);
      if (!var.valid()) continue;
      const auto [owner, is_new] = owners_.try_emplace(var, op.id());
      if (!is_new) {
        Report(op, in[i],
               absl::StrCat("is also a residual of ",
                            owner->second == op.id() ? "another gradient"
                                                     : main_.op(owner->second).DebugName(),
                            ": expected one residual per gradient"));
      }
      if (!main_.var(var).persistable()) {
        Report(op, in[i],
               "is not persistable, so that a step loses what the one before did not send");
      }
      CheckStart(op, in[i]);
    }
  }

  void CheckStart(const Op& op, Symbol residual) {
    if (startup_ == nullptr) return;
    if (!start_.has_value()) start_ = ReadStartupValues(*startup_, StartupOptions());
    const auto value = start_->find(std::string(main_.name(residual)));
    if (value == start_->end()) {
      Report(op, residual, "has no value when training begins: expected zeros");
    } else if (!value->second.is_zero) {
      Report(op, residual, "begins with other values than zeros, which would be sent as gradients");
    }
  }

  RankValuesOptions StartupOptions() const {
    RankValuesOptions of_startup;
    of_startup.setting.nranks = options_.setting.nranks;
    of_startup.group = options_.group;
    return of_startup;
  }

  // Other ops that access a residual.
  void FindOtherUses() {
    for (const Op& op : AllOps(main_)) {
      if (traits_.Has(op, Trait::kStreamSync)) continue;
      for (Symbol name : op.args()) {
        const VarId var = main_.block(op.block()).Resolve(name);
        const auto owner = var.valid() ? owners_.find(var) : owners_.end();
        if (owner == owners_.end() || owner->second == op.id()) continue;
        const Op of = main_.op(owner->second);
        if (Sparsifies(op)) continue;  // CheckOp has told it
        Report(of, name, absl::StrCat("is also used by ", op.DebugName()), op.id());
        owners_.erase(owner);
      }
    }
  }

  void Report(const Op& op, Symbol residual, const std::string& why, OpId other = OpId()) {
    report_.Add("W319", op.id(), main_.name(residual),
                absl::StrCat(op.DebugName(), ": residual ", main_.name(residual), " ", why), other);
  }

  const Program& main_;
  const Program* const startup_;
  const RankValuesOptions& options_;
  absl::optional<StartupValues> start_;  // read on demand
  Reporter report_;
  OpTraits traits_;
  std::vector<absl::optional<bool>> sparsifies_;  // by Op::signature_id
  absl::flat_hash_map<VarId, OpId> owners_;       // of residuals
  absl::flat_hash_map<VarId, OpId> sent_;  // the last op that made rows of gradients, by variable
};

}  // namespace

void CheckSparsifiedGradients(const ConstProgramPair& programs, const RankValuesOptions& options,
                              ProgramRef ref, Findings* findings) {
  ResidualChecker(programs, options, ref, findings).Check();
}

}  // namespace weft
