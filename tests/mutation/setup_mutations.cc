#include "tests/mutation/setup_mutations.h"

#include <algorithm>
#include <functional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "ops/schema/communication_ops.h"
#include "ops/schema/op_attrs.h"
#include "proto/op_role.h"
#include "tests/mutation/mutation_edits.h"

namespace weft::testing {
namespace {

enum class By { kAll, kOne };

pb::OpDesc::Attr* MutableAttr(pb::OpDesc* op, absl::string_view name) {
  for (pb::OpDesc::Attr& attr : *op->mutable_attrs()) {
    if (attr.name() == name) return &attr;
  }
  return nullptr;
}

void EraseAttr(pb::OpDesc* op, absl::string_view name) {
  auto* attrs = op->mutable_attrs();
  for (int i = attrs->size() - 1; i >= 0; --i) {
    if (attrs->Get(i).name() == name) attrs->DeleteSubrange(i, 1);
  }
}

bool IsSetUp(const pb::OpDesc& op) {
  return absl::StartsWith(op.type(), "c_gen_") || absl::StartsWith(op.type(), "c_comm_init");
}

bool IsCommunication(const pb::OpDesc& op) {
  return FindCollectiveOp(op.type()) != nullptr || FindStreamSyncOp(op.type()).has_value();
}

// Everywhere: declarations, arguments, op_role_var.
void RenameThroughout(const std::string& from, const std::string& to, ProgramDescs* programs) {
  for (pb::ProgramDesc* program : {&programs->main, &programs->startup}) {
    for (pb::BlockDesc& block : *program->mutable_blocks()) {
      for (pb::VarDesc& var : *block.mutable_vars()) {
        if (var.name() == from) var.set_name(to);
      }
      for (pb::OpDesc& op : *block.mutable_ops()) {
        Rename(from, to, &op);
        pb::OpDesc::Attr* role_var = MutableAttr(&op, kOpRoleVarAttr);
        if (role_var == nullptr) continue;
        for (std::string& name : *role_var->mutable_strings()) {
          if (name == from) name = to;
        }
      }
    }
  }
}

pb::OpDesc OpOn(const std::string& type, const std::string& var, int ring) {
  pb::OpDesc op;
  op.set_type(type);
  SetArgs({var}, "X", op.mutable_inputs());
  SetArgs({var}, "Out", op.mutable_outputs());
  SetInt(&op, "ring_id", ring);
  SetInt(&op, kOpRoleAttr, kRoleOptimize);
  return op;
}

class SetupGenerator {
 public:
  SetupGenerator(const ProgramDescs& programs, int nranks) : programs_(programs), nranks_(nranks) {}

  std::vector<Mutation> Run() {
    for (bool is_startup : {false, true}) {
      const pb::ProgramDesc& program = is_startup ? programs_.startup : programs_.main;
      for (int block = 0; block < program.blocks_size(); ++block) {
        const pb::BlockDesc& desc = program.blocks(block);
        FindValueless(desc);
        for (int i = 0; i < desc.vars_size(); ++i) AddForVar({is_startup, block, i}, desc.vars(i));
        for (int i = 0; i < desc.ops_size(); ++i) AddForOp({is_startup, block, i}, desc.ops(i));
      }
    }
    AddForEndOfStep();
    AddCommunication();
    return std::move(mutations_);
  }

 private:
  using Edit = std::function<void(ProgramDescs*)>;

  void Add(const std::string& kind, bool is_startup, const std::string& what, Edit apply,
           By by = By::kAll) {
    Mutation mutation;
    mutation.kind =
        absl::StrCat(by == By::kOne ? "one rank: " : "", is_startup ? "startup: " : "", kind);
    mutation.what = absl::StrCat(is_startup ? "startup " : "main ", what);
    mutation.one_rank = by == By::kOne;
    mutation.of_startup = is_startup;
    mutation.apply = std::move(apply);
    mutations_.push_back(std::move(mutation));
  }

