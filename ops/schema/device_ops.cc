#include "ops/schema/device_ops.h"

#include "absl/strings/numbers.h"
#include "absl/strings/strip.h"

namespace weft {
namespace {

using Kind = DeviceStream::Kind;

struct NamedStream {
  absl::string_view name;
  Kind kind;
};

constexpr NamedStream kStreams[] = {
    {"compute", Kind::kAccelerator},
    {"cpu", Kind::kHost},
    {"d2h", Kind::kToHost},
    {"h2d", Kind::kFromHost},
};

}  // namespace

absl::string_view DeviceKindName(DeviceKind device) {
  return device == DeviceKind::kHost ? "the host" : "the accelerator";
}

absl::optional<DeviceKind> CopiesFrom(absl::string_view type) {
  for (DeviceKind device : {DeviceKind::kAccelerator, DeviceKind::kHost}) {
    if (type == CopyOpType(device)) return device;
  }
  return absl::nullopt;
}

absl::string_view CopyOpType(DeviceKind from) {
  return from == DeviceKind::kHost ? "memcpy_h2d" : "memcpy_d2h";
}

absl::optional<DeviceStream> FindDeviceStream(absl::string_view name) {
  for (const NamedStream& stream : kStreams) {
    if (stream.name == name) return DeviceStream{stream.kind, -1};
  }
  int ring_id = 0;
  if (absl::ConsumePrefix(&name, "ring ") && absl::SimpleAtoi(name, &ring_id)) {
    return DeviceStream{Kind::kRing, ring_id};
  }
  return absl::nullopt;
}

absl::string_view DeviceStreamName(Kind kind) {
  for (const NamedStream& stream : kStreams) {
    if (stream.kind == kind) return stream.name;
  }
  return "";
}

}  // namespace weft
