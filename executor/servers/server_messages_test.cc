#include "executor/servers/server_messages.h"

#include <thread>

#include "base/testing/test.h"
#include "executor/run/run_messages.h"

namespace weft::testing {
namespace {

ServerMessage Push(int64_t key) {
  ServerMessage message;
  message.from = 1;
  message.key = key;
  message.step = 7;
  message.has_no_rows = true;
  Tensor& rate = message.tensors.emplace_back();
  rate.Resize(DType::kFloat32, {1});
  *rate.data<float>() = 0.5f;
  return message;
}

TEST(ServerMailboxTest, MessagesComeInOrderToTheRankThatWaits) {
  ServerPost post(World::OfThreads(3), nullptr);
  std::thread sender([&] {
    WEFT_EXPECT_OK(post.Send(2, Push(4)));
    WEFT_EXPECT_OK(post.Send(2, Push(5)));
  });
  for (int64_t key : {4, 5}) {
    WEFT_ASSERT_OK_AND_ASSIGN(const auto message, post.mailbox(2)->Take(absl::nullopt));
    EXPECT_EQ(message->key, key);
  }
  sender.join();
  WEFT_ASSERT_OK_AND_ASSIGN(const auto none, post.mailbox(2)->Take(0.001));
  EXPECT_FALSE(none.has_value());
}

TEST(ServerMailboxTest, AbortReleasesWhoWaits) {
  ServerPost post(World::OfThreads(1), nullptr);
  std::thread aborter([&] { post.Abort(absl::InternalError("rank 1 failed")); });
  EXPECT_THAT(post.mailbox(0)->Take(absl::nullopt), IsInternal("rank 1 failed"));
  aborter.join();
}

TEST(ServerMessageTest, BytesHaveAllOfIt) {
  WEFT_ASSERT_OK_AND_ASSIGN(const std::string bytes, ServerMessageBytes(Push(3), 2));
  int to = 0;
  WEFT_ASSERT_OK_AND_ASSIGN(const ServerMessage message, ParseServerMessage(bytes, &to));
  EXPECT_EQ(to, 2);
  EXPECT_EQ(message.kind, ServerMessage::Kind::kPush);
  EXPECT_EQ(message.from, 1);
  EXPECT_EQ(message.key, 3);
  EXPECT_EQ(message.step, 7);
  EXPECT_TRUE(message.has_no_rows);
  ASSERT_EQ(message.tensors.size(), 1u);
  EXPECT_EQ(*message.tensors[0].data<float>(), 0.5f);
  EXPECT_THAT(ParseServerMessage(bytes.substr(1), &to), IsInternal("no message"));
}

TEST(ServerMessageTest, EveryMutatedByteIsReadOrRefused) {
  ServerMessage message = Push(3);
  Tensor& rows = message.tensors.emplace_back();
  rows.ResizeRows(DType::kFloat32, {5, 2}, 1);
  rows.mutable_rows()[0] = 4;
  rows.data<float>()[0] = rows.data<float>()[1] = 1;
  WEFT_ASSERT_OK_AND_ASSIGN(const std::string bytes, ServerMessageBytes(message, 2));
  int refused = 0;
  for (size_t i = 0; i < bytes.size(); ++i) {
    for (const char byte : {'\0', '\1', '\x7f', '\xff'}) {
      std::string mutant = bytes;
      mutant[i] = byte;
      int to = 0;
      const absl::StatusOr<ServerMessage> parsed = ParseServerMessage(mutant, &to);
      if (parsed.ok()) {
        EXPECT_LE(parsed->kind, ServerMessage::kLastKind);
        continue;
      }
      ++refused;
      EXPECT_THAT(parsed, IsInternal("message"));
    }
    int to = 0;
    EXPECT_FALSE(ParseServerMessage(bytes.substr(0, i), &to).ok()) << i;
  }
  EXPECT_GT(refused, 50);
}

}  // namespace
}  // namespace weft::testing