  void AddForOp(const std::string& kind, const Place& place, const std::string& detail,
                std::function<void(pb::OpDesc*)> edit, By by = By::kAll) {
    Add(
        kind, place.is_startup, NameOf(place, detail),
        [place, edit = std::move(edit)](ProgramDescs* p) { edit(OpOf(p, place)); }, by);
  }
  void AddForBoth(const std::string& kind, const Place& place, const std::string& detail,
                  const std::function<void(pb::OpDesc*)>& edit) {
    for (By by : {By::kAll, By::kOne}) AddForOp(kind, place, detail, edit, by);
  }
  // Of a draw. Any draw is as good where low-rank gradients begin, if all ranks make it.
  void AddForDraw(const std::string& kind, const Place& place, const std::string& detail,
                  const std::function<void(pb::OpDesc*)>& edit) {
    const pb::OpDesc& op = OpsOf(programs_, place).Get(place.op);
    const bool may_differ = absl::EndsWith(ArgsOf(op.outputs(), "Out")[0], "@BASIS");
    if (!may_differ) AddForOp(kind, place, detail, edit, By::kAll);
    // Where one process draws for all ranks, there is no rank alone.
    const Ops& ops = OpsOf(programs_, place);
    const bool has_processes = std::none_of(ops.begin(), ops.end(), [](const pb::OpDesc& other) {
      return other.type() == "c_comm_init_all";
    });
    if (!may_differ || has_processes) AddForOp(kind, place, detail, edit, By::kOne);
  }
  void AddOfBoth(const std::string& kind, const Place& place, const std::string& detail,
                 const Edit& edit) {
    for (By by : {By::kAll, By::kOne}) Add(kind, place.is_startup, NameOf(place, detail), edit, by);
  }

  std::string NameOf(const Place& place, const std::string& detail) const {
    return absl::StrCat("block ", place.block, " op ", place.op, " (",
                        OpsOf(programs_, place).Get(place.op).type(), ")",
                        detail.empty() ? "" : ": ", detail);
  }

  // --- Variables; `place.op` is the number of a variable -----------------------------------------

  static pb::VarDesc* VarOf(ProgramDescs* p, const Place& place) {
    return ProgramOf(p, place).mutable_blocks(place.block)->mutable_vars(place.op);
  }

  void AddForVar(const Place& place, const pb::VarDesc& var) {
    if (TensorOf(var) == nullptr) return;
    const auto add = [&](const std::string& kind, std::function<void(pb::VarDesc*)> edit,
                         By by = By::kAll) {
      Add(
          kind, place.is_startup, absl::StrCat("block ", place.block, " variable ", var.name()),
          [place, edit = std::move(edit)](ProgramDescs* p) { edit(VarOf(p, place)); }, by);
    };
    const bool persistable = var.persistable();
    add(persistable ? "declaration: not persistable" : "declaration: persistable",
        [persistable](pb::VarDesc* v) { v->set_persistable(!persistable); });
    if (persistable) {
      add(
          "declaration: not persistable", [](pb::VarDesc* v) { v->set_persistable(false); },
          By::kOne);
      add("mark: parameter", [](pb::VarDesc* v) { v->set_is_parameter(!v->is_parameter()); });
      AddForName(place, var);
    }
    if (valueless_.count(var.name()) > 0) return;
    const std::string of_state = persistable ? " of a state" : "";
    add(absl::StrCat("declaration: element type", of_state), [](pb::VarDesc* v) {
      const bool is_single = TensorOf(*v)->data_type() == pb::VarType::FP32;
      MutableTensorOf(v)->set_data_type(is_single ? pb::VarType::FP64 : pb::VarType::FP32);
    });
    const int dims = TensorOf(var)->dims_size();
    if (dims > 0 && TensorOf(var)->dims(dims - 1) > 0) {
      add(absl::StrCat("declaration: shape", of_state), [dims](pb::VarDesc* v) {
        pb::VarType::TensorDesc* tensor = MutableTensorOf(v);
        tensor->set_dims(dims - 1, tensor->dims(dims - 1) + 1);
      });
    }
    add("declaration: stop_gradient",
        [](pb::VarDesc* v) { v->set_stop_gradient(!v->stop_gradient()); });
    if (place.is_startup) return;
    if (absl::EndsWith(var.name(), kGradSuffix)) AddForName(place, var);
    if (var.need_check_feed()) {
      add("mark: data", [](pb::VarDesc* v) { v->set_need_check_feed(false); });
    } else if (!persistable && dims > 0 && written_by_branches_.count(var.name()) == 0) {
      add("mark: data", [](pb::VarDesc* v) { v->set_need_check_feed(true); });
    }
    if (persistable) AddShadows(place, var);
  }

