#include "tests/mutation/mutations.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "ops/schema/communication_ops.h"
#include "ops/schema/op_kinds.h"
#include "proto/op_role.h"
#include "tests/mutation/mutation_edits.h"
#include "tests/mutation/setup_mutations.h"

namespace weft::testing {
namespace {

bool IsInPlace(const pb::OpDesc& op) {
  return ArgsOf(op.inputs(), "X") == ArgsOf(op.outputs(), "Out");
}

pb::OpDesc Assign(const std::string& from, const std::string& to) {
  pb::OpDesc op;
  op.set_type("assign");
  SetArgs({from}, "X", op.mutable_inputs());
  SetArgs({to}, "Out", op.mutable_outputs());
  SetInt(&op, kOpRoleAttr, kRoleBackward);
  return op;
}

class Generator {
 public:
  Generator(const ProgramDescs& programs, int nranks) : programs_(programs), nranks_(nranks) {}

  std::vector<Mutation> Run() {
    for (bool is_startup : {false, true}) {
      const pb::ProgramDesc& program = is_startup ? programs_.startup : programs_.main;
      FindRings(program);
      for (int block = 0; block < program.blocks_size(); ++block) {
        for (int i = 0; i < program.blocks(block).ops_size(); ++i) {
          AddFor({is_startup, block, i}, program.blocks(block).ops(i));
        }
      }
    }
    return std::move(mutations_);
  }

 private:
  void FindRings(const pb::ProgramDesc& program) {
    for (const pb::BlockDesc& block : program.blocks()) {
      for (const pb::OpDesc& op : block.ops()) {
        if (FindCollectiveOp(op.type()) != nullptr) rings_.insert(RingOf(op));
      }
    }
  }

  void Add(const std::string& kind, const Place& place, const std::string& detail,
           std::function<void(ProgramDescs*)> apply, bool one_rank = false) {
    const pb::OpDesc& op = OpsOf(programs_, place).Get(place.op);
    Mutation mutation;
    mutation.kind =
        absl::StrCat(one_rank ? "one rank: " : "", place.is_startup ? "startup: " : "", kind);
    mutation.what =
        absl::StrCat(place.is_startup ? "startup" : "main", " block ", place.block, " op ",
                     place.op, " (", op.type(), ")", detail.empty() ? "" : ": ", detail);
    mutation.one_rank = one_rank;
    mutation.of_startup = place.is_startup;
    mutation.apply = std::move(apply);
    mutations_.push_back(std::move(mutation));
  }

  void AddFor(const Place& place, const pb::OpDesc& op) {
    if (FindStreamSyncOp(op.type()).has_value()) return AddForMoving("sync", place, op);
    if (FindCollectiveOp(op.type()) != nullptr) {
      AddForCollective(place, op);
      if (op.type() == "c_allgather") AddForGather(place, op);
      return;
    }
    if (place.is_startup) return AddForPart(place, op);
    if (op.type() == "coalesce_tensor") return AddForBuffer(place, op);
    AddForComputation(place, op);
    if (op.type() == "scale") return AddForScale(place, op);
    if (IsUpdate(op)) return AddForUpdate(place, op);
    if (SubBlockOf(op) >= 0) return AddForBlock(place, op);
    AddForLowRank(place, op);
    AddForLocalSgd(place, op);
  }

  // --- Synchronizations and collectives ----------------------------------------------------------

  void AddForMoving(const std::string& what, const Place& place, const pb::OpDesc& op) {
    Add(what + ": drop", place, "", [place](ProgramDescs* p) { Erase(OpsOf(p, place), place.op); });
    Add(what + ": duplicate", place, "", [place](ProgramDescs* p) {
      const pb::OpDesc copy = *OpOf(p, place);
      Insert(OpsOf(p, place), place.op + 1, copy);
    });
    AddMoves(what, place, op);
    const std::string other = OtherVariable(place, op);
    if (!other.empty()) {
      const std::string own = ArgsOf(op.inputs(), "X")[0];
      Add(what + ": other variable", place, other,
          [place, own, other](ProgramDescs* p) { Rename(own, other, OpOf(p, place)); });
    }
    for (int ring : OtherRings(RingOf(op))) {
      if (FindAttr(op, "ring_id") == nullptr) break;
      Add(what + ": other ring", place, absl::StrCat("ring ", ring),
          [place, ring](ProgramDescs* p) { SetInt(OpOf(p, place), "ring_id", ring); });
    }
  }

