#include "executor/servers/server_links.h"

#include <functional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/testing/test.h"
#include "executor/jobs/host_address.h"
#include "executor/jobs/job_link_testing.h"
#include "executor/servers/server_messages.h"

namespace weft::testing {
namespace {

using ::testing::IsEmpty;

constexpr double kTimeout = 30;

// Processes that are threads of this one.
void OnAll(int num_processes, const std::function<void(int)>& run) {
  std::vector<std::thread> threads;
  for (int p = 0; p < num_processes; ++p) threads.emplace_back(run, p);
  for (std::thread& thread : threads) thread.join();
}

// Processes of one rank each, and their ends of a link. Process 1 gets what process 0 sends it
// through the relay.
struct Job {
  explicit Job(int num_processes)
      : address(NewTestAddress()), relay(address), links(num_processes) {
    OnAll(num_processes, [&](int p) {
      JobLinkOptions options;
      options.process = p;
      options.num_processes = num_processes;
      options.address = p == 1 ? relay.address() : address;
      options.token = kTestToken;
      absl::StatusOr<std::unique_ptr<JobLink>> link = NewJobLink(options);
      WEFT_ASSERT_OK(link.status());
      links[p] = *std::move(link);
    });
  }

  const std::string address;
  const LinkRelay relay;
  std::vector<std::unique_ptr<JobLink>> links;
};

ServerMessage Message(int from, int64_t key, int64_t num_elements) {
  ServerMessage message;
  message.from = from;
  message.key = key;
  Tensor& tensor = message.tensors.emplace_back();
  tensor.Resize(DType::kFloat32, {num_elements});
  std::fill_n(tensor.data<float>(), num_elements, static_cast<float>(from));
  return message;
}

TEST(ServerLinksTest, MessagesDoNotPassProcessZero) {
  constexpr int kWorkers = 2, kServers = 2, kProcesses = kWorkers + kServers;
  constexpr int64_t kElements = 1 << 18;
  Job job(kProcesses);
  std::vector<std::vector<int>> linked(kProcesses);
  OnAll(kProcesses, [&](int p) {
    const World world = WorldOf(kProcesses, job.links[p].get());
    absl::StatusOr<ServerLinks> direct =
        LinkWithServers(world, kWorkers, job.links[p].get(), kTimeout);
    WEFT_ASSERT_OK(direct.status());
    for (const auto& [server, link] : *direct) linked[p].push_back(server);
    ServerPost post(world, job.links[p].get(), *std::move(direct));
    const bool is_worker = p < kWorkers;
    const int first = is_worker ? kWorkers : 0, last = is_worker ? kProcesses : kWorkers;
    for (int64_t key = 0; key < 3; ++key) {
      for (int to = first; to < last; ++to)
        WEFT_EXPECT_OK(post.Send(to, Message(p, key, kElements)));
    }
    std::vector<int64_t> next(kProcesses, 0);
    for (int i = 0; i < 3 * (last - first); ++i) {
      const absl::StatusOr<absl::optional<ServerMessage>> message = post.mailbox(p)->Take(kTimeout);
      WEFT_ASSERT_OK(message.status());
      ASSERT_TRUE(message->has_value());
      const ServerMessage& got = **message;
      EXPECT_EQ(got.key, next[got.from]++);
      EXPECT_EQ(got.tensors[0].data<float>()[kElements - 1], static_cast<float>(got.from));
    }
    // Nobody leaves before all have what they need.
    WEFT_EXPECT_OK(job.links[p]->AllGather("").status());
  });
  EXPECT_THAT(linked[0], IsEmpty());
  EXPECT_THAT(linked[1], ::testing::ElementsAre(2, 3));
  EXPECT_THAT(linked[2], ::testing::ElementsAre(2));
  EXPECT_THAT(linked[3], ::testing::ElementsAre(3));
  EXPECT_LT(job.relay.received_bytes(), kElements);
}

TEST(ServerLinksTest, OneProcessOfWorkersNeedsNone) {
  constexpr int kProcesses = 3;
  Job job(kProcesses);
  OnAll(kProcesses, [&](int p) {
    JobLink* const link = job.links[p].get();
    const auto direct = LinkWithServers(WorldOf(kProcesses, link), 1, link, kTimeout);
    WEFT_ASSERT_OK(direct.status());
    EXPECT_THAT(*direct, IsEmpty());
  });
}

TEST(ServerLinksTest, WhoFailsBeforehandEndsTheWait) {
  constexpr int kProcesses = 3;
  Job job(kProcesses);
  std::vector<absl::Status> found(kProcesses);
  OnAll(kProcesses, [&](int p) {
    JobLink* const link = job.links[p].get();
    if (p == 1) {
      WEFT_ASSERT_OK(link->AllGather(DescribeNetwork()).status());
      return link->Abort(1, absl::InternalError("no memory"));
    }
    found[p] = LinkWithServers(WorldOf(kProcesses, link), 2, link, kTimeout).status();
  });
  // Process 0 is no end of a link.
  EXPECT_THAT(found[2], IsAborted("rank 1 failed: no memory"));
}

TEST(ServerLinksTest, OtherTokensAreOfOtherParts) {
  const std::vector<std::unique_ptr<JobLink>> links = MakeLinks(2);
  EXPECT_EQ(links[0]->TokenFor("a"), links[1]->TokenFor("a"));
  EXPECT_NE(links[0]->TokenFor("a"), links[1]->TokenFor("b"));
  EXPECT_NE(links[0]->TokenFor("a"), kTestToken);
}

}  // namespace
}  // namespace weft::testing
