#include "kmm/graph/list.hpp"

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

void RecordMemory::release_blocks() noexcept {
    while (blocks_ != nullptr) {
        const Block block = *blocks_;
        HostReserve::release(block.begin, block.bytes);
        blocks_ = block.next;
    }
}

}  // namespace kmm::graph
