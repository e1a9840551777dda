#include "tests/replay/op_values.h"

#include <cmath>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/types/optional.h"
#include "proto/op_role.h"

namespace weft::testing {
namespace {

double ScaleOf(const ReplayOp& op) {
  return FindAttr(*op.desc, "scale") == nullptr ? 1 : NumberOf(*op.desc, "scale");
}

}  // namespace

void OpValues::Compute(const ReplayOp& op) {
  if (op.type == "fetch" || op.type == "fetch_v2") return;
  if (op.type == "feed") {
    for (const SlotArg& out : op.outputs) storage_.Write(out.name, storage_.Feed(out.name));
    return;
  }
  if (op.outputs.empty()) return;
  if (ComputeSlices(op) || ComputeNumber(op) || ComputeSum(op) || ComputeParts(op)) return;
  ComputeFunction(op);
}

// A buffer, slice by slice.
bool OpValues::ComputeSlices(const ReplayOp& op) {
  if (op.type != "scale" || op.inputs.size() != 1 || op.outputs.size() != 1) return false;
  if (NumberOf(*op.desc, "bias") != 0) return false;
  const std::vector<CellId> from = storage_.CellsOf(op.inputs[0].name);
  const std::vector<CellId> to = storage_.CellsOf(op.outputs[0].name);
  if (from.size() != to.size()) return false;
  const double scale = ScaleOf(op);
  std::vector<ValueId> values;
  for (CellId cell : from) values.push_back(table_.Linear({{storage_.Value(cell), scale}}));
  for (size_t i = 0; i < to.size(); ++i) {
    storage_.SetValue(to[i], op.outputs[0].name, values[i]);
  }
  return true;
}

bool OpValues::ComputeSum(const ReplayOp& op) {
  std::vector<std::pair<ValueId, double>> terms;
  if (op.type == "sum" || op.type == "assign" || op.type == "memcpy" ||
      op.type == "elementwise_add" || op.type == "elementwise_sub") {
    for (const SlotArg& in : op.inputs) {
      terms.emplace_back(storage_.Read(in.name),
                         op.type == "elementwise_sub" && in.slot == "Y" ? -1 : 1);
    }
  } else {
    return false;
  }
  storage_.Write(op.outputs[0].name, table_.Linear(terms));
  return true;
}

bool OpValues::ComputeParts(const ReplayOp& op) {
  if (op.type == "slice") return ComputeSlice(op);
  if (op.type != "split" || NumberOf(*op.desc, "axis") != 0) return false;
  const std::vector<ValueId>* parts = table_.PartsOf(storage_.Read(op.inputs[0].name));
  if (parts == nullptr || parts->size() != op.outputs.size()) return false;
  const std::vector<ValueId> values = *parts;
  for (size_t i = 0; i < values.size(); ++i) storage_.Write(op.outputs[i].name, values[i]);
  return true;
}

// Of equal parts, as an all-to-all gives them.
bool OpValues::ComputeSlice(const ReplayOp& op) {
  const std::vector<ValueId>* parts = table_.PartsOf(storage_.Read(op.inputs[0].name));
  const pb::OpDesc::Attr* const axes = FindAttr(*op.desc, "axes");
  const pb::OpDesc::Attr* const starts = FindAttr(*op.desc, "starts");
  const pb::OpDesc::Attr* const ends = FindAttr(*op.desc, "ends");
  for (const pb::OpDesc::Attr* attr : {axes, starts, ends}) {
    if (attr == nullptr || attr->ints_size() != 1) return false;
  }
  const int begin = starts->ints(0), size = ends->ints(0) - begin;
  if (parts == nullptr || axes->ints(0) != 0 || begin < 0 || size <= 0) return false;
  const size_t part = begin / size;
  if (begin % size != 0 || part >= parts->size()) return false;
  const ValueId value = (*parts)[part];
  storage_.Write(op.outputs[0].name, value);
  return true;
}

// Ops that decide when something runs.
bool OpValues::ComputeNumber(const ReplayOp& op) {
  if (op.outputs.size() != 1) return false;
  if (op.type == "fill_constant") {
    if (!op.inputs.empty()) return false;
    double number = NumberOf(*op.desc, "value");
    const pb::OpDesc::Attr* text = FindAttr(*op.desc, "str_value");
    if (text != nullptr && !text->s().empty() && !absl::SimpleAtod(text->s(), &number)) {
      return false;
    }
    storage_.Write(op.outputs[0].name, table_.Number(number));
    return true;
  }
  std::vector<double> in;
  for (const SlotArg& arg : op.inputs) {
    const absl::optional<double> number = table_.NumberOf(storage_.Read(arg.name));
    if (!number.has_value()) return false;
    in.push_back(*number);
  }
  double out = 0;
  if (in.size() == 1 && op.type == "increment") {
    out = in[0] + NumberOf(*op.desc, "step");
  } else if (in.size() == 1 && op.type == "logical_not") {
    out = in[0] == 0;
  } else if (in.size() == 2 && op.type == "elementwise_mod") {
    if (in[1] == 0) return false;
    out = in[0] - in[1] * std::floor(in[0] / in[1]);
  } else if (in.size() == 2 && op.type == "equal") {
    out = in[0] == in[1];
  } else if (in.size() == 2 && op.type == "greater_equal") {
    out = in[0] >= in[1];
  } else if (in.size() == 2 && op.type == "greater_than") {
    out = in[0] > in[1];
  } else if (in.size() == 2 && op.type == "less_than") {
    out = in[0] < in[1];
  } else if (in.size() == 2 && op.type == "less_equal") {
    out = in[0] <= in[1];
  } else if (in.size() == 2 && op.type == "logical_and") {
    out = in[0] != 0 && in[1] != 0;
  } else if (in.size() == 2 && op.type == "logical_or") {
    out = in[0] != 0 || in[1] != 0;
  } else {
    return false;
  }
  storage_.Write(op.outputs[0].name, table_.Number(out));
  return true;
}

void OpValues::ComputeFunction(const ReplayOp& op) {
  // What comes out of a backward op has the factor of the gradients that go in.
  double common = 1;
  bool pulls = absl::EndsWith(op.type, "_grad"), is_first = true;
  for (const SlotArg& in : op.inputs) {
    if (!pulls || !absl::EndsWith(in.slot, kGradSuffix)) continue;
    const double factor = table_.Factored(storage_.Read(in.name)).first;
    pulls = is_first || factor == common;
    common = factor;
    is_first = false;
  }
  pulls = pulls && !is_first && common != 1;
  std::string text = op.identity;
  for (const SlotArg& in : op.inputs) {
    ValueId value = storage_.Read(in.name);
    if (pulls && absl::EndsWith(in.slot, kGradSuffix)) value = table_.Factored(value).second;
    absl::StrAppend(&text, "\n", in.slot, " ", in.number, " ", value);
  }
  if (op.is_random) {
    const std::string draw = absl::StrCat(op.outputs[0].name, " step ", setting_.step);
    absl::StrAppend(&text, "\ndraw of ", draw, " number ", draws_[draw]++, " rank ", setting_.rank);
  }
  const ValueId value = table_.Named(text);
  std::vector<std::pair<std::string, ValueId>> results;
  for (const SlotArg& out : op.outputs) {
    ValueId result = table_.Named(absl::StrCat(out.slot, " ", out.number, " of ", value));
    if (pulls) result = table_.Linear({{result, common}});
    results.emplace_back(out.name, result);
  }
  for (const auto& [name, result] : results) storage_.Write(name, result);
}

}  // namespace weft::testing
