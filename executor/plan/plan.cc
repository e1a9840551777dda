#include "executor/plan/plan.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"
#include "executor/plan/plan_builder.h"
#include "ops/analysis/core/shared_writes.h"
#include "ops/analysis/core/storage.h"
#include "ops/analysis/training/data_variables.h"
#include "ops/analysis/training/losses.h"
#include "ops/make_kernel.h"
#include "ops/schema/across_ranks.h"
#include "ops/schema/algebra.h"
#include "ops/schema/buffer_slices.h"
#include "ops/schema/feed_ops.h"
#include "ops/schema/infer.h"
#include "ops/schema/server_ops.h"
#include "ops/schema/view_ops.h"
#include "ops/schema/weft_attrs.h"

namespace weft {

absl::StatusOr<Plan> PlanBuilder::Build() {
  // Missing kernels are reported first.
  const absl::Status types_fit = CheckTypes();
  WEFT_RETURN_IF_ERROR(CheckKernels());
  shared_ = FindSharedWrites(program_);
  if (!shared_.stale.empty()) {
    return absl::UnimplementedError(ToString(program_, shared_.stale[0]));
  }
  plan_.on_two_devices = placement_.on_two_devices();
  AddVariables();
  WEFT_RETURN_IF_ERROR(FindLoopGradients());
  AddClear("the step", ArraysOf(0));
  WEFT_RETURN_IF_ERROR(AddBlock(0));
  if (!unsupported_.empty()) {
    return absl::UnimplementedError(absl::StrJoin(unsupported_, "; "));
  }
  WEFT_RETURN_IF_ERROR(types_fit);
  WEFT_RETURN_IF_ERROR(CheckDevices());
  for (Symbol loss : FindLosses(program_)) {
    const int variable = plan_.FindVariable(program_.name(loss));
    if (variable != Plan::kNoVariable) plan_.losses.push_back(variable);
  }
  AddStreams();
  for (const Step& step : steps_) AddInstructions(step);
  ShareBuffers();
  return std::move(plan_);
}

// Buffers of the same tensors in several blocks of the root become one variable: a block that makes
// its buffer then finds the tensors in it, and moves nothing. A block that reads its buffer before
// it makes it gets W107.
void PlanBuilder::ShareBuffers() {
  std::vector<int> shared(plan_.variables.size());
  std::iota(shared.begin(), shared.end(), 0);
  std::map<std::vector<VarId>, VarId> first_of_parts;
  const Storage storage(program_);
  for (const Storage::Buffer& buffer : storage.buffers()) {
    if (!buffer.var.valid()) continue;
    const Var var = program_.var(buffer.var);
    if (var.block() != buffer.block || var.persistable()) continue;
    if (program_.block(buffer.block).parent_idx() != 0) continue;
    const VarId first = first_of_parts.emplace(buffer.part_vars, buffer.var).first->second;
    const auto type_of = [&](VarId id) { return plan_.variables[id.value()].declared; };
    if (program_.var(first).block() == buffer.block || type_of(first) != type_of(buffer.var)) {
      continue;
    }
    shared[buffer.var.value()] = static_cast<int>(first.value());
  }
  for (Plan::PlanOp& op : plan_.ops) {
    for (std::vector<int>* const variables : {&op.inputs, &op.outputs}) {
      for (int& v : *variables) v = v < 0 ? v : shared[v];
    }
  }
}

const KernelTable& PlanBuilder::KernelsOn(DeviceKind device, absl::string_view type) const {
  const bool is_of_host = placement_.on_two_devices() && device == DeviceKind::kHost &&
                          !CopiesFrom(type).has_value() && options_.host_kernels != nullptr;
  return is_of_host ? *options_.host_kernels : *options_.kernels;
}

void PlanBuilder::AddVariables() {
  const absl::flat_hash_set<VarId> data = FindData(program_);
  plan_.variables.resize(program_.var_id_limit());  // of erased variables: without a name
  for (int b = 0; b < program_.num_blocks(); ++b) {
    for (VarId id : program_.block(b).vars()) {
      const Var var = program_.var(id);
      if (b == 0) plan_.variable_of_name.emplace(var.name(), static_cast<int>(id.value()));
      Plan::Variable& variable = plan_.variables[id.value()];
      variable.name = std::string(var.name());
      variable.persistable = var.persistable();
      variable.is_array = var.type() == pb::VarType::LOD_TENSOR_ARRAY;
      variable.is_feed = data.contains(id);
      variable.declared = DeclaredType(var);
      variable.memory = placement_.MemoryOf(id);
    }
  }
}

absl::Status PlanBuilder::AddBlock(int block) {
  const int around = block_;
  const DeviceKind device_around = device_;
  block_ = block;
  for (OpId id : program_.block(block).ops()) {
    const Op op = program_.op(id);
    WEFT_RETURN_IF_ERROR(AddOp(op, op.DebugName()));
    const auto copies = shared_.copies.find(id);
    if (copies == shared_.copies.end()) continue;
    for (const SharedMemory& copy : copies->second) WEFT_RETURN_IF_ERROR(AddCopy(op, copy));
  }
  block_ = around;
  device_ = device_around;
  return absl::OkStatus();
}

absl::Status PlanBuilder::AddCopy(const Op& op, const SharedMemory& copy) {
  const OpSchema& schema = *FindOpSchema(kShareDataType);
  Plan::PlanOp plan_op;
  plan_op.name = op.DebugName();
  plan_op.type = schema.type();
  plan_op.kernel_spec.inputs["X"] = {0, 1};
  plan_op.kernel_spec.outputs["Out"] = {0, 1};
  WEFT_RETURN_IF_ERROR(ResolveAll({copy.in}, plan_op.name, &plan_op.inputs));
  WEFT_RETURN_IF_ERROR(ResolveAll({copy.out}, plan_op.name, &plan_op.outputs));
  WEFT_RETURN_IF_ERROR(FillKernel(op, schema, OpAttrs::Make(schema), &plan_op));
  AddPlanOp(std::move(plan_op));
  return absl::OkStatus();
}

absl::Status PlanBuilder::AddOp(const Op& op, const std::string& name) {
  if (IsOfFeeds(op.type())) return absl::OkStatus();
  device_ = placement_.DeviceOf(op.id());
  const OpSchema* schema = FindOpSchema(op.type());
  WEFT_ASSIGN_OR_RETURN(OpAttrs attrs, OpAttrs::Decode(op, *schema));
  WEFT_RETURN_IF_ERROR(CheckNumRanks(op, name));
  if (schema->Has(Trait::kRingSetup)) {
    WEFT_RETURN_IF_ERROR(RanksOfRing(op).status());
    // In Paddle, setting up a ring blocks the host. Programs that its transpiler writes rely on it:
    // broadcasts of initialized parameters follow without a synchronization.
    steps_.push_back(Step());
    return absl::OkStatus();
  }
  if (schema->Has(Trait::kStreamSync)) {
    steps_.push_back(SyncStep(op, attrs, device_));
    return absl::OkStatus();
  }
  WEFT_RETURN_IF_ERROR(CheckSlotsAreKnown(op, *schema));
  if (IsRecurrent(*schema)) {
    return schema->Has(Trait::kBlockGrad) ? AddRecurrentGrad(op, attrs, name)
                                          : AddRecurrent(op, attrs, name);
  }
  if (schema->Has(Trait::kLoop)) {
    return schema->Has(Trait::kBlockGrad) ? AddLoopGrad(op, attrs, name) : AddLoop(op, attrs, name);
  }
  if (schema->Has(Trait::kBlockGrad)) return AddBranchGrad(op, attrs, name);
  if (schema->Has(Trait::kBranch)) {
    return AddBranchTo(attrs.Block("sub_block"), op, CondBranch(attrs));
  }
  Plan::PlanOp plan_op;
  plan_op.name = name;
  plan_op.type = std::string(op.type());
  plan_op.has_rows = has_rows_[op.id().value()];
  plan_op.reads_inputs = !schema->Has(Trait::kAlias) || MadeBufferOf(op).copies;
  WEFT_ASSIGN_OR_RETURN(const ControlKernelFactory* control, ControlKernelOf(op, name));
  const absl::optional<ServerOp> server = FindServerOp(op.type());
  if (server.has_value() && Communicates(*server)) {
    plan_op.work = Plan::ServerWork{*server};
    plan_op.kernel_spec.schema = schema;
    plan_op.kernel_spec.attrs = std::move(attrs);
    WEFT_RETURN_IF_ERROR(FillArguments(op, &plan_op));
    WEFT_RETURN_IF_ERROR(CheckServerSlots(*schema, plan_op));
  } else if (control != nullptr) {
    plan_op.reads_inputs = false;
    plan_op.kernel_spec.attrs = std::move(attrs);
    WEFT_RETURN_IF_ERROR(FillArguments(op, &plan_op));
    WEFT_RETURN_IF_ERROR(CheckRequiredSlots(*schema, plan_op));
    SetControl((*control)(plan_op.kernel_spec), &plan_op);
  } else if (schema->Has(Trait::kCollective)) {
    return AddCollectives(op, *FindCollectiveOp(op), attrs, plan_op);
  } else if (op.type() == kBarrierType) {
    static constexpr CollectiveOp kBarrier = {kBarrierType, CollectiveKind::kAllReduce,
                                              Reduction::kSum, ""};
    return AddCollectives(op, kBarrier, attrs, plan_op);
  } else if (FindMessageOp(op.type()).has_value()) {
    return AddMessage(op, attrs, std::move(plan_op));
  } else {
    WEFT_RETURN_IF_ERROR(FillArguments(op, &plan_op));
    if (options_.nranks > 1 && communications_.Of(op) == Communication::kMoments) {
      WEFT_ASSIGN_OR_RETURN(schema, AddSumsOfRanks(op, *schema, &plan_op));
    }
    WEFT_RETURN_IF_ERROR(FillKernel(op, *schema, std::move(attrs), &plan_op));
  }
  AddPlanOp(std::move(plan_op));
  return absl::OkStatus();
}

absl::StatusOr<const OpSchema*> PlanBuilder::AddSumsOfRanks(const Op& op, const OpSchema& schema,
                                                            Plan::PlanOp* plan_op) {
  // By op type: the schema with input Sums.
  static const auto* const kWithSums = [] {
    auto* const schemas = new absl::flat_hash_map<std::string, OpSchema>();
    for (absl::string_view type : kAcrossRanksTypes) {
      schemas->emplace(std::string(type), OpSchema(*FindOpSchema(type)).In("Sums"));
    }
    return schemas;
  }();
  const auto add_variable = [&](absl::string_view what) {
    Plan::Variable variable;
    variable.name = absl::StrCat(plan_op->name, what);
    variable.memory = device_;
    variable.is_written = true;
    plan_.variables.push_back(std::move(variable));
    return static_cast<int>(plan_.variables.size()) - 1;
  };
  const int of_rank = add_variable(" sums"), of_ranks = add_variable(" sums of ranks");
  const OpSchema& sums_schema = *FindOpSchema(absl::StrCat(schema.type(), "_sums"));
  Plan::PlanOp sums;
  sums.name = plan_op->name;
  sums.type = sums_schema.type();
  WEFT_ASSIGN_OR_RETURN(OpAttrs attrs, OpAttrs::Decode(op, sums_schema));
  for (const SlotSchema& slot : sums_schema.inputs()) {
    const int argument = plan_op->kernel_spec.Input(slot.name);
    if (argument < 0) continue;
    sums.kernel_spec.inputs[slot.name] = {static_cast<int>(sums.inputs.size()), 1};
    sums.inputs.push_back(plan_op->inputs[argument]);
  }
  sums.kernel_spec.outputs["Sums"] = {0, 1};
  sums.outputs = {of_rank};
  WEFT_RETURN_IF_ERROR(FillKernel(op, sums_schema, std::move(attrs), &sums));
  AddPlanOp(std::move(sums));

  Plan::PlanOp gather;
  gather.name = plan_op->name;
  gather.type = std::string(CollectiveKindName(CollectiveKind::kAllGather));
  gather.inputs = {of_rank};
  gather.outputs = {of_ranks};
  Plan::CollectiveWork work;
  work.ring = RingIndex(RingKey{0, /*on_compute_stream=*/true});
  work.desc.kind = CollectiveKind::kAllGather;
  gather.work = work;
  AddPlanOp(std::move(gather));

  plan_op->kernel_spec.inputs["Sums"] = {static_cast<int>(plan_op->inputs.size()), 1};
  plan_op->inputs.push_back(of_ranks);
  return &kWithSums->at(schema.type());
}

PlanBuilder::Step PlanBuilder::SyncStep(const Op& op, const OpAttrs& attrs, DeviceKind device) {
  Step step;
  step.kind = Step::Kind::kSync;
  step.sync = *FindStreamSyncOp(op.type());
  if (step.sync == StreamSync::kStreamWaitsForStream) {
    constexpr DeviceStream kNone{DeviceStream::Kind::kRing, -1};
    step.waiting = FindDeviceStream(attrs.String("stream")).value_or(kNone);
    step.awaited = FindDeviceStream(attrs.String("awaited")).value_or(kNone);
    return step;
  }
  const int ring_id = attrs.Has("ring_id") ? static_cast<int>(attrs.Int("ring_id")) : -1;
  const DeviceStream compute{ComputeStreamOf(device), -1};
  const DeviceStream ring{DeviceStream::Kind::kRing, ring_id};
  const bool awaits_compute =
      step.sync == StreamSync::kRingWaitsForCompute || step.sync == StreamSync::kAllWaitForCompute;
  step.waiting = awaits_compute ? ring : compute;
  step.awaited = awaits_compute ? compute : ring;
  return step;
}

absl::Status PlanBuilder::CheckSlotsAreKnown(const Op& op, const OpSchema& schema) {
  if (slots_are_known_[op.signature_id()]) return absl::OkStatus();
  slots_are_known_[op.signature_id()] = true;
  return CheckNoUnknownSlots(op, schema);
}

absl::StatusOr<const ControlKernelFactory*> PlanBuilder::ControlKernelOf(
    const Op& op, const std::string& name) const {
  const ControlKernelFactory* control = FindControlKernel(op.type());
  if (control != nullptr) return control;
  for (Symbol symbol : op.args()) {
    WEFT_ASSIGN_OR_RETURN(const int variable, Resolve(symbol, name));
    if (variable == Plan::kNoVariable || !plan_.variables[variable].is_array) continue;
    control = FindArrayKernel(op.type());
    if (control != nullptr) return control;
    return absl::UnimplementedError(absl::StrCat(name, ": variable ", program_.name(symbol),
                                                 ": no kernel for an array of tensors"));
  }
  return nullptr;
}

absl::Status PlanBuilder::CheckRequiredInputs(const OpSchema& schema, const Plan::PlanOp& plan_op) {
  for (const SlotSchema& slot : schema.inputs()) {
    const auto it = plan_op.kernel_spec.inputs.find(slot.name);
    const bool exists = it != plan_op.kernel_spec.inputs.end() && it->second.count > 0;
    if (exists || slot.optional) continue;
    return absl::InvalidArgumentError(
        absl::StrCat(plan_op.name, " input ", slot.name, ": expected a variable, found none"));
  }
  return absl::OkStatus();
}

absl::Status PlanBuilder::CheckRequiredSlots(const OpSchema& schema, const Plan::PlanOp& plan_op) {
  WEFT_RETURN_IF_ERROR(CheckRequiredInputs(schema, plan_op));
  for (int v : plan_op.outputs) {
    if (v != Plan::kNoVariable || schema.outputs()[0].duplicable) continue;
    return absl::InvalidArgumentError(
        absl::StrCat(plan_op.name, ": expected a variable for every output"));
  }
  return absl::OkStatus();
}

absl::Status PlanBuilder::CheckServerSlots(const OpSchema& schema, const Plan::PlanOp& plan_op) {
  WEFT_RETURN_IF_ERROR(CheckRequiredInputs(schema, plan_op));
  for (const SlotSchema& slot : schema.outputs()) {
    if (slot.optional || plan_op.kernel_spec.Output(slot.name) >= 0) continue;
    return absl::InvalidArgumentError(
        absl::StrCat(plan_op.name, " output ", slot.name, ": expected a variable, found none"));
  }
  return absl::OkStatus();
}

void PlanBuilder::SetControl(ControlKernel move, Plan::PlanOp* plan_op) const {
  const OpSchema& sum = SumSchema();
  KernelSpec spec;
  spec.schema = &sum;
  spec.attrs = OpAttrs::Make(sum);
  spec.inputs["X"] = {0, 2};
  spec.outputs["Out"] = {0, 1};
  plan_op->work =
      Plan::ControlWork{std::move(move), KernelsOn(device_, sum.type()).Find(sum.type())};
  plan_op->kernel_spec = std::move(spec);
}

void PlanBuilder::AddPlanOp(Plan::PlanOp plan_op) {
  plan_op.device = device_;
  RecordAccesses(plan_op);
  Step step;
  step.kind = Step::Kind::kOp;
  step.index = static_cast<int>(plan_.ops.size());
  plan_.ops.push_back(std::move(plan_op));
  steps_.push_back(step);
}

absl::Status PlanBuilder::CheckNumRanks(const Op& op, const std::string& name) const {
  if (!op.HasAttr(kNumRanksAttr)) return absl::OkStatus();
  const int64_t nranks = op.IntAttr(kNumRanksAttr).value_or(0);
  if (nranks == options_.nranks) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(name, ": written for ", nranks, nranks == 1 ? " rank" : " ranks",
                   " (attribute nranks), but the run has ", options_.nranks));
}

