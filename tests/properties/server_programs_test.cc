// Programs for parameter servers: random ones train as an all-reduce does, and every small mistake
// in them is reported or changes nothing.
//
// Another seed, or more programs:
//   bazel test --test_env=RC_PARAMS="seed=7 max_success=500"
//   //tests/properties:server_programs_test
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/types/optional.h"
#include "base/status_macros.h"
#include "base/testing/test.h"
#include "executor/run/runner.h"
#include "ops/kernel.h"
#include "ops/schema/op_attrs.h"
#include "ops/schema/server_ops.h"
#include "proto/text/program_text.h"
#include "rapidcheck/gtest.h"
#include "tests/support/random_program.h"
#include "tests/support/training_programs.h"
#include "tests/support/training_spec.h"
#include "transpiler/transpile.h"
#include "transpiler/verifier/verify.h"

namespace weft::testing {
namespace {

namespace pb = ::paddle::framework::proto;

constexpr int kWorkers = 2;
constexpr int kSteps = 3;

struct Served {
  Program worker, startup;
  absl::optional<Program> server;  // none: all-reduce alone
};

// With these parameters on servers.
absl::StatusOr<Served> Rewrite(const TrainingPrograms& programs,
                               const std::vector<std::string>& on_servers,
                               const std::map<std::string, std::string>& flags = {}) {
  Served served{programs.main, programs.startup, absl::nullopt};
  TranspileOptions options;
  options.mode = on_servers.empty() ? "grad_allreduce" : "parameter_server";
  options.mode_flags = flags;
  options.mode_flags["sparse"] = "rows";
  options.verification = Verification::kAfterEachPass;
  options.cluster.nranks = kWorkers;
  for (const std::string& name : on_servers) options.param_attrs[name].parameter_server = true;
  ProgramPair pair{&served.worker, &served.startup};
  WEFT_ASSIGN_OR_RETURN(TranspileResult result, Transpile(options, pair));
  served.server = std::move(result.server);
  WEFT_ASSIGN_OR_RETURN(served.worker, Program::Parse(served.worker.Serialize()));
  return served;
}

// Whether workers prefetch rows of the next step.
bool Prefetches(const Served& served) {
  for (OpId id : served.worker.block(0).ops()) {
    if (served.worker.op(id).BoolAttr(kPrefetchAttr).value_or(false)) return true;
  }
  return false;
}

// The bits of losses by step and worker, and of what is kept.
using Bits = std::map<std::string, std::string>;

absl::StatusOr<Bits> Train(const TrainingPrograms& programs, const Served& served, int servers) {
  RunOptions options;
  options.kernels = &CpuKernels();
  options.nranks = kWorkers;
  options.num_servers = servers;
  options.steps = kSteps;
  options.fetch = programs.losses;
  options.timeout_s = 5;
  Bits bits;
  const auto bits_of = [](const Tensor& tensor) {
    return std::string(static_cast<const char*>(tensor.raw()), tensor.bytes());
  };
  RunInputs inputs;
  inputs.main = &served.worker;
  inputs.startup = &served.startup;
  inputs.server = served.server.has_value() ? &*served.server : nullptr;
  inputs.feeds = programs.feeds;
  inputs.on_result = [&](const StepResult& result) {
    for (size_t i = 0; i < result.values.size(); ++i) {
      bits[absl::StrCat("step ", result.step, ", worker ", result.rank, ", loss ", i)] =
          bits_of(result.values[i]);
    }
    return absl::OkStatus();
  };
  WEFT_ASSIGN_OR_RETURN(const RunResult result, RunProgram(inputs, options));
  for (const auto& [name, tensor] : result.persistables) bits[name] = bits_of(tensor);
  return bits;
}

// --- Random programs -----------------------------------------------------------------------------

// What servers can take: one update of a parameter in a step, by its gradient as it is.
TrainingSpec ForServers(TrainingSpec spec) {
  spec.apart = false;
  spec.merged_steps = 1;
  spec.clip = ClipKind::kNone;
  spec.l2_decay = false;
  return spec;
}

// In the order of the updates.
std::vector<std::string> UpdatedParameters(const Program& main) {
  std::vector<std::string> params;
  for (OpId id : main.block(0).ops()) {
    const Op op = main.op(id);
    if (op.Input("Grad").empty()) continue;
    for (Symbol param : op.Input("Param")) params.emplace_back(main.name(param));
  }
  return params;
}

TEST(ServerPrograms, TrainAsAnAllReduce) {
  rc::detail::checkGTest([](const TrainingSpec& any) {
    const TrainingPrograms programs = BuildPrograms(ForServers(any));
    const std::vector<std::string> updated = UpdatedParameters(programs.main);
    RC_PRE(!updated.empty());
    std::vector<std::string> on_servers;
    for (const std::string& name : updated) {
      if (*rc::gen::element(true, true, false)) on_servers.push_back(name);
    }
    if (on_servers.empty()) on_servers = updated;
    const char* wait = *rc::gen::element("per_key", "all_keys");
    const absl::StatusOr<Served> reduced = Rewrite(programs, {});
    absl::StatusOr<Served> served =
        Rewrite(programs, on_servers, {{"wait", wait}, {"prefetch_rows", "on"}});
    // Without a table that is looked up by what is fed.
    if (absl::IsFailedPrecondition(served.status())) {
      served = Rewrite(programs, on_servers, {{"wait", wait}});
    }
    RC_TAG(served.ok() && Prefetches(*served) ? "prefetches rows" : "prefetches none");
    if (!reduced.ok()) RC_FAIL(reduced.status().ToString());
    if (!served.ok()) RC_FAIL(served.status().ToString());
    const absl::StatusOr<Bits> expected = Train(programs, *reduced, 0);
    if (!expected.ok()) RC_FAIL(expected.status().ToString());
    const int servers = on_servers.size() > 1 ? 2 : 1;
    const absl::StatusOr<Bits> found = Train(programs, *served, servers);
    if (!found.ok()) RC_FAIL(found.status().ToString());
    RC_ASSERT(found->size() == expected->size());
    for (const auto& [name, bits] : *expected) {
      if (found->at(name) == bits) continue;
      RC_FAIL(absl::StrCat(name, " differs\n", ProgramText(served->worker), "\n",
                           ProgramText(*served->server)));
    }
  });
}

// --- Mistakes ------------------------------------------------------------------------------------

// Weights of equal shapes, biases, and a table.
TrainingPrograms EqualLayers() {
  TrainingSpec spec;
  spec.lookups = 1;
  spec.sparse = true;
  spec.layers = {{4, Activation::kTanh, /*bias=*/true},
                 {4, Activation::kTanh, /*bias=*/true},
                 {4, Activation::kNone, /*bias=*/true}};
  spec.head.layer = 2;
  spec.weights_by = OptimizerKind::kMomentum;
  return BuildPrograms(spec);
}

struct Mistake {
  std::string what;
  pb::ProgramDesc worker, server;
};

// Copies of the programs, with one mistake each.
class Mistakes {
 public:
  explicit Mistakes(const Served& right)
      : worker_(right.worker.ToProto()), server_(right.server->ToProto()) {
    AddTo(&Mistake::worker, worker_, "worker");
    AddTo(&Mistake::server, server_, "server");
  }
  const std::vector<Mistake>& all() const { return all_; }

