#include "executor/jobs/forked_job.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <thread>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "base/status_macros.h"
#include "executor/communicators/world.h"
#include "executor/jobs/job_link_testing.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weft::testing {
namespace {

void RunProcess(const JobLinkOptions& link_options, GroupOptions options,
                const ForkedJob::NewGroup& new_group, const ForkedJob::Body& body, int file) {
  const auto say = [&](const std::string& text) {
    if (write(file, text.data(), text.size()) < 0) std::_Exit(1);
  };
  auto link = NewJobLink(link_options);
  if (!link.ok()) return say(link.status().ToString());
  options.link = link->get();
  auto group = new_group(options);
  if (!group.ok()) return say(group.status().ToString());
  const World world = WorldOf(options.nranks, link->get());
  (*link)->OnFailure([&](const absl::Status& status) { (*group)->Abort(status); });
  std::vector<std::string> results(world.count);
  std::vector<std::thread> threads;
  for (int i = 0; i < world.count; ++i) {
    threads.emplace_back([&, i] {
      results[i] = body({group->get(), link->get(), world.first + i, say});
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::string& result : results) say(result + "\n");
  (*link)->OnFailure(nullptr);
  (void)(*link)->Finish();
}

absl::Status Sum(CommunicatorGroup* group, int rank, int64_t count) {
  std::vector<float> buffer(count, 1);
  CollectiveCall call;
  call.desc.count = count;
  call.op = "op 7 (c_allreduce_sum)";
  call.variable = "g";
  call.dims = {count};
  WEFT_ASSIGN_OR_RETURN(Communicator * end, group->Get(RingKey{}, rank));
  return end->Run(call, buffer.data(), buffer.data());
}

constexpr char kFault[] = "fault ", kKnows[] = "knows ";

}  // namespace

ForkedJob::ForkedJob(int num_processes, GroupOptions options, const NewGroup& new_group,
                     const Body& body)
    : options_(std::move(options)) {
  JobLinkOptions link;
  link.num_processes = num_processes;
  link.local_ranks = options_.nranks / num_processes;
  link.address = NewTestAddress();
  link.token = kTestToken;
  if (options_.rings.empty()) options_.rings = {RingKey{}};
  for (int p = 0; p < num_processes; ++p) {
    int ends[2];
    if (pipe(ends) != 0) std::abort();
    link.process = p;
    const pid_t pid = fork();
    if (pid == 0) {
      RunProcess(link, options_, new_group, body, ends[1]);
      std::_Exit(0);
    }
    close(ends[1]);
    processes_.push_back({pid, ends[0], /*has_ended=*/false});
  }
}

ForkedJob::~ForkedJob() {
  for (const Process& process : processes_) {
    if (process.has_ended) continue;
    kill(process.pid, SIGKILL);
    waitpid(process.pid, nullptr, 0);
    close(process.results);
  }
}

void ForkedJob::Signal(int process, int signal) { kill(processes_[process].pid, signal); }

std::string ForkedJob::ResultsOf(int process) {
  Process& ended = processes_[process];
  std::string text;
  char buffer[4096];
  ssize_t size = 0;
  while ((size = read(ended.results, buffer, sizeof(buffer))) > 0) text.append(buffer, size);
  int status = 0;
  if (waitpid(ended.pid, &status, 0) == ended.pid && WIFSIGNALED(status)) {
    absl::StrAppend(&text, "ended by signal ", WTERMSIG(status), "\n");
  }
  close(ended.results);
  ended.has_ended = true;
  return text;
}

std::vector<std::string> ForkedJob::Results() {
  std::vector<std::string> results;
  for (size_t p = 0; p < processes_.size(); ++p) results.push_back(ResultsOf(static_cast<int>(p)));
  return results;
}

std::string FaultName(Fault fault) {
  switch (fault) {
    case Fault::kIsKilled:
      return "kill";
    case Fault::kIsStopped:
      return "stop";
    case Fault::kThrows:
      return "throw";
    case Fault::kDiverges:
      return "diverge";
  }
  return "";
}

double SharedClock() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

absl::Status SumUntilFault(CommunicatorGroup* group, JobLink* link, int rank, bool is_victim,
                           Fault fault, double after_s, const std::function<void()>& on_fault) {
  constexpr int64_t kCounts[] = {1, 1000, 200000};
  WEFT_RETURN_IF_ERROR(Sum(group, rank, 1));
  std::atomic<bool> is_due{false}, is_over{false};
  std::thread timer;
  if (is_victim) {
    timer = std::thread([&, end = SharedClock() + after_s] {
      while (!is_over && SharedClock() < end) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
      if (is_over) return;
      if (fault == Fault::kIsKilled || fault == Fault::kIsStopped) {
        on_fault();
        kill(getpid(), fault == Fault::kIsKilled ? SIGKILL : SIGSTOP);
      }
      is_due = true;
    });
  }
  absl::Status status;
  for (int i = 0; status.ok(); ++i) {
    if (is_due && fault == Fault::kThrows) {
      on_fault();
      status = absl::InternalError("op 5 (mul): out of luck");
      link->Abort(rank, status);
      group->Abort(status);
    } else if (is_due && fault == Fault::kDiverges) {
      on_fault();
      status = Sum(group, rank, 77);
    } else {
      status = Sum(group, rank, kCounts[i % 3]);
    }
  }
  is_over = true;
  if (timer.joinable()) timer.join();
  return status;
}

FaultOutcome RunWithFault(const ForkedJob::NewGroup& new_group, Fault fault, int victim,
                          double after_s) {
  const ForkedJob::Body body = [&](const ForkedJob::RankContext& context) {
    const absl::Status status = SumUntilFault(
        context.group, context.link, context.rank, context.rank == victim, fault, after_s,
        [&] { context.say(absl::StrFormat("%s%.6f\n", kFault, SharedClock())); });
    return absl::StrFormat("%s%.6f %s", kKnows, SharedClock(), status.ToString());
  };
  GroupOptions options;
  options.nranks = 3;
  options.timeout_s = 60;
  ForkedJob job(3, options, new_group, body);
  FaultOutcome outcome;
  double begin = 0, end = 0;
  const auto read_time = [](absl::string_view text, double* seconds) {
    return absl::SimpleAtod(text.substr(0, text.find(' ')), seconds);
  };
  const auto read = [&](int process) {
    for (absl::string_view line : absl::StrSplit(job.ResultsOf(process), '\n')) {
      double seconds = 0;
      if (absl::StartsWith(line, kFault) && read_time(line.substr(sizeof(kFault) - 1), &seconds)) {
        begin = seconds;
      }
      if (process == victim || line.empty() || absl::StartsWith(line, kFault)) continue;
      if (!absl::StartsWith(line, kKnows)) {
        outcome.errors.emplace_back(absl::StrCat("process ", process, ": ", line));
        continue;
      }
      line.remove_prefix(sizeof(kKnows) - 1);
      if (read_time(line, &seconds)) end = std::max(end, seconds);
      outcome.errors.emplace_back(line.substr(line.find(' ') + 1));
    }
  };
  for (int process = 0; process < 3; ++process) {
    if (process != victim) read(process);
  }
  job.Signal(victim, SIGKILL);
  read(victim);
  outcome.seconds = begin > 0 ? end - begin : 1e9;
  return outcome;
}

void ExpectTold(const FaultOutcome& outcome, Fault fault, int victim, double limit_s) {
  EXPECT_LT(outcome.seconds, limit_s);
  EXPECT_THAT(outcome.errors, ::testing::SizeIs(2));
  const auto is_told = [&]() -> ::testing::Matcher<std::string> {
    switch (fault) {
      case Fault::kIsKilled:
      case Fault::kIsStopped:
        return ::testing::HasSubstr(absl::StrCat("process ", victim, " "));
      case Fault::kThrows:
        return ::testing::HasSubstr("op 5 (mul): out of luck");
      case Fault::kDiverges:
        return ::testing::HasSubstr("ranks call different collectives: ");
    }
    return ::testing::_;
  };
  EXPECT_THAT(outcome.errors, ::testing::Each(is_told()));
}

}  // namespace weft::testing
