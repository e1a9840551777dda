// Programs of workers and of parameter servers, verified together.
#include "transpiler/verifier/servers/server_programs.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "transpiler/verifier/testing/found.h"
#include "transpiler/verifier/verify.h"

namespace weft {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::weft::testing::Edits;
using ::weft::testing::Lines;
using ::weft::testing::ProgramOf;

constexpr char kOriginal[] = R"(
    var x : fp32[-1, 4] need_check_feed
    var w : fp32[4, 1] parameter persistable
    var v : fp32[4, 1] persistable
    var lr : fp32[1] persistable
    var loss : fp32[]
    Out=[y] = mul(X=[x], Y=[w])
    Out=[loss] = mean(X=[y]) role=forward|loss
    Out=[loss@GRAD] = fill_constant() role=backward|loss {shape=longs[], dtype=5, value=1.0}
    X@GRAD=[y@GRAD] = mean_grad(X=[y], Out@GRAD=[loss@GRAD]) role=backward
    Y@GRAD=[w@GRAD] = mul_grad(X=[x], Y=[w], Out@GRAD=[y@GRAD]) role=backward vars=[w, w@GRAD]
    ParamOut=[w], VelocityOut=[v] = momentum(Param=[w], Velocity=[v], Grad=[w@GRAD], LearningRate=[lr]) role=optimize {mu=0.9}
)";

constexpr char kWorker[] = R"(
    var x : fp32[-1, 4] need_check_feed
    var w : fp32[4, 1]
    var lr : fp32[1] persistable
    var loss : fp32[]
    ps_prefetch() {keys=ints[0]}
    Out=[w] = ps_pull() {server_key=0, shape=longs[4, 1]}
    Out=[y] = mul(X=[x], Y=[w])
    Out=[loss] = mean(X=[y]) role=forward|loss
    Out=[loss@GRAD] = fill_constant() role=backward|loss {shape=longs[], dtype=5, value=1.0}
    X@GRAD=[y@GRAD] = mean_grad(X=[y], Out@GRAD=[loss@GRAD]) role=backward
    Y@GRAD=[w@GRAD] = mul_grad(X=[x], Y=[w], Out@GRAD=[y@GRAD]) role=backward vars=[w, w@GRAD]
    ps_push(Grad=[w@GRAD], LearningRate=[lr]) role=optimize {server_key=0}
)";

constexpr char kServer[] = R"(
    var w : fp32[4, 1] parameter persistable
    var v : fp32[4, 1] persistable
    Grad=[w@GRAD], LearningRate=[lr] = ps_receive() role=optimize {server_key=0, shape=longs[4, 1]}
    ParamOut=[w], VelocityOut=[v] = momentum(Param=[w], Velocity=[v], Grad=[w@GRAD], LearningRate=[lr]) role=optimize {mu=0.9, server_key=0}
    ps_serve(X=[w]) role=optimize {server_key=0}
)";

// What is found in the programs after these edits, compared with the original.
std::vector<std::string> Found(const Edits& of_worker, const Edits& of_server) {
  const Program original = ProgramOf(kOriginal);
  const Program worker = ProgramOf(kWorker, of_worker), server = ProgramOf(kServer, of_server);
  VerifyOptions options;
  options.server = &server;
  options.original.main = &original;
  return Lines(Verify({{&worker, nullptr}}, options));
}

TEST(ServerPrograms, WorkersAndServersTogetherAreTheOriginal) {
  EXPECT_THAT(Found({}, {}), IsEmpty());
}

TEST(ServerPrograms, OtherMomentumOnTheServerDiffersFromTheOriginal) {
  EXPECT_THAT(Found({}, {{"mu=0.9", "mu=0.8"}}),
              ::testing::Contains(HasSubstr("W601: workers and servers together: ")));
}

TEST(ServerPrograms, SumInsteadOfTheMeanIsFound) {
  EXPECT_THAT(Found({}, {{"{server_key=0, shape", "{averages=false, server_key=0, shape"}}),
              ::testing::Contains(HasSubstr("W312: workers and servers together: ")));
}

TEST(ServerPrograms, PullAfterThePushIsFound) {
  const std::string pull = "    Out=[w] = ps_pull() {server_key=0, shape=longs[4, 1]}\n";
  const std::string push =
      "    ps_push(Grad=[w@GRAD], LearningRate=[lr]) role=optimize {server_key=0}\n";
  EXPECT_THAT(Found({{push, push + pull}}, {}),
              ::testing::Contains(
                  HasSubstr("error: W512: op 8 (ps_pull): expected key 0 before op 7 (ps_push)")));
}

