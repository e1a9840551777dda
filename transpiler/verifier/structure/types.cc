#include "transpiler/verifier/structure/types.h"

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/types/optional.h"
#include "absl/types/span.h"
#include "ops/analysis/core/op_traits.h"
#include "ops/analysis/core/type_flow.h"
#include "ops/schema/buffer_slices.h"
#include "ops/schema/device_ops.h"
#include "ops/schema/op_schema.h"
#include "ops/schema/tensor_type.h"

namespace weft {
namespace {

bool DimsDiffer(const Dims& a, const Dims& b) {
  if (a.size() != b.size()) return true;
  for (size_t i = 0; i < a.size(); ++i) {
    if (a[i] != b[i] && a[i] != -1 && b[i] != -1) return true;
  }
  return false;
}

// The rule that a write of `inferred` to a variable declared as `declared` breaks; null if none.
const char* BrokenRule(const TensorType& inferred, const TensorType& declared) {
  if (inferred.kind != declared.kind) return "W204";
  if (inferred.dtype != declared.dtype) return "W202";
  if (IsScalarAndOne(inferred, declared)) return "W205";
  return DimsDiffer(inferred.dims, declared.dims) ? "W203" : nullptr;
}

class TypesChecker {
 public:
  TypesChecker(const ProgramFacts& facts, ProgramRef ref, Findings* findings)
      : program_(facts.program()),
        report_(ref, findings),
        traits_(facts.Get<OpTraits>()),
        flow_(program_),
        has_declared_type_(program_.var_id_limit(), false),
        has_loose_type_(program_.var_id_limit(), false),
        is_reported_(program_.var_id_limit(), false) {}

  void Check() {
    flow_.Run(0, [&](const TypeFlow::Step& step) { return CheckStep(step); });
    ReportDifferences();
  }

 private:
  // An op that writes a variable with another type than the declared one.
  struct Difference {
    OpId op;
    size_t output;  // into output_args()
    VarId var;
    TypeId type;
    bool is_part;  // of a buffer, whose memory has room for this type
  };

  bool CheckStep(const TypeFlow::Step& step) {
    if (!step.fits) {
      report_.Add("W201", step.op.id(), "", std::string(flow_.Error(step).message()));
      return ++num_misfits_ < kMaxMisfits;
    }
    for (size_t i = 0; i < step.inferred.size(); ++i) {
      const VarId var = step.outputs[i];
      if (!var.valid()) continue;
      const TypeId type = step.inferred[i];
      const TypeId declared = flow_.declared(var);
      if (IsInput(step.op, i)) continue;
      if (type == kUnknownType) {
        // It may be the declared type. The ops of a block show what it writes.
        if (step.op.SubBlocks().empty()) has_declared_type_[var.value()] = true;
      } else if (type == declared || declared == kUnknownType ||
                 BrokenRule(*flow_.types().type(type), *flow_.types().type(declared)) == nullptr) {
        has_declared_type_[var.value()] = true;
      } else if (HasLooseType(step.op, i) || PassesLooseType(step.op, i) ||
                 IsDeclaredWithoutSizes(type, declared) ||
                 IsDeclaredWithoutElements(var, type, declared)) {
        has_loose_type_[var.value()] = true;
      } else {
        if (program_.var(var).persistable()) has_declared_type_[var.value()] = false;
        differences_.push_back({step.op.id(), i, var, type, IsPart(step.op, i)});
      }
    }
    return true;
  }

  void ReportDifferences() {
    for (const Difference& difference : differences_) {
      // One finding per variable. Feed variables have the declared type before the first op.
      const TensorType& inferred = *flow_.types().type(difference.type);
      const TensorType& declared = *flow_.types().type(flow_.declared(difference.var));
      // Memory of one element type may hold another shape for a while.
      const bool is_reuse =
          has_declared_type_[difference.var.value()] && inferred.dtype == declared.dtype;
      if (is_reuse && !difference.is_part) continue;
      if (is_reported_[difference.var.value()]) continue;
      if (program_.var(difference.var).need_check_feed()) continue;
      is_reported_[difference.var.value()] = true;
      const absl::string_view name = program_.var(difference.var).name();
      const Op op = program_.op(difference.op);
      report_.Add(BrokenRule(inferred, declared), difference.op, name,
                  absl::StrCat(op.DebugName(), " output ",
                               absl::CEscape(program_.name(SlotOf(op, difference.output))),
                               ": variable ", absl::CEscape(name), ": expected ",
                               ToString(inferred), ", found ", ToString(declared)));
    }
  }

  // Whether it is a part of the buffer that the op makes.
  bool IsPart(const Op& op, size_t output) {
    if (!traits_.Has(op, Trait::kAlias)) return false;
    const absl::Span<const Symbol> parts = MadeBufferOf(op).parts;
    return std::find(parts.begin(), parts.end(), op.output_args()[output]) != parts.end();
  }

  // Whether the op only moves a variable into a buffer, which says nothing of its type.
  bool IsInput(const Op& op, size_t output) {
    if (!traits_.Has(op, Trait::kAlias)) return false;
    const MadeBuffer made = MadeBufferOf(op);
    const Symbol name = op.output_args()[output];
    for (size_t i = 0; i < std::min(made.parts.size(), made.sources.size()); ++i) {
      if (made.parts[i] == name && made.sources[i] == name) return true;
    }
    return false;
  }

