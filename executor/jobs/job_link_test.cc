#include "executor/jobs/job_link.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <cstddef>
#include <cstring>
#include <deque>
#include <fstream>
#include <functional>
#include <future>
#include <mutex>
#include <random>
#include <thread>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "base/testing/test.h"
#include "executor/jobs/job_connection.h"
#include "executor/jobs/job_link_internal.h"
#include "executor/jobs/job_link_testing.h"
#include "executor/jobs/job_messages.h"
#include "executor/jobs/job_token.h"
#include "executor/jobs/process_state.h"

namespace weft::testing {
namespace {

using ::testing::ContainsRegex;

using Link = absl::StatusOr<std::unique_ptr<JobLink>>;
using Links = std::vector<std::unique_ptr<JobLink>>;
using Texts = absl::StatusOr<std::vector<std::string>>;
using Topic = JobLink::Topic;

constexpr auto kDeadlineExceeded = absl::StatusCode::kDeadlineExceeded;
constexpr auto kInvalidArgument = absl::StatusCode::kInvalidArgument;
constexpr auto kUnavailable = absl::StatusCode::kUnavailable;
constexpr auto kAborted = absl::StatusCode::kAborted;

// Calls body(process) on one thread per process; returns the results by process.
template <typename T>
std::vector<T> OnAll(int n, const std::function<T(int)>& body) {
  std::vector<T> results(n);
  std::vector<std::thread> threads;
  for (int p = 0; p < n; ++p) threads.emplace_back([&, p] { results[p] = body(p); });
  for (std::thread& thread : threads) thread.join();
  return results;
}

std::vector<absl::Status> FinishAll(const Links& links) {
  return OnAll<absl::Status>(links.size(), [&](int p) { return links[p]->Finish(); });
}

// What handlers have received. The last to be destroyed.
template <typename T>
class Inbox {
 public:
  void Add(T item) {
    std::lock_guard<std::mutex> lock(mutex_);
    items_.push_back(std::move(item));
    changed_.notify_all();
  }
  // Waits until there are `count`, which must be soon. Returns all.
  std::vector<T> Get(size_t count = 1) {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait_for(lock, std::chrono::seconds(60), [&] { return items_.size() >= count; });
    return items_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<T> items_;
};

void ListenForFailure(JobLink* link, Inbox<absl::Status>* inbox) {
  link->OnFailure([=](const absl::Status& status) { inbox->Add(status); });
}

JobLinkOptions Options(int process, int num_processes, const std::string& address) {
  JobLinkOptions options;
  options.process = process;
  options.num_processes = num_processes;
  options.address = address;
  options.token = kTestToken;
  return options;
}

int FreePort() {
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  socklen_t size = sizeof(address);
  bind(fd, reinterpret_cast<sockaddr*>(&address), size);
  getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size);
  close(fd);
  return ntohs(address.sin_port);
}

// The system's form of a Unix address.
struct UnixAddress {
  explicit UnixAddress(const std::string& address) {
    const std::string name = address.substr(std::strlen("unix:"));
    to.sun_family = AF_UNIX;
    std::copy(name.begin(), name.end(), to.sun_path + 1);
    size = offsetof(sockaddr_un, sun_path) + 1 + name.size();
  }
  sockaddr* get() { return reinterpret_cast<sockaddr*>(&to); }
  sockaddr_un to = {};
  socklen_t size;
};

// A stranger's connection; -1 if nobody listens.
int ConnectStranger(const std::string& address) {
  UnixAddress to(address);
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (connect(fd, to.get(), to.size) == 0) return fd;
  close(fd);
  return -1;
}

// The same, once process 0 listens; -1 if it has failed.
int ConnectStranger(const std::string& address, const std::future<Link>& process0) {
  int fd = -1;
  while ((fd = ConnectStranger(address)) < 0 &&
         process0.wait_for(std::chrono::seconds(0)) != std::future_status::ready) {
    std::this_thread::yield();
  }
  return fd;
}

// A server that is not of the job.
int ListenStranger(const std::string& address) {
  UnixAddress at(address);
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  EXPECT_EQ(bind(fd, at.get(), at.size), 0);
  EXPECT_EQ(listen(fd, 100), 0);
  return fd;
}

TEST(JobLinkTest, GathersTheTextsOfAll) {
  for (int n : {1, 2, 5}) {
    const Links links = MakeLinks(n);
    for (int round = 0; round < 3; ++round) {
      std::vector<std::string> expected;
      for (int p = 0; p < n; ++p) expected.push_back(absl::StrCat(std::string(p, 'x'), round));
      const auto results = OnAll<Texts>(n, [&](int p) { return links[p]->AllGather(expected[p]); });
      EXPECT_THAT(results, Each(IsOkAndHolds(expected)));
    }
    EXPECT_THAT(FinishAll(links), Each(IsOk()));
  }
}

TEST(JobLinkTest, GathersForProcessZeroAlone) {
  const std::string text(size_t{1} << 20, 'x');
  JobLinkOptions options = Options(0, 3, NewTestAddress());
  const testing::LinkRelay relay(options.address);
  Links links(3);
  const auto joined = OnAll<absl::Status>(3, [&](int p) {
    Link link = NewJobLink(Options(p, 3, p == 1 ? relay.address() : options.address));
    if (link.ok()) links[p] = *std::move(link);
    return link.status();
  });
  ASSERT_THAT(joined, Each(IsOk()));
  for (int round = 0; round < 3; ++round) {
    const auto results =
        OnAll<Texts>(3, [&](int p) { return links[p]->Gather(absl::StrCat(p, text)); });
    const std::vector<std::string> expected = {"0" + text, "1" + text, "2" + text};
    EXPECT_TRUE(results[0].ok() && *results[0] == expected);
    for (int p : {1, 2}) EXPECT_THAT(results[p], IsOkAndHolds(IsEmpty()));
    // A gather for all is the next one.
    EXPECT_THAT(OnAll<Texts>(3, [&](int p) { return links[p]->AllGather(absl::StrCat(p)); }),
                Each(IsOkAndHolds(ElementsAre("0", "1", "2"))));
  }
  EXPECT_LT(relay.received_bytes(), 1 << 16);
  EXPECT_THAT(OnAll<Texts>(3, [&](int p) { return links[p]->AllGather(text); }),
              Each(IsOkAndHolds(Each(text))));
  EXPECT_GT(relay.received_bytes(), 3 << 20);
  EXPECT_THAT(FinishAll(links), Each(IsOk()));
}

TEST(JobLinkTest, GathersOfTwoKindsAreAnError) {
  const Links links = MakeLinks(2);
  const auto results = OnAll<Texts>(
      2, [&](int p) { return p == 0 ? links[0]->Gather("a") : links[1]->AllGather("b"); });
  EXPECT_THAT(results[0], IsOkAndHolds(ElementsAre("a", "b")));
  EXPECT_THAT(results[1], IsInternal("gathers for itself"));
}

TEST(JobLinkTest, ManyProcesses) {
  constexpr int kProcesses = 64;
  const Links links = MakeLinks(kProcesses);
  std::vector<std::string> expected;
  for (int p = 0; p < kProcesses; ++p) {
    expected.push_back(absl::StrCat("text of ", p));
    EXPECT_EQ(links[p]->process(), p);
    EXPECT_EQ(links[p]->num_processes(), kProcesses);
    EXPECT_TRUE(links[p]->is_one_host());
  }
  EXPECT_THAT(OnAll<Texts>(kProcesses, [&](int p) { return links[p]->AllGather(expected[p]); }),
              Each(IsOkAndHolds(expected)));
  EXPECT_THAT(FinishAll(links), Each(IsOk()));
}

TEST(JobLinkTest, RunsOverTcp) {
  for (const std::string host : {"127.0.0.1", "localhost"}) {
    const std::string address = absl::StrCat(host, ":", FreePort());
    Links links(3);
    const auto joined = OnAll<absl::Status>(3, [&](int p) {
      Link link = NewJobLink(Options(p, 3, address));
      if (link.ok()) links[p] = *std::move(link);
      return link.status();
    });
    ASSERT_THAT(joined, Each(IsOk()));
    EXPECT_THAT(OnAll<Texts>(3, [&](int p) { return links[p]->AllGather(absl::StrCat(p)); }),
                Each(IsOkAndHolds(ElementsAre("0", "1", "2"))));
    EXPECT_THAT(FinishAll(links), Each(IsOk()));
  }
}

TEST(JobLinkTest, MessagesOfATopicArriveInOrder) {
  constexpr int kProcesses = 3, kMessages = 500;
  Inbox<std::string> inboxes[kProcesses];
  const Links links = MakeLinks(kProcesses);
  for (int p = 0; p < kProcesses; ++p) {
    links[p]->Listen(Topic::kResult, [&, p](int from, std::string message) {
      if (message.back() == '0') std::this_thread::sleep_for(std::chrono::milliseconds(1));
      inboxes[p].Add(absl::StrCat(from, ": ", message));
    });
  }
  OnAll<int>(kProcesses, [&](int p) {
    for (int i = 0; i < kMessages; ++i) {
      for (int q = 0; q < kProcesses; ++q) links[p]->Send(q, Topic::kResult, absl::StrCat(i));
    }
    return 0;
  });
  // Finish returns when all messages have been handled.
  ASSERT_THAT(FinishAll(links), Each(IsOk()));
  for (int q = 0; q < kProcesses; ++q) {
    const std::vector<std::string> messages = inboxes[q].Get(0);
    EXPECT_EQ(messages.size(), kProcesses * kMessages);
    int next[kProcesses] = {};
    for (const std::string& message : messages) {
      const int from = message[0] - '0';
      EXPECT_EQ(message, absl::StrCat(from, ": ", next[from]++));
    }
  }
}

TEST(JobLinkTest, KeepsMessagesUntilSomebodyListens) {
  Inbox<std::string> inbox;
  const Links links = MakeLinks(2);
  links[1]->Send(0, Topic::kTrace, "early");
  links[1]->Send(0, Topic::kStop, "stop");
  links[0]->Listen(Topic::kStop, [&](int, std::string message) { inbox.Add(message); });
  EXPECT_THAT(inbox.Get(), ElementsAre("stop"));
  links[0]->Listen(Topic::kTrace, [&](int, std::string message) { inbox.Add(message); });
  EXPECT_THAT(inbox.Get(2), ElementsAre("stop", "early"));
  links[0]->Listen(Topic::kTrace, nullptr);
  links[1]->Send(0, Topic::kTrace, "late");
  links[1]->Send(0, Topic::kStop, "again");
  EXPECT_THAT(inbox.Get(3), ElementsAre("stop", "early", "again"));
  EXPECT_THAT(FinishAll(links), Each(IsOk()));
  links[0]->Listen(Topic::kTrace, [&](int, std::string message) { inbox.Add(message); });
  EXPECT_THAT(inbox.Get(4), ElementsAre("stop", "early", "again", "late"));
}

TEST(JobLinkTest, AHandlerThatIsReplacedDoesNotRunAnyMore) {
  const Links links = MakeLinks(1);
  Inbox<int> started;
  std::atomic<bool> has_ended = false;
  links[0]->Listen(Topic::kState, [&](int, std::string) {
    started.Add(1);
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    has_ended = true;
  });
  links[0]->Send(0, Topic::kState, "");
  started.Get();
  links[0]->Listen(Topic::kState, nullptr);
  EXPECT_TRUE(has_ended);
}

TEST(JobLinkTest, AHandlerMayReplaceItselfAndSend) {
  Inbox<std::string> inbox;
  const Links links = MakeLinks(2);
  links[0]->Listen(Topic::kState, [&](int from, std::string message) {
    inbox.Add(message);
    links[0]->Listen(Topic::kState, nullptr);
    links[0]->Send(from, Topic::kState, "answer to " + message);
  });
  links[1]->Listen(Topic::kState, [&](int, std::string message) { inbox.Add(message); });
  links[1]->Send(0, Topic::kState, "one");
  EXPECT_THAT(inbox.Get(2), ElementsAre("one", "answer to one"));
}

TEST(JobLinkTest, LargeMessagesPassThroughProcess0) {
  Inbox<std::string> inbox;
  const Links links = MakeLinks(3);
  std::string large(64 << 20, 'x');
  std::mt19937 rng(7);
  for (size_t i = 0; i < large.size(); i += 1000) large[i] = static_cast<char>(rng());
  links[2]->Listen(Topic::kState, [&](int, std::string message) { inbox.Add(std::move(message)); });
  links[1]->Send(2, Topic::kState, large);
  const std::vector<std::string> received = inbox.Get();
  ASSERT_EQ(received.size(), 1);
  EXPECT_TRUE(received[0] == large);
  EXPECT_THAT(FinishAll(links), Each(IsOk()));
}

TEST(JobLinkTest, ASlowHandlerDoesNotDelayOthersNorMakeAProcessLost) {
  JobLinkOptions options;
  options.lost_after_s = 1;
  const Links links = MakeLinks(2, options);
  links[0]->Listen(Topic::kState,
                   [&](int, std::string) { std::this_thread::sleep_for(std::chrono::seconds(2)); });
  links[1]->Send(0, Topic::kState, "");
  EXPECT_THAT(OnAll<Texts>(2, [&](int p) { return links[p]->AllGather(""); }), Each(IsOk()));
  EXPECT_THAT(FinishAll(links), Each(IsOk()));
}

TEST(JobLinkTest, AGatherNamesTheProcessesThatDoNotCome) {
  JobLinkOptions options;
  options.timeout_s = 3;
  options.local_ranks = 2;
  const Links links = MakeLinks(4, options);
  const auto results = OnAll<Texts>(2, [&](int i) { return links[i == 0 ? 0 : 2]->AllGather(""); });
  EXPECT_THAT(results,
              Each(StatusIs(kDeadlineExceeded, AllOf(HasSubstr("process 1 (ranks 2, 3, pid "),
                                                     HasSubstr("process 3 (ranks 6, 7, pid "),
                                                     HasSubstr("have not arrived within 3 s"),
                                                     Not(HasSubstr("process 2"))))));
  // Those that come later learn the same.
  EXPECT_EQ(links[1]->AllGather("").status(), results[0].status());
  // The next one is another.
  EXPECT_THAT(OnAll<Texts>(4,
                           [&](int p) {
                             if (p == 3) links[3]->AllGather("").status().IgnoreError();
                             return links[p]->AllGather("");
                           }),
              Each(IsOk()));
}

TEST(JobLinkTest, FinishNamesTheProcessesThatDoNotCome) {
  JobLinkOptions options;
  options.timeout_s = 0.5;
  const Links links = MakeLinks(2, options);
  EXPECT_THAT(links[1]->Finish(), StatusIs(kDeadlineExceeded, HasSubstr("process 0 (rank 0, pid")));
}

TEST(JobLinkTest, ProcessesMayEndOnceTheyHaveFinished) {
  for (int round = 0; round < 20; ++round) {
    Inbox<absl::Status> failures;
    Links links = MakeLinks(4);
    for (const auto& link : links) ListenForFailure(link.get(), &failures);
    EXPECT_THAT(OnAll<absl::Status>(4,
                                    [&](int p) {
                                      const absl::Status status = links[p]->Finish();
                                      links[p].reset();
                                      return status;
                                    }),
                Each(IsOk()));
    EXPECT_THAT(failures.Get(0), IsEmpty());
  }
}

TEST(JobLinkTest, AbortReachesAllOthersWithItsReason) {
  for (int failing : {0, 1}) {
    Inbox<absl::Status> failures[3];
    const Links links = MakeLinks(3);
    for (int p : {0, 1}) ListenForFailure(links[p].get(), &failures[p]);
    const auto results = OnAll<Texts>(3, [&](int p) -> Texts {
      if (p != failing) return links[p]->AllGather("");
      links[p]->Abort(17, absl::InternalError("the loss is nan"));
      links[p]->Abort(18, absl::InternalError("nobody hears of this"));
      return links[p]->AllGather("");
    });
    EXPECT_THAT(results, Each(StatusIs(kAborted, "rank 17 failed: the loss is nan")));
    ListenForFailure(links[2].get(), &failures[2]);  // later than the failure
    for (int p : {0, 1, 2}) {
      if (p == failing) continue;
      EXPECT_THAT(failures[p].Get(),
                  ElementsAre(StatusIs(kAborted, "rank 17 failed: the loss is nan")));
      EXPECT_THAT(links[p]->Finish(), StatusIs(kAborted, HasSubstr("rank 17 failed")));
    }
    EXPECT_THAT(failures[failing].Get(0), IsEmpty());
  }
}

TEST(JobLinkTest, AllLearnTheSameFirstFailure) {
  for (int round = 0; round < 10; ++round) {
    Inbox<absl::Status> failures;
    Links links = MakeLinks(4);
    for (const auto& link : links) ListenForFailure(link.get(), &failures);
    OnAll<int>(2, [&](int i) {
      links[i + 1]->Abort(i + 1, absl::InternalError("x"));
      return 0;
    });
    // All but the process that was first, also the one that was second.
    failures.Get(3);
    links.clear();
    const std::vector<absl::Status> all = failures.Get(0);
    EXPECT_EQ(all.size(), 3);
    EXPECT_THAT(all, Each(all[0]));
  }
}

TEST(JobLinkTest, AProcessThatEndsWithoutFinishHasFailed) {
  for (int ending : {0, 1}) {
    Inbox<absl::Status> failures;
    Links links = MakeLinks(3);
    ListenForFailure(links[2].get(), &failures);
    links[ending].reset();
    EXPECT_THAT(
        failures.Get(),
        ElementsAre(StatusIs(kUnavailable,
                             absl::StrCat("process ", ending, " (rank ", ending, ", pid ", getpid(),
                                          " on host ", ThisProcess().hostname, ") has ended"))));
    EXPECT_THAT(links[2]->AllGather(""), StatusIs(kUnavailable, HasSubstr("has ended")));
  }
}

TEST(JobLinkTest, AnAbortIsTheReasonAlsoIfTheProcessEndsAtOnce) {
  for (int failing : {0, 1}) {
    Inbox<absl::Status> failures;
    Links links = MakeLinks(3);
    ListenForFailure(links[2].get(), &failures);
    links[failing]->Abort(failing, absl::InternalError("out of memory"));
    links[failing].reset();
    EXPECT_THAT(failures.Get(), ElementsAre(StatusIs(kAborted, HasSubstr("out of memory"))));
  }
}

TEST(JobLinkTest, Process0MayStartLast) {
  const std::string address = NewTestAddress();
  EXPECT_THAT(OnAll<absl::Status>(3,
                                  [&](int p) {
                                    if (p == 0)
                                      std::this_thread::sleep_for(std::chrono::seconds(1));
                                    Link link = NewJobLink(Options(p, 3, address));
                                    return link.ok() ? (*link)->Finish() : link.status();
                                  }),
              Each(IsOk()));
}

TEST(JobLinkTest, NamesTheProcessesThatDoNotCome) {
  const std::string address = NewTestAddress();
  const auto results = OnAll<absl::Status>(2, [&](int p) {
    JobLinkOptions options = Options(p, 4, address);
    options.connect_timeout_s = 3;
    return NewJobLink(options).status();
  });
  EXPECT_THAT(results, Each(StatusIs(kDeadlineExceeded,
                                     absl::StrCat("process 2 (rank 2), process 3 (rank 3) have not "
                                                  "come to ",
                                                  address, " within 3 s"))));
}

TEST(JobLinkTest, SaysWhyProcess0CannotBeReached) {
  JobLinkOptions options = Options(1, 2, NewTestAddress());
  options.connect_timeout_s = 0.3;
  EXPECT_THAT(NewJobLink(options).status(),
              StatusIs(kUnavailable, AllOf(HasSubstr(options.address), HasSubstr("refused"))));
  options.address = absl::StrCat("127.0.0.1:", FreePort());
  EXPECT_THAT(NewJobLink(options).status(),
              StatusIs(kUnavailable, AllOf(HasSubstr(options.address), HasSubstr("refused"))));
}

TEST(JobLinkTest, SaysWhyProcess0CannotListen) {
  const std::string address = NewTestAddress();
  const int other = ListenStranger(address);
  JobLinkOptions options = Options(0, 2, address);
  options.connect_timeout_s = 0.3;
  EXPECT_THAT(NewJobLink(options).status(),
              StatusIs(kUnavailable, AllOf(HasSubstr(address), HasSubstr("in use"))));
  close(other);
}

// Whoever listens at the address, takes connections and says nothing ends no job.
TEST(JobLinkTest, WaitsForAnAddressThatAStrangerHas) {
  const std::string address = absl::StrCat("127.0.0.1:", FreePort());
  asio::io_context io;
  WEFT_ASSERT_OK_AND_ASSIGN(JobAcceptor stranger, ListenAt(&io, address));
  std::vector<std::string> notes;
  Links links(2);
  std::thread ends([&] {
    std::this_thread::sleep_for(std::chrono::seconds(1));
    stranger.close();
  });
  OnAll<int>(2, [&](int p) {
    JobLinkOptions options = Options(p, 2, address);
    if (p == 0) options.on_note = [&](const std::string& note) { notes.push_back(note); };
    Link link = NewJobLink(options);
    EXPECT_THAT(link, IsOk());
    if (link.ok()) links[p] = *std::move(link);
    return 0;
  });
  ends.join();
  ASSERT_TRUE(links[0] != nullptr && links[1] != nullptr);
  EXPECT_THAT(notes, ElementsAre(HasSubstr(absl::StrCat("listens at ", address))));
  EXPECT_THAT(FinishAll(links), Each(IsOk()));
}

TEST(JobLinkTest, AStrangerThatDoesNotAnswerHoldsNobodyUp) {
  const std::string address = NewTestAddress();
  const int stranger = ListenStranger(address);
  JobLinkOptions options = Options(1, 2, address);
  options.connect_timeout_s = 0.5;
  EXPECT_THAT(NewJobLink(options).status(), StatusIs(kUnavailable, HasSubstr("does not answer")));
  options.connect_timeout_s = 60;
  for (int process : {0, 1}) {
    options.process = process;
    const auto begin = std::chrono::steady_clock::now();
    options.is_over = [&] {
      return std::chrono::steady_clock::now() > begin + std::chrono::milliseconds(300);
    };
    EXPECT_THAT(NewJobLink(options).status().code(), kUnavailable);
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(5));
  }
  close(stranger);
}

// Tries that the end cuts short say less than those before.
TEST(JobLinkTest, SaysWhyTheTriesBeforeTheLastFailed) {
  const std::string address = NewTestAddress();
  const int stranger = ListenStranger(address);
  std::thread drops_one([&] { close(accept(stranger, nullptr, nullptr)); });  // and then no other
  JobLinkOptions options = Options(1, 2, address);
  options.connect_timeout_s = 1;
  EXPECT_THAT(NewJobLink(options).status(),
              StatusIs(kUnavailable, AnyOf(HasSubstr("the connection was closed"),
                                           HasSubstr("reset"), HasSubstr("Broken pipe"))));
  drops_one.join();
  close(stranger);
}

TEST(JobLinkTest, RefusesOptionsThatMeanNothing) {
  const auto status = [](int process, int n, const std::string& address, int local_ranks = 1) {
    JobLinkOptions options = Options(process, n, address);
    options.local_ranks = local_ranks;
    return NewJobLink(options).status();
  };
  EXPECT_THAT(status(0, 0, "unix:a"), StatusIs(kInvalidArgument, HasSubstr("is 0")));
  EXPECT_THAT(status(2, 2, "unix:a"), StatusIs(kInvalidArgument, HasSubstr("between 0 and 1")));
  EXPECT_THAT(status(-1, 2, "unix:a"), StatusIs(kInvalidArgument, HasSubstr("between 0 and 1")));
  EXPECT_THAT(status(0, 2, "unix:a", 0), StatusIs(kInvalidArgument, HasSubstr("ranks")));
  EXPECT_THAT(status(0, 2, "unix:"), StatusIs(kInvalidArgument, HasSubstr("no name")));
  EXPECT_THAT(status(0, 2, "unix:" + std::string(101, 'x')),
              StatusIs(kInvalidArgument, HasSubstr("100 characters")));
  EXPECT_THAT(status(0, 2, "localhost"), StatusIs(kInvalidArgument, HasSubstr("no port")));
  EXPECT_THAT(status(0, 2, ":12"), StatusIs(kInvalidArgument, HasSubstr("no host")));
  EXPECT_THAT(status(0, 2, "a:b"), StatusIs(kInvalidArgument, HasSubstr("65536")));
  EXPECT_THAT(status(0, 2, "a:65536"), StatusIs(kInvalidArgument, HasSubstr("65536")));
  EXPECT_THAT(status(0, 2, "a:0"), StatusIs(kInvalidArgument, HasSubstr("port 0")));
  for (auto field : {&JobLinkOptions::connect_timeout_s, &JobLinkOptions::timeout_s,
                     &JobLinkOptions::lost_after_s}) {
    for (double seconds : {0.0, -1.0, std::nan("")}) {
      JobLinkOptions options = Options(0, 1, "");
      options.*field = seconds;
      EXPECT_THAT(NewJobLink(options).status(), StatusIs(kInvalidArgument, HasSubstr("positive")));
    }
  }
}

// Two processes, of which the second has other options, both fail; returns their errors.
std::vector<absl::Status> Mismatch(const std::function<void(JobLinkOptions*)>& change,
                                   int num_processes = 2) {
  const std::string address = NewTestAddress();
  return OnAll<absl::Status>(num_processes, [&](int p) {
    JobLinkOptions options = Options(p, num_processes, address);
    options.job = "train";
    if (p == 1) change(&options);
    return NewJobLink(options).status();
  });
}

TEST(JobLinkTest, ProcessesOfOtherJobsAreRefusedOnBothSides) {
  EXPECT_THAT(
      Mismatch([](JobLinkOptions* o) { o->job = "serve"; }),
      Each(StatusIs(kInvalidArgument, AllOf(HasSubstr("process 0 (pid"), HasSubstr("\"train\""),
                                            HasSubstr("process 1 (pid"), HasSubstr("\"serve\"")))));
  EXPECT_THAT(Mismatch([](JobLinkOptions* o) { o->num_processes = 3; }),
              Each(StatusIs(kInvalidArgument,
                            AllOf(HasSubstr("the number of processes 2"), HasSubstr("has 3")))));
  EXPECT_THAT(Mismatch([](JobLinkOptions* o) { o->local_ranks = 4; }),
              Each(StatusIs(kInvalidArgument, AllOf(HasSubstr("the number of ranks per process 1"),
                                                    HasSubstr("has 4")))));
  EXPECT_THAT(Mismatch([](JobLinkOptions* o) { o->process = 2; }, 3),
              Each(StatusIs(kInvalidArgument, HasSubstr("two processes have the number 2"))));
}

TEST(JobLinkTest, AProcessOfAnotherGenerationIsRefusedAndEndsNothing) {
  const std::string address = NewTestAddress();
  const auto join = [&](int process, int generation) {
    JobLinkOptions options = Options(process, 2, address);
    options.generation = generation;
    return NewJobLink(options);
  };
  Link link0 = absl::UnknownError("");
  std::thread process0([&] { link0 = join(0, 3); });
  for (int generation : {2, 4}) {
    EXPECT_THAT(join(1, generation).status(),
                StatusIs(kAborted, AllOf(HasSubstr(absl::StrCat("generation ", generation)),
                                         HasSubstr("has gone on with 3"))));
  }
  const Link link1 = join(1, 3);  // whose end process 0 would take for a loss
  EXPECT_THAT(link1, IsOk());
  process0.join();
  EXPECT_THAT(link0, IsOk());
}

TEST(JobLinkTest, ComingTogetherEndsWhenItIsOver) {
  const std::string address = NewTestAddress();
  const auto begin = std::chrono::steady_clock::now();
  std::atomic<bool> is_over = false;
  const auto statuses = OnAll<absl::Status>(3, [&](int p) {
    if (p == 2) {  // does not come
      std::this_thread::sleep_for(std::chrono::milliseconds(300));
      is_over = true;
      return absl::UnavailableError("over");
    }
    JobLinkOptions options = Options(p, 3, address);
    options.is_over = [&] { return is_over.load(); };
    return NewJobLink(options).status();
  });
  EXPECT_THAT(statuses, Each(StatusIs(kUnavailable, HasSubstr("over"))));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(5));
}

