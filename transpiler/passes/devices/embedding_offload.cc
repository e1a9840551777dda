#include "transpiler/passes/devices/embedding_offload.h"

#include <vector>

#include "absl/algorithm/container.h"
#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "ops/schema/communication_ops.h"
#include "ops/schema/device_ops.h"
#include "ops/schema/op_attrs.h"
#include "ops/schema/op_schema.h"
#include "ops/schema/tensor_type.h"
#include "proto/all_ops.h"
#include "transpiler/passes/devices/placement_search.h"
#include "transpiler/passes/support/name_pattern.h"
#include "transpiler/passes/support/op_edits.h"
#include "transpiler/passes/support/op_queries.h"

namespace weft {
namespace {

bool IsLookup(absl::string_view type) {
  return type == "lookup_table" || type == "lookup_table_v2";
}
bool IsLookupGrad(absl::string_view type) {
  return type == "lookup_table_grad" || type == "lookup_table_v2_grad";
}

class TableOffloader {
 public:
  TableOffloader(const EmbeddingOffload::Options& options, const PassContext* context,
                 Program* program)
      : tables_(options.tables),
        gives_zeros_(options.out_of_range == OutOfRange::kZeros),
        use_nesterov_(options.use_nesterov),
        context_(*context),
        program_(*program),
        rewriter_(program) {}

  absl::StatusOr<bool> Run() {
    WEFT_ASSIGN_OR_RETURN(const std::vector<Symbol> tables, FindTables());
    for (Symbol table : tables) {
      for (OpId id : uses_[table]) PutOnHost(program_.op(id));
    }
    return CommitEdits(&rewriter_);
  }

 private:
  // Those that match and can go to the host. Without a pattern, others stay where they are, unless
  // all would.
  absl::StatusOr<std::vector<Symbol>> FindTables() {
    std::vector<Symbol> found, tables;
    absl::flat_hash_set<Symbol> is_found;
    for (const Op& op : BlockOps(program_, 0)) {
      if (!IsLookup(op.type())) continue;
      for (Symbol table : op.Input("W")) {
        const bool matches = tables_.empty() || MatchesPattern(tables_, program_.name(table));
        if (matches && is_found.insert(table).second) found.push_back(table);
      }
    }
    if (found.empty() && !tables_.empty()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "tables '", tables_,
          "': expected a pattern that matches the W of a lookup in the root block, found none"));
    }
    if (found.empty()) {
      context_.sink.Note(
          "pass embedding-offload found no lookup in the root block: nothing goes "
          "to the host");
    }
    FindUses(found);
    absl::Status refused;
    for (Symbol table : found) {
      const absl::Status status = CheckTable(table);
      if (status.ok()) {
        tables.push_back(table);
        continue;
      }
      const std::string rule = RuleFor(table);
      const absl::Status error(
          status.code(),
          absl::StrCat(status.message(), rule.empty() ? "" : "; option:mode none ", rule));
      if (!tables_.empty()) return error;
      if (refused.ok()) refused = error;
      context_.sink.Note(absl::StrCat("table ", program_.name(table), " stays on the accelerator: ",
                                      status.message(), rule.empty() ? "" : "; ", rule));
    }
    if (tables.empty()) WEFT_RETURN_IF_ERROR(refused);
    return tables;
  }

  absl::Status Refused(const Op& op, Symbol variable, absl::string_view why) const {
    return absl::FailedPreconditionError(absl::StrCat(
        op.DebugName(), ": variable ", program_.name(variable), " cannot stay on the host: ", why));
  }

  // What puts a table on the host that the pass leaves on the accelerator; empty: nothing does.
  std::string RuleFor(Symbol table) const {
    const bool can_move = absl::c_all_of(
        uses_.at(table), [&](OpId id) { return WhyNotOnHost(program_.op(id)).empty(); });
    if (!can_move || use_nesterov_) return "";
    return absl::StrCat("option:place 'param:", program_.name(table),
                        "=cpu' puts the table there, with a copy of all its rows in every step");
  }

  // Whether the op makes a tensor of the rows that a gradient has, and no others.
  static bool TakesRows(const Op& op) { return op.type() == "get_tensor_from_selected_rows"; }

  // As a norm is.
  bool IsScalar(Symbol name) const {
    const absl::optional<TensorType> type = DeclaredType(program_, name);
    return type.has_value() && NumElements(type->dims) == 1;
  }

