// Certificates (docs/certificate.md) under attack: none is accepted for a program that the verifier
// calls wrong, or that behaves otherwise than the one without the mistake.
//
// Every mutant of tests/mutation/mutations.h that all ranks run is tried with the certificate of
// the program, with one that is made anew for it, and with random edits of both. What the checker
// accepts is given to the verifier and to the second opinion (tests/replay/stream_replay.h).
//
// A part of all by default; --all takes all of the models below, --every=N one of N of these;
// --mode=M the configurations of one mode.
#include <atomic>
#include <cstdio>
#include <functional>
#include <map>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/testing/test.h"
#include "checker/check.h"
#include "checker/format.h"
#include "tests/mutation/mutation_cases.h"
#include "tests/mutation/mutations.h"
#include "tests/replay/stream_replay.h"
#include "tests/support/models.h"
#include "tests/support/program_descs.h"
#include "tools/files/certificate.h"

namespace weft::testing {
namespace {

int every = 0;     // --all: 1; --every=N: N; 0: a part of all
std::string mode;  // --mode=M; empty: all

struct Count {
  int programs = 0, attempts = 0, accepted = 0;
  std::vector<std::string> wrong, no_certificate;

  void Add(const Count& other) {
    programs += other.programs;
    attempts += other.attempts;
    accepted += other.accepted;
    wrong.insert(wrong.end(), other.wrong.begin(), other.wrong.end());
    no_certificate.insert(no_certificate.end(), other.no_certificate.begin(),
                          other.no_certificate.end());
  }
};

// The four files of a rank.
struct RankFiles {
  std::string original, result, original_startup, startup;