TEST(JobLinkTest, ProcessesMayShareRanksUnequally) {
  JobLinkOptions options;
  options.timeout_s = 0.5;
  options.num_ranks = 5;
  const Links links = MakeLinks(3, options);
  EXPECT_THAT(links[0]->AllGather("").status(),
              StatusIs(kDeadlineExceeded, AllOf(HasSubstr("process 1 (ranks 1, 2, pid "),
                                                HasSubstr("process 2 (ranks 3, 4, pid "))));
}

TEST(JobLinkTest, StrangersDelayNobody) {
  const std::string address = NewTestAddress();
  Links links(2);
  std::thread process0([&] {
    Link link = NewJobLink(Options(0, 2, address));
    ASSERT_THAT(link, IsOk());
    links[0] = *std::move(link);
  });
  std::vector<int> strangers;
  while (strangers.size() < 5) {
    const int fd = ConnectStranger(address);
    if (fd >= 0) strangers.push_back(fd);
  }
  const std::string web = "GET / HTTP/1.1\r\nHost: localhost\r\nAccept: */*\r\n\r\n";
  send(strangers[0], web.data(), web.size(), MSG_NOSIGNAL);
  const std::string zeros(1000, '\0');
  send(strangers[1], zeros.data(), zeros.size(), MSG_NOSIGNAL);
  // A greeting with the right start, and the length of everything.
  struct {
    char magic[4] = {'W', 'E', 'F', 'T'};
    uint32_t type = 0;
    int32_t from_to[2] = {};
    int64_t number = 0;
    uint64_t size = ~uint64_t{0};
  } huge;
  send(strangers[2], &huge, sizeof(huge), MSG_NOSIGNAL);
  huge.size = 5;  // and one of nonsense
  send(strangers[3], &huge, sizeof(huge), MSG_NOSIGNAL);
  send(strangers[3], "abcde", 5, MSG_NOSIGNAL);
  // They are dropped.
  for (int i : {0, 1, 2, 3}) {
    char byte;
    EXPECT_LE(recv(strangers[i], &byte, 1, 0), 0);
  }
  Link link = NewJobLink(Options(1, 2, address));
  process0.join();
  ASSERT_THAT(link, IsOk());
  links[1] = *std::move(link);
  // The one that says nothing is dropped with the first all-gather at the latest.
  EXPECT_THAT(FinishAll(links), Each(IsOk()));
  char byte;
  EXPECT_LE(recv(strangers[4], &byte, 1, 0), 0);
  for (int fd : strangers) close(fd);
}

