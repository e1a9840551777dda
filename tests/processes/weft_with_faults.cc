// weft run, of which one process is killed, stopped or slow at a chosen place:
//
//   weft_with_faults PLACE:GENERATION:STEP:RANK:NUMBER:WHAT run ...
//
//   kernel      before call NUMBER of a kernel by the rank in the step
//   collective  before call NUMBER of a collective by the rank, counted over steps
//   inside      a moment later, in the call
//   result      in process 0, before (NUMBER 0) or after (1) the result of the rank is written
//   late        NUMBER * 100 us after that: the end of the run and what is saved there
//   checkpoint  in process 0, before (0), after (1) or while (2) the checkpoint of the step is
//   written
//   noticed     in the process of the rank, when it learns that the generation has ended
//   start       in the process of the rank, before its run in the generation starts
//   begin       in a process that takes the place of one of GENERATION, as soon as it starts
//   wrong       nowhere: all-reduces have wrong results
//   none        nowhere
//
// WHAT is kill, stop, slow, or
//
//   term     SIGTERM to the launcher; goes on when the signal has come from there
//   own      SIGTERM to the process alone
//   preempt  SIGTERM to the launcher, and kill
//   leave    signals of the launcher do not reach the process any more, and it waits
//   host     kill of its launcher
//   cut      the network to the other hosts is cut (hosts.sh)
//   cut_last the network to the last of four hosts is cut
//
// Several faults are joined by "+". Says on standard error at which
// seconds, on a clock of the host, the fault happens, others notice it, and the run goes on.
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "base/status_macros.h"
#include "executor/communicators/communicator_decorators.h"
#include "executor/communicators/self_test_testing.h"
#include "executor/communicators/world.h"
#include "executor/run/runner.h"
#include "ops/kernel.h"
#include "tools/cmd/weft_commands.h"
#include "tools/flags/command_line.h"
#include "tools/job/generations.h"
#include "tools/job/stop_signals.h"

namespace weft {
namespace {

using Clock = std::chrono::steady_clock;

void Say(const char* what) {
  const std::chrono::duration<double> now = Clock::now().time_since_epoch();
  const std::string line = absl::StrFormat("fault: %s at %.6f\n", what, now.count());
  if (write(STDERR_FILENO, line.data(), line.size()) < 0) std::abort();
}

// Of the job, before this process has part in one.
int FirstGeneration() {
  const char* const joins_after = std::getenv(kGenerationVariable);
  return joins_after == nullptr ? 0 : std::atoi(joins_after);
}

struct Fault {
  std::string place = "none";
  int64_t step = 0, number = 0;
  int generation = 1, rank = 0;
  std::string what = "kill";

  static Fault Parse(const std::string& text) {
    const std::vector<std::string> words = absl::StrSplit(text, ':');
    Fault fault;
    fault.place = words[0];
    if (words.size() == 6 && absl::SimpleAtoi(words[1], &fault.generation) &&
        absl::SimpleAtoi(words[2], &fault.step) && absl::SimpleAtoi(words[3], &fault.rank) &&
        absl::SimpleAtoi(words[4], &fault.number)) {
      fault.what = words[5];
    } else if (text != "none") {
      std::fprintf(stderr, "no fault: %s\n", text.c_str());
      std::exit(kExitUsage);
    }
    return fault;
  }

  void Happen() const {
    Say("happens");
    const pid_t launcher = getppid();
    if (what == "slow") {
      std::this_thread::sleep_for(std::chrono::milliseconds(1500));
    } else if (what == "host") {
      kill(launcher, SIGKILL);
    } else if (what == "own") {
      kill(getpid(), SIGTERM);
    } else if (what == "term") {
      kill(launcher, SIGTERM);
      for (int i = 0; i < 10000 && StopSignal() == 0; ++i) usleep(1000);
      if (StopSignal() == 0) std::abort();
    } else if (what == "cut") {
      if (system("ip link set to_others down") != 0) std::abort();
    } else if (what == "cut_last") {
      if (system("ip link set to_3 down") != 0) std::abort();
    } else if (what == "leave") {
      signal(SIGTERM, SIG_DFL);  // when the launcher ends
      if (setpgid(0, getpgid(launcher)) == 0) std::this_thread::sleep_for(std::chrono::hours(1));
    } else {
      if (what == "preempt") kill(launcher, SIGTERM);
      kill(getpid(), what == "stop" ? SIGSTOP : SIGKILL);
    }
  }
  void HappenAfter(std::chrono::microseconds delay) const {
    std::thread([copy = *this, delay] {
      std::this_thread::sleep_for(delay);
      copy.Happen();
    }).detach();
  }
};

// Tells when the run learns of a failure.
class NoticingGroup : public CommunicatorGroup {
 public:
  NoticingGroup(std::unique_ptr<CommunicatorGroup> group, std::function<void()> on_notice)
      : group_(std::move(group)), on_notice_(std::move(on_notice)) {}

  absl::StatusOr<Communicator*> Get(const RingKey& ring, int rank) override {
    return group_->Get(ring, rank);
  }
  void Abort(const absl::Status& status) override {
    const bool is_first = !has_noticed_.exchange(true);
    if (is_first) Say("noticed");
    group_->Abort(status);
    if (is_first) on_notice_();
  }
  Memory* host_memory() override { return group_->host_memory(); }

