// What tests include: GoogleTest, the matchers of absl::Status, and names of gmock. In
// weft::testing, `testing` alone is not the namespace of gmock.
#ifndef WEFT_BASE_TESTING_TEST_H_
#define WEFT_BASE_TESTING_TEST_H_

#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weft::testing {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::Contains;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::ElementsAreArray;
using ::testing::FloatEq;
using ::testing::FloatNear;
using ::testing::Ge;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::IsNan;
using ::testing::IsSupersetOf;
using ::testing::Le;
using ::testing::Lt;
using ::testing::Not;
using ::testing::Pair;
using ::testing::Pointwise;
using ::testing::SizeIs;
using ::testing::StartsWith;
using ::testing::UnorderedElementsAre;
using ::testing::ValuesIn;

}  // namespace weft::testing

#endif  // WEFT_BASE_TESTING_TEST_H_
