// Layers 1 and 2 on 27 programs that Paddle wrote, and on what its own transpiler made of them: no
// false alarms, and whatever is broken there on purpose is found.
#include <algorithm>
#include <iterator>
#include <ostream>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "base/testing/test.h"
#include "ops/schema/infer.h"
#include "ops/schema/infer_cache.h"
#include "ops/schema/tensor_type.h"
#include "ops/schema/type_table.h"
#include "proto/program.h"
#include "tests/support/paddle_programs.h"
#include "transpiler/verifier/structure/structure.h"
#include "transpiler/verifier/structure/types.h"
#include "transpiler/verifier/structure/uninitialized_reads.h"

namespace weft::testing {
namespace {

struct Found {
  std::string rule;
  Severity severity;
  std::string message;
};

std::ostream& operator<<(std::ostream& os, const Found& found) {
  return os << found.rule << " " << found.message;
}

// What both layers find.
std::vector<Found> Check(const Program& program) {
  Findings findings;
  CheckStructure(program, ProgramRef(), &findings);
  CheckUninitializedReads(program, ProgramRef(), &findings);
  CheckTypes(program, ProgramRef(), &findings);
  std::vector<Found> all;
  for (const Finding& finding : findings.all()) {
    all.push_back({finding.rule, finding.severity, finding.message});
  }
  return all;
}

bool Finds(const Program& program, const std::set<std::string>& rules) {
  const std::vector<Found> found = Check(program);
  return std::any_of(found.begin(), found.end(),
                     [&](const Found& f) { return rules.count(f.rule) > 0; });
}

Program FromProto(const pb::ProgramDesc& desc) {
  absl::StatusOr<Program> program = Program::FromProto(desc);
  EXPECT_THAT(program, testing::IsOk());
  return *std::move(program);
}

// Originals of which a test can afford to change everything in turn.
std::vector<NamedProgram> SmallPrograms() {
  std::vector<NamedProgram> small;
  for (const NamedProgram& p : PaddlePrograms()) {
    if (p.program.num_ops() <= 60) small.push_back(p);
  }
  return small;
}

// --- No false alarms ----------------------------------------------------------------------------

TEST(PaddleStructure, ProgramsOfPaddleAreClean) {
  ASSERT_EQ(PaddlePrograms().size(), 54u);
  for (const NamedProgram& p : PaddlePrograms()) EXPECT_THAT(Check(p.program), IsEmpty()) << p.name;
}

// Defects that Paddle's transpiler puts into programs: found, and nothing else is.
struct Defect {
  const char* program;  // part of the program's name
  const char* rule;
  const char* message;  // part of the message
  const char* reason;
};

constexpr Defect kDefects[] = {
    {"two_losses/goldens/multi_thread/fuse_all_reduce", "W106", "(coalesce_tensor) input Input",
     "the gradients of the second loss are fused before backward makes them"},
    {"_distributed/", "W107", "_allgather has no value",
     "a distributed parameter is updated by a tensor that is never gathered"},
    {"_distributed/", "W201", "input Grad", "the same"},
    {"mlp_amp", "W202", "(c_allgather) output Out",
     "whatever is gathered is declared fp32; Paddle refuses that when it runs"},
    {"mlp_amp", "W202", "(split) output Out", "parts of the same"},
    {"/single_process_multi_thread/fuse1", "W201", "(coalesce_tensor) input Input",
     "half-precision gradients are fused as fp32; Paddle refuses that when it runs"},
    {"word2vec_sparse_", "W204", "(c_allgather) output Out",
     "SelectedRows are gathered into a dense tensor; Paddle refuses that when it runs"},
    {"word2vec_sparse_", "W204", "(split) output Out", "parts of the same"},
};

TEST(PaddleStructure, OfTheGoldensOnlyDefectsOfPaddleAreFound) {
  ASSERT_EQ(PaddleGoldens().size(), 698u);
  std::set<const Defect*> used;
  for (const NamedProgram& p : PaddleGoldens()) {
    for (const Found& found : Check(p.program)) {
      const auto* defect =
          std::find_if(std::begin(kDefects), std::end(kDefects), [&](const Defect& d) {
            return absl::StrContains(p.name, d.program) && found.rule == d.rule &&
                   absl::StrContains(found.message, d.message);
          });
      if (defect != std::end(kDefects)) {
        used.insert(defect);
      } else {
        ADD_FAILURE() << p.name << ": " << found;
      }
    }
  }
  EXPECT_EQ(used.size(), std::size(kDefects)) << "a defect is not there any more";
}

// --- Programs that mark no data -----------------------------------------------------------------

// As Paddle before 2.0 writes them.
Program WithoutMarks(const Program& program) {
  pb::ProgramDesc desc = program.ToProto();
  for (pb::BlockDesc& block : *desc.mutable_blocks()) {
    for (pb::VarDesc& var : *block.mutable_vars()) var.clear_need_check_feed();
  }
  return FromProto(desc);
}

TEST(PaddleStructure, ProgramsWithoutMarkedDataAreClean) {
  for (const NamedProgram& p : PaddlePrograms()) {
    EXPECT_THAT(Check(WithoutMarks(p.program)), IsEmpty()) << p.name;
  }
}

// --- Dropped producers --------------------------------------------------------------------------

// Whether the op alone writes a tensor that a later op reads, and that is not there without
// it.
bool IsNeeded(const Program& program, const std::vector<OpId>& ops, size_t at) {
  const Block block = program.block(0);
  for (Symbol output : program.op(ops[at]).output_args()) {
    const VarId id = block.FindVar(output);
    if (!id.valid() || program.var(id).persistable() || !DeclaredType(program.var(id))) continue;
    bool is_read = false, is_written = false;
    for (size_t i = 0; i < ops.size(); ++i) {
      const Op op = program.op(ops[i]);
      const auto names = [&](absl::Span<const Symbol> args) {
        return std::find(args.begin(), args.end(), output) != args.end();
      };
      is_written = is_written || (i != at && names(op.output_args()));
      is_read = is_read || (i > at && op.SubBlocks().empty() && names(op.input_args()));
    }
    if (is_read && !is_written) return true;
  }
  return false;
}

struct Dropped {
  int ops = 0;       // that are needed
  int warnings = 0;  // found as W107 only
  int missed = 0;
};

// Drops every op that is needed, one at a time.
Dropped DropEach(const Program& program) {
  Dropped dropped;
  const absl::Span<const OpId> in_root = program.block(0).ops();
  const std::vector<OpId> ops(in_root.begin(), in_root.end());
  const pb::ProgramDesc desc = program.ToProto();
  for (size_t i = 0; i < ops.size(); ++i) {
    if (!IsNeeded(program, ops, i)) continue;
    pb::ProgramDesc without = desc;
    without.mutable_blocks(0)->mutable_ops()->DeleteSubrange(static_cast<int>(i), 1);
    const Program rest = FromProto(without);
    ++dropped.ops;
    if (Finds(rest, {"W106"})) continue;
    ++(Finds(rest, {"W107"}) ? dropped.warnings : dropped.missed);
  }
  return dropped;
}

TEST(PaddleStructure, EveryDroppedProducerIsFound) {
  Dropped all;
  for (const NamedProgram& p : SmallPrograms()) {
    const Dropped dropped = DropEach(p.program);
    EXPECT_EQ(dropped.missed, 0) << p.name;
    all.ops += dropped.ops;
    all.warnings += dropped.warnings;
  }
  EXPECT_GT(all.ops, 300);
  // Of labels and masks, which take no gradient.
  EXPECT_LT(all.warnings, all.ops / 20);
}

TEST(PaddleStructure, NearlyEveryDroppedProducerIsFoundWithoutMarks) {
  Dropped all;
  for (const NamedProgram& p : SmallPrograms()) {
    const Dropped dropped = DropEach(WithoutMarks(p.program));
    all.ops += dropped.ops;
    all.missed += dropped.missed;
  }
  EXPECT_GT(all.ops, 300);
  EXPECT_LT(all.missed, all.ops / 20);
}

// --- Changed types ------------------------------------------------------------------------------

const std::set<std::string>& TypeErrors() {
  static const auto* const rules = new std::set<std::string>{"W201", "W202", "W203", "W204"};
  return *rules;
}

// What ops write that do not read it: in place, one type is as good as another.
std::set<std::string> Made(const pb::BlockDesc& block) {
  std::set<std::string> made;
  for (const pb::OpDesc& op : block.ops()) {
    std::set<std::string> read;
    for (const pb::OpDesc::Var& slot : op.inputs()) {
      read.insert(slot.arguments().begin(), slot.arguments().end());
    }
    for (const pb::OpDesc::Var& slot : op.outputs()) {
      if (slot.parameter() == "XShape") continue;
      for (const std::string& name : slot.arguments()) {
        if (read.count(name) == 0) made.insert(name);
      }
    }
  }
  return made;
}

// Changes the dense tensors of the root block that ops make, one at a time. `change` returns
// whether it has changed one.
template <typename Change>
void ExpectChangesFound(const Change& change) {
  int changes = 0;
  for (const NamedProgram& p : SmallPrograms()) {
    pb::ProgramDesc desc = p.program.ToProto();
    const std::set<std::string> made = Made(desc.blocks(0));
    for (pb::VarDesc& var : *desc.mutable_blocks(0)->mutable_vars()) {
      if (made.count(var.name()) == 0) continue;
      if (var.type().type() != pb::VarType::LOD_TENSOR) continue;
      const pb::VarDesc before = var;
      if (change(var.mutable_type()->mutable_lod_tensor()->mutable_tensor())) {
        ++changes;
        EXPECT_TRUE(Finds(FromProto(desc), TypeErrors()))
            << p.name << ": " << var.ShortDebugString();
      }
      var = before;
    }
  }
  EXPECT_GT(changes, 300);
}

TEST(PaddleStructure, EveryChangedDimensionIsFound) {
  ExpectChangesFound([](pb::VarType::TensorDesc* tensor) {
    for (int i = tensor->dims_size(); i-- > 0;) {
      if (tensor->dims(i) < 1) continue;
      tensor->set_dims(i, tensor->dims(i) + 1);
      return true;
    }
    return false;
  });
}

TEST(PaddleStructure, EveryChangedRankIsFound) {
  ExpectChangesFound([](pb::VarType::TensorDesc* tensor) {
    tensor->add_dims(2);
    return true;
  });
}

TEST(PaddleStructure, EveryChangedElementTypeIsFound) {
  ExpectChangesFound([](pb::VarType::TensorDesc* tensor) {
    tensor->set_data_type(tensor->data_type() == pb::VarType::FP64 ? pb::VarType::FP32
                                                                   : pb::VarType::FP64);
    return true;
  });
}

// --- The cache ----------------------------------------------------------------------------------

TEST(PaddleStructure, CachedInferenceIsInference) {
  size_t ops = 0, combinations = 0;
  for (const auto* programs : {&PaddlePrograms(), &PaddleGoldens()}) {
    for (const NamedProgram& p : *programs) {
      TypeTable types;
      const std::vector<TypeId> declared = DeclaredTypes(p.program, &types);
      InferCache cache(p.program, &types);
      for (int b = 0; b < p.program.num_blocks(); ++b) {
        const Block block = p.program.block(b);
        const auto type_of = [&](Symbol name) {
          const VarId var = block.Resolve(name);
          return var.valid() ? declared[var.value()] : kUnknownType;
        };
        for (OpId id : block.ops()) {
          const Op op = p.program.op(id);
          std::vector<TypeId> inputs;
          for (Symbol name : op.input_args()) inputs.push_back(type_of(name));
          const auto cached = cache.Infer(op, inputs);
          const auto expected =
              InferOutputs(op, [&](Symbol name) { return types.type(type_of(name)); });
          ++ops;
          ASSERT_EQ(cached.has_value(), expected.ok()) << p.name << " " << op.DebugName();
          if (!expected.ok()) {
            EXPECT_EQ(cache.Error(op, inputs), expected.status());
            continue;
          }
          ASSERT_EQ(cached->size(), expected->size());
          for (size_t i = 0; i < expected->size(); ++i) {
            ASSERT_EQ(types.type((*cached)[i]), (*expected)[i]) << p.name << " " << op.DebugName();
          }
        }
      }
      combinations += cache.size();
    }
  }
  EXPECT_GT(ops, 50000u);
  EXPECT_LT(combinations, ops / 2);
}

}  // namespace
}  // namespace weft::testing