  void AddMoves(const std::string& what, const Place& place, const pb::OpDesc& op) {
    const Ops& ops = OpsOf(programs_, place);
    for (int step : {-1, 1}) {
      int other = place.op + step;
      while (other >= 0 && other < ops.size() && !ShareNames(op, ops.Get(other))) other += step;
      if (other < 0 || other >= ops.size()) continue;
      Add(absl::StrCat(what, step < 0 ? ": move earlier" : ": move later"), place,
          absl::StrCat("past op ", other, " (", ops.Get(other).type(), ")"),
          [place, other](ProgramDescs* p) { Move(OpsOf(p, place), place.op, other); });
    }
    if (place.op + 1 < ops.size()) {
      Add(what + ": move to end", place, "", [place](ProgramDescs* p) {
        Move(OpsOf(p, place), place.op, OpsOf(p, place)->size() - 1);
      });
    }
  }

  // One that is used, and one that nobody sets up.
  std::vector<int> OtherRings(int ring) const {
    std::vector<int> others;
    for (int other : rings_) {
      if (other != ring && others.empty()) others.push_back(other);
    }
    others.push_back(kNoRing);
    return others;
  }

  // Of the same type as the first of X; empty: there is none.
  std::string OtherVariable(const Place& place, const pb::OpDesc& op) const {
    const std::vector<std::string> args = ArgsOf(op.inputs(), "X");
    return args.empty() ? "" : OtherVariable(place, op, args[0]);
  }

  // That the op does not name.
  std::string OtherVariable(const Place& place, const pb::OpDesc& op,
                            const std::string& name_of_own) const {
    const pb::ProgramDesc& program = ProgramOf(programs_, place);
    const pb::VarDesc* own = FindVar(program, place.block, name_of_own);
    if (own == nullptr || TensorOf(*own) == nullptr) return "";
    const std::set<std::string> named = NamesOf(op);
    for (const std::string& name : NamedIn(place)[KindOf(*own)]) {
      if (named.count(name) == 0) return name;
    }
    return "";
  }

  using NamesByKind = std::map<std::string, std::vector<std::string>>;

  static std::string KindOf(const pb::VarDesc& var) {
    return absl::StrCat(TypeText(var), var.persistable() ? " persistable" : "");
  }

  // The variables that ops of a block name, those of collectives first.
  NamesByKind& NamedIn(const Place& place) const {
    const auto [it, is_new] = named_in_.try_emplace({place.is_startup, place.block});
    if (!is_new) return it->second;
    const pb::ProgramDesc& program = ProgramOf(programs_, place);
    std::map<absl::string_view, const pb::VarDesc*> vars;
    for (int block = place.block; block >= 0; block = program.blocks(block).parent_idx()) {
      for (const pb::VarDesc& var : program.blocks(block).vars()) vars.emplace(var.name(), &var);
    }
    std::set<std::string> seen;
    for (bool of_collective : {true, false}) {
      for (const pb::OpDesc& op : OpsOf(programs_, place)) {
        if (of_collective && FindCollectiveOp(op.type()) == nullptr) continue;
        for (const std::string& name : NamesOf(op)) {
          const auto var = vars.find(name);
          if (var == vars.end() || !seen.insert(name).second) continue;
          it->second[KindOf(*var->second)].push_back(name);
        }
      }
    }
    return it->second;
  }

