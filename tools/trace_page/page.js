// The page around the drawing: pointer and keys, what is under the pointer, search, table, the life of a task, the
// address.

const element = (id) => document.getElementById(id);
const tip = element("tip");

// Texts of the trace only ever become text nodes.
function make(tag, className, ...children) {
  const node = document.createElement(tag);
  if (className) node.className = className;
  node.append(...children);
  return node;
}

let frame_asked = false;
function redraw() {
  if (frame_asked) return;
  frame_asked = true;
  requestAnimationFrame(() => {
    frame_asked = false;
    draw();
  });
}

let settle_timer = 0;
function view_changed() {
  redraw();
  clearTimeout(settle_timer);
  settle_timer = setTimeout(() => {
    write_address();
    fill_table();
  }, 150);
}

const whole = Math.max(1, head.end_ns - head.begin_ns);
const margin = 0.01;
function show(from, to) {
  const shortest = 5;
  const longest = whole * (1 + 2 * margin);
  const length = Math.min(longest, Math.max(shortest, to - from));
  const middle = (from + to) / 2;
  const most = head.end_ns + whole * margin;
  const least = head.begin_ns - whole * margin;
  view.from = Math.min(Math.max(middle - length / 2, least), most - length);
  view.to = view.from + length;
  view_changed();
}
const show_all = () => show(head.begin_ns - whole * margin, head.end_ns + whole * margin);
function zoom(factor, x) {
  const time = time_at(x);
  show(time - (time - view.from) * factor, time + (view.to - time) * factor);
}
const pan = (pixels) => show(view.from + pixels / scale(), view.to + pixels / scale());
function scroll_by(pixels) {
  view.scroll += pixels;
  view_changed();
}

// What is under the pointer: {row, track, i, last} of slices, or {row, mark}, or {row} alone.
function under(x, y) {
  const row = rows.find((r) => y + view.scroll >= r.top && y + view.scroll < r.top + r.height);
  if (y < axis_height || !row) return null;
  if (x < gutter || row.kind === "group" || row.kind === "counter") return {row};
  if (row.kind === "marks") return {row, ...mark_under(row, x)};
  const track = row.tracks[Math.floor((y + view.scroll - row.top - 2) / row.step)];
  if (!track) return {row};
  // A slice is hit from two pixels beside it, because it may be narrower than one.
  const [near, past] = visible(track, time_at(x - 0.5), time_at(x + 0.5));
  const [i, last] = near < past ? [near, past] : visible(track, time_at(x - 2), time_at(x + 2));
  if (i >= last) return {row};
  const found = filtered() && matching(track, i, last) > 0;
  return {row, track, i: found ? first_match(track, i, last) : longest_of(track, i, last), first: i, last};
}

function mark_under(row, x) {
  const {times} = row.marks;
  const first = first_at_least(times, time_at(x - 5));
  const last = first_at_least(times, time_at(x + 5), first);
  return first < last ? {mark: row.marks[first], several: last - first} : {};
}

const value_text = (key, value) =>
    key.includes("bytes") && typeof value === "number" ? `${bytes_text(value)} (${value})` : String(value);

function argument_table(list) {
  const table = make("table", "arguments");
  for (const [key, value] of list)
    table.append(make("tr", "", make("td", "", key), make("td", "", value_text(key, value))));
  return table;
}

function slice_facts(track, i) {
  const facts = [["begin", time_text(track.begin[i], 7)], ["end", time_text(track.end[i], 7)]];
  const list = arguments_at(track.place[i]);
  const length = track.end[i] - track.begin[i];
  if (track.bytes !== null && length > 0) facts.push(["rate", `${bytes_text(track.bytes[i] / (length / s))}/s`]);
  return [...facts, ...list];
}

function describe_slices({row, track, i, first, last}) {
  const many = last - first;
  const group = groups[track.group[i]];
  const nodes =
      [make("b", "", texts[track.name[i]]), ` ${group.category} for ${time_text(track.end[i] - track.begin[i])}`];
  if (many > 1) {
    const from = track.begin[first], to = track.end[last - 1];
    const share = Math.round(100 * (track.busy[last] - track.busy[first]) / Math.max(1, to - from));
    nodes.push(
        make("div", "", `the longest of ${many} here (${row.label}); busy ${share} % of ${time_text(to - from)}`));
  }
  nodes.push(argument_table(slice_facts(track, i)));
  return nodes;
}