// What a stranger sends, and the answer; empty: it was dropped.
std::string Ask(int fd, JobMessageType type, const std::string& body) {
  const JobMessage message = MakeJobMessage(type, 1, 0, 0, body);
  const std::string bytes =
      std::string(reinterpret_cast<const char*>(&message.header), sizeof(message.header)) + body;
  send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
  JobMessageHeader header;
  if (recv(fd, &header, sizeof(header), MSG_WAITALL) != sizeof(header)) return "";
  std::string answer(header.size, '\0');
  recv(fd, &answer[0], answer.size(), MSG_WAITALL);
  return answer;
}

// Process 0 of two, and what it notes. The other process is given to Join.
class WaitingJob {
 public:
  explicit WaitingJob(JobLinkOptions options = {}) {
    options.process = 0;
    options.num_processes = 2;
    if (options.address.empty()) options.address = NewTestAddress();
    if (options.token_file.empty()) options.token = kTestToken;
    options.on_note = [this](const std::string& note) { notes.push_back(note); };
    options_ = options;
    process0_ = std::async(std::launch::async, [this] { return NewJobLink(options_); });
  }

  // The other process comes, and both finish.
  absl::Status Join() {
    JobLinkOptions options = options_;
    options.process = 1;
    WEFT_ASSIGN_OR_RETURN(const std::unique_ptr<JobLink> other, NewJobLink(options));
    WEFT_ASSIGN_OR_RETURN(const std::unique_ptr<JobLink> first, process0_.get());
    return OnAll<absl::Status>(2, [&](int p) { return (p == 0 ? first : other)->Finish(); })[0];
  }
  const std::string& address() const { return options_.address; }
  int Connect() const { return ConnectStranger(address(), process0_); }

