// grad_allreduce in the default dialect over every real program: it is refused for a stated reason,
// or the result passes a checker that knows nothing of how the passes work.
#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/types/optional.h"
#include "base/testing/test.h"
#include "proto/setting.h"
#include "tests/support/models.h"
#include "transpiler/transpile.h"

namespace weft::testing {
namespace {

// Its gradients are accumulated, and reduced in a block of their own, which the checker does not
// follow: see transpiler/passes/gradients/grad_all_reduce_test.cc and
// tests/training/train_references_test.cc.
constexpr char kAccumulating[] = "mlp_gradient_merge";

struct Case {
  int nrings = 1;
  absl::optional<int> nranks;
  std::set<std::string> distributed_params;
};

absl::Status Rewrite(const Case& test, Model* model) {
  TranspileOptions options;
  options.mode = "grad_allreduce";
  options.mode_flags["nrings"] = absl::StrCat(test.nrings);
  options.mode_flags["buckets"] = "none";  // one gradient at a time
  options.cluster.nranks = test.nranks;
  options.distributed_params = test.distributed_params;
  ProgramPair programs{&model->main, &model->startup};
  return Transpile(options, programs).status();
}

// --- The checker --------------------------------------------------------------------------------
// Works on decoded messages, each gradient on its own, in quadratic time.

using Names = absl::flat_hash_set<std::string>;

// An op of the rewritten root block.
struct SeenOp {
  pb::OpDesc desc;
  bool inserted = false;
  bool backward = false;  // by role
  int ring = 0;
  Names outputs;
  Names touched;  // by it and by the ops in its sub-blocks
};

int IntAttr(const pb::OpDesc& op, const std::string& name) {
  for (const auto& attr : op.attrs()) {
    if (attr.name() == name) return attr.i();
  }
  return 0;
}

float FloatAttr(const pb::OpDesc& op, const std::string& name) {
  for (const auto& attr : op.attrs()) {
    if (attr.name() == name) return attr.f();
  }
  return 0;
}

void AddArgs(const google::protobuf::RepeatedPtrField<pb::OpDesc::Var>& slots, Names* names) {
  for (const auto& slot : slots) names->insert(slot.arguments().begin(), slot.arguments().end());
}

void AddTouched(const pb::ProgramDesc& program, const pb::OpDesc& op, Names* names) {
  AddArgs(op.inputs(), names);
  AddArgs(op.outputs(), names);
  for (const auto& attr : op.attrs()) {
    if (attr.type() != pb::BLOCK) continue;
    for (const pb::OpDesc& inner : program.blocks(attr.block_idx()).ops()) {
      AddTouched(program, inner, names);
    }
  }
}

SeenOp See(const pb::ProgramDesc& program, const pb::OpDesc& op) {
  SeenOp seen;
  seen.desc = op;
  seen.backward = (IntAttr(op, "op_role") & 1) != 0;
  seen.ring = IntAttr(op, "ring_id");
  AddArgs(op.outputs(), &seen.outputs);
  AddTouched(program, op, &seen.touched);
  return seen;
}

// The ops of `after`; those that are not, byte for byte and in order, ops of `before` are inserted.
std::vector<SeenOp> CompareBlocks(const Program& before, const Program& after) {
  EXPECT_EQ(before.num_blocks(), after.num_blocks());
  for (int b = 1; b < before.num_blocks(); ++b) {
    EXPECT_EQ(before.block(b).ops().size(), after.block(b).ops().size());
    for (size_t i = 0; i < before.block(b).ops().size(); ++i) {
      EXPECT_EQ(before.op(before.block(b).ops()[i]).bytes(),
                after.op(after.block(b).ops()[i]).bytes());
    }
  }
  const pb::ProgramDesc desc = after.ToProto();
  const auto old_ops = before.block(0).ops();
  size_t next_old = 0;
  std::vector<SeenOp> seen;
  for (OpId id : after.block(0).ops()) {
    const Op op = after.op(id);
    SeenOp one = See(desc, op.ToProto());
    if (next_old < old_ops.size() && before.op(old_ops[next_old]).bytes() == op.bytes()) {
      ++next_old;
    } else {
      one.inserted = true;
    }
    seen.push_back(std::move(one));
  }
  EXPECT_EQ(next_old, old_ops.size()) << "an op was changed, moved or dropped";
  return seen;
}

// (gradient, parameter) of the backward ops, as the attributes have them. A gradient that only
// backward reads is a part of another one.
std::map<std::string, std::string> PairsToReduce(const std::vector<SeenOp>& ops, const Case& test) {
  std::map<std::string, std::string> pairs;
  for (const SeenOp& op : ops) {
    if (!op.backward) continue;
    for (const auto& attr : op.desc.attrs()) {
      if (attr.name() != "op_role_var") continue;
      for (int i = 0; i + 1 < attr.strings_size(); i += 2) {
        if (test.distributed_params.count(attr.strings(i)) > 0) continue;
        pairs[attr.strings(i + 1)] = attr.strings(i);
      }
    }
  }
  return pairs;
}

// One gradient: complete, then handed to a ring, reduced there, waited for, used. `touching` are
// the places of the ops that touch it.
void CheckGradient(const std::vector<SeenOp>& ops, const std::vector<int>& touching,
                   const std::string& grad, const Case& test) {
  SCOPED_TRACE(grad);
  int complete = -1;
  for (int i : touching) {
    if (!ops[i].inserted && ops[i].backward && ops[i].outputs.contains(grad)) complete = i;
  }
  ASSERT_NE(complete, -1);
  int use = static_cast<int>(ops.size());
  for (int i : touching) {
    if (i <= complete || ops[i].inserted) continue;
    EXPECT_FALSE(ops[i].backward);
    use = i;
    break;
  }

  int reduce = -1;
  for (int i : touching) {
    if (!absl::StartsWith(ops[i].desc.type(), "c_allreduce")) continue;
    EXPECT_EQ(reduce, -1) << "reduced twice";
    reduce = i;
  }
  ASSERT_GT(reduce, complete);
  ASSERT_LT(reduce, use);
  EXPECT_EQ(ops[reduce].desc.type(),
            test.nranks.has_value() ? "c_allreduce_sum" : "c_allreduce_avg");
  EXPECT_TRUE(ops[reduce].outputs.contains(grad));
  const int ring = ops[reduce].ring;
  EXPECT_GE(ring, 0);
  EXPECT_LT(ring, test.nrings);

  const auto has_wait = [&](const std::string& type, int after, int before) {
    return std::any_of(touching.begin(), touching.end(), [&](int i) {
      return after < i && i < before && ops[i].ring == ring && ops[i].desc.type() == type;
    });
  };
  EXPECT_TRUE(has_wait("c_wait_compute", complete, reduce));
  EXPECT_TRUE(has_wait("c_wait_comm", reduce, use));
}

// After every op that fills the gradient of a loss: a division, if the number of ranks is known.
void CheckScale(const std::vector<SeenOp>& ops, const Case& test) {
  size_t scales = 0, losses = 0;
  for (size_t i = 0; i < ops.size(); ++i) {
    if (ops[i].inserted && ops[i].desc.type() == "scale") ++scales;
    if (ops[i].inserted || (IntAttr(ops[i].desc, "op_role") & 0x101) != 0x101) continue;
    ++losses;
    if (!test.nranks.has_value()) continue;
    ASSERT_LT(i + 1, ops.size());
    const pb::OpDesc& scale = ops[i + 1].desc;
    EXPECT_EQ(scale.type(), "scale");
    EXPECT_EQ(scale.inputs(0).arguments(0), ops[i].desc.outputs(0).arguments(0));
    EXPECT_EQ(scale.outputs(0).arguments(0), ops[i].desc.outputs(0).arguments(0));
    EXPECT_EQ(FloatAttr(scale, "scale"), 1.0f / *test.nranks);
  }
  EXPECT_GT(losses, 0);
  EXPECT_EQ(scales, test.nranks.has_value() ? losses : 0);
}

void CheckMain(const Program& before, const Program& after, const Case& test) {
  const std::vector<SeenOp> ops = CompareBlocks(before, after);
  const auto pairs = PairsToReduce(ops, test);
  EXPECT_FALSE(pairs.empty());
  std::map<std::string, std::vector<int>> touching;
  for (size_t i = 0; i < ops.size(); ++i) {
    for (const std::string& name : ops[i].touched) touching[name].push_back(i);
  }
  for (const auto& [grad, param] : pairs) CheckGradient(ops, touching[grad], grad, test);
  CheckScale(ops, test);
  size_t reductions = 0;
  for (const SeenOp& op : ops) {
    if (absl::StartsWith(op.desc.type(), "c_allreduce")) ++reductions;
  }
  EXPECT_EQ(reductions, pairs.size()) << "something else is reduced";
}

// Every ring is set up once, then every replicated parameter broadcast once, between waits that
// name it, and after all initializers.
void CheckStartup(const Program& before, const Program& after, const Case& test) {
  const std::vector<SeenOp> ops = CompareBlocks(before, after);
  const size_t first_inserted = before.block(0).ops().size();
  std::set<int> rings;
  std::map<std::string, std::vector<int>> positions;  // of "type@ring variable"
  std::set<std::string> broadcast;
  for (size_t i = 0; i < ops.size(); ++i) {
    EXPECT_EQ(ops[i].inserted, i >= first_inserted);
    if (!ops[i].inserted) continue;
    const pb::OpDesc& op = ops[i].desc;
    const int ring = ops[i].ring;
    if (op.type() == "c_comm_init_all") {
      EXPECT_TRUE(rings.insert(ring).second);
      continue;
    }
    EXPECT_TRUE(rings.count(ring) > 0) << op.type() << " uses ring " << ring << " before set-up";
    for (const std::string& name : ops[i].touched) {
      positions[absl::StrCat(op.type(), "@", ring, " ", name)].push_back(i);
      if (op.type() != "c_broadcast") continue;
      EXPECT_TRUE(broadcast.insert(name).second) << name << " is broadcast twice";
    }
  }
  EXPECT_EQ(static_cast<int>(rings.size()), test.nrings);
  for (const std::string& name : broadcast) {
    int found = 0;
    for (int ring : rings) {
      const auto of = [&](const std::string& type) {
        return positions[absl::StrCat(type, "@", ring, " ", name)];
      };
      if (of("c_broadcast").empty()) continue;
      ++found;
      ASSERT_EQ(of("c_wait_compute").size(), 1);
      ASSERT_EQ(of("c_wait_comm").size(), 1);
      EXPECT_LT(of("c_wait_compute")[0], of("c_broadcast")[0]);
      EXPECT_LT(of("c_broadcast")[0], of("c_wait_comm")[0]);
    }
    EXPECT_EQ(found, 1) << name;
  }
  std::set<std::string> expected;
  for (VarId id : before.block(0).vars()) {
    const Var var = before.var(id);
    if (var.is_parameter()) expected.insert(std::string(var.name()));
  }
  for (const std::string& name : test.distributed_params) expected.erase(name);
  EXPECT_EQ(broadcast, expected);
}

// --- The tests -----------------------------------------------------------------------------------

class DefaultDialect : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { models_ = new std::map<std::string, Model>(ReadModels()); }
  static void TearDownTestSuite() {
    delete models_;
    models_ = nullptr;
  }
  static const std::map<std::string, Model>& models() { return *models_; }

