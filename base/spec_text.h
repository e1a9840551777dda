// Text that names things and their options: the passes of a pipeline, a bucket policy, a schedule.
//
//   grad-all-reduce{nrings=2,scale=avg},sync-elimination
#ifndef WEFT_BASE_SPEC_TEXT_H_
#define WEFT_BASE_SPEC_TEXT_H_

#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace weft {

// A name and its options, in the order of the text.
struct Spec {
  std::string name;
  std::vector<std::pair<std::string, std::string>> options;

  friend bool operator==(const Spec& a, const Spec& b) {
    return a.name == b.name && a.options == b.options;
  }
};

// Parses "a{k=v,k2=v2},b". Names consist of letters, digits, '-' and '_'. A value that contains one
// of ,{}= or has blanks at its ends is in double quotes. An option whose name begins with '$' is a
// placeholder, which the caller replaces; it needs no value ("a{$k,$l=2}").
// InvalidArgument with the position.
absl::StatusOr<std::vector<Spec>> ParseSpecs(absl::string_view text);

// The inverse of ParseSpecs.
std::string ToString(const std::vector<Spec>& specs);

}  // namespace weft

#endif  // WEFT_BASE_SPEC_TEXT_H_
