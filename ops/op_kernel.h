// How a kernel is written: it names its slots, and a function for one step.
//
//   // Out = X where X > threshold, else 0.
//   absl::StatusOr<Kernel> ThresholdedRelu(const KernelSpec& spec) {
//     OpKernel op(spec);
//     const In x = op.in("X");
//     const Out out = op.out("Out");
//     const double threshold = spec.attrs.Float("threshold");
//     return op.Make(Floats(x), [=](const KernelContext& ctx, auto zero) {
//       using T = decltype(zero);
//       const T* from = x.data<T>(ctx);
//       T* to = out.data<T>(ctx);
//       for (int64_t i = 0; i < x(ctx).size(); ++i) to[i] = from[i] > threshold ? from[i] : T(0);
//     });
//   }
//
// What such a function can rely on:
//   - Slots that the schema calls for are there, with a variable for every argument (but see
//     AllowEmptyArguments). The inputs passed the schema's inference: their shapes and element
//     types fit. Values (ids, labels, divisors) it checks itself.
//   - Outputs have the inferred element type and shape, unless inference cannot know them before
//     the step: then the function calls Resize.
//   - No output is an input, unless the kernel says that it works in place (InPlace()).
//   - Where inputs are fp16 or bf16, it sees fp32 copies, and its results are rounded back;
//     RawElements see the elements as they are.
#ifndef WEFT_OPS_OP_KERNEL_H_
#define WEFT_OPS_OP_KERNEL_H_

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/status_macros.h"
#include "ops/kernel.h"
#include "ops/kernel_util.h"
#include "ops/tensor.h"

namespace weft {

// Elements were asked for as numbers of another size: as WrongElementType.
class WrongElementSize : public std::logic_error {
 public:
  WrongElementSize(const Tensor* tensor, size_t expected);

  const Tensor* tensor() const { return tensor_; }

 private:
  const Tensor* tensor_;
};

// Throws WrongElementSize where an element of the tensor does not have `size` bytes.
inline void CheckElementSize(const Tensor& tensor, size_t size) {
  if (SizeOf(tensor.dtype()) != size) throw WrongElementSize(&tensor, size);
}

// The variables of an input slot.
class In {
 public:
  In() = default;
  In(int first, int count) : first_(first), count_(count) {}

  int count() const { return count_; }
  explicit operator bool() const { return count_ > 0; }  // is there at all
  int index(int i = 0) const { return first_ + i; }
  const Tensor& operator()(const KernelContext& ctx, int i = 0) const {
    return *ctx.inputs[first_ + i];
  }
  // nullptr where an optional slot is empty, or an argument stands for no variable.
  const Tensor* get(const KernelContext& ctx, int i = 0) const {
    return i < count_ ? ctx.inputs[first_ + i] : nullptr;
  }
  template <typename T>
  const T* data(const KernelContext& ctx, int i = 0) const {
    return (*this)(ctx, i).template data<T>();
  }
  // nullptr as get().
  template <typename T>
  const T* data_or_null(const KernelContext& ctx, int i = 0) const {
    const Tensor* tensor = get(ctx, i);
    return tensor == nullptr ? nullptr : tensor->data<T>();
  }
  // The elements as numbers of their size, for RawElements.
  template <typename T>
  const T* elements(const KernelContext& ctx, int i = 0) const {
    CheckElementSize((*this)(ctx, i), sizeof(T));
    return static_cast<const T*>((*this)(ctx, i).raw());
  }

 private:
  int first_ = 0, count_ = 0;
};

// The variables of an output slot.
class Out {
 public:
  Out() = default;
  Out(int first, int count) : first_(first), count_(count) {}

  int count() const { return count_; }
  explicit operator bool() const { return count_ > 0; }
  int index(int i = 0) const { return first_ + i; }
  Tensor& operator()(const KernelContext& ctx, int i = 0) const { return *ctx.outputs[first_ + i]; }
  // nullptr where nobody reads the output.
  Tensor* get(const KernelContext& ctx, int i = 0) const {
    return i < count_ ? ctx.outputs[first_ + i] : nullptr;
  }
  template <typename T>
  T* data(const KernelContext& ctx, int i = 0) const {
    return (*this)(ctx, i).template data<T>();
  }
  template <typename T>
  T* data_or_null(const KernelContext& ctx, int i = 0) const {
    Tensor* tensor = get(ctx, i);
    return tensor == nullptr ? nullptr : tensor->data<T>();
  }
  template <typename T>
  T* elements(const KernelContext& ctx, int i = 0) const {
    CheckElementSize((*this)(ctx, i), sizeof(T));
    return static_cast<T*>((*this)(ctx, i).raw());
  }