int PlanBuilder::PlanVariable(VarId id) const {
  const auto it = plan_variable_.find(id.value());
  return it == plan_variable_.end() ? static_cast<int>(id.value()) : it->second;
}

absl::StatusOr<int> PlanBuilder::Resolve(Symbol symbol, const std::string& op_name) const {
  if (program_.name(symbol) == kEmptyVarName) return Plan::kNoVariable;
  for (int b = block_; b != -1; b = program_.block(b).parent_idx()) {
    VarId variable = program_.block(b).FindVar(symbol);
    const int forward = program_.block(b).forward_block_idx();
    if (!variable.valid() && forward >= 0 && forward < program_.num_blocks()) {
      variable = program_.block(forward).FindVar(symbol);
    }
    if (variable.valid()) return PlanVariable(variable);
    const auto local = locals_.find({b, symbol});
    if (local != locals_.end()) return local->second;
  }
  return absl::InvalidArgumentError(
      absl::StrCat(op_name, ": variable ", program_.name(symbol), " is not declared"));
}

absl::Status PlanBuilder::ResolveAll(absl::Span<const Symbol> symbols, const std::string& op_name,
                                     std::vector<int>* variables) const {
  for (Symbol symbol : symbols) {
    WEFT_ASSIGN_OR_RETURN(const int variable, Resolve(symbol, op_name));
    variables->push_back(variable);
  }
  return absl::OkStatus();
}

