#include "transpiler/verify/residuals.h"

#include <cstddef>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "ops/analysis/op_traits.h"
#include "ops/schema/algebra.h"

namespace weft {
namespace {

class ResidualChecker {
 public:
  ResidualChecker(const Program& main, const StartupValues* start, ProgramRef ref,
                  Findings* findings)
      : main_(main), start_(start), report_(ref, findings), traits_(main) {}

  void Check() {
    for (int block = 0; block < main_.num_blocks(); ++block) {
      for (OpId id : main_.block(block).ops()) {
        const Op op = main_.op(id);
        if (Sparsifies(op)) CheckOp(op);
      }
    }
    if (!owners_.empty()) FindOtherUses();
  }

 private:
  bool Sparsifies(const Op& op) {
    return AlgebraOf(op, traits_.SchemaOf(op)) == Algebra::kSparsify;
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
                            ": expected a variable of its own"));
      }
      if (!main_.var(var).persistable()) {
        Report(op, in[i],
               "is not persistable, so that a step loses what the one before did not send");
      }
      CheckStart(op, in[i]);
    }
  }

  void CheckStart(const Op& op, Symbol residual) {
    if (start_ == nullptr) return;
    const auto value = start_->find(std::string(main_.name(residual)));
    if (value == start_->end() || value->second.is_zero) return;
    Report(op, residual, "begins with other values than zeros, which would be sent as gradients");
  }

  // Other ops that access a residual.
  void FindOtherUses() {
    for (int block = 0; block < main_.num_blocks(); ++block) {
      for (OpId id : main_.block(block).ops()) {
        const Op op = main_.op(id);
        if (traits_.Has(op, Trait::kStreamSync)) continue;
        for (Symbol name : op.args()) {
          const VarId var = main_.block(block).Resolve(name);
          const auto owner = var.valid() ? owners_.find(var) : owners_.end();
          if (owner == owners_.end() || owner->second == id) continue;
          const Op of = main_.op(owner->second);
          if (Sparsifies(op)) continue;  // CheckOp has told it
          Report(of, name, absl::StrCat("is also used by ", op.DebugName()), id);
          owners_.erase(owner);
        }
      }
    }
  }

  void Report(const Op& op, Symbol residual, const std::string& why, OpId other = OpId()) {
    report_.Add("W319", op.id(), main_.name(residual),
                absl::StrCat(op.DebugName(), ": residual ", main_.name(residual), " ", why), other);
  }

  const Program& main_;
  const StartupValues* const start_;
  Reporter report_;
  OpTraits traits_;
  absl::flat_hash_map<VarId, OpId> owners_;  // of residuals
};

}  // namespace

void CheckResiduals(const Program& main, const StartupValues* start, ProgramRef ref,
                    Findings* findings) {
  ResidualChecker(main, start, ref, findings).Check();
}

}  // namespace weft
