// Changes that keep what a program computes keep the verdict.
//
// Every small model is changed before it is rewritten, and its rewrite is changed: other names,
// another order of independent ops, of slots and of declarations, ops whose results nobody reads,
// sums in two parts, constants that are printed, text and back. The verifier has to say what it
// says of the program as it was: no error, and warnings and notes by the same rules.
// docs/mutation.md has the numbers.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/file.h"
#include "base/status_macros.h"
#include "base/testing/archive.h"
#include "base/testing/test.h"
#include "proto/formats/program_file.h"
#include "proto/op_role.h"
#include "proto/setting.h"
#include "proto/text/program_text.h"
#include "tests/mutation/mutation_cases.h"
#include "tests/mutation/mutation_edits.h"
#include "tests/support/models.h"
#include "tests/support/program_descs.h"
#include "tests/support/rewrite.h"
#include "transpiler/transpile.h"
#include "transpiler/verifier/verify.h"

namespace weft::testing {
namespace {

using Random = std::mt19937;

// Of the smallest model, and of each other one.
constexpr uint32_t kManySeeds = 14, kFewSeeds = 1;

// --- Changes of the root block of a main program -------------------------------------------------

bool Communicates(const pb::OpDesc& op) {
  return FindAttr(op, "ring_id") != nullptr || absl::StrContains(op.type(), "comm");
}

// Ops that stay where they are, as do all ops around them: those that communicate, order streams,
// draw, hold blocks or hand values over, and those on buffers, which share memory with other names.
bool StaysInPlace(const pb::OpDesc& op, const std::set<std::string>& buffers) {
  static const auto* const kFixed =
      new std::set<std::string>{"coalesce_tensor", "share_data",     "print",          "feed",
                                "fetch",           "dropout",        "uniform_random", "assert",
                                "gaussian_random", "write_to_array", "read_from_array"};
  const std::set<std::string> names = NamesOf(op);
  return Communicates(op) || SubBlockOf(op) >= 0 || kFixed->count(op.type()) > 0 ||
         absl::StrContains(op.type(), "sync") || absl::StrContains(op.type(), "wait") ||
         std::any_of(names.begin(), names.end(),
                     [&](const std::string& name) { return buffers.count(name) > 0; });
}

std::set<std::string> Buffers(const pb::BlockDesc& block) {
  std::set<std::string> buffers;
  for (const pb::OpDesc& op : block.ops()) {
    if (op.type() != "coalesce_tensor") continue;
    const std::set<std::string> names = NamesOf(op);
    buffers.insert(names.begin(), names.end());
  }
  return buffers;
}

std::set<std::string> Written(const pb::OpDesc& op) {
  std::set<std::string> names;
  for (const pb::OpDesc::Var& slot : op.outputs()) {
    names.insert(slot.arguments().begin(), slot.arguments().end());
  }
  return names;
}

bool Conflict(const pb::OpDesc& a, const pb::OpDesc& b) {
  const auto touches = [](const pb::OpDesc& op, const std::set<std::string>& written) {
    const std::set<std::string> names = NamesOf(op);
    return std::any_of(written.begin(), written.end(),
                       [&](const std::string& name) { return names.count(name) > 0; });
  };
  return touches(a, Written(b)) || touches(b, Written(a));
}

void ReorderOps(Random* random, ProgramDescs* programs) {
  pb::BlockDesc* const block = programs->main.mutable_blocks(0);
  const std::set<std::string> buffers = Buffers(*block);
  const int size = block->ops_size();
  for (int i = 0; i < 20 * size && size > 1; ++i) {
    const int at = static_cast<int>((*random)() % static_cast<uint32_t>(size - 1));
    const pb::OpDesc &a = block->ops(at), &b = block->ops(at + 1);
    if (StaysInPlace(a, buffers) || StaysInPlace(b, buffers) || Conflict(a, b)) continue;
    block->mutable_ops()->SwapElements(at, at + 1);
  }
}

template <typename Repeated>
void Shuffle(Random* random, Repeated* elements) {
  for (int i = elements->size() - 1; i > 0; --i) {
    elements->SwapElements(i, static_cast<int>((*random)() % static_cast<uint32_t>(i + 1)));
  }
}

void ReorderSlots(Random* random, ProgramDescs* programs) {
  for (pb::BlockDesc& block : *programs->main.mutable_blocks()) {
    Shuffle(random, block.mutable_vars());
    for (pb::OpDesc& op : *block.mutable_ops()) {
      Shuffle(random, op.mutable_inputs());
      Shuffle(random, op.mutable_outputs());
      Shuffle(random, op.mutable_attrs());
    }
  }
}

// The outputs of forward ops that are no state: neither data nor gradients.
std::vector<std::string> Intermediates(const ProgramDescs& programs) {
  std::vector<std::string> names;
  const std::set<std::string> buffers = Buffers(programs.main.blocks(0));
  for (const pb::OpDesc& op : programs.main.blocks(0).ops()) {
    if (RoleOf(op) != kRoleForward || StaysInPlace(op, buffers)) continue;
    for (const std::string& name : Written(op)) {
      const pb::VarDesc* const var = FindVar(programs.main, 0, name);
      const pb::VarType::TensorDesc* const tensor = var == nullptr ? nullptr : TensorOf(*var);
      if (tensor == nullptr || tensor->data_type() != pb::VarType::FP32 || var->persistable()) {
        continue;
      }
      if (!absl::StrContains(name, "@")) names.push_back(name);
    }
  }
  return names;
}

// Variables and their gradients.
void RenameVariables(Random* random, ProgramDescs* programs) {
  std::map<std::string, std::string> renamed;
  for (const std::string& name : Intermediates(*programs)) {
    renamed[name] = absl::StrCat("v", (*random)() % 10000, "_", renamed.size());
  }
  const auto rename = [&](std::string* name) {
    const size_t end = std::min(name->size(), name->find('@'));
    const auto found = renamed.find(name->substr(0, end));
    if (found != renamed.end()) *name = absl::StrCat(found->second, name->substr(end));
  };
  for (pb::BlockDesc& block : *programs->main.mutable_blocks()) {
    for (pb::VarDesc& var : *block.mutable_vars()) rename(var.mutable_name());
    for (pb::OpDesc& op : *block.mutable_ops()) {
      for (auto* slots : {op.mutable_inputs(), op.mutable_outputs()}) {
        for (pb::OpDesc::Var& slot : *slots) {
          for (std::string& argument : *slot.mutable_arguments()) rename(&argument);
        }
      }
    }
  }
}

void AddDeadOps(Random* random, ProgramDescs* programs) {
  const std::vector<std::string> names = Intermediates(*programs);
  if (names.empty()) return;
  Ops* const ops = programs->main.mutable_blocks(0)->mutable_ops();
  for (int k = 0; k < 3; ++k) {
    const std::string& read = names[(*random)() % names.size()];
    const std::string dead = absl::StrCat("dead_", k);
    Declare(dead, read, Place(), programs);
    for (int i = ops->size() - 1; i >= 0; --i) {
      if (Written(ops->Get(i)).count(read) == 0) continue;
      pb::OpDesc op;
      op.set_type("scale");
      SetArgs({read}, "X", op.mutable_inputs());
      SetArgs({dead}, "Out", op.mutable_outputs());
      SetFloat(&op, "scale", 3.0f);
      SetInt(&op, "op_role", kRoleForward);
      Insert(ops, i + 1, op);
      break;
    }
  }
}

// Sums of several tensors add the first two of them before the others.
void SplitSums(Random*, ProgramDescs* programs) {
  Ops* const ops = programs->main.mutable_blocks(0)->mutable_ops();
  for (int i = 0; i < ops->size(); ++i) {
    const std::vector<std::string> terms = ArgsOf(ops->Get(i).inputs(), "X");
    if (ops->Get(i).type() != "sum" || terms.size() < 3) continue;
    const std::string part = absl::StrCat("part_", i);
    Declare(part, terms[0], Place(), programs);
    pb::OpDesc first = ops->Get(i);
    SetArgs({terms[0], terms[1]}, "X", first.mutable_inputs());
    SetArgs({part}, "Out", first.mutable_outputs());
    std::vector<std::string> rest(terms.begin() + 2, terms.end());
    rest.insert(rest.begin(), part);
    SetArgs(rest, "X", ops->Mutable(i)->mutable_inputs());
    Insert(ops, i++, first);
  }
}

// What is printed, others read under the name that print gives it.
void PrintConstants(Random* random, ProgramDescs* programs) {
  Ops* const ops = programs->main.mutable_blocks(0)->mutable_ops();
  const std::set<std::string> buffers = Buffers(programs->main.blocks(0));
  std::vector<std::string> constants;
  for (const pb::OpDesc& op : *ops) {
    if (op.type() != "fill_constant" || StaysInPlace(op, buffers)) continue;
    for (const std::string& name : Written(op)) {
      if (!absl::StrContains(name, "@")) constants.push_back(name);
    }
  }
  for (int k = 0; k < 3 && !constants.empty(); ++k) {
    const std::string& constant = constants[(*random)() % constants.size()];
    const std::string printed = absl::StrCat("printed_", k);
    Declare(printed, constant, Place(), programs);
    int i = 0;
    while (Written(ops->Get(i)).count(constant) == 0) ++i;
    pb::OpDesc print;
    print.set_type("print");
    SetArgs({constant}, "In", print.mutable_inputs());
    SetArgs({printed}, "Out", print.mutable_outputs());
    SetInt(&print, "op_role", static_cast<int>(RoleOf(ops->Get(i))));
    Insert(ops, ++i, print);
    for (++i; i < ops->size() && Written(ops->Get(i)).count(constant) == 0; ++i) {
      if (StaysInPlace(ops->Get(i), buffers)) continue;
      for (pb::OpDesc::Var& slot : *ops->Mutable(i)->mutable_inputs()) {
        for (std::string& argument : *slot.mutable_arguments()) {
          if (argument == constant) argument = printed;
        }
      }
    }
  }
}

void ToTextAndBack(Random*, ProgramDescs* programs) {
  const auto program = Program::FromProto(programs->main);
  ASSERT_TRUE(program.ok()) << program.status();
  const auto read = ParseProgramText(ProgramText(*program));
  ASSERT_TRUE(read.ok()) << read.status();
  programs->main = read->ToProto();
}

struct Change {
  const char* name;
  void (*make)(Random*, ProgramDescs*);
};
constexpr Change kChanges[] = {
    {"names", RenameVariables},
    {"order of ops", ReorderOps},
    {"order of slots", ReorderSlots},
    {"dead ops", AddDeadOps},
    {"sums in parts", SplitSums},
    {"text and back", ToTextAndBack},
    {"printed constants", PrintConstants},
};

// --- Verdicts ------------------------------------------------------------------------------------

// The rules of warnings and notes.
std::set<std::string> RulesOf(const Reports& reports) {
  std::set<std::string> rules;
  for (const std::string& remark : reports.remarks) rules.insert(remark.substr(0, 4));
  return rules;
}

Reports Verdict(const std::vector<ProgramDescs>& ranks, int nranks, const Model& model,
                const Claims& claims) {
  std::vector<const ProgramDescs*> pointers;
  for (const ProgramDescs& rank : ranks) pointers.push_back(&rank);
  return ReportsOn(pointers, nranks, &model, claims);
}

struct Count {
  int changed = 0;
  int same = 0;
};

class HarmlessChanges {
 public:
  void Add(const std::string& name, const Model& model, const Configuration& configuration) {
    const uint32_t num_seeds = name == "fit_a_line" ? kManySeeds : kFewSeeds;
    const auto rewritten = Rewrite(model, configuration);
    if (!rewritten.ok()) return;
    const Reports before =
        Verdict(rewritten->ranks, configuration.nranks, model, rewritten->claims);
    const std::string what = absl::StrCat(name, " ", NameOf(configuration), ": ");
    for (const Change& change : kChanges) {
      for (uint32_t seed = 0; seed < num_seeds; ++seed) {
        // All ranks are changed alike.
        std::vector<ProgramDescs> ranks = rewritten->ranks;
        for (ProgramDescs& rank : ranks) {
          Random random(seed);
          change.make(&random, &rank);
        }
        Note(absl::StrCat("rewrite: ", change.name), what, before,
             Verdict(ranks, configuration.nranks, model, rewritten->claims));
        Random random(seed);
        ProgramDescs original{model.main.ToProto(), model.startup.ToProto()};
        change.make(&random, &original);
        AddOriginal(absl::StrCat("original: ", change.name), what, before, original, configuration);
      }
    }
  }