int PlanBuilder::CountOfSlot(const Op& op, const OpSignature::Slot& slot) const {
  if (slot.count == 1 && program_.name(op.args(slot)[0]) == kEmptyVarName) return 0;
  return static_cast<int>(slot.count);
}

absl::Status PlanBuilder::FillArguments(const Op& op, Plan::PlanOp* plan_op) const {
  KernelSpec& spec = plan_op->kernel_spec;
  const OpSignature& signature = op.signature();
  const int num_inputs = static_cast<int>(signature.num_input_args);
  for (const OpSignature::Slot& slot : signature.inputs) {
    spec.inputs[std::string(program_.name(slot.name))] = {static_cast<int>(slot.first),
                                                          CountOfSlot(op, slot)};
  }
  for (const OpSignature::Slot& slot : signature.outputs) {
    spec.outputs[std::string(program_.name(slot.name))] = {
        static_cast<int>(slot.first) - num_inputs, CountOfSlot(op, slot)};
  }
  WEFT_RETURN_IF_ERROR(ResolveAll(op.input_args(), plan_op->name, &plan_op->inputs));
  return ResolveAll(op.output_args(), plan_op->name, &plan_op->outputs);
}

absl::Status PlanBuilder::FillKernel(const Op& op, const OpSchema& schema, OpAttrs attrs,
                                     Plan::PlanOp* plan_op) {
  KernelSpec& spec = plan_op->kernel_spec;
  spec.schema = &schema;
  spec.attrs = std::move(attrs);
  spec.paddle_cpu_quirks = options_.paddle_cpu_quirks;
  spec.tf32 = options_.tf32;
  if (schema.Has(Trait::kSideEffect)) {
    for (Symbol name : op.input_args()) spec.input_names.emplace_back(program_.name(name));
  }
  const std::string& type = schema.type();
  const KernelTable& kernels = KernelsOn(device_, type);
  const KernelFactory* const factory =
      plan_op->has_rows ? kernels.FindForRows(type) : kernels.Find(type);
  const bool is_copy = plan_.on_two_devices && CopiesFrom(type).has_value();
  if (is_copy) plan_op->work = Plan::CopyWork{factory};
  if (!is_copy) plan_op->work = Plan::KernelWork{factory};
  // Only to check that the kernel can be made.
  const absl::Status status = MakeKernel(*factory, spec).status();
  if (status.ok()) return status;
  const std::string message = absl::StrCat(plan_op->name, ": ", status.message());
  if (!absl::IsUnimplemented(status)) return absl::Status(status.code(), message);
  unsupported_.push_back(message);
  return absl::OkStatus();
}

