#include "ops/schema/unwritten_outputs.h"

namespace weft {

bool LeavesOutput(absl::string_view type, absl::string_view slot) {
  if (type == "hierarchical_sigmoid") return slot == "W_Out";
  if (type == "data_norm_grad") {
    return slot == "BatchSize" || slot == "BatchSum" || slot == "BatchSquareSum";
  }
  return false;
}

}  // namespace weft
