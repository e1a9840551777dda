#include "transpiler/passes/servers/parameter_server.h"

#include <string>

#include "absl/strings/str_replace.h"
#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ops/analysis/testing/compact_program.h"
#include "transpiler/testing/expect_rewrite.h"
#include "transpiler/testing/message_lines.h"
#include "transpiler/testing/text_edits.h"

namespace weft::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr auto kRefused = absl::StatusCode::kFailedPrecondition;

// w goes to servers; b stays.
constexpr char kMomentum[] = R"(
    Out=[h] = mul(X=[x], Y=[w])
    Out=[y] = elementwise_add(X=[h], Y=[b])
    Out=[y@GRAD] = fill_constant() role=backward|loss {shape=longs[2, 2], dtype=5, value=1.0}
    X@GRAD=[h@GRAD], Y@GRAD=[b@GRAD] = elementwise_add_grad(X=[h], Y=[b], Out@GRAD=[y@GRAD]) role=backward vars=[b, b@GRAD]
    Y@GRAD=[w@GRAD] = mul_grad(X=[x], Y=[w], Out@GRAD=[h@GRAD]) role=backward vars=[w, w@GRAD]
    ParamOut=[w], VelocityOut=[v] = momentum(Param=[w], Velocity=[v], Grad=[w@GRAD], LearningRate=[lr]) role=optimize {mu=0.9}
    ParamOut=[b] = sgd(Param=[b], Grad=[b@GRAD], LearningRate=[lr]) role=optimize
  )";

constexpr char kMomentumOnServers[] = R"(
    var w : fp32[2, 2]
    ps_prefetch() {keys=ints[0]}
    Out=[w] = ps_pull() {server_key=0, shape=longs[2, 2]}
    Out=[h] = mul(X=[x], Y=[w])
    Out=[y] = elementwise_add(X=[h], Y=[b])
    Out=[y@GRAD] = fill_constant() role=backward|loss {shape=longs[2, 2], value=1.0}
    X@GRAD=[h@GRAD], Y@GRAD=[b@GRAD] = elementwise_add_grad(X=[h], Y=[b], Out@GRAD=[y@GRAD]) role=backward vars=[b, b@GRAD]
    Out=[b@GRAD] = c_wait_compute(X=[b@GRAD]) role=backward
    Out=[b@GRAD] = c_allreduce_avg(X=[b@GRAD]) role=backward
    Y@GRAD=[w@GRAD] = mul_grad(X=[x], Y=[w], Out@GRAD=[h@GRAD]) role=backward vars=[w, w@GRAD]
    ps_push(Grad=[w@GRAD], LearningRate=[lr]) role=optimize {server_key=0}
    Out=[b@GRAD] = c_wait_comm(X=[b@GRAD]) role=backward
    ParamOut=[b] = sgd(Param=[b], Grad=[b@GRAD], LearningRate=[lr]) role=optimize
  )";

constexpr char kTable[] = R"(
    var ids : int64[4] need_check_feed
    var table : fp32[5, 2] parameter persistable
    Out=[rows] = lookup_table_v2(Ids=[ids], W=[table]) {is_sparse=true}
    Out=[rows@GRAD] = fill_constant() role=backward|loss {shape=longs[4, 2], dtype=5, value=1.0}
    W@GRAD=[table@GRAD] = lookup_table_v2_grad(Ids=[ids], Out@GRAD=[rows@GRAD], W=[table]) role=backward vars=[table, table@GRAD] {is_sparse=true}
    ParamOut=[table] = sgd(Param=[table], Grad=[table@GRAD], LearningRate=[lr]) role=optimize
  )";

RewriteOptions OnServers(const std::vector<std::string>& params) {
  RewriteOptions options;
  for (const std::string& param : params) options.param_attrs[param].parameter_server = true;
  return options;
}

// Expects the program of the servers.
void ExpectServer(const TranspileResult& result, const char* expected) {
  ASSERT_TRUE(result.server.has_value());
  const std::string found = CanonicalText(result.server->ToProto());
  EXPECT_EQ(LineDiff(CanonicalText(CompactProgram(expected).ToProto()), found), "") << found;
}

constexpr char kBoth[] = "parameter-server,grad-all-reduce";

