// Tensors made from attributes, or after the shape of another one.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <string>
#include <type_traits>
#include <vector>

#include "base/status_macros.h"
#include "ops/cpu/constant.h"
#include "ops/cpu/families.h"
#include "ops/kernel_util.h"
#include "ops/op_kernel.h"
#include "ops/threads.h"

namespace weft {
namespace {

template <typename T>
void FillWith(const void* element, void* to, int64_t n) {
  T value;
  std::memcpy(&value, element, sizeof(T));
  T* const all = static_cast<T*>(to);
  ForEachPartIfLong(n, n, 64, [=](int64_t begin, int64_t end) {
    if (value == T(0)) {
      std::memset(all + begin, 0, (end - begin) * sizeof(T));
    } else {
      std::fill(all + begin, all + end, value);
    }
  });
}

// Makes all elements of `to` that of `element`, bit by bit.
void FillWithElement(const Tensor& element, Tensor* to) {
  const int64_t n = to->size();
  switch (element.bytes()) {
    case 1:
      return FillWith<uint8_t>(element.raw(), to->raw(), n);
    case 2:
      return FillWith<uint16_t>(element.raw(), to->raw(), n);
    case 4:
      return FillWith<uint32_t>(element.raw(), to->raw(), n);
    case 8:
      return FillWith<uint64_t>(element.raw(), to->raw(), n);
    default:
      for (int64_t i = 0; i < n; ++i) {
        std::memcpy(static_cast<char*>(to->raw()) + i * element.bytes(), element.raw(),
                    element.bytes());
      }
  }
}

// Out, with attributes shape and dtype, is str_value everywhere, or value if that is empty.
absl::StatusOr<Kernel> FillConstant(OpKernel op) {
  const Out out = op.out("Out");
  WEFT_ASSIGN_OR_RETURN(const Tensor element, ConstantOf(op.spec()));
  return op.Supports(AllTypes(In())).Make([=](const KernelContext& ctx) {
    FillWithElement(element, &out(ctx));
  });
}

// Out = 0. In Paddle, its elements are whatever memory holds.
absl::StatusOr<Kernel> Empty(OpKernel op) {
  const Out out = op.out("Out");
  return op.Supports(AllTypes(In())).Make([=](const KernelContext& ctx) {
    std::memset(out(ctx).raw(), 0, out(ctx).bytes());
  });
}

template <typename T, typename From>
absl::Status CopyValues(const std::vector<From>& values, Tensor& out) {
  std::transform(values.begin(), values.end(), out.data<T>(),
                 [](From value) { return static_cast<T>(value); });
  return absl::OkStatus();
}

template <typename T>
absl::Status CopyScalars(const std::vector<Scalar>& scalars, Tensor& out) {
  std::vector<T> values;
  for (const Scalar& scalar : scalars) {
    values.push_back(std::visit([](auto value) { return static_cast<T>(value); }, scalar));
  }
  return CopyValues<T>(values, out);
}

// Out = values, or the values of the attribute for its element type, which Paddle 2 writes.
absl::StatusOr<Kernel> AssignValue(OpKernel op) {
  const Out out = op.out("Out");
  WEFT_ASSIGN_OR_RETURN(const TensorType type, TypeFromAttrs(op.spec()));
  return op.Supports(ElementTypesOf<bool, int32_t, int64_t, float, double>())
      .Make([=, attrs = op.attrs()](const KernelContext& ctx) {
        const std::string name = absl::StrCat(DTypeName(type.dtype), "_values");
        return ForElementType<bool, int32_t, int64_t, float, double>(
            "attribute dtype", out(ctx), [&](auto tag) {
              using T = typename decltype(tag)::type;
              const std::vector<Scalar>& scalars = attrs.Scalars("values");
              if (!scalars.empty()) return CopyScalars<T>(scalars, out(ctx));
              if constexpr (std::is_floating_point_v<T>) {
                return CopyValues<T>(attrs.Floats(name), out(ctx));
              } else {
                return CopyValues<T>(attrs.Ints(name), out(ctx));
              }
            });
      });
}

// Out = 1 on the diagonal, 0 elsewhere.
absl::StatusOr<Kernel> Eye(OpKernel op) {
  const Out out = op.out("Out");
  return op.Supports(AllTypesButHalf(In())).Make([=](const KernelContext& ctx) {
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

// Out = Num evenly spaced numbers from Start to Stop, counted from the nearer end.
absl::StatusOr<Kernel> Linspace(OpKernel op) {
  const In start = op.in("Start"), stop = op.in("Stop"), num = op.in("Num");
  const Out out = op.out("Out");
  // Inference refuses numbers without an element type.
  const DType dtype =
      DTypeFromProto(static_cast<int>(op.attrs().Int("dtype"))).value_or(DType::kFloat32);
  return op.Supports(FloatsAndInts(In())).Make([=](const KernelContext& ctx) -> absl::Status {
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

// Out = the same number everywhere; its type and shape are inferred.
absl::StatusOr<Kernel> Fill(OpKernel op, const char* like, double value) {
  op.Ignore({like});
  const Out out = op.out("Out");
  return op.WithoutHalfConversion().Supports(AllTypes(In())).Make([=](const KernelContext& ctx) {
    return ForAnyType("output Out", out(ctx), [&](auto tag) {
      using T = typename decltype(tag)::type;
      std::fill_n(out.data<T>(ctx), out(ctx).size(), static_cast<T>(value));
      return absl::OkStatus();
    });
  });
}

// Out = Start, Start + Step, ... before End.
absl::StatusOr<Kernel> Range(OpKernel op) {
  const In start = op.in("Start"), end = op.in("End"), step = op.in("Step");
  const Out out = op.out("Out");
  return op.Make(FloatsAndInts(start), [=](const KernelContext& ctx, auto zero) -> absl::Status {
    using T = decltype(zero);
    for (const In& one : {start, end, step}) {
      WEFT_RETURN_IF_ERROR(CheckSize("Start, End, Step", one(ctx), 1));
      WEFT_RETURN_IF_ERROR(CheckDType("Start, End, Step", one(ctx), start(ctx).dtype()));
    }
    const T first = *start.data<T>(ctx), last = *end.data<T>(ctx), by = *step.data<T>(ctx);
    const double count = by == 0 ? -1 : std::ceil((double(last) - double(first)) / double(by));
    if (!(count >= 0 && count < double(kMaxElements))) {
      return absl::InvalidArgumentError(
          absl::StrCat("input Step: no range from ", first, " to ", last, " by ", by));
    }
    out(ctx).Resize(start(ctx).dtype(), {static_cast<int64_t>(count)});
    for (int64_t i = 0; i < out(ctx).size(); ++i) {
      out.data<T>(ctx)[i] = static_cast<T>(first + static_cast<T>(i) * by);
    }
    return absl::OkStatus();
  });
}

// Y[i..., k] = 1 if k < X[i...], else 0.
absl::StatusOr<Kernel> SequenceMask(OpKernel op) {
  const In x = op.in("X");
  const Out y = op.out("Y");
  const int64_t max_length = op.attrs().Int("maxlen");
  // Inference refuses numbers without an element type.
  const DType dtype =
      DTypeFromProto(static_cast<int>(op.attrs().Int("out_dtype"))).value_or(DType::kFloat32);
  return op.Make(Indices(x), [=](const KernelContext& ctx, auto zero) -> absl::Status {
    const auto* lengths = x.data<decltype(zero)>(ctx);
    const int64_t count = x(ctx).size();
    int64_t longest = max_length;
    if (longest < 0) {
      longest = 0;
      for (int64_t i = 0; i < count; ++i) longest = std::max<int64_t>(longest, lengths[i]);
    }
    if (longest > kMaxElements / std::max<int64_t>(count, 1)) {
      return absl::InvalidArgumentError(absl::StrCat("input X: no mask of length ", longest));
    }
    Dims dims = x(ctx).dims();
    dims.push_back(longest);
    y(ctx).Resize(dtype, dims);
    return ForArithmeticType("output Y", y(ctx), [&](auto tag) {
      using T = typename decltype(tag)::type;
      T* to = y.data<T>(ctx);
      for (int64_t i = 0; i < count; ++i) {
        for (int64_t k = 0; k < longest; ++k) *to++ = static_cast<T>(k < lengths[i]);
      }
      return absl::OkStatus();
    });
  });
}

// Out[i..., k] = 1 if X[i...] is k. With allow_out_of_range, indices outside of the classes give a
// row of zeros.
absl::StatusOr<Kernel> OneHot(OpKernel op) {
  const In x = op.in("X");
  const Out out = op.out("Out");
  const int64_t depth = op.attrs().Int("depth");
  const bool allows_others = op.attrs().Bool("allow_out_of_range");
  return op.Make(Indices(x), [=](const KernelContext& ctx, auto zero) {
    const auto* classes = x.data<decltype(zero)>(ctx);
    return ForArithmeticType("output Out", out(ctx), [&](auto tag) -> absl::Status {
      using T = typename decltype(tag)::type;
      T* to = out.data<T>(ctx);
      std::fill_n(to, out(ctx).size(), T(0));
      for (int64_t i = 0; i < x(ctx).size(); ++i) {
        if (classes[i] >= 0 && classes[i] < depth) {
          to[i * depth + classes[i]] = T(1);
        } else if (!allows_others) {
          return absl::InvalidArgumentError(absl::StrCat("input X: ", classes[i], " at position ",
                                                         i, " is not in [0, ", depth, ")"));
        }
      }
      return absl::OkStatus();
    });
  });
}

// Out = the dims of Input.
absl::StatusOr<Kernel> Shape(OpKernel op) {
  const In x = op.in("Input");
  const Out out = op.out("Out");
  return op.WithoutHalfConversion().Supports(AllTypes(x)).Make([=](const KernelContext& ctx) {
    std::copy(x(ctx).dims().begin(), x(ctx).dims().end(), out.data<int32_t>(ctx));
  });
}

// Out = the number of elements of Input.
absl::StatusOr<Kernel> Size(OpKernel op) {
  const In x = op.in("Input");
  const Out out = op.out("Out");
  return op.WithoutHalfConversion().Supports(AllTypes(x)).Make([=](const KernelContext& ctx) {
    *out.data<int64_t>(ctx) = x(ctx).size();
  });
}

}  // namespace

void AddCreationKernels(KernelTable* table) {
  table->Add("assign_value", AssignValue);
  table->Add("eye", Eye);
  table->Add("empty", Empty);
  table->Add("fill_constant", FillConstant);
  table->Add("linspace", Linspace);
  table->Add("fill_any_like",
             [](const KernelSpec& spec) { return Fill(spec, "X", spec.attrs.Float("value")); });
  table->Add("fill_zeros_like", [](const KernelSpec& spec) { return Fill(spec, "X", 0); });
  table->Add("fill_constant_batch_size_like",
             [](const KernelSpec& spec) { return Fill(spec, "Input", spec.attrs.Float("value")); });
  table->Add("one_hot", OneHot);
  table->Add("one_hot_v2", OneHot);
  table->Add("range", Range);
  table->Add("sequence_mask", SequenceMask);
  table->Add("shape", Shape);
  table->Add("size", Size);
}

}  // namespace weft
