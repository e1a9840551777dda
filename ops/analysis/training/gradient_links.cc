#include "ops/analysis/training/gradient_links.h"

#include <algorithm>
#include <initializer_list>
#include <map>
#include <string>

#include "absl/algorithm/container.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/statusor.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "ops/analysis/core/representation_attrs.h"
#include "ops/analysis/training/gradient_names.h"
#include "ops/schema/op_attrs.h"
#include "ops/schema/op_schema.h"
#include "ops/schema/second_gradients.h"
#include "proto/all_ops.h"
#include "proto/op_role.h"

namespace weft {
namespace {

using Slots = std::vector<OpSignature::Slot>;

// The type of the op that an op of type `gradient` differentiates; empty if that is no gradient op.
std::string DifferentiatedType(absl::string_view gradient) {
  constexpr absl::string_view kSuffix = "_grad";
  if (const SecondGradient* second = FindSecondGradient(gradient)) {
    return absl::StrCat(second->op, kSuffix);
  }
  return absl::ConsumeSuffix(&gradient, kSuffix) ? std::string(gradient) : "";
}

// Whether the attribute, which both schemas have, has equal values. Integers of different types may
// be equal.
bool IsEqual(const AttrSchema& a, const OpAttrs& of_a, const AttrSchema& b, const OpAttrs& of_b) {
  const std::string& name = a.name;
  const auto is = [&](std::initializer_list<pb::AttrType> types) {
    const auto has = [&](const AttrSchema& attr) {
      return absl::c_linear_search(types, AttrTypeOf(attr.default_value));
    };
    return has(a) && has(b);
  };
  if (is({pb::INT, pb::LONG})) return of_a.Int(name) == of_b.Int(name);
  if (is({pb::INTS, pb::LONGS})) return of_a.Ints(name) == of_b.Ints(name);
  if (is({pb::FLOAT, pb::FLOAT64})) return of_a.Float(name) == of_b.Float(name);
  if (is({pb::FLOATS, pb::FLOAT64S})) return of_a.Floats(name) == of_b.Floats(name);
  if (is({pb::BOOLEAN})) return of_a.Bool(name) == of_b.Bool(name);
  if (is({pb::STRING})) return of_a.String(name) == of_b.String(name);
  if (is({pb::STRINGS})) return of_a.Strings(name) == of_b.Strings(name);
  if (is({pb::SCALARS})) return of_a.Scalars(name) == of_b.Scalars(name);
  return false;
}

// Slots by name, or by the part that they have in a second gradient op.
class SlotLinker {
 public:
  SlotLinker(const Op& op, const Op& gradient)
      : op_(op), second_(FindSecondGradient(gradient.type())) {}

  // The slot of `op` whose value, or whose gradient, the gradient op reads in `slot`.
  const OpSignature::Slot* OfInput(absl::string_view slot, bool* is_gradient) const {
    *is_gradient = false;
    if (second_ != nullptr) return OfSecondInput(slot, is_gradient);
    *is_gradient = absl::ConsumeSuffix(&slot, kGradSuffix);
    if (*is_gradient) return Find(op_.signature().outputs, slot);
    const OpSignature::Slot* in = Find(op_.signature().inputs, slot);
    return in != nullptr ? in : Find(op_.signature().outputs, slot);
  }

  // The input slot of `op` whose gradient the gradient op writes to `slot`.
  const OpSignature::Slot* OfOutput(absl::string_view slot) const {
    const Slots& inputs = op_.signature().inputs;
    if (second_ == nullptr) {
      return absl::ConsumeSuffix(&slot, kGradSuffix) ? Find(inputs, slot) : nullptr;
    }
    if (slot == second_->dx) return Find(inputs, second_->x);
    if (slot == second_->dy) return Find(inputs, second_->y);
    return slot == second_->ddout ? GivenGradient() : nullptr;
  }

 private:
  // `op_` is a gradient op.
  const OpSignature::Slot* OfSecondInput(absl::string_view slot, bool* is_gradient) const {
    const Slots& outputs = op_.signature().outputs;
    const std::string dy = absl::StrCat(second_->y, kGradSuffix);
    const auto dx = [&] {
      for (const OpSignature::Slot& out : outputs) {
        if (out.count > 0 && op_.program().name(out.name) != dy) return &out;
      }
      return static_cast<const OpSignature::Slot*>(nullptr);
    };
    *is_gradient = slot == second_->ddx || slot == second_->ddy;
    if (slot == second_->ddx) return dx();
    if (slot == second_->ddy) return Find(outputs, dy);
    if (slot == second_->x || slot == second_->y || slot == second_->old_x) {
      return Find(op_.signature().inputs, slot);
    }
    if (slot != second_->dout) return nullptr;
    const bool is_dx = slot == "grad_x" || slot == "DX";
    return is_dx ? dx() : GivenGradient();
  }

