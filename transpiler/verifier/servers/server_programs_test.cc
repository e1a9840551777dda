// Programs of workers and of parameter servers, verified together.
#include "transpiler/verifier/servers/server_programs.h"

#include <iterator>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "transpiler/verifier/testing/found.h"
#include "transpiler/verifier/verify.h"

namespace weft::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

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

// Two parameters, u and w, under keys 0 and 1.
constexpr char kTwoOriginal[] = R"(program {
  block 0 parent=-1 {
    var x : fp32[-1, 4] need_check_feed
    var u : fp32[4, 4] parameter persistable
    var w : fp32[4, 4] parameter persistable
    var lr : fp32[1] persistable
    var h : fp32[-1, 4]
    var y : fp32[-1, 4]
    var loss : fp32[]
    var loss@GRAD : fp32[]
    var y@GRAD : fp32[-1, 4]
    var h@GRAD : fp32[-1, 4]
    var w@GRAD : fp32[4, 4]
    var u@GRAD : fp32[4, 4]
    Out=[h] = mul(X=[x], Y=[u])
    Out=[y] = mul(X=[h], Y=[w])
    Out=[loss] = mean(X=[y]) role=forward|loss
    Out=[loss@GRAD] = fill_constant() role=backward|loss {shape=longs[], dtype=5, value=1.0}
    X@GRAD=[y@GRAD] = mean_grad(X=[y], Out@GRAD=[loss@GRAD]) role=backward
    X@GRAD=[h@GRAD], Y@GRAD=[w@GRAD] = mul_grad(X=[h], Y=[w], Out@GRAD=[y@GRAD]) role=backward vars=[w, w@GRAD]
    Y@GRAD=[u@GRAD] = mul_grad(X=[x], Y=[u], Out@GRAD=[h@GRAD]) role=backward vars=[u, u@GRAD]
    ParamOut=[u] = sgd(Param=[u], Grad=[u@GRAD], LearningRate=[lr]) role=optimize
    ParamOut=[w] = sgd(Param=[w], Grad=[w@GRAD], LearningRate=[lr]) role=optimize
  }
}
)";

constexpr Edits::value_type kTwoToWorker[] = {
    {"u : fp32[4, 4] parameter persistable", "u : fp32[4, 4]"},
    {"w : fp32[4, 4] parameter persistable", "w : fp32[4, 4]"},
    {"    Out=[h] = mul",
     "    Out=[u] = ps_pull() {server_key=0, shape=longs[4, 4]}\n"
     "    Out=[w] = ps_pull() {server_key=1, shape=longs[4, 4]}\n"
     "    Out=[h] = mul"},
    {"    ParamOut=[u] = sgd(Param=[u], Grad=[u@GRAD], LearningRate=[lr]) role=optimize\n",
     "    ps_push(Grad=[u@GRAD], LearningRate=[lr]) role=optimize {server_key=0}\n"},
    {"    ParamOut=[w] = sgd(Param=[w], Grad=[w@GRAD], LearningRate=[lr]) role=optimize\n",
     "    ps_push(Grad=[w@GRAD], LearningRate=[lr]) role=optimize {server_key=1}\n"},
};

constexpr char kTwoVars[] = R"(program {
  block 0 parent=-1 {
    var u : fp32[4, 4] parameter persistable
    var w : fp32[4, 4] parameter persistable
    var rate : fp32[1] persistable
    var lr : fp32[1]
    var w@GRAD : fp32[4, 4]
    var u@GRAD : fp32[4, 4]
)";
constexpr char kReceiveU[] =
    "    Grad=[u@GRAD], LearningRate=[lr] = ps_receive() role=optimize {server_key=0, "
    "shape=longs[4, 4]}\n";
constexpr char kReceiveW[] =
    "    Grad=[w@GRAD], LearningRate=[lr] = ps_receive() role=optimize {server_key=1, "
    "shape=longs[4, 4]}\n";
constexpr char kServeU[] =
    "    ParamOut=[u] = sgd(Param=[u], Grad=[u@GRAD], LearningRate=[lr]) role=optimize "
    "{server_key=0}\n    ps_serve(X=[u]) role=optimize {server_key=0}\n";
