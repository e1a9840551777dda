// Attributes that choose how the same values are held or computed, or what stands where an op has
// no values, on ops of any schema.
#ifndef WEFT_OPS_ANALYSIS_CORE_REPRESENTATION_ATTRS_H_
#define WEFT_OPS_ANALYSIS_CORE_REPRESENTATION_ATTRS_H_

#include "absl/algorithm/container.h"
#include "absl/strings/string_view.h"

namespace weft {

inline constexpr absl::string_view kRepresentationAttrs[] = {
    "is_sparse",  "is_distributed",   "remote_prefetch",   "use_cudnn",
    "use_mkldnn", "mkldnn_data_type", "use_quantizer",     "skip_eager_deletion_vars",
    "use_onednn", "onednn_data_type", "zeros_out_of_range"};

inline bool ChoosesRepresentation(absl::string_view attr) {
  return absl::c_linear_search(kRepresentationAttrs, attr);
}

}  // namespace weft

#endif  // WEFT_OPS_ANALYSIS_CORE_REPRESENTATION_ATTRS_H_