function describe_mark({mark, several}) {
  const what = mark.category === "evict" ? "evicted" : mark.category === "fail" ? "failed" : mark.category;
  const nodes = [make("b", "", texts[mark.name]), ` ${what} at ${time_text(mark.time, 7)}`];
  if (several > 1) nodes.push(make("div", "", `the first of ${several} here`));
  nodes.push(argument_table(arguments_at(mark.place)));
  return nodes;
}

function describe_counter({row: {series}}, x) {
  const time = time_at(x);
  const i = first_at_least(series.time, time + 1) - 1;
  const value = value_of(series);
  const list = series.keys.map(
      ({key, values, most}) => [key, `${i < 0 ? "not known yet" : value(values[i])}, at most ${value(most)}`]);
  return [
    make("b", "", `${head.processes[series.process].name}: ${series.name}`), ` at ${time_text(time, 7)}`,
    argument_table(list)
  ];
}

function show_tip(x, y) {
  const hit = under(x, y);
  const nodes = !hit || x < gutter ? null :
      hit.track                    ? describe_slices(hit) :
      hit.mark                     ? describe_mark(hit) :
      hit.row.kind === "counter"   ? describe_counter(hit, x) :
                                     null;
  tip.style.display = nodes ? "block" : "none";
  if (!nodes) return;
  tip.replaceChildren(...nodes);
  const {offsetWidth: width, offsetHeight: height} = tip;
  tip.style.left = `${x + 14 + width > view.width ? Math.max(0, x - width - 10) : x + 14}px`;
  tip.style.top = `${y + 14 + height > view.height ? Math.max(0, y - height - 10) : y + 14}px`;
}

// Search: a part of a name, or "task 17".
let matching_texts = new Uint8Array(0);
const all_tracks = () => [...tracks, ...[...wait_rows.values()].flat().flatMap((row) => row.packed)];
function is_match(name, task) { return choice.task >= 0 ? task === choice.task : matching_texts[name] === 1; }

function choose(find, task) {
  choice.find = find;
  choice.task = task;
  const lower = find.toLowerCase();
  matching_texts = Uint8Array.from(texts, (text) => (lower !== "" && text.toLowerCase().includes(lower) ? 1 : 0));
  for (const track of all_tracks()) {
    track.matches = filtered() ? new Uint32Array(track.count + 1) : null;
    if (!filtered()) continue;
    for (let i = 0; i < track.count; i++)
      track.matches[i + 1] = track.matches[i] + (is_match(track.name[i], track.task[i]) ? 1 : 0);
  }
  const count = tracks.reduce((sum, track) => sum + (track.matches ? track.matches[track.count] : 0), 0);
  element("matches").textContent = !filtered() ? "" : count === 1 ? "1 match" : `${count} matches`;
  show_task();
  view_changed();
}

function find(text) {
  const task = /^\s*task\s+(\d+)\s*$/i.exec(text);
  choose(task ? "" : text.trim(), task ? Number(task[1]) : -1);
}

// The next match that begins after the middle of the view, of all lanes.
function go_to_next(direction) {
  const middle = (view.from + view.to) / 2;
  let best = null;
  for (const track of tracks) {
    if (track.matches === null || track.matches[track.count] === 0) continue;
    const here = direction > 0 ? first_at_least(track.begin, middle + 1) : first_at_least(track.begin, middle - 1);
    const wanted = track.matches[here] + (direction > 0 ? 1 : 0);
    if (wanted < 1 || wanted > track.matches[track.count]) continue;
    const i = first_at_least(track.matches, wanted) - 1;
    if (best === null || direction * (track.begin[i] - best.track.begin[best.i]) < 0) best = {track, i};
  }
  if (best === null) return;
  const begin = best.track.begin[best.i];
  const half = Math.min(view.to - view.from, Math.max(1000, 40 * (best.track.end[best.i] - begin))) / 2;
  show(begin - half, begin + half);
  reveal(best.track);
}

function reveal(track) {
  const row = rows.find((r) => r.tracks?.includes(track));
  if (!row) return;
  const y = row.top - view.scroll;
  if (y < axis_height || y + row.height > view.height) view.scroll = row.top - view.height / 2;
}