TEST(ParameterServer, OptimizerAndItsStateGoToServers) {
  RewriteOptions options = OnServers({"w"});
  options.erased_vars = {"v"};
  const TranspileResult result = ExpectRewrite(kBoth, kMomentum, kMomentumOnServers, options);
  ExpectServer(result, R"(
    Grad=[w@GRAD], LearningRate=[lr] = ps_receive() role=optimize {server_key=0, shape=longs[2, 2]}
    ParamOut=[w], VelocityOut=[v] = momentum(Param=[w], Velocity=[v], Grad=[w@GRAD], LearningRate=[lr]) role=optimize {mu=0.9, server_key=0}
    ps_serve(X=[w]) role=optimize {server_key=0}
  )");
}

TEST(ParameterServer, OpsThatKeepStateBeforeTheUpdateGoToServersToo) {
  RewriteOptions options = OnServers({"w"});
  options.erased_vars = {"v", "ahead"};
  const TranspileResult result = ExpectRewrite("parameter-server", R"(
    var v : fp32[2, 2] persistable
    var mu : fp32[] need_check_feed
  + var w : fp32[2, 2]
  + ps_prefetch() {keys=ints[0]}
  + Out=[w] = ps_pull() {server_key=0, shape=longs[2, 2]}
    Out=[y] = mul(X=[x], Y=[w])
    Out=[y@GRAD] = fill_constant() role=backward|loss {shape=longs[2, 2], dtype=5, value=1.0}
    Y@GRAD=[w@GRAD] = mul_grad(X=[x], Y=[w], Out@GRAD=[y@GRAD]) role=backward vars=[w, w@GRAD]
  - Out=[v] = scale(X=[v], ScaleTensor=[mu]) role=optimize vars=[w, w@GRAD]
  - Out=[v] = elementwise_add(X=[v], Y=[w@GRAD]) role=optimize vars=[w, w@GRAD]
  - Out=[ahead] = scale(X=[v], ScaleTensor=[mu]) role=optimize vars=[w, w@GRAD]
  - ParamOut=[w] = sgd(Param=[w], Grad=[ahead], LearningRate=[lr]) role=optimize vars=[w, w@GRAD]
  + ps_push(Grad=[w@GRAD], LearningRate=[lr], Others=[mu]) role=optimize {server_key=0}
  )",
                                               options);
  ExpectServer(result, R"(
    var v : fp32[2, 2] persistable
    var mu : fp32[]
    Grad=[w@GRAD], LearningRate=[lr], Others=[mu] = ps_receive() role=optimize {server_key=0, shape=longs[2, 2]}
    Out=[v] = scale(X=[v], ScaleTensor=[mu]) role=optimize vars=[w, w@GRAD] {server_key=0}
    Out=[v] = elementwise_add(X=[v], Y=[w@GRAD]) role=optimize vars=[w, w@GRAD] {server_key=0}
    Out=[ahead] = scale(X=[v], ScaleTensor=[mu]) role=optimize vars=[w, w@GRAD] {server_key=0}
    ParamOut=[w] = sgd(Param=[w], Grad=[ahead], LearningRate=[lr]) role=optimize vars=[w, w@GRAD] {server_key=0}
    ps_serve(X=[w]) role=optimize {server_key=0}
  )");
}

TEST(ParameterServer, TableThatOnlyLookupsReadIsHeldByRows) {
  RewriteOptions options = OnServers({"table"});
  const TranspileResult result = ExpectRewrite("parameter-server", kTable, R"(
    var table : fp32[5, 2]
    Out=[rows] = ps_lookup(Ids=[ids]) {server_key=0, shape=longs[5, 2], table_op="lookup_table_v2"}
    Out=[rows@GRAD] = fill_constant() role=backward|loss {shape=longs[4, 2], value=1.0}
    W@GRAD=[table@GRAD] = ps_lookup_grad(Ids=[ids], Out@GRAD=[rows@GRAD]) role=backward vars=[table, table@GRAD] {server_key=0, shape=longs[5, 2], table_op="lookup_table_v2"}
    ps_push(Grad=[table@GRAD], LearningRate=[lr]) role=optimize {server_key=0}
  )",
                                               options);
  ASSERT_TRUE(result.server.has_value());
  EXPECT_THAT(CanonicalText(result.server->ToProto()),
              AllOf(HasSubstr("is_sparse=true"), HasSubstr("by_rows=true")));
}