  std::vector<std::string> notes;

 private:
  JobLinkOptions options_;
  std::future<Link> process0_;
};

TEST(JobLinkTest, WhoDoesNotKnowTheTokenLearnsNothingAndEndsNothing) {
  WaitingJob job;
  JobLinkOptions other = Options(1, 2, job.address());
  other.token = std::string(32, 'a');
  other.connect_timeout_s = 0.5;
  close(job.Connect());  // it listens
  EXPECT_THAT(NewJobLink(other).status(),
              StatusIs(kUnavailable, HasSubstr("does not know the token of this job")));
  // A greeting without proofs, of the right job.
  JobHello hello;
  hello.num_processes = 2;
  hello.process = 1;
  const int early = job.Connect();
  EXPECT_EQ(Ask(early, JobMessageType::kHello, EncodeHello(hello)), "");
  close(early);
  // Its length alone: no memory is taken for it.
  const int announced = job.Connect();
  JobMessageHeader header = MakeJobMessage(JobMessageType::kHello, 1, 0, 0, "").header;
  header.size = uint64_t{1} << 15;
  send(announced, &header, sizeof(header), MSG_NOSIGNAL);
  char byte;
  EXPECT_LE(recv(announced, &byte, 1, 0), 0);
  close(announced);
  // A proof that was good for another connection.
  std::string proof;
  for (int i = 0; i < 2; ++i) {
    const std::string nonce(kJobNonceBytes, 'n');
    const int fd = job.Connect();
    const std::string answer = Ask(fd, JobMessageType::kChallenge, nonce);
    ASSERT_EQ(answer.size(), kJobNonceBytes);
    if (proof.empty()) proof = JobProof(kTestToken, JobSide::kConnects, nonce, answer);
    EXPECT_EQ(Ask(fd, JobMessageType::kProof, proof),
              i == 0 ? JobProof(kTestToken, JobSide::kListens, nonce, answer) : "");
    close(fd);
  }
  WEFT_EXPECT_OK(job.Join());
  ASSERT_EQ(job.notes.size(), 1);
  EXPECT_THAT(job.notes[0],
              ContainsRegex(absl::StrCat(job.address(),
                                         ": [0-9]+ connections that did not prove to know "
                                         "the token of the job were dropped")));
}

