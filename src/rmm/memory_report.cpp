// Implements <rmm/memory_report.hpp>. Any thread.
#include "rmm/memory_report.hpp"

#include <algorithm>
#include <cstdio>
#include <vector>

#include <nlohmann/json.hpp>

#include "driver/format.hpp"
#include "driver/locks.hpp"
#include "rmm/class_names.hpp"
#include "rmm/ledger.hpp"
#include "rmm/status.hpp"
#include "rmm/tags.hpp"

namespace rmm {
inline namespace kmm_v0 {
namespace {

using kmm::driver::byte_size_text;
using json = nlohmann::ordered_json;

struct listed_holder {
    detail::holder_figures figures;
    std::vector<detail::held_block> blocks;
    std::string line;
};

struct device_figures {
    bool known = false;  // by the driver
    memory_shortage driver;
    std::size_t held_bytes = 0;
    std::size_t elsewhere_bytes = 0;
    std::vector<listed_holder> holders;
    detail::tag_sums by_tag;
};

device_figures look_at(int device, bool with_blocks) {
    device_figures d;
    detail::for_each_holder(device, [&](detail::memory_holder& h) {
        listed_holder one;
        one.figures = h.figures();
        one.line = h.line_for_shortage();
        if (with_blocks) {
            h.add_blocks(&one.blocks);
            std::sort(one.blocks.begin(), one.blocks.end(),
                      [](const auto& a, const auto& b) { return a.address < b.address; });
        }
        h.add_by_tag(&d.by_tag);
        if (one.figures.takes_from_driver) d.held_bytes += one.figures.held_bytes;
        d.holders.push_back(std::move(one));
    });
    // Counted where they are used.
    if (d.by_tag.size() > detail::of_a_pool) d.by_tag[detail::of_a_pool] = {};
    d.known = detail::describe_device_memory(device, &d.driver);
    if (d.known) {
        const std::size_t taken = d.driver.device_total_bytes - d.driver.device_free_bytes;
        d.elsewhere_bytes = taken - std::min(taken, d.held_bytes);
    }
    return d;
}

/// The numbers of tags in use, that of most bytes first.
std::vector<detail::tag_number> largest_first(const detail::tag_sums& sums) {
    std::vector<detail::tag_number> tags;
    for (std::size_t i = 0; i < sums.size(); ++i)
        if (sums[i].num_blocks != 0) tags.push_back(static_cast<detail::tag_number>(i));
    std::stable_sort(tags.begin(), tags.end(), [&](auto a, auto b) { return sums[a].bytes > sums[b].bytes; });
    return tags;
}

json as_json(const listed_holder& h, bool with_blocks) {
    const detail::holder_figures& f = h.figures;
    json j = {{"name", f.name},
              {"kind", f.kind},
              {"takes_from_driver", f.takes_from_driver},
              {"held_bytes", f.held_bytes},
              {"in_use_bytes", f.in_use_bytes},
              {"largest_free_bytes", f.largest_free_bytes},
              {"peak_bytes", f.peak_bytes},
              {"maximum_bytes", f.maximum_bytes == 0 ? json(nullptr) : json(f.maximum_bytes)},
              {"num_blocks", f.num_blocks}};
    if (!with_blocks) return j;
    json blocks = json::array();
    for (const detail::held_block& b : h.blocks) {
        char address[32];
        std::snprintf(address, sizeof(address), "0x%zx", static_cast<std::size_t>(b.address));
        blocks.push_back({{"address", address},
                          {"size_bytes", b.size_bytes},
                          {"tag", b.tag == detail::untagged ? "" : detail::name_of_tag(b.tag)}});
    }
    j["blocks"] = std::move(blocks);
    return j;
}

json as_json(int device, const device_figures& d, bool with_blocks) {
    const auto if_known = [&](std::size_t bytes) { return d.known ? json(bytes) : json(nullptr); };
    json j = {{"device", device},
              {"name", detail::device_name(device)},
              {"total_bytes", if_known(d.driver.device_total_bytes)},
              {"free_bytes", if_known(d.driver.device_free_bytes)},
              {"held_bytes", d.held_bytes},
              {"elsewhere_bytes", if_known(d.elsewhere_bytes)}};
    j["holders"] = json::array();
    for (const listed_holder& h : d.holders) j["holders"].push_back(as_json(h, with_blocks));
    j["by_tag"] = json::array();
    for (const detail::tag_number tag : largest_first(d.by_tag))
        j["by_tag"].push_back({{"tag", tag == detail::untagged ? "" : detail::name_of_tag(tag)},
                               {"in_use_bytes", d.by_tag[tag].bytes},
                               {"num_blocks", d.by_tag[tag].num_blocks}});
    return j;
}

}  // namespace

std::string memory_report(cuda_device_id device) {
    std::size_t free_bytes = 0;
    std::size_t total_bytes = 0;
    detail::check(detail::the_driver().memory_info(device.value(), &free_bytes, &total_bytes));
    const device_figures d = look_at(device.value(), false);
    std::string text = kmm::driver::format(
        "{}: total {}   free {}   held here {}   other processes and driver {}\n", detail::device_name(device.value()),
        byte_size_text(d.driver.device_total_bytes), byte_size_text(d.driver.device_free_bytes),
        byte_size_text(d.held_bytes), byte_size_text(d.elsewhere_bytes));
    for (const listed_holder& h : d.holders) {
        const detail::holder_figures& f = h.figures;
        text += kmm::driver::format("  {}{}: holds {} (in use {} in {} blocks, largest free piece {})   peak {}",
                                    f.name, f.name == f.kind ? "" : kmm::driver::format(" ({})", f.kind),
                                    byte_size_text(f.held_bytes), byte_size_text(f.in_use_bytes), f.num_blocks,
                                    byte_size_text(f.largest_free_bytes), byte_size_text(f.peak_bytes));
        if (f.maximum_bytes != 0) text += "   maximum " + byte_size_text(f.maximum_bytes);
        text += (h.line.empty() ? "" : "   " + h.line) + "\n";
    }
    if (detail::tags_in_use.load(std::memory_order_relaxed)) {
        text += "  by tag:";
        for (const detail::tag_number tag : largest_first(d.by_tag))
            text += kmm::driver::format("   {} {} in {}", detail::name_of_tag(tag), byte_size_text(d.by_tag[tag].bytes),
                                        d.by_tag[tag].num_blocks);
        text += "\n";
    }
    return text;
}

std::string memory_snapshot(snapshot_blocks blocks) {
    const detail::names_for_programs names;
    const bool with_blocks = blocks == snapshot_blocks::yes;
    json all = {{"devices", json::array()}};
    const int num_devices = detail::the_driver().device_count();
    for (int device = 0; device < num_devices; ++device)
        all["devices"].push_back(as_json(device, look_at(device, with_blocks), with_blocks));
    // Names need not be UTF-8.
    return all.dump(-1, ' ', false, json::error_handler_t::replace);
}

}  // namespace kmm_v0
}  // namespace rmm
