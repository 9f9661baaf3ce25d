#include "kmm/execute/memory_service.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <chrono>

namespace kmm::execute {

namespace {

constexpr std::size_t mib = std::size_t{1} << 20;
// A first step that costs about a millisecond, and a largest one that is ready in 40 ms where 16 threads touch pages.
constexpr std::size_t smallest_host_step = 32 * mib;
constexpr std::size_t largest_host_step = 1024 * mib;
constexpr std::size_t huge_page = 2 * mib;
constexpr std::size_t smallest_device_step = 64 * mib;
constexpr std::size_t largest_device_step = 2048 * mib;
// Creating, mapping and opening a piece costs the same 50 us whatever its size.
constexpr std::size_t largest_piece = 512 * mib;
constexpr unsigned most_touching_threads = 16;
// Between two allocations of the driver, so that no block of ours crosses from one into the next.
constexpr std::size_t gap = 512;

std::size_t round_up(std::size_t value, std::size_t unit) { return (value + unit - 1) / unit * unit; }

}  // namespace

MemoryService::MemoryService(driver::Driver& driver, std::vector<int> ordinals, std::vector<std::size_t> limits_bytes,
                             bool virtual_memory, const void* runtime, Reports& reports)
    : driver_(driver),
      ordinals_(std::move(ordinals)),
      limits_(std::move(limits_bytes)),
      virtual_memory_(virtual_memory),
      runtime_(runtime),
      reports_(reports),
      ranges_(limits_.size() - 1) {
    figures_.device_bytes.resize(ranges_.size());
    thread_ = std::thread([this] { run(); });
}

MemoryService::~MemoryService() {
    {
        std::lock_guard<std::mutex> guard(mutex_);
        stop_ = true;
    }
    wake_.notify_one();
    thread_.join();
    for (const Segment& s : segments_) {
        (void)driver_.unregister_host(s.address);
        ::munmap(s.reservation, s.reserved_bytes);
    }
    for (Range& r : ranges_) {
        for (const Piece& p : r.pieces) {
            (void)driver_.unmap(p.address, p.bytes);
            (void)driver_.release_physical(p.handle);
        }
        if (r.base != nullptr) (void)driver_.release_addresses(r.base, r.reserved_bytes);
        for (const Allocation& a : r.allocations) (void)driver_.free(a.address);
    }
}

void MemoryService::grow(memory::MemoryIndex memory, std::size_t at_least_bytes) {
    {
        std::lock_guard<std::mutex> guard(mutex_);
        requests_.push_back({memory, at_least_bytes});
    }
    wake_.notify_one();
}

void MemoryService::trim() {
    std::promise<void> trimmed;
    {
        std::lock_guard<std::mutex> guard(mutex_);
        requests_.push_back({0, 0, &trimmed});
    }
    wake_.notify_one();
    trimmed.get_future().wait();
}

MemoryService::Figures MemoryService::figures() const {
    std::lock_guard<std::mutex> guard(mutex_);
    return figures_;
}

void MemoryService::run() {
    const RuntimeThread mark(runtime_);
    for (;;) {
        Request request;
        {
            std::unique_lock<std::mutex> lock(mutex_);
            wake_.wait(lock, [this] { return stop_ || !requests_.empty(); });
            if (stop_) return;
            request = requests_.front();
            requests_.pop_front();
        }
        if (request.trimmed != nullptr) {
            trim_all();
            request.trimmed->set_value();
        } else if (request.memory == 0)
            grow_host(request.bytes);
        else
            grow_device(request.memory - 1, request.bytes);
        reports_.help();
    }
}

void MemoryService::answer(memory::MemoryIndex memory, const void* address, std::size_t bytes) {
    Message m;
    m.what = Message::What::grown;
    m.to = memory;
    m.address = reinterpret_cast<std::uintptr_t>(address);
    m.bytes = bytes;
    reports_.post(std::move(m));
}

// Page faults of one thread cost half a second per GiB; several threads with huge pages reach 0.02.
void MemoryService::touch(std::byte* address, std::size_t bytes) {
    ::madvise(address, bytes, MADV_HUGEPAGE);
    const unsigned threads = std::clamp(std::thread::hardware_concurrency(), 1u, most_touching_threads);
    const std::size_t share = round_up((bytes + threads - 1) / threads, huge_page);
    const auto run = [=](std::size_t begin) {
        // Once a small page: where there are no huge pages each of them faults.
        for (std::size_t i = begin; i < std::min(begin + share, bytes); i += 4096)
            *reinterpret_cast<volatile std::byte*>(address + i) = std::byte{0};
    };
    std::vector<std::thread> others;
    for (std::size_t begin = share; begin < bytes; begin += share) {
        try {
            others.emplace_back(run, begin);
        } catch (...) {
            run(begin);  // the system gives no more threads
        }
    }
    run(0);
    for (std::thread& t : others) t.join();
}

void MemoryService::grow_host(std::size_t bytes) {
    const std::size_t left = limits_[0] - std::min(limits_[0], host_bytes_);
    std::size_t offered =
        std::min(left, std::max(bytes, std::clamp(host_bytes_, smallest_host_step, largest_host_step)));
    const auto begin = std::chrono::steady_clock::now();
    void* reservation = MAP_FAILED;
    void* address = MAP_FAILED;
    std::size_t mapped = 0;
    bool registered = false;
    while (offered >= bytes && offered != 0) {
        mapped = round_up(offered, huge_page);
        // One huge page more than needed: the segment begins at one, and never touches its neighbours (a copy must not
        // cross from one page-locked range into another).
        reservation = ::mmap(nullptr, mapped + huge_page, PROT_READ | PROT_WRITE,
                             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (reservation != MAP_FAILED) {
            address = reinterpret_cast<void*>(round_up(reinterpret_cast<std::size_t>(reservation), huge_page));
            // The host driver pins nothing: its pages may come when they are used.
            if (driver_.kind() != driver::Kind::host) touch(static_cast<std::byte*>(address), mapped);
            registered = driver_.register_host(address, mapped).ok();
            if (registered) break;
            ::munmap(reservation, mapped + huge_page);
            address = MAP_FAILED;
        }
        if (offered == bytes) break;
        offered = std::max(bytes, offered / 2);
    }
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    if (address == MAP_FAILED || offered < bytes) {
        answer(0, nullptr, 0);
        return;
    }
    segments_.push_back({address, offered, mapped, reservation, mapped + huge_page});
    host_bytes_ += offered;
    {
        std::lock_guard<std::mutex> guard(mutex_);
        figures_.pinning_seconds += seconds;
        figures_.pinned_bytes += mapped;
    }
    answer(0, address, offered);
}

void MemoryService::grow_device(std::uint32_t device, std::size_t bytes) {
    Range& r = ranges_[device];
    const std::size_t limit = limits_[device + 1];
    const std::size_t offered_so_far = r.offered_bytes + r.allocated_bytes;
    const std::size_t left = limit - std::min(limit, offered_so_far);
    const std::size_t wanted =
        std::min(left, std::max(bytes, std::clamp(offered_so_far, smallest_device_step, largest_device_step)));
    if (wanted == 0) {
        answer(device + 1, nullptr, 0);
        return;
    }
    if (virtual_memory_ && r.base == nullptr && r.allocations.empty()) {
        void* base = nullptr;
        if (!driver_.granularity(ordinals_[device], &r.granularity).ok() || r.granularity == 0) r.granularity = 2 * mib;
        r.reserved_bytes = round_up(limit, r.granularity);
        if (driver_.reserve_addresses(r.reserved_bytes, &base).ok()) r.base = static_cast<std::byte*>(base);
    }
    if (r.base != nullptr && map_more(device, r, wanted)) {
        const std::size_t offered = std::min(wanted, r.mapped_bytes - r.offered_bytes);
        answer(device + 1, r.base + r.offered_bytes, offered);
        r.offered_bytes += offered;
        return;
    }
    // No virtual memory, or not even one piece of it: a plain allocation of what is needed at least.
    for (const std::size_t attempt : {wanted, std::min(left, bytes)}) {
        void* address = nullptr;
        if (!driver_.allocate(ordinals_[device], attempt + gap, &address).ok() &&
            !driver_.allocate(ordinals_[device], attempt, &address).ok())
            continue;
        r.allocations.push_back({address, attempt});
        r.allocated_bytes += attempt;
        {
            std::lock_guard<std::mutex> guard(mutex_);
            figures_.device_bytes[device] += attempt;
        }
        answer(device + 1, address, attempt);
        return;
    }
    answer(device + 1, nullptr, 0);
}

void MemoryService::trim_all() {
    std::size_t unpinned = 0;
    std::erase_if(segments_, [&](const Segment& s) {
        if (!reports_.take_back(0, s.address, s.offered_bytes)) return false;
        (void)driver_.unregister_host(s.address);
        ::munmap(s.reservation, s.reserved_bytes);
        host_bytes_ -= s.offered_bytes;
        unpinned += s.pinned_bytes;
        return true;
    });
    {
        std::lock_guard<std::mutex> guard(mutex_);
        figures_.pinned_bytes -= unpinned;
    }
    for (std::uint32_t d = 0; d < ranges_.size(); ++d) trim_device(d);
}

void MemoryService::trim_device(std::uint32_t device) {
    Range& r = ranges_[device];
    std::size_t unmapped = 0, freed = 0;
    while (!r.pieces.empty()) {
        const Piece piece = r.pieces.back();
        const auto begin = static_cast<std::size_t>(static_cast<std::byte*>(piece.address) - r.base);
        const std::size_t offered = r.offered_bytes - std::min(r.offered_bytes, begin);
        if (offered != 0 && !reports_.take_back(device + 1, piece.address, offered)) break;
        (void)driver_.unmap(piece.address, piece.bytes);
        (void)driver_.release_physical(piece.handle);
        r.pieces.pop_back();
        r.offered_bytes -= offered;
        r.mapped_bytes -= piece.bytes;
        unmapped += piece.bytes;
    }
    std::erase_if(r.allocations, [&](const Allocation& a) {
        if (!reports_.take_back(device + 1, a.address, a.offered_bytes)) return false;
        (void)driver_.free(a.address);
        r.allocated_bytes -= a.offered_bytes;
        freed += a.offered_bytes;
        return true;
    });
    std::lock_guard<std::mutex> guard(mutex_);
    figures_.mapped_bytes -= unmapped;
    figures_.device_bytes[device] -= unmapped + freed;
}

// Maps until `bytes` more can be offered, in pieces; keeps what it got when the driver stops giving. True if anything is new.
bool MemoryService::map_more(std::uint32_t device, Range& r, std::size_t bytes) {
    const int own = ordinals_[device];
    std::vector<int> readers;
    for (const int d : ordinals_) {
        bool peer = d == own;
        if (!peer && !driver_.can_access_peer(d, own, &peer).ok()) peer = false;
        if (peer) readers.push_back(d);
    }
    while (r.mapped_bytes < r.offered_bytes + bytes && r.mapped_bytes < r.reserved_bytes) {
        Piece piece;
        piece.bytes = std::min({round_up(r.offered_bytes + bytes - r.mapped_bytes, r.granularity), largest_piece,
                                r.reserved_bytes - r.mapped_bytes});
        piece.address = r.base + r.mapped_bytes;
        if (!driver_.create_physical(own, piece.bytes, &piece.handle).ok()) break;
        bool ok = driver_.map(piece.address, piece.bytes, piece.handle).ok();
        if (ok && !driver_.set_access(piece.address, piece.bytes, readers.data(), readers.size()).ok()) {
            (void)driver_.unmap(piece.address, piece.bytes);
            ok = false;
        }
        if (!ok) {
            (void)driver_.release_physical(piece.handle);
            break;
        }
        r.pieces.push_back(piece);
        r.mapped_bytes += piece.bytes;
        std::lock_guard<std::mutex> guard(mutex_);
        figures_.mapped_bytes += piece.bytes;
        figures_.device_bytes[device] += piece.bytes;
        ++figures_.mappings;
    }
    return r.mapped_bytes > r.offered_bytes;
}

}  // namespace kmm::execute
