#include "kmm/runtime/copy_buffers.hpp"

#include <algorithm>
#include <new>

#include "driver/byte_size.hpp"
#include "driver/format.hpp"
#include "kmm/engine/device_error.hpp"
#include "kmm/error.hpp"

namespace kmm::detail {

namespace {

constexpr char creating_a_stream[] = "creating a stream for copies to the program's memory";

}  // namespace

CopyBuffers::CopyBuffers(const Platform& platform) noexcept : platform_(platform) {
    try {
        make_streams();
    } catch (...) {
        (void)platform_.driver().take_last_error();
    }
}

CopyBuffers::~CopyBuffers() {
    trim();
    for (const Stream& stream : streams_)
        if (stream.status.ok()) (void)platform_.driver().destroy_stream(stream.handle);
}

// ------------------------------------------------------------------------------------------------------------- memory

/// One buffer for each thread of the host pool; only one if memory is short, pageable if none can be page-locked.
CopyBuffers::Memory CopyBuffers::get_memory() const noexcept {
    driver::Driver& driver = platform_.driver();
    const std::size_t most = std::clamp<std::size_t>(platform_.config().host_threads, 1, most_buffers);
    for (const std::size_t num_buffers : {most, std::size_t{1}}) {
        void* address = nullptr;
        if (driver.allocate_pinned(num_buffers * buffer_bytes, &address).ok())
            return {static_cast<std::byte*>(address), num_buffers, true};
        (void)driver.take_last_error();
    }
    std::byte* const address = new (std::nothrow) std::byte[buffer_bytes];
    return {address, address != nullptr ? std::size_t{1} : 0, false};
}

void CopyBuffers::drop(const Memory& memory) const noexcept {
    if (memory.pinned)
        (void)platform_.driver().free_pinned(memory.address);
    else
        delete[] memory.address;
}

void CopyBuffers::make_streams() {
    driver::Driver& driver = platform_.driver();
    streams_.reserve(platform_.num_devices());
    while (streams_.size() < platform_.num_devices()) {
        const int ordinal = platform_.ordinals()[streams_.size()];
        Stream stream;
        stream.status = driver.create_stream(ordinal, true, driver::most_urgent, &stream.handle);
        if (stream.status.code != driver::Code::device_lost)
            check_device(driver, ordinal, stream.status, creating_a_stream);
        streams_.push_back(stream);
    }
}

driver::StreamHandle CopyBuffers::stream(std::uint32_t device) const {
    const Stream& stream = streams_[device];
    check_device(platform_.driver(), platform_.ordinals()[device], stream.status, creating_a_stream);
    return stream.handle;
}

/// By one thread at a time, without the lock.
void CopyBuffers::prepare() {
    make_streams();
    const Memory memory = get_memory();
    if (memory.address == nullptr)
        throw OutOfMemory(MemoryId::host(), buffer_bytes, 0, 0,
                          driver::format("copy_to needs a buffer of {} on the host, beside the runtime's limits, and "
                                         "the system has no memory for it: end what else holds memory of the host",
                                         driver::byte_size_text(buffer_bytes)));
    try {
        const locks::Guard guard(mutex_);
        free_.reserve(memory.num_buffers);
        for (std::size_t i = 0; i < memory.num_buffers; ++i) free_.push_back(memory.address + i * buffer_bytes);
        memory_ = memory;
    } catch (...) {
        drop(memory);
        throw;
    }
}

std::size_t CopyBuffers::size_bytes() const {
    const locks::Guard guard(mutex_);
    return memory_.num_buffers * buffer_bytes;
}

void CopyBuffers::trim() noexcept {
    Memory memory;
    {
        const locks::Guard guard(mutex_);
        if (holds_ != 0) return;
        std::swap(memory, memory_);
        free_.clear();
    }
    drop(memory);
}

// -------------------------------------------------------------------------------------------------------------- users

CopyBuffers::Hold::Hold(CopyBuffers& buffers) : buffers_(buffers) {
    {
        locks::Lock lock(buffers_.mutex_);
        while (buffers_.is_preparing_) buffers_.is_free_.wait(lock);
        ++buffers_.holds_;
        if (buffers_.memory_.address != nullptr) return;
        buffers_.is_preparing_ = true;
    }
    const auto end_preparing = [&](bool failed) {
        {
            const locks::Guard guard(buffers_.mutex_);
            buffers_.is_preparing_ = false;
            if (failed) --buffers_.holds_;
        }
        buffers_.is_free_.notify_all();
    };
    try {
        buffers_.prepare();
    } catch (...) {
        end_preparing(true);
        throw;
    }
    end_preparing(false);
}

CopyBuffers::Hold::~Hold() {
    const locks::Guard guard(buffers_.mutex_);
    --buffers_.holds_;
}

CopyBuffers::Buffer::Buffer(CopyBuffers& buffers) : buffers_(buffers) {
    locks::Lock lock(buffers_.mutex_);
    while (buffers_.free_.empty()) buffers_.is_free_.wait(lock);
    address_ = buffers_.free_.back();
    buffers_.free_.pop_back();
}

CopyBuffers::Buffer::~Buffer() {
    {
        const locks::Guard guard(buffers_.mutex_);
        buffers_.free_.push_back(address_);  // it has room for all of them
    }
    buffers_.is_free_.notify_one();
}

}  // namespace kmm::detail
