#include "proto/formats/pir/op_table.h"

#include <cstdio>
#include <cstdlib>
#include <deque>
#include <string>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/container/flat_hash_map.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "absl/types/optional.h"
#include "ops/schema/op_schema.h"
#include "ops/schema/second_gradients.h"
#include "proto/op_role.h"

namespace weft::pir {
namespace {

[[noreturn]] void Die(const OpSchema& schema, absl::string_view expected, absl::string_view found) {
  std::fprintf(
      stderr, "%s\n",
      absl::StrCat("op ", schema.type(), ", form in PIR: expected ", expected, ", found ", found)
          .c_str());
  std::abort();
}

// "SavedMean@GRAD" and "saved_mean_grad" are savedmeangrad.
std::string Plain(absl::string_view name) {
  return absl::AsciiStrToLower(absl::StrReplaceAll(name, {{"_", ""}, {"@", ""}}));
}

// "SavedMean@GRAD" is saved_mean_grad.
std::string SnakeCase(absl::string_view slot) {
  std::string name;
  char last = '_';
  for (const char c : slot) {
    if (absl::ascii_isupper(c) && (absl::ascii_islower(last) || absl::ascii_isdigit(last))) {
      name += '_';
    }
    name += c == '@' ? '_' : absl::ascii_tolower(c);
    last = c;
  }
  return name;
}

const SlotSchema& SlotNamed(const OpSchema& schema, const std::vector<SlotSchema>& slots,
                            absl::string_view name) {
  for (const SlotSchema& slot : slots) {
    if (slot.name == name) return slot;
  }
  for (const SlotSchema& slot : slots) {
    if (Plain(slot.name) == Plain(name)) return slot;
  }
  Die(schema, "a slot", name);
}

// The parts of a text that OpSchema::Pir describes.
struct FormText {
  absl::string_view name, attrs;
  absl::optional<absl::string_view> operands, results;

  explicit FormText(absl::string_view text) {
    const auto cut = [&text](absl::string_view begin, absl::string_view end) {
      const size_t at = text.find(begin);
      if (at == absl::string_view::npos) return absl::optional<absl::string_view>();
      const absl::string_view part = text.substr(at + begin.size());
      text = text.substr(0, at);
      return absl::make_optional(absl::StripSuffix(absl::StripAsciiWhitespace(part), end));
    };
    attrs = cut("{", "}").value_or("");
    results = cut("->", "");
    operands = cut("(", ")");
    name = absl::StripAsciiWhitespace(text);
  }
};

std::vector<absl::string_view> SplitList(absl::string_view list) {
  return absl::StrSplit(list, ", ", absl::SkipEmpty());
}

OperandRule ParseOperand(const OpSchema& schema, absl::string_view text) {
  OperandRule rule;
  const bool may_lack = absl::ConsumeSuffix(&text, "?");
  const bool must_have = absl::ConsumeSuffix(&text, "!");
  const bool may_be_tensor = absl::ConsumeSuffix(&text, "/tensor");
  const std::vector<absl::string_view> parts = absl::StrSplit(text, ':');
  absl::string_view target = parts.back();
  rule.name = absl::StripPrefix(parts.front(), "@");
  if (target == "-") {
    rule.kind = OperandRule::Kind::kDropped;
  } else if (absl::ConsumePrefix(&target, "@")) {
    const AttrSchema* const attr = schema.FindAttr(target);
    if (attr == nullptr) Die(schema, "an attribute", target);
    rule.kind = OperandRule::Kind::kConstant;
    rule.target = attr->name;
    rule.type = AttrTypeOf(attr->default_value);
    for (const SlotSchema& slot : schema.inputs()) {
      if (!may_be_tensor || !absl::c_linear_search(slot.attrs, attr->name)) continue;
      (slot.duplicable ? rule.list_slot : rule.tensor_slot) = slot.name;
    }
  } else {
    const SlotSchema& slot = SlotNamed(schema, schema.inputs(), target);
    rule.kind = slot.duplicable ? OperandRule::Kind::kList : OperandRule::Kind::kTensor;
    rule.target = slot.name;
    rule.optional = may_lack || (slot.optional && !must_have);
  }
  return rule;
}

ResultRule ParseResult(const OpSchema& schema, absl::string_view text) {
  ResultRule rule;
  rule.optional = absl::ConsumeSuffix(&text, "?");
  const std::vector<absl::string_view> parts = absl::StrSplit(text, ':');
  rule.name = parts.front();
  rule.dropped = parts.back() == "-";
  if (rule.dropped) return rule;
  const SlotSchema& slot = SlotNamed(schema, schema.outputs(), parts.back());
  rule.is_list = slot.duplicable;
  rule.slot = slot.name;
  return rule;
}

// First the outputs that are inputs, in the order of the operands that these are.
std::vector<SlotSchema> InOrderOfOperands(std::vector<SlotSchema> outputs, const OpRule& rule) {
  const auto order = [&](const SlotSchema& slot) {
    const auto is_it = [&](const OperandRule& operand) {
      return !slot.in_place_of.empty() && operand.target == slot.in_place_of;
    };
    return absl::c_find_if(rule.operands, is_it) - rule.operands.begin();
  };
  absl::c_stable_sort(
      outputs, [&](const SlotSchema& a, const SlotSchema& b) { return order(a) < order(b); });
  return outputs;
}

// The operands that an op overwrites, whose type says that it does. If no output is an input by the
// schema, that is the one that ProgramDesc does not have, or the first.
void MarkInPlace(const OpSchema& schema, OpRule* rule) {
  bool has_any = false;
  for (ResultRule& result : rule->results) {
    const SlotSchema* const slot = schema.FindOutput(result.slot);
    for (size_t i = 0; slot != nullptr && i < rule->operands.size(); ++i) {
      if (slot->in_place_of.empty() || rule->operands[i].target != slot->in_place_of) continue;
      result.in_place_of = static_cast<int>(i);
      has_any = true;
    }
  }
  if (has_any) return;
  const auto dropped = absl::c_find_if(rule->operands, [](const OperandRule& operand) {
    return operand.kind == OperandRule::Kind::kDropped;
  });
  const bool has_dropped = dropped != rule->operands.end();
  rule->results[0].in_place_of =
      has_dropped ? static_cast<int>(dropped - rule->operands.begin()) : 0;
}

// Never destroyed, as schemas: rules have their texts.
class Table {
 public:
  Table() {
    for (const OpSchema* schema : AllOpSchemas()) {
      for (const PirForm& form : schema->pir()) {
        const FormText text(form.op);
        const absl::string_view name = text.name.empty() ? schema->type() : text.name;
        if (!Add(RuleOf(*schema, text, name))) Die(*schema, "a name of its own", name);
        grads_.push_back(form.grad);
      }
    }
    const size_t num_forward = rules_.size();
    for (size_t i = 0; i < num_forward; ++i) {
      const OpRule op = rules_[i];
      const OpSchema* const schema = FindOpSchema(absl::StrCat(op.desc, "_grad"));
      if (schema != nullptr) Add(GradientRuleOf(op, *schema, FormText(grads_[i])));
    }
    for (const SecondGradient& second : SecondGradients()) {
      const auto op = by_desc_.find(second.op);
      if (op == by_desc_.end()) continue;
      const FormText text(second.pir);
      OpRule rule =
          RuleOf(*FindOpSchema(second.type), text,
                 text.name.empty() ? absl::StrCat(BaseName(rules_[op->second].pir), "_double_grad")
                                   : std::string(text.name));
      rule.attrs = rules_[op->second].attrs;
      Add(std::move(rule));
    }
  }

