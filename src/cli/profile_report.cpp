#include "cli/profile_report.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "base/format.h"
#include "cli/text.h"
#include "io/json_writer.h"

namespace aeshna::cli {
namespace {

using Rows = std::vector<std::vector<std::string>>;

const char* segment_name(Segment segment) {
  return segment == Segment::Forward ? "forward" : segment == Segment::Backward ? "backward" : "update";
}

// ---- JSON

class JsonObject {
 public:
  void text(std::string_view key, std::string_view value) { raw(key, json_quoted(value)); }
  void num(std::string_view key, double value) { raw(key, json_number(value)); }
  void count(std::string_view key, std::uint64_t value) { raw(key, std::to_string(value)); }
  void raw(std::string_view key, std::string_view value) {
    text_ += text_.empty() ? "{" : ", ";
    (text_ += json_quoted(key)) += ": ";
    text_ += value;
  }
  std::string done() const { return text_.empty() ? "{}" : text_ + "}"; }

 private:
  std::string text_;
};

template <class Range, class F>
std::string json_array(const Range& items, F&& f) {
  std::string text;
  for (const auto& item : items) text += (text.empty() ? "[\n  " : ",\n  ") + f(item);
  return text.empty() ? "[]" : text + "\n ]";
}

/// Rates as shares of the ceilings.
struct Rates {
  double gb_per_s, gflop_per_s, of_bandwidth, of_peak;
  Rates(double bytes, double flop, double us, double peak, const Ceilings& c)
      : gb_per_s(us > 0 ? bytes / us * 1e-3 : 0),
        gflop_per_s(us > 0 ? flop / us * 1e-3 : 0),
        of_bandwidth(c.bytes_per_s > 0 ? gb_per_s * 1e9 / c.bytes_per_s : 0),
        of_peak(peak > 0 ? gflop_per_s * 1e9 / peak : 0) {}
  Rates(const ProfileRow& row, const Ceilings& c) : Rates(row.bytes, row.flop, row.us, row.peak(c), c) {}
};

void add_row(JsonObject& json, const ProfileRow& row, const Ceilings& c) {
  const Rates rates(row, c);
  json.count("step", row.step);
  json.count("group", row.group);
  json.text("segment", segment_name(row.segment));
  json.text("site", row.site);
  json.text("ops", row.ops);
  json.text("nodes", row.nodes);
  json.text("line", row.line);
  json.text("family", row.family);
  json.text("variant", row.variant);
  json.text("shape", row.shape);
  json.count("workgroups", row.workgroups);
  json.raw("local", formatted("[{}, {}, {}]", row.local[0], row.local[1], row.local[2]));
  json.count("bytes_read", row.bytes_read);
  json.count("bytes_written", row.bytes_written);
  json.num("bytes", row.bytes);
  json.num("flop", row.flop);
  json.num("us", row.us);
  json.num("min_us", row.min_us);
  json.num("bound_us", row.bound_us(c));
  json.num("excess_us", row.excess_us(c));
  json.num("gb_per_s", rates.gb_per_s);
  json.num("gflop_per_s", rates.gflop_per_s);
  json.num("of_bandwidth", rates.of_bandwidth);
  json.num("of_peak", rates.of_peak);
}

std::string ceilings_json(const Ceilings& c) {
  JsonObject json;
  json.num("gb_per_s", c.bytes_per_s * 1e-9);
  json.num("gflop_per_s", c.flop_per_s * 1e-9);
  json.num("contract_gflop_per_s", c.contract_flop_per_s * 1e-9);
  json.num("dispatch_us", c.dispatch_us);
  json.num("dependent_dispatch_us", c.dependent_dispatch_us);
  return json.done();
}

std::string pattern_json(const Profile& profile, const ProfilePattern& pattern) {
  const ProfileRow& first = profile.rows[pattern.rows[0]];
  JsonObject json;
  json.text("segment", segment_name(first.segment));
  json.text("family", first.family);
  json.text("variant", first.variant);
  json.text("shape", first.shape);
  json.text("ops", first.ops);
  json.text("first_site", first.site);
  json.raw("rows", [&] {
    std::string list;
    for (const std::uint32_t row : pattern.rows) list += (list.empty() ? "" : ", ") + std::to_string(row);
    return "[" + list + "]";
  }());
  json.num("us", pattern.us);
  json.num("bound_us", pattern.bound_us);
  json.num("excess_us", pattern.excess_us());
  json.num("share", pattern.us / profile.sum_us());
  return json.done();
}

std::string family_key(const ProfileRow& row) { return row.family; }
std::string segment_key(const ProfileRow& row) { return segment_name(row.segment); }

std::string totals_json(const Profile& profile, std::string (*key)(const ProfileRow&)) {
  JsonObject all;
  for (const ProfilePattern& group : group_rows(profile, key)) {
    JsonObject json;
    json.count("dispatches", group.rows.size());
    json.num("us", group.us);
    json.num("share", group.us / profile.sum_us());
    json.num("bound_us", group.bound_us);
    json.num("excess_us", group.excess_us());
    json.num("bytes", group.bytes);
    json.num("flop", group.flop);
    all.raw(key(profile.rows[group.rows[0]]), json.done());
  }
  return all.done();
}

// ---- Text

/// The end of a name says more than its beginning.
std::string tail(const std::string& text, std::size_t width) {
  if (text.size() <= width) return text;
  const std::string cut = text.starts_with('~') ? "~.." : "..";
  return cut + text.substr(text.size() + cut.size() - width);
}
std::string head(const std::string& text, std::size_t width) {
  return text.size() <= width ? text : text.substr(0, width - 2) + "..";
}
std::string right(std::string text, std::size_t width) {
  return text.size() < width ? std::string(width - text.size(), ' ') + text : text;
}
std::string fixed(double value, int digits, std::size_t width) {
  return right(formatted("{:.{}f}", value, digits), width);
}
/// A variant in a narrow column: what is usual is left out.
std::string compact(std::string variant) {
  variant += ' ';
  for (const auto& [what, with] :
       {std::pair<std::string_view, std::string_view>{" split=1 ", " "}, {" stages=", " s"}}) {
    if (const std::size_t at = variant.find(what); at != std::string::npos) variant.replace(at, what.size(), with);
  }
  variant.pop_back();
  return variant;
}
std::string percent(double share) { return right(formatted("{:.0f}%", 100 * share), 4); }

std::string totals_table(const Profile& profile, const char* title, std::string (*key)(const ProfileRow&)) {
  Rows rows = {{title, "  count", "        us", "   %", "     bound", "    excess", "  GB/s", "GFLOP/s"}};
  for (const ProfilePattern& group : group_rows(profile, key)) {
    const Rates rates(group.bytes, group.flop, group.us, 0, profile.ceilings);
    rows.push_back({key(profile.rows[group.rows[0]]), right(std::to_string(group.rows.size()), 7),
                    fixed(group.us, 1, 10), percent(group.us / profile.sum_us()), fixed(group.bound_us, 1, 10),
                    fixed(group.excess_us(), 1, 10), fixed(rates.gb_per_s, 0, 6), fixed(rates.gflop_per_s, 0, 7)});
  }
  return format_table(rows);
}

std::string patterns_table(const Profile& profile, std::size_t top) {
  const std::vector<ProfilePattern> patterns = group_rows(profile, pattern_key);
  Rows rows = {{"count", "       us", "   %", "   excess", "us each", "bound", "  BW", "peak", "", "family", "variant",
                "shape", "ops"}};
  for (const ProfilePattern& pattern : patterns) {
    if (rows.size() > top) break;
    const ProfileRow& row = profile.rows[pattern.rows[0]];
    const auto count = static_cast<double>(pattern.rows.size());
    const Rates rates(pattern.bytes, pattern.flop, pattern.us, row.peak(profile.ceilings), profile.ceilings);
    rows.push_back({right(std::to_string(pattern.rows.size()), 5), fixed(pattern.us, 1, 9),
                    percent(pattern.us / profile.sum_us()), fixed(pattern.excess_us(), 1, 9),
                    fixed(pattern.us / count, 1, 7), fixed(pattern.bound_us / count, 1, 5), percent(rates.of_bandwidth),
                    percent(rates.of_peak), std::string(1, segment_name(row.segment)[0]), head(row.family, 13),
                    head(compact(row.variant), 24), head(row.shape, 18), head(row.ops, 12)});
  }
  return formatted("layers alike, the largest excess first ({} of {})\n", rows.size() - 1, patterns.size()) +
         format_table(rows);
}

std::string rows_table(const Profile& profile, std::size_t top) {
  const Ceilings& c = profile.ceilings;
  std::vector<const ProfileRow*> sorted;
  for (const ProfileRow& row : profile.rows) sorted.push_back(&row);
  std::ranges::sort(sorted, std::greater(), [&](const ProfileRow* row) { return row->excess_us(c); });
  sorted.resize(std::min(sorted.size(), top));
  Rows rows = {{" step", "group", "      us", "   bound", "  excess", " GB/s", "GFLOP/s", "", "family", "shape", "ops",
                "where"}};
  for (const ProfileRow* row : sorted) {
    const Rates rates(*row, c);
    rows.push_back({right(std::to_string(row->step), 5), right(std::to_string(row->group), 5), fixed(row->us, 1, 8),
                    fixed(row->bound_us(c), 1, 8), fixed(row->excess_us(c), 1, 8), fixed(rates.gb_per_s, 0, 5),
                    fixed(rates.gflop_per_s, 0, 7), std::string(1, segment_name(row->segment)[0]),
                    head(row->family, 13), head(row->shape, 18), head(row->ops, 12), tail(row->site, 28)});
  }
  return formatted("dispatches, the largest excess first ({} of {})\n", sorted.size(), profile.rows.size()) +
         format_table(rows);
}

std::string summary(const Profile& profile, const ProfileSubject& subject) {
  const Ceilings& c = profile.ceilings;
  const double sum_ms = profile.sum_us() * 1e-3;
  std::string text = formatted("{}, {}, {}, on {}\n\n", subject.name, subject.phase, subject.contract, subject.device);
  text += formatted("step, wall clock   {:10.3f} ms   median of {} ordinary steps\n", profile.wall_median_ms,
                    profile.wall_ms.size());
  text += formatted("its device part    {:10.3f} ms   {} dispatches and copies, {} barriers\n", profile.device_ms,
                    profile.rows.size(), profile.barriers);
  text +=
      formatted("sum of dispatches  {:10.3f} ms   each alone; {} {:.3f} ms ({:.0f} % of the device part)\n", sum_ms,
                sum_ms > profile.device_ms ? "overlap saves" : "barriers and launches add",
                std::abs(profile.device_ms - sum_ms), 100 * std::abs(profile.device_ms - sum_ms) / profile.device_ms);
  double bound = 0;
  for (const ProfileRow& row : profile.rows) bound += row.bound_us(c);
  text += formatted("lower bound        {:10.3f} ms   of all dispatches at the ceilings\n", bound * 1e-3);
  text += formatted(
      "ceilings           {:.1f} GB/s, {:.0f} GFLOP/s{}; a dispatch alone {:.2f} us, dependent ones {:.2f} us each\n\n",
      c.bytes_per_s * 1e-9, c.flop_per_s * 1e-9,
      c.contract_flop_per_s == c.flop_per_s ? ""
                                            : formatted(" ({:.0f} under the contract)", c.contract_flop_per_s * 1e-9),
      c.dispatch_us, c.dependent_dispatch_us);
  return text;
}

// ---- Trace events: https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU

std::string metadata_event(const char* what, int track, std::string_view name) {
  return formatted(R"({{"name": "{}", "ph": "M", "pid": 1, "tid": {}, "args": {{"name": {}}}}})", what, track,
                   json_quoted(name));
}

}  // namespace

std::string profile_text(const Profile& profile, const ProfileSubject& subject, std::size_t top) {
  return summary(profile, subject) + totals_table(profile, "segment", segment_key) + '\n' +
         totals_table(profile, "family", family_key) + '\n' + patterns_table(profile, top) + '\n' +
         rows_table(profile, top);
}

std::string profile_json(const Profile& profile, const ProfileSubject& subject) {
  JsonObject json;
  json.count("schema", 1);
  json.text("kind", "profile");
  json.text("workload", subject.name);
  json.text("phase", subject.phase);
  json.text("contract", subject.contract);
  json.text("device", subject.device);
  json.raw("wall_ms", json_array(profile.wall_ms, json_number));
  json.num("wall_median_ms", profile.wall_median_ms);
  json.num("device_ms", profile.device_ms);
  json.num("sum_ms", profile.sum_us() * 1e-3);
  json.count("dispatches", profile.rows.size());
  json.count("barriers", profile.barriers);
  json.count("repeats", profile.repeats);
  json.raw("ceilings", ceilings_json(profile.ceilings));
  json.raw("segments", totals_json(profile, segment_key));
  json.raw("families", totals_json(profile, family_key));
  json.raw("patterns", json_array(group_rows(profile, pattern_key),
                                  [&](const ProfilePattern& pattern) { return pattern_json(profile, pattern); }));
  json.raw("rows", json_array(profile.rows, [&](const ProfileRow& row) {
             JsonObject object;
             add_row(object, row, profile.ceilings);
             return object.done();
           }));
  return json.done() + "\n";
}

std::string profile_trace(const Profile& profile, const ProfileSubject& subject) {
  std::vector<std::string> events = {metadata_event(
      "process_name", 0, formatted("{} {} {} on {}", subject.name, subject.phase, subject.contract, subject.device))};
  for (const Segment segment : {Segment::Forward, Segment::Backward, Segment::Update})
    events.push_back(metadata_event("thread_name", static_cast<int>(segment) + 1, segment_name(segment)));
  double at = 0;
  for (const ProfileRow& row : profile.rows) {
    JsonObject arguments, event;
    add_row(arguments, row, profile.ceilings);
    event.text("name", row.site.empty() ? row.ops : row.ops + " " + row.site);
    event.text("cat", row.family);
    event.text("ph", "X");
    event.count("pid", 1);
    event.count("tid", static_cast<std::uint64_t>(row.segment) + 1);
    event.num("ts", at);
    event.num("dur", row.us);
    event.raw("args", arguments.done());
    events.push_back(event.done());
    at += row.us;
  }
  return "{\"displayTimeUnit\": \"ns\", \"traceEvents\": " +
         json_array(events, [](const std::string& event) { return event; }) + "}\n";
}

}  // namespace aeshna::cli
