// Tensors made from attributes.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "base/status_macros.h"
#include "ops/cpu/computed_attrs.h"
#include "ops/cpu/families.h"
#include "ops/cpu/shape_attr.h"
#include "ops/kernel_util.h"
#include "ops/op_kernel.h"

namespace weft {
namespace {

// The bytes of one element; the first SizeOf(dtype) count.
using Element = std::array<char, 16>;

template <typename T>
Element BytesOf(T value) {
  Element element{};
  std::memcpy(element.data(), &value, sizeof(value));
  return element;
}

// A number as attributes give it: exactly, where it is an integer.
struct Constant {
  double value;
  absl::optional<int64_t> integer;
};

absl::StatusOr<Constant> ConstantFromAttrs(const OpAttrs& attrs) {
  const std::string& text = attrs.String("str_value");
  Constant constant;
  if (text.empty()) {
    constant.value = attrs.Float("value");
    return constant;
  }
  int64_t integer;
  if (absl::SimpleAtoi(text, &integer)) constant.integer = integer;
  if (!absl::SimpleAtod(text, &constant.value)) {
    return absl::InvalidArgumentError(
        absl::StrCat("attribute str_value: '", text, "' is no number"));
  }
  return constant;
}

template <typename T>
absl::StatusOr<Element> IntegerElement(const Constant& constant, DType dtype) {
  // The limits of int64 are not exact as double: the upper one is the first number beyond.
  const bool fits =
      constant.integer
          ? *constant.integer >= std::numeric_limits<T>::min() &&
                *constant.integer <= std::numeric_limits<T>::max()
          : std::trunc(constant.value) >= static_cast<double>(std::numeric_limits<T>::min()) &&
                constant.value < std::ldexp(1.0, std::numeric_limits<T>::digits);
  if (!fits) {
    return absl::InvalidArgumentError(
        absl::StrCat("attribute value: ", constant.value, " does not fit ", DTypeName(dtype)));
  }
  return BytesOf(constant.integer ? static_cast<T>(*constant.integer)
                                  : static_cast<T>(constant.value));
}

absl::StatusOr<Element> EncodeElement(const Constant& constant, DType dtype) {
  switch (dtype) {
    case DType::kBool:
      return BytesOf(constant.value != 0);
    case DType::kInt8:
      return IntegerElement<int8_t>(constant, dtype);
    case DType::kUint8:
      return IntegerElement<uint8_t>(constant, dtype);
    case DType::kInt16:
      return IntegerElement<int16_t>(constant, dtype);
    case DType::kInt32:
      return IntegerElement<int32_t>(constant, dtype);
    case DType::kInt64:
      return IntegerElement<int64_t>(constant, dtype);
    case DType::kFloat16:
      return BytesOf(Float16(constant.value));
    case DType::kBFloat16:
      return BytesOf(BFloat16(static_cast<float>(constant.value)));
    case DType::kFloat32:
    case DType::kComplex64:  // the imaginary part is 0
      return BytesOf(static_cast<float>(constant.value));
    case DType::kFloat64:
    case DType::kComplex128:
      return BytesOf(constant.value);
    default:
      return absl::UnimplementedError(
          absl::StrCat("attribute dtype: no kernel for element type ", DTypeName(dtype)));
  }
}

// Out, of attributes shape and dtype, is str_value everywhere, or value where that is empty.
absl::StatusOr<Kernel> FillConstant(const KernelSpec& spec) {
  WEFT_RETURN_IF_ERROR(NoInputs(spec, {"ValueTensor"}));
  WEFT_ASSIGN_OR_RETURN(const int out_index, RequiredOutput(spec, "Out"));
  WEFT_ASSIGN_OR_RETURN(const TensorType type, TypeFromAttrs(spec));
  WEFT_ASSIGN_OR_RETURN(const Constant constant, ConstantFromAttrs(spec.attrs));
  WEFT_ASSIGN_OR_RETURN(const Element element, EncodeElement(constant, type.dtype));
  return Kernel([=](const KernelContext& ctx) {
    Tensor* out = ctx.out(out_index);
    out->Resize(type.dtype, type.dims);
    char* to = static_cast<char*>(out->raw());
    const size_t width = SizeOf(type.dtype);
    for (size_t i = 0; i < out->bytes(); i += width) std::memcpy(to + i, element.data(), width);
    return absl::OkStatus();
  });
}

template <typename T, typename From>
absl::Status CopyValues(const std::vector<From>& values, Tensor& out) {
  if (static_cast<int64_t>(values.size()) != out.size()) {
    return absl::InvalidArgumentError(absl::StrCat("attribute shape: expected one of ",
                                                   values.size(), " elements, found ",
                                                   DimsToString(out.dims())));
  }
  std::transform(values.begin(), values.end(), out.data<T>(),
                 [](From value) { return static_cast<T>(value); });
  return absl::OkStatus();
}

// Out = the values of the attribute for its element type.
absl::StatusOr<Kernel> AssignValue(const KernelSpec& spec) {
  OpKernel op(spec);
  const Out out = op.out("Out");
  WEFT_ASSIGN_OR_RETURN(const TensorType type, TypeFromAttrs(spec));
  return op.Make([=, attrs = spec.attrs](const KernelContext& ctx) -> absl::Status {
    switch (type.dtype) {
      case DType::kBool:
        return CopyValues<bool>(attrs.Ints("bool_values"), out(ctx));
      case DType::kInt32:
        return CopyValues<int32_t>(attrs.Ints("int32_values"), out(ctx));
      case DType::kInt64:
        return CopyValues<int64_t>(attrs.Ints("int64_values"), out(ctx));
      case DType::kFloat32:
        return CopyValues<float>(attrs.Floats("fp32_values"), out(ctx));
      case DType::kFloat64:
        return CopyValues<double>(attrs.Floats("fp64_values"), out(ctx));
      default:
        return absl::UnimplementedError(
            absl::StrCat("attribute dtype: no kernel for element type ", DTypeName(type.dtype)));
    }
  });
}

// Out = 1 on the diagonal, 0 elsewhere.
absl::StatusOr<Kernel> Eye(const KernelSpec& spec) {
  OpKernel op(spec);
  const Out out = op.out("Out");
  return op.Make([=](const KernelContext& ctx) {
    return ForArithmeticType("output Out", out(ctx), [&](auto tag) {
      using T = typename decltype(tag)::type;
      const int64_t rows = out(ctx).dim(0), columns = out(ctx).dim(1);
      T* to = out.data<T>(ctx);
      std::fill_n(to, out(ctx).size(), T(0));
      for (int64_t i = 0; i < std::min(rows, columns); ++i) to[i * columns + i] = T(1);
      return absl::OkStatus();
    });
  });
}

absl::StatusOr<double> OneNumber(absl::string_view slot, const Tensor& tensor) {
  WEFT_RETURN_IF_ERROR(CheckSize(slot, tensor, 1));
  double value = 0;
  WEFT_RETURN_IF_ERROR(ForNumberType(slot, tensor, [&](auto tag) {
    value = static_cast<double>(*tensor.data<typename decltype(tag)::type>());
    return absl::OkStatus();
  }));
  return value;
}

// Out = Num numbers from Start to Stop at equal distances, counted from the nearer end.
absl::StatusOr<Kernel> Linspace(const KernelSpec& spec) {
  OpKernel op(spec);
  const In start = op.in("Start"), stop = op.in("Stop"), num = op.in("Num");
  const Out out = op.out("Out");
  // Inference refuses numbers of no element type.
  const DType dtype =
      DTypeFromProto(static_cast<int>(spec.attrs.Int("dtype"))).value_or(DType::kFloat32);
  return op.Make([=](const KernelContext& ctx) -> absl::Status {
    WEFT_ASSIGN_OR_RETURN(const double first, OneNumber("Start", start(ctx)));
    WEFT_ASSIGN_OR_RETURN(const double last, OneNumber("Stop", stop(ctx)));
    WEFT_ASSIGN_OR_RETURN(const double number, OneNumber("Num", num(ctx)));
    if (!(number >= 1 && number < static_cast<double>(kMaxElements))) {
      return absl::InvalidArgumentError(
          absl::StrCat("input Num: expected 1 or more, found ", number));
    }
    const int64_t count = static_cast<int64_t>(number);
    const double step = count == 1 ? 0 : (last - first) / static_cast<double>(count - 1);
    out(ctx).Resize(dtype, {count});
    return ForNumberType("output Out", out(ctx), [&](auto tag) {
      using T = typename decltype(tag)::type;
      for (int64_t i = 0; i < count; ++i) {
        const bool from_first = i < count / 2 || count == 1;
        out.data<T>(ctx)[i] =
            Saturated<T>(from_first ? first + step * static_cast<double>(i)
                                    : last - step * static_cast<double>(count - 1 - i));
      }
      return absl::OkStatus();
    });
  });
}

}  // namespace

void AddCreationKernels(KernelTable* table) {
  table->Add("assign_value", AssignValue);
  table->Add("eye", Eye);
  table->Add("fill_constant",
             WithComputedAttrs({{{"shape"}, "ShapeTensor", "ShapeTensorList"}}, FillConstant));
  table->Add("linspace", Linspace);
}

}  // namespace weft
