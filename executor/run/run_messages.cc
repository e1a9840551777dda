#include "executor/run/run_messages.h"

#include <cstring>
#include <set>
#include <type_traits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "ops/schema/tensor_type.h"

namespace weft {
namespace {

class MessageWriter {
 public:
  MessageWriter() = default;
  // Writes there, or counts only, if it is null.
  explicit MessageWriter(char* to) : is_fixed_(true), to_(to) {}

  template <typename T>
  void Number(T number) {
    static_assert(std::is_arithmetic_v<T>);
    Bytes(&number, sizeof(number));
  }

  void Text(absl::string_view text) {
    Number<uint64_t>(text.size());
    Bytes(text.data(), text.size());
  }

  absl::Status Write(const Tensor& tensor) {
    if (!tensor.memory()->IsHost()) {
      WEFT_ASSIGN_OR_RETURN(const Tensor on_host, tensor.ToHost());
      return Write(on_host);
    }
    Number<uint8_t>(tensor.is_rows());
    Number<int32_t>(static_cast<int32_t>(tensor.dtype()));  // its number in the format
    Number<uint64_t>(tensor.dims().size());
    for (const int64_t dim : tensor.dims()) Number(dim);
    if (tensor.is_rows()) {
      Number<int64_t>(tensor.height());
      for (const int64_t row : tensor.rows()) Number(row);
    }
    Bytes(tensor.raw(), tensor.bytes());
    return absl::OkStatus();
  }

  absl::Status Write(const std::map<std::string, Tensor>& tensors) {
    Number<uint64_t>(tensors.size());
    for (const auto& [name, tensor] : tensors) {
      Text(name);
      WEFT_RETURN_IF_ERROR(Write(tensor));
    }
    return absl::OkStatus();
  }

  void Write(const absl::Status& status) {
    Number<int32_t>(static_cast<int32_t>(status.code()));
    Text(status.message());
  }

  absl::Status Write(const RankState& state) {
    Number(state.step);
    Text(state.random);
    Number<uint64_t>(state.unset.size());
    for (const std::string& name : state.unset) Text(name);
    Number<uint64_t>(state.as_rank0.size());
    for (const std::string& name : state.as_rank0) Text(name);
    return Write(state.values);
  }

  std::string Take() { return std::move(bytes_); }
  size_t num_bytes() const { return num_bytes_; }

 private:
  void Bytes(const void* from, size_t size) {
    if (size == 0) return;
    if (!is_fixed_) {
      bytes_.append(static_cast<const char*>(from), size);
    } else if (to_ != nullptr) {
      std::memcpy(to_ + num_bytes_, from, size);
    }
    num_bytes_ += size;
  }

  const bool is_fixed_ = false;
  char* const to_ = nullptr;
  size_t num_bytes_ = 0;
  std::string bytes_;
};

// After the first value that is not there, all are zero and empty, and Finish says so.
class Reader {
 public:
  explicit Reader(absl::string_view bytes) : rest_(bytes) {}

  template <typename T>
  T Number() {
    T number = 0;
    const absl::string_view from = Bytes(sizeof(T));
    if (!from.empty()) std::memcpy(&number, from.data(), sizeof(T));
    return number;
  }

  // A number of things of at least `size` bytes that follow.
  uint64_t Count(size_t size) {
    const auto count = Number<uint64_t>();
    if (count <= rest_.size() / size) return count;
    fits_ = false;
    return 0;
  }

  std::string Text() { return std::string(Bytes(Count(1))); }

