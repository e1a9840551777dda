// What SINGA's DistOpt, MindSpore's reducers and fusion options, and MegEngine's
// DistributedOptimizer refuse, or should, as Weft refuses it. Cases have the names of conformance
// vectors.
//
// Weft differs where it documents so: a clip of 0 is none, split indices may be empty, a negative
// threshold of mindspore_size is no limit, and partitions of any size are averaged. It has no
// counterpart of contexts (parallel_mode, enable_parallel_optimizer), of callbacks, and of types of
// Python.
#include <map>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/testing/test.h"
#include "tests/support/models.h"
#include "tools/files/param_attrs_file.h"
#include "transpiler/transpile.h"

namespace weft::testing {
namespace {

using Flags = std::map<std::string, std::string>;

class CommunicationErrors : public ::testing::Test {
 protected:
  static absl::Status StatusOf(const std::string& mode, const Flags& flags, int ranks = 2) {
    static const auto* const model = new testing::Model(ReadModels().at("mlp_sgd"));
    Program main = model->main, startup = model->startup;
    ProgramPair programs{&main, &startup};
    TranspileOptions options;
    options.mode = mode;
    options.mode_flags = flags;
    if (mode == "megengine") options.mode_flags.emplace("reduce_method", "mean");
    options.cluster.nranks = ranks;
    return Transpile(options, programs).status();
  }
};

TEST_F(CommunicationErrors, ArgumentsOutOfRangeAreRefused) {
  const struct {
    const char *id, *mode;
    Flags flags;
    const char* message;  // a part of it
  } cases[] = {
      {"required/singa/topk_0.0", "singa_sparse_topk", {{"spars", "0"}}, "option spars: expected"},
      {"required/singa/topk_1.5", "singa_sparse_topk", {{"spars", "1.5"}}, "at most 1 (mode topk)"},
      {"required/singa/threshold_-0.5",
       "singa_sparse_threshold",
       {{"spars", "-0.5"}},
       "option spars: expected a finite magnitude >= 0"},
      {"required/singa/half_0.0", "singa_half", {{"clip", "-0.5"}}, "option clip: expected"},
      {"required/singa/fused_-1",
       "singa_plain",
       {{"buckets", "singa{threshold=-1}"}},
       "option buckets: expected"},
      {"required/singa/fused_3000000_4194304",
       "singa_plain",
       {{"buckets", "singa{threshold=3000000,buffer_elements=4194304}"}},
       "option buckets: expected"},
      {"mindspore/reducer/degree=0", "mindspore_reducer", {{"degree", "0"}}, "an integer >= 1"},
      {"mindspore/reducer/degree=-1", "mindspore_reducer", {{"degree", "-1"}}, "an integer >= 1"},
      {"mindspore/reducer/degree=1.5", "mindspore_reducer", {{"degree", "1.5"}}, "an integer >= 1"},
      {"mindspore/reducer/degree=True", "mindspore_reducer", {{"degree", "true"}}, "an integer"},
      {"mindspore/allreduce_op/mean",
       "mindspore_reducer",
       {{"reduce_method", "avg"}},
       "expected sum|mean"},
      {"mindspore/allreduce_op/SUM",
       "mindspore_reducer",
       {{"reduce_method", "SUM"}},
       "expected sum|mean"},
      {"mindspore/comm_fusion/72",
       "mindspore_reducer",
       {{"buckets", "mindspore_size{threshold=x}"}},
       "option buckets: expected"},
      {"mindspore/comm_fusion/75",
       "mindspore_reducer",
       {{"buckets", "mindspore{split_indices=\"35,20\"}"}},
       "option buckets: expected"},
      {"mindspore/comm_fusion/77",
       "mindspore_reducer",
       {{"buckets", "mindspore_bytes{threshold=1}"}},
       "option buckets: expected"},
      {"megengine/method_avg", "megengine", {{"reduce_method", "avg"}}, "expected sum|mean"},
      {"megengine/bcast_period_minus2",
       "megengine",
       {{"bcast_period", "-2"}},
       "option bcast_period: expected an integer >= -1"},
      {"required/megengine/0",
       "megengine",
       {{"buckets", "megengine{threshold_bytes=0}"}},
       "option buckets: expected"},
      {"mindspore/context/parallel_mode=data", "data", {}, "unknown mode data"},
  };
  for (const auto& one : cases) {
    SCOPED_TRACE(one.id);
    EXPECT_THAT(StatusOf(one.mode, one.flags), IsInvalidArgument(one.message));
  }
  EXPECT_THAT(StatusOf("grad_allreduce", {}, 0).message(), HasSubstr("at least 1, found 0"))
      << "mindspore/context/device_num=0";
}

TEST_F(CommunicationErrors, OthersAreAccepted) {
  const struct {
    const char *id, *mode;
    Flags flags;
  } cases[] = {
      {"mindspore/reducer/degree=3",
       "mindspore_reducer",
       {{"reduce_method", "mean"}, {"degree", "3"}}},
      {"mindspore/comm_fusion/69",
       "mindspore_reducer",
       {{"buckets", "mindspore_size{threshold=32}"}}},
      {"mindspore/comm_fusion/73",
       "mindspore_reducer",
       {{"buckets", "mindspore{split_indices=\"1,2\"}"}}},
      {"megengine/bcast_period_1", "megengine", {{"bcast_period", "1"}}},
      {"megengine/bcast_period_0", "megengine", {{"bcast_period", "0"}}},
      {"singa/sparse/corr", "singa_sparse_topk", {{"corr", "false"}}},
  };
  for (const auto& one : cases) {
    SCOPED_TRACE(one.id);
    WEFT_EXPECT_OK(StatusOf(one.mode, one.flags));
  }
}

TEST_F(CommunicationErrors, FusionIdsAreIntegersOf0OrMore) {
  const auto status_of = [](const char* value) {
    return ParseParamAttrs(absl::StrCat(R"({"w": {"comm_fusion": )", value, "}}")).status();
  };
  const std::pair<const char*, const char*> refused[] = {
      {"mindspore/parameter_comm_fusion/-1", "-1"},     {"mindspore/cell_comm_fusion/-1", "-1"},
      {"mindspore/parameter_comm_fusion/True", "true"}, {"mindspore/cell_comm_fusion/True", "true"},
      {"mindspore/parameter_comm_fusion/'1'", "\"1\""}, {"half", "1.5"}};
  for (const auto& [id, value] : refused) {
    SCOPED_TRACE(id);
    EXPECT_THAT(status_of(value), IsInvalidArgument("comm_fusion: expected an integer from 0"));
  }
  const std::pair<const char*, const char*> accepted[] = {
      {"mindspore/parameter_comm_fusion/0", "0"}, {"mindspore/cell_comm_fusion/3", "3"}};
  for (const auto& [id, value] : accepted) {
    SCOPED_TRACE(id);
    WEFT_EXPECT_OK(status_of(value));
  }
}

}  // namespace
}  // namespace weft::testing
