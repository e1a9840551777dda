// How to write a kernel: name its slots, and provide a function for one step.
//
//   // Out = X where X > threshold, else 0.
//   absl::StatusOr<Kernel> ThresholdedRelu(OpKernel op) {
//     const In x = op.in("X");
//     const Out out = op.out("Out");
//     const double threshold = op.attrs().Float("threshold");
//     return op.Make(Floats(x), [=](const KernelContext& ctx, auto zero) {
//       using T = decltype(zero);
//       const T* from = x.data<T>(ctx);
//       T* to = out.data<T>(ctx);
//       for (int64_t i = 0; i < x(ctx).size(); ++i) to[i] = from[i] > threshold ? from[i] : T(0);
//     });
//   }
//
// Guarantees for such a function:
//   - Required slots of the schema exist, with a variable for every argument (but see
//     AllowEmptyArguments). Inference has checked shapes and element types of the inputs. The
//     function checks values (ids, labels, divisors).
//   - Outputs have the inferred element type and shape. If inference cannot know them before the
//     step, the function calls Resize.
//   - No output is an input, unless the kernel works in place (InPlace()).
//   - Inputs in half precision are fp32 copies, and results are rounded back; RawElements,
//     TakesBFloat16 and TakesHalves see the elements unconverted.
#ifndef WEFT_OPS_OP_KERNEL_H_
#define WEFT_OPS_OP_KERNEL_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "base/status_macros.h"
#include "ops/kernel.h"
#include "ops/kernel_types.h"
#include "ops/kernel_util.h"
#include "ops/tensor.h"
#include "ops/vectorize.h"

namespace weft {

// Throws WrongElementType unless an element of the tensor has `size` bytes.
inline void CheckElementSize(const Tensor& tensor, size_t size) {
  if (SizeOf(tensor.dtype()) == size) return;
  throw WrongElementType(&tensor, absl::StrCat("elements of ", size, " bytes"));
}

// The variables of a slot. TensorType: const Tensor for inputs, Tensor for outputs.
template <typename TensorType>
class SlotVariables {
 public:
  SlotVariables() = default;
  SlotVariables(int first, int count) : first_(first), count_(count) {}

  int count() const { return count_; }
  explicit operator bool() const { return count_ > 0; }  // false: the slot is empty
  int index(int i = 0) const { return first_ + i; }
  TensorType& operator()(const KernelContext& ctx, int i = 0) const { return *Variable(ctx, i); }
  // nullptr for an empty slot, an argument without a variable, or an output that nobody reads.
  TensorType* get(const KernelContext& ctx, int i = 0) const {
    return i < count_ ? Variable(ctx, i) : nullptr;
  }
  template <typename T>
  auto* data(const KernelContext& ctx, int i = 0) const {
    return (*this)(ctx, i).template data<T>();
  }
  // nullptr if get() is.
  template <typename T>
  auto* data_or_null(const KernelContext& ctx, int i = 0) const {
    TensorType* tensor = get(ctx, i);
    return tensor == nullptr ? nullptr : tensor->template data<T>();
  }
  // The elements as numbers of their size, for RawElements.
  template <typename T>
  auto* elements(const KernelContext& ctx, int i = 0) const {
    TensorType& tensor = (*this)(ctx, i);
    CheckElementSize(tensor, sizeof(T));
    return static_cast<std::conditional_t<kIsInput, const T, T>*>(tensor.raw());
  }

 private:
  static constexpr bool kIsInput = std::is_const_v<TensorType>;

  TensorType* Variable(const KernelContext& ctx, int i) const {
    if constexpr (kIsInput) {
      return ctx.inputs[first_ + i];
    } else {
      return ctx.outputs[first_ + i];
    }
  }

  int first_ = 0, count_ = 0;
};
using In = SlotVariables<const Tensor>;
using Out = SlotVariables<Tensor>;

// The variables of an input slot whose elements the kernel does not read.
class InTypes {
 public:
  InTypes() = default;
  explicit InTypes(In in) : in_(in) {}

  int count() const { return in_.count(); }
  explicit operator bool() const { return in_.count() > 0; }
  const Dims& dims(const KernelContext& ctx, int i = 0) const { return in_(ctx, i).dims(); }
  DType dtype(const KernelContext& ctx, int i = 0) const { return in_(ctx, i).dtype(); }
  int64_t size(const KernelContext& ctx, int i = 0) const { return in_(ctx, i).size(); }