 private:
  const std::unique_ptr<CommunicatorGroup> group_;
  const std::function<void()> on_notice_;
  std::atomic<bool> has_noticed_{false};
};

// The kernels of the CPU, with `before` called before each step of each.
KernelTable WithCalls(const std::function<void(const KernelContext&)>& before) {
  const auto decorate = [&before](const KernelFactory& factory) -> KernelFactory {
    return [factory, before](const KernelSpec& spec) -> absl::StatusOr<Kernel> {
      WEFT_ASSIGN_OR_RETURN(Kernel kernel, factory(spec));
      kernel.prepare = [prepare = std::move(kernel.prepare),
                        before](const KernelContext& context) -> absl::StatusOr<KernelStep> {
        WEFT_ASSIGN_OR_RETURN(KernelStep step, prepare(context));
        return KernelStep([step = std::move(step), before](const KernelContext& of_step) {
          before(of_step);
          return step(of_step);
        });
      };
      return kernel;
    };
  };
  KernelTable table;
  for (const std::string& type : CpuKernels().op_types()) {
    table.Add(type, decorate(*CpuKernels().Find(type)));
  }
  for (const std::string& type : CpuKernels().op_types_for_rows()) {
    table.AddForRows(type, decorate(*CpuKernels().FindForRows(type)));
  }
  return table;
}

// Of one fault.
class FaultyRun {
 public:
  explicit FaultyRun(const std::string& text)
      : fault_(Fault::Parse(text)),
        place_(absl::StrCat("step ", fault_.step, ", rank ", fault_.rank)) {}

  void Begin() const {
    if (IsAt("begin")) fault_.Happen();
  }
  void BeforeKernel(const KernelContext& context) {
    if (!IsAt("kernel") || context.place == nullptr || *context.place != place_) return;
    if (num_kernel_calls_++ == fault_.number) fault_.Happen();
  }

  void Decorate(RunInputs* inputs, RunOptions* options) {
    ++generation_;
    const World world = WorldOf(options->nranks, options->link);
    const bool has_rank = fault_.rank >= world.first && fault_.rank < world.end();
    if (has_rank && IsAt("start")) fault_.Happen();
    options->new_group =
        [this, has_rank, new_group = options->new_group](
            GroupOptions group) -> absl::StatusOr<std::unique_ptr<CommunicatorGroup>> {
      WEFT_ASSIGN_OR_RETURN(auto made, new_group(std::move(group)));
      if (IsAt("wrong")) {
        made = std::make_unique<testing::WrongGroup>(std::move(made), CollectiveKind::kAllReduce,
                                                     /*count=*/1);
      }
      return NewFaultyGroup(
          std::make_unique<NoticingGroup>(std::move(made),
                                          [this, has_rank] {
                                            if (has_rank && IsAt("noticed")) fault_.Happen();
                                          }),
          [this](const RingKey&, int rank, int64_t, CollectiveCall*) { return Call(rank); });
    };
    if (inputs->on_result) {
      inputs->on_result = [this, add = inputs->on_result](const StepResult& result) {
        const bool is_it = result.step == fault_.step && result.rank == fault_.rank;
        if (is_it && IsAt("result") && fault_.number == 0) fault_.Happen();
        const absl::Status status = add(result);
        if (is_it && IsAt("result") && fault_.number == 1) fault_.Happen();
        if (is_it && IsAt("late")) {
          fault_.HappenAfter(std::chrono::microseconds(100 * fault_.number));
        }
        return status;
      };
    }
    if (inputs->on_checkpoint) {
      inputs->on_checkpoint = [this, write = inputs->on_checkpoint](Checkpoint checkpoint) {
        const bool is_it = checkpoint.step == fault_.step && IsAt("checkpoint");
        if (is_it && fault_.number == 0) fault_.Happen();
        if (is_it && fault_.number >= 2) {
          fault_.HappenAfter(std::chrono::microseconds(50 * (fault_.number - 1)));
        }
        const absl::Status status = write(std::move(checkpoint));
        if (is_it && fault_.number == 1) fault_.Happen();
        return status;
      };
    }
  }

 private:
  bool IsAt(absl::string_view place) const {
    return fault_.place == place && generation_ == fault_.generation;
  }

  absl::Status Call(int rank) {
    if (rank != fault_.rank || !(IsAt("collective") || IsAt("inside"))) return absl::OkStatus();
    if (num_calls_++ != fault_.number) return absl::OkStatus();
    if (fault_.place == "inside") {
      fault_.HappenAfter(std::chrono::microseconds(300));
    } else {
      fault_.Happen();
    }
    return absl::OkStatus();
  }

  const Fault fault_;
  const std::string place_;
  std::atomic<int> generation_{FirstGeneration()};
  std::atomic<int64_t> num_kernel_calls_{0}, num_calls_{0};
};

int Main(int argc, char** argv) {
  if (argc < 2) return kExitUsage;
  std::deque<FaultyRun> faults;
  for (const std::string& text : std::vector<std::string>(absl::StrSplit(argv[1], '+'))) {
    faults.emplace_back(text).Begin();
  }
  int generation = FirstGeneration();
  std::atomic<bool> goes_on = true;
  const KernelTable kernels = WithCalls([&](const KernelContext& context) {
    if (!goes_on.exchange(true)) Say("goes on");
    for (FaultyRun& fault : faults) fault.BeforeKernel(context);
  });
  CLI::App app("weft run with a fault", "weft");
  app.require_subcommand(1);
  const Subcommand run = AddRun(&app, [&](RunInputs* inputs, RunOptions* options) {
    options->kernels = &kernels;
    if (++generation > 1) goes_on = false;
    for (FaultyRun& fault : faults) fault.Decorate(inputs, options);
  });
  argv[1] = argv[0];
  if (absl::optional<int> status = ParseCommandLine(app, argc - 1, argv + 1)) return *status;
  return run.run();
}

}  // namespace
}  // namespace weft

int main(int argc, char** argv) {
  return weft::RunTool("weft", weft::kExitFailed, [&] { return weft::Main(argc, argv); });
}