TEST(ParameterServer, RowsOfFedIdsArePrefetched) {
  RewriteOptions options = OnServers({"table"});
  ExpectRewrite("parameter-server{prefetch_rows=on}", kTable, R"(
    var table : fp32[5, 2]
    Out=[rows] = ps_lookup(Ids=[ids]) {server_key=0, shape=longs[5, 2], table_op="lookup_table_v2", prefetch=true}
    Out=[rows@GRAD] = fill_constant() role=backward|loss {shape=longs[4, 2], value=1.0}
    W@GRAD=[table@GRAD] = ps_lookup_grad(Ids=[ids], Out@GRAD=[rows@GRAD]) role=backward vars=[table, table@GRAD] {server_key=0, shape=longs[5, 2], table_op="lookup_table_v2"}
    ps_push(Grad=[table@GRAD], LearningRate=[lr]) role=optimize {server_key=0}
  )",
                options);
}

constexpr char kTableWithZeros[] = R"(
    var table : fp32[5, 2]
    Out=[rows] = ps_lookup(Ids=[ids]) {server_key=0, shape=longs[5, 2], table_op="lookup_table_v2", zeros_out_of_range=true}
    Out=[rows@GRAD] = fill_constant() role=backward|loss {shape=longs[4, 2], value=1.0}
    W@GRAD=[table@GRAD] = ps_lookup_grad(Ids=[ids], Out@GRAD=[rows@GRAD]) role=backward vars=[table, table@GRAD] {server_key=0, shape=longs[5, 2], table_op="lookup_table_v2", zeros_out_of_range=true}
    ps_push(Grad=[table@GRAD], LearningRate=[lr]) role=optimize {server_key=0}
)";

TEST(ParameterServer, IdsThatAreNoRowsMayGiveZeros) {
  RewriteOptions options = OnServers({"table"});
  ExpectRewrite("parameter-server{out_of_range=zeros}", kTable, kTableWithZeros, options);
  // As lookups have it that an embedding on the host had.
  ExpectRewrite("parameter-server",
                absl::StrReplaceAll(kTable, {{"is_sparse=true",
                                              "is_sparse=true, "
                                              "zeros_out_of_range=true"}}),
                kTableWithZeros, options);
  Program main = CompactProgram(kMomentum);
  ProgramPair programs{&main, nullptr};
  TranspileOptions whole;
  whole.passes = "parameter-server{out_of_range=zeros}";
  whole.param_attrs["w"].parameter_server = true;
  EXPECT_THAT(
      Transpile(whole, programs).status(),
      IsFailedPrecondition("out_of_range: expected a table that servers hold by rows, found none"));
}

// A second lookup by ids that the step computes, or a change of the fed ids.
TEST(ParameterServer, RowsOfComputedIdsAreNot) {
  constexpr char kPrefetch[] = "parameter-server{prefetch_rows=on}";
  const std::string first =
      "    Out=[rows] = lookup_table_v2(Ids=[ids], W=[table]) {is_sparse=true}\n";
  const std::string second =
      "    Out=[others] = "
      "assign(X=[ids])\n    Out=[other_rows] = lookup_table_v2(Ids=[others], W=[table]) "
      "{is_sparse=true}\n";
  RewriteOptions options = OnServers({"table"});
  Program main = CompactProgram(absl::StrReplaceAll(kTable, {{first, first + second}}));
  ProgramPair programs{&main, nullptr};
  TranspileOptions transpile;
  transpile.passes = kPrefetch;
  transpile.param_attrs = options.param_attrs;
  WEFT_ASSERT_OK_AND_ASSIGN(const TranspileResult result, Transpile(transpile, programs));
  EXPECT_THAT(
      testing::ResultLines(result.messages),
      ::testing::Contains(
          "note: pass parameter-server: prefetch_rows: op 2 (lookup_table_v2) looks up rows "
          "of table by others, which is not fed as it is: its rows are not prefetched"));
  const std::string written = "    Out=[ids] = assign(X=[ids])\n";
  EXPECT_THAT(
      RewriteStatus(kPrefetch, absl::StrReplaceAll(kTable, {{first, written + first}}), options),
      StatusIs(kRefused, HasSubstr("prefetch_rows: expected a lookup by ids that are fed, "
                                   "found none: op 1 (lookup_table_v2) looks up rows of "
                                   "table by ids, which is not fed as it is")));
  EXPECT_THAT(RewriteStatus(kPrefetch, kMomentum, OnServers({"w"})),
              StatusIs(kRefused, HasSubstr("found none: no table is held by rows")));
}

