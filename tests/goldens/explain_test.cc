// What `transpile --explain` says: in every mode and dialect, of every gradient of a program, what
// happened to it and why.
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/testing/test.h"
#include "ops/analysis/training/gradients.h"
#include "tests/support/models.h"
#include "transpiler/modes.h"
#include "transpiler/transpile.h"

namespace weft::testing {
namespace {

using Flags = std::map<std::string, std::string>;

struct Case {
  std::string mode;
  Flags flags;  // all choices of the mode
  Dialect dialect;
  std::string model;
  bool distributed = false;  // the parameter of the first gradient is
};

// All ways to choose, in this dialect.
std::vector<Flags> AllChoices(const Mode& mode, Dialect dialect) {
  std::vector<Flags> all = {mode.required};
  for (const auto& [flag, values] : ChoicesOf(mode)) {
    std::vector<Flags> longer;
    for (const Flags& flags : all) {
      for (const std::string& value : values) {
        longer.push_back(flags);
        longer.back()[flag] = value;
      }
    }
    all = std::move(longer);
  }
  std::vector<Flags> available;
  for (const Flags& flags : all) {
    if (ExpandMode(mode.name, dialect, flags).ok()) available.push_back(flags);
  }
  return available;
}

// Mode none has no passes, and so nothing to explain.
std::vector<Case> AllCases() {
  std::vector<Case> cases;
  for (const Mode& mode : Modes()) {
    if (mode.pipelines.empty()) continue;
    for (Dialect dialect : {Dialect::kWeft, Dialect::kPaddle}) {
      for (const Flags& flags : AllChoices(mode, dialect)) {
        for (const char* model : {"mlp_adam", "word2vec_sparse_sgd", "mlp_gradient_merge"}) {
          cases.push_back({mode.name, flags, dialect, model});
        }
        cases.push_back({mode.name, flags, dialect, "mlp_adam", /*distributed=*/true});
      }
    }
  }
  return cases;
}

std::string NameOf(const ::testing::TestParamInfo<Case>& info) {
  const Case& test = info.param;
  std::string name = test.mode;
  for (const auto& [flag, value] : test.flags) absl::StrAppend(&name, "_", flag, "_", value);
  absl::StrAppend(&name, test.dialect == Dialect::kPaddle ? "_paddle_" : "_weft_", test.model,
                  test.distributed ? "_distributed" : "");
  return name;
}

// What cannot be done, and is refused for that reason.
bool IsRefused(const Case& test) {
  return test.model == "mlp_gradient_merge" && test.dialect == Dialect::kPaddle &&
         test.mode == "local_sgd";
}

class Explain : public ::testing::TestWithParam<Case> {
 protected:
  static void SetUpTestSuite() { models_ = new std::map<std::string, Model>(ReadModels()); }
  static void TearDownTestSuite() {
    delete models_;
    models_ = nullptr;
  }

  static std::map<std::string, Model>* models_;
};

std::map<std::string, Model>* Explain::models_ = nullptr;

TEST_P(Explain, EveryGradientHasARemarkThatSaysWhatHappenedAndWhy) {
  const Case& test = GetParam();
  Model model = models_->at(test.model);
  WEFT_ASSERT_OK_AND_ASSIGN(const std::vector<GradientPair> pairs, FindGradientPairs(model.main));
  ASSERT_FALSE(pairs.empty());
  std::vector<std::string> grads;
  for (const GradientPair& pair : pairs) grads.emplace_back(model.main.name(pair.grad));

  TranspileOptions options;
  options.mode = test.mode;
  options.mode_flags = test.flags;
  options.dialect = test.dialect;
  options.explain = true;
  options.cluster.endpoints = {"a:1", "b:1"};
  WEFT_ASSERT_OK_AND_ASSIGN(const Mode* const mode, FindMode(test.mode));
  if (mode->trainers == Mode::Trainers::kOneOrMoreWithDevices) {
    options.cluster.devices = {{0, 1}};
  }
  if (test.distributed) {
    options.distributed_params = {std::string(model.main.name(pairs[0].param))};
  }
  ProgramPair programs{&model.main, &model.startup};
  const absl::StatusOr<TranspileResult> result = Transpile(options, programs);
  if (IsRefused(test)) {
    EXPECT_THAT(result, IsFailedPrecondition(AnyOf(HasSubstr("accumulated over several steps"),
                                                   HasSubstr("no op of the root block updates"))));
    return;
  }
  WEFT_ASSERT_OK(result.status());

  std::map<std::string, const Remark*> explained;
  for (const Remark& remark : result->remarks) {
    for (const char* what : {"reduced", "not reduced", "compressed", "gathered", "not gathered"}) {
      if (remark.what == what) explained[remark.subject] = &remark;
    }
  }
  for (const std::string& grad : grads) {
    ASSERT_EQ(explained.count(grad), 1) << grad;
    EXPECT_NE(explained[grad]->why, "") << grad;
  }
  if (test.distributed) {
    EXPECT_THAT(explained[grads[0]]->what, HasSubstr("not "));
  }
}

INSTANTIATE_TEST_SUITE_P(ModesAndModels, Explain, ValuesIn(AllCases()), NameOf);

}  // namespace
}  // namespace weft::testing