  std::string Table() const {
    std::string table = absl::StrFormat("%-28s %7s %7s\n", "change", "changed", "same");
    for (const auto& [kind, count] : counts_) {
      absl::StrAppendFormat(&table, "%-28s %7d %7d\n", kind, count.changed, count.same);
    }
    return table;
  }
  int num_changed() const {
    int sum = 0;
    for (const auto& [kind, count] : counts_) sum += count.changed;
    return sum;
  }
  const std::vector<std::string>& others() const { return others_; }

 private:
  void AddOriginal(const std::string& kind, const std::string& what, const Reports& before,
                   const ProgramDescs& original, const Configuration& configuration) {
    auto main = Program::FromProto(original.main), startup = Program::FromProto(original.startup);
    ASSERT_TRUE(main.ok() && startup.ok()) << kind;
    const Model model{*std::move(main), *std::move(startup)};
    const auto rewritten = Rewrite(model, configuration);
    if (!rewritten.ok()) {
      return Note(kind, what, before, {{std::string(rewritten.status().message())}, {}});
    }
    Note(kind, what, before,
         Verdict(rewritten->ranks, configuration.nranks, model, rewritten->claims));
  }

  void Note(const std::string& kind, const std::string& what, const Reports& before,
            const Reports& after) {
    Count& count = counts_[kind];
    ++count.changed;
    if (after.errors == before.errors && RulesOf(after) == RulesOf(before)) {
      ++count.same;
      return;
    }
    std::string how = after.errors.empty() ? "" : after.errors[0];
    for (const std::string& remark : after.remarks) {
      if (before.remarks.count(remark) == 0) absl::StrAppend(&how, " +", remark);
    }
    for (const std::string& remark : before.remarks) {
      if (after.remarks.count(remark) == 0) absl::StrAppend(&how, " -", remark);
    }
    others_.push_back(absl::StrCat(what, kind, ": ", how));
  }

