// Pass grad-reduce on the executor: what ranks get for their gradients is, bit by bit, what
// MindSpore, SINGA, MegEngine and Paddle make of them (tests/data/reductions).
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "base/status_macros.h"
#include "base/testing/test.h"
#include "executor/run/runner.h"
#include "nlohmann/json.hpp"
#include "ops/kernel.h"
#include "ops/schema/tensor_type.h"
#include "proto/text/program_text.h"
#include "tests/support/stream_sanitizer.h"
#include "transpiler/transpile.h"

namespace weft::testing {
namespace {

using Json = nlohmann::json;

std::vector<Json> ReadCases() {
  std::ifstream file("tests/data/reductions/cases.jsonl");
  std::vector<Json> cases;
  for (std::string line; std::getline(file, line);) cases.push_back(Json::parse(line));
  return cases;
}

DType TypeNamed(const std::string& name) {
  return name == "fp16" ? DType::kFloat16 : name == "bf16" ? DType::kBFloat16 : DType::kFloat32;
}

// The elements of a hexadecimal string, each most significant digit first, as little-endian bytes.
std::string BytesOf(const std::string& hex, size_t size) {
  std::string bytes;
  for (size_t at = 0; at < hex.size(); at += 2 * size) {
    for (size_t i = size; i-- > 0;) {
      bytes.push_back(static_cast<char>(std::stoul(hex.substr(at + 2 * i, 2), nullptr, 16)));
    }
  }
  return bytes;
}

std::string HexOf(const Tensor& tensor) {
  const size_t size = SizeOf(tensor.dtype());
  const auto* bytes = static_cast<const unsigned char*>(tensor.raw());
  std::string hex;
  for (int64_t e = 0; e < tensor.size(); ++e) {
    for (size_t i = size; i-- > 0;) {
      absl::StrAppend(&hex, absl::Hex(bytes[e * size + i], absl::kZeroPad2));
    }
  }
  return hex;
}

Tensor TensorOf(DType dtype, const Dims& dims, const std::string& hex) {
  Tensor tensor;
  tensor.Resize(dtype, dims);
  const std::string bytes = BytesOf(hex, SizeOf(dtype));
  EXPECT_EQ(bytes.size(), tensor.bytes());
  std::memcpy(tensor.raw(), bytes.data(), bytes.size());
  return tensor;
}

Dims DimsOf(const Json& json) {
  Dims dims;
  for (const Json& dim : json) dims.push_back(dim);
  return dims;
}

// A batch of all ranks.
Dims BatchOf(Dims dims, size_t ranks) {
  dims[0] *= static_cast<int64_t>(ranks);
  return dims;
}

// Gradient i is what is fed as x<i>, or the rows ids<i> of it.
struct Case {
  explicit Case(const Json& json) : json(json), ranks(json["gradients"][0]["ranks"].size()) {}

  std::string Text() const {
    std::string vars, backward, updates;
    for (size_t i = 0; i < json["gradients"].size(); ++i) {
      const Json& gradient = json["gradients"][i];
      Dims fed = DimsOf(gradient["dims"]);
      Dims whole = fed;
      fed[0] = -1;
      const bool has_rows = gradient.contains("rows");
      if (has_rows) whole[0] = gradient["height"];
      const std::string type = gradient["dtype"];
      absl::StrAppend(&vars, "var x", i, " : ", type, DimsToString(fed), " need_check_feed\n",
                      "var w", i, " : ", type, DimsToString(whole), " persistable parameter\n",
                      "var w", i, "@GRAD : ", has_rows ? "selected_rows<" : "", type,
                      DimsToString(whole), has_rows ? ">\n" : "\n");
      if (has_rows) {
        absl::StrAppend(&vars, "var ids", i, " : int64[-1] need_check_feed\n");
        absl::StrAppend(&backward, "W@GRAD=[w", i, "@GRAD] = lookup_table_v2_grad(Ids=[ids", i,
                        "], Out@GRAD=[x", i, "], W=[w", i, "]) role=backward vars=[w", i, ", w", i,
                        "@GRAD] {is_sparse=true}\n");
      } else {
        absl::StrAppend(&backward, "Out=[w", i, "@GRAD] = assign(X=[x", i,
                        "]) role=backward vars=[w", i, ", w", i, "@GRAD]\n");
      }
      if (!json.contains("params_after")) continue;
      absl::StrAppend(&updates, "ParamOut=[w", i, "] = sgd(Param=[w", i, "], Grad=[w", i,
                      "@GRAD], LearningRate=[lr]) role=optimize vars=[w", i, ", w", i, "@GRAD]\n");
    }
    if (!updates.empty()) absl::StrAppend(&vars, "var lr : fp32[1] persistable\n");
    return absl::StrCat("program version=2006002 {\nblock 0 parent=-1 {\n", vars, backward, updates,
                        "}\n}\n");
  }

