// Programs that are broken at random: the verifier survives them, and says nothing of other layers
// where the structure is wrong.
#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/types/optional.h"
#include "base/status_matchers.h"
#include "gtest/gtest.h"
#include "proto/text/program_text.h"
#include "transpiler/verifier/rules/rule_text.h"
#include "transpiler/verifier/verify.h"

namespace weft {
namespace {

// Draws the same edits every time.
class Breaker {
 public:
  explicit Breaker(unsigned seed) : random_(seed) {}

  // A program of that text with up to four edits; none if that is no program.
  absl::optional<Program> Broken(const std::string& text) {
    absl::StatusOr<pb::ProgramDesc> desc = ParseProgramDescText(text);
    WEFT_EXPECT_OK(desc.status());
    for (int i = Below(5); i > 0; --i) {
      pb::BlockDesc& block = *desc->mutable_blocks(Below(desc->blocks_size()));
      if (block.ops_size() == 0 || block.vars_size() == 0) continue;
      Edit(&block, block.mutable_ops(Below(block.ops_size())));
    }
    absl::StatusOr<Program> program = Program::FromProto(*desc);
    return program.ok() ? absl::make_optional(*std::move(program)) : absl::nullopt;
  }

 private:
  int Below(int n) { return static_cast<int>(random_() % static_cast<unsigned>(n)); }

  template <typename T>
  void DropOne(google::protobuf::RepeatedPtrField<T>* all) {
    if (!all->empty()) all->DeleteSubrange(Below(all->size()), 1);
  }

  void Edit(pb::BlockDesc* block, pb::OpDesc* op) {
    auto* const slots = Below(2) == 0 ? op->mutable_inputs() : op->mutable_outputs();
    pb::OpDesc::Var* const slot = slots->empty() ? nullptr : slots->Mutable(Below(slots->size()));
    pb::VarDesc& var = *block->mutable_vars(Below(block->vars_size()));
    switch (Below(11)) {
      case 0:
        return DropOne(block->mutable_vars());
      case 1:
        return DropOne(block->mutable_ops());
      case 2:
        return DropOne(slots);
      case 3:
        return DropOne(op->mutable_attrs());
      case 4:
        if (slot != nullptr) slot->clear_arguments();
        return;
      case 5:
        if (slot != nullptr) slot->add_arguments(var.name());
        return;
      case 6:
        if (slot != nullptr && slot->arguments_size() > 0) slot->set_arguments(0, "undeclared");
        return;
      case 7:
        if (slot != nullptr && slot->arguments_size() > 0) slot->set_arguments(0, var.name());
        return;
      case 8:
        block->mutable_ops()->SwapElements(Below(block->ops_size()), Below(block->ops_size()));
        return;
      case 9: {
        if (op->attrs_size() == 0) return;
        pb::OpDesc::Attr& attr = *op->mutable_attrs(Below(op->attrs_size()));
        const std::string name = attr.name();
        attr.Clear();
        attr.set_name(name);
        attr.set_type(pb::FLOATS);
        return;
      }
      default:
        var.mutable_type()->Clear();
        var.mutable_type()->set_type(Below(2) == 0 ? pb::VarType::RAW : pb::VarType::STEP_SCOPES);
    }
  }

  std::mt19937 random_;
};

const Program* Address(const absl::optional<Program>& program) {
  return program.has_value() ? &*program : nullptr;
}

TEST(Verify, BrokenProgramsGetFindingsOfTheirStructureOnly) {
  int num_unsound = 0, num_sound = 0;
  for (const Rule& rule : Rules()) {
    WEFT_ASSERT_OK_AND_ASSIGN(const RuleText text, RuleTextOf(rule.id));
    for (unsigned seed = 0; seed < 24; ++seed) {
      SCOPED_TRACE(absl::StrCat(rule.id, ", seed ", seed));
      Breaker breaker(seed);
      const auto read = [&](const std::string& program) {
        return program.empty() ? absl::nullopt : breaker.Broken(program);
      };
      const absl::optional<Program> main = read(text.main), startup = read(text.startup),
                                    rank1 = read(text.rank1), server = read(text.server),
                                    original = read(text.original);
      if (!main.has_value()) continue;
      std::vector<ConstProgramPair> ranks = {{&*main, Address(startup)}};
      if (rank1.has_value()) ranks.push_back({&*rank1, Address(startup)});
      VerifyOptions options;
      options.setting.nranks = 2;
      options.server = Address(server);
      options.original.main = Address(original);
      options.setting.ordered_by_data = seed % 2 == 0;
      const Findings findings = Verify(ranks, options);
      const auto& all = findings.all();
      const bool is_sound = std::none_of(all.begin(), all.end(), [](const Finding& finding) {
        return finding.layer == Layer::kStructure && finding.severity == Severity::kError;
      });
      ++(is_sound ? num_sound : num_unsound);
      // Another rank's program may be right, and so may that of servers.
      if (is_sound || ranks.size() > 1 || server.has_value()) continue;
      for (const Finding& finding : all) {
        EXPECT_EQ(finding.layer, Layer::kStructure) << ToString(finding);
      }
    }
  }
  EXPECT_GT(num_unsound, 300);
  EXPECT_GT(num_sound, 300);
}

}  // namespace
}  // namespace weft
