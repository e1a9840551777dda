#include "proto/formats/pir/survey.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/annotate.h"
#include "base/status_macros.h"
#include "proto/formats/pir/attributes.h"
#include "proto/formats/pir/dataflow.h"
#include "proto/formats/pir/op_table.h"

namespace weft::pir {
namespace {

bool Overwrites(const OpRule& rule, uint32_t operand) {
  return std::any_of(rule.results.begin(), rule.results.end(), [&](const ResultRule& result) {
    return result.in_place_of == static_cast<int>(operand);
  });
}

// A value is made under the first name that it gets, unless it has one.
absl::Status SurveySink(const Document& document, uint32_t i, Survey* survey) {
  absl::StatusOr<std::string> name = SinkName(document, i);
  if (!name.ok()) return Annotate(document.DebugName(i), name.status());
  const ValueIndex value = document.operands(document.op(i))[0].value;
  const uint32_t maker = document.value(value).op;
  const absl::string_view made_by = maker == kNoOp ? "p" : document.op(maker).name;
  if (made_by == "p" || made_by == "1.data") return absl::OkStatus();
  survey->name_of_value.emplace(value, *std::move(name));
  return absl::OkStatus();
}

void FindUnused(const Document& document, const std::vector<uint32_t>& reads, Survey* survey) {
  survey->is_unused.assign(document.ops().size(), false);
  for (uint32_t i = 0; i < document.ops().size(); ++i) {
    const DocumentOp& op = document.op(i);
    if (op.name != "1.coalesce_tensor" || op.num_results != 2) continue;
    const ValueIndex list = op.first_result, buffer = op.first_result + 1;
    const auto split = survey->split_of.find(list);
    if (reads[buffer] > 0 || reads[list] > (split == survey->split_of.end() ? 0u : 1u)) continue;
    if (split != survey->split_of.end()) {
      const DocumentOp& parts = document.op(split->second);
      const auto begin = reads.begin() + parts.first_result;
      const bool is_read =
          std::any_of(begin, begin + parts.num_results, [](uint32_t count) { return count > 0; });
      if (is_read) continue;
      survey->is_unused[split->second] = true;
    }
    survey->is_unused[i] = true;
  }
}

}  // namespace

bool IsConstant(absl::string_view name) { return name == "1.full" || name == "1.full_int_array"; }

absl::StatusOr<std::string> SinkName(const Document& document, uint32_t i) {
  WEFT_ASSIGN_OR_RETURN(const std::vector<Attribute> attributes,
                        ReadAttributes(document.op(i).attrs));
  const absl::string_view key =
      document.op(i).name == "0.set_parameter" ? "parameter_name" : "output_name";
  const Attribute* const name = FindAttribute(key, attributes);
  if (name == nullptr || document.op(i).num_operands != 1 ||
      document.operands(document.op(i))[0].value == kNoValue) {
    return absl::InvalidArgumentError(absl::StrCat("expected one operand and an attribute ", key));
  }
  return StringOf(*name);
}

bool GivesAttribute(const Document& document, const OperandRule& operand, ValueIndex value) {
  const bool is_list = operand.type == pb::INTS || operand.type == pb::LONGS;
  return operand.kind == OperandRule::Kind::kConstant &&
         MakerName(document, value) == (is_list ? "1.full_int_array" : "1.full");
}

bool Translates(const Document& document, uint32_t i) {
  const OpRule* const rule = FindRule(document.op(i).name);
  if (rule == nullptr || rule->operands.size() != document.op(i).num_operands ||
      rule->results.size() != document.op(i).num_results) {
    return false;
  }
  for (uint32_t k = 0; k < document.op(i).num_operands; ++k) {
    const OperandRule& operand = rule->operands[k];
    const ValueIndex value = document.operands(document.op(i))[k].value;
    const uint32_t maker = value == kNoValue ? kNoOp : document.value(value).op;
    const absl::string_view made_by = maker == kNoOp ? "" : document.op(maker).name;
    switch (operand.kind) {
      case OperandRule::Kind::kTensor:
        if (value == kNoValue && !operand.optional) return false;
        break;
      case OperandRule::Kind::kList:
        if (made_by != kCombineOp && !(value == kNoValue && operand.optional)) return false;
        break;
      case OperandRule::Kind::kConstant:
        if (GivesAttribute(document, operand, value)) break;
        if (!operand.may_be_tensor() || value == kNoValue) return false;
        break;
      case OperandRule::Kind::kDropped:
        break;
    }
  }
  return true;
}

absl::StatusOr<Survey> SurveyOf(const Document& document) {
  Survey survey;
  survey.is_kept.assign(document.ops().size(), true);
  int num_blocks = 0;
  for (const DocumentBlock& block : document.blocks()) {
    const bool is_root = survey.block_number.empty();
    survey.block_number.push_back(is_root || !block.ops.empty() ? num_blocks++ : Survey::kNoBlock);
  }
  std::vector<bool> folded(document.values().size(), false);
  std::vector<bool> is_read(document.values().size(), false);
  std::vector<uint32_t> reads(document.values().size(), 0);
  for (uint32_t i = 0; i < document.ops().size(); ++i) {
    const bool translates = Translates(document, i);
    const OpRule* const rule = translates ? FindRule(document.op(i).name) : nullptr;
    for (uint32_t k = 0; k < document.op(i).num_operands; ++k) {
      const ValueIndex value = document.operands(document.op(i))[k].value;
      if (value == kNoValue) continue;
      ++reads[value];
      // A gradient op without a known forward op is kept as it is.
      const bool may_be_kept = rule != nullptr && rule->has_xshape && IsGradientOp(rule->pir);
      const bool is_attribute = rule != nullptr && !may_be_kept && !Overwrites(*rule, k) &&
                                (GivesAttribute(document, rule->operands[k], value) ||
                                 rule->operands[k].kind == OperandRule::Kind::kDropped);
      if (!is_attribute) is_read[value] = true;
      if (is_attribute) folded[value] = true;
    }
    if (document.op(i).name == kSplitOp && document.op(i).num_operands == 1) {
      if (document.operands(document.op(i))[0].value != kNoValue)
        survey.split_of.emplace(document.operands(document.op(i))[0].value, i);
    }
    if (IsSink(document.op(i).name)) WEFT_RETURN_IF_ERROR(SurveySink(document, i, &survey));
  }
  for (uint32_t i = 0; i < document.ops().size(); ++i) {
    if (!IsConstant(document.op(i).name) || document.op(i).num_results != 1) continue;
    const ValueIndex value = document.op(i).first_result;
    survey.is_kept[i] = is_read[value] || !folded[value];
  }
  FindUnused(document, reads, &survey);
  return survey;
}

}  // namespace weft::pir