 private:
  int first_ = 0, count_ = 0;
};

// Element types that a kernel takes, as its input tells.
template <typename... Ts>
struct ElementTypesOf {
  In in;
};
inline ElementTypesOf<float, double> Floats(In in) { return {in}; }
inline ElementTypesOf<float, double, int32_t, int64_t> FloatsAndInts(In in) { return {in}; }
inline ElementTypesOf<float, double, int32_t, int64_t, int8_t, uint8_t, int16_t, bool>
AllTypesButHalf(In in) {
  return {in};
}
inline ElementTypesOf<int32_t, int64_t> Indices(In in) { return {in}; }

inline ElementTypesOf<float, double, int32_t, int64_t, int8_t, uint8_t, int16_t, bool, Float16,
                      BFloat16>
AllTypes(In in) {
  return {in};
}

// Numbers of an element's size stand for elements of any type: what a kernel takes that only moves
// them.
struct RawElements {
  In in;
};

template <typename F, typename... Args>
absl::Status CallForStatus(F& f, Args&&... args) {
  if constexpr (std::is_void_v<decltype(f(std::forward<Args>(args)...))>) {
    f(std::forward<Args>(args)...);
    return absl::OkStatus();
  } else {
    return f(std::forward<Args>(args)...);
  }
}

// Calls run(T()) with the unsigned integer T of that size.
template <typename Run>
absl::Status ForElementSize(DType dtype, Run run) {
  switch (SizeOf(dtype)) {
    case 1:
      return CallForStatus(run, uint8_t{});
    case 2:
      return CallForStatus(run, uint16_t{});
    case 4:
      return CallForStatus(run, uint32_t{});
    case 8:
      return CallForStatus(run, uint64_t{});
    default:
      return absl::UnimplementedError(
          absl::StrCat("no kernel for element type ", DTypeName(dtype)));
  }
}

class OpKernel {
 public:
  explicit OpKernel(const KernelSpec& spec);
  ~OpKernel();

  // An optional input that is there, and that the kernel names neither here nor in Ignore, makes
  // the kernel Unimplemented: it must not be overlooked.
  In in(absl::string_view slot);
  Out out(absl::string_view slot);
  // Inputs whose values make no difference (those of a gradient that needs their shapes only).
  OpKernel& Ignore(std::initializer_list<absl::string_view> slots);
  // Some arguments of the slot may stand for no variable; elsewhere that is an error in the step.
  OpKernel& AllowEmptyArguments(In in);

  // The kernel works in place: where an output is an input of the same type, it reads elements
  // before it writes them. Other kernels get a copy of such an input.
  OpKernel& InPlace();                // any output and any input
  OpKernel& InPlace(Out out, In in);  // these two
  // The kernel sees fp16 and bf16 as they are.
  OpKernel& WithoutHalfConversion();
  // Tells the element types for the table of ops, where Make does not, or attributes that are not
  // given keep it from being called.
  template <typename... Ts>
  OpKernel& Supports(ElementTypesOf<Ts...>) {
    element_types_ = {DTypeOf<Ts>::value...};
    RecordElementTypes();
    return *this;
  }

  // step(ctx, T()) with that T of the listed types which `types.in` has; Unimplemented, at the
  // step, for other types. Like all steps it returns absl::Status or nothing.
  template <typename... Ts, typename Step>
  absl::StatusOr<Kernel> Make(ElementTypesOf<Ts...> types, Step step) {
    const In in = types.in;
    Supports(types);
    OneFloatType();
    return Finish([=, slot = SlotName(in)](const KernelContext& ctx) mutable {
      return ForElementType<Ts...>(slot, in(ctx), [&](auto tag) {
        return CallForStatus(step, ctx, typename decltype(tag)::type());
      });
    });
  }
  template <typename Step>
  absl::StatusOr<Kernel> Make(RawElements elements, Step step) {
    WithoutHalfConversion();
    Supports(AllTypes(elements.in));
    return Finish([=, in = elements.in](const KernelContext& ctx) mutable {
      return ForElementSize(in(ctx).dtype(),
                            [&](auto zero) { return CallForStatus(step, ctx, zero); });
    });
  }
  // step(ctx), for a kernel that looks at the types itself.
  template <typename Step>
  absl::StatusOr<Kernel> Make(Step step) {
    return Finish([=](const KernelContext& ctx) mutable { return CallForStatus(step, ctx); });
  }
  // step(ctx) without what surrounds a step: for rows, of which inference knows nothing.
  template <typename Step>
  absl::StatusOr<Kernel> MakeForRows(Step step) {
    WEFT_RETURN_IF_ERROR(CheckSlots());
    return Kernel([=](const KernelContext& ctx) mutable { return CallForStatus(step, ctx); });
  }

 private:
  class StepFrame;
  // Checks that all floating-point inputs have one type (half precision counting as fp32).
  void OneFloatType();

  void RecordElementTypes() const;
  std::string SlotName(In in) const;
  // InvalidArgument where a slot is missing, Unimplemented where one would be overlooked.
  absl::Status CheckSlots() const;
  absl::StatusOr<Kernel> Finish(Kernel step);

  const KernelSpec& spec_;
  std::shared_ptr<StepFrame> frame_;
  std::vector<std::string> known_inputs_;
  std::vector<DType> element_types_;
  bool has_output_ = false;
  absl::Status status_;
};

}  // namespace weft

#endif  // WEFT_OPS_OP_KERNEL_H_