  void AddForCollective(const Place& place, const pb::OpDesc& op) {
    AddForMoving("collective", place, op);
    AddSwap(place, op, /*one_rank=*/false);
    AddForArguments(place, op, /*one_rank=*/false);
    AddForGroup(place, op, /*one_rank=*/false);
    // One rank alone.
    const bool one_rank = true;
    AddSwap(place, op, one_rank);
    AddForArguments(place, op, one_rank);
    AddForGroup(place, op, one_rank);
    Add(
        "collective: drop", place, "",
        [place](ProgramDescs* p) { Erase(OpsOf(p, place), place.op); }, one_rank);
    for (int ring : OtherRings(RingOf(op))) {
      if (ring == kNoRing) continue;  // is wrong for one rank and for all
      Add(
          "collective: other ring", place, absl::StrCat("ring ", ring),
          [place, ring](ProgramDescs* p) { SetInt(OpOf(p, place), "ring_id", ring); }, one_rank);
    }
    if (place.op + 1 < OpsOf(programs_, place).size()) {
      Add(
          "collective: move to end", place, "",
          [place](ProgramDescs* p) {
            Move(OpsOf(p, place), place.op, OpsOf(p, place)->size() - 1);
          },
          one_rank);
    }
  }

  void AddSwap(const Place& place, const pb::OpDesc& op, bool one_rank) {
    const Ops& ops = OpsOf(programs_, place);
    for (int i = place.op + 1; i < ops.size(); ++i) {
      const pb::OpDesc& other = ops.Get(i);
      if (FindCollectiveOp(other.type()) == nullptr) continue;
      // Of two rings, the order matters where ranks disagree on it.
      if (RingOf(other) != RingOf(op) && !one_rank) continue;
      Add(
          "collective: swap", place, absl::StrCat("with op ", i),
          [place, i](ProgramDescs* p) { OpsOf(p, place)->SwapElements(place.op, i); }, one_rank);
      return;
    }
  }

  void AddForArguments(const Place& place, const pb::OpDesc& op, bool one_rank) {
    const CollectiveOp& collective = *FindCollectiveOp(op.type());
    const std::vector<std::string> args = ArgsOf(op.inputs(), "X");
    const pb::VarDesc* var =
        args.empty() ? nullptr : FindVar(ProgramOf(programs_, place), place.block, args[0]);
    if (var != nullptr && TensorOf(*var) != nullptr) {
      const std::string name = args[0];
      const bool is_single = TensorOf(*var)->data_type() == pb::VarType::FP32;
      Add(
          "collective: element type", place, name,
          [place, name, is_single](ProgramDescs* p) {
            MutableTensorOf(FindVar(&ProgramOf(p, place), place.block, name))
                ->set_data_type(is_single ? pb::VarType::FP16 : pb::VarType::FP32);
          },
          one_rank);
      if (TensorOf(*var)->dims_size() > 0 && TensorOf(*var)->dims(0) > 0) {
        Add(
            "collective: number of elements", place, name,
            [place, name](ProgramDescs* p) {
              pb::VarType::TensorDesc* tensor =
                  MutableTensorOf(FindVar(&ProgramOf(p, place), place.block, name));
              tensor->set_dims(0, tensor->dims(0) + 1);
            },
            one_rank);
      }
    }
    if (!collective.root_attr.empty()) {
      const std::string attr(collective.root_attr);
      const int root = static_cast<int>(NumberOf(op, attr));
      for (int other : {(root + 1) % nranks_, nranks_}) {
        Add(
            "collective: root", place, absl::StrCat(attr, "=", other),
            [place, attr, other](ProgramDescs* p) { SetInt(OpOf(p, place), attr, other); },
            one_rank);
      }
    }
    if (collective.kind == CollectiveKind::kAllReduce) {
      for (const char* type : {"c_allreduce_sum", "c_allreduce_avg", "c_allreduce_max"}) {
        if (op.type() == type || op.type() == "c_allreduce_xsum") continue;
        Add(
            "collective: reduction", place, type,
            [place, type](ProgramDescs* p) { OpOf(p, place)->set_type(type); }, one_rank);
      }
    }
  }