 private:
  using Ops = google::protobuf::RepeatedPtrField<pb::OpDesc>;
  using Slots = google::protobuf::RepeatedPtrField<pb::OpDesc::Var>;

  static pb::OpDesc::Attr* Find(pb::OpDesc* op, absl::string_view name) {
    for (pb::OpDesc::Attr& attr : *op->mutable_attrs()) {
      if (attr.name() == name) return &attr;
    }
    return nullptr;
  }

  static int KeyOf(pb::OpDesc op) {
    const pb::OpDesc::Attr* key = Find(&op, kServerKeyAttr);
    return key == nullptr ? -1 : key->i();
  }

  void Add(pb::ProgramDesc Mistake::*of, const std::string& what,
           const std::function<void(Ops*)>& make) {
    Mistake& mistake = all_.emplace_back(Mistake{what, worker_, server_});
    make((mistake.*of).mutable_blocks(0)->mutable_ops());
  }

  void AddTo(pb::ProgramDesc Mistake::*of, const pb::ProgramDesc& program, const char* name) {
    const Ops& ops = program.blocks(0).ops();
    for (int i = 0; i < ops.size(); ++i) {
      const bool of_servers = FindServerOp(ops[i].type()).has_value();
      if (!of_servers && of == &Mistake::worker) continue;
      const std::string op = absl::StrCat(name, " op ", i, " (", ops[i].type(), "): ");
      Add(of, op + "dropped", [i](Ops* ops) { ops->DeleteSubrange(i, 1); });
      Add(of, op + "twice", [i](Ops* ops) { *ops->Add() = pb::OpDesc(ops->Get(i)); });
      Add(of, op + "last", [i](Ops* ops) {
        for (int k = i; k + 1 < ops->size(); ++k) ops->SwapElements(k, k + 1);
      });
      Add(of, op + "first", [i](Ops* ops) {
        for (int k = i; k > 0; --k) ops->SwapElements(k, k - 1);
      });
      AddIds(of, ops, i, op);
      for (const char* flag : {"averages", "by_rows", "is_sparse", "prefetch"}) {
        pb::OpDesc copy = ops[i];
        if (Find(&copy, flag) == nullptr) continue;
        Add(of, absl::StrCat(op, flag, " flipped"), [i, flag](Ops* ops) {
          pb::OpDesc::Attr* attr = Find(ops->Mutable(i), flag);
          attr->set_b(!attr->b());
        });
      }
      AddKeys(of, ops, i, op);
      if (of == &Mistake::server) AddToServer(ops, i, op);
    }
  }

