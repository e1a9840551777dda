#include "tests/mutation/mutated_op.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "ops/kernel_util.h"
#include "ops/schema/op_attrs.h"
#include "ops/schema/op_schema.h"

namespace weft::testing {
namespace {

using Attr = paddle::framework::proto::OpDesc::Attr;

constexpr int64_t kMaxElements = (1 << 20) / sizeof(double);
constexpr char kNoVariable[] = "@EMPTY@";

const std::vector<int64_t>& Integers() {
  static const auto* const integers = new std::vector<int64_t>{
      0,
      1,
      -1,
      2,
      -2,
      3,
      7,
      100,
      -100,
      1 << 16,
      std::numeric_limits<int32_t>::max(),
      std::numeric_limits<int32_t>::min(),
      int64_t{1} << 32,
      (int64_t{1} << 48) + 1,
      std::numeric_limits<int64_t>::max(),
      std::numeric_limits<int64_t>::min(),
  };
  return *integers;
}

const std::vector<double>& Reals() {
  static const auto* const reals = new std::vector<double>{
      0,
      -0.0,
      1,
      -1,
      0.5,
      1e-45,
      3e38,
      -3e38,
      5e9,
      std::numeric_limits<double>::infinity(),
      -std::numeric_limits<double>::infinity(),
      std::numeric_limits<double>::quiet_NaN(),
  };
  return *reals;
}

// Calls run(T()) with the element type; not for half precision and complex numbers.
template <typename Run>
bool ForNumbers(Tensor* tensor, Run run) {
  return ForArithmeticType("", *tensor,
                           [&](auto tag) {
                             run(typename decltype(tag)::type());
                             return absl::OkStatus();
                           })
      .ok();
}

// A tensor of these dims and type with the elements of another one, over and over.
Tensor Reshaped(const Tensor& from, DType dtype, const Dims& dims) {
  Tensor to;
  to.Resize(dtype, dims);
  if (to.size() == 0) return to;
  std::memset(to.raw(), 0, to.bytes());
  if (from.size() == 0) return to;
  Tensor source = from.is_rows() ? from.RowValues() : from;
  if (dtype == source.dtype()) {
    const size_t width = SizeOf(dtype);
    for (int64_t i = 0; i < to.size(); ++i) {
      std::memcpy(static_cast<char*>(to.raw()) + i * width,
                  static_cast<const char*>(source.raw()) + i % source.size() * width, width);
    }
    return to;
  }
  ForNumbers(&source, [&](auto from_zero) {
    ForNumbers(&to, [&](auto to_zero) {
      using From = decltype(from_zero);
      using To = decltype(to_zero);
      for (int64_t i = 0; i < to.size(); ++i) {
        const auto value = static_cast<double>(source.data<From>()[i % source.size()]);
        to.data<To>()[i] = Saturated<To>(value);
      }
    });
  });
  return to;
}

// An input that holds something; null: there is none.
Tensor* AnyInput(OpOnValues* op, Draws* draws, std::string* name) {
  std::vector<std::string> candidates;
  for (const auto& slot : op->inputs) {
    for (const std::string& variable : slot.second) {
      if (variable != kNoVariable && op->values.at(variable).allocated()) {
        candidates.push_back(variable);
      }
    }
  }
  if (candidates.empty()) return nullptr;
  *name = draws->Of(candidates);
  return &op->values.at(*name);
}

std::string ChangeDims(OpOnValues* op, Draws* draws) {
  std::string name;
  Tensor* tensor = AnyInput(op, draws, &name);
  if (tensor == nullptr || tensor->is_rows()) return "";
  Dims dims = tensor->dims();
  const size_t axis = dims.empty() ? 0 : draws->Below(dims.size());
  switch (dims.empty() ? 7 : draws->Below(9)) {
    case 0:
      dims[axis] = 0;
      break;
    case 1:
      dims[axis] = 1;
      break;
    case 2:
      ++dims[axis];
      break;
    case 3:
      dims[axis] = std::max<int64_t>(dims[axis] - 1, 0);
      break;
    case 4:
      dims[axis] = draws->OneIn(2) ? 1000 : 70000;
      break;
    case 5:
      std::swap(dims[axis], dims[draws->Below(dims.size())]);
      break;
    case 6:
      dims.erase(dims.begin() + axis);
      break;
    case 7:
      dims.insert(dims.begin() + axis, 1 + draws->Below(2));
      break;
    default:
      dims = {};
      break;
  }
  if (NumElements(dims) > kMaxElements) return "";
  *tensor = Reshaped(*tensor, tensor->dtype(), dims);
  return absl::StrCat(name, " has dims ", DimsToString(dims));
}

std::string ChangeElementType(OpOnValues* op, Draws* draws) {
  static const auto* const types = new std::vector<DType>{
      DType::kBool,    DType::kInt16,   DType::kInt32,     DType::kInt64,      DType::kFloat16,
      DType::kUint8,   DType::kFloat32, DType::kFloat64,   DType::kInt8,       DType::kBFloat16,
      DType::kFloat64, DType::kInt64,   DType::kComplex64, DType::kFloat8E4M3, DType::kInt32};
  std::string name;
  Tensor* tensor = AnyInput(op, draws, &name);
  if (tensor == nullptr || tensor->is_rows()) return "";
  const DType type = draws->Of(*types);
  if (type == tensor->dtype()) return "";
  *tensor = Reshaped(*tensor, type, tensor->dims());
  return absl::StrCat(name, " has type ", DTypeName(type));
}

// One element, or all of them: ids, labels, offsets, sizes, and what is divided by.
std::string ChangeElements(OpOnValues* op, Draws* draws) {
  std::string name, text;
  Tensor* tensor = AnyInput(op, draws, &name);
  if (tensor == nullptr || tensor->size() == 0) return "";
  *tensor = tensor->Clone();
  const size_t size = tensor->size();
  const bool all = draws->OneIn(3);
  const size_t at = draws->Below(size);
  ForNumbers(tensor, [&](auto zero) {
    using T = decltype(zero);
    T value;
    if constexpr (std::is_floating_point_v<T>) {
      value = static_cast<T>(draws->Of(Reals()));
    } else {
      value = static_cast<T>(draws->Of(Integers()));
    }
    if (all) {
      std::fill_n(tensor->data<T>(), size, value);
    } else {
      tensor->data<T>()[at] = value;
    }
    text = absl::StrCat(name, all ? " has only " : absl::StrCat(" has at ", at, " "), +value);
  });
  return text;
}

std::string MakeRows(OpOnValues* op, Draws* draws) {
  std::string name;
  Tensor* tensor = AnyInput(op, draws, &name);
  if (tensor == nullptr || tensor->rank() == 0 || NumElements(tensor->dims()) > 4096) return "";
  if (tensor->is_rows() && draws->OneIn(2)) {
    *tensor = tensor->RowValues().Clone();
    return absl::StrCat(name, " is dense");
  }
  Tensor rows;
  const int64_t num_rows = draws->OneIn(4) ? 0 : tensor->dim(0);
  Dims dims = tensor->is_rows() ? tensor->TallDims() : tensor->dims();
  dims[0] += static_cast<int64_t>(draws->Below(3));
  if (dims[0] == 0 && num_rows > 0) return "";
  rows.ResizeRows(tensor->dtype(), dims, num_rows);
  if (rows.bytes() > 0) std::memcpy(rows.raw(), tensor->raw(), rows.bytes());
  for (int64_t& row : rows.mutable_rows()) row = static_cast<int64_t>(draws->Below(dims[0]));
  *tensor = rows;
  return absl::StrCat(name, " is ", num_rows, " rows of ", DimsToString(dims));
}

std::string HoldNothing(OpOnValues* op, Draws* draws) {
  std::string name;
  Tensor* tensor = AnyInput(op, draws, &name);
  if (tensor == nullptr) return "";
  *tensor = Tensor();
  return absl::StrCat(name, " has no value");
}

std::string ChangeSlot(OpOnValues* op, Draws* draws) {
  const bool of_inputs = draws->OneIn(2);
  OpOnValues::Slots& slots = of_inputs ? op->inputs : op->outputs;
  if (slots.empty()) return "";
  auto slot = slots.begin();
  std::advance(slot, draws->Below(slots.size()));
  const std::string name = absl::StrCat(of_inputs ? "input " : "output ", slot->first);
  std::vector<std::string>& variables = slot->second;
  switch (draws->Below(7)) {
    case 0:
      slots.erase(slot);
      return absl::StrCat(name, " is missing");
    case 1:
      variables.clear();
      return absl::StrCat(name, " is empty");
    case 2:
      if (variables.empty()) return "";
      variables[draws->Below(variables.size())] = kNoVariable;
      return absl::StrCat(name, " has no variable");
    case 3:
      if (variables.empty()) return "";
      variables.pop_back();
      return absl::StrCat(name, " has a variable less");
    case 4:
      if (variables.empty()) return "";
      if (of_inputs) {
        variables.push_back(variables[0]);
      } else {
        variables.push_back(absl::StrCat(variables[0], ".more"));
        op->values[variables.back()] = Tensor();
      }
      return absl::StrCat(name, " has a variable more");
    case 5: {
      // Optional slots that the case does not use.
      const OpSchema& schema = *FindOpSchema(op->type);
      const std::vector<SlotSchema>& all = of_inputs ? schema.inputs() : schema.outputs();
      const std::string unused = draws->Of(all).name;
      if (slots.count(unused) > 0) return "";
      std::string variable;
      if (of_inputs) {
        if (AnyInput(op, draws, &variable) == nullptr) return "";
      } else {
        variable = absl::StrCat(unused, ".new");
        op->values[variable] = Tensor();
      }
      slots[unused] = {variable};
      return absl::StrCat(of_inputs ? "input " : "output ", unused, " is ", variable);
    }
    default:
      slots["Unknown"] = variables;
      return absl::StrCat(name, " is in an unknown slot too");
  }
}

// An output takes the place of an input, or a variable is given twice.
std::string ChangeVariable(OpOnValues* op, Draws* draws) {
  std::vector<std::string*> arguments;
  for (OpOnValues::Slots* slots : {&op->inputs, &op->outputs, &op->outputs}) {
    for (auto& slot : *slots) {
      for (std::string& variable : slot.second) arguments.push_back(&variable);
    }
  }
  std::string name;
  if (arguments.empty() || AnyInput(op, draws, &name) == nullptr) return "";
  std::string& argument = *draws->Of(arguments);
  const std::string text = absl::StrCat(argument, " is ", name);
  argument = name;
  return text;
}

template <typename Repeated, typename Values>
void ChangeList(Repeated* list, const Values& values, Draws* draws) {
  switch (list->empty() ? draws->Below(2) : draws->Below(5)) {
    case 0:
      list->Clear();
      break;
    case 1:
      list->Add(values[draws->Below(values.size())]);
      break;
    case 2:
      list->RemoveLast();
      break;
    default:
      *list->Mutable(draws->Below(list->size())) = values[draws->Below(values.size())];
  }
}

// A value of the same type.
void ChangeValue(Attr* attr, Draws* draws) {
  namespace proto = paddle::framework::proto;
  const std::vector<int64_t>& longs = Integers();
  const std::vector<double>& reals = Reals();
  static const auto* const texts = new std::vector<std::string>{
      "",  "none", "mean",  "sum",     "NCHW",    "NHWC", "SAME",  "VALID", "l2_decay",
      "0", "-1",   "1e400", "nearest", "reflect", "max",  "upper", "a->b",  "ij,jk->ik"};
  std::vector<int32_t> ints;
  for (int64_t value : longs) {
    if (static_cast<int32_t>(value) == value) ints.push_back(static_cast<int32_t>(value));
  }
  switch (attr->type()) {
    case proto::INT:
      attr->set_i(draws->OneIn(3) && attr->i() > -1000 && attr->i() < 1000
                      ? attr->i() + (draws->OneIn(2) ? 1 : -1)
                      : draws->Of(ints));
      break;
    case proto::LONG:
      attr->set_l(draws->Of(longs));
      break;
    case proto::FLOAT:
      attr->set_f(static_cast<float>(draws->Of(reals)));
      break;
    case proto::FLOAT64:
      attr->set_float64(draws->Of(reals));
      break;
    case proto::BOOLEAN:
      attr->set_b(!attr->b());
      break;
    case proto::STRING:
      attr->set_s(draws->Of(*texts));
      break;
    case proto::INTS:
      ChangeList(attr->mutable_ints(), ints, draws);
      break;
    case proto::LONGS:
      ChangeList(attr->mutable_longs(), longs, draws);
      break;
    case proto::FLOATS:
      ChangeList(attr->mutable_floats(), reals, draws);
      break;
    case proto::FLOAT64S:
      ChangeList(attr->mutable_float64s(), reals, draws);
      break;
    case proto::STRINGS:
      attr->add_strings(draws->Of(*texts));
      break;
    default:
      break;
  }
}

std::string ChangeAttr(OpOnValues* op, Draws* draws) {
  const std::vector<AttrSchema>& schemas = FindOpSchema(op->type)->attrs();
  if (schemas.empty()) return "";
  const AttrSchema& schema = draws->Of(schemas);
  // As many iterations as it asks for are made.
  if (schema.name == "power_iters") return "";
  if (draws->OneIn(10)) {
    return op->attrs.erase(schema.name) == 0 ? ""
                                             : absl::StrCat("attribute ", schema.name, " is gone");
  }
  Attr& attr =
      op->attrs.try_emplace(schema.name, MakeAttr(schema.name, schema.default_value)).first->second;
  if (draws->OneIn(20)) {
    const AttrSchema& other = draws->Of(schemas);
    attr = MakeAttr(schema.name, other.default_value);
  } else {
    ChangeValue(&attr, draws);
  }
  return absl::StrCat("attribute ", attr.ShortDebugString());
}

}  // namespace

std::string Mutate(OpOnValues* op, Draws* draws) {
  using Change = std::string (*)(OpOnValues*, Draws*);
  static const auto* const changes = new std::vector<Change>{
      ChangeDims,     ChangeDims, ChangeDims,  ChangeElementType, ChangeElements,
      ChangeElements, MakeRows,   HoldNothing, ChangeSlot,        ChangeSlot,
      ChangeVariable, ChangeAttr, ChangeAttr,  ChangeAttr,        ChangeAttr};
  constexpr int kAttempts = 100;  // not all changes fit all ops
  for (int i = 0; i < kAttempts; ++i) {
    const std::string text = draws->Of(*changes)(op, draws);
    if (!text.empty()) return text;
  }
  return "nothing";
}

}  // namespace weft::testing