  void AddForGroup(const Place& place, const pb::OpDesc& op, bool one_rank) {
    const pb::OpDesc::Attr* const group = FindAttr(op, kGroupRanksAttr);
    if (group == nullptr || group->ints_size() == 0) return;
    const auto add = [&](const std::string& what, const std::vector<int>& ranks) {
      Add(
          "group: " + what, place, "",
          [place, ranks](ProgramDescs* p) {
            for (pb::OpDesc::Attr& attr : *OpOf(p, place)->mutable_attrs()) {
              if (attr.name() != kGroupRanksAttr) continue;
              attr.mutable_ints()->Assign(ranks.begin(), ranks.end());
            }
          },
          one_rank);
    };
    std::vector<int> others, all;
    for (int rank : group->ints()) others.push_back((rank + group->ints_size()) % nranks_);
    std::sort(others.begin(), others.end());
    for (int rank = 0; rank < nranks_; ++rank) all.push_back(rank);
    add("ranks of another one", others);
    add("all ranks", all);
  }

  // --- Buffers -----------------------------------------------------------------------------------

  // Replaces member i in Input and Output; "" drops it. The shapes are kept in step.
  static void SetMember(size_t i, const std::string& name, const Place& place, ProgramDescs* p) {
    pb::OpDesc* op = OpOf(p, place);
    for (auto [slot, slots] : {std::make_pair("Input", op->mutable_inputs()),
                               std::make_pair("Output", op->mutable_outputs())}) {
      std::vector<std::string> args = ArgsOf(*slots, slot);
      if (i >= args.size()) continue;
      if (name.empty()) {
        args.erase(args.begin() + static_cast<int64_t>(i));
      } else {
        args[i] = name;
      }
      SetArgs(args, slot, slots);
    }
    WriteShapes(place, p);
  }

  static void WriteShapes(const Place& place, ProgramDescs* p) {
    pb::OpDesc* op = OpOf(p, place);
    if (FindAttr(*op, "concated_shapes") == nullptr) return;
    pb::OpDesc::Attr *shapes = nullptr, *ranks = nullptr;
    for (pb::OpDesc::Attr& attr : *op->mutable_attrs()) {
      if (attr.name() == "concated_shapes") shapes = &attr;
      if (attr.name() == "concated_ranks") ranks = &attr;
    }
    if (shapes->longs_size() == 0 || ranks == nullptr) return;
    shapes->clear_longs();
    ranks->clear_longs();
    for (const std::string& member : ArgsOf(op->outputs(), "Output")) {
      const pb::VarDesc* var = FindVar(ProgramOf(*p, place), place.block, member);
      for (int64_t dim : TensorOf(*var)->dims()) shapes->add_longs(dim);
      ranks->add_longs(TensorOf(*var)->dims_size());
    }
  }

  void AddForBuffer(const Place& place, const pb::OpDesc& op) {
    const std::vector<std::string> members = ArgsOf(op.outputs(), "Output");
    for (size_t i = 0; i < members.size(); ++i) {
      if (members.size() > 1) {
        Add("buffer: drop member", place, members[i],
            [place, i](ProgramDescs* p) { SetMember(i, "", place, p); });
        const std::string other = members[i == 0 ? 1 : 0];
        Add("buffer: overlap", place, absl::StrCat(other, " twice"),
            [place, i, other](ProgramDescs* p) { SetMember(i, other, place, p); });
      }
    }
    if (members.size() > 1) {
      const auto swap = [place, members](ProgramDescs* p) {
        SetMember(0, members[1], place, p);
        SetMember(1, members[0], place, p);
      };
      Add("buffer: swap members", place, "", swap);
      Add("buffer: swap members", place, "", swap, /*one_rank=*/true);
    }
    // With the next buffer.
    const Ops& ops = OpsOf(programs_, place);
    for (int i = place.op + 1; i < ops.size(); ++i) {
      if (ops.Get(i).type() != "coalesce_tensor") continue;
      const std::vector<std::string> theirs = ArgsOf(ops.Get(i).outputs(), "Output");
      if (theirs.empty() || members.empty()) break;
      const Place next{place.is_startup, place.block, i};
      const std::string ours = members[0], other = theirs[0];
      Add("buffer: exchange members", place, absl::StrCat(ours, " and ", other),
          [place, next, ours, other](ProgramDescs* p) {
            SetMember(0, other, place, p);
            SetMember(0, ours, next, p);
          });
      Add("buffer: share member", place, absl::StrCat(ours, " instead of ", other, " in op ", i),
          [next, ours](ProgramDescs* p) { SetMember(0, ours, next, p); });
      break;
    }
  }

