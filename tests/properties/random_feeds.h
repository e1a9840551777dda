// How random programs (tests/properties/random_program.h) get their data.
#ifndef WEFT_TESTS_PROPERTIES_RANDOM_FEEDS_H_
#define WEFT_TESTS_PROPERTIES_RANDOM_FEEDS_H_

#include <set>
#include <string>
#include <vector>

#include "executor/run/feeder.h"
#include "tests/properties/random_spec.h"
#include "tests/properties/random_values.h"

namespace weft::testing {

// Whether the program marks the data variable (need_check_feed), and has a feed op for it.
bool IsMarked(const RandomSpec& spec, const std::string& feed);
bool HasFeedOp(const RandomSpec& spec, const std::string& feed);

// The batches of the named feeds, with layouts.
FeedSource FeedsOf(const std::vector<RandomValue>& values, const std::set<std::string>& names);

}  // namespace weft::testing

#endif  // WEFT_TESTS_PROPERTIES_RANDOM_FEEDS_H_