  // An op without a key, and variables of another key in the place of its own.
  void AddToServer(const Ops& ops, int i, const std::string& op) {
    Add(&Mistake::server, op + "without a key", [i](Ops* ops) {
      google::protobuf::RepeatedPtrField<pb::OpDesc::Attr> kept;
      for (const pb::OpDesc::Attr& attr : ops->Get(i).attrs()) {
        if (attr.name() != kServerKeyAttr) *kept.Add() = attr;
      }
      ops->Mutable(i)->mutable_attrs()->Swap(&kept);
    });
    for (int k = 0; k < ops.size(); ++k) {
      if (k == i || ops[k].type() != ops[i].type()) continue;
      AddVariablesOf(&pb::OpDesc::mutable_inputs, ops, i, k, op);
      AddVariablesOf(&pb::OpDesc::mutable_outputs, ops, i, k, op);
    }
  }

  // With slots of op i those of op k.
  void AddVariablesOf(Slots* (pb::OpDesc::*slots)(), const Ops& ops, int i, int k,
                      const std::string& op) {
    pb::OpDesc copy = ops[i];
    const int num_slots = (copy.*slots)()->size();
    for (int slot = 0; slot < num_slots; ++slot) {
      const std::string name = (copy.*slots)()->Get(slot).parameter();
      Add(&Mistake::server, absl::StrCat(op, name, " of op ", k), [=](Ops* ops) {
        *(ops->Mutable(i)->*slots)()->Mutable(slot) = (ops->Mutable(k)->*slots)()->Get(slot);
      });
      // In all ops of the key.
      const std::string from = (copy.*slots)()->Get(slot).arguments(0);
      pb::OpDesc other = ops[k];
      const std::string to = (other.*slots)()->Get(slot).arguments(0);
      if (from == to) continue;
      const int key = KeyOf(ops[i]);
      Add(&Mistake::server, absl::StrCat(op, from, " is ", to), [=](Ops* ops) {
        for (pb::OpDesc& each : *ops) {
          if (KeyOf(each) != key) continue;
          for (Slots* all : {each.mutable_inputs(), each.mutable_outputs()}) {
            for (pb::OpDesc::Var& of : *all) {
              for (std::string& argument : *of.mutable_arguments()) {
                if (argument == from) argument = to;
              }
            }
          }
        }
      });
    }
  }

  // Ids of which the batch does not say what they are.
  void AddIds(pb::ProgramDesc Mistake::*of, const Ops& ops, int i, const std::string& op) {
    if (FindServerOp(ops[i].type()) != ServerOp::kLookup) return;
    const pb::OpDesc::Var ids = ops[i].inputs(0);
    Add(of, op + "ids written before", [i, ids](Ops* ops) {
      pb::OpDesc* const assign = ops->Add();
      assign->set_type("assign");
      *assign->add_inputs() = ids;
      *assign->add_outputs() = ids;
      assign->mutable_inputs(0)->set_parameter("X");
      assign->mutable_outputs(0)->set_parameter("Out");
      for (int k = ops->size() - 1; k > i; --k) ops->SwapElements(k, k - 1);
    });
  }

  // The op with another key, and two ops of a type with each other's.
  void AddKeys(pb::ProgramDesc Mistake::*of, const Ops& ops, int i, const std::string& op) {
    const int key = KeyOf(ops[i]);
    if (key < 0) return;
    for (const int other : {key + 1, key == 0 ? 97 : 0}) {
      Add(of, absl::StrCat(op, "key ", other),
          [i, other](Ops* ops) { Find(ops->Mutable(i), kServerKeyAttr)->set_i(other); });
    }
    for (int k = i + 1; k < ops.size(); ++k) {
      if (ops[k].type() != ops[i].type() || KeyOf(ops[k]) == key) continue;
      const int other = KeyOf(ops[k]);
      Add(of, absl::StrCat(op, "keys ", key, " and ", other, " exchanged"), [=](Ops* ops) {
        Find(ops->Mutable(i), kServerKeyAttr)->set_i(other);
        Find(ops->Mutable(k), kServerKeyAttr)->set_i(key);
      });
    }
  }

