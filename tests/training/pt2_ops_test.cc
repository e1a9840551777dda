// Samples of PyTorch's own tests (tests/data/pt2/make_op_steps.py): outputs and gradients are those
// of PyTorch.
#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/file.h"
#include "base/testing/archive.h"
#include "base/testing/test.h"
#include "executor/files/npz.h"
#include "tests/support/rounding.h"
#include "tools/job/process.h"

namespace weft::testing {
namespace {

constexpr double kTolerance = 1e-5;  // of the largest element, or of 1

TEST(Pt2OpsTest, OutputsAndGradientsAreThoseOfPyTorch) {
  WEFT_ASSERT_OK_AND_ASSIGN(const auto files, ReadTarXz("tests/data/pt2_ops.tar.xz"));
  const std::string step = absl::StrCat(::testing::TempDir(), "/step.pt2");
  const std::string feeds = absl::StrCat(::testing::TempDir(), "/feeds.npz");
  const std::string expected = absl::StrCat(::testing::TempDir(), "/expected.npz");
  const std::string saved = absl::StrCat(::testing::TempDir(), "/saved.npz");
  int ops = 0;
  for (const auto& [name, bytes] : files) {
    if (!absl::EndsWith(name, ".pt2")) continue;
    SCOPED_TRACE(name);
    ++ops;
    const std::string stem(absl::StripSuffix(name, ".pt2"));
    WEFT_ASSERT_OK(WriteFile(step, bytes));
    WEFT_ASSERT_OK(WriteFile(feeds, files.at(absl::StrCat(stem, "_feeds.npz"))));
    WEFT_ASSERT_OK(WriteFile(expected, files.at(absl::StrCat(stem, "_reference.npz"))));
    const ProcessResult result =
        RunProcess({"tools/weft", "run", step, "--feeds", feeds, "--save", saved});
    ASSERT_EQ(result.status, 0) << result.err;
    WEFT_ASSERT_OK_AND_ASSIGN(const auto reference, ReadNpz(expected));
    WEFT_ASSERT_OK_AND_ASSIGN(const auto found, ReadNpz(saved));
    for (const auto& [variable, tensor] : reference) {
      if (variable == "loss") continue;
      ASSERT_EQ(found.count(variable), 1u) << variable;
      const std::vector<double> want = AsDoubles(tensor), values = AsDoubles(found.at(variable));
      ASSERT_EQ(values.size(), want.size()) << variable;
      double largest = 1;
      for (const double value : want) {
        if (std::isfinite(value)) largest = std::max(largest, std::abs(value));
      }
      for (size_t i = 0; i < values.size(); ++i) {
        if (std::isnan(want[i]) && std::isnan(values[i])) continue;
        if (want[i] == values[i]) continue;  // infinities
        EXPECT_NEAR(values[i], want[i], kTolerance * largest) << variable << " " << i;
      }
    }
  }
  EXPECT_GE(ops, 50);
}

}  // namespace
}  // namespace weft::testing