  bool HasLooseType(const Op& op, size_t output) {
    const OpSchema* schema = traits_.SchemaOf(op);
    const SlotSchema* slot =
        schema == nullptr ? nullptr : schema->FindOutput(program_.name(SlotOf(op, output)));
    return slot != nullptr && slot->loose_type;
  }

  // Paddle 1 declares only the rank of what some ops make, such as expand_as, and of its gradient.
  bool IsDeclaredWithoutSizes(TypeId inferred, TypeId declared) const {
    TensorType without = *flow_.types().type(inferred);
    std::fill(without.dims.begin(), without.dims.end(), 0);
    return IsBefore(program_.version(), kPaddle2) && without.dims.size() > 1 &&
           without == *flow_.types().type(declared);
  }

  // Paddle 1 declares as bool what it computes a second time in the backward pass with an op that
  // infers no element type, such as cast.
  bool IsDeclaredWithoutElements(VarId var, TypeId inferred, TypeId declared) const {
    TensorType as_bool = *flow_.types().type(inferred);
    as_bool.dtype = DType::kBool;
    return IsBefore(program_.version(), kPaddle2) &&
           absl::StrContains(program_.var(var).name(), ".subprog_") &&
           BrokenRule(as_bool, *flow_.types().type(declared)) == nullptr;
  }

  // Whether the op hands on, copies or waits for a value whose type is loose.
  bool PassesLooseType(const Op& op, size_t output) {
    const absl::Span<const Symbol> in = op.input_args();
    const bool passes = traits_.Has(op, Trait::kStreamSync) || CopiesFrom(op.type()).has_value();
    if (!passes || output >= in.size()) return false;
    const VarId var = program_.block(op.block()).Resolve(in[output]);
    return var.valid() && has_loose_type_[var.value()];
  }

  static Symbol SlotOf(const Op& op, size_t output) {
    const std::vector<OpSignature::Slot>& slots = op.signature().outputs;
    const size_t arg = op.signature().num_input_args + output;
    return std::find_if(slots.begin(), slots.end(),
                        [&](const OpSignature::Slot& slot) {
                          return arg >= slot.first && arg < slot.first + slot.count;
                        })
        ->name;
  }

  const Program& program_;
  Reporter report_;
  const OpTraits& traits_;
  TypeFlow flow_;
  // By VarId. Of a persistable variable: after the last op that wrote it.
  std::vector<bool> has_declared_type_;
  // By VarId: an op whose type for it is loose has written it with another type than the declared
  // one.
  std::vector<bool> has_loose_type_;
  std::vector<bool> is_reported_;  // by VarId
  std::vector<Difference> differences_;
  int num_misfits_ = 0;
};

// Whether Paddle casts the variable after the startup program has made it.
bool IsCastByAmp(const Var& var, const TensorType& made, const TensorType& declared) {
  const bool is_half = declared.dtype == DType::kFloat16 || declared.dtype == DType::kBFloat16;
  return var.is_parameter() && is_half && made.dtype == DType::kFloat32 &&
         made.kind == declared.kind && !DimsDiffer(made.dims, declared.dims);
}

}  // namespace

void CheckTypes(const ProgramFacts& facts, ProgramRef ref, Findings* findings) {
  TypesChecker(facts, ref, findings).Check();
}

void CheckStartTypes(const ConstProgramPair& programs, ProgramRef ref, Findings* findings) {
  const Program &main = *programs.main, &startup = *programs.startup;
  Reporter report({ref.rank, /*is_startup=*/true}, findings);
  TypeFlow flow(startup);
  std::vector<OpId> writers(startup.var_id_limit());  // invalid: nobody, or of an unknown type
  flow.Run(0, [&](const TypeFlow::Step& step) {
    for (size_t i = 0; i < step.inferred.size(); ++i) {
      if (!step.outputs[i].valid()) continue;
      const bool is_known = step.inferred[i] != kUnknownType;
      writers[step.outputs[i].value()] = is_known ? step.op.id() : OpId();
    }
    return true;
  });
  for (VarId id : startup.block(0).vars()) {
    const OpId writer = writers[id.value()];
    const absl::string_view name = startup.var(id).name();
    const VarId kept = main.block(0).FindVar(name);
    if (!writer.valid() || !kept.valid() || !startup.var(id).persistable()) continue;
    const Var var = main.var(kept);
    const absl::optional<TensorType> declared = DeclaredType(var);
    if (!var.persistable() || !declared.has_value()) continue;
    const TensorType& made = *flow.types().type(flow.current(id));
    if (BrokenRule(made, *declared) == nullptr || IsScalarAndOne(made, *declared)) continue;
    if (IsCastByAmp(var, made, *declared)) continue;
    report.Add("W206", writer, name,
               absl::StrCat(startup.op(writer).DebugName(), " leaves variable ", name, " as ",
                            ToString(made), ": expected ", ToString(*declared),
                            ", as the main program declares it"));
  }
}

}  // namespace weft