TEST(ParameterServer, TableThatAnotherOpReadsIsHeldWhole) {
  const std::string text =
      absl::StrReplaceAll(kTable, {{"    Out=[rows@GRAD] = fill",
                                    "    Out=[n] = reduce_sum(X=[table]) "
                                    "{reduce_all=true}\n    Out=[rows@GRAD] = fill"}});
  RewriteOptions options = OnServers({"table"});
  WEFT_EXPECT_OK(RewriteStatus("parameter-server", text, options));
}

TEST(ParameterServer, AllKeysAreReceivedBeforeTheFirstUpdate) {
  RewriteOptions options = OnServers({"w", "b"});
  options.erased_vars = {"v"};
  Program main = CompactProgram(kMomentum);
  ProgramPair programs{&main, nullptr};
  TranspileOptions transpile;
  transpile.passes = "parameter-server{wait=all_keys}";
  transpile.param_attrs = options.param_attrs;
  WEFT_ASSERT_OK_AND_ASSIGN(const TranspileResult result, Transpile(transpile, programs));
  std::vector<std::string> types;
  for (OpId id : result.server->block(0).ops()) {
    types.emplace_back(result.server->op(id).type());
  }
  EXPECT_THAT(types, ::testing::ElementsAre("ps_receive", "ps_receive", "momentum", "ps_serve",
                                            "sgd", "ps_serve"));
}

TEST(ParameterServer, WithoutParametersOnServersNothingChanges) {
  EXPECT_FALSE(ExpectNoRewrite("parameter-server", kMomentum).server.has_value());
}

TEST(ParameterServer, UseAfterTheUpdateIsRefused) {
  const std::string text = std::string(kMomentum) + "    Out=[copy] = assign(X=[w])\n";
  EXPECT_THAT(
      RewriteStatus(kBoth, text, OnServers({"w"})),
      StatusIs(kRefused, AllOf(HasSubstr("(assign): variable w"), HasSubstr("after the update"))));
}

TEST(ParameterServer, StateThatAnotherOpReadsIsRefused) {
  const std::string text = std::string(kMomentum) + "    Out=[copy] = assign(X=[v])\n";
  EXPECT_THAT(RewriteStatus(kBoth, text, OnServers({"w"})),
              StatusIs(kRefused, HasSubstr("(assign): variable v: expected an optimizer's state")));
}

// The norm is that of each worker's gradient, not that of the mean.
TEST(ParameterServer, ClippedGradientIsRefused) {
  const std::string text =
      absl::StrReplaceAll(kMomentum, {{"    ParamOut=[w]",
                                       "    Out=[w@GRAD] = clip_by_norm(X=[w@GRAD]) role=optimize "
                                       "{max_norm=1.0}\n    ParamOut=[w]"}});
  EXPECT_THAT(RewriteStatus(kBoth, text, OnServers({"w"})),
              StatusIs(kRefused, HasSubstr("workers and servers together: ")));
}

TEST(ParameterServer, OptionsThatHaveNoEffectAreRefused) {
  constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
  EXPECT_THAT(RewriteStatus("parameter-server{staleness=4}", kMomentum, OnServers({"w"})),
              StatusIs(kInvalid, HasSubstr("option staleness: expected option async with it")));
  EXPECT_THAT(
      RewriteStatus("parameter-server{async=on,wait=all_keys}", kMomentum, OnServers({"w"})),
      StatusIs(kInvalid, HasSubstr("option wait: expected per_key with option async")));
}

TEST(ParameterServer, AsynchronousUpdatesAreNoted) {
  RewriteOptions options = OnServers({"w"});
  options.erased_vars = {"v"};
  const TranspileResult result =
      ExpectRewrite("parameter-server{async=on,staleness=2},grad-all-reduce", kMomentum,
                    kMomentumOnServers, options);
  ASSERT_TRUE(result.server.has_value());
  EXPECT_THAT(CanonicalText(result.server->ToProto()),
              AllOf(HasSubstr("is_async=true"), HasSubstr("staleness=2")));
  EXPECT_THAT(testing::ResultLines(result.messages), ::testing::Contains(HasSubstr("note: W715")));
}

}  // namespace
}  // namespace weft::testing