// A challenge of process 0 cannot be answered with what process 0 itself says.
TEST(JobLinkTest, ProofsOfTheOtherSideAreNone) {
  WaitingJob job;
  const std::string nonce(kJobNonceBytes, 'n');
  const int fd = job.Connect();
  const std::string answer = Ask(fd, JobMessageType::kChallenge, nonce);
  EXPECT_EQ(Ask(fd, JobMessageType::kProof, JobProof(kTestToken, JobSide::kListens, nonce, answer)),
            "");
  close(fd);
  WEFT_EXPECT_OK(job.Join());
}

TEST(JobLinkTest, ThousandsOfStrangersDelayNobody) {
  WaitingJob job;
  std::deque<int> strangers;
  for (int i = 0; i < 2000; ++i) {
    strangers.push_back(job.Connect());
    // Every other one says something.
    if (i % 2 == 0) send(strangers.back(), "WEFT", 4, MSG_NOSIGNAL);
    if (strangers.size() < 400) continue;  // as many open at a time
    close(strangers.front());
    strangers.pop_front();
  }
  const auto start = std::chrono::steady_clock::now();
  WEFT_EXPECT_OK(job.Join());
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(30));
  for (int fd : strangers) close(fd);
  ASSERT_EQ(job.notes.size(), 1);
  EXPECT_THAT(job.notes[0], ContainsRegex(": [12][0-9][0-9][0-9] connections that did not prove"));
}

