// How fast is `transpile`, and how much memory does it take, beside libprotobuf that merely loads
// the same program into an arena and saves it, and beside a mere copy? All go from file to file and
// sync the output; the commands run in turn, A B A B ..., so that a machine whose speed drifts does
// not decide.
//
//   bazel run -c opt //tests/benchmarks:transpile_benchmark -- [--ops 1000000] [--rounds 5]
//   [--modes [--nranks 2,8] [--startup]]
//
// --modes times all modes in both dialects, beside grad_allreduce in the weft dialect: elapsed
// time, processor time (for machines that do other work too) and bytes written. --startup: with a
// startup program, which modes in the weft dialect rewrite, too.
#include <fcntl.h>
#include <spawn.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

extern char** environ;

namespace weft {
namespace {

struct Run {
  double seconds = 0;
  double cpu_seconds = 0;  // of all threads
  double peak_bytes = 0;
  double out_bytes = 0;  // of the program that it wrote
};

[[noreturn]] void Die(const std::string& what) {
  std::fprintf(stderr, "transpile_benchmark: error: %s\n", what.c_str());
  std::exit(1);
}

Run RunCommand(const std::vector<std::string>& command) {
  std::vector<char*> argv;
  for (const std::string& arg : command) argv.push_back(const_cast<char*>(arg.c_str()));
  argv.push_back(nullptr);
  const auto start = std::chrono::steady_clock::now();
  pid_t pid;
  if (posix_spawn(&pid, argv[0], nullptr, nullptr, argv.data(), environ) != 0) {
    Die(absl::StrCat("cannot start ", command[0]));
  }
  int status = 0;
  rusage usage;
  if (wait4(pid, &status, 0, &usage) != pid || status != 0) {
    Die(absl::StrCat(command[0], " failed"));
  }
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
  const auto seconds = [](const timeval& t) { return t.tv_sec + t.tv_usec * 1e-6; };
  return {elapsed.count(), seconds(usage.ru_utime) + seconds(usage.ru_stime),
          static_cast<double>(usage.ru_maxrss) * 1024};
}

double BytesOf(const std::string& path) {
  struct stat info;
  if (stat(path.c_str(), &info) != 0) Die(absl::StrCat("cannot find ", path));
  return static_cast<double>(info.st_size);
}

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

struct Summary {
  double min, median, max, peak_bytes;
};

Summary Summarize(const std::vector<Run>& runs) {
  std::vector<double> seconds, peaks;
  for (const Run& run : runs) {
    seconds.push_back(run.seconds);
    peaks.push_back(run.peak_bytes);
  }
  return {*std::min_element(seconds.begin(), seconds.end()), Median(seconds),
          *std::max_element(seconds.begin(), seconds.end()),
          *std::max_element(peaks.begin(), peaks.end())};
}

struct Options {
  int64_t ops = 1000000;
  int64_t gradients = 20000;
  int rounds = 5;
  bool modes = false;
  bool startup = false;
  std::vector<int> nranks = {2, 8};  // that modes are timed for
  std::string dir = "/tmp";
  std::string transpile = "tools/transpile";
  std::string baseline = "tests/benchmarks/protobuf_load_save";
  std::string generator = "tests/benchmarks/generate_program";
};

struct Program {
  std::string path;
  double bytes = 0;
};

// In a process of its own: the peak memory of a command counts from what its parent holds.
Program Generate(const Options& options, int64_t ops) {
  Program program{absl::StrCat(options.dir, "/weft_benchmark_", getpid(), "_", ops, ".pb")};
  RunCommand({options.generator, absl::StrCat(ops),
              absl::StrCat(options.gradients * ops / options.ops), program.path});
  program.bytes = BytesOf(program.path);
  return program;
}

void Print(const std::string& what, const Summary& s, double file_bytes) {
  std::printf("%-44s %8.2f %8.2f %8.2f   %7.0f %7.2f\n", what.c_str(), s.min, s.median, s.max,
              s.peak_bytes / (1 << 20), s.peak_bytes / file_bytes);
}

// `count` numbers from `first` on, each after `prefix`, comma-separated.
std::string Counted(const std::string& prefix, int first, int count) {
  std::vector<std::string> parts;
  for (int i = 0; i < count; ++i) parts.push_back(absl::StrCat(prefix, first + i));
  return absl::StrJoin(parts, ",");
}

// A mode with its flags, in one dialect.
struct Mode {
  std::vector<std::string> flags;
  bool paddle = false;
  bool devices = false;  // paddle: its ranks are the devices of one trainer, else trainers
  std::vector<Run> runs = {};
  std::vector<double> ratios = {}, cpu_ratios = {};  // to the first mode, by round

