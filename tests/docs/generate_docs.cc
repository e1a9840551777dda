// generate_docs: prints the sections of the documentation that are generated from tables in the
// code. docs/generate.sh writes them into the files.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/types/optional.h"
#include "executor/communicators/communicator.h"
#include "executor/plan/control_kernels.h"
#include "ops/kernel.h"
#include "ops/schema/communication_ops.h"
#include "ops/schema/op_schema.h"
#include "ops/schema/server_ops.h"
#include "proto/formats/pir/op_table.h"
#include "proto/formats/pt2/importer.h"
#include "tests/support/combinations.h"
#include "tools/flags/command_line.h"
#include "tools/flags/flag_names.h"
#include "transpiler/context_flags.h"
#include "transpiler/modes.h"
#include "transpiler/passes/builtin_passes.h"
#include "transpiler/verifier/findings/rule.h"
#include "transpiler/verifier/rules/rule_text.h"

namespace weft {
namespace {

// A cell of a Markdown table.
std::string Cell(absl::string_view text) {
  return absl::StrReplaceAll(text, {{"|", "\\|"}, {"\n", " "}});
}

std::string Code(absl::string_view text) {
  return text.empty() ? "–" : absl::StrCat("`", Cell(text), "`");
}

// "a, b" with each word as code.
std::string CodeList(const std::vector<std::string>& words, absl::string_view separator = ", ") {
  if (words.empty()) return "–";
  return absl::StrJoin(words, separator,
                       [](std::string* out, const std::string& word) { out->append(Code(word)); });
}

// The table in the README: the modes of each group.
std::string ModeTable() {
  std::string text = "| mode | what it makes |\n|---|---|\n";
  for (Mode::Group group : kModeGroups) {
    absl::StrAppend(&text, "| **", GroupTitle(group), "** | |\n");
    for (const Mode& mode : Modes()) {
      if (mode.group != group) continue;
      absl::StrAppend(&text, "| `", mode.name, "` | ", Cell(mode.description), " |\n");
    }
  }
  return text;
}

std::vector<std::string> AsFlags(const std::vector<std::string>& names) {
  std::vector<std::string> flags;
  for (const std::string& name : names) flags.push_back("--" + name);
  return flags;
}

// One row for every choice among the mode's pipelines; none in a dialect that the mode does not
// have.
std::string PipelineRows(const Mode& mode, Dialect dialect) {
  const std::string name = dialect == Dialect::kPaddle ? "paddle" : "weft";
  std::string rows;
  for (const ModePipeline& pipeline : mode.pipelines) {
    if (pipeline.dialect != dialect) continue;
    std::string choice;
    for (const auto& [flag, value] : pipeline.choice) {
      absl::StrAppend(&choice, " ", Code(absl::StrCat("--", flag, " ", value)));
    }
    std::map<std::string, std::string> given = mode.required;
    given.insert(pipeline.choice.begin(), pipeline.choice.end());
    const auto passes = ExpandMode(mode.name, dialect, given);
    absl::StrAppend(&rows, "| ", name, choice, " | ", Code(ToString(*passes)), " | ",
                    CodeList(AsFlags(FlagsOf(mode, pipeline))), " |\n");
  }
  return mode.pipelines.empty() ? absl::StrCat("| ", name, " | – | – |\n") : rows;
}

std::string ModeSections() {
  std::string text;
  for (const Mode& mode : Modes()) {
    absl::StrAppend(&text, text.empty() ? "" : "\n", "### ", mode.name, "\n\n", mode.description,
                    "\n\n| dialect | passes | flags it reads |\n|---|---|---|\n",
                    PipelineRows(mode, Dialect::kWeft), PipelineRows(mode, Dialect::kPaddle));
  }
  return text;
}

std::string ModeFlagTable() {
  std::string text = "| flag | values | default | meaning | modes |\n|---|---|---|---|---|\n";
  const std::vector<ModeFlag> flags = *ModeFlags(BuiltinPasses());
  for (const ModeFlag& flag : flags) {
    const bool has_value = flag.expected != OptionBinder::kOnOrOff;
    absl::StrAppend(&text, "| ", Code("--" + flag.name), " | ",
                    has_value ? Cell(flag.expected) : "none: a switch", " | ",
                    CodeList(flag.defaults, " or "), " | ", Cell(flag.help), " | ",
                    CodeList(flag.modes), " |\n");
  }
  for (const ContextFlag& flag : ContextFlags()) {
    std::vector<std::string> modes;
    for (const Mode& mode : Modes()) {
      if (ReadsContext(mode, flag.name)) modes.push_back(mode.name);
    }
    absl::StrAppend(&text, "| ", Code(absl::StrCat("--", flag.name)), " | ", Cell(flag.expected),
                    " | ", Cell(flag.default_value), " | ", Cell(flag.help), " | ", CodeList(modes),
                    " |\n");
  }
  return text;
}

std::string OptionTable(const std::vector<OptionBinder::Option>& options) {
  if (options.empty()) return "No options.\n";
  std::string text = "| option | values | default | meaning |\n|---|---|---|---|\n";
  for (const OptionBinder::Option& option : options) {
    absl::StrAppend(&text, "| `", option.name, "` | ", Cell(option.expected), " | ",
                    Code(option.default_value), " | ", Cell(option.help), " |\n");
  }
  return text;
}

std::string PassSections() {
  std::string text;
  const PassRegistry registry = BuiltinPasses();
  for (const auto& [name, entry] : registry.entries()) {
    absl::StrAppend(&text, text.empty() ? "" : "\n", "### ", name, "\n\n", entry.description,
                    "\n\n", OptionTable(entry.options));
  }
  return text;
}

std::vector<std::string> Slots(const std::vector<SlotSchema>& slots) {
  std::vector<std::string> names;
  for (const SlotSchema& slot : slots) {
    std::string name = slot.name;
    if (slot.duplicable) name += "*";
    if (slot.optional) name += "?";
    if (slot.since == kPaddle2) name += "+";
    if (slot.until == kPaddle2) name += "-";
    if (!slot.in_place_of.empty()) absl::StrAppend(&name, "=", slot.in_place_of);
    if (!slot.memory_of.empty()) absl::StrAppend(&name, "&", slot.memory_of);
    names.push_back(std::move(name));
  }
  return names;
}

std::vector<std::string> TraitNames(const OpSchema& schema) {
  static constexpr std::pair<Trait, const char*> kNames[] = {
      {Trait::kCollective, "collective"},
      {Trait::kRingSetup, "ring set-up"},
      {Trait::kStreamSync, "stream sync"},
      {Trait::kOptimizer, "optimizer"},
      {Trait::kAlias, "alias"},
      {Trait::kElementwise, "elementwise"},
      {Trait::kLinear, "linear"},
      {Trait::kRowSplittable, "row-splittable"},
      {Trait::kSideEffect, "side effect"},
      {Trait::kBranch, "branch"},
      {Trait::kLoop, "loop"},
      {Trait::kBlockGrad, "block gradient"},
      {Trait::kKeepsOutputs, "keeps outputs"},
      {Trait::kBroadcasts, "broadcasts"},
  };
  std::vector<std::string> names;
  for (const auto& [trait, name] : kNames) {
    if (schema.Has(trait)) names.push_back(name);
  }
  return names;
}

// What `weft run` does with an op; "–" if it refuses the program.
std::string RunsAs(const OpSchema& schema) {
  if (CpuKernels().Find(schema.type()) != nullptr) {
    return CpuKernels().FindForRows(schema.type()) != nullptr ? "kernel, rows" : "kernel";
  }
  if (CpuKernels().FindForRows(schema.type()) != nullptr) return "rows only";
  const CollectiveOp* op = FindCollectiveOp(schema.type());
  if (op != nullptr) return CanRunOnRows(*op) ? "communicator, rows" : "communicator";
  if (FindMessageOp(schema.type()).has_value() || schema.type() == kBarrierType) {
    return "communicator";
  }
  if (FindStreamSyncOp(schema.type()).has_value()) return "events";
  if (FindServerOp(schema.type()).has_value()) return "servers";
  if (schema.Has(Trait::kRingSetup)) return "nothing to do";
  if (FindControlKernel(schema.type()) != nullptr) return "kernel";
  if (schema.Has(Trait::kBranch) || schema.Has(Trait::kLoop) || schema.Has(Trait::kBlockGrad)) {
    return "block";
  }
  return "–";
}

// For groups that are complete, the name of the group.
std::string NamesOf(const std::vector<DType>& types) {
  static const auto& groups = *new std::vector<std::pair<std::string, std::vector<DType>>>{
      {"all",
       {DType::kBool, DType::kUint8, DType::kInt8, DType::kInt16, DType::kInt32, DType::kInt64,
        DType::kFloat16, DType::kBFloat16, DType::kFloat32, DType::kFloat64}},
      {"floats", {DType::kFloat16, DType::kBFloat16, DType::kFloat32, DType::kFloat64}},
      {"ints", {DType::kUint8, DType::kInt8, DType::kInt16, DType::kInt32, DType::kInt64}},
  };
  std::set<DType> rest(types.begin(), types.end());
  std::vector<std::string> names;
  for (const auto& [name, group] : groups) {
    const auto is_left = [&](DType type) { return rest.count(type) > 0; };
    if (!std::all_of(group.begin(), group.end(), is_left)) continue;
    names.push_back(name);
    for (DType type : group) rest.erase(type);
  }
  for (DType type : rest) names.emplace_back(DTypeName(type));
  return absl::StrJoin(names, ", ");
}

// The element types that the CPU kernel of an op supports, made with a variable in each slot and
// default attributes.
std::string ElementTypes(const OpSchema& schema) {
  const KernelFactory* factory = CpuKernels().Find(schema.type());
  if (factory == nullptr) return "–";
  KernelSpec spec;
  std::vector<DType> types;
  spec.schema = &schema;
  spec.attrs = OpAttrs::Make(schema);
  spec.element_types = &types;
  for (const SlotSchema& slot : schema.inputs()) {
    if (slot.attrs.empty()) spec.inputs[slot.name] = {static_cast<int>(spec.inputs.size()), 1};
  }
  for (const SlotSchema& slot : schema.outputs()) {
    spec.outputs[slot.name] = {static_cast<int>(spec.outputs.size()), 1};
  }
  const absl::Status status = (*factory)(spec).status();
  if (types.empty()) {
    std::fprintf(stderr, "%s: its kernel tells no element types: %s\n", schema.type().c_str(),
                 status.ToString().c_str());
    std::abort();
  }
  return NamesOf(types);
}

// What a GPU computes of an op.
std::string OnGpu(const std::string& type) {
  const bool on_rows = GpuKernels().FindForRows(type) != nullptr;
  if (GpuKernels().Find(type) != nullptr) return on_rows ? "yes, rows" : "yes";
  return on_rows ? "rows only" : "–";
}

std::string OpTable() {
  std::string text =
      "| op | CPU | element types | GPU | traits | inputs | outputs |\n"
      "|---|---|---|---|---|---|---|\n";
  for (const OpSchema* schema : AllOpSchemas()) {
    const std::vector<std::string> traits = TraitNames(*schema);
    absl::StrAppend(
        &text, "| `", schema->type(), "` | ", RunsAs(*schema), " | ", ElementTypes(*schema), " | ",
        OnGpu(schema->type()), " | ", traits.empty() ? "–" : absl::StrJoin(traits, ", "), " | ",
        CodeList(Slots(schema->inputs())), " | ", CodeList(Slots(schema->outputs())), " |\n");
  }
  return text;
}

// Ops of Paddle 3 and the ops that they are read as, in the order of their names.
std::string PirOpTable() {
  std::map<absl::string_view, const pir::OpRule*> rules;
  for (const pir::OpRule& rule : pir::AllRules()) rules[rule.pir] = &rule;
  std::string text = "| op of Paddle 3 | read as | runs |\n|---|---|---|\n";
  for (const auto& [name, rule] : rules) {
    const OpSchema* const schema = FindOpSchema(rule->desc);
    absl::StrAppend(&text, "| ", Code(name), " | ", Code(rule->desc), " | ",
                    schema == nullptr ? "–" : RunsAs(*schema), " |\n");
  }
  return text;
}

// Operators of PyTorch, by name, with their overloads and the ops that they are read as.
std::string PyTorchOperatorTable() {
  std::map<std::string, std::pair<std::vector<std::string>, std::set<std::string>>> operators;
  for (const auto& [target, op] : pt2::ReadOperators()) {
    const size_t dot = target.rfind('.');
    auto& [overloads, ops] = operators[target.substr(0, dot)];
    overloads.push_back(target.substr(dot + 1));
    ops.insert(op);
  }
  std::string text = "| operator | overloads | read as |\n|---|---|---|\n";
  for (const auto& [name, row] : operators) {
    const auto& [overloads, ops] = row;
    const std::string& op = *ops.begin();
    const bool is_one = ops.size() == 1 && !op.empty();
    absl::StrAppend(&text, "| ", Code(name), " | ", CodeList(overloads), " | ",
                    is_one ? Code(op) : "ops by its arguments", " |\n");
  }
  return text;
}

// Aborts on an error, which a test of the rules finds first.
template <typename T>
T ValueOf(absl::StatusOr<T> value) {
  if (value.ok()) return *std::move(value);
  std::fprintf(stderr, "%s\n", value.status().ToString().c_str());
  std::abort();
}

// The programs of an example, each after its title.
std::string ExamplePrograms(const RuleText& rule) {
  std::string text;
  for (const auto& [title, program] : ProgramsOf(rule)) {
    if (!title.empty()) absl::StrAppend(&text, "\n", title, ":\n");
    absl::StrAppend(&text, "\n```\n", program, "\n```\n");
  }
  return text;
}

std::string RuleSections() {
  std::string text;
  absl::optional<Layer> layer;
  for (const Rule& rule : Rules()) {
    if (rule.layer != layer) {
      layer = rule.layer;
      absl::StrAppend(&text, text.empty() ? "" : "\n", "## Layer ", static_cast<int>(rule.layer),
                      ": ", LayerName(rule.layer), "\n");
    }
    std::string title = rule.title;
    title[0] = absl::ascii_toupper(title[0]);
    const RuleText of_manual = ValueOf(RuleTextOf(rule.id));
    absl::StrAppend(&text, "\n### ", rule.id, "\n\n**", title, "** (", SeverityName(rule.severity),
                    "). ", of_manual.why, "\n\nFix: ", of_manual.fix, "\n",
                    ExamplePrograms(of_manual), "\nThe verifier says:\n\n```\n",
                    ValueOf(MessageOfExample(rule, of_manual)), "\n```\n");
  }
  return text;
}

int Main(int argc, char** argv) {
  CLI::App app("Prints a part of the documentation that follows from tables in the code.",
               "generate_docs");
  app.footer("Example:\n  generate_docs ops");
  const std::vector<std::pair<std::string, std::function<std::string()>>> sections = {
      {"mode_table", ModeTable},
      {"modes", ModeSections},
      {"mode_flags", ModeFlagTable},
      {"passes", PassSections},
      {"ops", OpTable},
      {"pir_ops", PirOpTable},
      {"pytorch_operators", PyTorchOperatorTable},
      {"rules", RuleSections},
      {"combinations", testing::CombinationsText},
  };
  std::set<std::string> names;
  for (const auto& [name, print] : sections) names.insert(name);
  std::string section;
  app.add_option("section", section, "which part")->required()->check(CLI::IsMember(names));
  if (absl::optional<int> status = ParseCommandLine(app, argc, argv)) return *status;
  for (const auto& [name, print] : sections) {
    if (name == section) std::fputs(WithFlags(print()).c_str(), stdout);
  }
  return FinishCommand("generate_docs", absl::OkStatus());
}

}  // namespace
}  // namespace weft

int main(int argc, char** argv) { return weft::Main(argc, argv); }
