#include "ops/schema/infer_testing.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/status_macros.h"
#include "ops/schema/infer.h"
#include "ops/schema/op_attrs.h"
#include "ops/schema/tensor_type.h"
#include "proto/program.h"

namespace weft::testing {
namespace {

[[noreturn]] void Die(const std::string& text) {
  std::fprintf(stderr, "not a tensor type or an op: %s\n", text.c_str());
  std::abort();
}

// Fills a variable's type from "fp32[2, 3]" or "rows fp32[2, 3]".
void ParseType(const std::string& text, pb::VarType* type) {
  absl::string_view rest = text;
  const bool is_rows = absl::ConsumePrefix(&rest, "rows ");
  type->set_type(is_rows ? pb::VarType::SELECTED_ROWS : pb::VarType::LOD_TENSOR);
  pb::VarType::TensorDesc* tensor =
      is_rows ? type->mutable_selected_rows() : type->mutable_lod_tensor()->mutable_tensor();
  const size_t bracket = rest.find('[');
  if (bracket == absl::string_view::npos || !absl::ConsumeSuffix(&rest, "]")) Die(text);
  const absl::optional<DType> dtype = ParseDType(rest.substr(0, bracket));
  if (!dtype.has_value()) Die(text);
  tensor->set_data_type(static_cast<pb::VarType::Type>(*dtype));
  for (absl::string_view item : absl::StrSplit(rest.substr(bracket + 1), ", ", absl::SkipEmpty())) {
    int64_t dim = 0;
    if (!absl::SimpleAtoi(item, &dim)) Die(text);
    tensor->add_dims(dim);
  }
}

}  // namespace

InferenceCase::InferenceCase(const std::string& op_type) {
  pb::BlockDesc* block = program_.add_blocks();
  block->set_idx(0);
  block->set_parent_idx(-1);
  block->add_ops()->set_type(op_type);
}

void InferenceCase::Declare(const std::string& name, const std::string& type) {
  pb::VarDesc* var = program_.mutable_blocks(0)->add_vars();
  var->set_name(name);
  if (type.empty()) {
    var->mutable_type()->set_type(pb::VarType::RAW);
  } else {
    ParseType(type, var->mutable_type());
  }
}

InferenceCase& InferenceCase::In(const std::string& slot, const std::vector<std::string>& types) {
  pb::OpDesc::Var* var = program_.mutable_blocks(0)->mutable_ops(0)->add_inputs();
  var->set_parameter(slot);
  for (const std::string& type : types) {
    var->add_arguments(absl::StrCat(slot, "_", var->arguments_size()));
    Declare(var->arguments(var->arguments_size() - 1), type);
  }
  return *this;
}

InferenceCase& InferenceCase::Out(const std::string& slot, int count) {
  pb::OpDesc::Var* var = program_.mutable_blocks(0)->mutable_ops(0)->add_outputs();
  var->set_parameter(slot);
  for (int i = 0; i < count; ++i) {
    var->add_arguments(absl::StrCat("out_", slot, "_", i));
    Declare(var->arguments(i), "");
  }
  return *this;
}

InferenceCase& InferenceCase::Attr(const std::string& name, const AttrValue& value) {
  *program_.mutable_blocks(0)->mutable_ops(0)->add_attrs() = MakeAttr(name, value);
  return *this;
}

InferenceCase& InferenceCase::Version(int64_t version) {
  program_.mutable_version()->set_version(version);
  return *this;
}

absl::StatusOr<std::string> InferenceCase::Infer() const {
  WEFT_ASSIGN_OR_RETURN(const Program program, Program::FromProto(program_));
  const Block block = program.block(0);
  const Op op = program.op(block.ops()[0]);
  WEFT_ASSIGN_OR_RETURN(const std::vector<absl::optional<TensorType>> types,
                        InferOutputs(op, [&](Symbol name) {
                          return DeclaredType(program.var(block.FindVar(name)));
                        }));
  std::map<std::string, std::string> by_slot;
  for (const OpSignature::Slot& slot : op.signature().outputs) {
    std::vector<std::string> texts;
    for (size_t i = 0; i < slot.count; ++i) {
      const auto& type = types[slot.first - op.signature().num_input_args + i];
      if (type.has_value()) texts.push_back(ToString(*type));
    }
    if (texts.empty()) continue;
    by_slot[std::string(program.name(slot.name))] = absl::StrJoin(texts, " | ");
  }
  return absl::StrJoin(by_slot, ", ", absl::PairFormatter(": "));
}

absl::StatusOr<std::string> Infer(absl::string_view op,
                                  const std::vector<std::pair<std::string, AttrValue>>& attrs) {
  using Parts = std::pair<absl::string_view, absl::string_view>;
  const Parts type_and_slots = absl::StrSplit(op, absl::MaxSplits('(', 1));
  Parts slots = absl::StrSplit(type_and_slots.second, absl::MaxSplits(')', 1));
  std::vector<std::string> inputs;
  for (absl::string_view item : absl::StrSplit(slots.first, ", ", absl::SkipEmpty())) {
    if (absl::StrContains(item, ": ")) {
      inputs.emplace_back(item);
    } else if (!inputs.empty()) {
      absl::StrAppend(&inputs.back(), ", ", item);  // a further dimension
    } else {
      Die(std::string(op));
    }
  }
  InferenceCase inference{std::string(type_and_slots.first)};
  for (const std::string& input : inputs) {
    const Parts slot = absl::StrSplit(input, absl::MaxSplits(": ", 1));
    std::vector<std::string> types = absl::StrSplit(slot.second, " | ");
    std::replace(types.begin(), types.end(), std::string("?"), std::string());
    inference.In(std::string(slot.first), types);
  }
  if (!absl::ConsumePrefix(&slots.second, " -> ")) Die(std::string(op));
  for (absl::string_view output : absl::StrSplit(slots.second, ", ")) {
    const Parts slot = absl::StrSplit(output, absl::MaxSplits('*', 1));
    int count = 1;
    if (!slot.second.empty() && !absl::SimpleAtoi(slot.second, &count)) Die(std::string(op));
    inference.Out(std::string(slot.first), count);
  }
  for (const auto& [name, value] : attrs) inference.Attr(name, value);
  return inference.Infer();
}

}  // namespace weft::testing
