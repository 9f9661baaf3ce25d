// Implements status.hpp.
#include "rmm/status.hpp"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <functional>
#include <utility>
#include <vector>

#include "driver/format.hpp"
#include "rmm/class_names.hpp"
#include "rmm/detail/format.hpp"
#include "rmm/ledger.hpp"
#include "rmm/tags.hpp"

namespace rmm {
inline namespace kmm_v0 {
namespace detail {
namespace {

const char* driver_word(driver::Driver& d) {
    switch (d.kind()) {
    case driver::Kind::cuda: return "CUDA";
    case driver::Kind::hip: return "HIP";
    case driver::Kind::host: break;
    }
    return "host driver";
}

std::string place(const std::source_location& where) {
    return driver::format("{}:{}: ", where.file_name(), where.line());
}

std::string describe_host_memory() {
    const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    return driver::format("host   total {}   free {}",
                          format_size(static_cast<std::size_t>(sysconf(_SC_PHYS_PAGES)) * page),
                          format_size(static_cast<std::size_t>(sysconf(_SC_AVPHYS_PAGES)) * page));
}

std::string describe(driver::Driver& d, driver::Status status) {
    return driver::format("{} {}", d.error_name(status), d.error_text(status));
}

}  // namespace

namespace {
thread_local driver::Driver* scoped_driver = nullptr;
}  // namespace

driver_scope::driver_scope(driver::Driver& driver) noexcept : outer_(scoped_driver) { scoped_driver = &driver; }

driver_scope::~driver_scope() { scoped_driver = outer_; }

void throw_lost_in_fork() { throw rmm::logic_error(driver::LostInFork().what()); }

driver::Driver& the_driver() {
    if (driver::Driver* const scoped = scoped_driver; scoped != nullptr) [[unlikely]] {
        refuse_after_fork();
        return *scoped;
    }
    try {
        return driver::process_default();  // throws after a fork
    } catch (const std::bad_alloc&) {
        throw;
    } catch (const std::exception& e) {
        throw rmm::logic_error(e.what());
    }
}

void check(driver::Status status, std::source_location where) {
    if (status.ok()) return;
    driver::Driver& d = the_driver();
    (void)d.take_last_error();
    throw rmm::cuda_error(driver::format("{} error at: {}{}", driver_word(d), place(where), describe(d, status)));
}

namespace {

/// Who in this process holds memory of the device, the largest first, and what runtimes say; lines that begin with
/// "\n".
std::string held_here(int device) {
    constexpr std::size_t max_named = 5;
    std::vector<std::pair<std::size_t, std::string>> holders;
    std::string lines;
    for_each_holder(device, [&](memory_holder& h) {
        const holder_figures f = h.figures();
        if (const std::string line = h.line_for_shortage(); !line.empty())
            lines += "\n  runtimes    " + line;
        else if (f.held_bytes != 0)
            holders.emplace_back(f.held_bytes,
                                 driver::format("{} {} (in use {})", f.name, driver::byte_size_text(f.held_bytes),
                                                driver::byte_size_text(f.in_use_bytes)));
    });
    std::sort(holders.begin(), holders.end(), std::greater<>());
    std::string text;
    for (std::size_t i = 0; i < std::min(holders.size(), max_named); ++i) text += "   " + holders[i].second;
    if (holders.size() > max_named) text += driver::format("   {} more", holders.size() - max_named);
    return (text.empty() ? "" : "\n  held here" + text) + lines;
}

}  // namespace

void throw_allocation_failure(driver::Status status, std::size_t bytes, const char* what, memory_place memory,
                              std::source_location where) {
    driver::Driver& d = the_driver();
    (void)d.take_last_error();
    std::string text = driver::format("{} error (failed to allocate {} bytes) at: {}{}", driver_word(d), bytes,
                                      place(where), describe(d, status));
    if (status.code != driver::Code::out_of_memory) throw rmm::bad_alloc(text);
    memory_shortage shortage;
    shortage.requested_bytes = bytes;
    const std::string asked = driver::format(": {} was asked for {}\n  ", with_class_names(what), format_size(bytes));
    shortage.limit = memory == memory_place::host ? memory_limit::host : memory_limit::device;
    if (memory == memory_place::host) {
        text +=
            driver::format("\nout of memory on the host{}{}\n"
                           "  try: smaller or fewer page-locked allocations; page-locked memory cannot be swapped out",
                           asked, describe_host_memory());
        throw rmm::out_of_memory(text, shortage);
    }
    const int device = current_device();
    const bool known = describe_device_memory(device, &shortage);
    const std::string figures =
        known ? driver::format("{}   total {}   free {}", device_name(device), format_size(shortage.device_total_bytes),
                               format_size(shortage.device_free_bytes))
              : "the driver cannot say how much memory is free";
    text += driver::format(
        "\nout of memory on {}{}{}{}\n"
        "  try: free what is no longer needed, smaller allocations, or a {}, which uses freed memory again",
        device_name(device), asked, figures,
        tag_of_thread == of_a_pool ? "" : held_here(device),  // a pool says it itself
        with_class_names("pool_memory_resource"));
    throw rmm::out_of_memory(text, shortage);
}

void throw_host_out_of_memory(std::size_t bytes, const char* what) {
    memory_shortage shortage;
    shortage.requested_bytes = bytes;
    shortage.limit = memory_limit::host;
    throw rmm::out_of_memory(driver::format("{} failed to allocate {} bytes\n"
                                            "out of memory on the host: it was asked for {}\n"
                                            "  {}\n"
                                            "  try: smaller or fewer allocations",
                                            with_class_names(what), bytes, format_size(bytes), describe_host_memory()),
                             shortage);
}

void report_failure(driver::Status status, const char* attempted) noexcept {
    if (status.ok() || status.code == driver::Code::shut_down) return;
    try {
        driver::Driver& d = the_driver();
        (void)d.take_last_error();
        std::fprintf(stderr, "rmm: could not %s: %s %s\n", attempted, d.error_name(status), d.error_text(status));
    } catch (...) {
        std::fprintf(stderr, "rmm: could not %s\n", attempted);
    }
}

void report_misuse(std::string_view text, std::string_view second, std::string_view third,
                   std::string_view fourth) noexcept {
    flockfile(stderr);  // the parts of a line stay together
    std::fputs("rmm: ", stderr);
    for (const std::string_view part : {text, second, third, fourth})
        if (!part.empty()) std::fwrite(part.data(), 1, part.size(), stderr);
    std::fputc('\n', stderr);
    funlockfile(stderr);
}

int current_device() noexcept {
    try {
        int device = -1;
        if (the_driver().current_device(&device).ok()) return device;
        (void)the_driver().take_last_error();
    } catch (...) {
        return -1;  // no driver: asked by functions that promise -1 for it
    }
    return -1;
}

std::string device_name(int device) {
    driver::Driver& d = the_driver();
    if (d.kind() == driver::Kind::host) return short_device_name(device);
    driver::DeviceProperties properties;
    const bool known = d.properties(device, &properties).ok();
    if (!known) (void)d.take_last_error();
    return short_device_name(device) +
           (known && !properties.name.empty() ? driver::format(" ({})", properties.name) : "");
}

std::string format_size(std::size_t bytes) {
    const std::string exact = driver::format("{} bytes", bytes);
    return bytes < 1024 ? exact : driver::format("{} ({})", driver::byte_size_text(bytes), exact);
}

std::string address_text(const void* address) {
    char digits[2 * sizeof(address)];
    char* const end = std::to_chars(digits, std::end(digits), reinterpret_cast<std::uintptr_t>(address), 16).ptr;
    return (address == nullptr ? "" : "0x") + std::string(digits, end);
}

std::string short_device_name(int device) {
    return driver::format("{} {}", the_driver().kind() == driver::Kind::host ? "virtual device" : "GPU", device);
}

std::string short_stream_name(cuda_stream_view stream) {
    return stream.is_default() ? "default" : format_stream(stream);
}

std::string stream_name(cuda_stream_view stream) {
    return stream.is_default() ? "the default stream" : "stream " + format_stream(stream);
}

bool describe_device_memory(int device, memory_shortage* shortage) {
    driver::Driver& d = the_driver();
    shortage->device = device;
    const driver::Status status = d.memory_info(device, &shortage->device_free_bytes, &shortage->device_total_bytes);
    if (status.ok()) return true;
    (void)d.take_last_error();
    shortage->device_free_bytes = shortage->device_total_bytes = 0;
    return false;
}

}  // namespace detail
}  // namespace kmm_v0
}  // namespace rmm
