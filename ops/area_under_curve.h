// The area under the curve of true over false positives, from counts of samples.
#ifndef WEFT_OPS_AREA_UNDER_CURVE_H_
#define WEFT_OPS_AREA_UNDER_CURVE_H_

#include <cstdint>

namespace weft {

// `positives` and `negatives` count the samples of `buckets` ranges of predictions, in ascending
// order. Joins the thresholds between them by trapezoids. 0 if there are no positives or no
// negatives.
inline double AreaUnderCurve(const int64_t* positives, const int64_t* negatives, int64_t buckets) {
  double area = 0, above = 0, beside = 0;  // positives and negatives from this bucket on
  for (int64_t b = buckets; b-- > 0;) {
    const double up = static_cast<double>(positives[b]), right = static_cast<double>(negatives[b]);
    area += right * (above + above + up) / 2;
    above += up;
    beside += right;
  }
  return above > 0 && beside > 0 ? area / above / beside : 0;
}

}  // namespace weft

#endif  // WEFT_OPS_AREA_UNDER_CURVE_H_
