#include "executor/servers/worker_port.h"

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/types/optional.h"
#include "base/status_macros.h"
#include "base/testing/test.h"
#include "ops/cpu/testing.h"
#include "ops/schema/op_schema.h"
#include "ops/schema/server_ops.h"

namespace weft::testing {
namespace {

// Worker 0, and servers of a table of 5 rows: ranks 1 and 2.
class WorkerPortTest : public ::testing::Test {
 protected:
  WorkerPortTest()
      : post_({3, 0, 3}, nullptr),
        port_(group_, 0, [this](int64_t step, int variable) { return NextFeed(step, variable); }) {
    group_.timeout_s = 10;
    group_.post = &post_;
    ServedKey table;
    table.param = "table";
    table.type = {DType::kFloat32, {5, 1}};
    table.by_rows = true;
    group_.keys[0] = table;
    push_.work = Plan::ServerWork{ServerOp::kPush};
    push_.kernel_spec.attrs = OpAttrs::Make(*FindOpSchema("ps_push"));
    push_.kernel_spec.inputs["Grad"] = {0, 1};
    lookup_.work = Plan::ServerWork{ServerOp::kLookup};
    lookup_.name = "op 3 (ps_lookup)";
    lookup_.inputs = {kIds};
    lookup_.kernel_spec.attrs =
        OpAttrs::Make(*FindOpSchema("ps_lookup"), {{std::string(kPrefetchAttr), true}});
  }

  absl::Status Push(const std::vector<int64_t>& rows) {
    Tensor grad;
    grad.ResizeRows(DType::kFloat32, {5, 1}, static_cast<int64_t>(rows.size()));
    for (size_t i = 0; i < rows.size(); ++i) {
      grad.mutable_rows()[i] = rows[i];
      grad.data<float>()[i] = 1;
    }
    return port_.Run(push_, {&grad}, {});
  }

  static constexpr int kIds = 8;  // of the plan

  static Tensor Ids(const std::vector<int64_t>& ids) {
    return Int64s({static_cast<int64_t>(ids.size())}, ids);
  }

  // The next batch.
  absl::StatusOr<absl::optional<Tensor>> NextFeed(int64_t step, int variable) {
    EXPECT_EQ(variable, kIds);
    EXPECT_EQ(step, step_ + 1);
    return next_ids_;
  }
  void BeginStep(int64_t step) {
    step_ = step;
    port_.BeginStep(step);
  }

  // The servers' messages come before the lookup asks for them.
  void Answer(int64_t request, int server, ServerMessage::Kind kind, std::vector<Tensor> tensors) {
    ServerMessage message;
    message.kind = kind;
    message.from = group_.RankOf(server);
    message.request = request;
    message.tensors = std::move(tensors);
    post_.mailbox(0)->Put(std::move(message));
  }
  void Reply(int64_t request, int server, const std::vector<float>& rows) {
    Answer(request, server, ServerMessage::Kind::kReply,
           {Floats({static_cast<int64_t>(rows.size()), 1}, rows)});
  }

  absl::StatusOr<std::vector<float>> Lookup(const std::vector<int64_t>& ids) {
    const Tensor in = Ids(ids);
    Tensor out;
    WEFT_RETURN_IF_ERROR(port_.Run(lookup_, {&in}, {&out}));
    return std::vector<float>(out.data<float>(), out.data<float>() + out.size());
  }

  // The next message to a server; its rows, or none for another kind.
  std::vector<int64_t> Wanted(int server, ServerMessage::Kind kind) {
    const auto message = post_.mailbox(group_.RankOf(server))->Take(0);
    if (!message.ok() || !message->has_value() || (*message)->kind != kind) return {};
    const Tensor& rows = (*message)->tensors[0];
    return std::vector<int64_t>(rows.data<int64_t>(), rows.data<int64_t>() + rows.size());
  }

  static ServerGroup TwoServers() {
    ServerGroup group;
    group.num_servers = 2;
    return group;
  }

