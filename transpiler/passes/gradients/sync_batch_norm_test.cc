#include "transpiler/passes/gradients/sync_batch_norm.h"

#include <string>

#include "absl/strings/str_replace.h"
#include "gtest/gtest.h"
#include "transpiler/testing/expect_rewrite.h"

namespace weft::testing {
namespace {

constexpr char kVariables[] = R"(
    var x, y@GRAD : fp32[-1, 2] need_check_feed
    var y, x@GRAD : fp32[-1, 2]
    var scale, bias, mean, variance : fp32[2] persistable
    var saved_mean, saved_variance, scale@GRAD : fp32[2]
)";

std::string Training(const std::string& type, const std::string& attrs = "") {
  return absl::StrReplaceAll(R"(
    MeanOut=[mean], SavedMean=[saved_mean], SavedVariance=[saved_variance], VarianceOut=[variance], Y=[y] = TYPE(Bias=[bias], Mean=[mean], Scale=[scale], Variance=[variance], X=[x]) {ATTRS}
    Scale@GRAD=[scale@GRAD], X@GRAD=[x@GRAD] = TYPE_grad(Bias=[bias], SavedMean=[saved_mean], SavedVariance=[saved_variance], Scale=[scale], X=[x], Y@GRAD=[y@GRAD]) role=backward {ATTRS}
)",
                             {{"TYPE", type}, {"ATTRS", attrs}});
}

TEST(SyncBatchNorm, TheOpAndItsGradientAreSynchronized) {
  ExpectRewrite("sync-batch-norm", kVariables + Training("batch_norm"),
                Training("sync_batch_norm"));
}

TEST(SyncBatchNorm, RunningStatisticsStay) {
  for (const std::string attrs : {"use_global_stats=true", "is_test=true"}) {
    const std::string ops = Training("batch_norm", attrs);
    ExpectRewrite("sync-batch-norm", kVariables + ops, ops);
  }
}

}  // namespace
}  // namespace weft::testing
