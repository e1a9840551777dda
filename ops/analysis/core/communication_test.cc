#include "ops/analysis/core/communication.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/testing/block_text.h"

namespace weft {
namespace {

Communication Of(const std::string& op) {
  const Program program = testing::BlockProgram(absl::StrCat("    ", op, "\n"));
  return Communications(program).Of(program.op(program.block(0).ops()[0]));
}

TEST(Communication, CollectivesCommunicateAndSynchronizationsDoNot) {
  EXPECT_EQ(Of("Out=[a] = c_allreduce_sum(X=[a])"), Communication::kCollective);
  EXPECT_EQ(Of("Out=[a] = c_wait_comm(X=[a]) {ring_id=0}"), Communication::kNone);
  EXPECT_EQ(Of("c_comm_init_all() {ring_id=0}"), Communication::kNone);
  EXPECT_EQ(Of("Out=[a] = relu(X=[a])"), Communication::kNone);
}

TEST(GroupRanks, AreDistinctRanksInAscendingOrder) {
  const auto ranks_of = [](const std::string& attrs) -> std::string {
    const Program program =
        testing::BlockProgram(absl::StrCat("    Out=[a] = c_allreduce_sum(X=[a]) ", attrs, "\n"));
    const auto ranks = GroupRanksOf(program.op(program.block(0).ops()[0]));
    return ranks.ok() ? GroupText(*ranks) : std::string(ranks.status().message());
  };
  EXPECT_EQ(ranks_of(""), "all ranks");
  EXPECT_EQ(ranks_of("{group_ranks=ints[2]}"), "rank 2");
  EXPECT_EQ(ranks_of("{group_ranks=ints[0, 2]}"), "ranks 0, 2");
  const std::string error =
      "op 0 (c_allreduce_sum) attribute group_ranks: expected distinct ranks in ascending order, "
      "found ";
  EXPECT_EQ(ranks_of("{group_ranks=ints[2, 0]}"), error + "2, 0");
  EXPECT_EQ(ranks_of("{group_ranks=ints[1, 1]}"), error + "1, 1");
  EXPECT_EQ(ranks_of("{group_ranks=ints[-1, 1]}"), error + "-1, 1");
  EXPECT_EQ(ranks_of("{group_ranks=longs[2147483648]}"), error + "2147483648");
  EXPECT_EQ(ranks_of("{group_ranks=ints[]}"), error + "none");
  EXPECT_EQ(ranks_of("{group_ranks=1}"), error + "another type than INTS");
}

TEST(Communication, SynchronizedMomentsCommunicateUnlessTheyAreRunningOnes) {
  const std::string norm = "Y=[y] = sync_batch_norm(X=[x]) ";
  EXPECT_EQ(Of(norm), Communication::kMoments);
  EXPECT_EQ(Of(norm + "{is_test=true}"), Communication::kNone);
  EXPECT_EQ(Of(norm + "{is_test=true, trainable_statistics=true}"), Communication::kMoments);
  EXPECT_EQ(Of(norm + "{use_global_stats=true}"), Communication::kNone);
  EXPECT_EQ(Of("X@GRAD=[x] = sync_batch_norm_grad(X=[x]) "), Communication::kMoments);
  EXPECT_EQ(Of("Y=[y] = batch_norm(X=[x]) "), Communication::kNone);
}

TEST(Communication, UnregisteredOpsCommunicateIfTheyNameARing) {
  EXPECT_EQ(Of("an_op_of_a_fork(X=[a]) {ring_id=0}"), Communication::kUnknown);
  EXPECT_EQ(Of("fused_attention(X=[a]) {ring_id=-1}"), Communication::kNone);
  EXPECT_EQ(Of("an_op_of_a_fork(X=[a])"), Communication::kNone);
}

TEST(Communication, UsersSayThatAnUnregisteredOpDoesNotCommunicate) {
  Program program = testing::BlockProgram(
      "    my_op(X=[a]) {ring_id=0}\n    my_op_grad(X=[a]) {ring_id=0}\n"
      "    other_op(X=[a]) {ring_id=0}\n");
  program.set_setting(R"({"assumptions":{"my_op":"no_communication"}})");
  const ProgramFacts facts(program);
  const Communications& communications = facts.Get<Communications>();
  std::vector<Communication> found;
  for (OpId id : program.block(0).ops()) found.push_back(communications.Of(program.op(id)));
  EXPECT_THAT(found, ::testing::ElementsAre(Communication::kNone, Communication::kNone,
                                            Communication::kUnknown));
}

TEST(Communication, MessagesAndBarriersAreNoCollectives) {
  EXPECT_EQ(Of("send_v2(X=[a]) {ring_id=0, peer=1}"), Communication::kSend);
  EXPECT_EQ(Of("Out=[a] = recv_v2() {peer=1}"), Communication::kReceive);
  // Unregistered.
  EXPECT_EQ(Of("p_send(x=[a]) {ring_id=0, peer=1}"), Communication::kSend);
  EXPECT_EQ(Of("out=[a] = partial_recv() {peer=1}"), Communication::kReceive);
  EXPECT_EQ(Of("barrier(X=[a]) {ring_id=0}"), Communication::kBarrier);
}

TEST(Communication, OnlyValuesOfOtherRanksMakeAProgramOneForRanks) {
  const auto any = [](const std::string& op) {
    return Communicates(testing::BlockProgram(absl::StrCat("    ", op, "\n")));
  };
  EXPECT_TRUE(any("Out=[a] = c_allreduce_sum(X=[a])"));
  EXPECT_TRUE(any("send_v2(X=[a]) {ring_id=0, peer=1}"));
  EXPECT_TRUE(any("barrier(X=[a]) {ring_id=0}"));
  EXPECT_FALSE(any("Y=[y] = sync_batch_norm(X=[x])"));
  EXPECT_FALSE(any("c_comm_init_all() {ring_id=0}"));
  EXPECT_FALSE(any("Out=[a] = relu(X=[a])"));
}

}  // namespace
}  // namespace weft