  Tensor ReadTensor() {
    Tensor tensor;
    const bool is_rows = Number<uint8_t>() != 0;
    const absl::optional<DType> dtype = DTypeFromProto(Number<int32_t>());
    Dims dims(Count(sizeof(int64_t)));
    for (int64_t& dim : dims) dim = Number<int64_t>();
    if (!dtype.has_value() || !FitInRest(*dtype, dims)) fits_ = false;
    // Their numbers come first.
    if (is_rows && (dims.empty() || !FitInRest(DType::kInt64, {dims[0]}))) fits_ = false;
    if (!fits_) return tensor;
    if (is_rows) {
      const int64_t num_rows = dims[0];
      dims[0] = Number<int64_t>();
      if (dims[0] < 0) fits_ = false;
      if (!fits_) return tensor;
      tensor.ResizeRows(*dtype, dims, num_rows);
      for (int64_t& row : tensor.mutable_rows()) row = Number<int64_t>();
    } else {
      tensor.Resize(*dtype, dims);
    }
    const absl::string_view from = Bytes(tensor.bytes());
    if (!from.empty()) std::memcpy(tensor.raw(), from.data(), from.size());
    return tensor;
  }

  RankState ReadState() {
    RankState state;
    state.step = Number<int64_t>();
    state.random = Text();
    for (std::set<std::string>* names : {&state.unset, &state.as_rank0}) {
      const uint64_t count = Count(1);
      for (uint64_t i = 0; i < count && fits_; ++i) names->insert(Text());
    }
    state.values = ReadTensors();
    return state;
  }

  std::map<std::string, Tensor> ReadTensors() {
    std::map<std::string, Tensor> tensors;
    const uint64_t count = Count(1);
    for (uint64_t i = 0; i < count && fits_; ++i) {
      std::string name = Text();
      tensors[std::move(name)] = ReadTensor();
    }
    return tensors;
  }

  absl::Status ReadStatus() {
    const auto code = static_cast<absl::StatusCode>(Number<int32_t>());
    return {code, Text()};
  }

  bool fits() const { return fits_; }

  // Whether the values are all of the message.
  absl::Status Finish(absl::string_view what) const {
    if (fits_ && rest_.empty()) return absl::OkStatus();
    return absl::InternalError(absl::StrCat("a message of another process is no ", what));
  }

 private:
  absl::string_view Bytes(size_t size) {
    if (size > rest_.size()) fits_ = false;
    if (!fits_) return {};
    const absl::string_view bytes = rest_.substr(0, size);
    rest_.remove_prefix(size);
    return bytes;
  }

  bool FitInRest(DType dtype, const Dims& dims) const {
    size_t bytes = SizeOf(dtype);
    for (const int64_t dim : dims) {
      if (dim < 0 || __builtin_mul_overflow(bytes, static_cast<size_t>(dim), &bytes)) return false;
    }
    return bytes <= rest_.size();
  }