  const std::vector<OpRule>& rules() const { return rules_; }
  const OpRule* Find(absl::string_view pir) const { return Find(by_pir_, pir); }
  const OpRule* FindOfDesc(absl::string_view desc) const { return Find(by_desc_, desc); }

 private:
  using Index = absl::flat_hash_map<absl::string_view, size_t>;

  const OpRule* Find(const Index& index, absl::string_view type) const {
    const auto found = index.find(type);
    return found == index.end() ? nullptr : &rules_[found->second];
  }

  // False: there is a rule of that name, which stays. Several forms may have one gradient op.
  bool Add(OpRule rule) {
    if (!by_pir_.emplace(rule.pir, rules_.size()).second) return false;
    by_desc_.emplace(rule.desc, rules_.size());
    rules_.push_back(std::move(rule));
    return true;
  }

  absl::string_view Keep(std::string text) { return texts_.emplace_back(std::move(text)); }

  OpRule RuleOf(const OpSchema& schema, const FormText& text, absl::string_view name) {
    OpRule rule;
    rule.pir = Keep(absl::StrCat("1.", name));
    rule.desc = schema.type();
    if (text.operands.has_value()) {
      for (absl::string_view operand : SplitList(*text.operands)) {
        rule.operands.push_back(ParseOperand(schema, operand));
      }
    } else {
      for (const SlotSchema& slot : schema.inputs()) {
        if (!slot.attrs.empty() || slot.until != 0) continue;
        OperandRule& operand = rule.operands.emplace_back(ParseOperand(schema, slot.name));
        operand.name = Keep(SnakeCase(slot.name));
      }
      if (rule.operands.size() == 1) rule.operands[0].name = "x";
    }
    if (text.results.has_value()) {
      for (absl::string_view result : SplitList(*text.results)) {
        rule.results.push_back(ParseResult(schema, result));
      }
    } else {
      for (const SlotSchema& slot : InOrderOfOperands(schema.outputs(), rule)) {
        if (slot.name == "XShape" || slot.unwritten) continue;
        ResultRule& result = rule.results.emplace_back(ParseResult(schema, slot.name));
        result.name = Keep(SnakeCase(slot.name));
      }
      if (rule.results.size() == 1 && !absl::EndsWith(rule.results[0].slot, kGradSuffix)) {
        rule.results[0].name = "out";
      }
    }
    for (absl::string_view attr : SplitList(text.attrs)) {
      const std::pair<absl::string_view, absl::string_view> names =
          absl::StrSplit(attr, absl::MaxSplits('=', 1));
      rule.attrs.push_back(names);
    }
    const SlotSchema* xshape = schema.FindOutput("XShape");
    if (xshape == nullptr) xshape = schema.FindInput("XShape");
    rule.has_xshape = xshape != nullptr && !xshape->duplicable;
    if (IsInPlace(rule.pir)) MarkInPlace(schema, &rule);
    return rule;
  }

