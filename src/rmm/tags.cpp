// Implements <rmm/memory_tag.hpp> and tags.hpp.
#include "rmm/tags.hpp"

#include <array>
#include <cstring>
#include <string>
#include <string_view>
#include <unordered_map>

#include "driver/locks.hpp"
#include "driver/never_destroyed.hpp"
#include "rmm/memory_tag.hpp"
#include "rmm/status.hpp"

namespace rmm {
inline namespace kmm_v0 {
namespace detail {

std::atomic<bool> tags_in_use{false};
constinit thread_local tag_number tag_of_thread = untagged;

namespace {

constexpr std::size_t max_tags = 65000;

struct tag_names {
    kmm::locks::ShortLock mutex;
    std::unordered_map<std::string_view, tag_number> numbers KMM_GUARDED_BY(mutex);
    std::vector<const std::string*> names KMM_GUARDED_BY(mutex);  // never freed: numbers outlive everything

    tag_names() {
        for (const char* fixed : {"(untagged)", "(of other pools)"}) names.push_back(new std::string(fixed));
    }
};

tag_names& all_names() { return ::kmm::driver::never_destroyed<tag_names>(); }  // used by destructors of statics

/// Names that this thread used last, by where their text lies.
struct known_name {
    const char* text = nullptr;
    const char* name = nullptr;  // in the table
    tag_number number = untagged;
};
constexpr std::size_t num_known = 16;
thread_local std::array<known_name, num_known> known;

}  // namespace

tag_number number_of_tag(const char* name) {
    if (name == nullptr || *name == 0) return untagged;
    known_name& slot = known[reinterpret_cast<std::uintptr_t>(name) / 8 % num_known];
    // The place may hold another text by now.
    if (slot.text == name && std::strcmp(slot.name, name) == 0) return slot.number;
    if (lost_in_fork()) return untagged;
    const driver::DriverUse use;  // a child forked meanwhile returns above instead of waiting for this lock
    tag_names& all = all_names();
    const kmm::locks::Guard in(all.mutex);
    auto at = all.numbers.find(name);
    if (at == all.numbers.end()) {
        if (all.names.size() > max_tags) return static_cast<tag_number>(max_tags);
        all.names.reserve(all.names.size() + 1);
        const auto* const kept = new std::string(all.names.size() == max_tags ? "(other tags)" : name);
        at = all.numbers.emplace(*kept, static_cast<tag_number>(all.names.size())).first;
        all.names.push_back(kept);
    }
    slot = {name, all.names[at->second]->c_str(), at->second};
    return at->second;
}

tag_number find_tag(const char* name) noexcept {
    if (name == nullptr || *name == 0 || lost_in_fork()) return untagged;
    const driver::DriverUse use;
    tag_names& all = all_names();
    const kmm::locks::Guard in(all.mutex);
    const auto at = all.numbers.find(name);
    return at == all.numbers.end() ? untagged : at->second;
}

const char* name_of_tag(tag_number tag) noexcept {
    if (lost_in_fork()) return "";
    const driver::DriverUse use;
    tag_names& all = all_names();
    const kmm::locks::Guard in(all.mutex);
    return tag < all.names.size() ? all.names[tag]->c_str() : "";
}

}  // namespace detail

memory_tag::memory_tag(char const* name) : before_{detail::tag_of_thread} {
    const detail::tag_number number = detail::number_of_tag(name);
    if (!detail::tags_in_use.load(std::memory_order_relaxed))
        detail::tags_in_use.store(true, std::memory_order_relaxed);
    detail::tag_of_thread = number;
}

memory_tag::~memory_tag() { detail::tag_of_thread = before_; }

char const* memory_tag::current() noexcept {
    return detail::tag_of_thread <= detail::of_a_pool ? "" : detail::name_of_tag(detail::tag_of_thread);
}

}  // namespace kmm_v0
}  // namespace rmm
