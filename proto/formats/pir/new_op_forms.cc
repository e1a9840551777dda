// What an inserted op becomes, by its type.
#include <iterator>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/status_macros.h"
#include "proto/formats/pir/attribute_json.h"
#include "proto/formats/pir/document.h"
#include "proto/formats/pir/new_op.h"
#include "proto/formats/pir/op_table.h"
#include "proto/formats/pir/value_type.h"
#include "proto/text/program_text.h"

namespace weft::pir {
namespace {

constexpr absl::string_view kLeftOut[] = {
    "c_comm_init",    "c_comm_init_all",    "c_comm_init_multitrainer", "c_gen_bkcl_id",
    "c_gen_nccl_id",  "c_sync_calc_stream", "c_sync_comm_stream",       "c_wait_comm",
    "c_wait_compute", "comm_init_all",
};
// Types with a form in PIR, and the attributes of the op of ProgramDesc that it writes.
struct FormRow {
  absl::string_view type, attrs;
  bool makes_booleans = false;
  bool has_in_place = false;  // a form that overwrites the first operand
};
constexpr FormRow kForms[] = {
    {"all_gather", "nranks ring_id"},
    {"all_reduce", "reduce_type ring_id", false, true},
    {"all_to_all", "ring_id"},
    {"assign", ""},
    {"broadcast", "ring_id root", false, true},
    {"cast", "in_dtype out_dtype"},
    {"clip", "max min"},
    {"elementwise_add", ""},
    {"elementwise_div", ""},
    {"elementwise_max", ""},
    {"elementwise_mod", ""},
    {"elementwise_mul", ""},
    {"elementwise_sub", ""},
    {"equal", "", true},
    {"fill_constant", "dtype shape str_value value"},
    {"gaussian_random", "dtype mean seed shape std"},
    {"greater_equal", "", true},
    {"increment", "step", false, true},
    {"less_than", "", true},
    {"logical_and", "", true},
    {"logical_not", "", true},
    {"logical_or", "", true},
    {"matmul_v2", "trans_x trans_y"},
    {"not_equal", "", true},
    {"qr", "mode"},
    {"reduce_scatter", "nranks ring_id"},
    {"scale", "bias bias_after_scale scale", false, true},
    {"slice", "axes ends starts"},
    {"split", "axis num"},
    {"sqrt", ""},
    {"square", ""},
    {"sum", ""},
};

// Written on every op that has them: the verifier tells by them what an op divides by and what it
// is meant for. Paddle's loader keeps them.
constexpr absl::string_view kHints[] = {"accumulate_type", "group_ranks", "nranks", "per_rank"};

// Of every op; data orders a collective as a stream would.
constexpr absl::string_view kWithoutMeaning[] = {
    "op_callstack", "op_namescope", "op_role", "op_role_var", "use_calc_stream", "with_quant_attr"};

// The values of others that say nothing.
constexpr struct {
  absl::string_view attr, value;
} kDefaults[] = {
    {"axis", "-1"},         {"force_cpu", "false"},  {"mkldnn_data_type", "\"float32\""},
    {"op_device", "\"\""},  {"place_type", "-1"},    {"onednn_data_type", "\"\""},
    {"sections", "ints[]"}, {"use_mkldnn", "false"}, {"use_onednn", "false"},
};

const FormRow* FindForm(absl::string_view type) {
  const auto* const found =
      absl::c_find_if(kForms, [&](const FormRow& row) { return row.type == type; });
  return found == std::end(kForms) ? nullptr : found;
}

bool IsLeftOut(absl::string_view attr, const std::string& value) {
  return absl::c_linear_search(kWithoutMeaning, attr) ||
         absl::c_any_of(kDefaults, [&](const auto& known) {
           return known.attr == attr && known.value == value;
         });
}

// Unimplemented if the op has an attribute that its form does not write, and whose value matters.
absl::Status CheckAttributes(const Op& op, const FormRow& form) {
  const std::vector<absl::string_view> written = absl::StrSplit(form.attrs, ' ');
  const pb::OpDesc desc = op.ToProto();
  for (const pb::OpDesc::Attr& attr : desc.attrs()) {
    const std::string& name = attr.name();
    if (absl::c_linear_search(written, name) || absl::c_linear_search(kHints, name)) continue;
    const std::string value = AttrValueText(attr);
    if (IsLeftOut(name, value)) continue;
    return absl::UnimplementedError(absl::StrCat("attribute ", name,
                                                 ": the op has none in PIR, found ", value,
                                                 "; write a .pb file, which holds it"));
  }
  return absl::OkStatus();
}

void AddHints(const Op& op, const FormRow& form, std::vector<std::string>* attrs) {
  const std::vector<absl::string_view> written = absl::StrSplit(form.attrs, ' ');
  const pb::OpDesc desc = op.ToProto();
  for (const pb::OpDesc::Attr& attr : desc.attrs()) {
    const std::string& name = attr.name();
    if (!absl::c_linear_search(kHints, name) || absl::c_linear_search(written, name)) continue;
    if (attr.type() == pb::INT) attrs->push_back(IntJson(name, attr.i()));
    if (attr.type() == pb::BOOLEAN) attrs->push_back(BoolJson(name, attr.b()));
    if (attr.type() == pb::STRING) attrs->push_back(StringJson(name, attr.s()));
    if (attr.type() == pb::INTS) {
      const std::vector<int64_t> values(attr.ints().begin(), attr.ints().end());
      attrs->push_back(AttrJson(name, "0.a_array", IntegersJson(values)));
    }
  }
}

}  // namespace

NewOpKind KindOf(absl::string_view type) {
  if (absl::c_linear_search(kLeftOut, type)) return NewOpKind::kLeftOut;
  if (type == "coalesce_tensor") return NewOpKind::kBuffer;
  if (type == "conditional_block") return NewOpKind::kBranch;
  return FindForm(type) == nullptr ? NewOpKind::kNone : NewOpKind::kWritten;
}

absl::Status NewOps::AddScale(const Op& op, Form* form) {
  WEFT_ASSIGN_OR_RETURN(NewOp factor,
                        Constant(op.FloatAttr("scale").value_or(1), pb::VarType::FP32));
  form->operands.push_back(factor.results[0]);
  form->before.push_back(std::move(factor));
  form->attrs = {FloatJson("bias", op.FloatAttr("bias").value_or(0)),
                 BoolJson("bias_after_scale", op.BoolAttr("bias_after_scale").value_or(true))};
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
  if (op.type() == "all_to_all") return absl::OkStatus();
  // The first dimension of what all ranks have together is n times that of a rank.
  WEFT_ASSIGN_OR_RETURN(ValueType type, ReadType(form->type));
  const int64_t nranks = op.IntAttr("nranks").value_or(0);
  if (type.kind != ValueType::Kind::kTensor || type.dims.empty() || nranks <= 0) {
    return absl::UnimplementedError(
        absl::StrCat("expected a tensor with dimensions and a number of ranks, found ",
                     form->type.substr(0, 128), " and ", nranks));
  }
  if (type.dims[0] >= 0) {
    type.dims[0] = op.type() == "all_gather" ? type.dims[0] * nranks : type.dims[0] / nranks;
  }
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

absl::Status NewOps::AddClip(const Op& op, Form* form) {
  WEFT_ASSIGN_OR_RETURN(const ValueType type, ReadType(form->type));
  for (const char* const bound : {"min", "max"}) {
    WEFT_ASSIGN_OR_RETURN(NewOp made, Constant(op.FloatAttr(bound).value_or(0), type.dtype));
    form->operands.push_back(made.results[0]);
    form->before.push_back(std::move(made));
  }
  return absl::OkStatus();
}

absl::Status NewOps::AddSlice(const Op& op, Form* form) {
  WEFT_ASSIGN_OR_RETURN(const ValueType from, ReadType(form->type));
  std::vector<int64_t> dims = from.dims;
  const auto ints = [&op](absl::string_view name) {
    return op.IntsAttr(name).value_or(std::vector<int64_t>());
  };
  const std::vector<int64_t> axes = ints("axes"), starts = ints("starts"), ends = ints("ends");
  if (starts.size() != axes.size() || ends.size() != axes.size()) {
    return absl::UnimplementedError("expected a start and an end for each of the axes");
  }
  for (size_t k = 0; k < axes.size(); ++k) {
    const bool has_axis = axes[k] >= 0 && axes[k] < static_cast<int64_t>(dims.size());
    if (!has_axis || starts[k] < 0 || ends[k] < starts[k] || ends[k] > dims[axes[k]]) {
      return absl::UnimplementedError(absl::StrCat("expected part of a known dimension, found [",
                                                   starts[k], ", ", ends[k], ") of axis ", axes[k],
                                                   " of ", form->type.substr(0, 128)));
    }
    dims[axes[k]] = ends[k] - starts[k];
  }
  WEFT_ASSIGN_OR_RETURN(form->type, TensorTypeJson(from.dtype, dims));
  for (const std::vector<int64_t>& bounds : {starts, ends}) {
    WEFT_ASSIGN_OR_RETURN(NewOp made, Integers(bounds));
    form->operands.push_back(made.results[0]);
    form->before.push_back(std::move(made));
  }
  form->attrs = {
      AttrJson("axes", "0.a_array", IntegersJson(axes)),
      AttrJson("infer_flags", "0.a_array", IntegersJson(std::vector<int64_t>(axes.size(), 1))),
      AttrJson("decrease_axis", "0.a_array", IntegersJson({}))};
  return absl::OkStatus();
}

absl::Status NewOps::AddSum(absl::Span<const NewOpInput> inputs, Form* form) {
  std::vector<std::string> types;
  for (const NewOpInput& input : inputs) types.emplace_back(input.type);
  WEFT_ASSIGN_OR_RETURN(NewOp combine, Make(kCombineOp, form->operands, {}, {ListTypeJson(types)}));
  form->operands = {combine.results[0]};
  form->before.push_back(std::move(combine));
  return absl::OkStatus();
}

absl::Status NewOps::AddDraw(const Op& op, Form* form) {
  const std::vector<int64_t> dims = op.IntsAttr("shape").value_or(std::vector<int64_t>());
  const auto dtype =
      static_cast<pb::VarType::Type>(op.IntAttr("dtype").value_or(pb::VarType::FP32));
  WEFT_ASSIGN_OR_RETURN(form->type, TensorTypeJson(dtype, dims));
  WEFT_ASSIGN_OR_RETURN(const absl::string_view name, DTypeName(dtype));
  WEFT_ASSIGN_OR_RETURN(NewOp shape, Integers(dims));
  form->operands.push_back(shape.results[0]);
  form->before.push_back(std::move(shape));
  form->attrs = {FloatJson("mean", op.FloatAttr("mean").value_or(0)),
                 FloatJson("std", op.FloatAttr("std").value_or(1)),
                 IntJson("seed", op.IntAttr("seed").value_or(0)), DTypeJson(name), AnyPlaceJson()};
  return absl::OkStatus();
}

absl::Status NewOps::AddProduct(const Op& op, absl::Span<const NewOpInput> inputs, Form* form) {
  std::vector<int64_t> dims;
  const bool transposed[] = {op.BoolAttr("trans_x").value_or(false),
                             op.BoolAttr("trans_y").value_or(false)};
  for (size_t k = 0; k < 2 && inputs.size() == 2; ++k) {
    WEFT_ASSIGN_OR_RETURN(const ValueType type, ReadType(inputs[k].type));
    if (type.kind != ValueType::Kind::kTensor || type.dims.size() != 2) break;
    // The rows of the first, the columns of the second.
    dims.push_back(type.dims[(k == 1) != transposed[k] ? 1 : 0]);
  }
  if (dims.size() != 2) return absl::UnimplementedError("expected two matrices");
  WEFT_ASSIGN_OR_RETURN(const ValueType first, ReadType(inputs[0].type));
  WEFT_ASSIGN_OR_RETURN(form->type, TensorTypeJson(first.dtype, dims));
  form->attrs = {BoolJson("transpose_x", transposed[0]), BoolJson("transpose_y", transposed[1])};
  return absl::OkStatus();
}

absl::StatusOr<std::vector<NewOp>> NewOps::Factors(const Op& op, const NewOpInput& input) {
  WEFT_ASSIGN_OR_RETURN(const ValueType type, ReadType(input.type));
  const std::string mode = op.StringAttr("mode").value_or("reduced");
  const bool is_tall = type.kind == ValueType::Kind::kTensor && type.dims.size() == 2 &&
                       type.dims[0] >= type.dims[1] && type.dims[1] >= 0;
  if (!is_tall || mode != "reduced" || op.output_args().size() != 2) {
    return absl::UnimplementedError(
        absl::StrCat("expected two factors, mode reduced, of a matrix with at least as many rows "
                     "as columns, found mode ",
                     mode, " and ", input.type.substr(0, 128)));
  }
  WEFT_ASSIGN_OR_RETURN(const std::string triangle,
                        TensorTypeJson(type.dtype, {type.dims[1], type.dims[1]}));
  std::vector<NewOp> ops;
  WEFT_ASSIGN_OR_RETURN(ops.emplace_back(),
                        Make(FindRuleOfDesc(op.type())->pir, {input.id}, {StringJson("mode", mode)},
                             {std::string(input.type), triangle}));
  return ops;
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
  const FormRow& row = *FindForm(desc);
  WEFT_RETURN_IF_ERROR(CheckAttributes(op, row));
  if (desc == "split" && inputs.size() == 1) return SplitEqually(op, inputs[0]);
  if (desc == "qr" && inputs.size() == 1) return Factors(op, inputs[0]);
  const bool fills = desc == "fill_constant", draws = desc == "gaussian_random";
  if (inputs.empty() != (fills || draws) || op.output_args().size() != 1) {
    return absl::UnimplementedError(
        absl::StrCat("expected ", fills || draws ? "no inputs" : "inputs",
                     " and one output, found ", inputs.size(), " and ", op.output_args().size()));
  }
  const bool is_in_place = !inputs.empty() && op.output_args()[0] == inputs[0].var;
  Form form;
  if (fills) {
    WEFT_ASSIGN_OR_RETURN(NewOp made, Fill(op, output.is_persistable));
    form.before.push_back(std::move(made));
  } else {
    form.name = std::string(FindRuleOfDesc(desc)->pir);
    if (!inputs.empty()) form.type = std::string(inputs[0].type);
    for (const NewOpInput& input : inputs) form.operands.push_back(input.id);
    if (desc == "scale") WEFT_RETURN_IF_ERROR(AddScale(op, &form));
    if (IsCollective(form.name)) WEFT_RETURN_IF_ERROR(AddCollective(op, &form));
    if (desc == "cast") WEFT_RETURN_IF_ERROR(AddCast(op, &form));
    if (desc == "clip") WEFT_RETURN_IF_ERROR(AddClip(op, &form));
    if (draws) WEFT_RETURN_IF_ERROR(AddDraw(op, &form));
    if (desc == "matmul_v2") WEFT_RETURN_IF_ERROR(AddProduct(op, inputs, &form));
    if (desc == "slice") WEFT_RETURN_IF_ERROR(AddSlice(op, &form));
    if (desc == "sum") WEFT_RETURN_IF_ERROR(AddSum(inputs, &form));
    if (desc == "increment") form.attrs = {FloatJson("value", op.FloatAttr("step").value_or(1))};
    if (row.makes_booleans) {
      WEFT_ASSIGN_OR_RETURN(const ValueType type, ReadType(form.type));
      WEFT_ASSIGN_OR_RETURN(form.type, TensorTypeJson(pb::VarType::BOOL, type.dims));
    }
    AddHints(op, row, &form.attrs);
    if (!stream.empty()) {
      form.attrs.push_back(StringJson("execution_stream", stream));
      form.attrs.push_back(AttrJson("scheduling_priority", "0.a_i64", "-1"));
    }
    // In place, Paddle's executor loses the name that 0.set_parameter gives to what a startup
    // program broadcasts.
    const bool overwrites =
        is_in_place && row.has_in_place && (output.is_bound || desc == "all_reduce");
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
