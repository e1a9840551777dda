#include "executor/plan/startup_buffers.h"

#include <cstdint>
#include <memory>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace weft {
namespace {

absl::Status CheckElements(const std::string& name, const Tensor& tensor, int64_t expected) {
  if (!tensor.is_rows() && tensor.size() == expected) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("variable ", name, ": expected ", expected,
                   " elements, as the startup program gives it, found ", tensor.size()));
}

absl::Status CheckPart(const StartupBuffer& buffer, const StartupBuffer::Part& part,
                       const Tensor& whole, const Tensor& tensor) {
  WEFT_RETURN_IF_ERROR(CheckElements(part.name, tensor, part.count));
  const bool fits = part.begin >= 0 && part.count <= buffer.size &&
                    part.begin <= buffer.size - part.count && tensor.dtype() == whole.dtype();
  if (fits) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      "variable ", part.name, ": expected a part of ", buffer.name, " of ",
      DTypeName(whole.dtype()), "[", buffer.size, "], found ", DTypeName(tensor.dtype()),
      " elements ", part.begin, " to ", part.begin + part.count, " of it"));
}

void* ElementOf(const Tensor& whole, int64_t index) {
  return static_cast<char*>(const_cast<void*>(whole.raw())) +
         index * static_cast<int64_t>(SizeOf(whole.dtype()));
}

}  // namespace

absl::Status CopyStartupBuffer(const StartupBuffer& buffer, bool from_buffer,
                               const FindTensor& find) {
  Tensor* const whole = find(buffer.name);
  if (whole == nullptr || !whole->allocated()) return absl::OkStatus();
  WEFT_RETURN_IF_ERROR(CheckElements(buffer.name, *whole, buffer.size));
  for (const StartupBuffer::Part& part : buffer.parts) {
    Tensor* const tensor = find(part.name);
    if (tensor == nullptr || !tensor->allocated()) continue;
    WEFT_RETURN_IF_ERROR(CheckPart(buffer, part, *whole, *tensor));
    void* const place = ElementOf(*whole, part.begin);
    if (tensor->raw() == place) continue;
    Tensor slice =
        Tensor::Wrap(whole->dtype(), tensor->dims(),
                     std::shared_ptr<void>(std::shared_ptr<void>(), place), place, whole->memory());
    WEFT_RETURN_IF_ERROR(from_buffer ? tensor->CopyFrom(slice) : slice.CopyFrom(*tensor));
  }
  return absl::OkStatus();
}

absl::Status LayOutStartupBuffer(const StartupBuffer& buffer,
                                 const std::function<const Tensor*(const std::string&)>& values,
                                 Memory* memory, const FindTensor& find) {
  const Tensor* const whole = values(buffer.name);
  Tensor* const to = find(buffer.name);
  if (whole == nullptr || to == nullptr) return absl::OkStatus();
  WEFT_RETURN_IF_ERROR(CheckElements(buffer.name, *whole, buffer.size));
  for (const StartupBuffer::Part& part : buffer.parts) {
    const Tensor* const value = values(part.name);
    if (value != nullptr) WEFT_RETURN_IF_ERROR(CheckPart(buffer, part, *whole, *value));
  }
  const auto owner = std::make_shared<Tensor>(memory);
  owner->Resize(whole->dtype(), {buffer.size});
  for (const StartupBuffer::Part& part : buffer.parts) {
    const Tensor* const value = values(part.name);
    Tensor* const tensor = find(part.name);
    if (value == nullptr || tensor == nullptr) continue;
    *tensor =
        Tensor::Wrap(whole->dtype(), value->dims(), owner, ElementOf(*owner, part.begin), memory);
  }
  *to = Tensor::Wrap(whole->dtype(), whole->dims(), owner, owner->raw(), memory);
  return absl::OkStatus();
}

absl::StatusOr<std::map<std::string, Tensor>> PartsOfGivenBuffers(
    absl::Span<const StartupBuffer> buffers, const std::map<std::string, Tensor>& values) {
  std::map<std::string, Tensor> parts;
  for (const StartupBuffer& buffer : buffers) {
    const auto whole = values.find(buffer.name);
    if (whole == values.end()) continue;
    WEFT_RETURN_IF_ERROR(CheckElements(buffer.name, whole->second, buffer.size));
    for (const StartupBuffer::Part& part : buffer.parts) {
      if (values.count(part.name) > 0) continue;
      const Tensor slice =
          Tensor::Wrap(whole->second.dtype(), {part.count}, std::shared_ptr<void>(),
                       ElementOf(whole->second, part.begin), whole->second.memory());
      WEFT_RETURN_IF_ERROR(parts[part.name].CopyFrom(slice));
    }
  }
  return parts;
}

}  // namespace weft