  // Of a gradient op: the slot of the gradient that it gets.
  const OpSignature::Slot* GivenGradient() const {
    for (const OpSignature::Slot& in : op_.signature().inputs) {
      if (absl::EndsWith(op_.program().name(in.name), kGradSuffix)) return &in;
    }
    return nullptr;
  }

  const OpSignature::Slot* Find(const Slots& slots, absl::string_view name) const {
    const std::string plain = Plain(name);
    for (const OpSignature::Slot& slot : slots) {
      if (Plain(op_.program().name(slot.name)) == plain) return &slot;
    }
    return nullptr;
  }

  // Gradient ops spell some slots in another way: x_shape for XShape, x for X.
  static std::string Plain(absl::string_view name) {
    return absl::AsciiStrToLower(absl::StrReplaceAll(name, {{"_", ""}}));
  }

  const Op& op_;
  const SecondGradient* second_;
};

}  // namespace

absl::optional<GradientLinks> LinkGradient(const Op& op, const Op& gradient) {
  if (op.type() != DifferentiatedType(gradient.type())) return absl::nullopt;
  const Program& program = gradient.program();
  const OpSignature& signature = gradient.signature();
  const SlotLinker linker(op, gradient);
  GradientLinks links;
  links.inputs.resize(gradient.input_args().size());
  links.outputs.resize(gradient.output_args().size(), GradientLinks::kNone);
  for (const OpSignature::Slot& slot : signature.inputs) {
    bool is_gradient = false;
    const OpSignature::Slot* of = linker.OfInput(program.name(slot.name), &is_gradient);
    for (uint32_t i = 0; i < slot.count; ++i) {
      GradientLinks::Input& input = links.inputs[slot.first + i];
      input.is_gradient = is_gradient;
      if (of != nullptr && i < of->count) input.argument = of->first + i;
    }
  }
  for (const OpSignature::Slot& slot : signature.outputs) {
    const OpSignature::Slot* of = linker.OfOutput(program.name(slot.name));
    for (uint32_t i = 0; of != nullptr && i < std::min(slot.count, of->count); ++i) {
      links.outputs[slot.first - signature.num_input_args + i] = of->first + i;
    }
  }
  return links;
}

namespace {

// Of ops without schemas: those that both have, as they stand.
bool StandingAttributesAgree(const Op& op, const Op& gradient) {
  std::map<std::string, std::string> attrs;
  const pb::OpDesc of_op = op.ToProto(), of_gradient = gradient.ToProto();
  for (const pb::OpDesc::Attr& attr : of_op.attrs()) attrs[attr.name()] = attr.SerializeAsString();
  return absl::c_all_of(of_gradient.attrs(), [&](const pb::OpDesc::Attr& attr) {
    const auto found = attrs.find(attr.name());
    const bool is_bookkeeping = absl::StartsWith(attr.name(), "op_");
    return found == attrs.end() || is_bookkeeping || found->second == attr.SerializeAsString();
  });
}

}  // namespace

bool AttributesAgree(const Op& op, const Op& gradient) {
  const OpSchema* of_op = FindOpSchema(op.type());
  const OpSchema* of_gradient = FindOpSchema(gradient.type());
  if (of_op == nullptr && of_gradient == nullptr) return StandingAttributesAgree(op, gradient);
  if (of_op == nullptr || of_gradient == nullptr) return false;
  const absl::StatusOr<OpAttrs> a = OpAttrs::Decode(op, *of_op);
  const absl::StatusOr<OpAttrs> b = OpAttrs::Decode(gradient, *of_gradient);
  if (!a.ok() || !b.ok()) return false;
  return absl::c_all_of(of_op->attrs(), [&](const AttrSchema& attr) {
    const AttrSchema* other = of_gradient->FindAttr(attr.name);
    // The element types of reductions, which gradient ops of PIR do not repeat: values have them.
    const bool is_type = attr.name == "in_dtype" || attr.name == "out_dtype";
    return other == nullptr || is_type || ChoosesRepresentation(attr.name) ||
           IsEqual(attr, *a, *other, *b);
  });
}

bool HasArgumentsOf(const Op& op, const Op& gradient, const GradientLinks& links) {
  for (size_t i = 0; i < links.inputs.size(); ++i) {
    const GradientLinks::Input& input = links.inputs[i];
    if (input.is_gradient || input.argument == GradientLinks::kNone) continue;
    const Symbol value = op.args()[input.argument];
    if (gradient.input_args()[i] == value) continue;
    absl::string_view name = gradient.program().name(gradient.input_args()[i]);
    // Nothing follows, or the number of UniqueNames.
    const bool is_again = absl::ConsumePrefix(&name, op.program().name(value)) &&
                          absl::ConsumePrefix(&name, kAgainSuffix) &&
                          (name.empty() || name[0] == '_');
    if (!is_again) return false;
  }
  return true;
}

std::vector<OpId> GradientsOfAbsentOps(const Program& program) {
  std::vector<OpId> gradients;
  std::vector<bool> is_gradient(program.num_signatures()), is_seen(program.num_signatures());
  absl::flat_hash_set<Symbol> types, differentiated, written;
  for (const Op& op : AllOps(program)) {
    const uint32_t signature = op.signature_id();
    if (!is_seen[signature]) {
      is_seen[signature] = true;
      const std::string type = DifferentiatedType(op.type());
      is_gradient[signature] = !type.empty();
      types.insert(op.type_symbol());
      if (is_gradient[signature]) differentiated.insert(program.FindSymbol(type));
    }
    if (is_gradient[signature]) gradients.push_back(op.id());
  }
  // Most programs have a forward pass, which their types show.
  if (absl::c_any_of(differentiated, [&](Symbol type) { return types.contains(type); })) return {};
  for (const Op& op : AllOps(program)) {
    if (is_gradient[op.signature_id()]) continue;
    written.insert(op.output_args().begin(), op.output_args().end());
  }
  const auto is_of_written = [&](OpId id) {
    return absl::c_any_of(program.op(id).input_args(), [&](Symbol name) {
      const Symbol of = DifferentiatedName(program, name, GradSuffix::kLast);
      return of.valid() && written.contains(of);
    });
  };
  if (absl::c_any_of(gradients, is_of_written)) return {};
  return gradients;
}

OpId DifferentiatedOps::Find(const Op& gradient, absl::FunctionRef<bool(OpId)> was_visited) {
  const OpsBySymbol& ops = OpsOfType(gradient);
  // Ops with a name that few have: of what the op was differentiated by, else of any input.
  const std::vector<OpId>*of_values = nullptr, *of_names = nullptr;
  const auto consider = [&](Symbol name, const std::vector<OpId>** fewest) {
    const auto found = name.valid() ? ops.find(name) : ops.end();
    if (found == ops.end() || (*fewest != nullptr && (*fewest)->size() <= found->second.size())) {
      return;
    }
    *fewest = &found->second;
  };
  for (const OpSignature::Slot& slot : gradient.signature().inputs) {
    // A gradient may be a term of a sum, which has the type of what is differentiated.
    const bool is_gradient = absl::EndsWith(program_.name(slot.name), kGradSuffix);
    for (Symbol name : gradient.args(slot)) {
      if (!is_gradient) consider(name, &of_values);
      consider(name, &of_names);
      consider(DifferentiatedName(program_, name, GradSuffix::kLast), &of_names);
    }
  }
  for (const std::vector<OpId>* candidates : {of_values, of_names}) {
    const size_t size = candidates == nullptr ? 0 : candidates->size();
    for (size_t i = size; i > size - std::min(size, kMaxCandidates); --i) {
      const OpId id = (*candidates)[i - 1];
      const Op op = program_.op(id);
      const absl::optional<GradientLinks> links = LinkGradient(op, gradient);
      if (was_visited(id) && HasArgumentsOf(op, gradient, *links) &&
          AttributesAgree(op, gradient)) {
        return id;
      }
    }
  }
  return OpId();
}

const DifferentiatedOps::OpsBySymbol& DifferentiatedOps::OpsOfType(const Op& gradient) {
  const auto [it, is_new] = by_type_.try_emplace(gradient.type_symbol());
  if (!is_new) return it->second;
  const Symbol type = program_.FindSymbol(DifferentiatedType(gradient.type()));
  if (!type.valid()) return it->second;
  for (const Op& op : AllOps(program_)) {
    if (op.type_symbol() != type) continue;
    for (Symbol name : op.args()) {
      std::vector<OpId>& ops = it->second[name];
      if (ops.empty() || ops.back() != op.id()) ops.push_back(op.id());
    }
  }
  return it->second;
}

}  // namespace weft
