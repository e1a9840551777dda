#include "proto/formats/pir/new_op.h"

#include <limits>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"
#include "proto/formats/pir/attribute_json.h"
#include "proto/formats/pir/document.h"
#include "proto/formats/pir/value_type.h"

namespace weft::pir {
namespace {

absl::StatusOr<std::vector<int64_t>> StaticDims(const NewOpInput& part, const ValueType& type) {
  if (type.kind == ValueType::Kind::kTensor &&
      absl::c_all_of(type.dims, [](int64_t dim) { return dim >= 0; })) {
    return type.dims;
  }
  return absl::UnimplementedError(
      absl::StrCat("%", part.id, ": expected a dense tensor of known dimensions, found ",
                   part.type.substr(0, 128)));
}

int64_t ProductOf(absl::Span<const int64_t> dims) {
  int64_t product = 1;
  for (const int64_t dim : dims) product *= dim;
  return product;
}

}  // namespace

absl::StatusOr<NewOp> NewOps::Make(absl::string_view name, absl::Span<const int64_t> operands,
                                   absl::Span<const std::string> attrs,
                                   std::vector<std::string> types, bool is_persistable) {
  NewOp op;
  op.name = std::string(name);
  if (static_cast<uint64_t>(std::numeric_limits<int64_t>::max() - max_id_) < types.size()) {
    return absl::OutOfRangeError(absl::StrCat("no ids are left above ", max_id_));
  }
  absl::StrAppend(&op.json, R"({"#":")", name, R"(","A":[)", absl::StrJoin(attrs, ","),
                  R"(],"I":[)");
  for (size_t k = 0; k < operands.size(); ++k) {
    absl::StrAppend(&op.json, k == 0 ? "" : ",", R"({"%":)", operands[k], "}");
  }
  absl::StrAppend(&op.json, R"(],"O":[)");
  for (const std::string& type : types) {
    const absl::string_view comma = op.results.empty() ? "" : ",";
    op.results.push_back(++max_id_);
    absl::StrAppend(&op.json, comma, R"({"%":)", max_id_, R"(,"TT":)", type, "}");
  }
  const std::string flags = FlagsJson(std::vector<bool>(types.size(), true));
  absl::StrAppend(&op.json, R"(],"OA":[)");
  if (is_persistable) absl::StrAppend(&op.json, AttrJson("persistable", "0.a_array", flags), ",");
  if (!types.empty()) absl::StrAppend(&op.json, AttrJson("stop_gradient", "0.a_array", flags));
  absl::StrAppend(&op.json, "]}");
  op.types = std::move(types);
  return op;
}

absl::StatusOr<NewOp> NewOps::Full(absl::Span<const int64_t> dims, double value,
                                   pb::VarType::Type dtype, const std::string& place,
                                   bool is_persistable) {
  WEFT_ASSIGN_OR_RETURN(const std::string json, TensorTypeJson(dtype, {dims.begin(), dims.end()}));
  WEFT_ASSIGN_OR_RETURN(const absl::string_view name, DTypeName(dtype));
  return Make("1.full", {},
              {ShapeJson(dims), NumberJson("value", "0.a_f64", value), DTypeJson(name), place},
              {json}, is_persistable);
}

absl::StatusOr<NewOp> NewOps::Zeros(absl::string_view type) {
  WEFT_ASSIGN_OR_RETURN(const ValueType read, ReadType(type));
  if (absl::c_any_of(read.dims, [](int64_t d) { return d < 0; })) {
    return absl::UnimplementedError(
        "expected known dimensions of what a new block writes and nothing before it");
  }
  return Full(read.dims, 0, read.dtype, AnyPlaceJson(), /*is_persistable=*/false);
}

absl::StatusOr<NewOp> NewOps::Constant(double value, pb::VarType::Type dtype) {
  return Full({1}, value, dtype, HostJson(), /*is_persistable=*/false);
}

absl::StatusOr<NewOp> NewOps::Integers(absl::Span<const int64_t> values) {
  WEFT_ASSIGN_OR_RETURN(const std::string json,
                        TensorTypeJson(pb::VarType::INT64, {static_cast<int64_t>(values.size())}));
  return Make(
      "1.full_int_array", {},
      {AttrJson("value", "0.a_array", IntegersJson(values)), DTypeJson("int64"), HostJson()},
      {json});
}

absl::StatusOr<std::vector<NewOp>> NewOps::SplitEqually(const Op& op, const NewOpInput& input) {
  WEFT_ASSIGN_OR_RETURN(const ValueType whole, ReadType(input.type));
  WEFT_ASSIGN_OR_RETURN(std::vector<int64_t> dims, StaticDims(input, whole));
  const auto parts = static_cast<int64_t>(op.output_args().size());
  const int64_t axis = op.IntAttr("axis").value_or(0), num = op.IntAttr("num").value_or(0);
  const bool has_axis = axis >= 0 && axis < static_cast<int64_t>(dims.size());
  if (!has_axis || num != parts || dims[axis] % parts != 0) {
    return absl::UnimplementedError(absl::StrCat("expected ", parts, " equal parts along axis ",
                                                 axis, ", found num ", num, " of ",
                                                 input.type.substr(0, 128)));
  }
  dims[axis] /= parts;
  WEFT_ASSIGN_OR_RETURN(const std::string type, TensorTypeJson(whole.dtype, dims));
  const std::vector<std::string> types(parts, type);
  std::vector<NewOp> ops;
  WEFT_ASSIGN_OR_RETURN(ops.emplace_back(),
                        Constant(static_cast<double>(axis), pb::VarType::INT32));
  WEFT_ASSIGN_OR_RETURN(NewOp split, Make("1.split_with_num", {input.id, ops[0].results[0]},
                                          {IntJson("num", num)}, {ListTypeJson(types)}));
  ops.push_back(std::move(split));
  WEFT_ASSIGN_OR_RETURN(NewOp elements, Make(kSplitOp, {ops[1].results[0]}, {}, types));
  ops.push_back(std::move(elements));
  return ops;
}

absl::StatusOr<int64_t> NewOps::Reshape(int64_t id, absl::Span<const int64_t> dims,
                                        std::string type, Take take) {
  WEFT_ASSIGN_OR_RETURN(NewOp shape, Integers(dims));
  WEFT_ASSIGN_OR_RETURN(NewOp reshape,
                        Make("1.reshape", {id, shape.results[0]}, {}, {std::move(type)}));
  WEFT_RETURN_IF_ERROR(take(shape));
  WEFT_RETURN_IF_ERROR(take(reshape));
  return reshape.results[0];
}

absl::StatusOr<NewOp> NewOps::Concatenate(absl::Span<const NewOpInput> parts, Take take) {
  std::vector<int64_t> ids;
  std::vector<std::string> types;
  int64_t total = 0;
  pb::VarType::Type dtype = pb::VarType::FP32;
  for (const NewOpInput& part : parts) {
    WEFT_ASSIGN_OR_RETURN(const ValueType type, ReadType(part.type));
    WEFT_ASSIGN_OR_RETURN(const std::vector<int64_t> dims, StaticDims(part, type));
    const int64_t elements = ProductOf(dims);
    dtype = type.dtype;
    total += elements;
    WEFT_ASSIGN_OR_RETURN(types.emplace_back(), TensorTypeJson(dtype, {elements}));
    if (dims.size() == 1) {
      ids.push_back(part.id);
      continue;
    }
    WEFT_ASSIGN_OR_RETURN(ids.emplace_back(), Reshape(part.id, {elements}, types.back(), take));
  }
  WEFT_ASSIGN_OR_RETURN(NewOp combine, Make(kCombineOp, ids, {}, {ListTypeJson(types)}));
  WEFT_ASSIGN_OR_RETURN(NewOp axis, Constant(0, pb::VarType::INT32));
  WEFT_ASSIGN_OR_RETURN(const std::string type, TensorTypeJson(dtype, {total}));
  WEFT_ASSIGN_OR_RETURN(NewOp concat,
                        Make("1.concat", {combine.results[0], axis.results[0]}, {}, {type}));
  for (const NewOp* op : {&combine, &axis, &concat}) WEFT_RETURN_IF_ERROR(take(*op));
  return concat;
}

absl::StatusOr<std::vector<int64_t>> NewOps::Split(int64_t id, absl::Span<const NewOpInput> parts,
                                                   Take take) {
  std::vector<int64_t> sections;
  std::vector<std::string> types;
  std::vector<std::vector<int64_t>> all_dims;
  for (const NewOpInput& part : parts) {
    WEFT_ASSIGN_OR_RETURN(const ValueType type, ReadType(part.type));
    WEFT_ASSIGN_OR_RETURN(all_dims.emplace_back(), StaticDims(part, type));
    sections.push_back(ProductOf(all_dims.back()));
    WEFT_ASSIGN_OR_RETURN(types.emplace_back(), TensorTypeJson(type.dtype, {sections.back()}));
  }
  WEFT_ASSIGN_OR_RETURN(NewOp sizes, Integers(sections));
  WEFT_ASSIGN_OR_RETURN(NewOp axis, Constant(0, pb::VarType::INT32));
  WEFT_ASSIGN_OR_RETURN(NewOp split, Make("1.split", {id, sizes.results[0], axis.results[0]}, {},
                                          {ListTypeJson(types)}));
  WEFT_ASSIGN_OR_RETURN(NewOp elements, Make(kSplitOp, {split.results[0]}, {}, std::move(types)));
  for (const NewOp* op : {&sizes, &axis, &split, &elements}) WEFT_RETURN_IF_ERROR(take(*op));
  std::vector<int64_t> ids = std::move(elements.results);
  for (size_t k = 0; k < parts.size(); ++k) {
    if (all_dims[k].size() == 1) continue;
    WEFT_ASSIGN_OR_RETURN(ids[k], Reshape(ids[k], all_dims[k], std::string(parts[k].type), take));
  }
  return ids;
}

}  // namespace weft::pir
