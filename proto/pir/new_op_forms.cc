// What an inserted op becomes, by its type.
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "base/status_macros.h"
#include "proto/pir/attribute_json.h"
#include "proto/pir/document.h"
#include "proto/pir/new_op.h"
#include "proto/pir/op_table.h"
#include "proto/pir/value_type.h"

namespace weft::pir {
namespace {

constexpr absl::string_view kLeftOut[] = {
    "c_comm_init",    "c_comm_init_all",    "c_comm_init_multitrainer", "c_gen_bkcl_id",
    "c_gen_nccl_id",  "c_sync_calc_stream", "c_sync_comm_stream",       "c_wait_comm",
    "c_wait_compute", "comm_init_all",
};
// Their operands are tensors, and they have no attributes of interest.
constexpr absl::string_view kPlain[] = {
    "elementwise_add", "elementwise_sub", "elementwise_mul", "elementwise_div",
    "elementwise_max", "elementwise_mod", "square",          "sqrt",
    "assign",
};
// The same; the result is boolean.
constexpr absl::string_view kPredicates[] = {"equal", "greater_equal", "logical_and"};
// Others, with a form of their own.
constexpr absl::string_view kOthers[] = {"all_gather", "all_reduce", "broadcast",
                                         "cast",       "increment",  "fill_constant",
                                         "scale",      "split",      "sum"};
// Those with a form that overwrites their first operand.
constexpr absl::string_view kInPlace[] = {"all_reduce", "broadcast", "increment", "scale"};

}  // namespace

NewOpKind KindOf(absl::string_view type) {
  if (absl::c_linear_search(kLeftOut, type)) return NewOpKind::kLeftOut;
  if (type == "coalesce_tensor") return NewOpKind::kBuffer;
  if (type == "conditional_block") return NewOpKind::kBranch;
  const bool is_written = absl::c_linear_search(kPlain, type) ||
                          absl::c_linear_search(kPredicates, type) ||
                          absl::c_linear_search(kOthers, type);
  return is_written ? NewOpKind::kWritten : NewOpKind::kNone;
}

absl::Status NewOps::AddScale(const Op& op, Form* form) {
  WEFT_ASSIGN_OR_RETURN(NewOp factor,
                        Constant(op.FloatAttr("scale").value_or(1), pb::VarType::FP32));
  form->operands.push_back(factor.results[0]);
  form->before.push_back(std::move(factor));
  form->attrs = {FloatJson("bias", op.FloatAttr("bias").value_or(0)),
                 BoolJson("bias_after_scale", op.BoolAttr("bias_after_scale").value_or(true))};
  // By which the verifier tells a division by the number of ranks. Paddle's loader keeps it.
  const absl::optional<int64_t> nranks = op.IntAttr("nranks");
  if (nranks.has_value()) form->attrs.push_back(IntJson("nranks", *nranks));
  return absl::OkStatus();
}

absl::Status NewOps::AddCollective(const Op& op, Form* form) {
  form->attrs = {IntJson("ring_id", op.IntAttr("ring_id").value_or(0))};
  if (op.type() == "all_reduce") {
    form->attrs.push_back(IntJson("reduce_type", op.IntAttr("reduce_type").value_or(0)));
    return absl::OkStatus();
  }
  if (op.type() == "broadcast") {
    form->attrs.push_back(IntJson("root", op.IntAttr("root").value_or(0)));
    return absl::OkStatus();
  }
  // The first dimension is that of all ranks.
  WEFT_ASSIGN_OR_RETURN(ValueType type, ReadType(form->type));
  const int64_t nranks = op.IntAttr("nranks").value_or(0);
  if (type.kind != ValueType::Kind::kTensor || type.dims.empty() || nranks <= 0) {
    return absl::UnimplementedError(
        absl::StrCat("expected a tensor with dimensions and a number of ranks, found ",
                     form->type.substr(0, 128), " and ", nranks));
  }
  if (type.dims[0] >= 0) type.dims[0] *= nranks;
  WEFT_ASSIGN_OR_RETURN(form->type, TensorTypeJson(type.dtype, type.dims));
  form->attrs.push_back(IntJson("nranks", nranks));
  return absl::OkStatus();
}

absl::Status NewOps::AddCast(const Op& op, Form* form) {
  WEFT_ASSIGN_OR_RETURN(const ValueType from, ReadType(form->type));
  const auto dtype = static_cast<pb::VarType::Type>(op.IntAttr("out_dtype").value_or(-1));
  WEFT_ASSIGN_OR_RETURN(form->type, TensorTypeJson(dtype, from.dims));
  WEFT_ASSIGN_OR_RETURN(const absl::string_view name, DTypeName(dtype));
  form->attrs = {DTypeJson(name)};
  return absl::OkStatus();
}

absl::Status NewOps::AddSum(absl::Span<const NewOpInput> inputs, Form* form) {
  const std::string list = absl::StrCat(
      R"({"#":"0.t_vec","D":[)",
      absl::StrJoin(inputs, ",",
                    [](std::string* out, const NewOpInput& input) { *out += input.type; }),
      "]}");
  WEFT_ASSIGN_OR_RETURN(NewOp combine, Make(kCombineOp, form->operands, {}, {list}));
  form->operands = {combine.results[0]};
  form->before.push_back(std::move(combine));
  return absl::OkStatus();
}

absl::StatusOr<NewOp> NewOps::Fill(const Op& op, bool is_persistable) {
  double value = op.FloatAttr("value").value_or(0);
  const std::string text = op.StringAttr("str_value").value_or("");
  if (!text.empty() && !absl::SimpleAtod(text, &value)) {
    return absl::UnimplementedError(
        absl::StrCat("str_value: expected a decimal number, found ", text));
  }
  const auto dtype =
      static_cast<pb::VarType::Type>(op.IntAttr("dtype").value_or(pb::VarType::FP32));
  return Full(op.IntsAttr("shape").value_or(std::vector<int64_t>()), value, dtype, AnyPlaceJson(),
              is_persistable);
}

absl::StatusOr<std::vector<NewOp>> NewOps::Translate(const Op& op,
                                                     absl::Span<const NewOpInput> inputs,
                                                     const NewOpOutput& output,
                                                     absl::string_view stream) {
  const absl::string_view desc = op.type();
  if (desc == "split" && inputs.size() == 1) return SplitEqually(op, inputs[0]);
  const bool fills = desc == "fill_constant";
  if (inputs.empty() != fills || op.output_args().size() != 1) {
    return absl::UnimplementedError(absl::StrCat("expected ", fills ? "no inputs" : "inputs",
                                                 " and one output, found ", inputs.size(), " and ",
                                                 op.output_args().size()));
  }
  const bool is_in_place = !fills && op.output_args()[0] == inputs[0].var;
  Form form;
  if (fills) {
    WEFT_ASSIGN_OR_RETURN(NewOp made, Fill(op, output.is_persistable));
    form.before.push_back(std::move(made));
  } else {
    form.name = std::string(FindRuleOfDesc(desc)->pir);
    form.type = inputs[0].type;
    for (const NewOpInput& input : inputs) form.operands.push_back(input.id);
    if (desc == "scale") WEFT_RETURN_IF_ERROR(AddScale(op, &form));
    if (desc == "all_reduce" || desc == "all_gather" || desc == "broadcast") {
      WEFT_RETURN_IF_ERROR(AddCollective(op, &form));
    }
    if (desc == "cast") WEFT_RETURN_IF_ERROR(AddCast(op, &form));
    if (desc == "sum") WEFT_RETURN_IF_ERROR(AddSum(inputs, &form));
    if (desc == "increment") form.attrs = {FloatJson("value", op.FloatAttr("step").value_or(1))};
    if (absl::c_linear_search(kPredicates, desc)) {
      WEFT_ASSIGN_OR_RETURN(const ValueType type, ReadType(form.type));
      WEFT_ASSIGN_OR_RETURN(form.type, TensorTypeJson(pb::VarType::BOOL, type.dims));
    }
    if (!stream.empty()) {
      form.attrs.push_back(StringJson("execution_stream", stream));
      form.attrs.push_back(AttrJson("scheduling_priority", "0.a_i64", "-1"));
    }
    // In place, Paddle's executor loses the name that 0.set_parameter gives to what a startup
    // program broadcasts.
    const bool overwrites = is_in_place && absl::c_linear_search(kInPlace, desc) &&
                            (output.is_bound || desc == "all_reduce");
    const absl::string_view base = absl::StripSuffix(form.name, "_");
    // Other ops may be made to write over what they read last, but not over what is persistable.
    const bool is_persistable = output.is_persistable || (overwrites && output.is_bound);
    WEFT_ASSIGN_OR_RETURN(NewOp made, Make(overwrites ? absl::StrCat(base, "_") : std::string(base),
                                           form.operands, form.attrs, {form.type}, is_persistable));
    form.before.push_back(std::move(made));
    if (overwrites) return std::move(form.before);
  }
  if (!output.is_bound) return std::move(form.before);
  WEFT_ASSIGN_OR_RETURN(NewOp assigned,
                        Make("1.assign_out_", {form.before.back().results[0], output.id}, {},
                             {output.type}, /*is_persistable=*/true));
  form.before.push_back(std::move(assigned));
  return std::move(form.before);
}

}  // namespace weft::pir
