// Kills a process of a program of each mode at every op of every rank, in every collective, and at
// every place where something is written: the outputs have the bits of a run without failure.
#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/processes/elastic_job.h"

namespace weft::testing {
namespace {

struct Counts {
  int tried = 0, survived = 0;
  std::vector<double> notice_s, go_on_s;

  static std::string Describe(std::vector<double> seconds) {
    if (seconds.empty()) return "none";
    std::sort(seconds.begin(), seconds.end());
    char text[100];
    std::snprintf(text, sizeof(text), "median %.3f s, at most %.3f s", seconds[seconds.size() / 2],
                  seconds.back());
    return text;
  }
};

class ElasticSweepTest : public ::testing::TestWithParam<ElasticProgram::Mode> {
 protected:
  // Returns whether there was such a place.
  bool Try(const std::string& fault, const ElasticOptions& options = {}) {
    const ElasticOutcome outcome = program_.Run(fault, options);
    if (!outcome.has_happened) {
      EXPECT_EQ(outcome.status, 0) << fault << "\n" << outcome.err;
      return false;
    }
    ++counts_.tried;
    const bool survived = outcome.status == 0 && outcome.difference.empty();
    if (survived) ++counts_.survived;
    EXPECT_TRUE(survived) << GetParam().name << " " << fault << ": status " << outcome.status
                          << "\n"
                          << outcome.difference << outcome.err;
    if (outcome.notice_s.has_value()) counts_.notice_s.push_back(*outcome.notice_s);
    if (outcome.go_on_s.has_value()) counts_.go_on_s.push_back(*outcome.go_on_s);
    return true;
  }

  void TearDown() override {
    std::printf("%s: tried %d, survived %d; noticed: %s; goes on: %s\n", GetParam().name.c_str(),
                counts_.tried, counts_.survived, Counts::Describe(counts_.notice_s).c_str(),
                Counts::Describe(counts_.go_on_s).c_str());
  }

  ElasticProgram program_{GetParam()};
  Counts counts_;
};

TEST_P(ElasticSweepTest, KilledAtEveryOpOfEveryRank) {
  for (const int step : {0, 2}) {
    for (int rank = 0; rank < 4; ++rank) {
      for (int op = 0; Try(absl::StrCat("kernel:1:", step, ":", rank, ":", op, ":kill")); ++op) {
      }
    }
  }
}

TEST_P(ElasticSweepTest, KilledAndReplaced) {
  const ElasticOptions options = {4, 1, {"--max_replacements", "1"}, {}};
  for (int rank = 0; rank < 4; ++rank) {
    for (int op = 0; Try(absl::StrCat("kernel:1:2:", rank, ":", op, ":kill"), options); ++op) {
    }
  }
  for (int place = 0; place < 100; place += 10) {
    Try(absl::StrCat("late:1:", ElasticProgram::kSteps - 1, ":3:", place, ":kill"), options);
  }
}

TEST_P(ElasticSweepTest, KilledInEveryCollective) {
  for (const char* place : {"collective", "inside"}) {
    for (int rank = 0; rank < 4; ++rank) {
      for (int call = 0; Try(absl::StrCat(place, ":1:0:", rank, ":", call, ":kill")); ++call) {
      }
    }
  }
}

TEST_P(ElasticSweepTest, KilledWhereSomethingIsWritten) {
  for (int step = 0; step < ElasticProgram::kSteps; ++step) {
    for (int rank = 0; rank < 4; ++rank) {
      for (int place : {0, 1}) Try(absl::StrCat("result:1:", step, ":", rank, ":", place, ":kill"));
    }
  }
  for (int step = ElasticProgram::kSaveEvery; step <= ElasticProgram::kSteps; ++step) {
    for (int place = 0; place < 12; ++place) {
      Try(absl::StrCat("checkpoint:1:", step, ":0:", place, ":kill"));
    }
  }
  // The end: what is saved there, and the exit of the process, after which nothing happens.
  for (int place = 0; place < 100; place += 2) {
    Try(absl::StrCat("late:1:", ElasticProgram::kSteps - 1, ":3:", place, ":kill"));
  }
}

TEST_P(ElasticSweepTest, StoppedOrSlow) {
  for (const char* what : {"stop", "slow"}) {
    for (int rank = 0; rank < 4; ++rank) {
      for (const char* place : {"kernel:1:1:", "inside:1:0:"}) {
        Try(absl::StrCat(place, rank, ":2:", what));
      }
    }
  }
}

TEST_P(ElasticSweepTest, KilledOverGloo) {
  for (int rank = 0; rank < 4; ++rank) {
    for (int call = 0; call < 20; ++call) {
      if (!Try(absl::StrCat("inside:1:0:", rank, ":", call, ":kill"),
               {4, 1, {}, {"--backend", "gloo"}})) {
        break;
      }
    }
  }
}

ElasticOptions OnTwoHosts() {
  ElasticOptions options;
  options.hosts = 2;
  return options;
}

TEST_P(ElasticSweepTest, KilledOnTwoHosts) {
  for (int rank = 0; rank < 4; ++rank) {
    for (int op = 0; Try(absl::StrCat("kernel:1:2:", rank, ":", op, ":kill"), OnTwoHosts()); ++op) {
    }
  }
}

TEST_P(ElasticSweepTest, NetworkIsCut) {
  for (int op = 0; op < 4; ++op) {
    Try(absl::StrCat("kernel:1:2:1:", op, ":cut"), OnTwoHosts());
  }
}

INSTANTIATE_TEST_SUITE_P(Modes, ElasticSweepTest, ::testing::ValuesIn(ElasticProgram::Modes()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace weft::testing
