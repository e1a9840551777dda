// The same elements under other dims.
#include <cstring>

#include "ops/cpu/families.h"
#include "ops/op_kernel.h"

namespace weft {
namespace {

// Out = X; inference determines its dims.
absl::StatusOr<Kernel> Reshaped(const KernelSpec& spec, const char* from, const char* to) {
  OpKernel op(spec);
  op.Ignore({"X", "Out", "XShape"});
  const In x = op.in(from);
  const Out out = op.out(to);
  return op.Make(RawElements{x}, [=](const KernelContext& ctx, auto) {
    if (x(ctx).bytes() > 0) std::memcpy(out(ctx).raw(), x(ctx).raw(), x(ctx).bytes());
  });
}

void AddReshape(const char* type, KernelTable* table) {
  table->Add(type, [](const KernelSpec& spec) { return Reshaped(spec, "X", "Out"); });
  table->Add(absl::StrCat(type, "_grad"),
             [](const KernelSpec& spec) { return Reshaped(spec, "Out@GRAD", "X@GRAD"); });
}

}  // namespace

void AddReshapeKernels(KernelTable* table) {
  for (const char* type : {"flatten", "flatten2", "flatten_contiguous_range", "reshape", "reshape2",
                           "squeeze", "squeeze2", "unsqueeze", "unsqueeze2"}) {
    AddReshape(type, table);
  }
}

}  // namespace weft
