#include "executor/servers/server_checks.h"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/testing/test.h"
#include "ops/tensor.h"

namespace weft::testing {
namespace {

using Kind = ServerMessage::Kind;

Tensor Dense(DType dtype, const Dims& dims) {
  Tensor tensor;
  tensor.Resize(dtype, dims);
  return tensor;
}

Tensor Numbers(const std::vector<int64_t>& numbers) {
  Tensor tensor = Dense(DType::kInt64, {static_cast<int64_t>(numbers.size())});
  std::copy(numbers.begin(), numbers.end(), tensor.data<int64_t>());
  return tensor;
}

Tensor GradRows(const std::vector<int64_t>& rows, int64_t height, DType dtype = DType::kFloat32) {
  Tensor tensor;
  tensor.ResizeRows(dtype, {height, 2}, static_cast<int64_t>(rows.size()));
  std::copy(rows.begin(), rows.end(), tensor.mutable_rows().begin());
  return tensor;
}

// A matrix and a table, of which this server has 3 rows, each with a learning rate.
class ServerChecksTest : public ::testing::Test {
 protected:
  ServerChecksTest() {
    matrix_.param = "w";
    matrix_.type = {DType::kFloat32, {4, 2}};
    of_matrix_.num_workers = of_table_.num_workers = 2;
    of_matrix_.grad = matrix_.type;
    of_matrix_.num_rows = 4;
    of_matrix_.others = of_table_.others = {TensorType{DType::kFloat32, {1}}};
    table_.param = "table";
    table_.type = {DType::kFloat32, {5, 2}};
    table_.by_rows = true;
    of_table_.grad = {DType::kFloat32, {3, 2}, TensorType::Kind::kSelectedRows};
    of_table_.num_rows = 3;
  }

  static ServerMessage Message(Kind kind, std::vector<Tensor> tensors) {
    ServerMessage message;
    message.kind = kind;
    message.from = 1;
    message.key = 7;
    message.step = 4;
    message.tensors = std::move(tensors);
    return message;
  }
  static std::vector<Tensor> List(Tensor a, Tensor b) {
    std::vector<Tensor> list;
    list.push_back(std::move(a));
    list.push_back(std::move(b));
    return list;
  }
  static std::vector<Tensor> List(Tensor a) {
    std::vector<Tensor> list;
    list.push_back(std::move(a));
    return list;
  }
  static Tensor Rate() { return Dense(DType::kFloat32, {1}); }

  absl::Status OfMatrix(const ServerMessage& message) const {
    return CheckMessage(message, 4, matrix_, of_matrix_);
  }
  absl::Status OfTable(const ServerMessage& message) const {
    return CheckMessage(message, 4, table_, of_table_);
  }

