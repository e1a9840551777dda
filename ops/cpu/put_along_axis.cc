// Values put at indices along an axis: in place of the elements of a tensor, or reduced with them.
#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "base/status_macros.h"
#include "ops/cpu/axis_elements.h"
#include "ops/cpu/families.h"
#include "ops/kernel_util.h"
#include "ops/op_kernel.h"

namespace weft {
namespace {

enum class Reduction { kAssign, kAdd, kMultiply, kMean, kLeast, kGreatest };

struct PutAttrs {
  Reduction reduction;
  bool include_self;  // whether the element of Input counts among the values put in its place

  static absl::StatusOr<PutAttrs> Read(const OpAttrs& attrs) {
    const bool include_self = attrs.Bool("Include_self");
    const std::string& reduce = attrs.String("Reduce");
    if (reduce == "assign") return PutAttrs{Reduction::kAssign, include_self};
    if (reduce == "add") return PutAttrs{Reduction::kAdd, include_self};
    if (reduce == "mean") return PutAttrs{Reduction::kMean, include_self};
    if (reduce == "amin") return PutAttrs{Reduction::kLeast, include_self};
    if (reduce == "amax") return PutAttrs{Reduction::kGreatest, include_self};
    if (reduce == "mul" || reduce == "multiply") {
      return PutAttrs{Reduction::kMultiply, include_self};
    }
    return absl::InternalError("attribute Reduce: no reduction for " + reduce);
  }
  bool is_extremum() const {
    return reduction == Reduction::kLeast || reduction == Reduction::kGreatest;
  }
};

// Integers wrap around.
template <typename T>
T Combine(Reduction reduction, T value, T next) {
  switch (reduction) {
    case Reduction::kAssign:
      return next;
    case Reduction::kAdd:
    case Reduction::kMean:
      return static_cast<T>(Wrapping(value) + Wrapping(next));
    case Reduction::kMultiply:
      return static_cast<T>(Wrapping(value) * Wrapping(next));
    case Reduction::kLeast:
      return next < value ? next : value;
    case Reduction::kGreatest:
      return next > value ? next : value;
  }
  return next;
}

// Result = Input, with the values at each index, in their order, reduced to one element.
absl::StatusOr<Kernel> PutAlongAxis(OpKernel op) {
  const In input = op.in("Input"), value = op.in("Value");
  const Out result = op.out("Result");
  WEFT_ASSIGN_OR_RETURN(const PutAttrs attrs, PutAttrs::Read(op.attrs()));
  const auto select = SelectAxisElements(op, op.attrs().Int("Axis"));
  return op.Make(FloatsAndInts(input), [=](const KernelContext& ctx, auto zero) -> absl::Status {
    using T = decltype(zero);
    WEFT_ASSIGN_OR_RETURN(const AxisElements elements, select(ctx, input(ctx).dims()));
    const int64_t size = input(ctx).size();
    const T* from = value.data<T>(ctx);
    T* to = result.data<T>(ctx);
    std::copy_n(input.data<T>(ctx), size, to);
    std::vector<int64_t> counts(size, attrs.include_self ? 1 : 0);  // of values, by place
    elements.ForEach([&](int64_t place, int64_t at, int64_t) {
      to[place] = counts[place]++ == 0 ? from[at] : Combine(attrs.reduction, to[place], from[at]);
    });
    if (attrs.reduction == Reduction::kMean) {
      for (int64_t i = 0; i < size; ++i) {
        to[i] = static_cast<T>(to[i] / std::max<int64_t>(counts[i], 1));
      }
    }
    return absl::OkStatus();
  });
}

// --- Gradients -----------------------------------------------------------------------------------

// What the values at the places of Result make it, and its derivatives by them.
template <typename T>
class Places {
 public:
  // `divides`: as Paddle's CPU kernel, divides products by a factor, also by 0.
  Places(PutAttrs attrs, bool divides, const T* input, const T* result, int64_t size)
      : reduction_(attrs.reduction), divides_(divides), result_(result), counts_(size, 0) {
    if (reduction_ == Reduction::kMultiply) products_.assign(size, 1);
    if (!attrs.include_self) return;
    for (int64_t i = 0; i < size; ++i) Add(i, input == nullptr ? T(0) : input[i]);
  }

  void Add(int64_t place, T value) {
    if (reduction_ == Reduction::kMean) {
      ++counts_[place];
    } else if (reduction_ == Reduction::kMultiply) {
      value == 0 ? ++counts_[place] : products_[place] *= value;
    } else {
      if (value == result_[place]) ++counts_[place];
    }
  }
  // Extrema are shared by all values that are equal to them.
  double Derivative(int64_t place, T value) const {
    if (reduction_ == Reduction::kMean) return 1.0 / counts_[place];
    if (reduction_ == Reduction::kMultiply) {
      if (divides_) return static_cast<double>(result_[place]) / value;
      const int64_t other_zeros = counts_[place] - (value == 0 ? 1 : 0);
      return other_zeros > 0 ? 0 : products_[place] / (value == 0 ? 1 : value);
    }
    return value == result_[place] ? 1.0 / counts_[place] : 0;
  }

