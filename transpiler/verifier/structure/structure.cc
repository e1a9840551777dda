#include "transpiler/verifier/structure/structure.h"

#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "ops/analysis/core/block_names.h"
#include "ops/schema/feed_ops.h"
#include "ops/schema/infer.h"
#include "ops/schema/op_schema.h"
#include "ops/schema/weft_attrs.h"
#include "proto/all_ops.h"
#include "proto/op_role.h"
#include "transpiler/verifier/structure/arguments.h"

namespace weft {
namespace {

// OpAttrs reads integers and floats of both sizes alike, and one float as a list. An attribute may
// also name a variable that has its value.
bool TypeFits(int found, int expected) {
  const auto both = [&](int a, int b) {
    return (found == a || found == b) && (expected == a || expected == b);
  };
  return found == expected || both(pb::INT, pb::LONG) || both(pb::INTS, pb::LONGS) ||
         both(pb::FLOAT, pb::FLOAT64) || both(pb::FLOATS, pb::FLOAT64S) ||
         (found == pb::FLOAT && expected == pb::FLOATS) || found == pb::VAR || found == pb::VARS ||
         !pb::AttrType_IsValid(found);
}

struct Violation {
  const char* rule;
  std::string what;  // follows the name of the op in the message
};

// Equal for all ops of a signature: of slots, and of names and types of attributes.
std::vector<Violation> SignatureViolations(const Op& op, const OpSchema& schema) {
  std::vector<Violation> violations;
  for (const SlotViolation& violation : SlotViolations(op, schema)) {
    violations.push_back({violation.count == 0 ? "W102" : "W103", ToString(violation)});
  }
  for (const AttrSchema& attr : schema.attrs()) {
    if (!attr.required || op.HasAttr(attr.name)) continue;
    violations.push_back(
        {"W104", absl::StrCat("attribute ", attr.name, ": expected a value, found none")});
  }
  for (const OpSignature::Attr& attr : op.signature().attrs) {
    const AttrSchema* expected = schema.FindAttr(op.program().name(attr.name));
    if (expected == nullptr) continue;
    const pb::AttrType type = AttrTypeOf(expected->default_value);
    if (TypeFits(attr.type, type)) continue;
    const bool is_early = type == pb::BOOLEAN && attr.type == pb::INT;
    violations.push_back(
        {"W105",
         absl::StrCat("attribute ", expected->name, ": expected type ", pb::AttrType_Name(type),
                      ", found ", pb::AttrType_Name(static_cast<pb::AttrType>(attr.type)),
                      is_early ? ", as Paddle before 1.8 wrote it: load and save it there" : "")});
  }
  return violations;
}

// Whether ops of the signature have an attribute of which ValueViolations says something.
bool HasCheckedValues(const Op& op) {
  return op.HasAttr(kOriginalNamesAttr) || op.HasAttr(kAccumulateTypeAttr);
}

std::vector<Violation> ValueViolations(const Op& op) {
  std::vector<Violation> violations;
  if (op.HasAttr(kOriginalNamesAttr) && !BlockGradientNames::Of(op).ok()) {
    violations.push_back({"W105", absl::StrCat("attribute ", kOriginalNamesAttr,
                                               ": expected pairs of new and old names")});
  }
  if (!op.HasAttr(kAccumulateTypeAttr)) return violations;
  const absl::optional<std::string> accumulates = op.StringAttr(kAccumulateTypeAttr);
  if (accumulates == kAccumulatesInFp32 || accumulates == kAccumulatesNatively) return violations;
  violations.push_back(
      {"W105", absl::StrCat("attribute ", kAccumulateTypeAttr, ": expected ", kAccumulatesInFp32,
                            " or ", kAccumulatesNatively, ", found ",
                            accumulates.has_value() ? *accumulates : "another type")});
  return violations;
}

class StructureChecker {
 public:
  StructureChecker(const Program& program, ProgramRef ref, Findings* findings)
      : program_(program),
        report_(ref, findings),
        signatures_(program.num_signatures()),
        is_in_root_(program.symbols().size(), false) {
    for (VarId id : program.block(0).vars())
      is_in_root_[program.var(id).name_symbol().value()] = true;
    empty_ = program.FindSymbol(kEmptyVarName);
    if (empty_.valid()) is_in_root_[empty_.value()] = true;
  }

