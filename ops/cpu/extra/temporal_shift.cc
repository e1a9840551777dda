// Channels of video frames moved to the frame before or after.
#include <cstdint>

#include "ops/cpu/extra/families.h"
#include "ops/op_kernel.h"

namespace weft {
namespace {

// In groups of seg_num frames, some channels shift one frame forwards, as many one backwards.
absl::StatusOr<Kernel> TemporalShift(const KernelSpec& spec, const char* from, const char* to,
                                     int direction) {
  OpKernel op(spec);
  const In x = op.in(from);
  const Out out = op.out(to);
  const int64_t frames = spec.attrs.Int("seg_num");
  const double ratio = spec.attrs.Float("shift_ratio");
  const bool channels_last = spec.attrs.String("data_format") == "NHWC";
  return op.Make(RawElements{x}, [=](const KernelContext& ctx, auto zero) {
    using T = decltype(zero);
    const Dims dims = x(ctx).dims();
    const int64_t channels = channels_last ? dims[3] : dims[1];
    const int64_t image = dims[1] * dims[2] * dims[3];
    const int64_t inner = channels_last ? 1 : dims[2] * dims[3];
    const auto first = static_cast<int64_t>(channels * ratio);
    const auto second = static_cast<int64_t>(channels * 2 * ratio);
    for (int64_t i = 0; i < x(ctx).size(); ++i) {
      const int64_t frame = i / image % frames, channel = i / inner % channels;
      const int64_t step = (channel < first ? -1 : channel < second ? 1 : 0) * direction;
      const bool is_outside = frame + step < 0 || frame + step >= frames;
      out.elements<T>(ctx)[i] = is_outside ? T(0) : x.elements<T>(ctx)[i + step * image];
    }
  });
}

}  // namespace

void AddTemporalShiftKernels(KernelTable* table) {
  table->Add("temporal_shift",
             [](const KernelSpec& spec) { return TemporalShift(spec, "X", "Out", 1); });
  table->Add("temporal_shift_grad",
             [](const KernelSpec& spec) { return TemporalShift(spec, "Out@GRAD", "X@GRAD", -1); });
}

}  // namespace weft
