#include "tests/replay/program.h"

#include <algorithm>
#include <iterator>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "proto/program.h"

namespace weft::testing {
namespace {

constexpr absl::string_view kNotSemantic[] = {"op_callstack", "op_device",   "op_namescope",
                                              "op_role",      "op_role_var", "nranks",
                                              "ring_id",      "name",        "with_quant_attr"};

bool IsRandom(const pb::OpDesc& op) {
  for (const char* type : {"uniform_random", "gaussian_random", "truncated_gaussian_random",
                           "randint", "randperm", "dropout", "bernoulli"}) {
    if (op.type() == type) return NumberOf(op, "seed") == 0;
  }
  return false;
}

std::vector<SlotArg> Args(const google::protobuf::RepeatedPtrField<pb::OpDesc::Var>& slots) {
  std::vector<SlotArg> args;
  for (const pb::OpDesc::Var& slot : slots) {
    for (int i = 0; i < slot.arguments_size(); ++i) {
      if (slot.arguments(i) == kEmptyVarName) continue;
      args.push_back({slot.parameter(), i, slot.arguments(i)});
    }
  }
  std::stable_sort(args.begin(), args.end(),
                   [](const SlotArg& a, const SlotArg& b) { return a.slot < b.slot; });
  return args;
}

ReplayOp Compile(const pb::OpDesc& desc, int number) {
  ReplayOp op;
  op.desc = &desc;
  op.type = desc.type();
  op.place = absl::StrCat("op ", number, " (", op.type, ")");
  op.inputs = Args(desc.inputs());
  op.outputs = Args(desc.outputs());
  op.collective = FindCollectiveOp(op.type);
  op.sync = FindStreamSyncOp(op.type);
  op.ring = static_cast<int>(NumberOf(desc, "ring_id"));
  op.sub_block = SubBlockOf(desc);
  op.is_random = IsRandom(desc);
  op.on_compute = op.collective == nullptr || NumberOf(desc, "use_calc_stream") != 0;
  if (op.collective != nullptr || op.sync.has_value()) return op;
  std::map<std::string, std::string> attrs;
  for (const pb::OpDesc::Attr& attr : desc.attrs()) {
    if (std::count(std::begin(kNotSemantic), std::end(kNotSemantic), attr.name()) > 0) continue;
    attrs[attr.name()] = attr.SerializeAsString();
  }
  op.identity = op.type;
  for (const auto& [name, bytes] : attrs) absl::StrAppend(&op.identity, "\n", bytes);
  return op;
}

}  // namespace

std::pair<int, const pb::VarDesc*> ReplayProgram::Find(int block, const std::string& name) const {
  for (; block >= 0 && block < static_cast<int>(vars.size());
       block = desc->blocks(block).parent_idx()) {
    const auto found = vars[block].find(name);
    if (found != vars[block].end()) return {block, found->second};
  }
  return {0, nullptr};
}

bool IsSetUp(const std::string& type) { return absl::StartsWith(type, "c_comm_init"); }

ReplayProgram CompileForReplay(const pb::ProgramDesc& desc) {
  ReplayProgram program;
  program.desc = &desc;
  std::set<int> rings;
  bool sets_up_with_id = false;
  for (const pb::BlockDesc& block : desc.blocks()) {
    program.blocks.emplace_back();
    program.vars.emplace_back();
    for (const pb::VarDesc& var : block.vars()) program.vars.back().emplace(var.name(), &var);
    for (const pb::OpDesc& op : block.ops()) {
      program.blocks.back().push_back(Compile(op, static_cast<int>(program.blocks.back().size())));
      const ReplayOp& added = program.blocks.back().back();
      if (added.collective != nullptr && !added.on_compute) rings.insert(added.ring);
      if (!IsSetUp(added.type)) continue;
      program.rings_set_up.insert(added.ring);
      program.is_one_process = true;
      sets_up_with_id = sets_up_with_id || !added.inputs.empty();
    }
  }
  if (program.blocks.empty()) program.blocks.emplace_back();
  if (sets_up_with_id) program.is_one_process = false;
  for (int ring : rings) {
    program.stream_of_ring.emplace(ring, static_cast<int>(program.stream_of_ring.size()) + 1);
  }
  return program;
}

}  // namespace weft::testing