 private:
  In in_;
};

// The element types that a kernel supports for an input, which selects among them.
template <typename... Ts>
struct ElementTypesOf {
  In in;
};
inline ElementTypesOf<float, double> Floats(In in) { return {in}; }
// With OpKernel::TakesBFloat16; without, bf16 is converted.
inline ElementTypesOf<float, double, BFloat16> FloatsAndBFloat16(In in) { return {in}; }
// With OpKernel::TakesHalves of several inputs.
inline ElementTypesOf<float, double, Float16, BFloat16> FloatsAndHalves(In in) { return {in}; }
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

// Elements of any type, as unsigned integers of their size: for kernels that only move elements.
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

// Calls run(T()) with the unsigned integer T of the size of an element.
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
  // Implicit, so that a function of an OpKernel is a KernelFactory.
  OpKernel(const KernelSpec& spec);  // NOLINT: see above

  const KernelSpec& spec() const { return spec_; }
  const OpAttrs& attrs() const { return spec_.attrs; }

  // A present optional input that the kernel names neither here nor in Ignore makes the kernel
  // Unimplemented, so that no kernel overlooks an input.
  In in(absl::string_view slot);
  Out out(absl::string_view slot);
  // An input of which only dimensions and element type matter, as of many gradients. Its variable
  // keeps its type, but may have lost its memory to another one when the step runs.
  InTypes in_types(absl::string_view slot);
  // Inputs of which nothing matters.
  OpKernel& Ignore(std::initializer_list<absl::string_view> slots);
  // Allows arguments of the slot without a variable; otherwise they are an error in the step.
  OpKernel& AllowEmptyArguments(In in);

  // The kernel works in place: if an output is an input of the same type, it reads elements before
  // it writes them. Other kernels get a copy of such an input.
  OpKernel& InPlace();                // any output and any input
  OpKernel& InPlace(Out out, In in);  // these two
  // The output is the input, perhaps under other dimensions, if both have as many elements. The
  // step must not copy an output onto itself.
  OpKernel& View(Out out, In in);
  // Kernel::is_pointwise, merges_updates, uses_host.
  OpKernel& Pointwise();
  OpKernel& MergesUpdates();
  OpKernel& UsesHost();
  // The post-ops of the op, all of which the kernel carries out. Without this call, an op with
  // post-ops has no kernel.
  const std::vector<PostOp>& TakePostOps();
  // The kernel does what KernelSpec::starts_from_zero says. Without this call, an op for which that
  // is set has no kernel.
  OpKernel& StartsFromZero();
  // The kernel gets fp16 and bf16 unconverted.
  OpKernel& WithoutHalfConversion();
  // The step takes this input in half precision where no other input has it.
  OpKernel& TakesHalves(In in);
  // The step takes these inputs, and writes its results, in bf16 where all of these inputs have it
  // and no other input is in half precision.
  OpKernel& TakesBFloat16(std::initializer_list<In> ins);
  // The same for bf16 and for fp16.
  OpKernel& TakesHalves(std::initializer_list<In> ins);
  // Records the element types for the table of ops, if Make does not, or if missing attributes
  // prevent its call.
  template <typename... Ts>
  OpKernel& Supports(ElementTypesOf<Ts...>) {
    element_types_ = {DTypeOf<Ts>::value...};
    RecordElementTypes();
    return *this;
  }