  std::map<std::string, Count> counts_;
  std::vector<std::string> others_;
};

TEST(HarmlessChanges, KeepTheVerdict) {
  const std::vector<Configuration> configurations = {
      {"grad_allreduce"},
      {"grad_allreduce", {{"nrings", "2"}}, true, Dialect::kWeft, 3},
      {"local_sgd", {{"k_steps", "2"}}},
      {"multi_thread", {{"buckets", "count{count=2}"}, {"nrings", "2"}}},
      {"multi_thread", {{"trans_mode", "all_gather"}}},
      {"mindspore_reducer", {{"reduce_method", "mean"}, {"nrings", "2"}}},
  };
  HarmlessChanges changes;
  const std::map<std::string, Model> models = ReadModels();
  for (const char* name : {"fit_a_line", "mlp_sgd", "mlp_adam", "two_losses", "mlp_gradient_merge",
                           "word2vec_sparse_sgd"}) {
    for (const Configuration& configuration : configurations) {
      changes.Add(name, models.at(name), configuration);
    }
  }
  std::printf("%s", changes.Table().c_str());
  for (const std::string& other : changes.others()) std::printf("%s\n", other.c_str());
  EXPECT_GE(changes.num_changed(), 1000);
  EXPECT_THAT(changes.others(), IsEmpty());
}

// The rules of all findings on programs for two ranks that were in files.
std::multiset<std::string> RulesIn(const Model& rewritten, const Model& original) {
  VerifyOptions options;
  const auto setting = SettingOf(rewritten.main);
  EXPECT_THAT(setting, IsOk());
  options.setting = *setting;
  options.original = {&original.main, &original.startup};
  std::multiset<std::string> rules;
  const Findings findings = Verify({{&rewritten.main, &rewritten.startup}}, options);
  for (const Finding& finding : findings.all()) rules.insert(finding.rule);
  return rules;
}

absl::StatusOr<Model> ToPirAndBack(const Model& model) {
  const std::string main = absl::StrCat(::testing::TempDir(), "/main.json");
  const std::string startup = absl::StrCat(::testing::TempDir(), "/startup.json");
  WEFT_RETURN_IF_ERROR(WritePrograms({{&model.main, main}, {&model.startup, startup}}));
  WEFT_ASSIGN_OR_RETURN(Program main_read, ReadProgram(main));
  WEFT_ASSIGN_OR_RETURN(Program startup_read, ReadProgram(startup));
  return Model{std::move(main_read), std::move(startup_read)};
}

// Programs of Paddle 3.
TEST(HarmlessChanges, PirAndBackKeepsTheVerdict) {
  WEFT_ASSERT_OK_AND_ASSIGN(const auto files, ReadTarXz("tests/data/paddle3_pir.tar.xz"));
  const auto read = [&](const std::string& name) -> absl::StatusOr<Program> {
    const std::string path = absl::StrCat(::testing::TempDir(), "/read.json");
    WEFT_RETURN_IF_ERROR(WriteFile(path, files.at(name)));
    return ReadProgram(path);
  };
  int num_changed = 0, num_same = 0;
  for (const auto& [name, bytes] : files) {
    if (!absl::EndsWith(name, "/main.json")) continue;
    const std::string model = name.substr(0, name.find('/'));
    WEFT_ASSERT_OK_AND_ASSIGN(Program main, read(name));
    WEFT_ASSERT_OK_AND_ASSIGN(Program startup, read(absl::StrCat(model, "/startup.json")));
    const Model original{std::move(main), std::move(startup)};
    for (const TranspileOptions& mode :
         {InMode("grad_allreduce", 2), InMode("grad_allreduce", 2, {{"buckets", "bytes"}}),
          InMode("local_sgd", 2, {{"k_steps", "2"}}), InMode("multi_thread", 2),
          InMode("mindspore_reducer", 2, {{"reduce_method", "mean"}})}) {
      TranspileOptions options = mode;
      options.device_kind = TargetDevice::kCpu;
      Model rewritten = original;
      if (!Rewrite(options, &rewritten.main, &rewritten.startup).ok()) continue;
      const auto written = ToPirAndBack(rewritten);
      ASSERT_THAT(written, IsOk()) << model << " " << options.mode;
      ++num_changed;
      const std::multiset<std::string> before = RulesIn(rewritten, original);
      const std::multiset<std::string> after = RulesIn(*written, original);
      EXPECT_EQ(after, before) << model << " " << options.mode;
      num_same += after == before ? 1 : 0;
    }
  }
  std::printf("%-28s %7d %7d\n", "rewrite: PIR and back", num_changed, num_same);
  EXPECT_GE(num_changed, 50);
}

}  // namespace
}  // namespace weft::testing
