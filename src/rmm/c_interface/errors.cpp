// Implements errors.hpp, and of <rmm/rmm.h> what asks about errors.
#include "rmm/c_interface/errors.hpp"

#include <algorithm>
#include <cstdint>
#include <new>
#include <stdexcept>

namespace rmm {
inline namespace kmm_v0 {
namespace c_interface {
namespace {

/// Without constructor and destructor, so that it can be had while the objects of a thread are being destroyed.
struct thread_error {
    char text[4096] = {};
    bool is_shortage = false;
    memory_shortage shortage;
};
constinit thread_local thread_error error_of_thread{};

int note(int code, const char* text) noexcept {
    thread_error& error = error_of_thread;
    error.is_shortage = false;
    std::size_t size = std::min(std::strlen(text), sizeof error.text - 1);
    // Not in the middle of a letter.
    if (text[size] != 0)
        while (size > 0 && (static_cast<unsigned char>(text[size]) & 0xc0u) == 0x80u) --size;
    std::memmove(error.text, text, size);  // `text` may be the text of the last error itself
    error.text[size] = 0;
    return code;
}

}  // namespace

int failure_of_exception() noexcept {
    try {
        throw;
    } catch (const invalid_argument& e) {
        return note(RMM_INVALID_ARGUMENT, e.what());
    } catch (const rmm::out_of_memory& e) {
        (void)note(RMM_OUT_OF_MEMORY, e.what());
        error_of_thread.is_shortage = true;
        error_of_thread.shortage = e.shortage();
        return RMM_OUT_OF_MEMORY;
    } catch (const rmm::bad_alloc& e) {
        return note(RMM_BAD_ALLOC, e.what());
    } catch (const rmm::cuda_error& e) {
        return note(RMM_DEVICE_ERROR, e.what());
    } catch (const std::logic_error& e) {
        return note(RMM_LOGIC_ERROR, e.what());
    } catch (const std::bad_alloc&) {
        return note(RMM_BAD_ALLOC, "the host has no memory left for what the library needs itself");
    } catch (const std::exception& e) {
        return note(RMM_ERROR, e.what());
    } catch (...) {
        return note(RMM_ERROR, "a resource threw what is no std::exception");
    }
}

void expect_not_null(const void* argument, const char* name) {
    if (argument == nullptr) throw invalid_argument(std::string(name) + " is null");
}

}  // namespace c_interface
}  // namespace kmm_v0
}  // namespace rmm

using namespace rmm::c_interface;

int rmm_c_version(void) { return RMM_C_VERSION; }

const char* rmm_last_error(void) { return error_of_thread.text; }

int rmm_last_shortage(rmm_shortage* out) {
    const thread_error& error = error_of_thread;
    if (!error.is_shortage || out == nullptr || out->struct_size < sizeof out->struct_size) return RMM_INVALID_ARGUMENT;
    const rmm::memory_shortage& s = error.shortage;
    rmm_shortage found = {};
    found.device = s.device;
    found.limit = static_cast<std::int32_t>(s.limit);
    found.requested_bytes = s.requested_bytes;
    found.device_free_bytes = s.device_free_bytes;
    found.device_total_bytes = s.device_total_bytes;
    found.pool_bytes = s.pool_bytes;
    found.pool_in_use_bytes = s.pool_in_use_bytes;
    found.pool_free_bytes = s.pool_free_bytes;
    found.pool_largest_free_bytes = s.pool_largest_free_bytes;
    found.pool_maximum_bytes = s.pool_maximum_bytes;
    found.pool_num_blocks = s.pool_num_blocks;
    found.other_pools_bytes = s.other_pools_bytes;
    found.elsewhere_bytes = s.elsewhere_bytes;
    write_struct(out, found, "out");
    return RMM_OK;
}

static_assert(RMM_LIMIT_DEVICE == static_cast<int>(rmm::memory_limit::device) &&
              RMM_LIMIT_HOST == static_cast<int>(rmm::memory_limit::host) &&
              RMM_LIMIT_MAXIMUM == static_cast<int>(rmm::memory_limit::maximum));
