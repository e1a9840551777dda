#include "tests/replay/program.h"

#include <algorithm>
#include <iterator>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "ops/schema/communication_ops.h"
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

RankCall CallOf(const pb::OpDesc& op) {
  const std::string& type = op.type();
  if (FindCollectiveOp(type) != nullptr) return RankCall::kCollective;
  if (absl::StartsWith(type, "c_gen_")) return RankCall::kMakeId;
  if (absl::StartsWith(type, "c_comm_init")) {
    return op.inputs_size() > 0 ? RankCall::kJoin : RankCall::kJoinAll;
  }
  if (type == "barrier" || absl::StartsWith(type, "sync_batch_norm")) return RankCall::kMeet;
  if (type == "send_v2") return RankCall::kSend;
  if (type == "recv_v2") return RankCall::kReceive;
  return RankCall::kNone;
}

ReplayOp Compile(const pb::OpDesc& desc, int number) {
  ReplayOp op;
  op.desc = &desc;
  op.type = desc.type();
  op.place = absl::StrCat("op ", number, " (", op.type, ")");
  op.inputs = Args(desc.inputs());
  op.outputs = Args(desc.outputs());
  op.call = CallOf(desc);
  op.collective = FindCollectiveOp(op.type);
  op.sync = FindStreamSyncOp(op.type);
  op.ring = static_cast<int>(NumberOf(desc, "ring_id"));
  if (const pb::OpDesc::Attr* group = FindAttr(desc, kGroupRanksAttr)) {
    op.group.assign(group->ints().begin(), group->ints().end());
  }
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
    if (found == vars[block].end()) continue;
    return {found->second->persistable() ? 0 : block, found->second};
  }
  return {0, nullptr};
}

ReplayProgram CompileForReplay(const pb::ProgramDesc& desc) {
  ReplayProgram program;
  program.desc = &desc;
  bool joins_by_id = false;
  for (const pb::BlockDesc& block : desc.blocks()) {
    program.blocks.emplace_back();
    program.vars.emplace_back();
    for (const pb::VarDesc& var : block.vars()) {
      program.vars.back().emplace(var.name(), &var);
      if (var.persistable()) program.persistable.insert(var.name());
    }
    for (const pb::OpDesc& op : block.ops()) {
      program.blocks.back().push_back(Compile(op, static_cast<int>(program.blocks.back().size())));
      const RankCall call = program.blocks.back().back().call;
      program.is_one_process = program.is_one_process || call == RankCall::kJoinAll;
      joins_by_id = joins_by_id || call == RankCall::kJoin;
    }
  }
  if (program.blocks.empty()) program.blocks.emplace_back();
  if (joins_by_id) program.is_one_process = false;
  return program;
}

}  // namespace weft::testing
