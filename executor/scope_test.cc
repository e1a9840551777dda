#include "executor/scope.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weft {
namespace {

using ::testing::ElementsAre;

TEST(ScopeTest, VariableIsMadeOnceAndStaysInPlace) {
  Scope scope;
  ScopeVariable* w = scope.FindOrCreate("w");
  for (int i = 0; i < 100; ++i) scope.FindOrCreate("v" + std::to_string(i));
  EXPECT_EQ(scope.FindOrCreate("w"), w);
  EXPECT_EQ(scope.Find("w"), w);
  EXPECT_FALSE(w->tensor.allocated());
}

TEST(ScopeTest, FindDoesNotMakeVariables) {
  Scope scope;
  EXPECT_EQ(scope.Find("w"), nullptr);
  EXPECT_TRUE(scope.names().empty());
}

TEST(ScopeTest, NamesAreSorted) {
  Scope scope;
  for (const char* name : {"c", "a", "b"}) scope.FindOrCreate(name);
  EXPECT_THAT(scope.names(), ElementsAre("a", "b", "c"));
}

}  // namespace
}  // namespace weft
