// How many small mistakes in rewritten programs the verifier finds.
//
// Every program that Weft writes is changed in one place, in every way of
// tests/mutation/mutations.h. A second opinion (tests/replay/stream_replay.h) says whether the
// mutant behaves otherwise than the program: the verifier has to report an error then. Losses are
// changed in the original (tests/mutation/loss_mutations.h), and runs on numbers say whether ranks
// and one device still compute the same: else the verifier has to name the cause. So do numbers for
// mistakes in blocks and rows (tests/mutation/block_mutations.h). docs/mutation.md has the result.
//
// A part of all mutants by default, spread evenly; with --all every one of the small programs,
// which takes ten minutes or more with optimization.
#include <algorithm>
#include <atomic>
#include <cstdio>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/types/span.h"
#include "base/testing/test.h"
#include "ops/kernel.h"
#include "proto/setting.h"
#include "tests/mutation/block_mutations.h"
#include "tests/mutation/loss_mutations.h"
#include "tests/mutation/mutation_cases.h"
#include "tests/mutation/mutations.h"
#include "tests/replay/stream_replay.h"
#include "tests/support/models.h"
#include "tests/support/program_descs.h"
#include "tools/numeric/numeric_check.h"
#include "tools/numeric/report.h"

namespace weft::testing {
namespace {

bool all_mutants = false;  // --all

// --- Counting ------------------------------------------------------------------------------------

struct Count {
  int mutants = 0;
  int different = 0;  // from the program, by the second opinion
  int caught = 0;     // of these
  int equal_reported = 0;
};

// "kind: detail" by kind.
struct Score {
  std::map<std::string, Count> by_kind;
  std::map<std::string, int> equal_reported;  // by rule
  std::vector<std::string> survivors;
  std::vector<std::string> alarms;
  std::vector<std::string> not_used;

  void Add(const Score& other) {
    for (const auto& [kind, count] : other.by_kind) Add(count, &by_kind[kind]);
    for (const auto& [rule, count] : other.equal_reported) equal_reported[rule] += count;
    for (auto list : {&Score::survivors, &Score::alarms, &Score::not_used}) {
      (this->*list).insert((this->*list).end(), (other.*list).begin(), (other.*list).end());
    }
  }

  Count Sum() const {
    Count sum;
    for (const auto& [kind, count] : by_kind) Add(count, &sum);
    return sum;
  }

  static void Add(const Count& count, Count* sum) {
    sum->mutants += count.mutants;
    sum->different += count.different;
    sum->caught += count.caught;
    sum->equal_reported += count.equal_reported;
  }

  std::string Table() const {
    std::string table = absl::StrFormat("%-44s %7s %9s %6s %9s %14s\n", "mistake", "mutants",
                                        "different", "caught", "survivors", "equal reported");
    for (const auto& [kind, count] : by_kind) AddRow(kind, count, &table);
    AddRow("all", Sum(), &table);
    return table;
  }

  void Print() const {
    std::printf("%s", Table().c_str());
    for (const std::string& why : not_used) std::printf("not used: %s\n", why.c_str());
    for (const auto& [rule, count] : equal_reported) {
      std::printf("reported by %s, but equal: %d\n", rule.c_str(), count);
    }
    for (const std::string& alarm : alarms) std::printf("equal, but reported: %s\n", alarm.c_str());
    for (const std::string& survivor : survivors) std::printf("survivor: %s\n", survivor.c_str());
  }

