// A pool as a holder of memory: what it has, who has that in use, and what it gives back.
//
// Owns: the parts of the pool (pool_parts.hpp), its form of growth and its captures, and its name. Must not know: how
// requests are served (engine.hpp). Any thread; no other holder is called with a lock held.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "rmm/ledger.hpp"
#include "rmm/pool/captures.hpp"
#include "rmm/pool/growth.hpp"
#include "rmm/pool/pool_parts.hpp"
#include "rmm/pool/shortage.hpp"

namespace rmm {
inline namespace kmm_v0 {
namespace mr {
namespace detail {

class pool_holder : public rmm::detail::memory_holder {
  public:
    std::size_t held_bytes() const noexcept { return parts_.facts.held_bytes(); }
    const pool_options& options() const noexcept { return parts_.facts.options; }
    /// The tool that watches the pool's memory; mostly null. The pool tells it of upstream's blocks, its caller of
    /// others.
    memory_registration* registration() const noexcept { return parts_.registration.get(); }
    /// Collects what arenas do not use, so that it counts as free. O(arenas + what is free in them).
    pool_statistics statistics();
    /// Of a pool of virtual memory.
    virtual_source_counts mappings();
    std::size_t trim(std::size_t keep_bytes);
    void set_name(std::string name);
    /// In use under a tag. O(blocks in use).
    std::size_t in_use_bytes(const char* tag);
    /// Of the streams, arenas, events and pieces that the pool keeps, how many it has looked at so far: what the tests
    /// of its complexity compare.
    std::uint64_t num_steps();
    /// Timelines and arenas: what the pool remembers of streams.
    std::size_t num_remembered();
    /// Whether a thread has the engine's lock or that of an arena just now: what tests ask in each call of the driver.
    bool is_locked() noexcept;

    // ---- in the ledger
    /// Changes nothing in the pool, unlike `statistics`: frequent calls must not cost streams the spans of their
    /// arenas.
    rmm::detail::holder_figures figures() override;
    void add_by_tag(rmm::detail::tag_sums* sums) override;
    bool gave(const void* memory) noexcept override;
    void add_blocks(std::vector<rmm::detail::held_block>* blocks) override;
    std::size_t give_back(std::size_t bytes) noexcept override;

  protected:
    using lock = engine_lock;

    /// `make_growth(pool_parts&)`: the form of growth.
    template<typename Make>
    pool_holder(const growth_traits& traits, const pool_options& options, Make&& make_growth)
        : parts_(traits, options), growth_(make_growth(parts_)), captures_(parts_, *growth_) {
        parts_.spans.follow(*growth_);
    }
    ~pool_holder() = default;

    /// The caller excludes other threads that grow or shrink the pool.
    std::size_t trim(lock& held, std::size_t keep_bytes) KMM_REQUIRES(in_engine);
    pool_account account(const refusal& why);

    pool_parts parts_;
    const std::unique_ptr<growth> growth_;
    captures captures_;

  private:
    std::string name_in_texts() const KMM_REQUIRES(in_engine);
    rmm::detail::holder_figures count() KMM_REQUIRES(in_engine);
    template<typename F>
    void for_each_block(F&& f);

    std::string name_ KMM_GUARDED_BY(in_engine);  // empty: that of the class
};

}  // namespace detail
}  // namespace mr
}  // namespace kmm_v0
}  // namespace rmm
