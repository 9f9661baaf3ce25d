// raw_cuda.hpp in a build without CUDA: every function says that there is nothing to measure.
#include "raw_cuda.hpp"

namespace kmm::bench::raw {

namespace {

constexpr const char* reason_text = "not available: built without CUDA (configure with -DKMM_CUDA=ON)";

Measured none() { return {{}, reason_text}; }

}  // namespace

bool available(std::string* reason) {
    if (reason) *reason = reason_text;
    return false;
}
int num_devices() { return 0; }
Measured vector_add(std::size_t, int, int, int) { return none(); }
Measured axpy(std::size_t, int, int, int) { return none(); }
Measured axpy_streamed(std::size_t, int, int, int) { return none(); }
Measured tiny_kernels(Shape, int, int) { return none(); }
Measured tiny_kernels_enqueue(Shape, int, int) { return none(); }
Measured tiny_graph_replay(Shape, int, int) { return none(); }
Measured tiny_kernels_threads(int, int, int) { return none(); }
Measured pinned_copy(Direction, std::size_t, std::size_t, int) { return none(); }
Measured peer_copy(int, int, bool, std::size_t, int) { return none(); }
Measured strided_copies(const StridedCopy*, std::size_t, int, int) { return none(); }
CallCosts call_costs(int) { return {none(), none(), none(), none(), none(), none(), none(), none(), none()}; }
bool keep_busy(void*, double) { return false; }
const void* empty_kernel() { return nullptr; }
const void* increment_kernel() { return nullptr; }
const void* spin_kernel() { return nullptr; }

}  // namespace kmm::bench::raw