 private:
  const Reduction reduction_;
  const bool divides_;
  const T* const result_;
  std::vector<int64_t> counts_;   // of values, of zeros in products, or of values that are extrema
  std::vector<double> products_;  // of the other factors
};

// Input@GRAD and Value@GRAD; null skips one. Without Include_self, Input has no gradient where
// values are put.
template <typename T>
struct PutGradients {
  PutAttrs attrs;
  const T *input, *value, *result, *dout;
  int64_t size;  // of Input
  T *dinput, *dvalue;

  // The derivatives by all values that are not overwritten are 1.
  void OfCopies(const AxisElements& elements) const {
    const bool replaces = attrs.reduction == Reduction::kAssign;
    if (dinput != nullptr) {
      std::copy_n(dout, size, dinput);
      if (replaces || !attrs.include_self) Clear(elements);
    }
    if (dvalue == nullptr) return;
    std::vector<int64_t> last(replaces ? size : 0);  // by place
    if (replaces) elements.ForEach([&](int64_t place, int64_t at, int64_t) { last[place] = at; });
    elements.ForEach([&](int64_t place, int64_t at, int64_t) {
      dvalue[at] = replaces && last[place] != at ? T(0) : dout[place];
    });
  }

  void OfOthers(const AxisElements& elements, bool paddle_cpu_quirks) const {
    Places<T> places(attrs, paddle_cpu_quirks, input, result, size);
    const auto value_at = [&](int64_t at) { return value == nullptr ? T(0) : value[at]; };
    elements.ForEach([&](int64_t place, int64_t at, int64_t) { places.Add(place, value_at(at)); });
    // Paddle's CPU kernel counts an extremum of Input that does not count.
    if (paddle_cpu_quirks && attrs.is_extremum() && !attrs.include_self) {
      for (int64_t i = 0; i < size; ++i) places.Add(i, input[i]);
    }
    if (dvalue != nullptr) {
      elements.ForEach([&](int64_t place, int64_t at, int64_t) {
        dvalue[at] = static_cast<T>(dout[place] * places.Derivative(place, value_at(at)));
      });
    }
    if (dinput == nullptr) return;
    std::copy_n(dout, size, dinput);
    if (!attrs.include_self) return Clear(elements);
    for (int64_t i = 0; i < size; ++i) {
      const T own = input == nullptr ? T(0) : input[i];
      dinput[i] = static_cast<T>(dout[i] * places.Derivative(i, own));
    }
  }

 private:
  void Clear(const AxisElements& elements) const {
    elements.ForEach([this](int64_t place, int64_t, int64_t) { dinput[place] = 0; });
  }
};

absl::StatusOr<Kernel> PutAlongAxisGrad(OpKernel op) {
  WEFT_ASSIGN_OR_RETURN(const PutAttrs attrs, PutAttrs::Read(op.attrs()));
  const bool copies = attrs.reduction == Reduction::kAssign || attrs.reduction == Reduction::kAdd;
  const bool reads_values = attrs.reduction == Reduction::kMultiply || attrs.is_extremum();
  if (!reads_values) op.Ignore({"Input", "Value", "Result"});
  const In input = reads_values ? op.in("Input") : In();
  const In value = reads_values ? op.in("Value") : In();
  const In result = reads_values ? op.in("Result") : In();
  const In dout = op.in("Result@GRAD");
  const Out dinput = op.out("Input@GRAD"), dvalue = op.out("Value@GRAD");
  const auto select = SelectAxisElements(op, op.attrs().Int("Axis"));
  return op.Make(Floats(dout),
                 [=, quirks = op.spec().paddle_cpu_quirks](const KernelContext& ctx,
                                                           auto zero) -> absl::Status {
                   using T = decltype(zero);
                   WEFT_ASSIGN_OR_RETURN(const AxisElements elements,
                                         select(ctx, dout(ctx).dims()));
                   const PutGradients<T> gradients = {attrs,
                                                      reads_values ? input.data<T>(ctx) : nullptr,
                                                      reads_values ? value.data<T>(ctx) : nullptr,
                                                      reads_values ? result.data<T>(ctx) : nullptr,
                                                      dout.data<T>(ctx),
                                                      dout(ctx).size(),
                                                      dinput.data_or_null<T>(ctx),
                                                      dvalue.data_or_null<T>(ctx)};
                   if (copies) {
                     gradients.OfCopies(elements);
                   } else {
                     gradients.OfOthers(elements, quirks);
                   }
                   return absl::OkStatus();
                 });
}

}  // namespace

void AddPutAlongAxisKernels(KernelTable* table) {
  table->Add("put_along_axis", PutAlongAxis, PutAlongAxisGrad);
}

}  // namespace weft
