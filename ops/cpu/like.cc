// Tensors made after the shape of another one, and questions to every element.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "ops/cpu/families.h"
#include "ops/op_kernel.h"

namespace weft {
namespace {

// Out = the same number everywhere; its type and shape are inferred.
absl::StatusOr<Kernel> Fill(const KernelSpec& spec, const char* like, double value) {
  OpKernel op(spec);
  op.Ignore({like});
  const Out out = op.out("Out");
  return op.KeepHalves().Takes(AnyElements(In())).Make([=](const KernelContext& ctx) {
    return ForElementType<float, double, int32_t, int64_t, int8_t, uint8_t, int16_t, bool, Float16,
                          BFloat16>("output Out", out(ctx), [&](auto tag) {
      using T = typename decltype(tag)::type;
      std::fill_n(out.data<T>(ctx), out(ctx).size(), static_cast<T>(value));
      return absl::OkStatus();
    });
  });
}

// Out = the dims of Input.
absl::StatusOr<Kernel> Shape(const KernelSpec& spec) {
  OpKernel op(spec);
  const In x = op.in("Input");
  const Out out = op.out("Out");
  return op.KeepHalves().Takes(AnyElements(x)).Make([=](const KernelContext& ctx) {
    std::copy(x(ctx).dims().begin(), x(ctx).dims().end(), out.data<int32_t>(ctx));
  });
}

// Out = the number of elements of Input.
absl::StatusOr<Kernel> Size(const KernelSpec& spec) {
  OpKernel op(spec);
  const In x = op.in("Input");
  const Out out = op.out("Out");
  return op.KeepHalves().Takes(AnyElements(x)).Make([=](const KernelContext& ctx) {
    *out.data<int64_t>(ctx) = x(ctx).size();
  });
}

// Out = whether the question holds of an element.
template <typename Question>
absl::StatusOr<Kernel> Ask(const KernelSpec& spec, Question question) {
  OpKernel op(spec);
  const In x = op.in("X");
  const Out out = op.out("Out");
  return op.Make(Numbers(x), [=](const KernelContext& ctx, auto zero) {
    const auto* from = x.data<decltype(zero)>(ctx);
    bool* to = out.data<bool>(ctx);
    for (int64_t i = 0; i < x(ctx).size(); ++i) to[i] = question(static_cast<double>(from[i]));
  });
}

// Out = whether the question holds of any element, or of all of them.
enum class Quantifier { kAny, kAll };
template <typename Question>
absl::StatusOr<Kernel> AskOnce(const KernelSpec& spec, Quantifier quantifier, Question question) {
  OpKernel op(spec);
  const In x = op.in("X");
  const Out out = op.out("Out");
  return op.Make(Numbers(x), [=](const KernelContext& ctx, auto zero) {
    const auto* from = x.data<decltype(zero)>(ctx);
    const auto* end = from + x(ctx).size();
    const auto holds = [&](auto value) { return question(static_cast<double>(value)); };
    *out.data<bool>(ctx) = quantifier == Quantifier::kAny ? std::any_of(from, end, holds)
                                                          : std::all_of(from, end, holds);
  });
}

// Y[i..., k] = 1 where k < X[i...], else 0.
absl::StatusOr<Kernel> SequenceMask(const KernelSpec& spec) {
  OpKernel op(spec);
  const In x = op.in("X");
  const Out y = op.out("Y");
  const int64_t max_length = spec.attrs.Int("maxlen");
  // Inference refuses numbers of no element type.
  const DType dtype =
      DTypeFromProto(static_cast<int>(spec.attrs.Int("out_dtype"))).value_or(DType::kFloat32);
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

// X@GRAD = Out@GRAD where X is strictly between min and max, 0 elsewhere.
absl::StatusOr<Kernel> ClipGrad(const KernelSpec& spec) {
  OpKernel op(spec);
  const In x = op.in("X"), dout = op.in("Out@GRAD");
  const Out dx = op.out("X@GRAD");
  const double min = spec.attrs.Float("min"), max = spec.attrs.Float("max");
  return op.InPlace(dx, dout).InPlace(dx, x).Make(
      Floats(x), [=](const KernelContext& ctx, auto zero) {
        using T = decltype(zero);
        const T low = static_cast<T>(min), high = static_cast<T>(max);
        const T *xs = x.data<T>(ctx), *dys = dout.data<T>(ctx);
        T* to = dx.data<T>(ctx);
        for (int64_t i = 0; i < x(ctx).size(); ++i) {
          to[i] = xs[i] > low && xs[i] < high ? dys[i] : T(0);
        }
      });
}

// Out = Start, Start + Step, ... before End.
absl::StatusOr<Kernel> Range(const KernelSpec& spec) {
  OpKernel op(spec);
  const In start = op.in("Start"), end = op.in("End"), step = op.in("Step");
  const Out out = op.out("Out");
  return op.Make(Numbers(start), [=](const KernelContext& ctx, auto zero) -> absl::Status {
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

// Ends the run where Cond is false. (No OpKernel: that leaves out what nobody reads.)
absl::StatusOr<Kernel> Assert(const KernelSpec& spec) {
  if (spec.element_types != nullptr) *spec.element_types = {DType::kBool};
  WEFT_ASSIGN_OR_RETURN(const int cond, RequiredInput(spec, "Cond"));
  return Kernel([=](const KernelContext& ctx) -> absl::Status {
    const Tensor& condition = *ctx.in(cond);
    WEFT_RETURN_IF_ERROR(CheckDType("Cond", condition, DType::kBool));
    WEFT_RETURN_IF_ERROR(CheckSize("Cond", condition, 1));
    if (*condition.data<bool>()) return absl::OkStatus();
    return absl::FailedPreconditionError("input Cond: the program asserts it, but it is false");
  });
}

}  // namespace

void AddLikeKernels(KernelTable* table) {
  table->Add("assert", Assert);
  table->Add("fill_any_like",
             [](const KernelSpec& spec) { return Fill(spec, "X", spec.attrs.Float("value")); });
  table->Add("fill_zeros_like", [](const KernelSpec& spec) { return Fill(spec, "X", 0); });
  table->Add("fill_constant_batch_size_like",
             [](const KernelSpec& spec) { return Fill(spec, "Input", spec.attrs.Float("value")); });
  table->Add("shape", Shape);
  table->Add("size", Size);
  table->Add("isfinite_v2", [](const KernelSpec& spec) {
    return Ask(spec, [](double x) { return std::isfinite(x); });
  });
  table->Add("isinf_v2", [](const KernelSpec& spec) {
    return Ask(spec, [](double x) { return std::isinf(x); });
  });
  table->Add("isnan_v2", [](const KernelSpec& spec) {
    return Ask(spec, [](double x) { return std::isnan(x); });
  });
  table->Add("isfinite", [](const KernelSpec& spec) {
    return AskOnce(spec, Quantifier::kAll, [](double x) { return std::isfinite(x); });
  });
  table->Add("isinf", [](const KernelSpec& spec) {
    return AskOnce(spec, Quantifier::kAny, [](double x) { return std::isinf(x); });
  });
  table->Add("isnan", [](const KernelSpec& spec) {
    return AskOnce(spec, Quantifier::kAny, [](double x) { return std::isnan(x); });
  });
  table->Add("sequence_mask", SequenceMask);
  table->Add("clip_grad", ClipGrad);
  table->Add("range", Range);
}

}  // namespace weft
