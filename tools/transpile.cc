// transpile: rewrites training programs. Reads arguments and prints messages; //transpiler works.
#include "transpiler/transpile.h"

#include <cstddef>
#include <cstdio>
#include <deque>
#include <future>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/annotate.h"
#include "base/file.h"
#include "base/free_memory.h"
#include "base/status_macros.h"
#include "proto/formats/program_file.h"
#include "proto/text/program_text.h"
#include "tools/cmd/memory_advice.h"
#include "tools/cmd/transpile_copy.h"
#include "tools/cmd/transpile_flags.h"
#include "tools/cmd/transpile_help.h"
#include "tools/cmd/transpile_notes.h"
#include "tools/cmd/transpile_outputs.h"
#include "tools/cmd/transpile_programs.h"
#include "tools/files/certificate.h"
#include "tools/flags/command_line.h"
#include "tools/flags/flag_names.h"
#include "transpiler/modes.h"
#include "transpiler/transpile_plan.h"

namespace weft {
namespace {

// The programs of one trainer. At a fixed address: what is written refers to them.
struct Trainer {
  Program main;
  absl::optional<Program> startup;
  OutputPaths paths;
  std::future<absl::StatusOr<StagedPrograms>> written;

  ProgramPair programs() { return {&main, startup.has_value() ? &*startup : nullptr}; }
  absl::StatusOr<StagedPrograms> Write() const {
    std::vector<ProgramOutput> outputs;
    if (!paths.main.empty()) outputs.push_back({&main, paths.main});
    if (!paths.startup.empty()) outputs.push_back({&*startup, paths.startup});
    return StagedPrograms::Write(outputs);
  }
};

// One trainer, or with --rank all every one.
std::deque<Trainer> TrainersOf(const TranspileFlags& flags, Program main,
                               absl::optional<Program> startup) {
  std::deque<Trainer> trainers;
  if (!flags.all_ranks) {
    trainers.push_back({std::move(main),
                        std::move(startup),
                        {flags.out, flags.startup_out, flags.server_out, flags.explain},
                        {}});
    return trainers;
  }
  const int count = static_cast<int>(flags.options.cluster.endpoints.size());
  for (int rank = 0; rank < count; ++rank) {
    const OutputPaths paths{PathFor(flags.out, rank), PathFor(flags.startup_out, rank), "",
                            PathFor(flags.explain, rank)};
    trainers.push_back({main, startup, paths, {}});
  }
  return trainers;
}

absl::StatusOr<std::vector<TranspileResult>> TranspileFor(const TranspileFlags& flags,
                                                          std::deque<Trainer>* trainers) {
  TranspileOptions options = flags.options;
  // The disk is slow: a thread writes a result while it is verified. The files get their names only
  // then. If no thread can be started, get() writes.
  auto next = trainers->begin();
  options.on_result = [&next](const ProgramPair&) {
    Trainer& trainer = *next++;
    trainer.written = std::async(std::launch::async | std::launch::deferred,
                                 [&trainer] { return trainer.Write(); });
  };
  std::vector<ProgramPair> ranks;
  for (Trainer& trainer : *trainers) ranks.push_back(trainer.programs());
  return TranspileTrainers(flags, options, absl::MakeSpan(ranks));
}

// InvalidArgument if one file is to hold programs of trainers that differ.
absl::Status CheckAreShared(const TranspileFlags& flags, std::deque<Trainer>* trainers) {
  const ProgramPair first = trainers->front().programs();
  for (size_t i = 1; i < trainers->size(); ++i) {
    const ProgramPair other = (*trainers)[i].programs();
    for (const auto& [path, a, b] :
         {std::make_tuple(flags.out, first.main, other.main),
          std::make_tuple(flags.startup_out, first.startup, other.startup)}) {
      const bool is_own = absl::StrContains(path, kRankInName);
      if (a == nullptr || is_own || ProgramText(*a) == ProgramText(*b)) continue;
      return absl::InvalidArgumentError(absl::StrCat(path, ": the programs of ranks 0 and ", i,
                                                     " differ: expected ", kRankInName,
                                                     " in the name of the file"));
    }
  }
  return absl::OkStatus();
}

// Of the files that are there now.
absl::Status WriteCertificates(const TranspileFlags& flags, const std::deque<Trainer>& trainers,
                               const std::vector<TranspileResult>& results) {
  if (flags.certificate.empty()) return absl::OkStatus();
  for (size_t i = 0; i < trainers.size(); ++i) {
    const Trainer& trainer = trainers[i];
    const std::string dir = PathFor(flags.certificate, static_cast<int>(i));
    if (dir.empty()) continue;
    const std::string& main = trainer.paths.main;  // empty: that of the first trainer
    const CertifiedPaths paths{flags.in, main.empty() ? flags.out : main, flags.startup_in,
                               trainer.paths.startup};
    WEFT_ASSIGN_OR_RETURN(const std::string schedule,
                          WriteCertificate(paths, ClaimOf(flags, results[i]), dir));
    Print("transpile", {Severity::kNote, absl::StrCat(dir, ": ", schedule)});
  }
  return absl::OkStatus();
}

// The main program, and the startup program if it is given.
absl::StatusOr<std::vector<Program>> ReadInputs(const TranspileFlags& flags) {
  std::vector<Program> read;
  WEFT_ASSIGN_OR_RETURN(Program main, ReadProgramOrExplain(flags.in));
  read.push_back(std::move(main));
  if (flags.startup_in.empty()) return read;
  absl::StatusOr<Program> startup = ReadStartupProgram(flags.startup_in);
  WEFT_RETURN_IF_ERROR(Annotate(flags.startup_in, startup.status()));
  read.push_back(*std::move(startup));
  return read;
}

absl::Status Run(TranspileFlags& flags) {
  if (flags.options.mode != kAuto) WEFT_RETURN_IF_ERROR(flags.plan.status());
  WEFT_RETURN_IF_ERROR(
      CheckOutputs({flags.in, flags.startup_in},
                   {flags.out, flags.startup_out, flags.server_out, flags.explain}));
  for (const std::string& path : {flags.out, flags.startup_out, flags.server_out}) {
    if (!path.empty()) WEFT_RETURN_IF_ERROR(Annotate(path, ProgramFormatOf(path).status()));
  }
  std::vector<Program> read;
  const bool is_copy = IsCopy(flags);
  if (is_copy) {
    flags.options.verification = Verification::kNever;
    WEFT_ASSIGN_OR_RETURN(absl::optional<std::vector<Program>> copied, ReadOrCopy(flags));
    if (!copied.has_value()) return absl::OkStatus();
    read = *std::move(copied);
  } else {
    WEFT_ASSIGN_OR_RETURN(read, ReadInputs(flags));
  }
  Program main = std::move(read.front());
  absl::optional<Program> startup;
  if (read.size() > 1) startup = std::move(read.back());
  WEFT_RETURN_IF_ERROR(
      PrepareTranspile({&main, startup.has_value() ? &*startup : nullptr}, &flags));
  std::deque<Program> as_read;  // kept if stages of sharding may be tried on them
  if (flags.rank_memory.has_value()) {
    as_read.push_back(main);
    if (startup.has_value()) as_read.push_back(*startup);
  }
  std::deque<Trainer> trainers = TrainersOf(flags, std::move(main), std::move(startup));
  absl::StatusOr<std::vector<TranspileResult>> results = TranspileFor(flags, &trainers);
  WEFT_RETURN_IF_ERROR(results.status());
  WEFT_RETURN_IF_ERROR(CheckAreShared(flags, &trainers));
  std::vector<StagedOutputs> staged;
  for (size_t i = 0; i < trainers.size(); ++i) {
    absl::StatusOr<StagedOutputs> outputs =
        StageAll(trainers[i].written.get(), trainers[i].paths, (*results)[i], trainers[i].main);
    WEFT_RETURN_IF_ERROR(outputs.status());
    staged.push_back(*std::move(outputs));
  }
  std::vector<const Program*> mains;
  for (const Trainer& trainer : trainers) mains.push_back(&trainer.main);
  ShowResults(flags, *results, mains);
  if (flags.rank_memory.has_value()) {
    const ProgramPair original{&as_read[0], as_read.size() > 1 ? &as_read[1] : nullptr};
    const absl::optional<Said> said =
        SaidOfMemory(flags, original, *mains[0], results->front().setting);
    if (said.has_value()) Print("transpile", *said);
  }
  if (is_copy && flags.verify) {
    const Trainer& copy = trainers.front();
    for (const Said& said :
         SaidOfCopy(flags, {&copy.main, copy.startup.has_value() ? &*copy.startup : nullptr},
                    results->front().setting)) {
      Print("transpile", said);
    }
  }
  for (StagedOutputs& outputs : staged) WEFT_RETURN_IF_ERROR(outputs.Replace());
  for (StagedOutputs& outputs : staged) outputs.Keep();
  return WriteCertificates(flags, trainers, *results);
}

int Main(int argc, char** argv) {
  CLI::App app("Rewrites a training program so that it trains on many ranks.", "transpile");
  app.footer("Example:\n  transpile --mode grad_allreduce in.pb out.pb");
  TranspileFlags flags;
  AddFlags(app, flags);
  app.callback([&] { CheckFlags(flags); });
  const auto before_help = [&] {
    const absl::StatusOr<const Mode*> mode = FindMode(flags.options.mode);
    mode.ok() ? ShowFlagsOf(**mode, app) : ShowModes(app);
  };
  if (absl::optional<int> status = ParseCommandLine(app, argc, argv, before_help)) return *status;
  if (flags.list_modes || flags.list_passes) {
    const std::string text =
        (flags.list_modes ? ListModes() : "") + (flags.list_passes ? ListPasses() : "");
    std::fputs(WithFlags(text).c_str(), stdout);
    return FinishCommand("transpile", absl::OkStatus());
  }
  return FinishCommand("transpile", Run(flags));
}

}  // namespace
}  // namespace weft

int main(int argc, char** argv) {
  return weft::RunTool("transpile", weft::kExitFailed, [&] {
    weft::ReturnLargeArraysAtOnce();
    return weft::Main(argc, argv);
  });
}