constexpr char kServeW[] =
    "    ParamOut=[w] = sgd(Param=[w], Grad=[w@GRAD], LearningRate=[lr]) role=optimize "
    "{server_key=1}\n    ps_serve(X=[w]) role=optimize {server_key=1}\n";

// Servers that update each key when it comes, or receive all keys first.
std::string PerKey() {
  return absl::StrCat(kTwoVars, kReceiveU, kServeU, kReceiveW, kServeW, "  }\n}\n");
}
std::string AllKeys() {
  return absl::StrCat(kTwoVars, kReceiveU, kReceiveW, kServeU, kServeW, "  }\n}\n");
}

std::vector<std::string> FoundInTwo(absl::string_view server_text, const Edits& of_server,
                                    const Edits& of_worker = {}) {
  const Program original = ProgramOf(kTwoOriginal);
  Edits edits(std::begin(kTwoToWorker), std::end(kTwoToWorker));
  edits.insert(edits.end(), of_worker.begin(), of_worker.end());
  const Program worker = ProgramOf(kTwoOriginal, edits);
  const Program server = ProgramOf(server_text, of_server);
  VerifyOptions options;
  options.server = &server;
  options.original.main = &original;
  return Lines(Verify({{&worker, nullptr}}, options));
}

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

TEST(ServerPrograms, OpWithoutAKeyIsFound) {
  EXPECT_THAT(
      Found({}, {{"    ps_serve(X=[w])",
                  "    Out=[w] = scale(X=[w]) {scale=0.5}\n"
                  "    ps_serve(X=[w])"}}),
      ElementsAre("error: W519: server program: op 2 (scale): expected attribute server_key "
                  "with a key that an op serves"));
}

TEST(ServerPrograms, OpOfABlockOfTheServersIsFound) {
  const std::string serve = "(X=[w]) role=optimize {server_key=0}\n";
  EXPECT_THAT(
      Found({}, {{serve, serve + "    block 1:\n"
                                 "    Out=[w] = scale(X=[w]) {scale=0.5, server_key=0}\n"}}),
      ElementsAre("error: W519: server program: block 1, op 0 (scale): expected the op in "
                  "the root block, the only one that servers run"));
}

TEST(ServerPrograms, OpThatIsNotElementwiseOnRowsIsFound) {
  EXPECT_THAT(
      Found({},
            {{"ps_serve(X=[w]) role=optimize {", "ps_serve(X=[w]) role=optimize {by_rows=true, "},
             {"    ParamOut=",
              "    Out=[w@GRAD] = clip_by_norm(X=[w@GRAD]) role=optimize "
              "{max_norm=1.0, server_key=0}\n    ParamOut="}}),
      ::testing::Contains(HasSubstr("W514: server program: op 1 (clip_by_norm): expected an "
                                    "elementwise op, as each server has some rows of w")));
}

// The worker's rate stays as it is.
TEST(ServerPrograms, ScalarThatAServerChangesIsNotTheWorkers) {
  const std::string halves = "Out=[lr] = scale(X=[lr]) role=optimize {scale=0.5";
  const Program original =
      ProgramOf(kOriginal, {{"    ParamOut=", "    " + halves + "}\n    ParamOut="}});
  const Program worker = ProgramOf(kWorker);
  const Program server =
      ProgramOf(kServer, {{"    ParamOut=", "    " + halves + ", server_key=0}\n    ParamOut="}});
  VerifyOptions options;
  options.server = &server;
  options.original.main = &original;
  EXPECT_THAT(Lines(Verify({{&worker, nullptr}}, options)),
              ::testing::Contains(HasSubstr("W602: workers and servers together: ")));
}

TEST(ServerPrograms, WorkerThatChangesAParameterOfServersIsFound) {
  const std::string decays = "    Out=[w] = scale(X=[w]) {scale=0.5}\n";
  const Program original = ProgramOf(kOriginal, {{"    Out=[y]", decays + "    Out=[y]"}});
  const Program worker = ProgramOf(kWorker, {{"    Out=[y]", decays + "    Out=[y]"}});
  const Program server = ProgramOf(kServer);
  VerifyOptions options;
  options.server = &server;
  options.original.main = &original;
  EXPECT_THAT(Lines(Verify({{&worker, nullptr}}, options)),
              ElementsAre("error: W515: op 2 (scale): writes w, which servers hold: expected a "
                          "variable of the worker"));
}