  FeedSource Feeds() const {
    FeedSource feeds;
    std::vector<Tensor> batch;
    for (size_t i = 0; i < json["gradients"].size(); ++i) {
      const Json& gradient = json["gradients"][i];
      std::string hex;
      for (const Json& of_rank : gradient["ranks"]) hex += of_rank.get<std::string>();
      feeds.variables.push_back(absl::StrCat("x", i));
      batch.push_back(
          TensorOf(TypeNamed(gradient["dtype"]), BatchOf(DimsOf(gradient["dims"]), ranks), hex));
      if (!gradient.contains("rows")) continue;
      std::vector<int64_t> ids;
      for (const Json& of_rank : gradient["rows"]) {
        for (const Json& id : of_rank) ids.push_back(id);
      }
      Tensor tensor;
      tensor.Resize(DType::kInt64, {static_cast<int64_t>(ids.size())});
      std::memcpy(tensor.raw(), ids.data(), tensor.bytes());
      feeds.variables.push_back(absl::StrCat("ids", i));
      batch.push_back(std::move(tensor));
    }
    feeds.read = [batch](int64_t) { return batch; };
    return feeds;
  }

  const Json& json;
  const size_t ranks;
};

// What each rank holds after a step of the rewritten program.
absl::StatusOr<std::vector<std::vector<Tensor>>> Reduce(const Case& c,
                                                        const std::vector<std::string>& fetch) {
  WEFT_ASSIGN_OR_RETURN(Program main, ParseProgramText(c.Text()));
  TranspileOptions options;
  options.passes = absl::StrCat("grad-reduce{", c.json["options"].get<std::string>(), "}");
  options.cluster.nranks = static_cast<int>(c.ranks);
  std::map<std::string, Tensor> params;
  for (size_t i = 0; i < c.json["gradients"].size(); ++i) {
    const std::string name = absl::StrCat("w", i);
    if (c.json.contains("attrs")) {
      const Json& attrs = c.json["attrs"][i];
      options.param_attrs[name].layerwise_parallel = attrs["layerwise_parallel"];
      options.param_attrs[name].in_shard = attrs["in_shard"];
      options.param_attrs[name].parameter_server = attrs["parameter_server"];
    }
    const Json& gradient = c.json["gradients"][i];
    Dims dims = DimsOf(gradient["dims"]);
    if (gradient.contains("height")) dims[0] = gradient["height"];
    const DType dtype = TypeNamed(gradient["dtype"]);
    if (c.json.contains("params")) {
      params[name] = TensorOf(dtype, dims, c.json["params"][i]["hex"]);
    } else {
      params[name].Resize(dtype, dims);
      std::memset(params[name].raw(), 0, params[name].bytes());
    }
  }
  if (c.json.contains("params")) params["lr"] = TensorOf(DType::kFloat32, {1}, "3dcccccd");
  // What is fed stands for gradients here, which the verifier cannot know.
  options.verification = Verification::kNever;
  ProgramPair pair{&main, nullptr};
  WEFT_RETURN_IF_ERROR(Transpile(options, pair).status());
  RunOptions run;
  run.kernels = &CpuKernels();
  run.nranks = static_cast<int>(c.ranks);
  run.steps = 1;
  run.fetch = fetch;
  std::vector<std::vector<Tensor>> fetched(c.ranks);
  RunInputs inputs;
  inputs.main = &main;
  inputs.params = &params;
  inputs.feeds = c.Feeds();
  inputs.on_result = [&fetched](const StepResult& result) {
    for (const Tensor& value : result.values) fetched[result.rank].push_back(value.Clone());
    return absl::OkStatus();
  };
  WEFT_RETURN_IF_ERROR(RunChecked(inputs, run).status());
  return fetched;
}

uint32_t BitsAt(const std::string& hex, size_t element, size_t digits) {
  return static_cast<uint32_t>(std::stoul(hex.substr(element * digits, digits), nullptr, 16));
}

bool IsNan(uint32_t bits, const std::string& type) {
  if (type == "fp32") return (bits & 0x7fffffff) > 0x7f800000;
  return (bits & 0x7fff) > (type == "fp16" ? 0x7c00u : 0x7f80u);
}

// The patterns that are right for an element.
std::vector<uint32_t> RightBits(const Case& c, const Json& expected, size_t element,
                                size_t digits) {
  std::vector<uint32_t> right = {BitsAt(expected["hex"], element, digits)};
  const std::string key = absl::StrCat(element);
  if (!c.json.contains("other_orders") || !c.json["other_orders"].contains(key)) return right;
  for (const Json& hex : c.json["other_orders"][key]) right.push_back(BitsAt(hex, 0, digits));
  return right;
}

void ExpectBits(const Case& c, const std::string& type, const Tensor& found, const Json& expected,
                const std::string& what) {
  const size_t digits = type == "fp32" ? 8 : 4;
  const uint32_t sign = type == "fp32" ? 0x80000000 : 0x8000;
  const std::string hex = HexOf(found);
  ASSERT_EQ(hex.size(), expected["hex"].get<std::string>().size()) << what;
  for (size_t e = 0; e * digits < hex.size(); ++e) {
    const uint32_t bits = BitsAt(hex, e, digits);
    int64_t distance = INT64_MAX;  // in units of the last place
    for (uint32_t right : RightBits(c, expected, e, digits)) {
      const bool are_nan = IsNan(right, type) && IsNan(bits, type);
      // A scale adds a bias of 0, and -0 + 0 is 0.
      const bool are_zero = ((right | bits) & ~sign) == 0;
      const int64_t apart = std::abs(static_cast<int64_t>(bits) - static_cast<int64_t>(right));
      distance = std::min(distance, are_nan || are_zero ? 0 : apart);
    }
    EXPECT_LE(distance, c.json["ulp"].get<int64_t>())
        << absl::StrCat(what, " element ", e, ": ", absl::Hex(bits), ", expected ",
                        absl::Hex(BitsAt(expected["hex"], e, digits)));
  }
}

// Rows may be merged: both stand for the tensor in which rows of one index are added.
void ExpectRows(const Json& gradient, const Tensor& found, const Json& expected,
                const std::string& what) {
  ASSERT_TRUE(found.is_rows()) << what;
  const int64_t width = gradient["dims"][1];
  std::vector<float> sums(gradient["height"].get<int64_t>() * width), wanted = sums;
  for (size_t r = 0; r < found.rows().size(); ++r) {
    for (int64_t k = 0; k < width; ++k) {
      sums[found.rows()[r] * width + k] += found.data<float>()[r * width + k];
    }
  }
  const int64_t rows = static_cast<int64_t>(expected["rows"].size());
  const Tensor values = TensorOf(DType::kFloat32, {rows, width}, expected["hex"]);
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t k = 0; k < width; ++k) {
      wanted[expected["rows"][r].get<int64_t>() * width + k] += values.data<float>()[r * width + k];
    }
  }
  EXPECT_EQ(sums, wanted) << what;
}

