// Programs on two devices: the host and an accelerator, each with its own memory.
//
// An op runs on the host if its attribute op_device is "cpu", else on the accelerator. A variable
// lies in the memory of the device whose ops access it. memcpy_d2h and memcpy_h2d copy a variable
// of one memory to a variable of the other. The program has five kinds of streams:
//
//   compute   the accelerator's ops; stream 0
//   cpu       the host's ops
//   d2h, h2d  copies to the host, and from it
//   ring N    collectives of ring N, on variables of either memory
//
// Only waits order them: stream_wait {stream, awaited} makes ops that `stream` is given from now on
// run after those that `awaited` was given so far. c_wait_compute and c_wait_comm order a ring and
// the stream of the device in their own op_device.
//
// A program is on two devices if it has a stream_wait. Other programs run on one device, whatever
// op_device says, as programs for Paddle's pipelines do.
#ifndef WEFT_OPS_SCHEMA_DEVICE_OPS_H_
#define WEFT_OPS_SCHEMA_DEVICE_OPS_H_

#include <cstdint>

#include "absl/strings/string_view.h"
#include "absl/types/optional.h"

namespace weft {

inline constexpr absl::string_view kOpDeviceAttr = "op_device";
inline constexpr absl::string_view kHostDeviceName = "cpu";

enum class DeviceKind : uint8_t { kAccelerator, kHost };
inline constexpr int kNumDeviceKinds = 2;

inline DeviceKind OtherDevice(DeviceKind device) {
  return device == DeviceKind::kHost ? DeviceKind::kAccelerator : DeviceKind::kHost;
}
// "the host", "the accelerator".
absl::string_view DeviceKindName(DeviceKind device);

// The device from whose memory an op of the type copies; it copies to that of the other device.
// None for other ops.
absl::optional<DeviceKind> CopiesFrom(absl::string_view type);
// The type of the op that copies from the memory of a device.
absl::string_view CopyOpType(DeviceKind from);

// A stream by its name in stream_wait. Of ring streams, `ring_id` says which.
struct DeviceStream {
  enum class Kind : uint8_t { kAccelerator, kHost, kToHost, kFromHost, kRing };
  Kind kind = Kind::kAccelerator;
  int ring_id = -1;

  friend bool operator==(const DeviceStream& a, const DeviceStream& b) {
    return a.kind == b.kind && a.ring_id == b.ring_id;
  }
};

// None if there is no stream of that name.
absl::optional<DeviceStream> FindDeviceStream(absl::string_view name);
// Of a stream that is no ring's.
absl::string_view DeviceStreamName(DeviceStream::Kind kind);

// On which a device computes; on which copies from it run.
inline DeviceStream::Kind ComputeStreamOf(DeviceKind device) {
  return device == DeviceKind::kHost ? DeviceStream::Kind::kHost : DeviceStream::Kind::kAccelerator;
}
inline DeviceStream::Kind CopyStreamFrom(DeviceKind device) {
  return device == DeviceKind::kHost ? DeviceStream::Kind::kFromHost : DeviceStream::Kind::kToHost;
}

}  // namespace weft

#endif  // WEFT_OPS_SCHEMA_DEVICE_OPS_H_