  // Shapes, and the workspace of a library; and what branches write, of which a mark says that it
  // has a value without them.
  void FindValueless(const pb::BlockDesc& block) {
    valueless_.clear();
    written_by_branches_.clear();
    for (const pb::OpDesc& op : block.ops()) {
      for (const pb::OpDesc::Var& slot : op.outputs()) {
        if (FindAttr(op, "sub_block") == nullptr) break;
        written_by_branches_.insert(slot.arguments().begin(), slot.arguments().end());
      }
      for (const char* slot : {"XShape", "ReserveSpace"}) {
        for (const std::string& name : ArgsOf(op.outputs(), slot)) valueless_.insert(name);
      }
    }
  }

  void AddForName(const Place& place, const pb::VarDesc& var) {
    if (place.is_startup || place.block > 0) return;
    const std::string name = var.name();
    const std::string kind = !var.persistable()   ? "gradient"
                             : var.is_parameter() ? "parameter"
                                                  : "state";
    Add(absl::StrCat("name: ", kind), false, name,
        [name, other = absl::StrCat("other_", name)](ProgramDescs* p) {
          RenameThroughout(name, other, p);
        });
  }

  // In blocks that use a variable of the root block.
  void AddShadows(const Place& place, const pb::VarDesc& var) {
    if (place.block > 0) return;
    for (int block = 1; block < programs_.main.blocks_size(); ++block) {
      const Ops& ops = programs_.main.blocks(block).ops();
      const std::string name = var.name();
      if (std::none_of(ops.begin(), ops.end(),
                       [&](const pb::OpDesc& op) { return NamesOf(op).count(name) > 0; })) {
        continue;
      }
      Add("declaration: again in a block", false, absl::StrCat("block ", block, " variable ", name),
          [block, name](ProgramDescs* p) {
            Declare(name, name, {false, block, 0}, p);
          });
    }
  }

  // --- Ops ---------------------------------------------------------------------------------------

  void AddForOp(const Place& place, const pb::OpDesc& op) {
    if (IsSetUp(op)) return AddForSetUp(place, op);
    if (FindAttr(op, kOpRoleAttr) != nullptr && !place.is_startup) {
      const int role = RoleOf(op) == kRoleOptimize ? kRoleForward : kRoleOptimize;
      AddForOp("mark: op_role", place, absl::StrCat(role),
               [role](pb::OpDesc* o) { SetInt(o, kOpRoleAttr, role); });
    }
    const pb::OpDesc::Attr* role_var = FindAttr(op, kOpRoleVarAttr);
    if (role_var != nullptr && role_var->strings_size() > 0) {
      AddForOp("mark: op_role_var", place, "", [](pb::OpDesc* o) { EraseAttr(o, kOpRoleVarAttr); });
    }
    if (IsCommunication(op)) return AddForBorder(place, op);
    if (place.is_startup && SubBlockOf(op) < 0) AddForInitializer(place, op);
    if (op.type() == "batch_norm" && !place.is_startup) {
      AddForOp(
          "communication: sync_batch_norm", place, "",
          [](pb::OpDesc* o) { o->set_type("sync_batch_norm"); }, By::kOne);
    }
  }

  void AddForInitializer(const Place& place, const pb::OpDesc& op) {
    AddOfBoth("initializer: drop", place, "",
              [place](ProgramDescs* p) { Erase(OpsOf(p, place), place.op); });
    Add("initializer: duplicate", true, NameOf(place, ""), [place](ProgramDescs* p) {
      const pb::OpDesc copy = *OpOf(p, place);
      Insert(OpsOf(p, place), place.op + 1, copy);
    });
    // What pads a buffer matters to nobody, which the second opinion does not see.
    if (op.type() == "fill_constant" &&
        !absl::StrContains(ArgsOf(op.outputs(), "Out")[0], "padding")) {
      AddForBoth("initializer: constant", place, "", [](pb::OpDesc* o) {
        const float value = static_cast<float>(NumberOf(*o, "value")) + 1;
        SetFloat(o, "value", value);
        if (pb::OpDesc::Attr* text = MutableAttr(o, "str_value")) text->set_s(absl::StrCat(value));
      });
    }
    for (const char* range : {"max", "std"}) {
      if (FindAttr(op, range) == nullptr) continue;
      AddForDraw("initializer: range", place, range, [range](pb::OpDesc* o) {
        SetFloat(o, range, 2 * static_cast<float>(NumberOf(*o, range)));
      });
    }
    const int seed = static_cast<int>(NumberOf(op, "seed"));
    if (FindAttr(op, "seed") == nullptr) return;
    AddForDraw("initializer: seed", place, absl::StrCat(seed + 1),
               [seed](pb::OpDesc* o) { SetInt(o, "seed", seed + 1); });
    if (seed == 0) return;
    AddForDraw("initializer: no seed", place, "", [](pb::OpDesc* o) { SetInt(o, "seed", 0); });
  }