bool HasUnevenRows(const Json& json) {
  for (const Json& gradient : json["gradients"]) {
    if (!gradient.contains("rows")) continue;
    for (const Json& rows : gradient["rows"]) {
      if (rows.size() != gradient["rows"][0].size()) return true;
    }
  }
  return false;
}

class ReductionTest : public ::testing::TestWithParam<Json> {};

TEST_P(ReductionTest, IsThatOfTheOriginal) {
  // A feed is split evenly. executor/communicators/rows_all_reduce_test.cc has ranks with other
  // numbers of rows.
  if (HasUnevenRows(GetParam())) GTEST_SKIP() << "ranks have different numbers of rows";
  const Case c(GetParam());
  const bool updates = c.json.contains("params_after");
  std::vector<std::string> fetch;
  for (size_t i = 0; i < c.json["gradients"].size(); ++i) {
    fetch.push_back(absl::StrCat("w", i, updates ? "" : "@GRAD"));
  }
  WEFT_ASSERT_OK_AND_ASSIGN(const auto fetched, Reduce(c, fetch));
  for (size_t rank = 0; rank < c.ranks; ++rank) {
    const Json& expected = updates ? c.json["params_after"] : c.json["expect"][rank];
    ASSERT_EQ(fetched[rank].size(), fetch.size());
    for (size_t i = 0; i < fetch.size(); ++i) {
      const Json& gradient = c.json["gradients"][i];
      const std::string what = absl::StrCat(fetch[i], " on rank ", rank);
      if (gradient.contains("rows")) {
        ExpectRows(gradient, fetched[rank][i], expected[i], what);
      } else {
        ExpectBits(c, gradient["dtype"], fetched[rank][i], expected[i], what);
      }
    }
  }
}

std::string NameOf(const ::testing::TestParamInfo<Json>& info) {
  return absl::StrReplaceAll(info.param["id"].get<std::string>(), {{"/", "_"}});
}

INSTANTIATE_TEST_SUITE_P(All, ReductionTest, ValuesIn(ReadCases()), NameOf);

}  // namespace
}  // namespace weft::testing