// Everything that has the number of the chosen task, in the order in which it began.
function show_task() {
  const title = element("detail-title");
  const detail = element("detail");
  if (choice.task < 0) {
    title.textContent = "one task";
    detail.replaceChildren(
        make("p", "", "Click on a slice to see all that was done for its task: submit, copies, waits, kernels."));
    return;
  }
  const list = [];
  for (const track of tracks)
    for (let i = first_match_from(track, 0); i >= 0; i = first_match_from(track, i + 1)) {
      const lane = head.lanes[track.lane];
      const what = `${groups[track.group[i]].category} ${texts[track.name[i]]}`;
      list.push({
        track,
        begin: track.begin[i],
        end: track.end[i],
        what,
        where: `${head.processes[lane.process].name}, ${lane.name}`
      });
    }
  for (const {begin, end, category, process} of waits.filter((wait) => wait.task === choice.task))
    list.push({begin, end, what: category, where: head.processes[process].name});
  for (const {time, category, process} of marks.filter((mark) => mark.task === choice.task))
    list.push({begin: time, end: time, what: category, where: head.processes[process].name});
  list.sort((a, b) => a.begin - b.begin);
  title.textContent = `task ${choice.task}: ${list.length} events`;
  const life = make("table", "life");
  const most = 200;
  for (const {track, begin, end, what, where} of list.slice(0, most)) {
    const row = make(
        "tr", "row", make("td", "", time_text(begin, 7)), make("td", "", time_text(end - begin)), make("td", "", what),
        make("td", "", where));
    row.addEventListener("click", () => {
      show_span(begin, end);
      if (track) reveal(track);
    });
    life.append(row);
  }
  detail.replaceChildren(life, ...(list.length > most ? [make("p", "", `and ${list.length - most} more`)] : []));
}

function first_match_from(track, i) {
  if (track.matches === null || track.matches[track.count] === track.matches[i]) return -1;
  return first_match(track, i, track.count);
}

function show_span(begin, end) {
  const length = Math.max(20, end - begin);
  show(begin - 1.5 * length, end + 1.5 * length);
}

// The table: sums of what touches the view.
const columns = [
  ["name", "left", (r) => r.name, (r) => r.name],
  ["what", "left", (r) => r.what, (r) => r.what],
  ["count", "", (r) => r.count, (r) => String(r.count)],
  ["total", "", (r) => r.total, (r) => time_text(r.total)],
  ["mean", "", (r) => r.total / r.count, (r) => time_text(r.total / r.count)],
  ["longest", "", (r) => r.longest, (r) => time_text(r.longest)],
  ["bytes", "", (r) => r.bytes, (r) => (r.bytes > 0 ? bytes_text(r.bytes) : "")],
];
let sorted_by = 3;
let upwards = false;

function sums_in_view() {
  const count = new Float64Array(groups.length);
  const total = new Float64Array(groups.length);
  const longest = new Float64Array(groups.length);
  const size = new Float64Array(groups.length);
  const add = (g, length) => {
    count[g]++;
    total[g] += length;
    if (length > longest[g]) longest[g] = length;
  };
  for (const track of tracks) {
    const [first, last] = visible(track, view.from, view.to);
    const {begin, end, group} = track;
    for (let i = first; i < last; i++) {
      add(group[i], end[i] - begin[i]);
      if (track.bytes !== null) size[group[i]] += track.bytes[i];
    }
  }
  for (const wait of waits)
    if (wait.end > view.from && wait.begin < view.to) add(wait.group, wait.end - wait.begin);
  return groups
      .map((group, g) => ({
             name: group.label,
             what: group.way ? `copy ${group.way}` : group.category,
             colour: colours[group.colour],
             count: count[g],
             total: total[g],
             longest: longest[g],
             bytes: size[g],
           }))
      .filter((row) => row.count > 0);
}

function fill_table() {
  if (element("panel").classList.contains("hidden")) return;
  const list = sums_in_view();
  const [, , key] = columns[sorted_by];
  list.sort((a, b) => (key(a) < key(b) ? -1 : key(a) > key(b) ? 1 : 0) * (upwards ? 1 : -1));
  const most = 300;
  const header = make("tr", "");
  columns.forEach(([name, side], c) => {
    const cell = make("th", side, `${name}${c === sorted_by ? (upwards ? " ▴" : " ▾") : ""}`);
    cell.addEventListener("click", () => {
      upwards = c === sorted_by ? !upwards : c < 2;
      sorted_by = c;
      fill_table();
    });
    header.append(cell);
  });
  const body = list.slice(0, most).map((row) => {
    const line = make("tr", "row");
    columns.forEach(([, side, , text], c) => {
      const cell = make("td", side, text(row));
      if (c === 0) {
        const swatch = make("i", "");
        swatch.style.background = row.colour;
        cell.prepend(swatch);
        cell.title = row.name;
      }
      line.append(cell);
    });
    line.addEventListener("click", () => {
      element("find").value = row.name;
      find(row.name);
    });
    return line;
  });
  element("table").replaceChildren(header, ...body);
  const all = view.from <= head.begin_ns && view.to >= head.end_ns;
  const where = all ? "whole trace" : `in view: ${time_text(view.from, 7)} to ${time_text(view.to, 7)}`;
  element("table-title").textContent = where + (list.length > most ? `; ${list.length - most} names more` : "");
}

