#include "tools/inspect/event_file.h"

#include <sys/stat.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/status_macros.h"

namespace weft {
namespace {

std::array<uint32_t, 256> CrcTable() {
  std::array<uint32_t, 256> table{};
  for (uint32_t i = 0; i < table.size(); ++i) {
    uint32_t crc = i;
    for (int bit = 0; bit < 8; ++bit) crc = (crc & 1) != 0 ? crc >> 1 ^ 0x82f63b78 : crc >> 1;
    table[i] = crc;
  }
  return table;
}

// Numbers of the host are little-endian.
template <typename T>
std::string Bytes(T value) {
  return std::string(reinterpret_cast<const char*>(&value), sizeof(value));
}

std::string Masked(absl::string_view bytes) {
  const uint32_t crc = Crc32c(bytes);
  return Bytes<uint32_t>((crc >> 15 | crc << 17) + 0xa282ead8);
}

std::string Varint(uint64_t value) {
  std::string bytes;
  for (; value >= 0x80; value >>= 7) bytes += static_cast<char>(value | 0x80);
  return bytes + static_cast<char>(value);
}

// A field of a message: text or another message.
std::string Field(int number, absl::string_view bytes) {
  return absl::StrCat(Varint(number << 3 | 2), Varint(bytes.size()), bytes);
}

std::string Time(double seconds) { return Varint(1 << 3 | 1) + Bytes(seconds); }

}  // namespace

uint32_t Crc32c(absl::string_view bytes) {
  static const auto* const table = new std::array<uint32_t, 256>(CrcTable());
  uint32_t crc = ~uint32_t{0};
  for (const char byte : bytes) crc = crc >> 8 ^ (*table)[(crc ^ static_cast<uint8_t>(byte)) & 255];
  return ~crc;
}

double SecondsSince1970() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

absl::StatusOr<EventFile> EventFile::Create(const std::string& folder, int64_t begin_step,
                                            absl::string_view writer) {
  if (mkdir(folder.c_str(), 0777) != 0 && errno != EEXIST) {
    return absl::ErrnoToStatus(errno, absl::StrCat(folder, ": cannot create a folder"));
  }
  std::string path = absl::StrFormat("%s/events.out.tfevents.%010d.%s", folder, begin_step, writer);
  std::FILE* const opened = std::fopen(path.c_str(), "we");
  if (opened == nullptr) {
    return absl::ErrnoToStatus(errno, absl::StrCat(path, ": cannot open for writing"));
  }
  EventFile file(std::move(path), opened);
  WEFT_RETURN_IF_ERROR(file.WriteRecord(Time(0) + Field(3, "brain.Event:2")));
  return file;
}

absl::Status EventFile::Write(int64_t step, double seconds,
                              const std::vector<std::pair<std::string, double>>& scalars) {
  std::string summary;
  for (const auto& [name, number] : scalars) {
    const std::string value =
        Field(1, name) + Varint(2 << 3 | 5) + Bytes(static_cast<float>(number));
    summary += Field(1, value);
  }
  return WriteRecord(absl::StrCat(Time(seconds), Varint(2 << 3), Varint(step), Field(5, summary)));
}

absl::Status EventFile::WriteRecord(absl::string_view event) {
  const std::string size = Bytes<uint64_t>(event.size());
  const std::string record = absl::StrCat(size, Masked(size), event, Masked(event));
  if (std::fwrite(record.data(), 1, record.size(), file_.get()) == record.size() &&
      std::fflush(file_.get()) == 0) {
    return absl::OkStatus();
  }
  return absl::ErrnoToStatus(errno, absl::StrCat(path_, ": cannot write"));
}

}  // namespace weft
