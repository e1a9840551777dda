// Dropout (ops/cpu/dropout_attrs.h).
#include "ops/formulas/dropout.h"

#include <algorithm>
#include <cstdint>

#include "base/status_macros.h"
#include "ops/cpu/dropout_attrs.h"
#include "ops/cpu/families.h"
#include "ops/op_kernel.h"
#include "ops/vectorize.h"

namespace weft {
namespace {

// Mask: 1 if an element is kept.
absl::StatusOr<Kernel> Dropout(OpKernel op) {
  const In x = op.in("X"), seed_tensor = op.in("Seed");
  const Out out = op.out("Out"), mask = op.out("Mask");
  WEFT_ASSIGN_OR_RETURN(const DropoutAttrs attrs, DropoutAttrs::Read(op.attrs()));
  const int64_t seed_attr = op.attrs().Bool("fix_seed") ? op.attrs().Int("seed") : 0;
  return op.Make(Floats(x), [=](const KernelContext& ctx, auto zero) -> absl::Status {
    using T = decltype(zero);
    const int64_t size = x(ctx).size();
    const T* from = x.data<T>(ctx);
    T* to = out.data<T>(ctx);
    uint8_t* stays = mask.data_or_null<uint8_t>(ctx);
    if (attrs.is_test) {
      const T factor = static_cast<T>(attrs.test_factor);
      ForEach<T>(size, [=](int64_t i) { to[i] = from[i] * factor; });
      if (stays != nullptr) std::fill_n(stays, size, uint8_t{1});
      return absl::OkStatus();
    }
    int64_t seed = seed_attr;
    if (const Tensor* tensor = seed_tensor.get(ctx)) {
      WEFT_ASSIGN_OR_RETURN(seed, OneValue<int32_t>("Seed", *tensor));
    }
    if (seed == 0) {
      WEFT_ASSIGN_OR_RETURN(const formulas::DropOutBlock<T> drop,
                            NextDropOut<T>(attrs, size, from, to, stays, ctx.random));
      ForEach<T>(drop.num_blocks(), drop);
      return absl::OkStatus();
    }
    DropoutDraws draws(attrs, seed);
    const formulas::KeepOrDrop<T> f{static_cast<T>(attrs.kept_factor)};
    for (int64_t i = 0; i < size; ++i) {
      const uint8_t stay = draws.Next();
      to[i] = f(from[i], stay);
      if (stays != nullptr) stays[i] = stay;
    }
    return absl::OkStatus();
  });
}

absl::StatusOr<Kernel> DropoutGrad(OpKernel op) {
  const In dout = op.in("Out@GRAD"), mask = op.in("Mask");
  const Out dx = op.out("X@GRAD");
  WEFT_ASSIGN_OR_RETURN(const DropoutAttrs attrs, DropoutAttrs::Read(op.attrs()));
  if (!attrs.is_test && !mask) return absl::InvalidArgumentError("input Mask: missing");
  return op.InPlace().Make(Floats(dout), [=](const KernelContext& ctx, auto zero) -> absl::Status {
    using T = decltype(zero);
    const T* from = dout.data<T>(ctx);
    T* to = dx.data<T>(ctx);
    if (attrs.is_test) {
      const T factor = static_cast<T>(attrs.test_factor);
      ForEach<T>(dx(ctx).size(), [=](int64_t i) { to[i] = from[i] * factor; });
      return absl::OkStatus();
    }
    WEFT_RETURN_IF_ERROR(CheckDType("Mask", mask(ctx), DType::kUint8));
    const uint8_t* stays = mask.data<uint8_t>(ctx);
    const formulas::KeepOrDrop<T> f{static_cast<T>(attrs.kept_factor)};
    ForEach<T>(dx(ctx).size(), [=](int64_t i) { to[i] = f(from[i], stays[i]); });
    return absl::OkStatus();
  });
}

}  // namespace

void AddDropoutKernels(KernelTable* table) { table->Add("dropout", Dropout, DropoutGrad); }

}  // namespace weft