function fill_legend() {
  const entries = new Map();
  const order = [...groups].sort((a, b) => b.total - a.total);
  for (const group of order) {
    const by_name = choice.colour === "name" && runs_tasks(group);
    const label = by_name         ? (group.colour === colours.length - 1 ? "other tasks" : group.label) :
        group.category === "copy" ? `copy ${group.way}` :
                                    group.category;
    if (!entries.has(label)) entries.set(label, colours[group.colour]);
  }
  const kinds = all_series.flatMap((series) => series.keys.map((k) => k.key));
  for (const key of counter_order)
    if (kinds.includes(key)) entries.set(`memory ${key}`, counter_styles[key].fill ?? counter_styles[key].line);
  const nodes = [...entries].map(([label, colour]) => {
    const swatch = make("i", "");
    swatch.style.background = colour;
    return make("span", "", swatch, label);
  });
  if (marks.some((mark) => mark.category === "evict"))
    nodes.push(make("span", "", "▼ evicted and saved"), make("span", "", "▽ evicted, nothing to save"));
  if (marks.some((mark) => mark.category === "fail")) nodes.push(make("span", "", "✕ failed"));
  element("legend").replaceChildren(...nodes);
}

// The address: everything that makes up what is seen.
function write_address() {
  const parts = [];
  if (view.from > head.begin_ns || view.to < head.end_ns)
    parts.push(`from=${(view.from / us).toFixed(3)}`, `to=${(view.to / us).toFixed(3)}`);
  if (view.scroll > 0) parts.push(`scroll=${Math.round(view.scroll)}`);
  if (choice.find !== "") parts.push(`find=${encodeURIComponent(choice.find)}`);
  if (choice.task >= 0) parts.push(`task=${choice.task}`);
  if (choice.colour !== "name") parts.push(`colours=${choice.colour}`);
  if (choice.folded.size > 0) parts.push(`folded=${[...choice.folded].join(",")}`);
  if (element("panel").classList.contains("hidden")) parts.push("table=no");
  const hash = parts.length > 0 ? `#${parts.join("&")}` : location.pathname;
  try {
    history.replaceState(null, "", hash);
  } catch {
    // A browser may forbid it for files; the page works without.
  }
}

function read_address() {
  const given = new URLSearchParams(location.hash.slice(1));
  const from = Number.parseFloat(given.get("from")) * us;
  const to = Number.parseFloat(given.get("to")) * us;
  choice.colour = given.get("colours") === "kind" ? "kind" : "name";
  element("colour").value = choice.colour;
  choice.folded = new Set((given.get("folded") ?? "").split(",").filter((t) => t !== "").map(Number));
  element("panel").classList.toggle("hidden", given.get("table") === "no");
  choose_colours();
  lay_out();
  fill_legend();
  draw();
  view.scroll = Number.parseFloat(given.get("scroll")) || 0;
  const text = given.has("task") ? `task ${given.get("task")}` : given.get("find") ?? "";
  element("find").value = text;
  if (from < to)
    show(from, to);
  else
    show_all();
  find(text);
}

function fill_head() {
  element("title").textContent = head.title;
  const about = element("about");
  const said = head.about;
  const parts = [`${head.num_events} events`, time_text(head.end_ns - head.begin_ns)];
  if (said.driver) parts.push(`driver ${said.driver}`);
  if (said.device_times) parts.push(`device times as the ${said.device_times} sees them`);
  about.append(parts.join("  ·  "));
  if (said.dropped_events && said.dropped_events !== "0")
    about.append(" ", make("b", "", `${said.dropped_events} events were dropped`));
  if (head.is_cut_off) about.append(" ", make("b", "", "the file ends before the trace does"));
}