  // --- Numbers -----------------------------------------------------------------------------------

  // Of the gradient of a loss, of a gradient or of parameters: what says for how many ranks it
  // divides, or works in place outside of the forward pass.
  void AddForScale(const Place& place, const pb::OpDesc& op) {
    const bool says = FindAttr(op, "nranks") != nullptr;
    if (!says && (!IsInPlace(op) || RoleOf(op) == kRoleForward)) return AddForLocalSgd(place, op);
    const float scale = static_cast<float>(NumberOf(op, "scale"));
    if (scale == 1) return;
    Add("scale: drop", place, "", [place](ProgramDescs* p) {
      if (IsInPlace(*OpOf(p, place))) return Erase(OpsOf(p, place), place.op);
      SetFloat(OpOf(p, place), "scale", 1);
    });
    Add("scale: double", place, "",
        [place, scale](ProgramDescs* p) { SetFloat(OpOf(p, place), "scale", 2 * scale); });
    if (IsInPlace(op)) {
      Add("scale: twice", place, "", [place](ProgramDescs* p) {
        const pb::OpDesc copy = *OpOf(p, place);
        Insert(OpsOf(p, place), place.op + 1, copy);
      });
    }
    const int wrong = nranks_ + 1;
    Add("scale: wrong number of ranks", place, absl::StrCat(wrong),
        [place, scale, wrong, says, n = nranks_](ProgramDescs* p) {
          SetFloat(OpOf(p, place), "scale",
                   scale * static_cast<float>(n) / static_cast<float>(wrong));
          if (says) SetInt(OpOf(p, place), "nranks", wrong);
        });
  }

  // --- What the model computes -------------------------------------------------------------------

  void AddForComputation(const Place& place, const pb::OpDesc& op) {
    if (SubBlockOf(op) >= 0 || op.type() == "feed" || op.type() == "fetch") return;
    if (!IsUpdate(op)) {
      Add("computation: drop", place, "",
          [place](ProgramDescs* p) { Erase(OpsOf(p, place), place.op); });
    }
    for (const pb::OpDesc::Var& slot : op.inputs()) {
      if (slot.arguments_size() == 0) continue;
      const std::string own = slot.arguments(0), of = slot.parameter();
      const std::string other = OtherVariable(place, op, own);
      if (other.empty()) continue;
      Add("computation: other input", place, absl::StrCat(other, " for ", own),
          [place, of, other](ProgramDescs* p) {
            auto* slots = OpOf(p, place)->mutable_inputs();
            std::vector<std::string> args = ArgsOf(*slots, of);
            args[0] = other;
            SetArgs(args, of, slots);
          });
    }
    for (const pb::OpDesc::Attr& attr : op.attrs()) {
      static const auto* const meaningful =
          new std::set<std::string>{"alpha",   "beta1",
                                    "beta2",   "bias",
                                    "coeff",   "dropout_prob",
                                    "epsilon", "ignore_index",
                                    "lambda",  "max",
                                    "min",     "mu",
                                    "power",   "regularization_coeff",
                                    "scale",   "step",
                                    "value"};
      if (attr.type() != pb::FLOAT || meaningful->count(attr.name()) == 0) continue;
      if (attr.name() == "value" && FindAttr(op, "str_value") != nullptr &&
          !FindAttr(op, "str_value")->s().empty()) {
        continue;  // that is what counts
      }
      if (op.type() == "scale" && FindAttr(op, "nranks") != nullptr) continue;  // see above
      const std::string name = attr.name();
      // A counter of integers cuts a fraction off.
      const float value = attr.f() + (op.type() == "increment" ? 1.0F : 0.25F);
      Add("computation: number", place, absl::StrCat(name, "=", value),
          [place, name, value](ProgramDescs* p) { SetFloat(OpOf(p, place), name, value); });
    }
  }

  // --- Updates -----------------------------------------------------------------------------------

