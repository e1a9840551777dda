#include "executor/feeds.h"

#include <set>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "base/status_macros.h"

namespace weft {
namespace {

// Splits "<step>/<variable>"; the variable's name may contain slashes.
bool ParseFeedName(absl::string_view name, int64_t* step, std::string* variable) {
  const size_t slash = name.find('/');
  if (slash == absl::string_view::npos || slash + 1 == name.size()) return false;
  const absl::string_view digits = name.substr(0, slash);
  for (char c : digits) {
    if (!absl::ascii_isdigit(c)) return false;
  }
  // "007" would be a second name for step 7.
  if (digits.size() > 1 && digits[0] == '0') return false;
  *variable = std::string(name.substr(slash + 1));
  return absl::SimpleAtoi(digits, step);
}

}  // namespace

absl::StatusOr<FeedFile> FeedFile::Open(const std::string& path) {
  WEFT_ASSIGN_OR_RETURN(NpzFile npz, NpzFile::Open(path));
  std::map<int64_t, std::set<std::string>> steps;
  std::set<std::string> all;
  for (const std::string& name : npz.names()) {
    int64_t step = 0;
    std::string variable;
    if (!ParseFeedName(name, &step, &variable)) {
      return absl::InvalidArgumentError(absl::StrCat(path, ": array '", absl::CHexEscape(name),
                                                     "': expected a name <step>/<variable>"));
    }
    all.insert(variable);
    steps[step].insert(std::move(variable));
  }
  if (steps.empty()) return absl::InvalidArgumentError(absl::StrCat(path, ": it has no arrays"));
  int64_t expected_step = 0;
  for (const auto& [step, variables] : steps) {
    if (step != expected_step) {
      return absl::InvalidArgumentError(
          absl::StrCat(path, ": step ", expected_step, " has no arrays, but step ", step, " has"));
    }
    ++expected_step;
    for (const std::string& variable : all) {
      if (variables.count(variable) == 0) {
        return absl::InvalidArgumentError(absl::StrCat(path, ": step ", step, " lacks variable '",
                                                       absl::CHexEscape(variable),
                                                       "', which other steps have"));
      }
    }
  }
  FeedFile feeds(std::move(npz));
  feeds.num_steps_ = expected_step;
  feeds.variables_.assign(all.begin(), all.end());
  return feeds;
}

std::string FeedFile::ArrayName(int64_t step, absl::string_view variable) const {
  return absl::StrCat(step % num_steps_, "/", variable);
}

absl::StatusOr<std::vector<TensorType>> FeedFile::Types(int64_t step) const {
  std::vector<TensorType> types;
  for (const std::string& variable : variables_) {
    WEFT_ASSIGN_OR_RETURN(TensorType type, npz_.Type(ArrayName(step, variable)));
    types.push_back(std::move(type));
  }
  return types;
}

absl::StatusOr<std::map<std::string, Tensor>> FeedFile::Read(int64_t step) const {
  std::map<std::string, Tensor> arrays;
  for (const std::string& variable : variables_) {
    WEFT_ASSIGN_OR_RETURN(arrays[variable], npz_.Read(ArrayName(step, variable)));
  }
  return arrays;
}

}  // namespace weft
