#include "tools/inspect/server_stats.h"

#include <string>

#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/text/program_text.h"

namespace weft::testing {
namespace {

Program Worker() {
  return *ParseProgramText(R"(program {
  block 0 parent=-1 {
    var ids : int64[-1, 2] need_check_feed
    var lr : fp32[1] persistable
    var a : fp32[3]
    var a@GRAD : fp32[3]
    var c : fp64[2]
    var c@GRAD : fp64[2]
    var rows : fp32[-1, 2, 4]
    var rows@GRAD : fp32[-1, 2, 4]
    var emb@GRAD : selected_rows<fp32[10, 4]>
    ps_prefetch() {keys=ints[0, 2]}
    Out=[rows] = ps_lookup(Ids=[ids]) {server_key=1, dtype=5, shape=longs[10, 4], table_op="lookup_table_v2", prefetch=true}
    Out=[a] = ps_pull() {server_key=0, dtype=5, shape=longs[3]}
    Out=[c] = ps_pull() {server_key=2, dtype=6, shape=longs[2]}
    ps_push(Grad=[c@GRAD], LearningRate=[lr]) {server_key=2}
    ps_push(Grad=[a@GRAD], LearningRate=[lr]) {server_key=0}
    W@GRAD=[emb@GRAD] = ps_lookup_grad(Ids=[ids], Out@GRAD=[rows@GRAD]) {server_key=1, dtype=5, shape=longs[10, 4], table_op="lookup_table_v2"}
    ps_push(Grad=[emb@GRAD], LearningRate=[lr]) {server_key=1}
  }
}
)");
}

Program Servers() {
  return *ParseProgramText(R"(program {
  block 0 parent=-1 {
    var a : fp32[3] parameter persistable
    var velocity : fp32[3] persistable
    var a@GRAD : fp32[3]
    var emb : fp32[5, 4] parameter persistable
    var emb@GRAD : selected_rows<fp32[5, 4]>
    var lr : fp32[1]
    Grad=[a@GRAD], LearningRate=[lr] = ps_receive() {server_key=0, shape=longs[3]}
    ParamOut=[a], VelocityOut=[velocity] = momentum(Param=[a], Velocity=[velocity], Grad=[a@GRAD], LearningRate=[lr]) {mu=0.9, server_key=0}
    ps_serve(X=[a]) {server_key=0}
    Grad=[emb@GRAD], LearningRate=[lr] = ps_receive() {is_sparse=true, server_key=1, shape=longs[5, 4]}
    ParamOut=[emb] = sgd(Param=[emb], Grad=[emb@GRAD], LearningRate=[lr]) {server_key=1}
    ps_serve(X=[emb]) {by_rows=true, server_key=1}
  }
}
)");
}

TEST(ServerStatsTest, WorkerExchangesParametersAndRows) {
  const auto keys = PredictServerTraffic(Worker(), /*batch=*/3);
  EXPECT_EQ(
      ServerTrafficText(keys, 2),
      "parameter servers: what a worker exchanges with them in a step\n"
      "  key 0  a                    pulled 12 bytes, pushed 16 bytes\n"
      "  key 1  emb                  a table of 10 rows: of each row asked 8 bytes, pulled 16 "
      "bytes, pushed 24 bytes; pulled at most 6, pushed at most 6; with a push, each server "
      "gets 4 bytes; prefetched rows that change come twice\n"
      "  key 2  c                    pulled 16 bytes, pushed 20 bytes\n"
      "  all but tables: pulled 28 bytes in 2 messages, pushed 36 bytes in 2 messages\n"
      "  server 0: pulled 28 bytes in 2 messages, pushed 36 bytes in 2 messages, keys 0, 2; 5 "
      "rows of key 1\n"
      "  server 1: pulled 0 bytes in 0 messages, pushed 0 bytes in 0 messages; 5 rows of key "
      "1\n");
}

// A lookup asks for each row once.
TEST(ServerStatsTest, NoMoreRowsArePulledThanTheTableHas) {
  const KeyTraffic emb = PredictServerTraffic(Worker(), /*batch=*/100).at(1);
  EXPECT_EQ(emb.most_pulled_rows, 10);
  EXPECT_EQ(emb.most_pushed_rows, 200);
}

TEST(ServerStatsTest, ServersKeepTheirParts) {
  WEFT_ASSERT_OK_AND_ASSIGN(const auto servers, PredictServedBytes(Servers(), 2));
  EXPECT_EQ(ServedBytesText(servers),
            "server 0 of 2 keeps 60 bytes of parameters, 12 of optimizer state; the pushes of a "
            "worker take 20 bytes until they are merged, and 24 for a row of each of 1 table\n"
            "server 1 of 2 keeps 32 bytes of parameters, 0 of optimizer state; the pushes of a "
            "worker take 4 bytes until they are merged, and 24 for a row of each of 1 table\n");
  EXPECT_THAT(PredictServedBytes(Servers(), 6),
              IsFailedPrecondition("server 5 of 6 would hold nothing"));
}

TEST(ServerStatsTest, ProgramWithoutServersHasNoLines) {
  const Program program = *ParseProgramText("program {\n  block 0 parent=-1 {\n  }\n}\n");
  EXPECT_EQ(ServerTrafficText(PredictServerTraffic(program, 1), 2), "");
}

}  // namespace
}  // namespace weft::testing