  ServedKey matrix_, table_;
  ExpectedMessages of_matrix_, of_table_;
};

TEST_F(ServerChecksTest, WhatWorkersSendIsAccepted) {
  WEFT_EXPECT_OK(OfMatrix(Message(Kind::kPush, List(Dense(DType::kFloat32, {4, 2}), Rate()))));
  WEFT_EXPECT_OK(OfMatrix(
      Message(Kind::kPush, List(Dense(DType::kFloat32, {1, 4, 2}), Dense(DType::kFloat32, {})))));
  WEFT_EXPECT_OK(OfMatrix(Message(Kind::kPull, {})));
  WEFT_EXPECT_OK(OfTable(Message(Kind::kPush, List(GradRows({2, 0, 2}, 3), Rate()))));
  WEFT_EXPECT_OK(OfTable(Message(Kind::kPull, List(Numbers({2, 0})))));
  WEFT_EXPECT_OK(OfTable(Message(Kind::kPrefetch, List(Numbers({1})))));
  ServerMessage none = Message(Kind::kPush, List(Rate()));
  none.has_no_rows = true;
  WEFT_EXPECT_OK(OfTable(none));
}

struct Wrong {
  const char* what;
  ServerMessage message;
  std::string expected;
};

// A server that has all rows of a table gets those that are none, too.
TEST_F(ServerChecksTest, RowsOfAWholeTableMayBeNone) {
  table_.by_rows = false;
  WEFT_EXPECT_OK(OfTable(Message(Kind::kPush, List(GradRows({2, -1}, 3), Rate()))));
  EXPECT_THAT(OfTable(Message(Kind::kPush, List(GradRows({2, 3}, 3), Rate()))),
              IsInvalidArgument("expected rows in [0, 3), found 3 at position 1"));
}

TEST_F(ServerChecksTest, OtherMessagesAreRefusedByRankAndKey) {
  std::vector<Wrong> of_matrix, of_table;
  const auto add = [](std::vector<Wrong>* to, const char* what, ServerMessage message,
                      std::string expected) {
    to->push_back({what, std::move(message), std::move(expected)});
  };
  const auto push = [](Tensor grad) { return Message(Kind::kPush, List(std::move(grad), Rate())); };
  const Dims whole = {4, 2};
  add(&of_matrix, "type of the gradient", push(Dense(DType::kFloat64, whole)),
      "gradient: expected fp32[4, 2], found fp64[4, 2]");
  add(&of_matrix, "dimensions", push(Dense(DType::kFloat32, {2, 4})), "found fp32[2, 4]");
  add(&of_matrix, "rows", push(GradRows({1}, 4)), "gradient: expected fp32[4, 2], found ");
  add(&of_matrix, "no learning rate", Message(Kind::kPush, List(Dense(DType::kFloat32, whole))),
      "expected 2 tensors: the gradient and what the optimizer reads besides, such as the "
      "learning rate, found 1;");
  add(&of_matrix, "type of the learning rate",
      Message(Kind::kPush, List(Dense(DType::kFloat32, whole), Numbers({1}))),
      "value 0 besides the gradient: expected fp32[1], found int64[1]; take the programs");
  add(&of_matrix, "nothing", Message(Kind::kPush, {}), "expected 2 tensors: the gradient");
  ServerMessage none = Message(Kind::kPush, List(Rate()));
  none.has_no_rows = true;
  add(&of_matrix, "no gradient", none, "expected a gradient, found none");
  ServerMessage early = push(Dense(DType::kFloat32, whole));
  early.step = 5;
  add(&of_matrix, "step", early, "expected one push in a step, the next in step 4");
  add(&of_matrix, "rows of a matrix", Message(Kind::kPull, List(Numbers({0}))),
      "expected a pull of the whole");
  add(&of_matrix, "prefetched matrix", Message(Kind::kPrefetch, {}),
      "expected a pull of the whole");
  add(&of_matrix, "reply", Message(Kind::kReply, {}), "expected what workers send");
  add(&of_matrix, "changes", Message(Kind::kChanges, {}), "expected what workers send");
  ServerMessage stranger = Message(Kind::kPull, {});
  stranger.from = 2;
  add(&of_matrix, "from a server", stranger, "expected a worker");
  stranger.from = -1;
  add(&of_matrix, "from nobody", stranger, "expected a worker");

  add(&of_table, "dense gradient", push(Dense(DType::kFloat32, {3, 2})), "gradient: expected ");
  add(&of_table, "height", push(GradRows({0}, 5)), "gradient: expected ");
  add(&of_table, "row too large", push(GradRows({0, 3}, 3)),
      "gradient: expected rows in [0, 3), found 3 at position 1");
  add(&of_table, "negative row", push(GradRows({-1}, 3)), "expected rows in [0, 3), found -1");
  add(&of_table, "whole table", Message(Kind::kPull, {}), "expected the numbers of rows");
  for (Kind kind : {Kind::kPull, Kind::kPrefetch}) {
    add(&of_table, "pulled row", Message(kind, List(Numbers({3}))),
        "expected rows in [0, 3), found 3 at position 0");
    add(&of_table, "negative", Message(kind, List(Numbers({0, -1}))), "found -1 at position 1");
    add(&of_table, "no numbers", Message(kind, List(Rate())), "int64[-1], found fp32[1]");
    add(&of_table, "two dimensions", Message(kind, List(Dense(DType::kInt64, {1, 1}))),
        "int64[-1], found int64[1, 1]");
  }
  const auto check = [](const std::vector<Wrong>& all, const std::string& param,
                        const std::function<absl::Status(const ServerMessage&)>& of) {
    for (const Wrong& wrong : all) {
      SCOPED_TRACE(wrong.what);
      const absl::Status status = of(wrong.message);
      EXPECT_THAT(status, IsInvalidArgument(wrong.expected));
      EXPECT_THAT(status.message(),
                  HasSubstr(absl::StrCat(" of key 7 (", param, ") from rank ", wrong.message.from,
                                         ", step ", wrong.message.step, ": ")));
    }
  };
  check(of_matrix, "w", [this](const ServerMessage& message) { return OfMatrix(message); });
  check(of_table, "table", [this](const ServerMessage& message) { return OfTable(message); });
}

}  // namespace
}  // namespace weft::testing