  // Runs step(ctx, T()), T being the listed type that `types.in` has; Unimplemented for other
  // types. All floating-point inputs must have one type (half precision counts as fp32). Like all
  // steps it returns absl::Status or nothing; or it returns the step, a function of the context,
  // and is called only if the types of arguments change. Such a function must not keep pointers to
  // elements.
  template <typename... Ts, typename Step>
  absl::StatusOr<Kernel> Make(ElementTypesOf<Ts...> types, Step step) {
    const In in = types.in;
    Supports(types);
    types_->RequireOneFloatType();
    return Finish([in, slot = SlotName(in), shared = std::make_shared<Step>(std::move(step))](
                      const KernelContext& ctx) -> absl::StatusOr<KernelStep> {
      KernelStep prepared;
      WEFT_RETURN_IF_ERROR(ForElementType<Ts...>(slot, in(ctx), [&](auto tag) {
        prepared = StepFor<typename decltype(tag)::type>(shared, ctx);
        return absl::OkStatus();
      }));
      return prepared;
    });
  }
  template <typename Step>
  absl::StatusOr<Kernel> Make(RawElements elements, Step step) {
    WithoutHalfConversion();
    Supports(AllTypes(elements.in));
    return Finish([in = elements.in, shared = std::make_shared<Step>(std::move(step))](
                      const KernelContext& ctx) -> absl::StatusOr<KernelStep> {
      KernelStep prepared;
      WEFT_RETURN_IF_ERROR(ForElementSize(
          in(ctx).dtype(), [&](auto zero) { prepared = StepFor<decltype(zero)>(shared, ctx); }));
      return prepared;
    });
  }
  // Runs step(ctx), which dispatches on element types.
  template <typename Step>
  absl::StatusOr<Kernel> Make(Step step) {
    return Finish(
        [shared = std::make_shared<Step>(std::move(step))](const KernelContext&) -> KernelStep {
          return [shared](const KernelContext& ctx) { return CallForStatus(*shared, ctx); };
        });
  }
  // Out[i] = f(ins[i]...) for every element i of `types.in`. Results are cast to the element type
  // of `types.in`; a function that returns bool writes booleans.
  template <typename... Ts, typename F, typename... Ins>
  absl::StatusOr<Kernel> MakeElementwise(ElementTypesOf<Ts...> types, Out out, F f, Ins... ins) {
    Pointwise();
    return Make(types, [=](const KernelContext& ctx, auto zero) {
      using T = decltype(zero);
      const auto loop = [&](const auto*... from) {
        using Result = decltype(f(*from...));
        using To = std::conditional_t<std::is_same_v<Result, bool>, bool, T>;
        To* to = out.template data<To>(ctx);
        ForEach<T>(types.in(ctx).size(),
                   [=](int64_t i) { to[i] = static_cast<To>(f(from[i]...)); });
      };
      loop(ins.template data<T>(ctx)...);
    });
  }
  // outs[k][i] = f(ins[i]...)[k], for the outputs that the op has. f returns a std::array.
  template <typename... Ts, size_t n, typename F, typename... Ins>
  absl::StatusOr<Kernel> MakeElementwise(ElementTypesOf<Ts...> types, std::array<Out, n> outs, F f,
                                         Ins... ins) {
    Pointwise();
    return Make(types, [=](const KernelContext& ctx, auto zero) {
      using T = decltype(zero);
      std::array<T*, n> to;
      for (size_t k = 0; k < n; ++k) to[k] = outs[k].template data_or_null<T>(ctx);
      const auto loop = [&](const auto*... from) {
        ForEach<T>(types.in(ctx).size(), [=](int64_t i) {
          const auto results = f(from[i]...);
          for (size_t k = 0; k < n; ++k) {
            if (to[k] != nullptr) to[k][i] = static_cast<T>(results[k]);
          }
        });
      };
      loop(ins.template data<T>(ctx)...);
    });
  }
  // Runs step(ctx) without inference, preparation of outputs and conversion of half precision: for
  // rows, which inference does not cover.
  template <typename Step>
  absl::StatusOr<Kernel> MakeForRows(Step step) {
    WEFT_RETURN_IF_ERROR(CheckSlots());
    return Kernel([step = std::move(step)](const KernelContext& ctx) mutable {
      return CallForStatus(step, ctx);
    });
  }

 private:
  using Prepare = std::function<absl::StatusOr<KernelStep>(const KernelContext&)>;

  // The step for elements of type T.
  template <typename T, typename Step>
  static KernelStep StepFor(const std::shared_ptr<Step>& step, const KernelContext& ctx) {
    using Result = std::invoke_result_t<Step&, const KernelContext&, T>;
    if constexpr (std::is_invocable_v<std::add_lvalue_reference_t<Result>, const KernelContext&>) {
      return [run = (*step)(ctx, T())](const KernelContext& now) mutable {
        return CallForStatus(run, now);
      };
    } else {
      return [step](const KernelContext& now) { return CallForStatus(*step, now, T()); };
    }
  }

  In Find(absl::string_view slot);
  void RecordElementTypes() const;
  std::string SlotName(In in) const;
  // InvalidArgument for a missing slot, Unimplemented for an overlooked one.
  absl::Status CheckSlots() const;
  void FindUnreadInputs();
  absl::StatusOr<Kernel> Finish(Prepare prepare);

  const KernelSpec& spec_;
  std::shared_ptr<KernelTypes> types_;
  Kernel kernel_;
  std::vector<std::string> known_inputs_;
  std::vector<std::string> read_inputs_;
  std::vector<DType> element_types_;
  bool has_output_ = false;
  absl::Status status_;
};

}  // namespace weft

#endif  // WEFT_OPS_OP_KERNEL_H_
