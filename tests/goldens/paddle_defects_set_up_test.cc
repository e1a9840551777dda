// Defects of Paddle's classes in what is asked of them and in the startup program, and that the
// weft dialect does not have them. Numbers of defects as in docs/paddle_dialect.md.
#include <string>
#include <vector>

#include "base/testing/test.h"
#include "tests/goldens/paddle_defects_model.h"

namespace weft::testing {
namespace {

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;

// ring_id of the ops that exchange the ids of rings.
std::vector<int> RingsOfIds(const Program& startup) {
  std::vector<int> rings;
  for (OpId id : startup.block(0).ops()) {
    const Op op = startup.op(id);
    if (op.type() == "c_gen_nccl_id") rings.push_back(IntOf(op, "ring_id"));
  }
  return rings;
}

// No. 4.
TEST(PaddleDefects, IdsOfAllRingsAreExchangedUnderOne) {
  TranspileOptions options = Paddle("grad_allreduce");
  options.mode_flags["nrings"] = "2";
  const Program main = TwoGradients().Build();
  WEFT_ASSERT_OK_AND_ASSIGN(const Rewritten paddle, Rewrite(main, StartupOfTwo(), options));
  EXPECT_THAT(RingsOfIds(paddle.startup), ElementsAre(0, 0));
  options.dialect = Dialect::kWeft;
  WEFT_ASSERT_OK_AND_ASSIGN(const Rewritten weft, Rewrite(main, StartupOfTwo(), options));
  EXPECT_THAT(RingsOfIds(weft.startup), ElementsAre(0, 1));
}

// No. 5. Here both dialects refuse it; Paddle divides by zero, or writes programs that do not fit
// together.
TEST(PaddleDefects, ContradictionsAreAccepted) {
  const auto rewrite = [](Dialect dialect, const ClusterSpec& who, const std::string& trans_mode,
                          const std::string& nrings) {
    TranspileOptions options;
    options.dialect = dialect;
    options.mode = "multi_thread";
    options.mode_flags = {{"trans_mode", trans_mode}, {"nrings", nrings}};
    options.cluster = who;
    return Rewrite(TwoGradients().Build(), StartupOfTwo(), options).status();
  };
  ClusterSpec two;
  two.endpoints = {"a:1", "b:1"};
  ClusterSpec beyond = two, others = two, twice = two;
  beyond.rank = 7;
  others.rank = 1;
  others.current_endpoint = "a:1";
  twice.endpoints = {"a:1", "a:1"};
  for (Dialect dialect : {Dialect::kWeft, Dialect::kPaddle}) {
    WEFT_EXPECT_OK(rewrite(dialect, two, "all_reduce", "1"));
    EXPECT_THAT(rewrite(dialect, beyond, "all_reduce", "1"), StatusIs(kInvalid, HasSubstr("rank")));
    EXPECT_THAT(rewrite(dialect, others, "all_reduce", "1"), StatusIs(kInvalid, HasSubstr("a:1")));
    EXPECT_THAT(rewrite(dialect, twice, "all_reduce", "1"), StatusIs(kInvalid, HasSubstr("a:1")));
    EXPECT_THAT(rewrite(dialect, two, "all_red", "1"), StatusIs(kInvalid, HasSubstr("all_red'")));
    EXPECT_THAT(rewrite(dialect, two, "all_reduce", "0"), StatusIs(kInvalid, HasSubstr("nrings")));
    EXPECT_THAT(rewrite(dialect, two, "all_reduce", "-1"), StatusIs(kInvalid, HasSubstr("nrings")));
  }
}

// No. 20.
TEST(PaddleDefects, TrainerAloneSetsUpRingZeroOnly) {
  TranspileOptions options = Paddle("multi_thread");
  options.mode_flags = {{"nrings", "2"}, {"trans_mode", "all_reduce"}};
  options.cluster.endpoints = {"a:1"};
  options.cluster.devices = {{0, 1}};
  const Program main = TwoGradients().Build();
  WEFT_ASSERT_OK_AND_ASSIGN(const Rewritten paddle, Rewrite(main, StartupOfTwo(), options));
  EXPECT_THAT(OpTexts(paddle.main), Contains(StartsWith("c_allreduce_sum@1")));
  EXPECT_THAT(OpTexts(paddle.startup), Contains("c_comm_init_all@0( -> )"));
  EXPECT_THAT(OpTexts(paddle.startup), Each(Not(HasSubstr("@1"))));
  options.dialect = Dialect::kWeft;
  WEFT_ASSERT_OK_AND_ASSIGN(const Rewritten weft, Rewrite(main, StartupOfTwo(), options));
  EXPECT_THAT(OpTexts(weft.main), Contains(StartsWith("c_allreduce_sum@1")));
  EXPECT_THAT(OpTexts(weft.startup), Contains("c_comm_init_all@0( -> )"));
  EXPECT_THAT(OpTexts(weft.startup), Contains("c_comm_init_all@1( -> )"));
}

// No. 30. Paddle's text has %s where the names belong.
TEST(PaddleDefects, ErrorOfTheEndpointHasNoNames) {
  for (TranspileOptions options : {Paddle("grad_allreduce"), Weft("grad_allreduce")}) {
    options.cluster = {};
    options.cluster.endpoints = {"a:1", "b:1"};
    options.cluster.current_endpoint = "c:1";
    EXPECT_THAT(Rewrite(TwoGradients().Build(), options),
                StatusIs(kInvalid, AllOf(HasSubstr("c:1"), HasSubstr("a:1"), HasSubstr("b:1"))));
  }
}

}  // namespace
}  // namespace weft::testing
