// The schemas against every op of 27 programs that Paddle wrote, and of what its own transpiler
// made of them.
#include <iterator>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/testing/test.h"
#include "ops/schema/infer.h"
#include "ops/schema/op_attrs.h"
#include "ops/schema/op_schema.h"
#include "proto/op_role.h"
#include "proto/program.h"
#include "tests/support/paddle_programs.h"

namespace weft::testing {
namespace {

// What is wrong, once for each kind: the message, and where it was first found.
using Findings = std::map<std::string, std::string>;

// Calls visit(op, where) for every op.
template <typename Visit>
void ForEachOp(const std::vector<NamedProgram>& programs, const Visit& visit) {
  for (const NamedProgram& p : programs) {
    for (int block = 0; block < p.program.num_blocks(); ++block) {
      for (OpId id : p.program.block(block).ops()) visit(p.program.op(id), p.name);
    }
  }
}

template <typename Visit>
void ForEachOp(const Visit& visit) {
  ForEachOp(PaddlePrograms(), visit);
  ForEachOp(PaddleGoldens(), visit);
}

absl::optional<TensorType> DeclaredTypeOf(const Op& op, Symbol name) {
  const VarId var = op.program().block(op.block()).Resolve(name);
  if (!var.valid()) return absl::nullopt;
  return DeclaredType(op.program().var(var));
}

std::string ToText(const absl::optional<TensorType>& type) {
  return type.has_value() ? ToString(*type) : "no type";
}

TEST(ProgramsTest, ArchivesHoldAllPrograms) {
  EXPECT_EQ(PaddlePrograms().size(), 54u);
  EXPECT_EQ(PaddleGoldens().size(), 698u);
}

TEST(ProgramsTest, EveryOpTypeHasASchema) {
  std::set<std::string> missing;
  std::set<std::string> types;
  ForEachOp([&](const Op& op, const std::string&) {
    types.insert(std::string(op.type()));
    if (FindOpSchema(op.type()) == nullptr) missing.insert(std::string(op.type()));
  });
  EXPECT_THAT(missing, IsEmpty());
  EXPECT_EQ(types.size(), 88u);
}

TEST(ProgramsTest, EverySlotIsInTheSchema) {
  std::set<std::string> unknown;
  ForEachOp([&](const Op& op, const std::string&) {
    const OpSchema* schema = FindOpSchema(op.type());
    if (schema == nullptr) return;
    for (const OpSignature::Slot& slot : op.signature().inputs) {
      const absl::string_view name = op.program().name(slot.name);
      if (schema->FindInput(name) == nullptr) unknown.insert(absl::StrCat(op.type(), " in ", name));
    }
    for (const OpSignature::Slot& slot : op.signature().outputs) {
      const absl::string_view name = op.program().name(slot.name);
      if (schema->FindOutput(name) == nullptr) {
        unknown.insert(absl::StrCat(op.type(), " out ", name));
      }
    }
  });
  EXPECT_THAT(unknown, IsEmpty());
}

// Conversions would hide it, so this compares types as they stand in the file.
TEST(ProgramsTest, EveryAttributeHasTheTypeOfTheSchema) {
  std::set<std::string> wrong;
  ForEachOp([&](const Op& op, const std::string&) {
    const OpSchema* schema = FindOpSchema(op.type());
    if (schema == nullptr) return;
    for (const OpSignature::Attr& attr : op.signature().attrs) {
      const AttrSchema* expected = schema->FindAttr(op.program().name(attr.name));
      if (expected == nullptr || attr.type == AttrTypeOf(expected->default_value)) continue;
      wrong.insert(absl::StrCat(op.type(), ".", expected->name, " is ",
                                pb::AttrType_Name(static_cast<pb::AttrType>(attr.type))));
    }
  });
  EXPECT_THAT(wrong, IsEmpty());
}

// Every attribute of a schema is written by Paddle 2.6.2, but for those of ops that occur in no
// program, and those that are Weft's.
TEST(ProgramsTest, EveryAttributeOfTheSchemaIsWritten) {
  std::set<std::string> missing;
  ForEachOp([&](const Op& op, const std::string&) {
    const OpSchema* schema = FindOpSchema(op.type());
    if (schema == nullptr) return;
    for (const AttrSchema& attr : schema->attrs()) {
      const bool is_of_weft = attr.name == "zeros_out_of_range" ||
                              attr.name == "unbiased_variance" ||
                              (op.type() == "adam" && attr.name == "use_nesterov");
      if (attr.since == kPaddle3 || is_of_weft) continue;
      if (op.HasAttr(attr.name)) continue;
      missing.insert(absl::StrCat(op.type(), ".", attr.name));
    }
  });
  EXPECT_THAT(missing, IsEmpty());
}

// The order of slots and attributes in a schema is that of the files.
TEST(ProgramsTest, SlotsAndAttributesHaveTheOrderOfTheSchema) {
  std::set<std::string> wrong;
  ForEachOp([&](const Op& op, const std::string&) {
    const OpSchema* schema = FindOpSchema(op.type());
    if (schema == nullptr) return;
    const auto in_order = [&](const auto& written, const auto& find) {
      const void* last = nullptr;
      for (const auto& item : written) {
        const void* found = find(op.program().name(item.name));
        if (found == nullptr) continue;
        if (found < last) return false;
        last = found;
      }
      return true;
    };
    const OpSignature& signature = op.signature();
    if (!in_order(signature.inputs, [&](auto name) { return schema->FindInput(name); }) ||
        !in_order(signature.outputs, [&](auto name) { return schema->FindOutput(name); }) ||
        !in_order(signature.attrs, [&](auto name) { return schema->FindAttr(name); })) {
      wrong.insert(std::string(op.type()));
    }
  });
  EXPECT_THAT(wrong, IsEmpty());
}

TEST(ProgramsTest, OutputsInPlaceAreTheirInputs) {
  std::set<std::string> wrong;
  ForEachOp([&](const Op& op, const std::string&) {
    const OpSchema* schema = FindOpSchema(op.type());
    if (schema == nullptr) return;
    for (const SlotSchema& slot : schema->outputs()) {
      if (slot.in_place_of.empty() || op.Output(slot.name).empty()) continue;
      if (op.Output(slot.name) == op.Input(slot.in_place_of)) continue;
      wrong.insert(absl::StrCat(op.type(), ".", slot.name));
    }
  });
  EXPECT_THAT(wrong, IsEmpty());
}

// Where the stored types of the programs are not those that follow.
struct Exception {
  const char* program;  // part of the program's name
  const char* finding;  // part of the finding
  const char* reason;
};

constexpr Exception kExceptions[] = {
    {"", "conditional_block.Out: inferred no type",
     "what the block writes follows from the block, not from the op"},
    {"goldens/", "coalesce_tensor.FusedOutput: inferred no type",
     "its size depends on the device's alignment; the transpiler declares [] or [1]"},
    {"mlp_amp", "c_allgather.Out: inferred",
     "the transpiler declares fp32 for whatever is gathered; Paddle refuses that when it runs"},
    {"word2vec_sparse_", "c_allgather.Out: inferred rows",
     "the transpiler gathers SelectedRows into a dense tensor; Paddle refuses that when it runs"},
    {"/single_process_multi_thread/fuse1", "(coalesce_tensor) input Input",
     "the transpiler asks for fp32 over half-precision gradients; Paddle refuses that when it "
     "runs"},
    {"resnet", "batch_norm.ReserveSpace: inferred fp32[0], declared fp32[-1]",
     "what it holds is up to the back end; the kernel keeps nothing in it"},
    {"_distributed/", "(adam) input Grad",
     "the transpiler updates a distributed parameter by a tensor that it never gathered"},
};

const Exception* FindException(const std::string& program, const std::string& finding) {
  for (const Exception& e : kExceptions) {
    if (absl::StrContains(program, e.program) && absl::StrContains(finding, e.finding)) return &e;
  }
  return nullptr;
}

// What differs between the inferred and the declared types of an op's outputs.
std::vector<std::string> Differences(const Op& op) {
  const auto types = InferOutputs(op, [&](Symbol name) { return DeclaredTypeOf(op, name); });
  if (!types.ok()) return {std::string(types.status().message())};
  std::vector<std::string> differences;
  for (const OpSignature::Slot& slot : op.signature().outputs) {
    for (size_t i = 0; i < slot.count; ++i) {
      const size_t arg = slot.first - op.signature().num_input_args + i;
      const Symbol name = op.output_args()[arg];
      if (op.program().name(name) == kEmptyVarName) continue;
      const absl::optional<TensorType> declared = DeclaredTypeOf(op, name);
      if ((*types)[arg] == declared) continue;
      differences.push_back(absl::StrCat(op.type(), ".", op.program().name(slot.name),
                                         ": inferred ", ToText((*types)[arg]), ", declared ",
                                         ToText(declared)));
    }
  }
  return differences;
}

TEST(ProgramsTest, InferredTypesAreTheDeclaredOnes) {
  Findings wrong;
  std::set<const Exception*> used;
  ForEachOp([&](const Op& op, const std::string& program) {
    for (const std::string& difference : Differences(op)) {
      const Exception* exception = FindException(program, difference);
      if (exception != nullptr) {
        used.insert(exception);
      } else {
        wrong.emplace(difference, absl::StrCat(program, " ", op.DebugName()));
      }
    }
  });
  EXPECT_THAT(wrong, IsEmpty());
  EXPECT_EQ(used.size(), std::size(kExceptions)) << "an exception is not needed any more";
}

// What the transpiler sets on the ops that it inserts: Paddle fills in the other attributes.
const std::map<std::string, std::set<std::string>>& AttributesThatTheTranspilerSets() {
  static const auto* const attrs = new std::map<std::string, std::set<std::string>>{
      {"c_allgather", {"nranks", "ring_id"}},
      {"c_allreduce_sum", {"ring_id"}},
      {"c_broadcast", {"ring_id", "root"}},
      {"c_comm_init", {"nranks", "rank", "ring_id"}},
      {"c_comm_init_all", {"devices", "ring_id"}},
      {"c_comm_init_multitrainer", {"ntrainers", "ring_id", "trainer_id"}},
      {"c_gen_nccl_id", {"endpoint", "other_endpoints", "rank"}},
      {"c_sync_calc_stream", {}},
      {"c_sync_comm_stream", {"ring_id"}},
      {"coalesce_tensor", {"copy_data", "dtype"}},
      {"elementwise_sub", {}},
      {"scale", {"scale"}},
      {"split", {"axis", "num"}},
  };
  return *attrs;
}

TEST(ProgramsTest, DefaultsOfTheSchemaAreWhatPaddleFillsIn) {
  Findings wrong;
  int checked = 0;
  ForEachOp(PaddleGoldens(), [&](const Op& op, const std::string& program) {
    const auto set = AttributesThatTheTranspilerSets().find(std::string(op.type()));
    if (set == AttributesThatTheTranspilerSets().end()) return;
    // Schedules of the learning rate and averages of merged gradients are scale ops of the program.
    if (op.type() == "scale" && (!IsBackward(op) || op.block() != 0)) return;
    for (const AttrSchema& attr : FindOpSchema(op.type())->attrs()) {
      if (attr.since == kPaddle3 || set->second.count(attr.name) > 0) continue;
      ++checked;
      EXPECT_FALSE(attr.required) << op.type() << "." << attr.name;
      const pb::OpDesc::Attr expected = MakeAttr(attr.name, attr.default_value);
      const absl::optional<pb::OpDesc::Attr> found = op.FindAttr(attr.name);
      if (found.has_value() &&
          found->SerializePartialAsString() == expected.SerializePartialAsString()) {
        continue;
      }
      wrong.emplace(absl::StrCat(op.type(), ".", attr.name), program);
    }
  });
  EXPECT_THAT(wrong, IsEmpty());
  EXPECT_GT(checked, 10000);
}

}  // namespace
}  // namespace weft::testing