// Pointer and keys.
let drag = null;
const place = (event) => {
  const box = canvas.getBoundingClientRect();
  return [event.clientX - box.left, event.clientY - box.top];
};
canvas.addEventListener("pointerdown", (event) => {
  const [x, y] = place(event);
  drag = {x, y, from_x: x, from_y: y, moved: false, range: event.shiftKey && x > gutter};
  canvas.setPointerCapture(event.pointerId);
  canvas.classList.add("dragged");
});
canvas.addEventListener("pointermove", (event) => {
  const [x, y] = place(event);
  if (!drag) return show_tip(x, y);
  tip.style.display = "none";
  drag.moved ||= Math.abs(x - drag.from_x) + Math.abs(y - drag.from_y) > 3;
  if (drag.range) {
    choice.range = [drag.from_x, Math.max(gutter, x)];
    redraw();
  } else if (drag.moved) {
    pan(drag.x - x);
    view.scroll += drag.y - y;
  }
  drag.x = x;
  drag.y = y;
});
canvas.addEventListener("pointerup", (event) => {
  const [x, y] = place(event);
  const ended = drag;
  drag = null;
  canvas.classList.remove("dragged");
  const range = choice.range;
  choice.range = null;
  if (!ended) return;
  if (range && Math.abs(range[1] - range[0]) > 3)
    show(time_at(Math.min(...range)), time_at(Math.max(...range)));
  else if (!ended.moved)
    click(x, y);
});
canvas.addEventListener("pointerleave", () => (tip.style.display = "none"));

function click(x, y) {
  const hit = under(x, y);
  if (hit?.row.kind === "group") {
    if (!choice.folded.delete(hit.row.process)) choice.folded.add(hit.row.process);
    lay_out();
    view_changed();
    return;
  }
  const task = hit?.track ? hit.track.task[hit.i] : hit?.mark ? hit.mark.task : -1;
  element("find").value = task >= 0 ? `task ${task}` : "";
  choose("", task);
}

canvas.addEventListener("dblclick", (event) => {
  const hit = under(...place(event));
  if (hit?.track) show_span(hit.track.begin[hit.i], hit.track.end[hit.i]);
});
canvas.addEventListener("wheel", (event) => {
  event.preventDefault();
  const [x] = place(event);
  const step = event.deltaMode === 1 ? 30 : 1;
  if (Math.abs(event.deltaX) > Math.abs(event.deltaY) && !event.shiftKey)
    pan(event.deltaX * step);
  else if (event.shiftKey || x < gutter)
    scroll_by((event.deltaY || event.deltaX) * step);
  else
    zoom(Math.exp(event.deltaY * step * 0.0015), x);
}, {passive: false});

const middle_x = () => (gutter + view.width) / 2;
const pressed = {
  w: () => zoom(0.7, middle_x()),
  s: () => zoom(1 / 0.7, middle_x()),
  "+": () => zoom(0.7, middle_x()),
  "-": () => zoom(1 / 0.7, middle_x()),
  a: () => pan(-120),
  d: () => pan(120),
  ArrowLeft: () => pan(-120),
  ArrowRight: () => pan(120),
  ArrowUp: () => scroll_by(-60),
  ArrowDown: () => scroll_by(60),
  0: show_all,
  Home: show_all,
  "/": () => element("find").focus(),
  t: () => element("panel-button").click(),
  "?": () => element("keys-button").click(),
  Escape: () => {
    element("find").value = "";
    element("keys").classList.remove("shown");
    choose("", -1);
  },
};
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.target === element("find")) {
    if (event.key === "Enter") go_to_next(event.shiftKey ? -1 : 1);
    if (event.key !== "Escape") return;
    element("find").blur();
  }
  const action = pressed[event.key];
  if (!action || (event.target.tagName === "SELECT" && event.key !== "Escape")) return;
  event.preventDefault();
  action();
});

let typing = 0;
element("find").addEventListener("input", () => {
  clearTimeout(typing);
  typing = setTimeout(() => find(element("find").value), 120);
});
element("colour").addEventListener("change", () => {
  choice.colour = element("colour").value;
  choose_colours();
  fill_legend();
  view_changed();
});
element("all").addEventListener("click", show_all);
element("keys-button").addEventListener("click", () => element("keys").classList.toggle("shown"));
element("panel-button").addEventListener("click", () => {
  element("panel").classList.toggle("hidden");
  view_changed();
});
window.addEventListener("hashchange", read_address);
// At once: a canvas of the wrong size is stretched.
new ResizeObserver(() => {
  draw();
  view_changed();
}).observe(element("stage"));

group_beside_lanes();
fill_head();
read_address();
fill_table();