// A process of this program that does `body`.
pid_t Start(const std::function<bool()>& body) {
  const pid_t child = fork();
  if (child != 0) return child;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  _exit(body() ? 0 : 1);
}

// Process 0 is here, and can open so many files more; strangers and process 1 come from processes
// of their own, one after the other.
void JoinWithFewFiles(int num_files, int num_strangers) {
  const std::string address = NewTestAddress();
  int listening[2], connected[2];
  ASSERT_EQ(pipe2(listening, O_CLOEXEC), 0);
  ASSERT_EQ(pipe2(connected, O_CLOEXEC), 0);
  std::vector<pid_t> children;
  rlimit before;
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const absl::Cleanup ends = [&] {
    setrlimit(RLIMIT_NOFILE, &before);
    for (int fd : {listening[0], listening[1], connected[0], connected[1]}) close(fd);
    for (pid_t child : children) {
      kill(child, SIGKILL);
      waitpid(child, nullptr, 0);
    }
  };
  const auto wait = [](const int* ends) {
    char byte;
    return read(ends[0], &byte, 1) == 1;
  };
  const auto say = [](const int* ends) { return write(ends[1], "1", 1) == 1; };
  const pid_t strangers = Start([&] {
    if (!wait(listening)) return false;
    for (int i = 0; i < num_strangers; ++i) ConnectStranger(address);
    if (say(connected)) pause();
    return false;
  });
  ASSERT_GE(strangers, 0);
  children.push_back(strangers);
  const pid_t process1 = Start([&] {
    if (!wait(connected)) return false;
    JobLinkOptions options = Options(1, 2, address);
    options.connect_timeout_s = 20;
    Link link = NewJobLink(options);
    return link.ok() && (*link)->Finish().ok();
  });
  ASSERT_GE(process1, 0);
  children.push_back(process1);

  JobLinkOptions options = Options(0, 2, address);
  options.connect_timeout_s = 20;
  std::future<Link> joining = std::async(std::launch::async, [&] { return NewJobLink(options); });
  const int fd = ConnectStranger(address, joining);
  if (fd < 0) {
    ASSERT_THAT(joining.get(), IsOk());
  }
  // Process 0 closes its end, and then has what files it needs.
  shutdown(fd, SHUT_WR);
  char byte;
  EXPECT_EQ(recv(fd, &byte, 1, 0), 0);
  const rlimit few = {static_cast<rlim_t>(fd + num_files), before.rlim_max};
  close(fd);
  EXPECT_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_TRUE(say(listening));
  Link link = joining.get();
  ASSERT_THAT(link, IsOk());
  WEFT_EXPECT_OK((*link)->Finish());
  // Nobody has waited until the time of greeting was over.
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(9));
}