  // Calls `check` with each model that can be rewritten.
  template <typename Check>
  static void ForEachModel(const Check& check) {
    for (const auto& [name, model] : models()) {
      if (name == kAccumulating) continue;
      SCOPED_TRACE(name);
      check(model);
    }
  }

 private:
  static std::map<std::string, Model>* models_;
};

std::map<std::string, Model>* DefaultDialect::models_ = nullptr;

TEST_F(DefaultDialect, EveryModelIsRewritten) {
  EXPECT_EQ(models().size(), 27);
  for (const auto& [name, model] : models()) {
    SCOPED_TRACE(name);
    Model copy = model;
    WEFT_EXPECT_OK(Rewrite({}, &copy));
  }
}

TEST_F(DefaultDialect, EveryGradientIsReducedBetweenItsCompletionAndItsFirstUse) {
  for (int nrings : {1, 2, 3}) {
    for (absl::optional<int> nranks : {absl::optional<int>(), absl::optional<int>(4)}) {
      SCOPED_TRACE(absl::StrCat(nrings, " rings, ranks ", nranks.value_or(0)));
      const Case test{nrings, nranks, {}};
      ForEachModel([&](const Model& model) {
        Model copy = model;
        WEFT_ASSERT_OK(Rewrite(test, &copy));
        CheckMain(model.main, copy.main, test);
        CheckStartup(model.startup, copy.startup, test);
      });
    }
  }
}

// Clipping by the global norm, and the search for overflows of AMP, look at all gradients together:
// beside a gradient that is own to each rank, what they give the others is so, too.
const std::set<std::string>& LooksAtAllGradients() {
  static const auto* const models = new std::set<std::string>{
      "bert_base_program", "bert_tiny", "mlp_amp", "mlp_amp_bf16", "mlp_clip_global_norm"};
  return *models;
}

TEST_F(DefaultDialect, DistributedParametersAreNeitherReducedNorBroadcast) {
  for (const auto& [name, model] : models()) {
    if (name == kAccumulating) continue;
    SCOPED_TRACE(name);
    std::string param;
    for (VarId id : model.main.block(0).vars()) {
      const Var var = model.main.var(id);
      if (param.empty() && var.is_parameter()) param = std::string(var.name());
    }
    const Case test{2, 2, {param}};
    Model copy = model;
    const absl::Status status = Rewrite(test, &copy);
    if (LooksAtAllGradients().count(name) > 0) {
      EXPECT_THAT(status, IsFailedPrecondition("W310"));
      continue;
    }
    WEFT_ASSERT_OK(status);
    CheckMain(model.main, copy.main, test);
    CheckStartup(model.startup, copy.startup, test);
  }
}

TEST_F(DefaultDialect, RewritingAgainIsRefused) {
  ForEachModel([](const Model& model) {
    Model copy = model;
    WEFT_ASSERT_OK(Rewrite({}, &copy));
    EXPECT_THAT(Rewrite({}, &copy), IsFailedPrecondition("gradients-reduced already holds"));
  });
}

TEST_F(DefaultDialect, VariablesAndOtherFieldsOfTheMainProgramStayAsTheyAre) {
  ForEachModel([](const Model& model) {
    Model copy = model;
    WEFT_ASSERT_OK(Rewrite({2, 2, {}}, &copy));
    pb::ProgramDesc before = model.main.ToProto();
    pb::ProgramDesc after = copy.main.ToProto();
    EXPECT_EQ(SettingOf(copy.main).value().nranks, 2);
    after.clear_weft_setting();
    for (pb::ProgramDesc* desc : {&before, &after}) {
      for (pb::BlockDesc& block : *desc->mutable_blocks()) block.clear_ops();
    }
    EXPECT_EQ(before.SerializeAsString(), after.SerializeAsString());
  });
}

TEST_F(DefaultDialect, TheSameInputGivesTheSameBytes) {
  ForEachModel([](const Model& model) {
    Model one = model;
    Model two = model;
    WEFT_ASSERT_OK(Rewrite({3, 4, {}}, &one));
    WEFT_ASSERT_OK(Rewrite({3, 4, {}}, &two));
    EXPECT_EQ(one.main.Serialize(), two.main.Serialize());
    EXPECT_EQ(one.startup.Serialize(), two.startup.Serialize());
  });
}

TEST_F(DefaultDialect, MainProgramAloneIsRewrittenAsItIsWithItsStartupProgram) {
  ForEachModel([](const Model& model) {
    Model both = model;
    WEFT_ASSERT_OK(Rewrite({}, &both));
    Program alone = model.main;
    TranspileOptions options;
    options.mode = "grad_allreduce";
    options.mode_flags["buckets"] = "none";
    ProgramPair programs{&alone, nullptr};
    WEFT_ASSERT_OK(Transpile(options, programs).status());
    EXPECT_EQ(alone.Serialize(), both.main.Serialize());
  });
}

}  // namespace
}  // namespace weft::testing
