// The boxes of an op prior_box: which it has at each place of a feature map.
#ifndef WEFT_OPS_SCHEMA_EXTRA_PRIOR_BOXES_H_
#define WEFT_OPS_SCHEMA_EXTRA_PRIOR_BOXES_H_

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "ops/schema/op_attrs.h"

namespace weft {

struct PriorBoxes {
  std::vector<double> min_sizes, max_sizes, variances;
  std::vector<double> ratios = {1};  // each once, with 1 / ratio after it if `flip` is set
  bool ratios_last = false;          // attribute min_max_aspect_ratios_order

  explicit PriorBoxes(const OpAttrs& attrs)
      : min_sizes(attrs.Floats("min_sizes")),
        max_sizes(attrs.Floats("max_sizes")),
        variances(attrs.Floats("variances")),
        ratios_last(attrs.Bool("min_max_aspect_ratios_order")) {
    for (double ratio : attrs.Floats("aspect_ratios")) {
      bool is_new = true;
      for (double other : ratios) is_new = is_new && std::fabs(ratio - other) >= 1e-6;
      if (!is_new) continue;
      ratios.push_back(ratio);
      if (attrs.Bool("flip")) ratios.push_back(1 / ratio);
    }
  }

  int64_t Count() const {
    return static_cast<int64_t>(ratios.size() * min_sizes.size() + max_sizes.size());
  }

  // Widths and heights, in pixels of the image and in the order of the op: of each minimum, first
  // the square, then those of other ratios and that of the maximum.
  std::vector<std::pair<double, double>> Sizes() const {
    std::vector<std::pair<double, double>> sizes;
    for (size_t s = 0; s < min_sizes.size(); ++s) {
      const auto add_largest = [&] {
        if (max_sizes.empty()) return;
        const double side = std::sqrt(min_sizes[s] * max_sizes[s]);
        sizes.emplace_back(side, side);
      };
      sizes.emplace_back(min_sizes[s], min_sizes[s]);
      if (ratios_last) add_largest();
      for (size_t r = 1; r < ratios.size(); ++r) {
        const double root = std::sqrt(ratios[r]);
        sizes.emplace_back(min_sizes[s] * root, min_sizes[s] / root);
      }
      if (!ratios_last) add_largest();
    }
    return sizes;
  }
};

}  // namespace weft

#endif  // WEFT_OPS_SCHEMA_EXTRA_PRIOR_BOXES_H_
