// The attributes of poolings, for all devices.
#ifndef WEFT_OPS_CPU_POOL_ATTRS_H_
#define WEFT_OPS_CPU_POOL_ATTRS_H_

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "ops/formulas/window.h"
#include "ops/kernel.h"
#include "ops/schema/windows.h"

namespace weft {

struct PoolAttrs {
  size_t space = 2;
  bool is_global = false, adaptive = false, channels_last = false;
  bool is_max = true;
  // If not 0: the result is the root of that degree of the sum of the powers of that degree.
  double norm = 0;
  // For means: elements of a window beyond the edge do not count.
  bool exclusive = true;
  // If not exclusive: elements beyond the padding count, too.
  bool counts_all = false;
  std::vector<Window> windows;  // with their sizes; not for global and adaptive pooling

  static absl::StatusOr<PoolAttrs> Read(const KernelSpec& spec, size_t space) {
    const OpAttrs& attrs = spec.attrs;
    PoolAttrs result;
    result.space = space;
    result.is_global = attrs.Bool("global_pooling");
    result.adaptive = attrs.Bool("adaptive");
    if (attrs.Has("exclusive")) result.exclusive = attrs.Bool("exclusive");
    WEFT_ASSIGN_OR_RETURN(result.channels_last, ReadChannelsLast(attrs, space));
    if (attrs.Has("pooling_type")) {
      const std::string& type = attrs.String("pooling_type");
      if (type == "lp") result.norm = attrs.Float("norm_type");
      if (std::isinf(result.norm)) result.norm = 0;
      result.is_max = type == "max" || (type == "lp" && result.norm == 0);
      if (!attrs.Has("norm_type")) result.counts_all = !attrs.Does("counts none beyond padding");
      // Paddle's kernels of these ops ignore attribute adaptive.
      if (spec.paddle_cpu_quirks && result.is_max) result.adaptive = false;
    }
    const char* const size_attr = attrs.Has("kernel_size") ? "kernel_size" : "ksize";
    if (result.adaptive && absl::c_count(attrs.Ints(size_attr), 1) == static_cast<int>(space)) {
      result.adaptive = false;
      result.is_global = true;  // one window over the whole image
    }
    if (result.is_global || result.adaptive) return result;
    WEFT_ASSIGN_OR_RETURN(result.windows, ReadWindows(attrs, space));
    WEFT_ASSIGN_OR_RETURN(const std::vector<int64_t> sizes, ReadPositive(attrs, size_attr, space));
    for (size_t i = 0; i < space; ++i) result.windows[i].size = sizes[i];
    return result;
  }

  // Along spatial dimension i of an image, which has this size there.
  formulas::PoolWindows WindowsAlong(size_t i, int64_t size, int64_t positions) const {
    formulas::PoolWindows result;
    result.image = size;
    result.positions = positions;
    result.exclusive = exclusive;
    if (is_global) return result;
    if (adaptive) {
      result.kind = formulas::PoolWindows::Kind::kAdaptive;
      return result;
    }
    const Window window = WithExplicitPaddings(windows[i], size);
    result.kind = formulas::PoolWindows::Kind::kSliding;
    result.size = window.size;
    result.stride = window.stride;
    result.pad_begin = window.pad_begin;
    result.pad_end = counts_all ? window.size : window.pad_end;  // only the divisor depends on it
    return result;
  }
};

}  // namespace weft

#endif  // WEFT_OPS_CPU_POOL_ATTRS_H_
