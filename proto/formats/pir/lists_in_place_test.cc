// Ops that overwrite the elements of lists, in programs that Paddle 3.3.1 wrote.
#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_matchers.h"
#include "base/testing/archive.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/formats/pir/files_testing.h"
#include "proto/op_role.h"

namespace weft::pir {
namespace {

using ::testing::ElementsAre;
using ::weft::testing::IsInvalidArgument;

constexpr char kLars[] = R"({"#":"1.lars_momentum_")";

// Of tests/data/paddle3_pir_more_ops.tar.xz.
std::string Main(const std::string& model) {
  static const auto* const files = new std::map<std::string, std::string>(
      *weft::testing::ReadTarXz("tests/data/paddle3_pir_more_ops.tar.xz"));
  return files->at(model + "/main.json");
}

TEST(ListsInPlaceTest, UpdatesOfAListArePairedByElement) {
  WEFT_ASSERT_OK_AND_ASSIGN(const Program program, ImportBytes(Main("lars")));
  std::vector<std::string> updates;
  for (OpId id : program.block(0).ops()) {
    const Op op = program.op(id);
    if (op.type() != "lars_momentum") continue;
    EXPECT_TRUE(IsOptimize(op));
    EXPECT_EQ(op.Input("Param"), op.Output("ParamOut"));
    EXPECT_EQ(op.Input("Velocity"), op.Output("VelocityOut"));
    WEFT_ASSERT_OK_AND_ASSIGN(const auto pairs, ParamGrads(op));
    for (const ParamGrad& pair : pairs) updates.push_back(absl::StrCat(pair.param, " ", pair.grad));
  }
  EXPECT_THAT(updates,
              ElementsAre("linear_1.b_0 linear_1.b_0@GRAD", "linear_1.w_0 linear_1.w_0@GRAD",
                          "linear_0.b_0 linear_0.b_0@GRAD", "linear_0.w_0 linear_0.w_0@GRAD"));
}

// Updates read the gradients that are divided by the scale, by the names that they had before.
TEST(ListsInPlaceTest, GradientsAreUnscaledWhereTheyAre) {
  WEFT_ASSERT_OK_AND_ASSIGN(const Program program, ImportBytes(Main("loss_scaling")));
  int num_lists = 0;
  for (OpId id : program.block(0).ops()) {
    const Op op = program.op(id);
    if (op.type() != "check_finite_and_unscale" && op.type() != "update_loss_scaling") continue;
    EXPECT_EQ(op.Input("X").size(), 4u);
    EXPECT_EQ(op.Input("X"), op.Output("Out"));
    ++num_lists;
  }
  EXPECT_EQ(num_lists, 2);
}

// A file may have many updates of one long list.
TEST(ListsInPlaceTest, UpdatesOfOneListAreRefused) {
  std::string bytes = Main("lars");
  const auto operands_at = [&bytes](size_t op) { return bytes.find(R"("I":[)", op); };
  const size_t first = bytes.find(kLars), second = bytes.find(kLars, first + 1);
  ASSERT_NE(second, std::string::npos);
  const size_t from = operands_at(first), to = operands_at(second);
  bytes.replace(to, bytes.find(']', to) - to, bytes.substr(from, bytes.find(']', from) - from));
  EXPECT_THAT(ImportBytes(bytes), IsInvalidArgument("expected lists of its own"));
}

TEST(ListsInPlaceTest, ListsOfOtherSizesAreRefused) {
  std::string bytes = Main("lars");
  const std::string list = R"("0.t_vec","D":[)";
  const size_t at = bytes.find(list, bytes.find(kLars)) + list.size();
  const std::string last = "0]}";  // of the only element
  bytes.erase(at, bytes.find(last, at) + last.size() - at);
  EXPECT_THAT(
      ImportBytes(bytes),
      IsInvalidArgument("expected 1 elements, as the list in whose place it is has, found 0"));
}

}  // namespace
}  // namespace weft::pir