// Who waits with as many files as process 0 may have open is dropped for those that come.
TEST(JobLinkTest, StrangersDoNotUseUpItsFiles) {
  JoinWithFewFiles(/*num_files=*/30, /*num_strangers=*/200);
}

TEST(JobLinkTest, AProcessGetsTheLastFile) {
  JoinWithFewFiles(/*num_files=*/1, /*num_strangers=*/0);
}

TEST(JobLinkTest, NobodyIsDroppedWhereNobodyElseWaitsForAFile) {
  WaitingJob job;
  const std::string nonce(kJobNonceBytes, 'n');
  const int first = job.Connect();
  const std::string answer = Ask(first, JobMessageType::kChallenge, nonce);
  rlimit before;
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  // The last files are the two ends of another connection.
  const int last[] = {dup(first), dup(first)};
  for (int fd : last) close(fd);
  const rlimit few = {static_cast<rlim_t>(last[1] + 1), before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
  const int second = job.Connect();
  EXPECT_EQ(Ask(second, JobMessageType::kChallenge, nonce).size(), kJobNonceBytes);
  EXPECT_EQ(
      Ask(first, JobMessageType::kProof, JobProof(kTestToken, JobSide::kConnects, nonce, answer)),
      JobProof(kTestToken, JobSide::kListens, nonce, answer));
  EXPECT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  close(first);
  close(second);
  WEFT_EXPECT_OK(job.Join());
}

TEST(JobLinkTest, StrangersAreNamedWhereAProcessDoesNotCome) {
  JobLinkOptions options = Options(0, 2, NewTestAddress());
  options.connect_timeout_s = 5;
  absl::Status status;
  std::thread process0([&] { status = NewJobLink(options).status(); });
  JobLinkOptions other = Options(1, 2, options.address);
  other.token = std::string(32, 'a');
  other.connect_timeout_s = 2;
  EXPECT_THAT(NewJobLink(other).status(), Not(IsOk()));
  process0.join();
  EXPECT_THAT(status, StatusIs(kDeadlineExceeded, AllOf(HasSubstr("has not come"),
                                                        HasSubstr("the token of the job"))));
}

TEST(JobLinkTest, ASocketIsForOneUser) {
  WaitingJob job;
  close(job.Connect());  // it listens
  UnixAddress to(job.address());
  const pid_t child = fork();
  if (child == 0) {
    constexpr uid_t kNobody = 65534;
    const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    char byte;
    if (setuid(kNobody) != 0) _exit(77);
    if (connect(fd, to.get(), to.size) != 0) _exit(1);
    _exit(recv(fd, &byte, 1, 0) == 0 ? 0 : 2);  // closed, before the time of greeting is over
  }
  int status = -1;
  const auto start = std::chrono::steady_clock::now();
  EXPECT_EQ(waitpid(child, &status, 0), child);
  const auto time = std::chrono::steady_clock::now() - start;
  WEFT_EXPECT_OK(job.Join());
  ASSERT_TRUE(WIFEXITED(status));
  if (WEXITSTATUS(status) == 77) GTEST_SKIP() << "only root can become another user";
  EXPECT_EQ(status, 0);
  EXPECT_LT(time, std::chrono::seconds(5));
}

TEST(JobLinkTest, ProcessZeroKeepsTheTokenInAFileUntilAllHaveCome) {
  JobLinkOptions options;
  options.token_file = ::testing::TempDir() + "/job.token";
  options.address = "127.0.0.1:0";
  options.any_port = true;
  // A run that was killed has left one.
  WEFT_ASSERT_OK_AND_ASSIGN(auto old, JobTokenFile::Create(options.token_file, {kTestToken, 1}));
  {
    WaitingJob job(options);
    WEFT_EXPECT_OK(job.Join());
  }
  EXPECT_NE(access(options.token_file.c_str(), F_OK), 0);
}

// Names follow from launchers: another user can have taken it.
TEST(JobLinkTest, WithATokenInAFileNobodyKnowsTheNameOfTheSocket) {
  JobLinkOptions options;
  options.token_file = ::testing::TempDir() + "/name.token";
  options.address = NewTestAddress();
  const int server = ListenStranger(options.address);
  {
    WaitingJob job(options);
    WEFT_EXPECT_OK(job.Join());
  }
  close(server);
}

TEST(JobLinkTest, ProcessZeroTellsItsPort) {
  JobLinkOptions options;
  options.address = "127.0.0.1:0";
  std::promise<int> port;
  const std::shared_future<int> of_zero = port.get_future().share();
  const auto join = [&](int process) {
    JobLinkOptions own = options;
    own.process = process;
    own.num_processes = 3;
    own.token = kTestToken;
    own.share_port = [&, process](int mine) {
      if (process == 0) port.set_value(mine);
      return of_zero.get();
    };
    return NewJobLink(own);
  };
  Links links(3);
  OnAll<int>(3, [&](int p) {
    Link link = join(p);
    EXPECT_THAT(link, IsOk());
    links[p] = *std::move(link);
    return 0;
  });
  EXPECT_GT(of_zero.get(), 0);
  EXPECT_THAT(FinishAll(links), Each(IsOk()));
}

// The others are not left waiting.
TEST(JobLinkTest, ProcessZeroTellsThatItCannotListen) {
  JobLinkOptions options;
  options.address = "192.0.2.1:0";  // of no host
  options.num_processes = 2;
  options.token = kTestToken;
  int told = -1;
  options.share_port = [&](int port) { return told = port; };
  EXPECT_THAT(NewJobLink(options).status(), StatusIs(kUnavailable, HasSubstr("cannot listen at")));
  EXPECT_EQ(told, 0);
  options.process = 1;
  EXPECT_THAT(NewJobLink(options).status(), StatusIs(kUnavailable, HasSubstr("cannot listen at")));
}

TEST(JobLinkTest, SaysWhatIsWrongWithTheFileOfTheToken) {
  JobLinkOptions options = Options(1, 2, NewTestAddress());
  options.token.clear();
  options.connect_timeout_s = 0.2;
  EXPECT_THAT(NewJobLink(options).status(),
              StatusIs(kInvalidArgument, HasSubstr("the token of the job")));
  options.token_file = ::testing::TempDir() + "/nowhere.token";
  EXPECT_THAT(NewJobLink(options).status(),
              StatusIs(kUnavailable, AllOf(HasSubstr("nowhere.token"), HasSubstr("No such file"))));
  // The others are told at once, and once: they wait.
  options.token_file = ::testing::TempDir() + "/open.token";
  std::ofstream(options.token_file) << kTestToken;
  ASSERT_EQ(chmod(options.token_file.c_str(), 0644), 0);
  std::vector<std::string> notes;
  options.on_note = [&](const std::string& note) { notes.push_back(note); };
  EXPECT_THAT(NewJobLink(options).status(),
              StatusIs(kUnavailable, HasSubstr("(chmod 600), found mode 644")));
  EXPECT_THAT(notes, ElementsAre(AllOf(HasSubstr("waiting for another file with the token"),
                                       HasSubstr("found mode 644"))));
  options.process = 0;
  options.token_file = ::testing::TempDir() + "/no/such/folder";
  EXPECT_THAT(NewJobLink(options).status(), StatusIs(kUnavailable, HasSubstr("no/such/folder")));
}

TEST(JobLinkTest, FactsThatDifferAreNoted) {
  const std::string address = NewTestAddress();
  std::vector<std::string> notes;
  Links links(3);
  OnAll<int>(3, [&](int p) {
    JobLinkOptions options = Options(p, 3, address);
    options.facts = {{"build", "abc"}, {"vector units", p == 2 ? "AVX2" : "AVX512"}};
    if (p == 0) options.on_note = [&](const std::string& note) { notes.push_back(note); };
    Link link = NewJobLink(options);
    EXPECT_THAT(link, IsOk());
    links[p] = *std::move(link);
    return 0;
  });
  EXPECT_THAT(notes, ElementsAre(AllOf(HasSubstr("vector units of process 0 (rank 0"),
                                       HasSubstr("): AVX512; of process 2 (rank 2"),
                                       HasSubstr("): AVX2: they may round differently"))));
  EXPECT_THAT(FinishAll(links), Each(IsOk()));
}

TEST(JobLinkTest, AServerThatIsNoJobIsNamed) {
  const std::string address = NewTestAddress();
  const int server = ListenStranger(address);
  std::thread answers([&] {
    for (int fd; (fd = accept(server, nullptr, nullptr)) >= 0; close(fd)) {
      send(fd, std::string(100, 'x').data(), 100, MSG_NOSIGNAL);
      char byte;
      while (recv(fd, &byte, 1, 0) > 0) {
      }
    }
  });
  JobLinkOptions options = Options(1, 2, address);
  options.connect_timeout_s = 0.5;
  EXPECT_THAT(NewJobLink(options).status(),
              StatusIs(kUnavailable, HasSubstr("no process of a Weft job")));
  shutdown(server, SHUT_RDWR);
  answers.join();
  close(server);
}

ProcessIdentity OnHost(const std::string& name) {
  ProcessIdentity self = ThisProcess();
  self.host = self.hostname = name;
  return self;
}

// Links of processes on these hosts.
Links OnHosts(const std::vector<std::string>& hosts, double lost_after_s) {
  const std::string address = NewTestAddress();
  const int n = static_cast<int>(hosts.size());
  Links links(n);
  OnAll<int>(n, [&](int p) {
    JobLinkOptions options = Options(p, n, address);
    options.lost_after_s = lost_after_s;
    Link link = NewJobLinkAs(options, OnHost(hosts[p]));
    EXPECT_THAT(link, IsOk());
    links[p] = *std::move(link);
    return 0;
  });
  return links;
}

TEST(JobLinkTest, HeartbeatsKeepQuietProcessesOfOtherHostsAlive) {
  const Links links = OnHosts({"a", "b", "b"}, 3);
  for (const auto& link : links) EXPECT_FALSE(link->is_one_host());
  std::this_thread::sleep_for(std::chrono::seconds(7));
  EXPECT_THAT(FinishAll(links), Each(IsOk()));
}

TEST(JobLinkTest, KnowsWhetherProcessesAreOnOneHost) {
  for (const auto& link : OnHosts({"a", "a"}, 8)) EXPECT_TRUE(link->is_one_host());
  for (const auto& link : OnHosts({"b", "a", "a"}, 8)) EXPECT_FALSE(link->is_one_host());
  for (const auto& link : OnHosts({"", ""}, 8)) EXPECT_FALSE(link->is_one_host());
}

}  // namespace
}  // namespace weft::testing
