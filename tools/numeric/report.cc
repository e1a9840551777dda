#include "tools/numeric/report.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"

namespace weft {

double ElementAt(const Tensor& tensor, int64_t i) {
  switch (tensor.dtype()) {
    case DType::kFloat32:
      return tensor.data<float>()[i];
    case DType::kFloat64:
      return tensor.data<double>()[i];
    case DType::kInt32:
      return tensor.data<int32_t>()[i];
    case DType::kInt64:
      return static_cast<double>(tensor.data<int64_t>()[i]);
    default:
      return static_cast<const uint8_t*>(tensor.raw())[i];
  }
}

absl::optional<NumericReport::Difference> CompareTensors(const Tensor& expected,
                                                         const Tensor& found) {
  double largest = 0;
  absl::optional<int64_t> most;
  double size_of_most = 0;
  for (int64_t i = 0; i < expected.size(); ++i) {
    const double a = ElementAt(expected, i), b = ElementAt(found, i);
    largest = std::max({largest, std::abs(a), std::abs(b)});
    if (a == b || (std::isnan(a) && std::isnan(b))) continue;
    const double size = std::abs(a - b);
    if (most.has_value() && !(size > size_of_most) && !std::isnan(size)) continue;
    most = i;
    size_of_most = size;
    if (!std::isfinite(size)) break;
  }
  if (!most.has_value()) return absl::nullopt;
  NumericReport::Difference difference;
  difference.expected = ElementAt(expected, *most);
  difference.found = ElementAt(found, *most);
  difference.relative = std::isfinite(size_of_most) ? size_of_most / largest : HUGE_VAL;
  difference.index.resize(expected.rank());
  for (int d = expected.rank(); d-- > 0; *most /= expected.dim(d)) {
    difference.index[d] = *most % expected.dim(d);
  }
  return difference;
}

std::string NumericReportText(const NumericReport& report) {
  std::string text =
      absl::StrCat(report.steps, report.steps == 1 ? " step on " : " steps on ", report.nranks,
                   report.nranks == 1 ? " rank" : " ranks", ", batch ", report.batch, ": ");
  if (!report.IsEqual()) {
    absl::StrAppend(&text, "different", report.is_explained ? ", as notes and warnings say" : "",
                    "\n");
  } else {
    absl::StrAppend(&text, report.compared.size(),
                    report.compared.size() == 1 ? " variable" : " variables");
    if (report.largest_rounding.has_value()) {
      const NumericReport::Difference& most = *report.largest_rounding;
      const bool is_small = most.relative <= kNumericTolerance;
      const bool is_half = !is_small && most.relative <= report.tolerance;
      absl::StrAppendFormat(&text,
                            " equal within %s, where results are rounded: %s differs most, by "
                            "%.2g of its largest element, after step %d%s\n",
                            is_small  ? "1e-5"
                            : is_half ? "the rounding of 16-bit numbers"
                                      : "the rounding of the original",
                            most.variable, most.relative, most.step,
                            is_small || is_half
                                ? ""
                                : absl::StrFormat("; the original itself by %.2g, with its "
                                                  "batch in another order",
                                                  most.of_original));
    } else {
      absl::StrAppend(&text, " equal bit by bit\n");
    }
  }
  for (const NumericReport::Difference& difference : report.differences) {
    const std::string variable =
        absl::StrCat(difference.is_parameter ? "parameter " : "state ", difference.variable);
    const std::string index = DimsToString(difference.index);
    if (difference.is_among_ranks) {
      absl::StrAppendFormat(&text,
                            "  %s differs between ranks after step %d: rank 0 has %.9g, "
                            "rank %d has %.9g at %s\n",
                            variable, difference.step, difference.expected, difference.rank,
                            difference.found, index);
    } else {
      absl::StrAppendFormat(
          &text, "  %s, rank %d, after step %d: expected %.9g, found %.9g at %s\n", variable,
          difference.rank, difference.step, difference.expected, difference.found, index);
    }
  }
  const auto list = [&](absl::string_view what, const std::vector<std::string>& names) {
    if (!names.empty()) absl::StrAppend(&text, "  ", what, absl::StrJoin(names, ", "), "\n");
  };
  list("not compared, because rank-local: ", report.rank_local);
  list("not shown, because rounding changes them as much in the original: ", report.rough);
  list("not shown, because they do not change: ", report.unchanged);
  return text;
}

}  // namespace weft
