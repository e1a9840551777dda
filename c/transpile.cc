// weft_transpile.
#include <deque>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/types/optional.h"
#include "absl/types/span.h"
#include "base/status_macros.h"
#include "c/handles.h"
#include "c/weft.h"
#include "tools/cmd/memory_advice.h"
#include "tools/cmd/transpile_copy.h"
#include "tools/cmd/transpile_flags.h"
#include "tools/cmd/transpile_notes.h"
#include "tools/cmd/transpile_outputs.h"
#include "tools/cmd/transpile_programs.h"
#include "tools/files/certificate.h"

// One trainer. At a fixed address: pairs refer to it.
struct TranspiledTrainer {
  weft::Program main;
  absl::optional<weft::Program> startup;
  std::string remarks;

  weft::ProgramPair pair() { return {&main, startup.has_value() ? &*startup : nullptr}; }
};

struct weft_transpiled {
  std::deque<TranspiledTrainer> trainers;
  absl::optional<weft::Program> server;
  weft::c::Messages messages;
};

namespace weft::c {
namespace {

absl::Status ParseTranspile(const weft_options* options, const weft_program& main,
                            const weft_program* startup, TranspileFlags* flags) {
  CLI::App app;
  AddFlags(app, *flags);
  app.callback([&] { CheckFlags(*flags); });
  flags->to_files = false;
  std::vector<std::string> more;
  const char* const extension = weft_program_format(&main) == WEFT_FORMAT_PIR ? ".json" : ".pb";
  if (startup != nullptr) {
    more.emplace_back("--startup_in=startup");
    more.push_back(std::string("--startup_out=startup") + extension);
  }
  more.insert(more.end(), {"--", "main", std::string("result") + extension});
  WEFT_RETURN_IF_ERROR(Parse(app, "transpile", options, std::move(more)));
  flags->in = NameOf(main, "main");
  if (startup != nullptr) flags->startup_in = NameOf(*startup, "startup");
  return absl::OkStatus();
}

// As the command does, a copy is made of whatever can be read, and findings are warnings.
// `as_read`: the programs before the rewrite, where the memory of a rank is asked for.
absl::StatusOr<std::vector<TranspileResult>> Run(TranspileFlags* flags, const weft_options* options,
                                                 std::deque<TranspiledTrainer>* trainers,
                                                 absl::optional<TranspiledTrainer>* as_read) {
  if (flags->options.mode != kAuto) WEFT_RETURN_IF_ERROR(flags->plan.status());
  if (IsCopy(*flags)) flags->options.verification = Verification::kNever;
  WEFT_RETURN_IF_ERROR(PrepareTranspile(trainers->front().pair(), flags));
  if (flags->rank_memory.has_value()) *as_read = trainers->front();
  TranspileOptions of_plan = flags->options;
  of_plan.explain = true;
  if (options != nullptr && options->progress) {
    of_plan.observer = [options, dump = of_plan.observer](
                           absl::string_view pass, const ProgramPair& programs) -> absl::Status {
      options->progress(std::string(pass).c_str());
      return dump ? dump(pass, programs) : absl::OkStatus();
    };
  }
  if (flags->all_ranks) trainers->resize(of_plan.cluster.endpoints.size(), trainers->front());
  std::vector<ProgramPair> pairs;
  for (TranspiledTrainer& trainer : *trainers) pairs.push_back(trainer.pair());
  return TranspileTrainers(*flags, of_plan, absl::MakeSpan(pairs));
}

}  // namespace
}  // namespace weft::c

weft_status* weft_transpile(const weft_options* options, const weft_program* main,
                            const weft_program* startup, weft_transpiled** result) {
  return weft::c::Guard([&]() -> absl::Status {
    weft::TranspileFlags flags;
    WEFT_RETURN_IF_ERROR(weft::c::ParseTranspile(options, *main, startup, &flags));
    auto made = std::make_unique<weft_transpiled>();
    made->trainers.push_back({main->program, absl::nullopt, ""});
    WEFT_ASSIGN_OR_RETURN(const auto original_startup, weft::c::StartupIfGiven(startup, "startup"));
    made->trainers.front().startup = original_startup;
    absl::optional<TranspiledTrainer> as_read;
    WEFT_ASSIGN_OR_RETURN(std::vector<weft::TranspileResult> results,
                          weft::c::Run(&flags, options, &made->trainers, &as_read));
    std::vector<const weft::Program*> mains;
    for (size_t i = 0; i < results.size(); ++i) {
      mains.push_back(&made->trainers[i].main);
      made->trainers[i].remarks = weft::c::WithOptions(weft::ExplainJson(results[i]));
    }
    std::vector<weft::Said> said = weft::SaidOf(flags, results, mains);
    if (as_read.has_value()) {
      absl::optional<weft::Said> memory =
          weft::SaidOfMemory(flags, as_read->pair(), *mains[0], results.front().setting);
      if (memory.has_value()) said.push_back(*std::move(memory));
    }
    if (weft::IsCopy(flags) && flags.verify) {
      const weft::ProgramPair copy = made->trainers.front().pair();
      for (weft::Said& one :
           weft::SaidOfCopy(flags, {copy.main, copy.startup}, results.front().setting)) {
        said.push_back(std::move(one));
      }
    }
    for (size_t i = 0; i < results.size(); ++i) {
      const std::string dir = weft::PathFor(flags.certificate, static_cast<int>(i));
      if (dir.empty()) continue;
      const weft::ProgramPair pair = made->trainers[i].pair();
      WEFT_ASSIGN_OR_RETURN(
          const std::string schedule,
          weft::WriteCertificate(
              {&main->program, pair.main,
               original_startup.has_value() ? &*original_startup : nullptr, pair.startup},
              flags.in, weft::ClaimOf(flags, results[i]), dir));
      said.push_back({weft::Severity::kNote, absl::StrCat(dir, ": ", schedule)});
    }
    made->messages.Set(std::move(said));
    made->server = std::move(results.front().server);
    *result = made.release();
    return absl::OkStatus();
  });
}

size_t weft_transpiled_count(const weft_transpiled* result) { return result->trainers.size(); }

weft_program* weft_transpiled_main(const weft_transpiled* result, size_t trainer) {
  return weft::c::NewProgram(result->trainers[trainer].main, "main");
}

weft_program* weft_transpiled_startup(const weft_transpiled* result, size_t trainer) {
  const absl::optional<weft::Program>& startup = result->trainers[trainer].startup;
  return startup.has_value() ? weft::c::NewProgram(*startup, "startup") : nullptr;
}

weft_program* weft_transpiled_server(const weft_transpiled* result) {
  return result->server.has_value() ? weft::c::NewProgram(*result->server, "server") : nullptr;
}

size_t weft_transpiled_num_messages(const weft_transpiled* result) {
  return result->messages.all().size();
}

weft_message weft_transpiled_message(const weft_transpiled* result, size_t index) {
  return result->messages.all()[index];
}

const char* weft_transpiled_remarks(const weft_transpiled* result, size_t trainer) {
  return result->trainers[trainer].remarks.c_str();
}

void weft_transpiled_free(weft_transpiled* result) { delete result; }
