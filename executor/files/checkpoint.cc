#include "executor/files/checkpoint.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <limits>
#include <sstream>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "base/annotate.h"
#include "base/available_memory.h"
#include "base/status_macros.h"
#include "nlohmann/json.hpp"

namespace weft {
namespace {

using Json = nlohmann::json;

constexpr absl::string_view kFormatName = "weft checkpoint";
constexpr absl::string_view kFormat = "weft checkpoint 1";
constexpr absl::string_view kAll = "all/";
constexpr absl::string_view kRank = "rank";
constexpr int kMaxRanks = 1 << 16;

std::string KeyOfRank(int rank, absl::string_view name) {
  return absl::StrCat(kRank, rank, "/", name);
}

// Of the metadata but "hash", and of all tensors, in order of their names.
class Hash {
 public:
  explicit Hash(const Metadata& metadata) {
    XXH3_64bits_reset(&state_);
    for (const auto& [key, text] : metadata) {
      if (key == "hash") continue;
      AddText(key);
      AddText(text);
    }
  }

  void Add(absl::string_view name, const Tensor& tensor) {
    AddText(name);
    AddText(ToString(TensorType{tensor.dtype(), tensor.dims()}));
    if (tensor.bytes() > 0) XXH3_64bits_update(&state_, tensor.raw(), tensor.bytes());
  }

  std::string Text() const { return absl::StrFormat("%016x", XXH3_64bits_digest(&state_)); }

 private:
  void AddText(absl::string_view text) {
    const uint64_t size = text.size();
    XXH3_64bits_update(&state_, &size, sizeof(size));
    XXH3_64bits_update(&state_, text.data(), text.size());
  }

  XXH3_state_t state_;
};

// All values, under their names in the file.
std::map<std::string, Tensor> TensorsOf(const Checkpoint& checkpoint) {
  std::map<std::string, Tensor> tensors;
  for (const auto& [name, tensor] : checkpoint.shared) tensors[absl::StrCat(kAll, name)] = tensor;
  for (size_t rank = 0; rank < checkpoint.own.size(); ++rank) {
    for (const auto& [name, tensor] : checkpoint.own[rank]) {
      tensors[KeyOfRank(static_cast<int>(rank), name)] = tensor;
    }
  }
  return tensors;
}

std::string BuffersText(const std::vector<StartupBuffer>& buffers) {
  Json list = Json::array();
  for (const StartupBuffer& buffer : buffers) {
    Json parts = Json::array();
    for (const StartupBuffer::Part& part : buffer.parts) {
      parts.push_back({part.name, part.begin, part.count});
    }
    list.push_back({buffer.name, buffer.size, std::move(parts)});
  }
  return list.dump();
}

// Throws Json::exception for another text.
std::vector<StartupBuffer> BuffersOf(const std::string& text) {
  std::vector<StartupBuffer> buffers;
  for (const Json& buffer : Json::parse(text)) {
    buffers.push_back({buffer.at(0).get<std::string>(), buffer.at(1).get<int64_t>(), {}});
    for (const Json& part : buffer.at(2)) {
      buffers.back().parts.push_back(
          {part.at(0).get<std::string>(), part.at(1).get<int64_t>(), part.at(2).get<int64_t>()});
    }
  }
  return buffers;
}

absl::StatusOr<Metadata> MetadataOf(const Checkpoint& checkpoint) {
  const size_t nranks = checkpoint.nranks;
  if (checkpoint.nranks < 1 || checkpoint.nranks > kMaxRanks || checkpoint.own.size() != nranks ||
      checkpoint.random.size() != nranks) {
    return absl::InvalidArgumentError(
        absl::StrCat("a checkpoint of ", checkpoint.nranks, " ranks with values of ",
                     checkpoint.own.size(), " and generators of ", checkpoint.random.size()));
  }
  Metadata metadata;
  metadata["format"] = std::string(kFormat);
  metadata["step"] = absl::StrCat(checkpoint.step);
  metadata["end_step"] = absl::StrCat(checkpoint.end_step);
  metadata["ranks"] = absl::StrCat(checkpoint.nranks);
  if (checkpoint.num_servers > 0) metadata["servers"] = absl::StrCat(checkpoint.num_servers);
  metadata["seed"] = absl::StrCat(checkpoint.seed);
  try {
    metadata["random"] = Json(checkpoint.random).dump();
    metadata["settings"] = Json(checkpoint.settings).dump();
    metadata["unset"] = Json(checkpoint.unset).dump();
    if (!checkpoint.buffers.empty()) metadata["buffers"] = BuffersText(checkpoint.buffers);
  } catch (const Json::type_error&) {
    return absl::InvalidArgumentError("a name or a setting is not UTF-8");
  }
  return metadata;
}

// Reads the fields of the metadata; the first that is missing or bad decides the error.
class Fields {
 public:
  explicit Fields(const Metadata& metadata) : metadata_(metadata) {}