  // The ops that name each table, or its row-sparse gradient under any name. O(arguments).
  void FindUses(const std::vector<Symbol>& tables) {
    absl::flat_hash_map<Symbol, std::vector<Symbol>> tables_of;  // by name
    for (Symbol table : tables) tables_of[table] = {table};
    for (const Op& op : BlockOps(program_, 0)) {
      if (FindStreamSyncOp(op.type()).has_value()) continue;  // orders what the others do
      std::vector<Symbol> used;
      for (Symbol name : op.args()) {
        if (const auto of = tables_of.find(name); of != tables_of.end()) AddNew(of->second, &used);
      }
      for (Symbol table : used) uses_[table].push_back(op.id());
      if (used.empty()) continue;
      for (Symbol name : op.output_args()) {
        if (IsRows(program_, name) || TakesRows(op)) AddNew(used, &tables_of[name]);
      }
    }
    for (const Op& op : InnerOps(program_)) {
      for (Symbol name : op.args()) {
        if (tables_of.contains(name)) uses_in_blocks_.emplace(name, op.id());
      }
    }
  }

  static void AddNew(const std::vector<Symbol>& some, std::vector<Symbol>* all) {
    for (Symbol one : some) {
      if (!absl::c_linear_search(*all, one)) all->push_back(one);
    }
  }

  absl::Status CheckTable(Symbol table) const {
    if (const auto use = uses_in_blocks_.find(table); use != uses_in_blocks_.end()) {
      return Refused(program_.op(use->second), table, "an op of a block uses it");
    }
    for (OpId id : uses_.at(table)) WEFT_RETURN_IF_ERROR(CheckUse(program_.op(id), table));
    return absl::OkStatus();
  }

  absl::Status CheckUse(const Op& op, Symbol table) const {
    if (IsLookup(op.type())) return absl::OkStatus();
    if (IsLookupGrad(op.type())) {
      for (Symbol grad : op.Output("W@GRAD")) {
        if (program_.name(grad) == kEmptyVarName || IsRows(program_, grad)) continue;
        return Refused(op, grad, "the gradient is dense, as large as the table (is_sparse)");
      }
      return absl::OkStatus();
    }
    const bool updates = HasTrait(op, Trait::kOptimizer);
    if (updates && use_nesterov_ && !IsLazyAdam(op)) {
      return Refused(op, table, "use_nesterov takes tables that adam with lazy_mode updates");
    }
    if (updates || HasTrait(op, Trait::kCollective)) return absl::OkStatus();
    if (absl::c_linear_search(op.args(), table)) {
      return Refused(op, table, "the op uses the whole table");
    }
    for (Symbol name : op.output_args()) {
      if (program_.name(name) == kEmptyVarName || IsRows(program_, name)) continue;
      if (TakesRows(op) || IsScalar(name)) continue;
      return Refused(op, name, "the op makes a dense tensor of the rows of a gradient");
    }
    return absl::OkStatus();
  }

  static bool IsLazyAdam(const Op& op) {
    return op.type() == "adam" && op.BoolAttr("lazy_mode") == true;
  }

  void PutOnHost(const Op& op) {
    const bool moves = op.StringAttr(kOpDeviceAttr) != kHostDeviceName;
    const bool gets_zeros = gives_zeros_ && (IsLookup(op.type()) || IsLookupGrad(op.type())) &&
                            op.BoolAttr(kZerosOutOfRangeAttr) != true;
    const bool gets_nesterov =
        use_nesterov_ && IsLazyAdam(op) && op.BoolAttr("use_nesterov") != true;
    if (!moves && !gets_zeros && !gets_nesterov) return;
    if (!is_moved_.insert(op.id()).second) return;
    pb::OpDesc desc = op.ToProto();
    if (gets_zeros) SetBoolAttr(&desc, kZerosOutOfRangeAttr, true);
    if (gets_nesterov) SetBoolAttr(&desc, "use_nesterov", true);
    if (moves) SetOnHost(&desc);
    rewriter_.Replace(op.id(), desc);
  }

  const std::string& tables_;
  const bool gives_zeros_;  // for ids that are no rows
  const bool use_nesterov_;
  const PassContext& context_;
  const Program& program_;
  Rewriter rewriter_;
  absl::flat_hash_map<Symbol, std::vector<OpId>> uses_;  // of the root block, by table
  absl::flat_hash_map<Symbol, OpId> uses_in_blocks_;     // of the others: the first
  absl::flat_hash_set<OpId> is_moved_;                   // an op may use several tables
};

}  // namespace

void EmbeddingOffload::Options::Bind(OptionBinder& bind) {
  bind.String("tables", &tables, "tables that go to the host; may have *; empty: all that can");
  BindOutOfRange(bind, &out_of_range);
  bind.Bool("use_nesterov", &use_nesterov,
            "whether adam with lazy_mode has Nesterov momentum, as MindSpore's LazyAdam can");
}

Claims EmbeddingOffload::claims(const PassContext& context) const {
  return options_.use_nesterov ? Claims::Of(Claims::Computation::kChanged) : Claims();
}

absl::StatusOr<bool> EmbeddingOffload::Run(const PassContext& context,
                                           ProgramPair& programs) const {
  if (context.target.dialect == Dialect::kPaddle) {
    return absl::FailedPreconditionError("offloaded embeddings need dialect weft");
  }
  return TableOffloader(options_, &context, programs.main).Run();
}

}  // namespace weft
