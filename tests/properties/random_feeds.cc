#include "tests/properties/random_feeds.h"

#include <cmath>
#include <cstdint>
#include <utility>

#include "absl/status/statusor.h"
#include "ops/tensor.h"

namespace weft::testing {
namespace {

// Of one variable in a program that tells its data in different ways: 0: marked; 1: has a feed op;
// 2: both.
int MixedChoice(const RandomSpec& spec, const std::string& feed) {
  int choice = spec.data_choices;
  for (const RandomFeed& other : RandomFeeds()) {
    if (other.name == feed) break;
    choice /= 3;
  }
  return choice % 3;
}

// Between -1 and 1, or from 0 to below; different in every step, row and variable.
Tensor ReadFeed(const RandomFeed& feed, const Dims& dims, int64_t step) {
  Tensor tensor;
  tensor.Resize(feed.dtype, dims);
  for (int64_t i = 0; i < tensor.size(); ++i) {
    const double x = std::sin(1.0 + 12.9898 * i + 78.233 * step + 3.7719 * feed.name[0]);
    const double fraction = (x + 1) / 2.001;
    if (feed.dtype == DType::kInt64) {
      tensor.data<int64_t>()[i] = static_cast<int64_t>(fraction * feed.below);
    } else {
      tensor.data<double>()[i] = feed.below > 0 ? fraction : x;
    }
  }
  return tensor;
}

}  // namespace

bool IsMarked(const RandomSpec& spec, const std::string& feed) {
  if (spec.data == RandomData::kMixed) return MixedChoice(spec, feed) != 1;
  return spec.data == RandomData::kMarked;
}

bool HasFeedOp(const RandomSpec& spec, const std::string& feed) {
  if (spec.data == RandomData::kMixed) return MixedChoice(spec, feed) > 0;
  return spec.data == RandomData::kFed;
}

FeedSource FeedsOf(const std::vector<RandomValue>& values, const std::set<std::string>& names) {
  FeedSource source;
  std::vector<std::pair<const RandomFeed*, Dims>> fed;
  for (const RandomFeed& feed : RandomFeeds()) {
    if (names.count(feed.name) == 0) continue;
    source.variables.push_back(feed.name);
    source.layouts[feed.name] = feed.axis.has_value() ? FeedLayout{feed.axis} : FeedLayout::Whole();
    for (const RandomValue& value : values) {
      const bool is_feed = value.kind == RandomValue::Kind::kFeed;
      if (is_feed && value.name == feed.name) fed.emplace_back(&feed, value.types[kWhole].dims);
    }
  }
  source.read = [fed](int64_t step) -> absl::StatusOr<std::vector<Tensor>> {
    std::vector<Tensor> tensors;
    for (const auto& [feed, dims] : fed) tensors.push_back(ReadFeed(*feed, dims, step));
    return tensors;
  };
  return source;
}

}  // namespace weft::testing
