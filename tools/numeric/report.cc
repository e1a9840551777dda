#include "tools/numeric/report.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"

namespace weft {

std::string NumericReportText(const NumericReport& report) {
  std::string text =
      absl::StrCat(report.steps, report.steps == 1 ? " step on " : " steps on ", report.nranks,
                   report.nranks == 1 ? " rank" : " ranks", ", batch ", report.batch, ": ");
  if (!report.IsEqual()) {
    absl::StrAppend(&text, "different\n");
  } else {
    absl::StrAppend(&text, report.compared.size(),
                    report.compared.size() == 1 ? " variable" : " variables");
    if (report.largest_rounding.has_value()) {
      const NumericReport::Difference& most = *report.largest_rounding;
      const bool is_small = most.relative <= kNumericTolerance;
      absl::StrAppendFormat(&text,
                            " equal within %s, where results are rounded: %s differs most, by "
                            "%.2g of its largest element, after step %d%s\n",
                            is_small ? "1e-5" : "the rounding of the original", most.variable,
                            most.relative, most.step,
                            is_small ? ""
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