  void Check() {
    std::vector<bool> is_run(program_.num_blocks());
    is_run[0] = true;
    for (const Op& op : AllOps(program_)) {
      for (int block : op.SubBlocks()) is_run[block] = true;
    }
    for (const Op& op : AllOps(program_)) {
      if (!is_run[op.block()]) continue;
      CheckNames(op);
      const Signature& signature = SignatureOf(op);
      if (!signature.is_sound) Report(op, SignatureViolations(op, *signature.schema));
      if (signature.has_checked_values) Report(op, ValueViolations(op));
    }
  }

 private:
  // Shared by all ops of a signature.
  struct Signature {
    bool is_set = false;
    bool is_sound = true;  // without SignatureViolations
    bool has_checked_values = false;
    const OpSchema* schema = nullptr;
  };

  void Report(const Op& op, const std::vector<Violation>& violations) {
    for (const Violation& found : violations) {
      report_.Add(found.rule, op.id(), "", absl::StrCat(op.DebugName(), " ", found.what));
    }
  }

  const Signature& SignatureOf(const Op& op) {
    Signature& signature = signatures_[op.signature_id()];
    if (signature.is_set) return signature;
    signature.is_set = true;
    signature.schema = FindOpSchema(op.type());
    if (signature.schema != nullptr) {
      signature.is_sound = SignatureViolations(op, *signature.schema).empty();
      signature.has_checked_values = HasCheckedValues(op);
    }
    return signature;
  }

  bool IsDeclared(int block, Symbol name) const {
    if (block == 0 || name == empty_) return is_in_root_[name.value()];
    return ResolveArgument(program_, block, name).valid();
  }

  void CheckNames(const Op& op) {
    if (MakesReader(op.type())) return;  // from a queue of the Python process
    const absl::Span<const Symbol> args = op.args();
    const size_t num_inputs = op.input_args().size();
    for (size_t i = 0; i < args.size(); ++i) {
      if (IsDeclared(op.block(), args[i])) continue;
      // The gradient of an output of a block on which no loss depends, which Paddle takes for zero,
      // and what the block calls a gradient that it is given.
      const OpSchema* const schema = SignatureOf(op).schema;
      const bool is_given =
          op.block() != 0 || (schema != nullptr && schema->Has(Trait::kBlockGrad));
      if (i < num_inputs && is_given && absl::EndsWith(program_.name(args[i]), kGradSuffix)) {
        continue;
      }
      report_.Add("W101", op.id(), program_.name(args[i]),
                  absl::StrCat(op.DebugName(), " ", SlotOfArgument(op, i), ": variable ",
                               absl::CEscape(program_.name(args[i])), " is not declared"));
    }
  }

  const Program& program_;
  Reporter report_;
  std::vector<Signature> signatures_;
  std::vector<bool> is_in_root_;  // declared there, by Symbol
  Symbol empty_;
};

}  // namespace

void CheckStructure(const Program& program, ProgramRef ref, Findings* findings) {
  StructureChecker(program, ref, findings).Check();
}

absl::Status VerifyStructure(const Program& program, ProgramRef ref) {
  Findings findings;
  CheckStructure(program, ref, &findings);
  if (findings.all().empty()) return absl::OkStatus();
  const Finding& first = findings.all().front();
  return absl::InvalidArgumentError(absl::StrCat(ref.is_startup ? "startup program: " : "",
                                                 first.message, " (", first.rule, ")"));
}

}  // namespace weft
