#include "proto/symbol_table.h"

#include <deque>
#include <string>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace weft {
namespace {

TEST(SymbolTable, EqualNamesAreOneSymbol) {
  SymbolTable table;
  const std::string a = "fc_0.w_0", b = a;
  EXPECT_EQ(table.Intern(a), table.Intern(b));
  EXPECT_EQ(table.size(), 1);
}

TEST(SymbolTable, SymbolsCountInOrderOfFirstAppearance) {
  SymbolTable table;
  EXPECT_EQ(table.Intern("b").value(), 0);
  EXPECT_EQ(table.Intern("a").value(), 1);
  EXPECT_EQ(table.Intern("b").value(), 0);
  EXPECT_EQ(table.name(Symbol(1)), "a");
}

TEST(SymbolTable, FindDoesNotAdd) {
  SymbolTable table;
  EXPECT_FALSE(table.Find("x").valid());
  EXPECT_EQ(table.size(), 0);
  table.Intern("");
  EXPECT_EQ(table.Find("").value(), 0);
}

TEST(SymbolTable, ManyNamesSurviveGrowth) {
  SymbolTable table;
  std::deque<std::string> names;
  for (int i = 0; i < 100000; ++i) {
    names.push_back(absl::StrCat("tmp_", i));
    ASSERT_EQ(table.Intern(names.back()).value(), i);
  }
  for (int i = 0; i < 100000; ++i) ASSERT_EQ(table.Find(names[i]).value(), i);
  EXPECT_FALSE(table.Find("tmp_100000").valid());
}

TEST(SymbolTable, ReserveKeepsExistingSymbols) {
  SymbolTable table;
  table.Intern("w");
  table.Reserve(100000);
  EXPECT_EQ(table.Find("w").value(), 0);
}

}  // namespace
}  // namespace weft