  absl::string_view rest_;
  bool fits_ = true;
};

}  // namespace

absl::StatusOr<std::string> ResultMessage(const StepResult& result) {
  MessageWriter writer;
  writer.Number(result.step);
  writer.Number(result.rank);
  writer.Number(result.samples);
  writer.Number(result.ms);
  writer.Write(result.status);
  writer.Number<uint64_t>(result.values.size());
  for (const Tensor& value : result.values) WEFT_RETURN_IF_ERROR(writer.Write(value));
  return writer.Take();
}

absl::StatusOr<StepResult> ParseResult(absl::string_view message) {
  Reader reader(message);
  StepResult result;
  result.step = reader.Number<int64_t>();
  result.rank = reader.Number<int>();
  result.samples = reader.Number<int64_t>();
  result.ms = reader.Number<double>();
  result.status = reader.ReadStatus();
  const uint64_t count = reader.Count(1);
  for (uint64_t i = 0; i < count && reader.fits(); ++i) {
    result.values.push_back(reader.ReadTensor());
  }
  WEFT_RETURN_IF_ERROR(reader.Finish("result"));
  return result;
}

absl::StatusOr<std::string> StatesMessage(const std::vector<RankState>& states) {
  MessageWriter writer;
  writer.Number<uint64_t>(states.size());
  for (const RankState& state : states) WEFT_RETURN_IF_ERROR(writer.Write(state));
  return writer.Take();
}

absl::StatusOr<size_t> StateBytes(const RankState& state) {
  MessageWriter counter(nullptr);
  WEFT_RETURN_IF_ERROR(counter.Write(state));
  return counter.num_bytes();
}

absl::Status WriteState(const RankState& state, char* to) { return MessageWriter(to).Write(state); }

absl::StatusOr<RankState> ParseState(absl::string_view bytes) {
  Reader reader(bytes);
  RankState state = reader.ReadState();
  WEFT_RETURN_IF_ERROR(reader.Finish("state"));
  return state;
}

absl::StatusOr<std::vector<RankState>> ParseStates(absl::string_view message) {
  Reader reader(message);
  std::vector<RankState> states(reader.Count(1));
  for (RankState& state : states) state = reader.ReadState();
  WEFT_RETURN_IF_ERROR(reader.Finish("state"));
  return states;
}

absl::StatusOr<std::string> TensorsMessage(const std::map<std::string, Tensor>& tensors) {
  MessageWriter writer;
  WEFT_RETURN_IF_ERROR(writer.Write(tensors));
  return writer.Take();
}

absl::StatusOr<std::map<std::string, Tensor>> ParseTensors(absl::string_view message) {
  Reader reader(message);
  std::map<std::string, Tensor> tensors = reader.ReadTensors();
  WEFT_RETURN_IF_ERROR(reader.Finish("list of tensors"));
  return tensors;
}

absl::StatusOr<std::string> ServerMessageBytes(const ServerMessage& message, int to) {
  MessageWriter writer;
  writer.Number<int32_t>(to);
  writer.Number(static_cast<uint8_t>(message.kind));
  writer.Number(message.from);
  writer.Number(message.key);
  writer.Number(message.step);
  writer.Number(message.request);
  writer.Number<uint8_t>(message.has_no_rows);
  writer.Number<uint64_t>(message.tensors.size());
  for (const Tensor& tensor : message.tensors) WEFT_RETURN_IF_ERROR(writer.Write(tensor));
  return writer.Take();
}

absl::StatusOr<ServerMessage> ParseServerMessage(absl::string_view bytes, int* to) {
  Reader reader(bytes);
  ServerMessage message;
  *to = reader.Number<int32_t>();
  const auto kind = reader.Number<uint8_t>();
  message.kind = static_cast<ServerMessage::Kind>(kind);
  message.from = reader.Number<int32_t>();
  message.key = reader.Number<int64_t>();
  message.step = reader.Number<int64_t>();
  message.request = reader.Number<int64_t>();
  message.has_no_rows = reader.Number<uint8_t>() != 0;
  const uint64_t count = reader.Count(1);
  for (uint64_t i = 0; i < count && reader.fits(); ++i) {
    message.tensors.push_back(reader.ReadTensor());
  }
  WEFT_RETURN_IF_ERROR(reader.Finish("message to a server or worker"));
  if (kind > static_cast<uint8_t>(ServerMessage::kLastKind)) {
    return absl::InternalError(absl::StrCat("a message of another process is of no kind: ", kind));
  }
  return message;
}

std::string StatusMessage(const absl::Status& status) {
  MessageWriter writer;
  writer.Write(status);
  return writer.Take();
}

absl::Status ParseStatus(absl::string_view message) {
  Reader reader(message);
  const absl::Status status = reader.ReadStatus();
  WEFT_RETURN_IF_ERROR(reader.Finish("status"));
  return status;
}

std::string NumbersMessage(const std::vector<uint64_t>& numbers) {
  MessageWriter writer;
  writer.Number<uint64_t>(numbers.size());
  for (const uint64_t number : numbers) writer.Number(number);
  return writer.Take();
}

absl::StatusOr<std::vector<uint64_t>> ParseNumbers(absl::string_view message) {
  Reader reader(message);
  std::vector<uint64_t> numbers(reader.Count(sizeof(uint64_t)));
  for (uint64_t& number : numbers) number = reader.Number<uint64_t>();
  WEFT_RETURN_IF_ERROR(reader.Finish("list of numbers"));
  return numbers;
}

}  // namespace weft
