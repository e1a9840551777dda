#include "ops/analysis/values/op_operations.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <numeric>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "ops/analysis/core/representation_attrs.h"
#include "ops/analysis/values/rescaled_gradients.h"
#include "ops/schema/across_ranks.h"
#include "ops/schema/op_attrs.h"
#include "ops/schema/weft_attrs.h"
#include "proto/all_ops.h"
#include "proto/op_role.h"
#include "proto/text/program_text.h"

namespace weft {
namespace {

// Attributes that any op may have, for executors and tools.
constexpr absl::string_view kBookkeeping[] = {
    "op_callstack", "op_device",        "op_namescope",    kOpRoleAttr,
    kOpRoleVarAttr, kOriginalNamesAttr, "with_quant_attr",
};

// The names, in the block of the gradient of a loop, of the gradients in slot Out@GRAD.
constexpr absl::string_view kOutputGradsAttr = "original_output_grad";

// The slots with arguments, by name.
std::vector<OpSignature::Slot> Sorted(const Program& program,
                                      const std::vector<OpSignature::Slot>& slots) {
  std::vector<OpSignature::Slot> sorted;
  for (const OpSignature::Slot& slot : slots) {
    if (slot.count > 0) sorted.push_back(slot);
  }
  std::stable_sort(sorted.begin(), sorted.end(),
                   [&](const OpSignature::Slot& a, const OpSignature::Slot& b) {
                     return program.name(a.name) < program.name(b.name);
                   });
  return sorted;
}

// An identity is a sequence of parts, each its length and its bytes, so that AttrsOf can parse it.
// The first part is type and slots, the others are attributes; text of blocks follows a length of
// kNoPart.
constexpr uint32_t kNoPart = UINT32_MAX;

void AppendLength(uint32_t length, std::string* identity) {
  identity->append(reinterpret_cast<const char*>(&length), sizeof(length));
}

void AppendPart(absl::string_view part, std::string* identity) {
  AppendLength(static_cast<uint32_t>(part.size()), identity);
  identity->append(part.data(), part.size());
}

bool ConsumePart(absl::string_view* identity, absl::string_view* part) {
  uint32_t length = kNoPart;
  if (identity->size() < sizeof(length)) return false;
  std::memcpy(&length, identity->data(), sizeof(length));
  if (length == kNoPart) return false;
  *part = identity->substr(sizeof(length), length);
  identity->remove_prefix(sizeof(length) + length);
  return true;
}

// Attributes that count, and the defaults of those that are left out.
ExpressionTable::Details AttrsOf(absl::string_view identity) {
  ExpressionTable::Details attrs;
  absl::string_view part;
  if (!ConsumePart(&identity, &part)) return attrs;
  const OpSchema* schema = FindOpSchema(part.substr(0, part.find('\n')));
  if (schema != nullptr) {
    for (const AttrSchema& attr : schema->attrs()) {
      if (!attr.required) attrs[attr.name] = AttrValueText(MakeAttr(attr.name, attr.default_value));
    }
  }
  while (ConsumePart(&identity, &part)) {
    pb::OpDesc::Attr attr;
    attr.ParsePartialFromArray(part.data(), static_cast<int>(part.size()));
    attrs[attr.name()] = AttrValueText(attr);
  }
  return attrs;
}

// "draw 3 of ", before the identity of the operation.
ExpressionTable::Details AttrsOfDraw(absl::string_view identity) {
  constexpr absl::string_view kOf = " of ";
  return AttrsOf(identity.substr(identity.find(kOf) + kOf.size()));
}

}  // namespace

OpOperations::OpOperations(const Program& program, ExpressionTable* table)
    : program_(program), table_(*table), signatures_(program.num_signatures()) {}

OpOperations::SignatureInfo& OpOperations::Entry(const Op& op) {
  SignatureInfo& signature = signatures_[op.signature_id()];
  if (signature.num_outputs == 0) Make(op, &signature);
  return signature;
}

void OpOperations::Make(const Op& op, SignatureInfo* signature) const {
  const OpSchema* schema = FindOpSchema(op.type());
  std::string prefix(TypeOnOneDevice(op.type()));
  for (const OpSignature::Slot& slot : Sorted(program_, op.signature().inputs)) {
    absl::StrAppend(&prefix, "\n", program_.name(slot.name), " ", slot.count);
    for (uint32_t i = 0; i < slot.count; ++i) signature->order.operands.push_back(slot.first + i);
  }

  // Every output slot of the schema has a place, also if the op lacks it.
  std::map<std::string, uint32_t> place_of_slot;
  const auto count_of = [&](const std::string& name) -> uint32_t {
    for (const OpSignature::Slot& slot : op.signature().outputs) {
      if (program_.name(slot.name) == name) return std::max(slot.count, 1u);
    }
    return 1;
  };
  uint32_t next = 0;
  if (schema != nullptr) {
    for (const SlotSchema& slot : schema->outputs()) {
      place_of_slot[slot.name] = next;
      next += count_of(slot.name);
    }
  }
  const uint32_t num_inputs = op.signature().num_input_args;
  signature->order.outputs.resize(op.signature().num_args - num_inputs);
  for (const OpSignature::Slot& slot : Sorted(program_, op.signature().outputs)) {
    const std::string name(program_.name(slot.name));
    const auto [it, is_new] = place_of_slot.emplace(name, next);
    if (is_new) {
      absl::StrAppend(&prefix, "\n-> ", name, " ", slot.count);
      next += slot.count;
    }
    for (uint32_t i = 0; i < slot.count; ++i) {
      signature->order.outputs[slot.first - num_inputs + i] = it->second + i;
    }
  }
  signature->num_outputs = std::max(next, 1u);
  AppendPart(prefix, &signature->prefix);
  MakeAttrs(op, schema, signature);
}

void OpOperations::MakeAttrs(const Op& op, const OpSchema* schema, SignatureInfo* signature) const {
  const std::vector<OpSignature::Attr>& attrs = op.signature().attrs;
  signature->attr_place.assign(attrs.size(), -1);
  signature->default_bytes.resize(attrs.size());
  const bool is_block_grad = schema != nullptr && schema->Has(Trait::kBlockGrad);
  // The last one counts if a name is repeated.
  std::map<std::string, size_t> by_name;
  for (size_t i = 0; i < attrs.size(); ++i) {
    const std::string name(program_.name(attrs[i].name));
    if (attrs[i].type == pb::BLOCK || attrs[i].type == pb::BLOCKS) {
      signature->has_blocks = true;
      continue;
    }
    if (absl::c_linear_search(kBookkeeping, name) || ChoosesRepresentation(name)) continue;
    if (name == kOutputGradsAttr && is_block_grad) continue;  // in BlocksText
    if (name == kRescaleGradAttr && schema != nullptr) continue;
    const AttrSchema* attr = schema == nullptr ? nullptr : schema->FindAttr(name);
    if (attr == nullptr && (schema != nullptr || name == kNumRanksAttr)) continue;
    if (attr != nullptr && !attr->required) {
      signature->default_bytes[i] = MakeAttr(name, attr->default_value).SerializeAsString();
    }
    by_name[name] = i;
  }
  for (const auto& [name, i] : by_name) {
    signature->attr_place[i] = static_cast<int>(signature->num_places++);
  }
}

bool OpOperations::MixesBatchNorms(const Op& op) {
  if (!IsBatchNormGradient(op.type())) return false;
  if (!batch_norm_of_mean_.has_value()) {
    batch_norm_of_mean_.emplace();
    for (const Op& other : AllOps(program_)) {
      for (Symbol name : other.output_args()) batch_norm_of_mean_->erase(name);
      if (!IsBatchNorm(other.type())) continue;
      const bool is_across_ranks = IsAcrossRanksType(other.type());
      has_batch_norms_[is_across_ranks] = true;
      for (Symbol mean : other.Output("SavedMean")) (*batch_norm_of_mean_)[mean] = is_across_ranks;
    }
  }
  const bool is_across_ranks = IsAcrossRanksType(op.type());
  const absl::Span<const Symbol> mean = op.Input("SavedMean");
  const auto found = mean.empty() ? batch_norm_of_mean_->end() : batch_norm_of_mean_->find(mean[0]);
  // The mean of a norm that another op has copied: of one of the other kind, if there is any.
  return found != batch_norm_of_mean_->end() ? found->second != is_across_ranks
                                             : has_batch_norms_[!is_across_ranks];
}

OperationId OpOperations::Of(const Op& op) {
  SignatureInfo& signature = Entry(op);
  const bool mixes = MixesBatchNorms(op);
  if (signature.num_places == 0 && !signature.has_blocks && !mixes) {
    if (!signature.last.valid())
      signature.last = table_.Operation(signature.prefix, op.type(), &AttrsOf);
    return signature.last;
  }
  places_.assign(signature.num_places, absl::string_view());
  op.ForEachAttr([&](size_t i, absl::string_view bytes) {
    if (signature.attr_place[i] >= 0 && bytes != signature.default_bytes[i]) {
      places_[signature.attr_place[i]] = bytes;
    }
    return true;
  });
  identity_ = signature.prefix;
  if (mixes) AppendPart("of another op", &identity_);
  for (absl::string_view bytes : places_) {
    if (bytes.empty()) continue;
    AppendPart(bytes, &identity_);
  }
  if (signature.has_blocks) {
    // BlocksText overwrites identity_.
    std::string identity = identity_;
    AppendLength(kNoPart, &identity);
    absl::StrAppend(&identity, BlocksText(op));
    identity_ = std::move(identity);
  }
  if (!signature.last.valid() || identity_ != signature.last_identity) {
    signature.last = table_.Operation(identity_, op.type(), &AttrsOf);
    signature.last_identity = identity_;
  }
  return signature.last;
}

OperationId OpOperations::Draw(const Op& op, int run) {
  const absl::string_view identity = table_.IdentityOf(Of(op));
  return table_.Operation(absl::StrCat("draw ", run, " of ", identity),
                          absl::StrCat(op.type(), "[", run, "]"), &AttrsOfDraw);
}

const OpOperations::Order& OpOperations::OrderOf(const Op& op) {
  const SignatureInfo& signature = Entry(op);
  if (!signature.has_blocks) return signature.order;
  const auto found = orders_.find(op.id());
  return found != orders_.end() ? found->second : orders_[op.id()] = MakeOrder(op);
}

OpOperations::Order OpOperations::MakeOrder(const Op& op) {
  Order order = Entry(op).order;
  const OpSchema* const schema = FindOpSchema(op.type());
  if (schema == nullptr) return order;  // its places may mean something
  // Of an argument, what decides about its place in the slot.
  std::vector<std::pair<size_t, std::string>> keys(op.args().size());
  const uint32_t num_inputs = op.signature().num_input_args;
  if (schema->Has(Trait::kBlockGrad)) {
    const absl::StatusOr<BlockGradientNames> names = BlockGradientNames::Of(op);
    if (!names.ok()) return order;  // W105 reports it
    for (size_t i = 0; i < keys.size(); ++i) {
      keys[i].second = std::string(names->Original(program_.name(op.args()[i])));
    }
    const auto copy_keys = [&](absl::Span<const Symbol> from, absl::Span<const Symbol> to) {
      if (from.size() != to.size() || from.empty()) return;
      const auto first = keys.begin() + (from.data() - op.args().data());
      std::copy(first, first + from.size(), keys.begin() + (to.data() - op.args().data()));
    };
    copy_keys(op.Input("X"), op.Output("X@GRAD"));
    copy_keys(op.Input("Input"), op.Output("Input@GRAD"));
    const absl::Span<const Symbol> given = op.Input("Out@GRAD");
    const auto inside = op.StringsAttr(kOutputGradsAttr);
    for (size_t i = 0; inside.has_value() && i < std::min(given.size(), inside->size()); ++i) {
      keys[given.data() - op.args().data() + i].second = (*inside)[i];
    }
  } else {
    absl::flat_hash_map<VarId, size_t> first_uses;
    std::set<int> walked;
    for (int block : op.SubBlocks()) FindFirstUses(block, &walked, &first_uses);
    for (size_t i = 0; i < keys.size(); ++i) {
      const VarId var = program_.block(op.block()).Resolve(op.args()[i]);
      const auto found = first_uses.find(var);
      keys[i].first = found == first_uses.end() ? first_uses.size() : found->second;
      // What no block uses has any place, and what it is called decides.
      if (found == first_uses.end()) keys[i].second = std::string(program_.name(op.args()[i]));
    }
  }
  const auto is_before = [&](uint32_t a, uint32_t b) { return keys[a] < keys[b]; };
  auto next = order.operands.begin();
  for (const OpSignature::Slot& slot : Sorted(program_, op.signature().inputs)) {
    std::stable_sort(next, next + slot.count, is_before);
    next += slot.count;
  }
  for (const OpSignature::Slot& slot : op.signature().outputs) {
    std::vector<uint32_t> args(slot.count);
    std::iota(args.begin(), args.end(), slot.first);
    const uint32_t place = slot.count == 0 ? 0 : order.outputs[slot.first - num_inputs];
    std::stable_sort(args.begin(), args.end(), is_before);
    for (uint32_t i = 0; i < slot.count; ++i) order.outputs[args[i] - num_inputs] = place + i;
  }
  return order;
}

std::vector<Symbol> OpOperations::OrderedArgs(const Op& op) {
  const Order& order = OrderOf(op);
  std::vector<Symbol> args;
  for (uint32_t i : order.operands) args.push_back(op.args()[i]);
  std::vector<uint32_t> outputs(order.outputs.size());
  std::iota(outputs.begin(), outputs.end(), 0);
  absl::c_stable_sort(outputs,
                      [&](uint32_t a, uint32_t b) { return order.outputs[a] < order.outputs[b]; });
  for (uint32_t i : outputs) args.push_back(op.output_args()[i]);
  return args;
}

void OpOperations::FindFirstUses(int block, std::set<int>* walked,
                                 absl::flat_hash_map<VarId, size_t>* uses) {
  if (!walked->insert(block).second) return;
  for (OpId id : program_.block(block).ops()) {
    const Op op = program_.op(id);
    for (int inner : op.SubBlocks()) FindFirstUses(inner, walked, uses);
    for (Symbol name : OrderedArgs(op)) {
      uses->try_emplace(program_.block(block).Resolve(name), uses->size());
    }
  }
}

std::string OpOperations::BlocksText(const Op& op) {
  const auto found = blocks_texts_.find(op.id());
  if (found != blocks_texts_.end()) return found->second;
  std::string text;
  OuterNames outer;
  const Block around = program_.block(op.block());
  const std::vector<uint32_t>& order = OperandOrder(op);
  for (uint32_t i = 0; i < order.size(); ++i) {
    const VarId var = around.Resolve(op.input_args()[order[i]]);
    if (var.valid()) outer.operands.emplace(var, i);  // the first counts
  }
  absl::optional<BlockGradientNames> gradients;
  const OpSchema* schema = FindOpSchema(op.type());
  if (schema != nullptr && schema->Has(Trait::kBlockGrad)) {
    const absl::StatusOr<BlockGradientNames> names = BlockGradientNames::Of(op);
    if (names.ok()) {
      gradients = *names;
      outer.gradients = &*gradients;
      for (const auto& [slot, inputs] : gradients->inputs()) {
        std::vector<std::string> sorted = inputs;
        absl::c_sort(sorted);
        absl::StrAppend(&text, "\n", slot);
        for (const std::string& input : sorted) {
          absl::StrAppend(&text, " ", input.size(), ":", input);
        }
      }
      std::vector<std::string> given =
          op.StringsAttr(kOutputGradsAttr).value_or(std::vector<std::string>());
      absl::c_sort(given);
      for (const std::string& name : given) absl::StrAppend(&text, "\n", name);
    } else {
      absl::StrAppend(&text, "\n", names.status().message());  // W105 reports it
    }
  }
  for (int block : op.SubBlocks()) {
    absl::StrAppend(&text, "\n{");
    AppendBlock(block, outer, &text);
    absl::StrAppend(&text, "}");
  }
  return blocks_texts_[op.id()] = std::move(text);
}

// What a block or a block around it declares decides which variable a name means, and what outlives
// a round: the declarations of inner blocks count.
void OpOperations::AppendBlock(int block, const OuterNames& outer, std::string* text) {
  for (OpId id : program_.block(block).ops()) {
    const Op op = program_.op(id);
    absl::StrAppend(text, Of(op).value());
    // Elsewhere, the gradient is multiplied by it.
    const double factor = GradientFactorOf(op, FindOpSchema(op.type()));
    if (factor != 1) absl::StrAppendFormat(text, " * %.17g", factor);
    for (Symbol arg : OrderedArgs(op)) {
      const absl::string_view name = program_.name(arg);
      const VarId var = program_.block(block).Resolve(arg);
      const bool is_inside = outer.gradients != nullptr && outer.gradients->IsInside(name);
      const auto operand = outer.operands.find(var);
      if (var.valid() && !is_inside && operand != outer.operands.end()) {
        absl::StrAppend(text, " <", operand->second);
        continue;
      }
      absl::StrAppend(text, " ", name.size(), ":", name);
      if (!var.valid() || program_.var(var).block() == 0) continue;
      absl::StrAppend(text, ":", block - program_.var(var).block(),
                      program_.var(var).persistable() ? "!" : "", program_.var(var).TypeKey());
    }
    absl::StrAppend(text, "\n");
  }
}

}  // namespace weft