  // What the text leaves out follows from the rule of the op: see OpSchema::Pir.
  OpRule GradientRuleOf(const OpRule& op, const OpSchema& schema, const FormText& text) {
    FormText stated = text;
    if (!stated.operands.has_value()) stated.operands = "";
    if (!stated.results.has_value()) stated.results = "";
    OpRule rule = RuleOf(schema, stated, absl::StrCat(BaseName(op.pir), "_grad"));
    rule.attrs = op.attrs;
    if (!text.operands.has_value()) rule.operands = GradientOperands(op, schema);
    if (text.results.has_value()) return rule;
    for (const OperandRule& operand : op.operands) {
      const SlotSchema* const slot = schema.FindOutput(absl::StrCat(operand.target, kGradSuffix));
      if (slot == nullptr || operand.kind == OperandRule::Kind::kConstant) continue;
      ResultRule& result = rule.results.emplace_back();
      result.name = Keep(absl::StrCat(operand.name, "_grad"));
      result.is_list = slot->duplicable;
      result.slot = slot->name;
    }
    return rule;
  }

  std::vector<OperandRule> GradientOperands(const OpRule& op, const OpSchema& schema) {
    std::vector<OperandRule> operands;
    for (const OperandRule& operand : op.operands) {
      const bool is_constant = operand.kind == OperandRule::Kind::kConstant;
      if (!is_constant && schema.FindInput(operand.target) != nullptr) operands.push_back(operand);
    }
    const auto add = [&](absl::string_view name, absl::string_view slot, bool optional) {
      const SlotSchema* const input = schema.FindInput(slot);
      if (input == nullptr || input->until != 0) return;  // PIR is newer than all that has gone
      operands.push_back(ParseOperand(schema, slot));
      operands.back().name = name;
      operands.back().optional = optional;
    };
    for (const ResultRule& result : op.results) add(result.name, result.slot, result.optional);
    for (const ResultRule& result : op.results) {
      add(Keep(absl::StrCat(result.name, "_grad")), absl::StrCat(result.slot, kGradSuffix), false);
    }
    for (const OperandRule& operand : op.operands) {
      const bool is_constant = operand.kind == OperandRule::Kind::kConstant;
      if (is_constant && schema.FindAttr(operand.target) != nullptr) operands.push_back(operand);
    }
    return operands;
  }

  std::vector<OpRule> rules_;
  std::vector<absl::string_view> grads_;  // by rule of an op that is no gradient op
  Index by_pir_, by_desc_;                // the first
  std::deque<std::string> texts_;
};

const Table& TheTable() {
  static const Table* const table = new Table;
  return *table;
}

}  // namespace

int OpRule::FindOperand(absl::string_view name) const {
  for (size_t i = 0; i < operands.size(); ++i) {
    if (operands[i].name == name) return static_cast<int>(i);
  }
  return -1;
}

int OpRule::FindResult(absl::string_view name) const {
  for (size_t i = 0; i < results.size(); ++i) {
    if (results[i].name == name) return static_cast<int>(i);
  }
  return -1;
}

const OpRule* FindRule(absl::string_view pir) { return TheTable().Find(pir); }

const OpRule* FindRuleOfDesc(absl::string_view desc) { return TheTable().FindOfDesc(desc); }

absl::Span<const OpRule> AllRules() { return TheTable().rules(); }

absl::string_view BaseName(absl::string_view pir) {
  return absl::StripSuffix(pir.substr(pir.find('.') + 1), "_");
}

bool IsGradientOp(absl::string_view pir) { return absl::EndsWith(BaseName(pir), "_grad"); }

bool IsInPlace(absl::string_view pir) { return absl::EndsWith(pir, "_"); }

bool IsCollective(absl::string_view pir) {
  constexpr absl::string_view kTypes[] = {
      "all_gather", "all_reduce",    "all_to_all",        "alltoall",     "barrier",
      "broadcast",  "global_gather", "global_scatter",    "p_recv",       "p_recv_array",
      "p_send",     "p_send_array",  "partial_allgather", "partial_recv", "partial_send",
      "recv_v2",    "reduce",        "reduce_scatter",    "send_v2"};
  const absl::string_view name = BaseName(pir);
  return absl::StartsWith(name, "c_") || absl::StartsWith(name, "sync_") ||
         absl::c_linear_search(kTypes, name);
}

}  // namespace weft::pir
