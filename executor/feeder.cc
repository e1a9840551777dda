#include "executor/feeder.h"

#include <cstring>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"
#include "executor/run_checks.h"

namespace weft {
namespace {

std::string DescribeFeeds(const Plan& plan) {
  std::vector<std::string> feeds;
  for (const Plan::Variable& variable : plan.variables()) {
    if (!variable.is_feed) continue;
    feeds.push_back(variable.declared.has_value()
                        ? absl::StrCat(variable.name, " (", ToString(*variable.declared), ")")
                        : variable.name);
  }
  if (feeds.empty()) return "the program has no data variables";
  return absl::StrCat("data variables of the program: ", absl::StrJoin(feeds, ", "));
}

// What one of `nranks` ranks gets; the rows are known to divide.
Dims PartDims(const Plan::Variable& variable, const Dims& whole, int nranks) {
  Dims part = whole;
  if (variable.is_feed && nranks > 1) part[0] /= nranks;
  return part;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Feeder>> Feeder::Create(const Plan& plan, FeedSource source,
                                                       int nranks) {
  auto feeder = std::unique_ptr<Feeder>(new Feeder(std::move(source), nranks));
  absl::flat_hash_set<int> fed;
  for (const std::string& name : feeder->source_.variables) {
    const int variable = plan.FindVariable(name);
    if (variable == Plan::kNoVariable) {
      return absl::InvalidArgumentError(
          absl::StrCat("feed ", name, ": the program has no such variable; ", DescribeFeeds(plan)));
    }
    if (!fed.insert(variable).second) {
      return absl::InvalidArgumentError(absl::StrCat("feed ", name, ": given twice"));
    }
    if (plan.variables()[variable].is_written) {
      return absl::InvalidArgumentError(absl::StrCat(
          "feed ", name, ": an op of the program writes it, in every step; ", DescribeFeeds(plan)));
    }
    feeder->variables_.push_back(variable);
    feeder->declarations_.push_back(plan.variables()[variable]);
  }
  for (size_t v = 0; v < plan.variables().size(); ++v) {
    const Plan::Variable& variable = plan.variables()[v];
    if (!variable.is_feed || variable.first_reader < 0 || fed.contains(static_cast<int>(v))) {
      continue;
    }
    return absl::InvalidArgumentError(absl::StrCat("feed ", variable.name, ": missing, but ",
                                                   plan.ops()[variable.first_reader].name,
                                                   " reads it; ", DescribeFeeds(plan)));
  }
  return feeder;
}

absl::Status Feeder::Feed(int64_t step, int rank, absl::Span<Tensor* const> tensors) {
  if (variables_.empty()) return absl::OkStatus();
  WEFT_ASSIGN_OR_RETURN(const std::shared_ptr<const Batch> batch, Read(step));
  for (size_t i = 0; i < variables_.size(); ++i) {
    const Tensor& whole = (*batch)[i];
    Tensor* part = tensors[variables_[i]];
    part->Resize(whole.dtype(), PartDims(declarations_[i], whole.dims(), nranks_));
    const bool is_split = declarations_[i].is_feed;
    const size_t offset = is_split ? rank * part->bytes() : 0;
    if (part->bytes() == 0) continue;
    std::memcpy(part->raw(), static_cast<const char*>(whole.raw()) + offset, part->bytes());
  }
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<const Feeder::Batch>> Feeder::Read(int64_t step) {
  std::lock_guard<std::mutex> lock(mutex_);
  CachedBatch& cached = cache_[step % 2];
  if (cached.step == step) return cached.batch;
  WEFT_ASSIGN_OR_RETURN(Batch batch, source_.read(step));
  if (batch.size() != variables_.size()) {
    return absl::InternalError(absl::StrCat("step ", step, ": expected ", variables_.size(),
                                            " tensors to feed, found ", batch.size()));
  }
  for (size_t i = 0; i < batch.size(); ++i) {
    const absl::Status status = Check(declarations_[i], batch[i]);
    if (!status.ok()) {
      return absl::Status(
          status.code(),
          absl::StrCat("step ", step, ": feed ", declarations_[i].name, ": ", status.message()));
    }
  }
  cached.step = step;
  cached.batch = std::make_shared<const Batch>(std::move(batch));
  return cached.batch;
}

absl::Status Feeder::Check(const Plan::Variable& variable, const Tensor& whole) const {
  if (!whole.allocated()) return absl::InvalidArgumentError("the tensor holds nothing");
  const TensorType found = {whole.dtype(), whole.dims(), TensorType::Layout::kDense};
  const bool is_split = variable.is_feed && nranks_ > 1;
  if (variable.declared.has_value()) {
    const TensorType& declared = *variable.declared;
    if (found.dtype != declared.dtype || found.dims.size() != declared.dims.size()) {
      return absl::InvalidArgumentError(
          absl::StrCat("expected ", ToString(declared), ", found ", ToString(found)));
    }
  }
  if (is_split && (found.dims.empty() || found.dims[0] % nranks_ != 0)) {
    return absl::InvalidArgumentError(
        found.dims.empty() ? absl::StrCat("a scalar cannot be split over ", nranks_, " ranks")
                           : absl::StrCat(found.dims[0], found.dims[0] == 1 ? " row" : " rows",
                                          " cannot be split equally over ", nranks_, " ranks"));
  }
  if (!variable.declared.has_value()) return absl::OkStatus();
  const TensorType part = {found.dtype, PartDims(variable, found.dims, nranks_),
                           TensorType::Layout::kDense};
  if (FitsDeclared(part.dims, variable.declared->dims)) return absl::OkStatus();
  std::string message =
      absl::StrCat("expected ", ToString(*variable.declared), ", found ", ToString(part));
  if (is_split) {
    absl::StrAppend(&message, " (", found.dims[0], " rows over ", nranks_, " ranks)");
  }
  return absl::InvalidArgumentError(message);
}

}  // namespace weft
