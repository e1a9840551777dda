#include "proto/formats/pir/op_table.h"

#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weft::pir {
namespace {

using ::testing::IsEmpty;

TEST(OpTableTest, RowsAreConsistent) {
  std::set<absl::string_view> names;
  for (const OpRule& rule : AllRules()) {
    SCOPED_TRACE(rule.pir);
    EXPECT_TRUE(names.insert(rule.pir).second);
    bool writes_in_place = false;
    for (const ResultRule& result : rule.results) writes_in_place |= result.in_place_of >= 0;
    EXPECT_EQ(writes_in_place, IsInPlace(rule.pir));
    for (const OperandRule& operand : rule.operands) EXPECT_THAT(operand.name, Not(IsEmpty()));
    // Gradients of what the op or its forward op reads.
    if (!IsGradientOp(rule.pir)) continue;
    if (absl::EndsWith(rule.pir, "_double_grad") || absl::EndsWith(rule.pir, "_grad_grad")) {
      for (const ResultRule& result : rule.results) {
        if (result.name == "grad_out_grad") continue;  // some read no grad_out
        EXPECT_GE(rule.FindOperand(absl::StripSuffix(result.name, "_grad")), 0) << result.name;
      }
      continue;
    }
    const OpRule* const forward =
        FindRule(absl::StrCat("1.", absl::StripSuffix(BaseName(rule.pir), "_grad")));
    const OpRule* const in_place =
        FindRule(absl::StrCat("1.", absl::StripSuffix(BaseName(rule.pir), "_grad"), "_"));
    ASSERT_TRUE(forward != nullptr || in_place != nullptr);
    for (const ResultRule& result : rule.results) {
      const absl::string_view name = absl::StripSuffix(result.name, "_grad");
      EXPECT_GE((forward != nullptr ? forward : in_place)->FindOperand(name), 0) << name;
    }
  }
}

}  // namespace
}  // namespace weft::pir