  ServerPost post_;
  ServerGroup group_ = TwoServers();
  WorkerPort port_;
  Plan::PlanOp push_, lookup_;
  int64_t step_ = 0;
  absl::optional<Tensor> next_ids_;
};

TEST_F(WorkerPortTest, EachServerGetsItsRows) {
  WEFT_ASSERT_OK(Push({4, -1, 0, 4}));
  WEFT_ASSERT_OK_AND_ASSIGN(const auto first, post_.mailbox(1)->Take(0));
  WEFT_ASSERT_OK_AND_ASSIGN(const auto second, post_.mailbox(2)->Take(0));
  ASSERT_TRUE(first.has_value() && second.has_value());
  EXPECT_THAT(first->tensors[0].rows(), ElementsAre(0));
  EXPECT_THAT(second->tensors[0].rows(), ElementsAre(1, 1));
  // Of each row its number, and one element.
  EXPECT_EQ(port_.traffic_of_servers()[0].pushed.bytes, 1 * (8 + 4));
  EXPECT_EQ(port_.traffic_of_servers()[1].pushed.bytes, 2 * (8 + 4));
  EXPECT_EQ(port_.traffic_of_servers()[1].pushed.messages, 1);
}

TEST_F(WorkerPortTest, GradientOfARowThatTheTableLacksIsRefused) {
  EXPECT_THAT(Push({0, 5}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "input Grad: row 5 at position 1 is not in [0, 5), the rows of table"));
}

// --- Rows of the next step -----------------------------------------------------------------------

TEST_F(WorkerPortTest, RowsOfTheNextBatchArePrefetchedAndBroughtUpToDate) {
  constexpr auto kPull = ServerMessage::Kind::kPull, kPrefetch = ServerMessage::Kind::kPrefetch;
  BeginStep(0);
  next_ids_ = Ids({4, 1, 4, 0});
  Reply(0, 0, {1});
  WEFT_ASSERT_OK_AND_ASSIGN(std::vector<float> rows, Lookup({1, 1}));
  EXPECT_THAT(rows, ElementsAre(1, 1));
  EXPECT_THAT(Wanted(0, kPull), ElementsAre(1));
  EXPECT_THAT(Wanted(0, kPrefetch), ElementsAre(1, 0));
  EXPECT_THAT(Wanted(1, kPrefetch), ElementsAre(1));

  BeginStep(1);
  next_ids_.reset();
  Reply(1, 0, {10, 20});
  Reply(2, 1, {30});
  Answer(1, 0, ServerMessage::Kind::kChanges, {Int64s({1}, {1}), Floats({1, 1}, {21})});
  Answer(2, 1, ServerMessage::Kind::kChanges, {});
  WEFT_ASSERT_OK_AND_ASSIGN(rows, Lookup({4, 1, 4, 0}));
  EXPECT_THAT(rows, ElementsAre(30, 10, 30, 21));
  EXPECT_THAT(Wanted(0, kPull), ElementsAre()) << "no pull";
  EXPECT_EQ(port_.traffic().pulled, 1);
  EXPECT_EQ(port_.traffic().prefetched, 3);
  EXPECT_EQ(port_.traffic().changed, 1);
  EXPECT_EQ(port_.traffic().waited_bytes, 2 * 4);
  const ServerTraffic& first = port_.traffic_of_servers()[0];
  EXPECT_EQ(first.asked.messages, 2);
  EXPECT_EQ(first.asked.bytes, (1 + 2) * 8);
  EXPECT_EQ(first.pulled.messages, 3);
  EXPECT_EQ(first.pulled.bytes, (1 + 2) * 4 + 8 + 4) << "with the position of what has changed";
  ASSERT_EQ(port_.prefetches().size(), 1U);
  EXPECT_EQ(port_.prefetches()[0].rows, 3);
  EXPECT_GT(port_.prefetches()[0].end, port_.prefetches()[0].begin);
}

TEST_F(WorkerPortTest, BatchThatComesLateIsPrefetchedBeforeAPush) {
  BeginStep(0);
  Reply(0, 0, {1});
  WEFT_ASSERT_OK(Lookup({1}).status());
  next_ids_ = Ids({0});
  WEFT_ASSERT_OK(Push({1}));
  EXPECT_THAT(Wanted(0, ServerMessage::Kind::kPull), ElementsAre(1));
  EXPECT_THAT(Wanted(0, ServerMessage::Kind::kPrefetch), ElementsAre(0));
  WEFT_ASSERT_OK(Push({1}));
  EXPECT_THAT(Wanted(0, ServerMessage::Kind::kPrefetch), ElementsAre()) << "once";
}

TEST_F(WorkerPortTest, IdOfTheNextBatchThatIsNoRowIsAnErrorOfTheNextStep) {
  BeginStep(0);
  next_ids_ = Ids({5, -1, 2});
  Reply(0, 0, {1});
  WEFT_ASSERT_OK(Lookup({1}).status());
  BeginStep(1);
  EXPECT_THAT(Lookup({5, -1, 2}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "input Ids: 5 at position 0 is not in [0, 5), the rows of table"));
}

TEST_F(WorkerPortTest, IdsThatAreNotThoseFedAreRefused) {
  BeginStep(0);
  next_ids_ = Ids({2});
  Reply(0, 0, {1});
  WEFT_ASSERT_OK(Lookup({1}).status());
  BeginStep(1);
  Reply(1, 0, {10});
  Answer(1, 0, ServerMessage::Kind::kChanges, {});
  EXPECT_THAT(Lookup({2, 3}),
              IsInvalidArgument("expected the ids that are fed, by which rows were prefetched in "
                                "the step before, found 3 at position 1"));
}

TEST_F(WorkerPortTest, AnswersThatDoNotFitAreRefused) {
  using Kind = ServerMessage::Kind;
  const auto ask = [this](const std::function<void()>& answer) {
    WorkerPort port(group_, 0,
                    [this](int64_t step, int variable) -> absl::StatusOr<absl::optional<Tensor>> {
                      absl::optional<Tensor> next;
                      if (step == 1) next = Ids({0, 4});
                      return next;
                    });
    const Tensor ids = Ids({1}), next = Ids({0, 4});
    Tensor out;
    Reply(0, 0, {1});
    port.BeginStep(0);
    WEFT_EXPECT_OK(port.Run(lookup_, {&ids}, {&out}));
    answer();
    port.BeginStep(1);
    const absl::Status status = port.Run(lookup_, {&next}, {&out});
    for (;;) {  // of the next case
      const auto rest = post_.mailbox(0)->Take(0);
      if (!rest.ok() || !rest->has_value()) break;
    }
    return status;
  };
  const auto expect = [&](const std::function<void()>& answer, const std::string& message) {
    EXPECT_THAT(ask(answer), IsInternal(message));
  };
  // Requests 1 and 2: a row of each server.
  expect(
      [&] {
        Reply(1, 0, {1, 2});
      },
      "rank 1 answers for key 0 (table): expected fp32[1, 1], found a reply of fp32[2, 1]");
  expect([&] { Answer(1, 0, Kind::kReply, {Ids({1})}); }, "found a reply of int64[1]");
  expect([&] { Answer(1, 0, Kind::kReply, {}); }, "expected fp32[1, 1], found a reply");
  expect([&] { Reply(9, 0, {1}); }, "of rank 1 for key 0, request 9, which does not wait for it");
  expect([&] { Reply(1, 1, {1}); }, "of rank 2 for key 0, request 1, which does not wait for it");
  expect([&] { Answer(1, 0, Kind::kPush, {}); }, "found another message of rank 1");
  const auto changes = [&](std::vector<Tensor> tensors) {
    return [&, tensors = std::move(tensors)] {
      Reply(1, 0, {1});
      Answer(1, 0, Kind::kChanges, tensors);
    };
  };
  const Tensor row = Floats({1, 1}, {5});
  expect(changes({Ids({1}), row}), "expected a position below 1 instead of 1");
  expect(changes({Ids({-1}), row}), "expected a position below 1 instead of -1");
  expect(changes({Ids({0, 0}), row}), "expected positions, and as many rows of fp32[5, 1]");
  expect(changes({Ids({0})}), "expected positions, and as many rows");
  expect(changes({row, row}), "found changed rows of fp32[1, 1], fp32[1, 1]");
}

}  // namespace
}  // namespace weft::testing