  void AddForUpdate(const Place& place, const pb::OpDesc& op) {
    Add("update: drop", place, "", [place](ProgramDescs* p) { Erase(OpsOf(p, place), place.op); });
    Add("update: duplicate", place, "", [place](ProgramDescs* p) {
      const pb::OpDesc copy = *OpOf(p, place);
      Insert(OpsOf(p, place), place.op + 1, copy);
    });
    AddMoves("update", place, op);
    const std::string grad = ArgsOf(op.inputs(), "Grad")[0];
    const pb::VarDesc* own = FindVar(programs_.main, place.block, grad);
    if (own == nullptr) return;
    const auto use = [place, grad](const std::string& other, ProgramDescs* p, int shift) {
      pb::OpDesc* update = OpsOf(p, place)->Mutable(place.op + shift);
      std::vector<std::string> grads = ArgsOf(update->inputs(), "Grad");
      grads[0] = other;
      SetArgs(grads, "Grad", update->mutable_inputs());
    };
    for (const pb::OpDesc& other : OpsOf(programs_, place)) {
      if (!IsUpdate(other)) continue;
      const std::string theirs = ArgsOf(other.inputs(), "Grad")[0];
      const pb::VarDesc* var = FindVar(programs_.main, place.block, theirs);
      if (theirs == grad || var == nullptr || TypeText(*var) != TypeText(*own)) continue;
      Add("update: other gradient", place, theirs,
          [use, theirs](ProgramDescs* p) { use(theirs, p, 0); });
      break;
    }
    // A second division, just before.
    if (own->type().has_lod_tensor()) {
      Add("update: divided again", place, grad, [place, grad, n = nranks_](ProgramDescs* p) {
        pb::OpDesc scale;
        scale.set_type("scale");
        SetArgs({grad}, "X", scale.mutable_inputs());
        SetArgs({grad}, "Out", scale.mutable_outputs());
        SetFloat(&scale, "scale", 1.0F / static_cast<float>(n));
        SetInt(&scale, "nranks", n);
        SetInt(&scale, kOpRoleAttr, kRoleBackward);
        Insert(OpsOf(p, place), place.op, scale);
      });
    }
    // The gradient as it was before the first collective that takes it, or a buffer that it is in.
    std::set<std::string> holders = {grad};
    const Ops& ops = OpsOf(programs_, place);
    for (int i = 0; i < place.op; ++i) {
      const pb::OpDesc& before = ops.Get(i);
      const std::vector<std::string> members = ArgsOf(before.outputs(), "Output");
      if (before.type() == "coalesce_tensor" &&
          std::count(members.begin(), members.end(), grad) > 0) {
        holders.insert(ArgsOf(before.outputs(), "FusedOutput")[0]);
      }
      const std::vector<std::string> args = ArgsOf(before.inputs(), "X");
      const bool takes = std::any_of(
          args.begin(), args.end(), [&](const std::string& arg) { return holders.count(arg) > 0; });
      if (!takes || FindCollectiveOp(before.type()) == nullptr) continue;
      Add("update: gradient before it is reduced", place, grad,
          [place, grad, use, i](ProgramDescs* p) {
            Declare("unreduced", grad, place, p);
            Insert(OpsOf(p, place), i, Assign(grad, "unreduced"));
            use("unreduced", p, 1);
          });
      break;
    }
  }

  // --- Shares ------------------------------------------------------------------------------------

  static bool ReadsAny(const pb::OpDesc& op, const std::set<std::string>& names) {
    for (const pb::OpDesc::Var& slot : op.inputs()) {
      for (const std::string& in : slot.arguments()) {
        if (names.count(in) > 0) return true;
      }
    }
    return false;
  }

  // A rank takes the part of rank 0, out of what ranks send each other.
  void AddForPart(const Place& place, const pb::OpDesc& op) {
    if (op.type() != "slice") return;
    const std::string parts = ArgsOf(op.inputs(), "Input")[0];
    for (const pb::OpDesc& before : OpsOf(programs_, place)) {
      if (before.type() != "alltoall" ||
          ArgsOf(before.outputs(), "Out") != std::vector<std::string>{parts}) {
        continue;
      }
      const std::string whole = ArgsOf(before.inputs(), "X")[0];
      for (bool one_rank : {false, true}) {
        Add(
            "share: part of another rank", place, "",
            [place, parts, whole](ProgramDescs* p) { Rename(parts, whole, OpOf(p, place)); },
            one_rank);
      }
    }
  }