  template <typename T>
  T Number(const std::string& key, T min, T max) {
    T number = 0;
    const std::string* const text = Find(key);
    if (text == nullptr) return min;
    if (absl::SimpleAtoi(*text, &number) && number >= min && number <= max) return number;
    Fail(key, absl::StrCat("expected an integer from ", min, " to ", max));
    return min;
  }

  // The container must hold strings.
  template <typename T>
  T Parse(const std::string& key, absl::string_view expected) {
    const std::string* const text = Find(key);
    if (text == nullptr) return T();
    try {
      return Json::parse(*text).get<T>();
    } catch (const Json::exception&) {
      Fail(key, expected);
      return T();
    }
  }

  const absl::Status& status() const { return status_; }

 private:
  const std::string* Find(const std::string& key) {
    const auto found = metadata_.find(key);
    if (found != metadata_.end()) return &found->second;
    Fail(key, "missing");
    return nullptr;
  }

  void Fail(const std::string& key, absl::string_view what) {
    status_.Update(absl::InvalidArgumentError(absl::StrCat("metadata ", key, ": ", what)));
  }

  const Metadata& metadata_;
  absl::Status status_;
};

absl::StatusOr<Checkpoint> ParseMetadata(const Metadata& metadata) {
  constexpr int64_t kLastStep = std::numeric_limits<int64_t>::max();
  Fields fields(metadata);
  Checkpoint checkpoint;
  checkpoint.step = fields.Number<int64_t>("step", 0, kLastStep);
  checkpoint.end_step = fields.Number<int64_t>("end_step", 0, kLastStep);
  checkpoint.nranks = fields.Number<int>("ranks", 1, kMaxRanks);
  if (metadata.count("servers") > 0) {
    checkpoint.num_servers = fields.Number<int>("servers", 1, checkpoint.nranks - 1);
  }
  checkpoint.seed = fields.Number<uint64_t>("seed", 0, std::numeric_limits<uint64_t>::max());
  checkpoint.random = fields.Parse<std::vector<std::string>>("random", "expected a list of texts");
  checkpoint.settings =
      fields.Parse<std::map<std::string, std::string>>("settings", "expected a map of texts");
  checkpoint.unset = fields.Parse<std::set<std::string>>("unset", "expected a list of texts");
  if (const auto buffers = metadata.find("buffers"); buffers != metadata.end()) {
    try {
      checkpoint.buffers = BuffersOf(buffers->second);
    } catch (const Json::exception&) {
      return absl::InvalidArgumentError(
          "metadata buffers: expected a list of [name, size, [[part, begin, count], ...]]");
    }
  }
  WEFT_RETURN_IF_ERROR(fields.status());
  if (checkpoint.random.size() != static_cast<size_t>(checkpoint.nranks)) {
    return absl::InvalidArgumentError(absl::StrCat("metadata random: expected ", checkpoint.nranks,
                                                   " texts, found ", checkpoint.random.size()));
  }
  checkpoint.own.resize(checkpoint.nranks);
  return checkpoint;
}

// Puts a tensor where its name in the file says.
absl::Status AddTensor(const std::string& key, Tensor tensor, Checkpoint* checkpoint) {
  absl::string_view name = key;
  if (absl::ConsumePrefix(&name, kAll)) {
    checkpoint->shared[std::string(name)] = std::move(tensor);
    return absl::OkStatus();
  }
  const size_t slash = name.find('/');
  int rank = -1;
  if (absl::ConsumePrefix(&name, kRank) && slash != absl::string_view::npos &&
      absl::SimpleAtoi(name.substr(0, slash - kRank.size()), &rank) && rank >= 0 &&
      rank < checkpoint->nranks) {
    name.remove_prefix(slash - kRank.size() + 1);
    // Numbers have several spellings.
    if (KeyOfRank(rank, name) == key && checkpoint->shared.count(std::string(name)) == 0) {
      checkpoint->own[rank][std::string(name)] = std::move(tensor);
      return absl::OkStatus();
    }
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "tensor '", key, "' does not belong in a checkpoint of ", checkpoint->nranks, " ranks"));
}

absl::StatusOr<Checkpoint> Read(const SafetensorsFile& file) {
  const Metadata& metadata = file.metadata();
  if (!IsCheckpoint(file)) {
    return absl::InvalidArgumentError(
        "expected a checkpoint of weft run, found a safetensors file of another kind");
  }
  if (metadata.at("format") != kFormat) {
    return absl::InvalidArgumentError(absl::StrCat("expected format '", kFormat, "', found '",
                                                   absl::Utf8SafeCHexEscape(metadata.at("format")),
                                                   "', of another version"));
  }
  WEFT_ASSIGN_OR_RETURN(Checkpoint checkpoint, ParseMetadata(metadata));
  uint64_t bytes = 0;
  for (const auto& [key, type] : file.types()) {
    bytes += static_cast<uint64_t>(NumElements(type.dims)) * SizeOf(type.dtype);
  }
  WEFT_RETURN_IF_ERROR(CheckFitsMemory("the checkpoint", bytes, AvailableMemory()));
  Hash hash(metadata);
  for (const auto& [key, type] : file.types()) {
    absl::StatusOr<Tensor> tensor = file.Read(key);
    if (!tensor.ok()) {
      // It begins with the path, which is added to all errors here.
      return absl::Status(tensor.status().code(),
                          absl::StripPrefix(tensor.status().message(), file.path() + ": "));
    }
    hash.Add(key, *tensor);
    WEFT_RETURN_IF_ERROR(AddTensor(key, *std::move(tensor), &checkpoint));
  }
  const auto expected = metadata.find("hash");
  if (expected == metadata.end() || expected->second != hash.Text()) {
    return absl::InvalidArgumentError("damaged: its hash does not match");
  }
  return checkpoint;
}

}  // namespace