TEST(ServerPrograms, KeysMayShareTheScalarThatWorkersPush) {
  EXPECT_THAT(FoundInTwo(PerKey(), {}), IsEmpty());
  EXPECT_THAT(FoundInTwo(AllKeys(), {}), IsEmpty());
}

// Gradients come in one variable: each is used before the next comes, or it is not.
TEST(ServerPrograms, GradientThatAnotherKeyOverwritesIsFound) {
  const Edits edits = {
      {"Grad=[w@GRAD], LearningRate=[lr] = ps", "Grad=[u@GRAD], LearningRate=[lr] = ps"},
      {"Grad=[w@GRAD], LearningRate=[lr])", "Grad=[u@GRAD], LearningRate=[lr])"}};
  EXPECT_THAT(FoundInTwo(PerKey(), edits), IsEmpty());
  EXPECT_THAT(
      FoundInTwo(AllKeys(), edits),
      ElementsAre("error: W520: server program: op 2 (sgd): expected in u@GRAD what key 0 "
                  "has received or computed, found what op 1 (ps_receive) of key 1 writes"));
}

TEST(ServerPrograms, ScalarThatDiffersFromKeyToKeyIsFound) {
  const Edits halved = {{"    ps_push(Grad=[w@GRAD]",
                         "    Out=[lr] = scale(X=[lr]) role=optimize {scale=0.5}\n"
                         "    ps_push(Grad=[w@GRAD]"}};
  const auto is_found = ::testing::Contains(
      HasSubstr("W520: server program: op 2 (sgd): expected in lr what key 0 has received"));
  EXPECT_THAT(FoundInTwo(AllKeys(), {}, halved), is_found);
  EXPECT_THAT(FoundInTwo(PerKey(), {}, halved), ::testing::Not(is_found));
  // Of keys that come one by one, the scalars may be of different workers.
  const Edits async = {
      {"ps_receive() role=optimize {", "ps_receive() role=optimize {is_async=true, "},
      {"ps_serve(X=[u]) role=optimize {", "ps_serve(X=[u]) role=optimize {is_async=true, "},
      {"ps_serve(X=[w]) role=optimize {", "ps_serve(X=[w]) role=optimize {is_async=true, "}};
  EXPECT_THAT(FoundInTwo(AllKeys(), async), is_found);
  EXPECT_THAT(FoundInTwo(PerKey(), async), ::testing::Not(is_found));
}

TEST(ServerPrograms, ScalarThatAnotherKeyReceivesIsFound) {
  EXPECT_THAT(
      FoundInTwo(PerKey(), {{"Grad=[w@GRAD], LearningRate=[lr] = ps", "Grad=[w@GRAD] = ps"}},
                 {{"ps_push(Grad=[w@GRAD], LearningRate=[lr])", "ps_push(Grad=[w@GRAD])"}}),
      ElementsAre("error: W520: server program: op 4 (sgd): expected in lr what key 1 has "
                  "received or computed, found what op 0 (ps_receive) of key 0 writes"));
}

TEST(ServerPrograms, StateThatKeysShareIsFoundIfOneWritesIt) {
  const Edits reads = {
      {"Grad=[u@GRAD], LearningRate=[lr])", "Grad=[u@GRAD], LearningRate=[rate])"},
      {"Grad=[w@GRAD], LearningRate=[lr])", "Grad=[w@GRAD], LearningRate=[rate])"}};
  EXPECT_THAT(FoundInTwo(PerKey(), reads), ::testing::Not(::testing::Contains(HasSubstr("W520"))));
  Edits writes = reads;
  writes.emplace_back("    ps_serve(X=[u])",
                      "    Out=[rate] = scale(X=[rate]) {scale=0.5, server_key=0}\n    "
                      "ps_serve(X=[u])");
  EXPECT_THAT(FoundInTwo(PerKey(), writes),
              ElementsAre("error: W520: server program: op 5 (sgd): expected rate in ops of one "
                          "key, as another server may have another key, found it in op 1 (sgd) of "
                          "key 0, too"));
}

}  // namespace
}  // namespace weft::testing
