// What is checked before a plan is built: the types of variables, and kernels for all ops.
#include <tuple>

#include "absl/algorithm/container.h"
#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "executor/plan/plan_builder.h"
#include "ops/analysis/core/type_flow.h"
#include "ops/schema/feed_ops.h"
#include "ops/schema/server_ops.h"
#include "proto/all_ops.h"

namespace weft {
namespace {

bool RunsBlock(const OpSchema& schema) {
  return schema.Has(Trait::kBranch) || schema.Has(Trait::kLoop) || schema.Has(Trait::kBlockGrad);
}

// `has_rows`: a variable of the op is SelectedRows.
bool CanRun(absl::string_view type, bool has_rows, const KernelTable& kernels) {
  if (IsOfFeeds(type) || FindControlKernel(type) != nullptr) return true;
  const OpSchema* schema = FindOpSchema(type);
  if (schema == nullptr) return false;
  if (schema->Has(Trait::kRingSetup)) return true;
  if (schema->Has(Trait::kStreamSync)) return FindStreamSyncOp(type).has_value();
  if (schema->Has(Trait::kCollective)) {
    const CollectiveOp* op = FindCollectiveOp(type);
    return op != nullptr && (!has_rows || CanRunOnRows(*op));
  }
  if (FindMessageOp(type).has_value() || type == kBarrierType) return !has_rows;
  if (RunsBlock(*schema)) return true;
  const absl::optional<ServerOp> server = FindServerOp(type);
  if (server.has_value() && Communicates(*server)) return true;
  return (has_rows ? kernels.FindForRows(type) : kernels.Find(type)) != nullptr;
}

bool IsRows(const absl::optional<TensorType>& type) {
  return type.has_value() && type->kind == TensorType::Kind::kSelectedRows;
}

// "op 17", "block 1, op 0": Op::DebugName without the type.
std::string PositionOf(const Op& op) {
  return absl::StrCat(op.block() == 0 ? "" : absl::StrCat("block ", op.block(), ", "), "op ",
                      op.position());
}

// An argument that is declared to have level-of-detail offsets; empty: there is none.
std::string ArgumentWithOffsets(const Op& op) {
  const Program& program = op.program();
  for (const absl::Span<const Symbol> names : {op.input_args(), op.output_args()}) {
    for (Symbol name : names) {
      const VarId var = program.block(op.block()).Resolve(name);
      if (!var.valid()) continue;
      if (program.var(var).ToProto().type().lod_tensor().lod_level() > 0) {
        return std::string(program.name(name));
      }
    }
  }
  return "";
}

}  // namespace

absl::Status PlanBuilder::CheckDevices() const {
  const auto& clashes = placement_.clashes();
  const auto& strays = placement_.strays();
  if (!clashes.empty()) return absl::InvalidArgumentError(ToString(program_, clashes[0]));
  if (!strays.empty()) {
    return absl::InvalidArgumentError(ToString(program_, placement_, strays[0]));
  }
  return placement_.on_two_devices() ? CheckServerOps() : absl::OkStatus();
}

// They share the replies that a rank has got, which one thread uses.
absl::Status PlanBuilder::CheckServerOps() const {
  OpId first;
  for (const Op& op : AllOps(program_)) {
    const absl::optional<ServerOp> server = FindServerOp(op.type());
    if (!server.has_value() || !Communicates(*server)) continue;
    if (!first.valid()) first = op.id();
    const DeviceKind device = placement_.DeviceOf(op.id()), expected = placement_.DeviceOf(first);
    if (device == expected) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        op.DebugName(), ": expected to run on ", DeviceKindName(expected), ", as ",
        program_.op(first).DebugName(),
        ": ops of parameter servers are on one stream; found it on ", DeviceKindName(device)));
  }
  return absl::OkStatus();
}

absl::Status PlanBuilder::CheckTypes() {
  TypeFlow flow(program_);
  absl::Status status;
  flow.Run(0, [&](const TypeFlow::Step& step) {
    if (!step.fits) {
      status = flow.Error(step);
      return false;
    }
    bool has_rows = false;
    for (TypeId type : step.inputs) has_rows = has_rows || IsRows(flow.types().type(type));
    for (VarId var : step.outputs) {
      has_rows = has_rows || (var.valid() && IsRows(flow.types().type(flow.current(var))));
    }
    has_rows_[step.op.id().value()] = has_rows;
    return true;
  });
  return status;
}

absl::Status PlanBuilder::CheckKernels() const {
  using Kind = std::tuple<absl::string_view, bool, const KernelTable*>;  // op type, has rows
  struct Missing {
    Kind kind;
    std::string first;         // position of the op
    std::string with_offsets;  // ArgumentWithOffsets of that op
    int count = 0;
  };
  std::vector<Missing> missing;  // in order of first occurrence
  absl::flat_hash_map<Kind, bool> can_run;
  absl::flat_hash_map<Kind, size_t> missing_of_kind;
  for (const Op& op : AllOps(program_)) {
    const absl::string_view type = op.type();
    const bool has_rows = has_rows_[op.id().value()];
    const KernelTable& kernels = KernelsOn(placement_.DeviceOf(op.id()), type);
    const Kind kind(type, has_rows, &kernels);
    const auto [it, is_new] = can_run.try_emplace(kind, false);
    if (is_new) it->second = CanRun(type, has_rows, kernels);
    if (it->second) continue;
    const size_t at = missing_of_kind.try_emplace(kind, missing.size()).first->second;
    if (at == missing.size()) missing.push_back({kind, PositionOf(op), ArgumentWithOffsets(op)});
    ++missing[at].count;
  }
  if (missing.empty()) return absl::OkStatus();
  const auto format = [](std::string* out, const Missing& m) {
    const auto [type, has_rows, kernels] = m.kind;
    absl::StrAppend(out, type, has_rows ? " with SelectedRows" : "", " (", m.count,
                    m.count == 1 ? " op" : " ops", ", first ", m.first, ")");
  };
  std::string next_step = "docs/adding_an_op.md says how to add one";
  const auto is_of_host = [this](const Missing& m) {
    const auto [type, has_rows, kernels] = m.kind;
    return options_.host_kernels != nullptr && kernels != options_.host_kernels &&
           CanRun(type, has_rows, *options_.host_kernels);
  };
  if (absl::c_all_of(missing, is_of_host)) {
    next_step = absl::StrCat(
        "the CPU has kernels: run the program with option:device cpu, or ",
        "rewrite it with transpile option:place type:", std::get<0>(missing[0].kind), "=cpu");
  }
  for (const Missing& m : missing) {
    if (m.with_offsets.empty()) continue;
    next_step = absl::StrCat(
        std::get<0>(m.kind), " needs sequences of several lengths (level-of-detail offsets of ",
        m.with_offsets,
        "), which the executor does not have: the program can be rewritten and verified, and "
        "Paddle runs it; to run it here, pad the sequences and give their lengths");
    break;
  }
  return absl::UnimplementedError(absl::StrCat(
      "no kernel for ", missing.size(), missing.size() == 1 ? " op type: " : " op types: ",
      absl::StrJoin(missing, ", ", format), "; ", next_step));
}

}  // namespace weft