TEST(ServerPrograms, PrefetchAfterThePullIsFound) {
  const std::string prefetch = "    ps_prefetch() {keys=ints[0]}\n";
  const std::string pull = "    Out=[w] = ps_pull() {server_key=0, shape=longs[4, 1]}\n";
  constexpr char kMessage[] = "(ps_prefetch): expected key 0 once, and before the op that pulls it";
  EXPECT_THAT(Found({{prefetch + pull, pull + prefetch}}, {}),
              ElementsAre(HasSubstr(absl::StrCat("W512: op 1 ", kMessage))));
  EXPECT_THAT(Found({{prefetch, prefetch + prefetch}}, {}),
              ElementsAre(HasSubstr(absl::StrCat("W512: op 1 ", kMessage))));
}

TEST(ServerPrograms, ServerThatServesBeforeTheUpdateOrTwiceIsFound) {
  const std::string serve = "    ps_serve(X=[w]) role=optimize {server_key=0}\n";
  const std::string update = "    ParamOut=[w]";
  EXPECT_THAT(
      Found({}, {{serve, ""}, {update, serve + update}}),
      ElementsAre(HasSubstr("W514: server program: op 2 (momentum): expected an op of key 0 "
                            "between op 0 (ps_receive) and op 1 (ps_serve)")));
  EXPECT_THAT(Found({}, {{serve, serve + serve}}),
              ElementsAre(HasSubstr("W514: server program: op 3 (ps_serve): expected one op that "
                                    "receives and one that serves key 0")));
}

TEST(ServerPrograms, SecondPushIsFound) {
  const std::string push =
      "    ps_push(Grad=[w@GRAD], LearningRate=[lr]) role=optimize {server_key=0}\n";
  EXPECT_THAT(Found({{push, push + push}}, {}),
              ElementsAre(HasSubstr("W512: op 8 (ps_push): expected one push of key 0 in a step")));
}

TEST(ServerPrograms, LearningRateThatTheServerDoesNotGetIsFound) {
  EXPECT_THAT(Found({{", LearningRate=[lr]", ""}}, {}),
              ElementsAre(HasSubstr(
                  "W516: op 7 (ps_push) input LearningRate: expected as many variables")));
}

TEST(ServerPrograms, PullOfAnotherParameterIsFound) {
  EXPECT_THAT(
      Found({{"Out=[w] = ps_pull", "Out=[u] = ps_pull"},
             {"Y=[w])\n    Out=[loss]", "Y=[u])\n    Out=[loss]"},
             {"Y=[w], Out@GRAD", "Y=[u], Out@GRAD"}},
            {}),
      ::testing::Contains(HasSubstr("W516: op 1 (ps_pull) output Out (u): expected w, which "
                                    "servers hold under key 0")));
}

TEST(ServerPrograms, RowsOfAnOptimizerThatUsesNormsAreFound) {
  const Edits edits = {
      {"ps_serve(X=[w]) role=optimize {", "ps_serve(X=[w]) role=optimize {by_rows=true, "},
      {"momentum(", "lars_momentum("}};
  EXPECT_THAT(Found({}, edits),
              ::testing::Contains(HasSubstr("(lars_momentum): expected an elementwise optimizer")));
}

TEST(ServerPrograms, ProgramOfTheOtherRoleIsFound) {
  const Program worker = ProgramOf(kWorker), server = ProgramOf(kServer);
  const auto found = [](const Program& main, const Program* given) {
    VerifyOptions options;
    options.server = given;
    return Lines(Verify({{&main, nullptr}}, options));
  };
  const auto is_of_servers = HasSubstr(
      "W511: op 0 (ps_receive): expected a program of workers, found one of the servers; give it "
      "as option:server");
  EXPECT_THAT(found(server, nullptr), ::testing::Contains(is_of_servers));
  EXPECT_THAT(found(server, &worker), ::testing::Contains(is_of_servers));
  EXPECT_THAT(found(worker, &worker),
              ::testing::Contains(HasSubstr("W511: server program: op 0 (ps_prefetch): expected a "
                                            "program of servers, found an op of workers")));
}

TEST(ServerPrograms, ServersThatWaitUnlikeEachOtherAreFound) {
  EXPECT_THAT(Found({}, {{"ps_serve(X=[w]) role=optimize {",
                          "ps_serve(X=[w]) role=optimize {is_async=true, "}}),
              ElementsAre(HasSubstr("W514: server program: op 2 (ps_serve) attribute is_async: "
                                    "expected false as in the ops before it, found true")));
}

TEST(ServerPrograms, NegativeKeyIsFound) {
  EXPECT_THAT(Found({{"keys=ints[0]", "keys=ints[-1]"}, {"server_key=0", "server_key=-1"}},
                    {{"server_key=0", "server_key=-1"}}),
              ::testing::Contains(HasSubstr("W514: server program: op 0 (ps_receive) attribute "
                                            "server_key: expected a key of 0 or more, found -1")));
}

}  // namespace
}  // namespace weft
