#include "proto/formats/pir/op_table.h"

#include <cassert>

#include "absl/algorithm/container.h"
#include "absl/container/flat_hash_map.h"
#include "absl/strings/match.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "proto/formats/pir/op_rows.h"

namespace weft::pir {
namespace {

pb::AttrType AttrTypeOf(absl::string_view name) {
  if (name == "BOOLEAN") return pb::BOOLEAN;
  if (name == "STRING") return pb::STRING;
  if (name == "INT") return pb::INT;
  if (name == "INTS") return pb::INTS;
  if (name == "LONG") return pb::LONG;
  if (name == "LONGS") return pb::LONGS;
  assert(name == "FLOAT");
  return pb::FLOAT;
}

OperandRule ParseOperand(absl::string_view text) {
  OperandRule rule;
  const std::pair<absl::string_view, absl::string_view> parts =
      absl::StrSplit(text, absl::MaxSplits(':', 1));
  rule.name = parts.first;
  absl::string_view target = parts.second;
  rule.optional = absl::ConsumeSuffix(&target, "?");
  if (target == "-") {
    rule.kind = OperandRule::Kind::kDropped;
  } else if (absl::ConsumePrefix(&target, "@")) {
    const std::vector<absl::string_view> slots = absl::StrSplit(target, '|');
    if (slots.size() > 1) rule.tensor_slot = slots[1];
    if (slots.size() > 2) rule.list_slot = slots[2];
    const std::pair<absl::string_view, absl::string_view> attr = absl::StrSplit(slots[0], '/');
    rule.kind = OperandRule::Kind::kConstant;
    rule.target = attr.first;
    rule.type = AttrTypeOf(attr.second);
  } else {
    rule.kind =
        absl::ConsumeSuffix(&target, "*") ? OperandRule::Kind::kList : OperandRule::Kind::kTensor;
    rule.target = target;
  }
  return rule;
}

OpRule ParseRow(const OpRow& row) {
  OpRule rule;
  rule.pir = row.pir;
  rule.desc = row.desc;
  for (absl::string_view text : absl::StrSplit(row.operands, ' ', absl::SkipEmpty())) {
    rule.operands.push_back(ParseOperand(text));
  }
  for (absl::string_view text : absl::StrSplit(row.results, ' ', absl::SkipEmpty())) {
    const std::pair<absl::string_view, absl::string_view> parts =
        absl::StrSplit(text, absl::MaxSplits(':', 1));
    const std::pair<absl::string_view, absl::string_view> target =
        absl::StrSplit(parts.second, absl::MaxSplits('=', 1));
    ResultRule& result = rule.results.emplace_back();
    result.name = parts.first;
    result.slot = target.first;
    result.is_list = absl::ConsumeSuffix(&result.slot, "*");
    result.dropped = result.slot == "-";
    if (!target.second.empty()) result.in_place_of = rule.FindOperand(target.second);
  }
  for (absl::string_view text : absl::StrSplit(row.attrs, ' ', absl::SkipEmpty())) {
    const std::pair<absl::string_view, absl::string_view> names = absl::StrSplit(text, ':');
    rule.attrs.emplace_back(names.first, names.second == "-" ? "" : names.second);
  }
  const absl::string_view base = absl::StripSuffix(rule.desc, "_grad");
  rule.has_xshape = base == "reshape2" || base == "transpose2" || base == "squeeze2" ||
                    base == "unsqueeze2" || base == "flatten_contiguous_range";
  return rule;
}

struct Table {
  std::vector<OpRule> rules;
  absl::flat_hash_map<absl::string_view, const OpRule*> by_pir, by_desc;

  Table() {
    for (const absl::Span<const OpRow> rows :
         {OpRows(), MathRows(), ShapeRows(), RandomRows(), UpdateRows()}) {
      for (const OpRow& row : rows) rules.push_back(ParseRow(row));
    }
    for (const OpRule& rule : rules) {
      by_pir.emplace(rule.pir, &rule);
      by_desc.emplace(rule.desc, &rule);
    }
  }
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

const OpRule* FindRule(absl::string_view pir) {
  const auto found = TheTable().by_pir.find(pir);
  return found == TheTable().by_pir.end() ? nullptr : found->second;
}

const OpRule* FindRuleOfDesc(absl::string_view desc) {
  const auto found = TheTable().by_desc.find(desc);
  return found == TheTable().by_desc.end() ? nullptr : found->second;
}

absl::Span<const OpRule> AllRules() { return TheTable().rules; }

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