  // The gather, and what it waits for and who for it, move behind the first op that reads a tensor
  // of its buffer.
  void AddForGather(const Place& place, const pb::OpDesc& op) {
    const std::string buffer = ArgsOf(op.outputs(), "Out")[0];
    const Ops& ops = OpsOf(programs_, place);
    std::set<std::string> members;
    for (const pb::OpDesc& other : ops) {
      if (other.type() != "coalesce_tensor" ||
          ArgsOf(other.outputs(), "FusedOutput") != std::vector<std::string>{buffer}) {
        continue;
      }
      for (const std::string& member : ArgsOf(other.outputs(), "Output")) members.insert(member);
    }
    int reader = place.op + 1;
    const auto reads = [&](const pb::OpDesc& other) {
      return !FindStreamSyncOp(other.type()).has_value() && ReadsAny(other, members);
    };
    while (reader < ops.size() && !reads(ops.Get(reader))) ++reader;
    if (reader >= ops.size()) return;
    Add("share: used before it is gathered", place, ops.Get(reader).type(),
        [place, buffer, reader](ProgramDescs* p) {
          Ops* const all = OpsOf(p, place);
          int to = reader;
          for (int i = place.op; i < to;) {
            if (NamesOf(all->Get(i)).count(buffer) == 0) {
              ++i;
            } else {
              Move(all, i, reader);
              --to;
            }
          }
        });
  }

  // --- Blocks ------------------------------------------------------------------------------------

  static bool HasCollectives(const pb::ProgramDesc& program, int block) {
    const Ops& ops = program.blocks(block).ops();
    return std::any_of(ops.begin(), ops.end(),
                       [](const pb::OpDesc& op) { return FindCollectiveOp(op.type()) != nullptr; });
  }

  void AddForBlock(const Place& place, const pb::OpDesc& op) {
    const std::vector<std::string> conditions = ArgsOf(op.inputs(), "Cond");
    if (conditions.empty() || !HasCollectives(programs_.main, SubBlockOf(op))) return;
    std::string loss;
    for (const pb::OpDesc& other : programs_.main.blocks(0).ops()) {
      const int role = RoleOf(other);
      if ((role & kRoleLoss) == 0 || (role & kRoleBackward) != 0) continue;
      if (!ArgsOf(other.outputs(), "Out").empty()) loss = ArgsOf(other.outputs(), "Out")[0];
    }
    if (!loss.empty()) {
      const std::string condition = conditions[0];
      Add("condition: own to each rank", place, loss, [place, loss, condition](ProgramDescs* p) {
        Declare("own_condition", condition, place, p);
        pb::OpDesc cast;
        cast.set_type("cast");
        SetArgs({loss}, "X", cast.mutable_inputs());
        SetArgs({"own_condition"}, "Out", cast.mutable_outputs());
        SetInt(&cast, "in_dtype", pb::VarType::FP32);
        SetInt(&cast, "out_dtype", pb::VarType::BOOL);
        SetInt(&cast, kOpRoleAttr, kRoleOptimize);
        SetArgs({"own_condition"}, "Cond", OpOf(p, place)->mutable_inputs());
        Insert(OpsOf(p, place), place.op, cast);
      });
    }
    Add(
        "condition: drop block", place, "",
        [place](ProgramDescs* p) { Erase(OpsOf(p, place), place.op); }, /*one_rank=*/true);
    // The constants and comparisons before it decide when it runs.
    const Ops& ops = OpsOf(programs_, place);
    std::set<std::string> deciding(conditions.begin(), conditions.end());
    for (int i = place.op - 1; i >= 0; --i) {
      const pb::OpDesc& before = ops.Get(i);
      const std::vector<std::string> outs = ArgsOf(before.outputs(), "Out");
      if (outs.empty() || deciding.count(outs[0]) == 0) continue;
      const std::set<std::string> names = NamesOf(before);
      deciding.insert(names.begin(), names.end());
      const Place decider{place.is_startup, place.block, i};
      if (before.type() == "fill_constant") {
        for (bool one_rank : {false, true}) {
          Add(
              "condition: other constant", decider, "",
              [decider](ProgramDescs* p) {
                pb::OpDesc* constant = OpOf(p, decider);
                const float value = static_cast<float>(NumberOf(*constant, "value")) + 1;
                SetFloat(constant, "value", value);
                for (pb::OpDesc::Attr& attr : *constant->mutable_attrs()) {
                  if (attr.name() == "str_value") attr.set_s(absl::StrCat(static_cast<int>(value)));
                }
              },
              one_rank);
        }
      }
      if (before.type() == "increment") {
        Add(
            "condition: count dropped", decider, "",
            [decider](ProgramDescs* p) { Erase(OpsOf(p, decider), decider.op); },
            /*one_rank=*/true);
      }
    }
  }