absl::Status PlanBuilder::AddCollectives(const Op& op, const CollectiveOp& collective,
                                         const OpAttrs& attrs, const Plan::PlanOp& plan_op) {
  std::vector<int> in, out, condition;
  WEFT_RETURN_IF_ERROR(ResolveAll(collective.Inputs(op), plan_op.name, &in));
  WEFT_RETURN_IF_ERROR(ResolveAll(collective.Outputs(op), plan_op.name, &out));
  WEFT_RETURN_IF_ERROR(ResolveAll(op.Input("Cond"), plan_op.name, &condition));
  const bool has_empty =
      absl::c_linear_search(in, Plan::kNoVariable) || absl::c_linear_search(out, Plan::kNoVariable);
  if (in.size() != out.size() || in.empty() || has_empty ||
      (in.size() > 1 && !collective.takes_several)) {
    return absl::InvalidArgumentError(
        absl::StrCat(plan_op.name, ": expected ",
                     collective.takes_several ? "as many variables in " : "one variable in ",
                     collective.in, collective.takes_several ? " as in " : " and one in ",
                     collective.out, ", found ", in.size(), " and ", out.size()));
  }
  const std::string accumulate_type =
      op.StringAttr(kAccumulateTypeAttr).value_or(std::string(kAccumulatesInFp32));
  if (accumulate_type != kAccumulatesInFp32 && accumulate_type != kAccumulatesNatively) {
    return absl::InvalidArgumentError(
        absl::StrCat(plan_op.name, ": attribute ", kAccumulateTypeAttr, ": expected fp32 or ",
                     kAccumulatesNatively, ", found '", accumulate_type, "'"));
  }
  for (size_t i = 0; i < in.size(); ++i) {
    Plan::PlanOp one = plan_op;
    Plan::CollectiveWork work;
    work.desc.kind = collective.kind;
    work.desc.reduction = collective.reduction;
    work.desc.rounds_each_addition = accumulate_type == kAccumulatesNatively;
    if (!collective.root_attr.empty()) {
      work.desc.root = static_cast<int>(attrs.Int(collective.root_attr));
    }
    one.inputs = {in[i]};
    one.inputs.insert(one.inputs.end(), condition.begin(), condition.end());
    one.outputs = {out[i]};
    // In Paddle, the host waits for a barrier.
    const bool on_compute_stream = op.type() == kBarrierType ||
                                   (attrs.Has("use_calc_stream") && attrs.Bool("use_calc_stream"));
    RingKey ring{static_cast<int>(attrs.Int("ring_id")), on_compute_stream};
    WEFT_ASSIGN_OR_RETURN(ring.ranks, RanksOfRing(op));
    const bool is_in_place = in[i] == out[i] && collective.kind != CollectiveKind::kAllGather &&
                             collective.kind != CollectiveKind::kReduceScatter;
    if (!ring.ranks.empty() && !is_in_place) {
      return absl::UnimplementedError(
          absl::StrCat(plan_op.name, ": expected a collective that works in place, as ranks that ",
                       "are not in group_ranks keep their values"));
    }
    work.ring = RingIndex(ring);
    one.work = work;
    AddPlanOp(std::move(one));
  }
  return absl::OkStatus();
}