absl::Status WriteCheckpoint(const std::string& path, const Checkpoint& checkpoint) {
  absl::StatusOr<Metadata> metadata = MetadataOf(checkpoint);
  if (!metadata.ok()) return Annotate(path, metadata.status());
  const std::map<std::string, Tensor> tensors = TensorsOf(checkpoint);
  Hash hash(*metadata);
  for (const auto& [key, tensor] : tensors) hash.Add(key, tensor);
  (*metadata)["hash"] = hash.Text();
  return WriteSafetensors(path, tensors, *metadata);
}

absl::StatusOr<Checkpoint> ReadCheckpoint(const std::string& path) {
  const absl::StatusOr<SafetensorsFile> file = SafetensorsFile::Open(path);
  if (absl::IsInvalidArgument(file.status())) {
    return absl::InvalidArgumentError(
        absl::StrCat(file.status().message(),
                     "; expected a checkpoint of weft run (parameters go to option:params)"));
  }
  WEFT_RETURN_IF_ERROR(file.status());
  absl::StatusOr<Checkpoint> checkpoint = Read(*file);
  if (!checkpoint.ok()) return Annotate(path, checkpoint.status());
  return checkpoint;
}

bool IsCheckpoint(const SafetensorsFile& file) {
  const auto format = file.metadata().find("format");
  return format != file.metadata().end() && absl::StartsWith(format->second, kFormatName);
}

absl::Status CheckRanks(const Checkpoint& checkpoint, int nranks) {
  if (checkpoint.nranks == nranks) return absl::OkStatus();
  const std::string refusal =
      absl::StrCat("expected ", checkpoint.nranks, checkpoint.nranks == 1 ? " rank" : " ranks",
                   ", as when it was written, found ", nranks, ": ");
  const std::string* first = nullptr;
  for (const auto& own : checkpoint.own) {
    if (!own.empty() && (first == nullptr || own.begin()->first < *first)) {
      first = &own.begin()->first;
    }
  }
  if (first != nullptr) {
    return absl::FailedPreconditionError(
        absl::StrCat(refusal, "variable ", *first,
                     " differs between the ranks; to go on with the values of rank 0, resume with ",
                     checkpoint.nranks, checkpoint.nranks == 1 ? " rank" : " ranks",
                     ", option:steps 0 and option:save, and start from what that writes "
                     "(option:params, option:resume_step)"));
  }
  for (const std::string& random : checkpoint.random) {
    if (random.empty()) continue;
    return absl::FailedPreconditionError(
        absl::StrCat(refusal, "the random numbers of its next step differ between the ranks"));
  }
  return absl::OkStatus();
}

std::string RandomText(const RandomState& random) {
  std::ostringstream text;
  text.imbue(std::locale::classic());
  text << random.initializers << ' ' << random.noise << ' ' << random.dropout.key << ' '
       << random.dropout.next_sequence;
  return text.str();
}

absl::StatusOr<RandomState> ParseRandomText(absl::string_view text) {
  std::istringstream stream{std::string(text)};
  stream.imbue(std::locale::classic());
  RandomState random;
  std::string more;
  if (stream >> random.initializers >> random.noise >> random.dropout.key >>
          random.dropout.next_sequence &&
      !(stream >> more)) {
    return random;
  }
  return absl::InvalidArgumentError(
      "expected the states of three generators (mt19937_64 twice, Philox)");
}

}  // namespace weft
