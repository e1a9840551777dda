// Has one of the functions that Weft calls, with the same signature.
namespace gloo::transport::tcp {

struct attr;
void CreateDevice(const attr&) {}

}  // namespace gloo::transport::tcp
