#include "proto/formats/pir/importer.h"

#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/free_memory.h"
#include "base/status_macros.h"
#include "proto/all_ops.h"
#include "proto/formats/pir/op_table.h"
#include "proto/formats/pir/survey.h"
#include "proto/formats/pir/training.h"
#include "proto/formats/pir/translator.h"
#include "proto/op_role.h"
#include "proto/untranslated_op.h"

namespace weft::pir {
absl::StatusOr<Program> ImportProgram(std::shared_ptr<const Document> document) {
  if (!document->trainable()) {
    return absl::InvalidArgumentError(
        "a model for inference (trainable is false): it has no backward ops, and nothing in it is "
        "persistable; write the training program with tools/paddle/export_program.py, or with "
        "core.serialize_pir_program(program, path, True, False, True)");
  }
  auto import = std::make_shared<Import>();
  import->file = document->file();
  Translation translation;
  {
    WEFT_ASSIGN_OR_RETURN(Training training, FindTraining(*document));
    WEFT_ASSIGN_OR_RETURN(Survey survey, SurveyOf(*document));
    Translator translator(*document, std::move(training), std::move(survey));
    WEFT_ASSIGN_OR_RETURN(translation, translator.Run());
  }
  const absl::string_view setting = document->setting();
  document.reset();  // not both indexes at a time
  constexpr size_t kLarge = 4 << 20;
  if (import->file.bytes.size() >= kLarge) ReturnFreeMemory();
  WEFT_ASSIGN_OR_RETURN(Program program, Program::Parse(std::move(translation.program)));
  import->num_blocks = program.num_blocks();
  import->num_vars = program.var_id_limit();
  import->op_of_id = std::move(translation.op_of_id);
  import->distributed_params_ = std::move(translation.distributed_params);
  import->setting = setting;
  program.set_setting(setting);
  // Messages have at most 2 GiB.
  import->bytes_of_id.resize(import->op_of_id.size());
  const auto ops = AllOps(program);
  if (ops.begin() != ops.end()) import->program = (*ops.begin()).bytes().data();
  for (int block = 0; block < program.num_blocks(); ++block) {
    const uint32_t begin = block == 0 ? 0 : import->end_of_block.back();
    import->end_of_block.push_back(begin + program.block(block).ops().size());
    for (OpId id : program.block(block).ops()) {
      const absl::string_view bytes = program.op(id).bytes();
      import->bytes_of_id[id.value()] = {static_cast<uint32_t>(bytes.data() - import->program),
                                         static_cast<uint32_t>(bytes.size())};
    }
  }
  for (const auto& [in_block, block] : translation.variable_of_value) {
    Symbol& name = import->variable_of_value.emplace_back();
    if (in_block == kNoVar) continue;
    name = program.var(program.block(static_cast<int>(block)).vars()[in_block]).name_symbol();
  }
  program.set_origin(std::move(import));
  return program;
}

namespace {

// Whether an op with blocks, or what stands in these, accesses what passes change: gradients,
// parameters and state.
bool AccessesTraining(const Op& op) {
  if (op.role() != kRoleForward) return true;
  const Program& program = op.program();
  const auto is_persistable = [&](VarId var) {
    return var.valid() && program.var(var).persistable();
  };
  // With what its blocks access of the variables around them.
  for (Symbol arg : op.args()) {
    if (is_persistable(program.block(op.block()).Resolve(arg))) return true;
  }
  std::vector<int> blocks = op.SubBlocks();
  while (!blocks.empty()) {
    const Block& block = program.block(blocks.back());
    blocks.pop_back();
    if (absl::c_any_of(block.vars(), is_persistable)) return true;
    for (OpId id : block.ops()) {
      const std::vector<int> inner = program.op(id).SubBlocks();
      blocks.insert(blocks.end(), inner.begin(), inner.end());
    }
  }
  return false;
}

}  // namespace

absl::Status CheckWritesAreKnown(const Program& program) {
  constexpr char kMayBeCopied[] =
      "; such a program can be shown and copied (mode none), and neither verified nor rewritten";
  for (const Op& op : AllOps(program)) {
    // Types of ProgramDesc have no dialect.
    if (!absl::StrContains(op.type(), '.')) continue;
    if (IsInPlace(op.type())) {
      return absl::UnimplementedError(
          absl::StrCat(op.DebugName(),
                       ": writes operands in place, and which ones is not known: "
                       "docs/reference/pir_ops.md does not "
                       "have the op with these operands and results",
                       kMayBeCopied));
    }
    if (op.SubBlocks().empty() || !AccessesTraining(op)) continue;
    return absl::UnimplementedError(absl::StrCat(
        op.DebugName(),
        ": its blocks access gradients, parameters or state, and when it runs them is not known: "
        "docs/reference/pir_ops.md does not have the op",
        kMayBeCopied, UntranslatedOpAdvice(op.type())));
  }
  return absl::OkStatus();
}

const Import* ImportOf(const Program& program) {
  return dynamic_cast<const Import*>(program.origin().get());
}

}  // namespace weft::pir