  const pb::ProgramDesc worker_, server_;
  std::vector<Mistake> all_;
};

// Errors of the verifier, also where the programs cannot be read.
bool IsReported(const TrainingPrograms& original, const Mistake& mistake, Served* mutant) {
  absl::StatusOr<Program> worker = Program::FromProto(mistake.worker);
  absl::StatusOr<Program> server = Program::FromProto(mistake.server);
  if (!worker.ok() || !server.ok()) return true;
  mutant->worker = *std::move(worker);
  mutant->server = *std::move(server);
  VerifyOptions options;
  options.setting.nranks = kWorkers;
  options.server = &*mutant->server;
  options.original = {&original.main, &original.startup};
  return Verify({{&mutant->worker, &mutant->startup}}, options).HasErrors();
}

// A mistake may show where one server has all keys, or where another one has some.
void ExpectReportedOrWithoutEffect(const std::string& wait) {
  const TrainingPrograms programs = EqualLayers();
  WEFT_ASSERT_OK_AND_ASSIGN(const Served right, Rewrite(programs, UpdatedParameters(programs.main),
                                                        {{"wait", wait}, {"prefetch_rows", "on"}}));
  ASSERT_TRUE(Prefetches(right));
  WEFT_ASSERT_OK_AND_ASSIGN(const Bits expected, Train(programs, right, 2));
  const Mistakes mistakes(right);
  int reported = 0;
  for (const Mistake& mistake : mistakes.all()) {
    Served mutant = right;
    if (IsReported(programs, mistake, &mutant)) {
      ++reported;
      continue;
    }
    for (int servers : {1, 2}) {
      const absl::StatusOr<Bits> found = Train(programs, mutant, servers);
      if (!found.ok()) {
        ADD_FAILURE() << mistake.what << ", " << servers << " servers: " << found.status();
      } else if (*found != expected) {
        ADD_FAILURE() << mistake.what << ", " << servers << " servers: trains to other values";
      }
    }
  }
  EXPECT_GT(reported, static_cast<int>(mistakes.all().size()) / 2);
}

TEST(ServerPrograms, EveryMistakeIsReportedOrChangesNothing) {
  ExpectReportedOrWithoutEffect("per_key");
}

TEST(ServerPrograms, EveryMistakeWhereAllKeysComeFirstIsReportedOrChangesNothing) {
  ExpectReportedOrWithoutEffect("all_keys");
}

// Workers add the decay, and servers take the mean of the sums.
TEST(ServerPrograms, WeightDecayIsAddedBeforeTheMean) {
  TrainingSpec spec;
  spec.layers = {{4, Activation::kTanh, /*bias=*/true}};
  spec.head.layer = 1;
  spec.l2_decay = true;
  const TrainingPrograms programs = BuildPrograms(spec);
  const std::vector<std::string> updated = UpdatedParameters(programs.main);
  WEFT_ASSERT_OK_AND_ASSIGN(const Served served, Rewrite(programs, updated));
  WEFT_EXPECT_OK(Train(programs, served, 1).status());
}

// Parameters that are not on servers are reduced, also where servers do not wait.
TEST(ServerPrograms, MistakesBesideAsynchronousServersAreReported) {
  const TrainingPrograms programs = EqualLayers();
  const std::string on_servers = UpdatedParameters(programs.main)[0];
  WEFT_ASSERT_OK_AND_ASSIGN(const Served right, Rewrite(programs, {on_servers}, {{"async", "on"}}));
  const Mistake none{"", right.worker.ToProto(), right.server->ToProto()};
  Served mutant = right;
  EXPECT_FALSE(IsReported(programs, none, &mutant));
  const auto& ops = none.worker.blocks(0).ops();
  int num_mistakes = 0;
  for (int i = 0; i < ops.size(); ++i) {
    const Op op = right.worker.op(right.worker.block(0).ops()[i]);
    const bool updates = !op.Input("Param").empty();
    if (!updates && !absl::StartsWith(op.type(), "c_allreduce")) continue;
    ++num_mistakes;
    Mistake mistake = none;
    mistake.worker.mutable_blocks(0)->mutable_ops()->DeleteSubrange(i, 1);
    EXPECT_TRUE(IsReported(programs, mistake, &mutant)) << op.DebugName() << " dropped";
  }
  EXPECT_GE(num_mistakes, 2);
}

}  // namespace
}  // namespace weft::testing
