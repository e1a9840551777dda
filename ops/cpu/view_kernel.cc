#include "ops/cpu/view_kernel.h"

#include <algorithm>

#include "ops/op_kernel.h"

namespace weft {
namespace {

// X@GRAD: each element of Out@GRAD is added to the element that was read.
absl::StatusOr<Kernel> Backward(OpKernel op, const char* x_slot, MakeView make_view) {
  op.Ignore({x_slot, "Out", "XShape"});
  const In dout = op.in("Out@GRAD");
  const Out dx = op.out(absl::StrCat(x_slot, "@GRAD"));
  // Paddle 1 writes gradients of integers.
  return op.Make(FloatsAndInts(dout),
                 [=, view = make_view(op.attrs())](const KernelContext& ctx, auto zero) {
                   using T = decltype(zero);
                   T* to = dx.data<T>(ctx);
                   const View read = view(dx(ctx).dims(), dout(ctx).dims());
                   if (IsPermutation(read, dx(ctx).size())) {
                     return WriteView(read, dout.data<T>(ctx), to);
                   }
                   std::fill_n(to, dx(ctx).size(), T(0));
                   AddToView(read, dout.data<T>(ctx), to);
                 });
}

}  // namespace

absl::StatusOr<Kernel> ViewKernel(OpKernel op, const char* x_slot, MakeView make_view) {
  // Inference gives Out the dimensions of Y; not so for crop.
  if (op.spec().schema->type() == "expand_as_v2") op.Ignore({"Y"});
  const In x = op.in(x_slot);
  const Out out = op.out("Out");
  return op.Make(
      RawElements{x}, [=, view = make_view(op.attrs())](const KernelContext& ctx, auto zero) {
        using T = decltype(zero);
        ReadView(view(x(ctx).dims(), out(ctx).dims()), x.elements<T>(ctx), out.elements<T>(ctx));
      });
}

void AddView(const char* type, MakeView make_view, KernelTable* table, const char* x_slot) {
  table->Add(type, [=](const KernelSpec& spec) { return ViewKernel(spec, x_slot, make_view); });
  table->Add(absl::StrCat(type, "_grad"),
             [=](const KernelSpec& spec) { return Backward(spec, x_slot, make_view); });
}

}  // namespace weft
