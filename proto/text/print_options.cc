#include "proto/text/print_options.h"

#include <algorithm>
#include <array>

namespace weft {

PrintOptions PrintOptions::Short() {
  PrintOptions options;
  options.attrs = Attrs::kShort;
  options.callstack = false;
  options.defaults = false;
  options.op_versions = false;
  return options;
}

bool IsMinorAttr(absl::string_view name) {
  static constexpr std::array<absl::string_view, 19> kNames = {
      "Scale_out",         "Scale_x",         "Scale_y",           "exhaustive_search",
      "force_fp32_output", "fuse_with_relu",  "mkldnn_data_type",  "op_callstack",
      "op_device",         "op_namescope",    "scale_out",         "scale_x",
      "scale_y",           "use_addto",       "use_cudnn",         "use_mkldnn",
      "use_quantizer",     "with_quant_attr", "workspace_size_MB",
  };
  return std::binary_search(kNames.begin(), kNames.end(), name);
}

}  // namespace weft