  bool Accepts(const Certificate& certificate) const {
    try {
      checker::Check(
          {certificate.claim, certificate.proof, original, result, original_startup, startup});
      return true;
    } catch (const checker::Failure&) {
      return false;
    }
  }
};

using Ranks = std::vector<RankFiles>;

Ranks FilesOf(const RankFiles& original, const std::vector<ProgramDescs>& programs) {
  Ranks ranks;
  for (const ProgramDescs& rank : programs) {
    ranks.push_back({original.original, rank.main.SerializeAsString(), original.original_startup,
                     rank.startup.SerializeAsString()});
  }
  return ranks;
}

// What the claims of all ranks must share.
std::string SharedLines(const std::string& claim, size_t rank) {
  std::string shared;
  for (absl::string_view line : absl::StrSplit(claim, '\n')) {
    if (absl::StartsWith(line, "result startup: ")) continue;
    absl::StrAppend(&shared,
                    absl::StrReplaceAll(line, {{absl::StrCat("rank: ", rank, ","), "rank: R,"}}),
                    "\n");
  }
  return shared;
}

bool AllAccept(const Ranks& ranks, const std::vector<Certificate>& certificates) {
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    if (!ranks[rank].Accepts(certificates[rank]) ||
        SharedLines(certificates[rank].claim, rank) != SharedLines(certificates[0].claim, 0)) {
      return false;
    }
  }
  return true;
}

// None where a rank has none.
std::vector<Certificate> CertificatesOf(const Ranks& ranks, const CertificateClaim& claim,
                                        std::string* why) {
  std::vector<Certificate> certificates;
  for (const RankFiles& rank : ranks) {
    const absl::StatusOr<Certificate> certificate =
        MakeCertificate({rank.original, rank.result, rank.original_startup, rank.startup}, claim);
    *why = std::string(certificate.status().message());
    if (!certificate.ok()) return {};
    certificates.push_back(*certificate);
  }
  return certificates;
}

// Changes a byte or a line of the proof, or a line of the claim.
Certificate Edited(Certificate certificate, std::mt19937* random) {
  const auto below = [&](size_t n) { return (*random)() % n; };
  std::string& text = below(4) == 0 ? certificate.claim : certificate.proof;
  std::vector<std::string> lines = absl::StrSplit(text, '\n');
  switch (below(5)) {
    case 0:
      text[below(text.size())] = static_cast<char>(below(256));
      return certificate;
    case 1:
      lines.erase(lines.begin() + below(lines.size()));
      break;
    case 2:
      lines.insert(lines.begin() + below(lines.size()), lines[below(lines.size())]);
      break;
    case 3:
      std::swap(lines[below(lines.size())], lines[below(lines.size())]);
      break;
    default: {
      std::string& line = lines[below(lines.size())];
      line = absl::StrCat(std::string(1, "=+-"[below(3)]), 1 + below(12));
    }
  }
  text = absl::StrJoin(lines, "\n");
  return certificate;
}

// What is kept from step to step, in whole or in parts.
std::vector<std::string> StateOf(const pb::ProgramDesc& program) {
  std::vector<std::string> names;
  for (const pb::VarDesc& var : program.blocks(0).vars()) {
    if (var.persistable() && var.type().has_lod_tensor()) names.push_back(var.name());
  }
  return names;
}

// A state that the original has not may have any name.
bool RenamesNewState(const Mutation& mutation, const Program& original) {
  const auto is_it = [&](VarId var) {
    return absl::EndsWith(mutation.what, absl::StrCat(" ", original.var(var).name()));
  };
  return mutation.kind == "name: state" && absl::c_none_of(original.block(0).vars(), is_it);
}

void Attack(const std::string& name, const Model& model, const Configuration& configuration,
            int stride, Count* count) {
  const std::string what = absl::StrCat(name, " ", NameOf(configuration));
  const auto rewritten = Rewrite(model, configuration);
  if (!rewritten.ok()) return;
  const std::vector<ProgramDescs> programs(
      rewritten->ranks.begin(),
      configuration.has_endpoints ? rewritten->ranks.end() : rewritten->ranks.begin() + 1);
  const bool any = programs[0].main.weft_setting().find("nranks") == std::string::npos &&
                   configuration.dialect == Dialect::kWeft;
  CertificateClaim claim;
  if (!any) claim.nranks = configuration.nranks;
  const RankFiles original = {model.main.ToProto().SerializeAsString(), "",
                              model.startup.ToProto().SerializeAsString(), ""};
  std::string why;
  const std::vector<Certificate> right = CertificatesOf(FilesOf(original, programs), claim, &why);
  if (right.empty()) {
    count->no_certificate.push_back(absl::StrCat(what, ": ", why));
    return;
  }
  ASSERT_TRUE(AllAccept(FilesOf(original, programs), right)) << what;
  // A mutant must not turn into a right program for sums.
  claim.reduction = absl::StrContains(right[0].claim, "gradients: sum\n")
                        ? Setting::Reduction::kSum
                        : Setting::Reduction::kMean;
  ++count->programs;
  std::vector<const ProgramDescs*> of_ranks;
  for (int rank = 0; rank < configuration.nranks; ++rank) {
    of_ranks.push_back(&programs[programs.size() == 1 ? 0 : rank]);
  }
  StreamReplay replay(of_ranks, StateOf(programs[0].main), ReplayOptions{configuration.nranks, 6});
  std::mt19937 random(1);  // the same edits in every run

  // Says whether what was accepted is right.
  const auto judge = [&](const std::vector<ProgramDescs>& mutants) -> std::string {
    std::vector<const ProgramDescs*> ranks;
    for (int rank = 0; rank < configuration.nranks; ++rank) {
      ranks.push_back(&mutants[mutants.size() == 1 ? 0 : rank]);
    }
    const std::string difference = replay.Difference(ranks);
    if (!difference.empty()) return difference;
    const auto one_or_all = absl::MakeSpan(ranks).first(mutants.size());
    const Reports reports = ReportsOn(one_or_all, configuration.nranks, &model, rewritten->claims);
    return reports.errors.empty() ? "" : reports.errors[0];
  };

  const std::vector<Mutation> mutations = AllMutations(programs[0], configuration.nranks);
  for (size_t i = 0; i < mutations.size(); i += stride) {
    const Mutation& mutation = mutations[i];
    if (mutation.one_rank || RenamesNewState(mutation, model.main)) continue;
    std::vector<ProgramDescs> mutants = programs;
    for (ProgramDescs& mutant : mutants) mutation.apply(&mutant);
    const Ranks files = FilesOf(original, mutants);
    std::vector<std::vector<Certificate>> attempts = {right};
    std::string why_not;
    std::vector<Certificate> patched = CertificatesOf(files, claim, &why_not);
    if (!patched.empty()) attempts.push_back(patched);
    // The hashes of the mutant, and the steps of the program.
    attempts.push_back(right);
    for (size_t rank = 0; rank < files.size(); ++rank) {
      const auto hash = [](const std::string& file) { return checker::Sha256(file); };
      std::vector<std::string> lines = absl::StrSplit(attempts.back()[rank].claim, '\n');
      lines[2] = absl::StrCat("result: ", hash(files[rank].result));
      lines[4] = absl::StrCat("result startup: ", hash(files[rank].startup));
      attempts.back()[rank].claim = absl::StrJoin(lines, "\n");
    }
    for (int edit = 0; edit < (every > 0 ? 8 : 3); ++edit) {
      attempts.push_back(patched.empty() ? attempts[1] : patched);
      for (Certificate& certificate : attempts.back()) certificate = Edited(certificate, &random);
    }
    bool is_accepted = false;
    for (const std::vector<Certificate>& attempt : attempts) {
      ++count->attempts;
      if (!AllAccept(files, attempt)) continue;
      ++count->accepted;
      is_accepted = true;
    }
    if (!is_accepted) continue;
    SCOPED_TRACE(absl::StrCat(what, ": ", mutation.kind, ": ", mutation.what));
    const std::string mistake = judge(mutants);
    if (mistake.empty()) continue;
    count->wrong.push_back(
        absl::StrCat(what, ": ", mutation.kind, ": ", mutation.what, "; ", mistake));
  }
}

const std::vector<Configuration>& Configurations() {
  static const auto* const all = new std::vector<Configuration>{
      {"grad_allreduce"},
      {"grad_allreduce", {{"nrings", "2"}}, true},
      {"grad_allreduce", {{"nrings", "3"}, {"buckets", "count{count=2}"}}, true, Dialect::kWeft, 3},
      {"multi_thread", {{"buckets", "count{count=2}"}, {"nrings", "2"}}},
      {"multi_thread", {{"trans_mode", "all_gather"}}},
      {"multi_thread", {{"trans_mode", "all_gather"}}, true, Dialect::kWeft, 3},
      {"grad_allreduce", {}, true, Dialect::kPaddle},
      {"mindspore_reducer", {{"reduce_method", "mean"}, {"nrings", "2"}}},
      {"mindspore_reducer", {}},
      {"singa_plain", {{"nrings", "2"}}},
      {"singa_half", {{"nrings", "2"}}, true},
      {"megengine", {{"reduce_method", "mean"}, {"bcast_period", "1"}}},
      {"local_sgd", {}, true},
      {"local_sgd", {{"k_steps", "2"}, {"begin_step", "4"}, {"state", "average"}}, true},
      {"local_sgd", {{"k_steps", "2"}, {"outer", "nesterov"}}},
      {"local_sgd", {{"k_steps", "3"}, {"outer", "slowmo"}, {"mix", "0.25"}, {"nrings", "2"}}},
      {"local_sgd",
       {{"k_steps", "4"},
        {"outer", "sgd"},
        {"fragments", "2"},
        {"delay", "1"},
        {"comm_dtype", "bf16"}}},
      {"singa_partial", {{"threshold", "300"}}},
      {"zero"},
      {"zero", {{"stage", "2"}, {"buckets", "count{count=2}"}, {"nrings", "2"}}},
      {"zero", {{"stage", "3"}, {"buckets", "count{count=2}"}}, true, Dialect::kWeft, 3},
      {"zero", {{"stage", "3"}, {"prefetch", "0"}, {"scale", "avg"}}},
  };
  return *all;
}

TEST(CertificateAttack, NothingWrongIsCertified) {
  std::map<std::string, Model> models = ReadModels();
  models.emplace("equal_layers_lamb", EqualLayersByLamb());
  std::vector<std::function<void(Count*)>> parts;
  for (const auto& [name, model] : models) {
    static const auto* const kSmall =
        new std::set<std::string>{"fit_a_line",   "mlp_sgd",          "mlp_adam",
                                  "two_losses",   "mlp_amp",          "mlp_shared_weights",
                                  "mlp_dropout",  "lenet_momentum",   "mlp_clip_global_norm",
                                  "mlp_lr_decay", "equal_layers_lamb"};
    const bool is_small = kSmall->count(name) > 0;
    if (!is_small && (every == 0 || model.main.num_ops() > 500)) continue;
    const int ops = static_cast<int>(model.main.num_ops());
    const int stride = every > 0 ? every * (is_small ? 1 : std::max(1, ops / 20))
                                 : (name == "fit_a_line" ? 3 : 41);
    for (const Configuration& configuration : Configurations()) {
      if (!mode.empty() && configuration.mode != mode) continue;
      parts.push_back([&name = name, &model = model, &configuration, stride](Count* count) {
        Attack(name, model, configuration, stride, count);
      });
    }
  }
  std::vector<Count> counts(parts.size());
  std::atomic<size_t> next = 0;
  const auto work = [&] {
    for (size_t i = next++; i < parts.size(); i = next++) parts[i](&counts[i]);
  };
  std::vector<std::thread> threads(std::max(1U, std::thread::hardware_concurrency()));
  for (std::thread& thread : threads) thread = std::thread(work);
  for (std::thread& thread : threads) thread.join();
  Count sum;
  for (const Count& count : counts) sum.Add(count);
  for (const std::string& why : sum.no_certificate)
    std::printf("no certificate: %s\n", why.c_str());
  std::printf("%d programs, %d attempts, %d accepted, %d of these wrong\n", sum.programs,
              sum.attempts, sum.accepted, static_cast<int>(sum.wrong.size()));
  EXPECT_GT(sum.programs, mode.empty() ? 100 : 0);
  EXPECT_GT(sum.attempts, mode.empty() ? 5000 : 0);
  for (const std::string& wrong : sum.wrong) ADD_FAILURE() << "certified: " << wrong;
}

}  // namespace
}  // namespace weft::testing

int main(int argc, char** argv) {
  ::testing::InitGoogleMock(&argc, argv);
  for (int i = 1; i < argc; ++i) {
    absl::string_view flag = argv[i];
    if (flag == "--all") weft::testing::every = 1;
    if (absl::ConsumePrefix(&flag, "--mode=")) weft::testing::mode = std::string(flag);
    if (absl::ConsumePrefix(&flag, "--every=") && !absl::SimpleAtoi(flag, &weft::testing::every)) {
      return 2;
    }
  }
  return RUN_ALL_TESTS();
}
