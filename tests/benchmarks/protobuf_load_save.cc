// The baseline: libprotobuf loads a program into an arena and saves it, synced to disk.
//   protobuf_load_save IN.pb OUT.pb
#include <fcntl.h>
#include <unistd.h>

#include <iostream>

#include "google/protobuf/arena.h"
#include "google/protobuf/io/zero_copy_stream_impl.h"
#include "proto/framework.pb.h"

int main(int argc, char** argv) {
  namespace pb = ::paddle::framework::proto;
  if (argc != 3) {
    std::cerr << "usage: protobuf_load_save IN.pb OUT.pb\n";
    return 2;
  }
  google::protobuf::Arena arena;
  auto* program = google::protobuf::Arena::CreateMessage<pb::ProgramDesc>(&arena);
  const int in = open(argv[1], O_RDONLY);
  if (in < 0 || !program->ParseFromFileDescriptor(in)) {
    std::cerr << "cannot load " << argv[1] << "\n";
    return 1;
  }
  const int out = open(argv[2], O_WRONLY | O_CREAT | O_TRUNC, 0666);
  if (out < 0 || !program->SerializeToFileDescriptor(out) || fsync(out) != 0 || close(out) != 0) {
    std::cerr << "cannot save " << argv[2] << "\n";
    return 1;
  }
  // What the program's destruction costs is not part of the comparison.
  _exit(0);
}