  // --- Low rank and LocalSGD ---------------------------------------------------------------------

  void AddForLowRank(const Place& place, const pb::OpDesc& op) {
    const Ops& ops = OpsOf(programs_, place);
    if (FactorsOrthonormally(op.type())) {
      Add("low rank: left matrix not orthonormal", place, "", [place](ProgramDescs* p) {
        pb::OpDesc* const factors = OpOf(p, place);
        *factors = Assign(ArgsOf(factors->inputs(), "X")[0], ArgsOf(factors->outputs(), "Q")[0]);
      });
      return;
    }
    const std::vector<std::string> outs = ArgsOf(op.outputs(), "Out");
    if (outs.size() != 1) return;
    if (absl::EndsWith(outs[0], "@BASIS")) {
      const std::string right = ArgsOf(op.inputs(), "X")[0];
      int made = 0;  // the product, before ranks reduce it
      while (made < place.op && ArgsOf(ops.Get(made).outputs(), "Out") != std::vector{right})
        ++made;
      if (made == place.op) return;
      Add("low rank: right matrix of one rank kept", place, right,
          [place, made](ProgramDescs* p) { Move(OpsOf(p, place), place.op, made + 1); });
    }
    if (!absl::EndsWith(outs[0], "@RESIDUAL")) return;
    if (op.type() == "elementwise_add") {
      Add("low rank: gradient added twice", place, "", [place](ProgramDescs* p) {
        const pb::OpDesc copy = *OpOf(p, place);
        Insert(OpsOf(p, place), place.op + 1, copy);
      });
    } else if (op.type() == "elementwise_sub") {
      Add("low rank: what is sent is kept", place, "",
          [place](ProgramDescs* p) { Erase(OpsOf(p, place), place.op); });
    }
  }

  // Snapshots, differences and averages.
  void AddForLocalSgd(const Place& place, const pb::OpDesc& op) {
    const std::set<std::string> names = NamesOf(op);
    const bool is_of = std::any_of(names.begin(), names.end(), [](const std::string& name) {
      return absl::StrContains(name, "@SNAPSHOT") || absl::StrContains(name, "local_sgd") ||
             absl::StrContains(name, "outer_");
    });
    if (!is_of || op.type() == "fill_constant") return;
    Add("local_sgd: drop", place, "",
        [place](ProgramDescs* p) { Erase(OpsOf(p, place), place.op); });
  }

  const ProgramDescs& programs_;
  const int nranks_;
  std::set<int> rings_;
  std::vector<Mutation> mutations_;
  mutable std::map<std::pair<bool, int>, NamesByKind> named_in_;  // by block
};

}  // namespace

std::vector<Mutation> AllMutations(const ProgramDescs& program, int nranks) {
  std::vector<Mutation> mutations = Generator(program, nranks).Run();
  for (Mutation& mutation : SetupMutations(program, nranks)) {
    mutations.push_back(std::move(mutation));
  }
  // By kind, in the order in which they were met.
  std::map<std::string, size_t> order;
  for (const Mutation& one : mutations) order.emplace(one.kind, order.size());
  std::stable_sort(mutations.begin(), mutations.end(), [&](const Mutation& a, const Mutation& b) {
    return order.at(a.kind) < order.at(b.kind);
  });
  return mutations;
}

}  // namespace weft::testing
