#include "tools/job/run_outputs_testing.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "base/file.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace weft::testing {

Args operator+(Args args, const Args& more) {
  args.insert(args.end(), more.begin(), more.end());
  return args;
}

std::string TestPath(const std::string& name) {
  const auto* const test = ::testing::UnitTest::GetInstance()->current_test_info();
  return absl::StrCat(::testing::TempDir(), "/", absl::StrReplaceAll(test->name(), {{"/", "_"}}),
                      "_", name);
}

std::string Contents(const std::string& path) {
  const absl::StatusOr<FileBytes> file = ReadFile(path);
  return file.ok() ? std::string(file->bytes) : file.status().ToString();
}

std::string MetricsWithoutTimes(const std::string& path) {
  std::vector<std::string> lines;
  const std::string text = Contents(path);
  for (absl::string_view line : absl::StrSplit(text, '\n', absl::SkipEmpty())) {
    auto json = nlohmann::json::parse(line.begin(), line.end(), nullptr, false);
    if (json.is_object()) json.erase("ms");
    lines.push_back(json.dump());
  }
  return absl::StrJoin(lines, "\n");
}

}  // namespace weft::testing
