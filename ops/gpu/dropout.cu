// Dropout (ops/cpu/dropout_attrs.h), which drops the elements that it drops on the CPU. With a
// seed, the host draws: for more elements than before, or in each step for a tensor, for which it
// waits.
#include <cstdint>
#include <vector>

#include "base/status_macros.h"
#include "ops/cpu/dropout_attrs.h"
#include "ops/formulas/dropout.h"
#include "ops/gpu/families.h"
#include "ops/gpu/launch.h"
#include "ops/gpu/reduce_loops.h"
#include "ops/kernel_util.h"
#include "ops/op_kernel.h"

namespace weft {
namespace {

template <typename T>
struct ScaleElement {
  T factor;
  const T* x;
  T* out;
  WEFT_DEVICE void operator()(int64_t i) const { out[i] = x[i] * factor; }
};

template <typename T>
struct KeepElement {
  formulas::KeepOrDrop<T> f;
  const T* x;
  const uint8_t* stays;
  T* out;
  uint8_t* mask = nullptr;
  WEFT_DEVICE void operator()(int64_t i) const {
    out[i] = f(x[i], stays[i]);
    if (mask != nullptr) mask[i] = stays[i];
  }
};

absl::StatusOr<Kernel> Dropout(OpKernel op) {
  const In x = op.in("X"), seed_tensor = op.in("Seed");
  const Out out = op.out("Out"), mask = op.out("Mask");
  WEFT_ASSIGN_OR_RETURN(const DropoutAttrs attrs, DropoutAttrs::Read(op.attrs()));
  const int64_t seed_attr = op.attrs().Bool("fix_seed") ? op.attrs().Int("seed") : 0;
  if (!attrs.is_test && (seed_attr == 0 || seed_tensor)) op.UsesHost();
  return op.Make(
      Floats(x),
      [=, drawn_seed = int64_t{0}, kept = Tensor()](const KernelContext& ctx,
                                                    auto zero) mutable -> absl::Status {
        using T = decltype(zero);
        const int64_t size = x(ctx).size();
        const T* from = x.data<T>(ctx);
        T* to = out.data<T>(ctx);
        uint8_t* stays = mask.data_or_null<uint8_t>(ctx);
        if (attrs.is_test) {
          if (stays != nullptr) {
            WEFT_RETURN_IF_ERROR(ForEach(ctx, size, FillElement<uint8_t>{1, stays}));
          }
          return ForEach(ctx, size, ScaleElement<T>{static_cast<T>(attrs.test_factor), from, to});
        }
        int64_t seed = seed_attr;
        if (const Tensor* tensor = seed_tensor.get(ctx)) {
          WEFT_RETURN_IF_ERROR(Synchronize(ctx));
          WEFT_ASSIGN_OR_RETURN(const Tensor on_host, tensor->ToHost());
          WEFT_ASSIGN_OR_RETURN(seed, OneValue<int32_t>("Seed", on_host));
        }
        if (seed == 0) {
          WEFT_ASSIGN_OR_RETURN(const formulas::DropOutBlock<T> drop,
                                NextDropOut<T>(attrs, size, from, to, stays, ctx.random));
          return ForEach(ctx, drop.num_blocks(), drop);
        }
        // The first draws do not depend on how many follow.
        if (drawn_seed != seed || kept.size() < size) {
          DropoutDraws draws(attrs, seed);
          std::vector<uint8_t> drawn(size);
          for (uint8_t& stay : drawn) stay = draws.Next();
          ScratchLike(out(ctx), &kept)->Resize(DType::kUint8, x(ctx).dims());
          WEFT_RETURN_IF_ERROR(Upload(ctx, drawn.data(), size, kept.data<uint8_t>()));
          drawn_seed = seed;
        }
        const formulas::KeepOrDrop<T> f{static_cast<T>(attrs.kept_factor)};
        return ForEach(ctx, size, KeepElement<T>{f, from, kept.data<uint8_t>(), to, stays});
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
    const int64_t size = dx(ctx).size();
    if (attrs.is_test) {
      return ForEach(ctx, size, ScaleElement<T>{static_cast<T>(attrs.test_factor), from, to});
    }
    WEFT_RETURN_IF_ERROR(CheckDType("Mask", mask(ctx), DType::kUint8));
    const formulas::KeepOrDrop<T> f{static_cast<T>(attrs.kept_factor)};
    return ForEach(ctx, size, KeepElement<T>{f, from, mask.data<uint8_t>(ctx), to});
  });
}

}  // namespace

void AddGpuDropoutKernels(KernelTable* table) { table->Add("dropout", Dropout, DropoutGrad); }

}  // namespace weft