  std::string Name() const {
    return absl::StrCat(paddle ? "paddle: " : "weft: ", absl::StrJoin(flags, " "));
  }

  std::vector<std::string> Command(const Options& options, int nranks) const {
    std::vector<std::string> command = {options.transpile, "--mode"};
    command.insert(command.end(), flags.begin(), flags.end());
    std::vector<std::string> ranks = {"--nranks", absl::StrCat(nranks)};
    if (paddle) {
      ranks = {"--dialect", "paddle", "--endpoints",
               Counted("127.0.0.1:", 6170, devices ? 1 : nranks)};
    }
    if (paddle && devices) ranks.insert(ranks.end(), {"--devices", Counted("", 0, nranks)});
    command.insert(command.end(), ranks.begin(), ranks.end());
    return command;
  }
};

// The modes that rewrite a startup program, of which --threshold leaves partitions of 64 KiB.
std::vector<Mode> ModesOfStartup() {
  return {{{"grad_allreduce"}},
          {{"local_sgd"}},
          {{"local_sgd", "--k_steps", "4"}},
          {{"singa_partial"}},
          {{"singa_partial", "--threshold", "12288"}},
          {{"singa_sparse_topk"}},
          {{"megengine", "--reduce_method", "mean", "--bcast_period", "4"}}};
}

std::vector<Mode> AllModes() {
  std::vector<Mode> modes;
  for (const bool paddle : {false, true}) {
    modes.push_back({{"grad_allreduce"}, paddle});
    modes.push_back({{"local_sgd"}, paddle});
    modes.push_back({{"single_process_multi_thread"}, paddle, true});
    for (const char* trans_mode : {"all_reduce", "fuse_all_reduce", "all_gather"}) {
      modes.push_back({{"multi_thread", "--trans_mode", trans_mode}, paddle, true});
    }
    if (paddle) continue;
    modes.push_back({{"mindspore_reducer", "--reduce_method", "mean"}});
    modes.push_back({{"singa_plain"}});
    modes.push_back({{"singa_half"}});
    modes.push_back({{"singa_partial"}});
    modes.push_back(
        {{"singa_sparse_topk", "--corr", "false"}});  // residuals need a startup program
    modes.push_back({{"singa_sparse_threshold", "--corr", "false"}});
    modes.push_back({{"megengine", "--reduce_method", "mean"}});
  }
  return modes;
}

void BenchmarkModes(const Options& options, const Program& program, const std::string& startup,
                    const std::string& out, int nranks) {
  std::vector<Mode> modes = startup.empty() ? AllModes() : ModesOfStartup();
  for (int round = 0; round <= options.rounds; ++round) {
    Run first;
    for (Mode& mode : modes) {
      std::vector<std::string> command = mode.Command(options, nranks);
      if (!startup.empty()) {
        command.insert(command.end(),
                       {"--startup_in", startup, "--startup_out", absl::StrCat(out, ".startup")});
      }
      command.insert(command.end(), {program.path, out});
      Run run = RunCommand(command);
      run.out_bytes = BytesOf(out);
      if (&mode == &modes.front()) first = run;
      if (round == 0) continue;
      mode.runs.push_back(run);
      mode.ratios.push_back(run.seconds / first.seconds);
      mode.cpu_ratios.push_back(run.cpu_seconds / first.cpu_seconds);
    }
  }
  std::printf("%-52s %8s %8s %8s %8s %8s %8s\n", absl::StrCat("modes, ", nranks, " ranks").c_str(),
              "min s", "median s", "max s", "/ first", "cpu", "written");
  for (const Mode& mode : modes) {
    const Summary s = Summarize(mode.runs);
    std::printf("%-52s %8.2f %8.2f %8.2f %8.2f %8.2f %8.2f\n", mode.Name().c_str(), s.min, s.median,
                s.max, Median(mode.ratios), Median(mode.cpu_ratios),
                mode.runs[0].out_bytes / modes.front().runs[0].out_bytes);
  }
}

void Benchmark(const Options& options) {
  const Program whole = Generate(options, options.ops);
  const Program half = Generate(options, options.ops / 2);
  const std::string out = absl::StrCat(options.dir, "/weft_benchmark_", getpid(), ".out.pb");
  const auto transpile = [&](const Program& program, const std::string& verify) {
    return RunCommand(
        {options.transpile, "--mode", "grad_allreduce", "--verify", verify, program.path, out});
  };
  std::vector<Run> baseline, copied, verified, unverified, of_half;
  std::vector<double> ratios, copy_ratios;
  for (int round = 0; round <= options.rounds; ++round) {
    const Run b = RunCommand({options.baseline, whole.path, out});
    const Run c = RunCommand({"/bin/dd", absl::StrCat("if=", whole.path), absl::StrCat("of=", out),
                              "bs=8M", "conv=fsync", "status=none"});
    const Run v = transpile(whole, "true");
    const Run u = transpile(whole, "false");
    const Run h = transpile(half, "true");
    if (round == 0) continue;  // warms the caches up
    baseline.push_back(b);
    copied.push_back(c);
    verified.push_back(v);
    unverified.push_back(u);
    of_half.push_back(h);
    ratios.push_back(b.seconds / v.seconds);
    copy_ratios.push_back(b.seconds / c.seconds);
  }

  std::printf("%lld ops, %lld gradients, %.0f MiB, %d rounds\n",
              static_cast<long long>(options.ops), static_cast<long long>(options.gradients),
              whole.bytes / (1 << 20), options.rounds);
  std::printf("%-44s %8s %8s %8s   %7s %7s\n", "", "min s", "median s", "max s", "peak MiB",
              "/ file");
  Print("libprotobuf: load into an arena and save", Summarize(baseline), whole.bytes);
  Print("dd conv=fsync: copy the file", Summarize(copied), whole.bytes);
  Print("transpile --mode grad_allreduce", Summarize(verified), whole.bytes);
  Print("  --verify false", Summarize(unverified), whole.bytes);
  Print("  half as many ops", Summarize(of_half), half.bytes);
  std::printf("libprotobuf / transpile, median of the rounds: %.1f\n", Median(ratios));
  std::printf("libprotobuf / copy, which no transpiler exceeds: %.1f\n", Median(copy_ratios));
  std::printf("transpile, all ops / half the ops: %.2f\n",
              Summarize(verified).median / Summarize(of_half).median);
  if (options.modes) {
    const std::string startup =
        options.startup ? absl::StrCat(options.dir, "/weft_benchmark_", getpid(), ".startup.pb")
                        : "";
    if (options.startup) {
      RunCommand({options.generator, absl::StrCat(options.ops), absl::StrCat(options.gradients),
                  startup, "startup"});
    }
    for (int nranks : options.nranks) BenchmarkModes(options, whole, startup, out, nranks);
    for (const std::string& path : {startup, absl::StrCat(out, ".startup")}) unlink(path.c_str());
  }
  for (const std::string& path : {whole.path, half.path, out}) unlink(path.c_str());
}

}  // namespace
}  // namespace weft

int main(int argc, char** argv) {
  weft::Options options;
  CLI::App app("Times transpile beside libprotobuf's load and save.", "transpile_benchmark");
  app.add_option("--ops", options.ops)->capture_default_str();
  app.add_option("--gradients", options.gradients)->capture_default_str();
  app.add_option("--rounds", options.rounds)->capture_default_str();
  app.add_flag("--modes", options.modes, "time all modes, in both dialects, too");
  app.add_flag("--startup", options.startup, "with a startup program");
  app.add_option("--nranks", options.nranks, "for so many ranks each")
      ->delimiter(',')
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--dir", options.dir, "where the programs go")->capture_default_str();
  app.add_option("--transpile", options.transpile)->capture_default_str();
  app.add_option("--baseline", options.baseline)->capture_default_str();
  app.add_option("--generator", options.generator)->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  weft::Benchmark(options);
  return 0;
}