absl::Status PlanBuilder::AddMessage(const Op& op, const OpAttrs& attrs, Plan::PlanOp plan_op) {
  const bool sends = FindMessageOp(op.type()) == MessageOp::kSend;
  if (!options_.rank.has_value()) {
    return absl::FailedPreconditionError(absl::StrCat(
        plan_op.name, ": ", sends ? "sends to" : "receives from",
        " one rank, but several ranks of this process run the program: start a process for each "
        "rank, with a program of its own"));
  }
  if (attrs.Bool("dynamic_shape")) {
    return absl::UnimplementedError(
        absl::StrCat(plan_op.name, " attribute dynamic_shape: expected false, found true"));
  }
  WEFT_ASSIGN_OR_RETURN(const std::vector<int> group, RanksOfRing(op));
  RingKey ring{static_cast<int>(attrs.Int("ring_id")), attrs.Bool("use_calc_stream"), group};
  if (!ring.Has(*options_.rank)) return absl::OkStatus();
  const int size = SizeOf(ring, options_.nranks), position = PositionOf(ring, *options_.rank);
  const int64_t peer = attrs.Int("peer");
  if (peer < 0 || peer >= size || peer == position) {
    return absl::InvalidArgumentError(
        absl::StrCat(plan_op.name, " attribute peer: expected another rank than ", position,
                     ", 0 or more and below ", size, ", found ", peer));
  }
  const int other = RankAt(ring, static_cast<int>(peer));
  ring.ranks = {std::min(*options_.rank, other), std::max(*options_.rank, other)};
  Plan::MessageWork work;
  work.desc.kind = CollectiveKind::kSend;
  work.desc.root = PositionOf(ring, sends ? *options_.rank : other);
  work.desc.peer = 1 - work.desc.root;
  std::vector<int>& arguments = sends ? plan_op.inputs : plan_op.outputs;
  WEFT_RETURN_IF_ERROR(
      ResolveAll(sends ? op.Input("X") : op.Output("Out"), plan_op.name, &arguments));
  if (arguments.size() != 1 || arguments[0] == Plan::kNoVariable) {
    return absl::InvalidArgumentError(absl::StrCat(plan_op.name, sends ? " input X" : " output Out",
                                                   ": expected one variable, found ",
                                                   arguments.size()));
  }
  if (!sends) {
    const std::vector<int64_t> shape = attrs.Ints("out_shape");
    work.received = {*DTypeFromProto(static_cast<int>(attrs.Int("dtype"))),
                     Dims(shape.begin(), shape.end())};
  }
  work.ring = RingIndex(ring);
  plan_op.work = std::move(work);
  AddPlanOp(std::move(plan_op));
  return absl::OkStatus();
}