  // --- Rings -------------------------------------------------------------------------------------

  void AddForSetUp(const Place& place, const pb::OpDesc& op) {
    // Where one process sets up all ranks, there is no rank alone.
    const bool by_id = op.inputs_size() > 0 || op.outputs_size() > 0;
    const auto add = [&](const std::string& kind, const std::string& detail, const Edit& edit) {
      for (By by : {By::kAll, By::kOne}) {
        if (by == By::kAll || by_id) {
          Add(absl::StrCat("ring: ", kind), place.is_startup, NameOf(place, detail), edit, by);
        }
      }
    };
    add("drop", "", [place](ProgramDescs* p) { Erase(OpsOf(p, place), place.op); });
    add("duplicate", "", [place](ProgramDescs* p) {
      const pb::OpDesc copy = *OpOf(p, place);
      Insert(OpsOf(p, place), place.op + 1, copy);
    });
    const Ops& ops = OpsOf(programs_, place);
    for (int i = place.op + 1; i < ops.size(); ++i) {
      if (!IsSetUp(ops.Get(i)) || ops.Get(i).type() != op.type()) continue;
      add("swap", absl::StrCat("with op ", i),
          [place, i](ProgramDescs* p) { OpsOf(p, place)->SwapElements(place.op, i); });
      break;
    }
    for (const char* number : {"nranks", "ntrainers", "ring_id"}) {
      if (FindAttr(op, number) == nullptr) continue;
      const bool is_ring = absl::string_view(number) == "ring_id";
      // Ids do not belong to a ring.
      if (is_ring && op.outputs_size() > 0) continue;
      const int value = is_ring ? kNoRing : static_cast<int>(NumberOf(op, number)) + 1;
      add(is_ring ? "other ring" : "number of ranks", absl::StrCat(number, "=", value),
          [place, number, value](ProgramDescs* p) { SetInt(OpOf(p, place), number, value); });
    }
    for (const char* number : {"rank", "trainer_id"}) {
      if (FindAttr(op, number) == nullptr) continue;
      add("other rank", "", [place, number, n = nranks_](ProgramDescs* p) {
        pb::OpDesc* o = OpOf(p, place);
        SetInt(o, number, (static_cast<int>(NumberOf(*o, number)) + 1) % n);
      });
    }
    AddForEndpoints(place, op);
    const std::vector<std::string> ids = ArgsOf(op.inputs(), "X");
    if (ids.empty()) return;
    const std::string id = ids[0];
    add("id that nobody made", "", [place, id](ProgramDescs* p) {
      Declare("no_id", id, place, p);
      Rename(id, "no_id", OpOf(p, place));
    });
    for (const pb::OpDesc& other : ops) {
      const std::vector<std::string> others = ArgsOf(other.inputs(), "X");
      if (!IsSetUp(other) || others.empty() || others[0] == id) continue;
      add("id of another ring", others[0],
          [place, id, theirs = others[0]](ProgramDescs* p) { Rename(id, theirs, OpOf(p, place)); });
      break;
    }
  }

  void AddForEndpoints(const Place& place, const pb::OpDesc& op) {
    const std::string unknown = "127.0.0.1:9999";
    if (FindAttr(op, "endpoint") != nullptr) {
      AddOfBoth("ring: other endpoint", place, "endpoint", [place, unknown](ProgramDescs* p) {
        MutableAttr(OpOf(p, place), "endpoint")->set_s(unknown);
      });
    }
    const pb::OpDesc::Attr* others = FindAttr(op, "other_endpoints");
    if (others == nullptr || others->strings_size() == 0) return;
    // What rank 0 alone reads.
    Add("ring: other endpoint", place.is_startup, NameOf(place, "other_endpoints"),
        [place, unknown](ProgramDescs* p) {
          MutableAttr(OpOf(p, place), "other_endpoints")->set_strings(0, unknown);
        });
  }