 private:
  static void AddRow(const std::string& kind, const Count& count, std::string* table) {
    absl::StrAppendFormat(table, "%-44s %7d %9d %6d %9d %14d\n", kind, count.mutants,
                          count.different, count.caught, count.different - count.caught,
                          count.equal_reported);
  }
};

// --- One program ---------------------------------------------------------------------------------

// What a program keeps from step to step.
std::vector<std::string> StateOf(const Program& program) {
  std::vector<std::string> names;
  for (VarId id : program.block(0).vars()) {
    const Var var = program.var(id);
    if (var.persistable() && var.Tensor().has_value()) names.emplace_back(var.name());
  }
  return names;
}

// mlp_gradient_merge updates every fourth step; what it does then shows in the next one.
constexpr int kSteps = 6;

// What each rank runs.
struct Ranks {
  std::vector<const ProgramDescs*> programs;
  std::vector<std::unique_ptr<ProgramDescs>> mutants;  // of these
};

// All ranks, or only the last one, make the mistake.
Ranks Mutated(const std::vector<const ProgramDescs*>& programs, const Mutation& mutation) {
  Ranks ranks;
  for (size_t rank = 0; rank < programs.size(); ++rank) {
    if (mutation.one_rank && rank + 1 < programs.size()) {
      ranks.programs.push_back(programs[rank]);
    } else if (rank > 0 && !mutation.one_rank && programs[rank] == programs[0]) {
      ranks.programs.push_back(ranks.programs[0]);
    } else {
      ranks.mutants.push_back(std::make_unique<ProgramDescs>(*programs[rank]));
      mutation.apply(ranks.mutants.back().get());
      ranks.programs.push_back(ranks.mutants.back().get());
    }
  }
  return ranks;
}

// Makes every `stride`th mutant of a program, and counts. Returns why it was not used, because it
// has a known mistake already or cannot be replayed; empty: it was.
std::string AddMutants(const std::string& name, const Model& original, const Rewritten& rewritten,
                       bool has_endpoints, int stride, Score* score) {
  const int nranks = static_cast<int>(rewritten.ranks.size());
  std::vector<const ProgramDescs*> programs;
  for (const ProgramDescs& rank : rewritten.ranks) {
    programs.push_back(has_endpoints ? &rank : &rewritten.ranks[0]);
  }
  const Reports before = ReportsOn({programs[0]}, nranks, &original, rewritten.claims);
  if (!before.errors.empty()) return before.errors[0];
  std::vector<std::string> watched = StateOf(original.main);
  const auto main = Program::FromProto(programs[0]->main);
  EXPECT_TRUE(main.ok()) << main.status();
  const auto setting = SettingOf(*main);
  EXPECT_TRUE(setting.ok()) << setting.status();
  for (const auto& [share, tensors] : setting->shares) {
    for (const SharedTensor& tensor : tensors) {
      watched.erase(std::remove(watched.begin(), watched.end(), tensor.name), watched.end());
    }
    watched.push_back(share);
  }
  StreamReplay replay(programs, watched, ReplayOptions{nranks, kSteps});
  if (!replay.reference().unsupported.empty()) return replay.reference().unsupported;
  if (!replay.reference().failure.empty()) return replay.reference().failure;

  const std::vector<Mutation> mutations = AllMutations(*programs[0], nranks);
  for (size_t i = 0; i < mutations.size(); i += stride) {
    const Mutation& mutation = mutations[i];
    const Ranks mutants = Mutated(programs, mutation);
    const std::string difference = replay.Difference(mutants.programs);
    // Programs that differ between ranks are given one by one.
    const bool all_run_one = !mutation.one_rank && !(has_endpoints && mutation.of_startup);
    const auto ranks = absl::MakeSpan(mutants.programs).first(all_run_one ? 1 : nranks);
    const Reports found = ReportsOn(ranks, nranks, &original, rewritten.claims);

    Count& count = score->by_kind[mutation.kind];
    ++count.mutants;
    const std::string what = absl::StrCat(name, ": ", mutation.kind, ": ", mutation.what, "; ");
    if (difference.empty()) {
      if (found.errors.empty()) continue;
      ++count.equal_reported;
      ++score->equal_reported[found.errors[0].substr(7, 4)];
      score->alarms.push_back(what + found.errors[0]);
      continue;
    }
    ++count.different;
    if (!found.errors.empty()) {
      ++count.caught;
    } else {
      score->survivors.push_back(what + difference);
    }
  }
  return "";
}

// Counts a mutant that is judged by numbers: how it differs (empty: it does not), and what the
// verifier says.
void AddMutant(const std::string& kind, const std::string& what,
               const std::vector<std::string>& reports, const std::string& difference,
               Score* score) {
  Count& count = score->by_kind[kind];
  ++count.mutants;
  if (!difference.empty()) {
    ++count.different;
    if (!reports.empty()) {
      ++count.caught;
    } else {
      score->survivors.push_back(what + difference);
    }
  } else if (!reports.empty()) {
    ++count.equal_reported;
    score->alarms.push_back(what + reports[0]);
  }
}

// Rewrites models with other losses, and counts.
void AddLosses(const std::string& name, const Model& model, const Configuration& configuration,
               Score* score) {
  for (const LossMutant& mutant : LossMutants(model)) {
    const std::string what =
        absl::StrCat(name, " ", NameOf(configuration), ": ", mutant.kind, "; ");
    SCOPED_TRACE(what);
    const auto rewritten = Rewrite(mutant.model, configuration, Verification::kNever);
    ASSERT_TRUE(rewritten.ok()) << rewritten.status();
    const ProgramDescs& programs = rewritten->ranks[0];
    const Reports found =
        ReportsOn({&programs}, configuration.nranks, &mutant.model, rewritten->claims);
    const auto main = Program::FromProto(programs.main);
    const auto startup = Program::FromProto(programs.startup);
    NumericOptions options;
    options.kernels = &CpuKernels();
    options.nranks = configuration.nranks;
    // Longer, losses that grow without bounds are no numbers any more.
    options.steps = name == "mlp_gradient_merge" ? kSteps : 2;
    const auto report =
        CheckNumerically({&mutant.model.main, &mutant.model.startup}, {&*main, &*startup}, options);
    ASSERT_TRUE(report.ok()) << report.status();

    std::vector<std::string> reports = found.errors;
    for (const std::string& remark : found.remarks) {
      if (absl::StartsWith(remark, "W70")) reports.push_back(absl::StrCat("warning: ", remark));
    }
    AddMutant(mutant.kind, what, reports, report->IsEqual() ? "" : NumericReportText(*report),
              score);
  }
}

// Makes all mutants of BlockMutations of a model, for one device, and counts.
void AddBlocks(const std::string& name, const Model& model, Score* score) {
  const ProgramDescs programs{model.main.ToProto(), model.startup.ToProto()};
  const std::vector<const ProgramDescs*> of_ranks = {&programs};
  ASSERT_THAT(ReportsOn(of_ranks, 1, &model, Claims()).errors, IsEmpty()) << name;
  for (const Mutation& mutation : BlockMutations(programs)) {
    const std::string what = absl::StrCat(name, ": ", mutation.kind, ": ", mutation.what, "; ");
    const Ranks mutants = Mutated(of_ranks, mutation);
    const ProgramDescs& mutant = *mutants.programs[0];
    const auto main = Program::FromProto(mutant.main);
    const auto startup = Program::FromProto(mutant.startup);
    ASSERT_TRUE(main.ok() && startup.ok()) << what << main.status() << startup.status();
    NumericOptions options;
    options.kernels = &CpuKernels();
    options.nranks = 1;
    options.steps = kSteps;
    const auto report =
        CheckNumerically({&model.main, &model.startup}, {&*main, &*startup}, options);
    const std::string difference = !report.ok()        ? report.status().ToString()
                                   : report->IsEqual() ? ""
                                                       : NumericReportText(*report);
    AddMutant(mutation.kind, what, ReportsOn({&mutant}, 1, &model, Claims()).errors, difference,
              score);
  }
}

// Embeddings whose rows are updated by adam alone.
Model WithLazyMode(const Model& model) {
  pb::ProgramDesc main = model.main.ToProto();
  for (pb::OpDesc& op : *main.mutable_blocks(0)->mutable_ops()) {
    for (pb::OpDesc::Attr& attr : *op.mutable_attrs()) {
      if (attr.name() == "lazy_mode") attr.set_b(true);
    }
  }
  return {*Program::FromProto(main), model.startup};
}

// --- All programs --------------------------------------------------------------------------------

const std::vector<Configuration>& Configurations() {
  static const auto* const all = new std::vector<Configuration>{
      {"grad_allreduce"},
      {"grad_allreduce", {{"nrings", "2"}}, true},
      {"grad_allreduce", {{"nrings", "3"}, {"buckets", "count{count=2}"}}, true, Dialect::kWeft, 3},
      {"local_sgd", {}, true},
      {"local_sgd", {{"k_steps", "2"}}},
      {"local_sgd", {{"k_steps", "2"}, {"first_average", "2"}, {"state", "average"}}, true},
      {"singa_partial", {{"threshold", "0"}}},
      {"single_process_multi_thread"},
      {"single_process_multi_thread", {{"fuse", "0"}, {"nrings", "2"}}},
      {"multi_thread", {{"buckets", "count{count=2}"}, {"nrings", "2"}}},
      {"multi_thread", {{"trans_mode", "all_gather"}}},
      {"multi_thread", {{"trans_mode", "all_gather"}}, true, Dialect::kWeft, 3},
      {"grad_allreduce", {}, true, Dialect::kPaddle},
      {"local_sgd", {}, true, Dialect::kPaddle},
      {"multi_thread", {{"trans_mode", "all_reduce"}}, true, Dialect::kPaddle},
      {"mindspore_reducer", {{"reduce_method", "mean"}, {"nrings", "2"}}},
      {"singa_half", {{"nrings", "2"}}, true},
      {"megengine", {{"reduce_method", "mean"}, {"bcast_period", "2"}}},
      {"zero"},
      {"zero", {{"stage", "3"}, {"buckets", "count{count=2}"}}, true, Dialect::kWeft, 3},
      {"local_sgd", {{"k_steps", "2"}, {"outer", "nesterov"}}, true},
      {"local_sgd", {{"group_size", "2"}, {"rounds", "2"}}, false, Dialect::kWeft, 4},
      {"local_sgd",
       {{"group_size", "2"}, {"rounds", "2"}, {"outer", "nesterov"}},
       false,
       Dialect::kWeft,
       4},
      {"power_sgd", {{"rank_approximation", "1"}, {"start_step", "3"}}},
      {"power_sgd", {{"rank_approximation", "1"}, {"start_step", "2"}}, true, Dialect::kWeft, 3},
  };
  return *all;
}

// Of the small programs every mutant, or one of some; of the others a few.
bool IsSmall(const std::string& name) {
  static const auto* const small = new std::set<std::string>{
      "fit_a_line",         "mlp_sgd", "mlp_adam", "two_losses", "mlp_gradient_merge",
      "word2vec_sparse_sgd"};
  return small->count(name) > 0;
}

// 0: the program is left out.
int StrideOf(const std::string& name, const Program& main) {
  if (IsSmall(name)) return all_mutants ? 1 : name == "fit_a_line" ? 9 : 97;
  const int ops = static_cast<int>(main.num_ops());
  // bert_tiny and resnet18_cifar have the ops of their large sisters.
  if (!all_mutants && ops > 500) return 0;
  // The time for a mutant, and the number of them, grow with the program.
  return (all_mutants ? 1 : 4) * std::max(40, ops * ops / 75);
}

// Whether the model's mutants are made in a configuration, both by number. To rewrite and replay a
// model for a few mutants takes longer than these.
bool IsUsed(const std::string& name, size_t model, size_t configuration) {
  return all_mutants || IsSmall(name) || (model + configuration) % 3 == 0;
}

// Where all gradients of a model that runs on numbers are averages, or sums of losses that are.
const std::vector<Configuration>& ConfigurationsOfLosses() {
  static const auto* const all = new std::vector<Configuration>{
      {"grad_allreduce"},
      {"grad_allreduce", {{"scale", "loss_grad"}}},
      {"multi_thread", {{"buckets", "count{count=2}"}}},
      {"multi_thread", {{"trans_mode", "all_gather"}}},
  };
  return *all;
}

// Makes the mutants of a model in one configuration, and counts.
void AddMutantsOf(const std::string& name, const Model& model, int stride,
                  const Configuration& configuration, Score* score) {
  const std::string what = absl::StrCat(name, " ", NameOf(configuration));
  const auto rewritten = Rewrite(model, configuration);
  // Refused combinations, and Paddle's known defects: docs/modes.md, docs/paddle_dialect.md.
  std::string why(rewritten.status().message());
  if (rewritten.ok()) {
    why = AddMutants(what, model, *rewritten, configuration.has_endpoints, stride, score);
  }
  if (!why.empty()) score->not_used.push_back(absl::StrCat(what, ": ", why));
}

// In the order of models and configurations, whatever thread counts them.
Score ScoreOfAll() {
  const std::map<std::string, Model> models = ReadModels();
  std::vector<std::function<void(Score*)>> parts;
  size_t number = 0;
  for (const auto& entry : models) {
    const std::string& name = entry.first;
    ++number;
    const Model& model = entry.second;
    const int stride = StrideOf(name, model.main);
    if (stride == 0) continue;
    if (name == "fit_a_line" || (all_mutants && IsSmall(name))) {
      for (const Configuration& configuration : ConfigurationsOfLosses()) {
        parts.push_back([&](Score* score) { AddLosses(name, model, configuration, score); });
      }
    }
    for (size_t i = 0; i < Configurations().size(); ++i) {
      const Configuration& configuration = Configurations()[i];
      if (!IsUsed(name, number, i)) continue;
      parts.push_back(
          [&, stride](Score* score) { AddMutantsOf(name, model, stride, configuration, score); });
    }
  }
  const Model of_owners = EqualLayersByLamb();
  for (const Configuration& configuration : Configurations()) {
    if (configuration.mode != "zero") continue;
    parts.push_back([&](Score* score) {
      AddMutantsOf("equal_layers_lamb", of_owners, all_mutants ? 1 : 97, configuration, score);
    });
  }
  const std::map<std::string, Model> flows = ReadModels("tests/data/control_flow.tar.xz");
  for (const char* name : {"flow_cond", "flow_cond_in_while", "flow_while_loop"}) {
    parts.push_back([&, name](Score* score) { AddBlocks(name, flows.at(name), score); });
  }
  for (const char* name : {"fit_a_line", "word2vec_sparse_adam", "word2vec_sparse_sgd"}) {
    parts.push_back([&, name](Score* score) { AddBlocks(name, models.at(name), score); });
  }
  const Model lazy = WithLazyMode(models.at("word2vec_sparse_adam"));
  parts.push_back([&](Score* score) { AddBlocks("word2vec_lazy_adam", lazy, score); });
  std::vector<Score> scores(parts.size());
  std::atomic<size_t> next = 0;
  const auto work = [&] {
    for (size_t i = next++; i < parts.size(); i = next++) parts[i](&scores[i]);
  };
  std::vector<std::thread> threads(std::max(1u, std::thread::hardware_concurrency()));
  for (std::thread& thread : threads) thread = std::thread(work);
  for (std::thread& thread : threads) thread.join();
  Score score;
  for (const Score& part : scores) score.Add(part);
  score.Print();
  return score;
}

std::string ReadDoc() {
  std::ifstream in("docs/mutation.md");
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

TEST(MutationScore, MutantsThatBehaveOtherwiseAreReported) {
  const Score score = ScoreOfAll();
  const Count sum = score.Sum();
  EXPECT_GT(sum.different, 1000);
  EXPECT_THAT(score.survivors, IsEmpty());
  // Mistakes that do not show in the values of the steps that are replayed.
  EXPECT_LE(sum.equal_reported, 0.04 * sum.mutants);
  const std::string doc = ReadDoc();
  for (const auto& [kind, count] : score.by_kind) {
    EXPECT_TRUE(absl::StrContains(doc, absl::StrCat("\n", kind, " "))) << kind;
  }
  if (all_mutants) {
    EXPECT_TRUE(absl::StrContains(doc, score.Table())) << "docs/mutation.md has another table";
  }
}

}  // namespace
}  // namespace weft::testing

int main(int argc, char** argv) {
  ::testing::InitGoogleMock(&argc, argv);
  for (int i = 1; i < argc; ++i) {
    if (std::string(argv[i]) == "--all") weft::testing::all_mutants = true;
  }
  return RUN_ALL_TESTS();
}