absl::StatusOr<std::vector<int>> PlanBuilder::RanksOfRing(const Op& op) {
  WEFT_ASSIGN_OR_RETURN(std::vector<int> ranks, GroupRanksOf(op));
  if (!ranks.empty() && ranks.back() >= options_.nranks) {
    return absl::InvalidArgumentError(
        absl::StrCat(op.DebugName(), " attribute ", kGroupRanksAttr, ": expected ranks below ",
                     options_.nranks, ", the number of ranks of the run, found ", ranks.back()));
  }
  if (static_cast<int>(ranks.size()) == options_.nranks) ranks.clear();
  const auto [known, is_new] = ranks_of_ring_.emplace(RingOf(op), ranks);
  if (is_new || known->second == ranks) return ranks;
  return absl::InvalidArgumentError(absl::StrCat(
      op.DebugName(), " attribute ", kGroupRanksAttr, ": expected ", GroupText(known->second),
      ", as for other ops on ring ", RingOf(op), ", found ", GroupText(ranks)));
}

int PlanBuilder::RingIndex(const RingKey& ring) {
  std::vector<RingKey>& rings = plan_.rings;
  const auto it = std::find(rings.begin(), rings.end(), ring);
  if (it != rings.end()) return static_cast<int>(it - rings.begin());
  rings.push_back(ring);
  return static_cast<int>(rings.size()) - 1;
}

