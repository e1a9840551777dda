#include "executor/plan/scope.h"

#include <string>

#include "gtest/gtest.h"

namespace weft {
namespace {

TEST(ScopeTest, VariableIsMadeOnceAndStaysInPlace) {
  Scope scope;
  Value* w = scope.FindOrCreate("w");
  for (int i = 0; i < 100; ++i) scope.FindOrCreate("v" + std::to_string(i));
  EXPECT_EQ(scope.FindOrCreate("w"), w);
  EXPECT_EQ(scope.Find("w"), w);
  EXPECT_FALSE(w->tensor.allocated());
}

TEST(ScopeTest, FindDoesNotMakeVariables) {
  Scope scope;
  EXPECT_EQ(scope.Find("w"), nullptr);
  EXPECT_EQ(scope.Find("w"), nullptr);
}

}  // namespace
}  // namespace weft