  // --- The border between two steps --------------------------------------------------------------

  void AddForBorder(const Place& place, const pb::OpDesc& op) {
    if (place.is_startup || place.op == 0) return;
    const bool is_collective = FindCollectiveOp(op.type()) != nullptr;
    Add(is_collective ? "border: collective to the next step" : "border: sync to the next step",
        false, NameOf(place, ""), [place](ProgramDescs* p) { Move(OpsOf(p, place), place.op, 0); });
  }

  // Parameters that all ranks get from rank 0 at the end of a step.
  void AddForEndOfStep() {
    int ring = -1;
    for (const pb::BlockDesc& block : programs_.main.blocks()) {
      for (const pb::OpDesc& op : block.ops()) {
        if (FindCollectiveOp(op.type()) != nullptr && ring < 0) ring = RingOf(op);
      }
    }
    if (ring < 0) return;
    for (const pb::VarDesc& var : programs_.main.blocks(0).vars()) {
      if (!var.persistable() || !var.is_parameter() || TensorOf(var) == nullptr) continue;
      const auto broadcast = [ring, name = var.name()](ProgramDescs* p) {
        *p->main.mutable_blocks(0)->add_ops() = OpOn("c_wait_compute", name, ring);
        pb::OpDesc* op = p->main.mutable_blocks(0)->add_ops();
        *op = OpOn("c_broadcast", name, ring);
        SetInt(op, "root", 0);
        pb::OpDesc::Attr* attr = op->add_attrs();
        attr->set_name("use_calc_stream");
        attr->set_type(pb::BOOLEAN);
        attr->set_b(false);
      };
      Add("border: collective without a wait", false, var.name(), broadcast);
      Add("border: collective with a wait", false, var.name(),
          [broadcast, ring, name = var.name()](ProgramDescs* p) {
            broadcast(p);
            Insert(p->main.mutable_blocks(0)->mutable_ops(), 0, OpOn("c_wait_comm", name, ring));
          });
    }
  }

  // --- Ops that communicate inside ---------------------------------------------------------------

  void AddCommunication() {
    const Ops& ops = programs_.main.blocks(0).ops();
    const auto parameter = std::find_if(
        programs_.main.blocks(0).vars().begin(), programs_.main.blocks(0).vars().end(),
        [](const pb::VarDesc& var) { return var.persistable() && var.is_parameter(); });
    if (parameter == programs_.main.blocks(0).vars().end()) return;
    const std::string name = parameter->name();
    const std::vector<int> shape(parameter->type().lod_tensor().tensor().dims().begin(),
                                 parameter->type().lod_tensor().tensor().dims().end());
    for (const std::string type : {"barrier", "send_v2", "recv_v2"}) {
      for (int at : {0, ops.size() / 2, ops.size()}) {
        const Edit insert = [type, name, shape, at](ProgramDescs* p) {
          pb::OpDesc op = OpOn(type, name, /*ring=*/0);
          type == "recv_v2" ? op.clear_inputs() : op.clear_outputs();
          if (type != "barrier") SetInt(&op, "peer", 0);
          if (type == "recv_v2") *op.add_attrs() = MakeAttr("out_shape", shape);
          Insert(p->main.mutable_blocks(0)->mutable_ops(), at, op);
        };
        const std::string what = absl::StrCat("before op ", at);
        for (By by : {By::kAll, By::kOne}) {
          Add(absl::StrCat("communication: ", type), false, what, insert, by);
        }
      }
    }
  }

  const ProgramDescs& programs_;
  const int nranks_;
  std::vector<Mutation> mutations_;
  std::set<std::string> valueless_, written_by_branches_;  // variables of the block
};

}  // namespace

std::vector<Mutation> SetupMutations(const ProgramDescs& program, int nranks) {
  return SetupGenerator(program, nranks).Run();
}

}  // namespace weft::testing
