#include "ops/schema/extra/einsum.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "base/status_macros.h"

namespace weft {
namespace {

const std::string kEllipsis = "...";

absl::Status BadEquation(absl::string_view equation, absl::string_view why) {
  return absl::InvalidArgumentError(absl::StrCat("attribute equation: '", equation, "': ", why));
}

// The term with digits for "...", which stands for `count` dimensions.
absl::StatusOr<std::string> Labels(absl::string_view equation, std::string term, size_t count) {
  if (count > 10) return BadEquation(equation, "expected at most 10 dimensions for ...");
  std::string digits;
  for (size_t i = count; i-- > 0;) digits.push_back(static_cast<char>('0' + i));
  const size_t at = term.find(kEllipsis);
  if (at != std::string::npos) term.replace(at, kEllipsis.size(), digits);
  for (size_t i = 0; i < term.size(); ++i) {
    const bool is_digit = at != std::string::npos && i >= at && i < at + digits.size();
    if (!is_digit && !absl::ascii_isalpha(static_cast<unsigned char>(term[i]))) {
      return BadEquation(equation, "expected letters, ',', '...' and '->'");
    }
  }
  return term;
}

}  // namespace

Dims Einsum::OutDims() const {
  Dims dims;
  for (char label : out) dims.push_back(sizes.at(label));
  return dims;
}

absl::StatusOr<Einsum> ParseEinsum(absl::string_view equation, const std::vector<Dims>& operands) {
  const std::string text = absl::StrReplaceAll(equation, {{" ", ""}});
  const std::vector<std::string> sides = absl::StrSplit(text, "->");
  const std::vector<std::string> terms = absl::StrSplit(sides[0], ',');
  if (sides.size() > 2) return BadEquation(equation, "expected one '->'");
  if (terms.size() != operands.size()) {
    return BadEquation(equation, absl::StrCat("expected ", operands.size(), " operands"));
  }
  Einsum einsum;
  size_t most_hidden = 0;
  for (size_t i = 0; i < terms.size(); ++i) {
    const bool has_ellipsis = terms[i].find(kEllipsis) != std::string::npos;
    const size_t named = terms[i].size() - (has_ellipsis ? kEllipsis.size() : 0);
    const size_t rank = operands[i].size();
    if (rank < named || (!has_ellipsis && rank != named)) {
      return BadEquation(
          equation, absl::StrCat("operand ", i, " has dimensions ", DimsToString(operands[i])));
    }
    most_hidden = std::max(most_hidden, rank - named);
    WEFT_ASSIGN_OR_RETURN(const std::string labels, Labels(equation, terms[i], rank - named));
    for (size_t d = 0; d < rank; ++d) {
      int64_t& size = einsum.sizes.emplace(labels[d], 1).first->second;
      const int64_t dim = operands[i][d];
      if (size == 1 || (size == -1 && dim != 1)) {
        size = dim;
      } else if (dim != 1 && dim != -1 && dim != size) {
        return BadEquation(equation, absl::StrCat("label ", std::string(1, labels[d]), " is ", size,
                                                  " and ", dim));
      }
    }
    einsum.operands.push_back(labels);
  }
  if (sides.size() == 2) {
    WEFT_ASSIGN_OR_RETURN(einsum.out, Labels(equation, sides[1], most_hidden));
  } else {
    WEFT_ASSIGN_OR_RETURN(einsum.out, Labels(equation, kEllipsis, most_hidden));
    for (const auto& [label, size] : einsum.sizes) {
      if (!absl::ascii_isalpha(static_cast<unsigned char>(label))) continue;
      size_t count = 0;
      for (const std::string& labels : einsum.operands) {
        count += static_cast<size_t>(std::count(labels.begin(), labels.end(), label));
      }
      if (count == 1) einsum.out.push_back(label);
    }
  }
  for (char label : einsum.out) {
    if (einsum.sizes.count(label) == 0) {
      return BadEquation(equation, "expected labels of operands in the result");
    }
    if (std::count(einsum.out.begin(), einsum.out.end(), label) > 1) {
      return BadEquation(equation, "expected each label of the result once");
    }
  }
  return einsum;
}

}  // namespace weft
