#include "ops/analysis/training/gradient_names.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "absl/types/optional.h"
#include "gtest/gtest.h"
#include "proto/testing/block_text.h"
#include "proto/text/program_text.h"

namespace weft {
namespace {

class GradientNamesTest : public ::testing::TestWithParam<GradSuffix> {
 protected:
  void SetUp() override {
    std::string vars;
    for (const char* name : {"x", "x@GRAD", "x@GRAD@GRAD", "x@GRAD_0", "x@GRAD@RENAME@block0@1",
                             "y@GRAD", "z@LR", "@GRAD"}) {
      absl::StrAppend(&vars, "    var ", name, " : fp32[2, 2]\n");
    }
    // More than are looked up at once.
    for (int i = 0; i < 200; ++i) {
      absl::StrAppend(&vars, "    var v", i, " : fp32[2]\n    var v", i, "@GRAD : fp32[2]\n");
    }
    absl::StatusOr<Program> program = ParseProgramText(testing::BlockText(vars));
    ASSERT_TRUE(program.ok()) << program.status();
    program_.emplace(*std::move(program));
    names_.emplace(*program_, GetParam());
  }

  // Empty: none. Found in both ways.
  std::string Of(const std::string& name) {
    const Symbol gradient = program_->FindSymbol(name);
    const Symbol found = names_->DifferentiatedName(gradient);
    EXPECT_EQ(found, DifferentiatedName(*program_, gradient, GetParam())) << name;
    return found.valid() ? std::string(program_->name(found)) : "";
  }

  absl::optional<Program> program_;
  absl::optional<GradientNames> names_;
};

TEST_P(GradientNamesTest, TellsWhatAGradientIsOf) {
  EXPECT_EQ(Of("x@GRAD"), "x");
  EXPECT_EQ(Of("x@GRAD_0"), "x");
  EXPECT_EQ(Of("x@GRAD@RENAME@block0@1"), "x");
  EXPECT_EQ(Of("x@GRAD@GRAD"), GetParam() == GradSuffix::kFirst ? "x" : "x@GRAD");
  EXPECT_EQ(Of("v0@GRAD"), "v0");
  EXPECT_EQ(Of("v199@GRAD"), "v199");
}

TEST_P(GradientNamesTest, OtherNamesHaveNone) {
  EXPECT_EQ(Of("x"), "");
  EXPECT_EQ(Of("y@GRAD"), "");
  EXPECT_EQ(Of("z@LR"), "");
  EXPECT_EQ(Of("@GRAD"), "");
}

INSTANTIATE_TEST_SUITE_P(Suffixes, GradientNamesTest,
                         ::testing::Values(GradSuffix::kFirst, GradSuffix::kLast));

}  // namespace
}  // namespace weft