void PlanBuilder::RecordAccesses(const Plan::PlanOp& op) {
  for (int v : op.inputs) {
    if (v == Plan::kNoVariable || !op.reads_inputs) continue;
    Plan::Variable& variable = plan_.variables[v];
    if (variable.is_written || variable.first_reader >= 0) continue;
    if (plan_.reader_names.empty() || plan_.reader_names.back() != op.name) {
      plan_.reader_names.push_back(op.name);
    }
    variable.first_reader = static_cast<int>(plan_.reader_names.size()) - 1;
  }
  for (int v : op.outputs) {
    if (v != Plan::kNoVariable) plan_.variables[v].is_written = true;
  }
}

absl::StatusOr<Plan> Plan::Build(const Program& program, const PlanOptions& options) {
  return PlanBuilder(program, options).Build();
}

const Plan::RingWork* Plan::PlanOp::ring_work() const {
  if (const auto* const collective = std::get_if<CollectiveWork>(&work)) return collective;
  return std::get_if<MessageWork>(&work);
}

const KernelFactory* Plan::PlanOp::factory() const {
  if (const auto* const kernel = std::get_if<KernelWork>(&work)) return kernel->factory;
  if (const auto* const copy = std::get_if<CopyWork>(&work)) return copy->factory;
  const auto* const control = std::get_if<ControlWork>(&work);
  return control == nullptr ? nullptr : control->add;
}

int Plan::FindVariable(absl::string_view name) const {
  const auto it = variable_of_name.find(name);
  return it == variable_of_name.end() ? kNoVariable : it->second;
}

}  // namespace weft
