#include "kmm/graph/list.hpp"

#include <cstring>
#include <new>

namespace kmm::graph {

struct RecordMemory::Block {
    Block* next = nullptr;
    std::size_t bytes = 0;  ///< that were asked of the host
    void* begin = nullptr;  ///< what the host gave
};

void* RecordMemory::take_block(std::size_t bytes, std::size_t alignment, bool from_reserve) {
    alignment = std::max(alignment, alignment_bytes);
    const std::size_t header = (sizeof(Block) + alignment - 1) / alignment * alignment;
    // The host aligns to no less than the alignment of a record.
    const std::size_t slack = alignment - alignment_bytes;
    if (bytes > ~std::size_t{0} - header - slack) throw std::bad_alloc();
    const std::size_t all = header + slack + bytes;
    void* const begin = from_reserve ? HostReserve::allocate(all) : ::operator new(all);
    const std::uintptr_t first = (reinterpret_cast<std::uintptr_t>(begin) + alignment - 1) & ~(alignment - 1);
    auto* const memory = reinterpret_cast<std::byte*>(first) + header;
    // The header lies right before what is taken.
    blocks_ = new (memory - sizeof(Block)) Block{blocks_, all, begin};
    return memory;
}

void* RecordMemory::take_more(void* before, std::size_t bytes_before, std::size_t used_bytes, std::size_t bytes,
                              std::size_t alignment, bool from_reserve) {
    Block* const latest = blocks_;
    void* const memory = take(bytes, alignment, from_reserve);
    std::memcpy(memory, before, used_bytes);
    if (latest == nullptr || before != latest + 1) return memory;
    // A block may hold more than this piece: several lists that were made together.
    if (static_cast<std::byte*>(before) + bytes_before != static_cast<std::byte*>(latest->begin) + latest->bytes)
        return memory;
    const Block over = *latest;
    (blocks_ == latest ? blocks_ : blocks_->next) = over.next;
    HostReserve::release(over.begin, over.bytes);
    return memory;
}

void RecordMemory::release_blocks() noexcept {
    while (blocks_ != nullptr) {
        const Block block = *blocks_;
        HostReserve::release(block.begin, block.bytes);
        blocks_ = block.next;
    }
}

}  // namespace kmm::graph
